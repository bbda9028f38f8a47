//! What the token of a ServiceAccount says.

use serde::{Deserialize, Serialize};

/// Seconds after which a token is too old even for a client that does not read it again, when it was asked for with
/// [`WARN_SECONDS`]. Source: upstream's `ExpirationExtensionSeconds`.
pub const EXTENDED_SECONDS: i64 = 365 * 24 * 3600;
/// The time that the admission of Pods asks for, by which such tokens are known.
pub const WARN_SECONDS: i64 = 3607;

/// An object by name and uid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// Name.
    pub name: String,
    /// Uid; empty for a node that was not there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// For whom and bound to what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// Namespace.
    pub namespace: String,
    /// The node of the Pod, or the node that the token is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Reference>,
    /// The Pod that it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Reference>,
    /// The Secret that it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Reference>,
    /// The account.
    pub serviceaccount: Reference,
    /// From when on its use is a sign that a client does not read it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warnafter: Option<i64>,
}

/// All claims. Times are seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// For whose ears.
    pub aud: Vec<String>,
    /// Until when.
    pub exp: i64,
    /// Made when.
    pub iat: i64,
    /// By whom.
    pub iss: String,
    /// Tells it apart from others.
    pub jti: String,
    /// About what.
    #[serde(rename = "kubernetes.io")]
    pub bound: Bound,
    /// From when on.
    pub nbf: i64,
    /// The user name.
    pub sub: String,
}

/// The claims of a token that is kept in a Secret, as clusters before 1.24 made them; Trine makes them for Secrets of the
/// type `kubernetes.io/service-account-token`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegacyClaims {
    /// Always [`LEGACY_ISSUER`].
    pub iss: String,
    /// Namespace.
    #[serde(rename = "kubernetes.io/serviceaccount/namespace")]
    pub namespace: String,
    /// The Secret.
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name")]
    pub secret: String,
    /// The account.
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name")]
    pub account: String,
    /// Its uid.
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid")]
    pub uid: String,
    /// The user name.
    pub sub: String,
}

/// Who made a token that is kept in a Secret.
pub const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
