//! Who asks.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The name of somebody who showed nothing.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of everybody who is known.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of nobody known.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group that may do everything.
pub const MASTERS: &str = "system:masters";
/// The group of nodes.
pub const NODES: &str = "system:nodes";
/// Names of nodes begin with it.
const NODE_PREFIX: &str = "system:node:";
/// Names of ServiceAccounts begin with it.
const ACCOUNT_PREFIX: &str = "system:serviceaccount:";
/// The extra key that names what a user showed.
pub const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// A user and its groups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// Name.
    pub name: String,
    /// Tells two users of one name apart, where that is known; else empty.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// What else is known, by lower-case key.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A user of these groups, who is authenticated.
    #[must_use]
    pub fn new(name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().copied().chain([AUTHENTICATED]).map(str::to_owned).collect();
        Self { name: name.to_owned(), groups, ..Self::default() }
    }

    /// Somebody who showed nothing.
    #[must_use]
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..Self::default() }
    }

    /// A ServiceAccount.
    #[must_use]
    pub fn account(namespace: &str, name: &str, uid: &str) -> Self {
        let all = "system:serviceaccounts";
        let mut user = Self::new(&account_name(namespace, name), &[all, &format!("{all}:{namespace}")]);
        uid.clone_into(&mut user.uid);
        user
    }

    /// The user that a verified client certificate names: common name and organizations.
    #[must_use]
    pub fn from_certificate(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject();
        let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
        let orgs = subject.iter_organization().filter_map(|o| o.as_str().ok().map(str::to_owned));
        let groups = orgs.chain([AUTHENTICATED.to_owned()]).collect();
        let id = format!("X509SHA256={}", hex::encode(Sha256::digest(der)));
        let extra = BTreeMap::from([(CREDENTIAL.to_owned(), vec![id])]);
        Some(Self { name, groups, extra, ..Self::default() })
    }

    /// Whether the user belongs to a group.
    #[must_use]
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// The node that the user is, if it is one.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        self.name.strip_prefix(NODE_PREFIX).filter(|_| self.is_in(NODES))
    }
}

tokio::task_local! {
    static CALLER: Arc<User>;
}

/// Does something on behalf of a user: [`caller`] is that user while it runs.
pub async fn on_behalf_of<F: Future>(user: Arc<User>, work: F) -> F::Output {
    CALLER.scope(user, work).await
}

/// On whose behalf this runs; `None` for the server itself.
#[must_use]
pub fn caller() -> Option<Arc<User>> {
    CALLER.try_with(Arc::clone).ok()
}

/// The user name of a ServiceAccount.
#[must_use]
pub fn account_name(namespace: &str, name: &str) -> String {
    format!("{ACCOUNT_PREFIX}{namespace}:{name}")
}

/// Namespace and name of the ServiceAccount that a user name stands for.
#[must_use]
pub fn account_of(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix(ACCOUNT_PREFIX)?.split_once(':').filter(|(ns, name)| !ns.is_empty() && !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_accounts_and_nodes_are_told_apart_from_others() {
        let account = User::account("ns", "sa", "u1");
        assert_eq!(account.name, "system:serviceaccount:ns:sa");
        assert!(account.is_in("system:serviceaccounts:ns") && account.is_in(AUTHENTICATED));
        assert_eq!(account_of(&account.name), Some(("ns", "sa")));
        assert_eq!(account_of("system:serviceaccount:ns:"), None);
        assert_eq!(User::new("system:node:n1", &[NODES]).node(), Some("n1"));
        assert_eq!(User::new("system:node:n1", &[]).node(), None, "the name alone is not enough");
    }
}
