//! What a certificate signing request (PKCS #10, RFC 2986) asks for.

use std::net::IpAddr;

use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, Pem};

/// A request. The first two are the parts that go into the certificate as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// The subject, DER.
    pub subject: Vec<u8>,
    /// The public key, DER.
    pub key: Vec<u8>,
    /// The name, empty if there is none.
    pub common_name: String,
    /// The groups.
    pub organizations: Vec<String>,
    /// Names of hosts.
    pub hosts: Vec<String>,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
    /// Whether it asks for other names: mail addresses, URIs.
    pub other_names: bool,
}

impl Asked {
    /// Reads PEM.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(pem: &[u8]) -> Result<Self, String> {
        let (block, _) = Pem::read(std::io::Cursor::new(pem)).map_err(|e| e.to_string())?;
        let (_, request) = X509CertificationRequest::from_der(&block.contents).map_err(|e| e.to_string())?;
        request.verify_signature().map_err(|e| e.to_string())?;
        let info = &request.certification_request_info;
        let text = |t: &x509_parser::x509::AttributeTypeAndValue<'_>| t.as_str().ok().map(str::to_owned);
        let mut asked = Self {
            subject: info.subject.as_raw().to_vec(),
            key: info.subject_pki.raw.to_vec(),
            common_name: info.subject.iter_common_name().find_map(text).unwrap_or_default(),
            organizations: info.subject.iter_organization().filter_map(text).collect(),
            ..Self::default()
        };
        for extension in request.requested_extensions().into_iter().flatten() {
            let ParsedExtension::SubjectAlternativeName(names) = extension else { continue };
            for name in &names.general_names {
                match name {
                    GeneralName::DNSName(host) => asked.hosts.push((*host).to_owned()),
                    GeneralName::IPAddress(bytes) => match address(bytes) {
                        Some(address) => asked.addresses.push(address),
                        None => asked.other_names = true,
                    },
                    _ => asked.other_names = true,
                }
            }
        }
        Ok(asked)
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::from(four));
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}
