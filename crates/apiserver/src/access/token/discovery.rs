//! What others need to read our tokens: OpenID Connect discovery.

use serde_json::{Value, json};

use super::Tokens;
use super::jwt::ALGORITHM;

/// The path of [`configuration`].
pub const CONFIGURATION: &str = "/.well-known/openid-configuration";
/// The path of [`keys`].
pub const KEYS: &str = "/openid/v1/jwks";

/// Who makes tokens and where the keys are, which is under `host` (`host:port`).
#[must_use]
pub fn configuration(tokens: &Tokens, host: &str) -> Value {
    json!({"issuer": tokens.issuer(), "jwks_uri": format!("https://{host}{KEYS}"),
        "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [ALGORITHM]})
}

/// The keys (RFC 7517).
#[must_use]
pub fn keys(tokens: &Tokens) -> Value {
    json!({"keys": [tokens.key().jwk()]})
}
