//! JSON Web Tokens (RFC 7519) with the one signature that Trine makes, ES256 (RFC 7518).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::keys::Key;

/// The only algorithm: others are refused, `none` above all.
pub const ALGORITHM: &str = "ES256";
/// The longest token that is looked at, bytes.
const LONGEST: usize = 16 * 1024;

/// Why a text is no token of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    /// It is not in the form of a token.
    #[error("not a token")]
    Malformed,
    /// It says that it was signed in another way, or by another key.
    #[error("signed by an unknown key")]
    UnknownKey,
    /// The signature is wrong.
    #[error("the signature is wrong")]
    Signature,
}

/// Signs claims.
///
/// # Errors
/// [`JwtError::Malformed`] if they are no JSON.
pub fn sign<T: Serialize>(claims: &T, key: &Key) -> Result<String, JwtError> {
    let header = json!({"alg": ALGORITHM, "kid": key.id()}).to_string();
    let claims = serde_json::to_vec(claims).map_err(|_| JwtError::Malformed)?;
    let mut text = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let signature = key.sign(text.as_bytes()).ok_or(JwtError::Signature)?;
    text.push('.');
    text.push_str(&URL_SAFE_NO_PAD.encode(signature));
    Ok(text)
}

/// The claims, without a look at the signature.
///
/// # Errors
/// [`JwtError::Malformed`].
pub fn peek<T: DeserializeOwned>(token: &str) -> Result<T, JwtError> {
    let (_, claims, _) = parts(token)?;
    decode(claims)
}

/// The claims, if the key signed them.
///
/// # Errors
/// [`JwtError`].
pub fn verify<T: DeserializeOwned>(token: &str, key: &Key) -> Result<T, JwtError> {
    let (header, claims, signature) = parts(token)?;
    let named: serde_json::Value = decode(header)?;
    if named["alg"] != ALGORITHM || !named["kid"].is_null() && named["kid"] != key.id() {
        return Err(JwtError::UnknownKey);
    }
    let bytes = URL_SAFE_NO_PAD.decode(signature).map_err(|_| JwtError::Malformed)?;
    let signed = &token[..header.len() + 1 + claims.len()];
    if !key.signed(signed.as_bytes(), &bytes) {
        return Err(JwtError::Signature);
    }
    decode(claims)
}

fn parts(token: &str) -> Result<(&str, &str, &str), JwtError> {
    let mut parts = token.split('.');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(header), Some(claims), Some(signature), None) if token.len() <= LONGEST => {
            Ok((header, claims, signature))
        }
        _ => Err(JwtError::Malformed),
    }
}

fn decode<T: DeserializeOwned>(part: &str) -> Result<T, JwtError> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| JwtError::Malformed)?;
    serde_json::from_slice(&bytes).map_err(|_| JwtError::Malformed)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn only_what_the_key_signed_is_believed() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [key, other] = dirs.each_ref().map(|d| Key::load_or_make(d.path()).unwrap());
        let token = sign(&json!({"sub": "a"}), &key).unwrap();
        assert_eq!(verify::<Value>(&token, &key).unwrap()["sub"], "a");
        assert_eq!(verify::<Value>(&token, &other), Err(JwtError::UnknownKey));
        let forged = URL_SAFE_NO_PAD.encode(json!({"sub": "b"}).to_string());
        let mut parts: Vec<&str> = token.split('.').collect();
        parts[1] = &forged;
        assert_eq!(verify::<Value>(&parts.join("."), &key), Err(JwtError::Signature));
        let none = URL_SAFE_NO_PAD.encode(json!({"alg": "none"}).to_string());
        assert_eq!(verify::<Value>(&format!("{none}.{forged}."), &key), Err(JwtError::UnknownKey));
        for text in ["", "a", "a.b", "a.b.c.d", "ä.b.c", "..", &"x".repeat(100_000)] {
            assert_eq!(verify::<Value>(text, &key), Err(JwtError::Malformed), "{text:.9}");
        }
        let again = Key::load_or_make(dirs[0].path()).unwrap();
        assert_eq!(verify::<Value>(&token, &again).unwrap()["sub"], "a", "the key is kept");
    }
}
