//! What a certificate signing request (PKCS #10, RFC 2986) asks for.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::{FromDer, Pem};

/// A request whose signature is right.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// The name, empty if it has none.
    pub common_name: String,
    /// The groups.
    pub organizations: Vec<String>,
}

impl Request {
    /// Reads `spec.request`: base64 of PEM.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(value: &Value) -> Result<Self, String> {
        let encoded = value.as_str().unwrap_or_default();
        let bytes = STANDARD.decode(encoded).map_err(|e| e.to_string())?;
        Self::from_pem(&bytes)
    }

    /// Reads PEM.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_pem(pem: &[u8]) -> Result<Self, String> {
        let wrong = || "PEM block type must be CERTIFICATE REQUEST".to_owned();
        let (block, _) = Pem::read(std::io::Cursor::new(pem)).map_err(|_| wrong())?;
        if block.label != "CERTIFICATE REQUEST" {
            return Err(wrong());
        }
        let (_, request) = X509CertificationRequest::from_der(&block.contents).map_err(|e| e.to_string())?;
        request.verify_signature().map_err(|e| e.to_string())?;
        let subject = &request.certification_request_info.subject;
        let texts = |found: Vec<Result<&str, _>>| -> Vec<String> {
            found
                .into_iter()
                .filter_map(|t: Result<&str, x509_parser::error::X509Error>| t.ok().map(str::to_owned))
                .collect()
        };
        let names = texts(subject.iter_common_name().map(|n| n.as_str()).collect());
        let organizations = texts(subject.iter_organization().map(|o| o.as_str()).collect());
        Ok(Self { common_name: names.into_iter().next().unwrap_or_default(), organizations })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_if_its_signature_is_right() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, "system:node:n");
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        let read = Request::read(&STANDARD.encode(&pem).into()).unwrap();
        assert_eq!(
            (read.common_name.as_str(), read.organizations.as_slice()),
            ("system:node:n", ["system:nodes".to_owned()].as_slice())
        );
        let mut der = Pem::read(std::io::Cursor::new(pem.as_bytes())).unwrap().0.contents;
        let last = der.len() - 1;
        der[last] ^= 1;
        let forged = format!(
            "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
            STANDARD.encode(der)
        );
        assert!(Request::from_pem(forged.as_bytes()).is_err());
        for text in ["", "x", "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"] {
            assert!(Request::from_pem(text.as_bytes()).is_err(), "{text}");
        }
    }
}
