//! The certificate (X.509, RFC 5280): the request's subject and key as they are, under the authority's name.

use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use trine_objects::pem;
use trine_typed::k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use trine_typed::k8s_openapi::jiff::{SignedDuration, Timestamp, tz::TimeZone};
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer, Pem, X509Certificate};

use super::plan::signable;
use super::request::Asked;

/// How long a certificate holds if less is not asked for. Source: upstream's `--cluster-signing-duration`.
const LONGEST: SignedDuration = SignedDuration::from_hours(365 * 24);
/// It holds from a little before now: clocks differ.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);

/// The DER of object identifiers.
const ECDSA_SHA256: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const KEY_USAGE: &[u8] = &[0x06, 0x03, 0x55, 0x1d, 0x0f];
const EXTENDED_USAGE: &[u8] = &[0x06, 0x03, 0x55, 0x1d, 0x25];
const CONSTRAINTS: &[u8] = &[0x06, 0x03, 0x55, 0x1d, 0x13];
const AUTHORITY_KEY: &[u8] = &[0x06, 0x03, 0x55, 0x1d, 0x23];
const OTHER_NAMES: &[u8] = &[0x06, 0x03, 0x55, 0x1d, 0x11];
const SERVER_AUTH: &[u8] = &[0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
const CLIENT_AUTH: &[u8] = &[0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];
const TRUE: &[u8] = &[0x01, 0x01, 0xff];

/// An authority that signs.
pub struct Signer {
    name: Vec<u8>,
    key_id: Option<Vec<u8>>,
    until: Timestamp,
    key: EcdsaKeyPair,
    random: SystemRandom,
}

impl Signer {
    /// From certificate and key, PEM. The key must be on P-256.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn new(cert_pem: &str, key_pem: &str) -> Result<Self, String> {
        let der = |pem: &str| -> Result<Vec<u8>, String> {
            let (block, _) = Pem::read(std::io::Cursor::new(pem.as_bytes())).map_err(|e| e.to_string())?;
            Ok(block.contents)
        };
        let certificate = der(cert_pem)?;
        let (_, certificate) = X509Certificate::from_der(&certificate).map_err(|e| e.to_string())?;
        let key_id = certificate.extensions().iter().find_map(|e| match e.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        });
        let until = Timestamp::from_second(certificate.validity().not_after.timestamp());
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &der(key_pem)?, &random);
        Ok(Self {
            name: certificate.subject().as_raw().to_vec(),
            key_id,
            until: until.map_err(|e| e.to_string())?,
            key: key.map_err(|e| format!("the authority's key cannot be used: {e}"))?,
            random,
        })
    }

    /// The certificate, PEM.
    ///
    /// # Errors
    /// Why the signer does not sign this.
    pub fn sign(&self, request: &CertificateSigningRequest, now: Timestamp) -> Result<String, String> {
        let asked = Asked::read(&request.spec.request.0)?;
        let usages: Vec<&str> = request.spec.usages.iter().flatten().map(String::as_str).collect();
        signable(&request.spec.signer_name, &asked, &usages)?;
        let wanted = request.spec.expiration_seconds.map(|s| SignedDuration::from_secs(i64::from(s)));
        let holds = wanted.map_or(LONGEST, |w| w.min(LONGEST));
        let (from, until) = (now - BACKDATE, (now + holds).min(self.until));
        let body = self.body(&asked, &usages, from, until)?;
        let signature = self.key.sign(&self.random, &body).map_err(|_| "no random numbers".to_owned())?;
        let signature = [&[0], signature.as_ref()].concat();
        let certificate = tlv(0x30, &[body, tlv(0x30, ECDSA_SHA256), tlv(0x03, &signature)].concat());
        Ok(pem::encode("CERTIFICATE", &certificate))
    }

    /// `TBSCertificate`.
    fn body(
        &self,
        asked: &Asked,
        usages: &[&str],
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<u8>, String> {
        let mut serial = [0; 16];
        self.random.fill(&mut serial).map_err(|_| "no random numbers".to_owned())?;
        serial[0] = serial[0] & 0x7f | 0x40; // Positive, and never shorter.
        let parts = [
            tlv(0xa0, &[0x02, 0x01, 0x02]),
            tlv(0x02, &serial),
            tlv(0x30, ECDSA_SHA256),
            self.name.clone(),
            tlv(0x30, &[time(from), time(until)].concat()),
            asked.subject.clone(),
            asked.key.clone(),
            tlv(0xa3, &tlv(0x30, &self.extensions(asked, usages))),
        ];
        Ok(tlv(0x30, &parts.concat()))
    }

    fn extensions(&self, asked: &Asked, usages: &[&str]) -> Vec<u8> {
        let mut all = Vec::new();
        // Bit 0 is the highest: digital signature; bit 2: key encipherment.
        let bits = [("digital signature", 0x80_u8), ("key encipherment", 0x20)];
        let bits = bits.iter().filter(|(usage, _)| usages.contains(usage)).fold(0, |sum, (_, bit)| sum | bit);
        if bits != 0 {
            let unused = u8::try_from(bits.trailing_zeros()).unwrap_or(0);
            all.extend(extension(KEY_USAGE, true, &tlv(0x03, &[unused, bits])));
        }
        let extended = [("server auth", SERVER_AUTH), ("client auth", CLIENT_AUTH)];
        let extended: Vec<u8> = extended
            .iter()
            .filter(|(usage, _)| usages.contains(usage))
            .flat_map(|(_, id)| id.to_vec())
            .collect();
        all.extend(extension(EXTENDED_USAGE, false, &tlv(0x30, &extended)));
        all.extend(extension(CONSTRAINTS, true, &tlv(0x30, &[])));
        if let Some(id) = &self.key_id {
            all.extend(extension(AUTHORITY_KEY, false, &tlv(0x30, &tlv(0x80, id))));
        }
        let mut names = Vec::new();
        asked.hosts.iter().for_each(|host| names.extend(tlv(0x82, host.as_bytes())));
        for address in &asked.addresses {
            match address {
                std::net::IpAddr::V4(a) => names.extend(tlv(0x87, &a.octets())),
                std::net::IpAddr::V6(a) => names.extend(tlv(0x87, &a.octets())),
            }
        }
        if !names.is_empty() {
            all.extend(extension(OTHER_NAMES, false, &tlv(0x30, &names)));
        }
        all
    }
}

