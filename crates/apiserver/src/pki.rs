//! The cluster's certificates: one authority, made once and kept, and what it signs.

use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};

/// Why no certificate could be made or read.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file of the authority cannot be read or written.
    #[error("certificates: cannot {call} {path}")]
    File {
        /// What was tried.
        call: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A certificate or key cannot be made.
    #[error("certificates: cannot make {what}")]
    Make {
        /// For whom.
        what: String,
        /// What the library said.
        source: rcgen::Error,
    },
}

/// A signing authority.
pub struct Authority {
    ca_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key, both PEM.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate.
    pub cert_pem: String,
    /// Its private key.
    pub key_pem: String,
}

impl Authority {
    /// Reads the authority in `dir`, or makes one there.
    ///
    /// # Errors
    /// [`PkiError`].
    pub fn load_or_make(dir: &Path) -> Result<Self, PkiError> {
        let (cert, key) = (dir.join("ca.crt"), dir.join("ca.key"));
        if !cert.exists() || !key.exists() {
            make(dir, &cert, &key)?;
        }
        let read = |path: &Path| {
            std::fs::read_to_string(path).map_err(|source| PkiError::File {
                call: "read",
                path: path.to_owned(),
                source,
            })
        };
        let made = |source| PkiError::Make { what: "the authority".to_owned(), source };
        let ca_pem = read(&cert)?;
        let key = KeyPair::from_pem(&read(&key)?).map_err(made)?;
        let issuer = Issuer::from_ca_cert_pem(&ca_pem, key).map_err(made)?;
        Ok(Self { ca_pem, issuer })
    }

    /// The authority's certificate, PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Signs a certificate for `cn` of the groups `orgs`, valid for serving under `names` and as a client.
    ///
    /// # Errors
    /// [`PkiError::Make`].
    pub fn issue(&self, cn: &str, orgs: &[&str], names: &[String]) -> Result<Identity, PkiError> {
        let made = |source| PkiError::Make { what: format!("a certificate for {cn}"), source };
        let mut params = CertificateParams::default();
        let mut name = DistinguishedName::new();
        name.push(DnType::CommonName, cn);
        for org in orgs {
            name.push(DnType::OrganizationName, *org);
        }
        params.distinguished_name = name;
        for text in names {
            params.subject_alt_names.push(match text.parse::<IpAddr>() {
                Ok(ip) => SanType::IpAddress(ip),
                Err(_) => SanType::DnsName(text.as_str().try_into().map_err(made)?),
            });
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        valid(&mut params);
        let key = KeyPair::generate().map_err(made)?;
        let cert = params.signed_by(&key, &self.issuer).map_err(made)?;
        Ok(Identity { cert_pem: cert.pem(), key_pem: key.serialize_pem() })
    }
}

fn make(dir: &Path, cert: &Path, key_file: &Path) -> Result<(), PkiError> {
    let made = |source| PkiError::Make { what: "the authority".to_owned(), source };
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "trine-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    valid(&mut params);
    let key = KeyPair::generate().map_err(made)?;
    let signed = params.self_signed(&key).map_err(made)?;
    let failed = |call, path: &Path| {
        let path = path.to_owned();
        move |source| PkiError::File { call, path, source }
    };
    std::fs::create_dir_all(dir).map_err(failed("make", dir))?;
    // The key first: a certificate without its key would be taken for a whole authority.
    for (path, text, mode) in [(key_file, key.serialize_pem(), 0o600), (cert, signed.pem(), 0o644)] {
        std::fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(mode)
            .open(path)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            .map_err(failed("write", path))?;
    }
    Ok(())
}

/// From a day before (clocks differ) until ten years from now.
fn valid(params: &mut CertificateParams) {
    let year = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).year();
    params.not_before = rcgen::date_time_ymd(i32::from(year) - 1, 1, 1);
    params.not_after = rcgen::date_time_ymd(i32::from(year) + 10, 1, 1);
}
