//! Who asks.

use x509_parser::prelude::{FromDer, X509Certificate};

/// A user and its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Name.
    pub name: String,
    /// Groups.
    pub groups: Vec<String>,
}

impl User {
    /// A user of these groups, who is authenticated.
    #[must_use]
    pub fn new(name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().copied().chain(["system:authenticated"]).map(str::to_owned).collect();
        Self { name: name.to_owned(), groups }
    }

    /// The user that a verified client certificate names: common name and organizations.
    #[must_use]
    pub fn from_certificate(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject();
        let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
        let orgs = subject.iter_organization().filter_map(|o| o.as_str().ok().map(str::to_owned));
        let groups = orgs.chain(["system:authenticated".to_owned()]).collect();
        Some(Self { name, groups })
    }
}
