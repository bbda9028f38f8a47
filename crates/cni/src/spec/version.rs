//! The versions of the specification.

use std::fmt;

use super::{CniError, Code};

/// A version that we speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 0.1.0: results with `ip4` and `ip6`.
    V0_1_0,
    /// 0.2.0: adds VERSION.
    V0_2_0,
    /// 0.3.0: results with `interfaces`, `ips` and `routes`; lists of plugins.
    V0_3_0,
    /// 0.3.1: corrects 0.3.0's text.
    V0_3_1,
    /// 0.4.0: adds CHECK, and `prevResult` on DEL.
    V0_4_0,
    /// 1.0.0: drops single configurations and `ips[].version`.
    V1_0_0,
    /// 1.1.0: adds GC and STATUS, and more fields in results.
    V1_1_0,
}

/// All of them, oldest first.
pub const ALL_VERSIONS: [Version; 7] = [
    Version::V0_1_0,
    Version::V0_2_0,
    Version::V0_3_0,
    Version::V0_3_1,
    Version::V0_4_0,
    Version::V1_0_0,
    Version::V1_1_0,
];

impl Version {
    /// The newest that we speak.
    pub const NEWEST: Self = Self::V1_1_0;

    /// Its text.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// The version of a text; none if we do not speak it. An empty text means 0.1.0, which had no such field.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::V0_1_0);
        }
        ALL_VERSIONS.into_iter().find(|version| version.text() == text)
    }

    /// The version of a configuration: the newest that we speak of `single` (`cniVersion`) and `many`
    /// (`cniVersions`); newer ones in the list are somebody else's.
    ///
    /// # Errors
    /// [`Code::IncompatibleVersion`] if we speak none of them.
    pub fn choose(single: Option<&str>, many: &[String]) -> Result<Self, CniError> {
        let candidates = many.iter().map(String::as_str).chain(single);
        let best = candidates.clone().filter_map(Self::parse).max();
        if many.is_empty() && single.is_none() {
            return Ok(Self::V0_1_0);
        }
        best.ok_or_else(|| {
            let asked = candidates.collect::<Vec<_>>().join(", ");
            CniError::new(Code::IncompatibleVersion, format!("CNI version {asked} is not supported"))
                .details(format!("supported are {} to {}", Self::V0_1_0, Self::NEWEST))
        })
    }

    /// True if CHECK exists, and DEL takes the previous result.
    #[must_use]
    pub fn has_check(self) -> bool {
        self >= Self::V0_4_0
    }

    /// True if GC and STATUS exist.
    #[must_use]
    pub fn has_gc(self) -> bool {
        self >= Self::V1_1_0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_that_we_speak_is_chosen() {
        let rows: [(Option<&str>, &[&str], Option<&str>); 9] = [
            (None, &[], Some("0.1.0")),
            (Some(""), &[], Some("0.1.0")),
            (Some("0.4.0"), &[], Some("0.4.0")),
            (Some("1.1.0"), &["0.3.1", "1.0.0"], Some("1.1.0")),
            (Some("0.3.1"), &["1.0.0", "1.1.0"], Some("1.1.0")),
            (Some("1.0.0"), &["1.2.0", "2.0.0"], Some("1.0.0")),
            (None, &["0.4.0", "9.9.9"], Some("0.4.0")),
            (Some("1.2.0"), &[], None),
            (Some("v1"), &["latest"], None),
        ];
        for (single, many, expected) in rows {
            let many: Vec<String> = many.iter().map(ToString::to_string).collect();
            let chosen = Version::choose(single, &many);
            assert_eq!(chosen.as_ref().ok().map(|v| v.text()), expected, "{single:?} {many:?}");
            if expected.is_none() {
                assert_eq!(chosen.unwrap_err().code, Code::IncompatibleVersion);
            }
        }
    }
}
