//! The ranges of a cluster or node that has addresses of one family or of both.

use std::fmt;
use std::str::FromStr;

use super::cidr::Cidr;

/// One range, or one of each family: the first is the primary one. In text a comma is between them, as in Kubernetes' own flags.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cidrs {
    primary: Cidr,
    other: Option<Cidr>,
}

/// A text that is no [`Cidrs`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a range nor one of each family with a comma between them")]
pub struct CidrsError(pub String);

impl Cidrs {
    /// The ranges of a list; none if it is empty or has two of one family.
    #[must_use]
    pub fn of(list: &[Cidr]) -> Option<Self> {
        match list {
            [one] => Some((*one).into()),
            [primary, other] if primary.is_v6() != other.is_v6() => {
                Some(Self { primary: *primary, other: Some(*other) })
            }
            _ => None,
        }
    }

    /// That of the primary family.
    #[must_use]
    pub const fn primary(&self) -> Cidr {
        self.primary
    }

    /// All, the primary one first.
    pub fn iter(&self) -> impl Iterator<Item = Cidr> {
        [self.primary].into_iter().chain(self.other)
    }

    /// Another one of each family, made of these.
    #[must_use]
    pub fn map(&self, make: impl Fn(Cidr) -> Cidr) -> Self {
        Self { primary: make(self.primary), other: self.other.map(make) }
    }

    /// That of a family.
    #[must_use]
    pub fn family(&self, v6: bool) -> Option<Cidr> {
        self.iter().find(|range| range.is_v6() == v6)
    }
}

impl From<Cidr> for Cidrs {
    fn from(primary: Cidr) -> Self {
        Self { primary, other: None }
    }
}

impl fmt::Display for Cidrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.primary)?;
        self.other.map_or(Ok(()), |other| write!(f, ",{other}"))
    }
}

impl FromStr for Cidrs {
    type Err = CidrsError;

    fn from_str(text: &str) -> Result<Self, CidrsError> {
        let list: Result<Vec<Cidr>, _> = text.split(',').map(|range| range.trim().parse()).collect();
        list.ok().and_then(|list| Self::of(&list)).ok_or_else(|| CidrsError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_or_one_of_each_family() {
        for (text, primary, v6) in [
            ("10.244.0.0/16", "10.244.0.0/16", None),
            ("10.244.0.0/16,fd00:1::/56", "10.244.0.0/16", Some("fd00:1::/56")),
            ("fd00:1::/56,10.244.0.0/16", "fd00:1::/56", Some("fd00:1::/56")),
        ] {
            let ranges: Cidrs = text.parse().unwrap();
            assert_eq!(ranges.to_string(), text);
            assert_eq!(ranges.primary().to_string(), primary);
            assert_eq!(ranges.family(true).map(|range| range.to_string()).as_deref(), v6);
        }
        for text in ["", ",", "10.0.0.0/8,10.1.0.0/16", "10.0.0.0/8,fd00::/8,fd01::/8", "10.0.0.0/8,"] {
            assert!(text.parse::<Cidrs>().is_err(), "{text}");
        }
    }
}
