//! An image's name in full: registry, repository, and a tag or digest.

use oci_client::Reference;

use crate::content::Digest;
use crate::error::ImageError;

/// A name with nothing left to guess: `busybox` is `docker.io/library/busybox:latest`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ImageName {
    reference: Reference,
}

impl ImageName {
    /// Parses a name as people write it.
    ///
    /// # Errors
    /// [`ImageError::Reference`].
    pub fn parse(text: &str) -> Result<Self, ImageError> {
        let bad = |why: String| ImageError::Reference { reference: text.to_owned(), why };
        let reference: Reference = text.parse().map_err(|e: oci_client::ParseError| bad(e.to_string()))?;
        if let Some(digest) = reference.digest()
            && Digest::parse(digest).is_none()
        {
            return Err(bad("its digest is not a sha256".into()));
        }
        Ok(Self { reference })
    }

    /// The registry's host and port, as named.
    #[must_use]
    pub fn registry(&self) -> &str {
        self.reference.registry()
    }

    /// The repository inside the registry.
    #[must_use]
    pub fn repository(&self) -> &str {
        self.reference.repository()
    }

    /// The tag, unless the name goes by digest.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        if self.digest().is_some() { None } else { Some(self.reference.tag().unwrap_or("latest")) }
    }

    /// The digest, if the name has one.
    #[must_use]
    pub fn digest(&self) -> Option<&str> {
        self.reference.digest()
    }

    /// `registry/repository`.
    #[must_use]
    pub fn familiar(&self) -> String {
        format!("{}/{}", self.registry(), self.repository())
    }

    /// The tag in full, as images are listed by; none for a name by digest.
    #[must_use]
    pub fn tagged(&self) -> Option<String> {
        self.tag().map(|tag| format!("{}:{tag}", self.familiar()))
    }

    /// This repository with that digest.
    #[must_use]
    pub fn with_digest(&self, digest: &str) -> String {
        format!("{}@{digest}", self.familiar())
    }
}

impl std::fmt::Display for ImageName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.digest(), self.tag()) {
            (Some(digest), _) => write!(f, "{}@{digest}", self.familiar()),
            (None, tag) => write!(f, "{}:{}", self.familiar(), tag.unwrap_or("latest")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed_as_people_expect() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (given, full) in [
            ("busybox", "docker.io/library/busybox:latest".to_owned()),
            ("busybox:1", "docker.io/library/busybox:1".to_owned()),
            ("me/app", "docker.io/me/app:latest".to_owned()),
            ("localhost:5000/app:1", "localhost:5000/app:1".to_owned()),
            ("127.0.0.1:5000/a/b", "127.0.0.1:5000/a/b:latest".to_owned()),
            (&format!("quay.io/x/y@{digest}"), format!("quay.io/x/y@{digest}")),
            (&format!("quay.io/x/y:1@{digest}"), format!("quay.io/x/y@{digest}")),
        ] {
            assert_eq!(ImageName::parse(given).unwrap().to_string(), full);
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for bad in ["", "UPPER", "a b", "x@sha256:12", "x@sha512:aa", "-", "a//b"] {
            let error = ImageName::parse(bad).unwrap_err().to_string();
            assert!(error.contains(&format!("{bad:?}")), "{error}");
        }
    }
}
