//! The key that signs tokens of ServiceAccounts, `pki/sa.key`, made once and kept; `pki/sa.pub` beside it for others.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use trine_objects::pem;

use super::jwt::ALGORITHM;
use crate::pki::{PkiError, read_file, write_file};

/// What stands before the point in the DER of a P-256 public key (RFC 5480).
const PUBLIC_HEAD: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// A key on P-256.
pub struct Key {
    pair: EcdsaKeyPair,
    random: SystemRandom,
    point: Vec<u8>,
    id: String,
}

impl Key {
    /// Reads the key in `dir`, or makes one there.
    ///
    /// # Errors
    /// [`PkiError`].
    pub fn load_or_make(dir: &Path) -> Result<Self, PkiError> {
        let what = || "the key of ServiceAccounts' tokens".to_owned();
        let made = |source| PkiError::Make { what: what(), source };
        let path = dir.join("sa.key");
        if !path.exists() {
            let fresh = rcgen::KeyPair::generate().map_err(made)?;
            std::fs::create_dir_all(dir).map_err(|source| PkiError::File {
                call: "make",
                path: dir.to_owned(),
                source,
            })?;
            write_file(&path, &fresh.serialize_pem(), 0o600)?;
        }
        let der = rcgen::KeyPair::from_pem(&read_file(&path)?).map_err(made)?.serialize_der();
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &random)
            .map_err(|e| PkiError::Key { what: what(), why: e.to_string() })?;
        let point = pair.public_key().as_ref().to_vec();
        let public = [PUBLIC_HEAD.as_slice(), &point].concat();
        let id = URL_SAFE_NO_PAD.encode(Sha256::digest(&public));
        let path = dir.join("sa.pub");
        if !path.exists() {
            write_file(&path, &pem::encode("PUBLIC KEY", &public), 0o644)?;
        }
        Ok(Self { pair, random, point, id })
    }

    /// Tells the key apart from others: the hash of its public part.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Signs; `None` if there are no random numbers.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        self.pair.sign(&self.random, message).ok().map(|s| s.as_ref().to_vec())
    }

    /// Whether this key made the signature.
    #[must_use]
    pub fn signed(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &self.point).verify(message, signature).is_ok()
    }

    /// Its public part as a JSON Web Key (RFC 7517).
    #[must_use]
    pub fn jwk(&self) -> Value {
        let (x, y) = (&self.point[1..33], &self.point[33..]);
        json!({"use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": ALGORITHM,
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y)})
    }
}