fn extension(id: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    let critical = if critical { TRUE } else { &[] };
    tlv(0x30, &[id, critical, &tlv(0x04, value)].concat())
}

/// Tag, length, value.
fn tlv(tag: u8, value: &[u8]) -> Vec<u8> {
    let length = value.len();
    let mut out = vec![tag];
    if let Ok(short) = u8::try_from(length)
        && short < 0x80
    {
        out.push(short);
    } else {
        let bytes = length.to_be_bytes();
        let bytes: Vec<u8> = bytes.into_iter().skip_while(|b| *b == 0).collect();
        out.push(0x80 | u8::try_from(bytes.len()).unwrap_or(8));
        out.extend(bytes);
    }
    out.extend_from_slice(value);
    out
}

/// Two digits of the year until 2049, four from then on.
fn time(at: Timestamp) -> Vec<u8> {
    let zoned = at.to_zoned(TimeZone::UTC);
    if zoned.year() < 2050 {
        tlv(0x17, zoned.strftime("%y%m%d%H%M%SZ").to_string().as_bytes())
    } else {
        tlv(0x18, zoned.strftime("%Y%m%d%H%M%SZ").to_string().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, SanType};
    use serde_json::json;
    use trine_typed::k8s_openapi::ByteString;

    use super::*;

    fn authority() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "test-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    fn request(signer: &str, usages: &[&str]) -> CertificateSigningRequest {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "system:node:n");
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.subject_alt_names =
            vec![SanType::DnsName("n".try_into().unwrap()), SanType::IpAddress("10.0.0.1".parse().unwrap())];
        let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        let mut request: CertificateSigningRequest = serde_json::from_value(json!({"spec": {"request": "",
            "signerName": signer, "usages": usages, "expirationSeconds": 3600}}))
        .unwrap();
        request.spec.request = ByteString(pem.into_bytes());
        request
    }

    #[test]
    fn what_is_signed_is_believed_by_whoever_believes_the_authority() {
        let (cert, key) = authority();
        let signer = Signer::new(&cert, &key).unwrap();
        let wanted = request("kubernetes.io/kubelet-serving", &["digital signature", "server auth"]);
        let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap();
        let made = signer.sign(&wanted, now).unwrap();
        let (made, _) = Pem::read(std::io::Cursor::new(made.as_bytes())).unwrap();
        let (rest, made) = X509Certificate::from_der(&made.contents).unwrap();
        assert!(rest.is_empty());
        let (root, _) = Pem::read(std::io::Cursor::new(cert.as_bytes())).unwrap();
        let (_, root) = X509Certificate::from_der(&root.contents).unwrap();
        made.verify_signature(Some(root.public_key())).unwrap();
        assert_eq!(made.issuer(), root.subject());
        assert_eq!(made.subject().iter_common_name().next().unwrap().as_str(), Ok("system:node:n"));
        assert_eq!(made.validity().not_after.timestamp(), now.as_second() + 3600);
        assert!(made.key_usage().unwrap().unwrap().value.digital_signature());
        let extended = made.extended_key_usage().unwrap().unwrap().value;
        assert!(extended.server_auth && !extended.client_auth);
        assert_eq!(made.subject_alternative_name().unwrap().unwrap().value.general_names.len(), 2);
        assert!(!made.is_ca());
    }

    #[test]
    fn what_is_no_business_of_a_signer_is_not_signed() {
        let (cert, key) = authority();
        let signer = Signer::new(&cert, &key).unwrap();
        let wrong = request("kubernetes.io/kubelet-serving", &["client auth"]);
        assert!(signer.sign(&wrong, Timestamp::now()).unwrap_err().contains("usages did not match"));
        let names =
            request("kubernetes.io/kube-apiserver-client-kubelet", &["digital signature", "client auth"]);
        assert!(
            signer.sign(&names, Timestamp::now()).unwrap_err().contains("subjectAltNames are not allowed")
        );
    }
}
