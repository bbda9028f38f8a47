//! A key pair, and the empty PKCS#10 request that proves who has it (RFC 2986).
//!
//! `ring` makes three of the six types that the API names. The others (`ECDSAP521` and the two of RSA) are refused in
//! words that an author of a Pod can follow.

use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair as _,
};
use trine_objects::pem;

use crate::error::KubeletError;

/// Object identifiers, encoded: what the key is, its curve, how it signs.
const EC_KEY: &[u8] = &[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22];
const WITH_SHA256: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const WITH_SHA384: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03];
const ED25519: &[u8] = &[0x06, 0x03, 0x2b, 0x65, 0x70];

/// DER tags.
const INTEGER: u8 = 0x02;
const BITS: u8 = 0x03;
const OCTETS: u8 = 0x04;
const SEQUENCE: u8 = 0x30;
const ATTRIBUTES: u8 = 0xa0;

/// A key pair.
pub struct Made {
    /// The private key, PKCS#8 in PEM.
    pub pem: String,
    /// The request, DER.
    pub request: Vec<u8>,
}

/// Makes a key pair of a type in the API's words.
///
/// # Errors
/// [`KubeletError::Invalid`] for a type that is not made here, or if there is no randomness.
pub fn make(kind: &str) -> Result<Made, KubeletError> {
    match kind {
        "ECDSAP256" => ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING, P256, WITH_SHA256),
        "ECDSAP384" => ecdsa(&ECDSA_P384_SHA384_ASN1_SIGNING, P384, WITH_SHA384),
        "ED25519" => ed25519(),
        other => Err(KubeletError::Invalid(format!(
            "this node makes no keys of type {other:?}; use ECDSAP256, ECDSAP384 or ED25519"
        ))),
    }
}

fn failed(_: impl std::fmt::Debug) -> KubeletError {
    KubeletError::Invalid("the key could not be made".to_owned())
}

fn ecdsa(algorithm: &'static EcdsaSigningAlgorithm, curve: &[u8], how: &[u8]) -> Result<Made, KubeletError> {
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).map_err(failed)?;
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).map_err(failed)?;
    let body = body(&sequence(&[EC_KEY, curve]), pair.public_key().as_ref());
    let signature = pair.sign(&random, &body).map_err(failed)?;
    Ok(Made {
        pem: pem::encode("PRIVATE KEY", key.as_ref()),
        request: signed(&body, &sequence(&[how]), signature.as_ref()),
    })
}

fn ed25519() -> Result<Made, KubeletError> {
    let mut seed = [0; 32];
    SystemRandom::new().fill(&mut seed).map_err(failed)?;
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(failed)?;
    // Version 1 of the form (RFC 8410): older readers of keys refuse the one that has the public key in it.
    let seed = tagged(OCTETS, &tagged(OCTETS, &seed));
    let key = sequence(&[&tagged(INTEGER, &[0]), &sequence(&[ED25519]), &seed]);
    let body = body(&sequence(&[ED25519]), pair.public_key().as_ref());
    let signature = pair.sign(&body);
    Ok(Made {
        pem: pem::encode("PRIVATE KEY", &key),
        request: signed(&body, &sequence(&[ED25519]), signature.as_ref()),
    })
}

/// What is signed: version 0, no name, the public key, no attributes.
fn body(kind: &[u8], public: &[u8]) -> Vec<u8> {
    let key = sequence(&[kind, &bits(public)]);
    sequence(&[&tagged(INTEGER, &[0]), &sequence(&[]), &key, &tagged(ATTRIBUTES, &[])])
}

fn signed(body: &[u8], how: &[u8], signature: &[u8]) -> Vec<u8> {
    sequence(&[body, how, &bits(signature)])
}

fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    tagged(SEQUENCE, &parts.concat())
}

fn bits(bytes: &[u8]) -> Vec<u8> {
    tagged(BITS, &[&[0], bytes].concat())
}

fn tagged(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match u8::try_from(bytes.len()) {
        Ok(short @ 0..=127) => out.push(short),
        _ => {
            let length = bytes.len().to_be_bytes();
            let first = length.iter().position(|b| *b != 0).unwrap_or(length.len());
            out.push(0x80 | u8::try_from(length.len() - first).unwrap_or_default());
            out.extend(&length[first..]);
        }
    }
    out.extend(bytes);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use x509_parser::prelude::{FromDer, X509CertificationRequest};

    #[test]
    fn each_request_is_empty_and_proves_its_key() {
        for kind in ["ECDSAP256", "ECDSAP384", "ED25519"] {
            let made = make(kind).unwrap();
            let (rest, request) = X509CertificationRequest::from_der(&made.request).unwrap();
            assert!(rest.is_empty(), "{kind}");
            let info = &request.certification_request_info;
            assert_eq!(info.subject.iter().count() + info.attributes().len(), 0, "{kind}");
            let pair = rcgen::KeyPair::from_pem(&made.pem).unwrap();
            let public = info.subject_pki.subject_public_key.data.as_ref();
            assert_eq!(pair.public_key_raw(), public, "{kind}: the PEM is the key of the request");
            request.verify_signature().unwrap();
            let mut torn = made.request.clone();
            let last = torn.len() - 1;
            torn[last] ^= 1;
            let (_, torn) = X509CertificationRequest::from_der(&torn).unwrap();
            assert!(torn.verify_signature().is_err(), "{kind}");
        }
        let refused = make("RSA4096").err().unwrap().to_string();
        assert_eq!(
            refused,
            "this node makes no keys of type \"RSA4096\"; use ECDSAP256, ECDSAP384 or ED25519"
        );
    }

    #[test]
    fn lengths_are_written_as_der_wants_them() {
        let head = |n: usize| tagged(INTEGER, &vec![0; n])[..4].to_vec();
        assert_eq!(head(127)[..2], [2, 127]);
        assert_eq!(head(128)[..3], [2, 0x81, 128]);
        assert_eq!(head(300)[..4], [2, 0x82, 1, 44]);
    }
}
