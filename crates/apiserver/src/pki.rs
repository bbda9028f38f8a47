//! The cluster's certificates: one authority, made once and kept, and what it signs.

use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};

/// How long the authority holds. Upstream's installers: ten years.
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Certificates hold from this long before they are made.
const BACKDATE: Duration = Duration::from_secs(3600);

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
    /// A key is none that can be used.
    #[error("certificates: {what} cannot be used: {why}")]
    Key {
        /// Which.
        what: String,
        /// What the library said.
        why: String,
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
        Self::named(dir, "ca")
    }

    /// The same of the authority of the front proxy, which is believed what it says about who asks. kubeadm's names.
    ///
    /// # Errors
    /// [`PkiError`].
    pub fn of_front_proxy(dir: &Path) -> Result<Self, PkiError> {
        Self::named(dir, "front-proxy-ca")
    }

    fn named(dir: &Path, name: &str) -> Result<Self, PkiError> {
        let (cert, key) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
        if !cert.exists() || !key.exists() {
            make(dir, &format!("trine-{name}"), &cert, &key)?;
        }
        let made = |source| PkiError::Make { what: "the authority".to_owned(), source };
        let ca_pem = read_file(&cert)?;
        let key = KeyPair::from_pem(&read_file(&key)?).map_err(made)?;
        let issuer = Issuer::from_ca_cert_pem(&ca_pem, key).map_err(made)?;
        Ok(Self { ca_pem, issuer })
    }

    /// The authority's certificate, PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The authority's key, PEM.
    #[must_use]
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Signs a certificate for `cn` of the groups `orgs`, valid for a year for serving under `names` and as a client.
    ///
    /// # Errors
    /// [`PkiError::Make`].
    pub fn issue(&self, cn: &str, orgs: &[&str], names: &[String]) -> Result<Identity, PkiError> {
        self.issue_for(cn, orgs, names, crate::rotation::LIFETIME)
    }

    /// The same, valid for `lifetime`.
    ///
    /// # Errors
    /// [`PkiError::Make`].
    pub fn issue_for(
        &self,
        cn: &str,
        orgs: &[&str],
        names: &[String],
        lifetime: Duration,
    ) -> Result<Identity, PkiError> {
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
        valid(&mut params, lifetime);
        let key = KeyPair::generate().map_err(made)?;
        let cert = params.signed_by(&key, &self.issuer).map_err(made)?;
        Ok(Identity { cert_pem: cert.pem(), key_pem: key.serialize_pem() })
    }
}

fn make(dir: &Path, name: &str, cert: &Path, key_file: &Path) -> Result<(), PkiError> {
    let made = |source| PkiError::Make { what: "the authority".to_owned(), source };
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    valid(&mut params, AUTHORITY_LIFETIME);
    let key = KeyPair::generate().map_err(made)?;
    let signed = params.self_signed(&key).map_err(made)?;
    let failed = |call, path: &Path| {
        let path = path.to_owned();
        move |source| PkiError::File { call, path, source }
    };
    std::fs::create_dir_all(dir).map_err(failed("make", dir))?;
    // The key first: a certificate without its key would be taken for a whole authority.
    for (path, text, mode) in [(key_file, key.serialize_pem(), 0o600), (cert, signed.pem(), 0o644)] {
        write_file(path, &text, mode)?;
    }
    Ok(())
}

/// Reads a file of the cluster's keys.
///
/// # Errors
/// [`PkiError::File`].
pub(crate) fn read_file(path: &Path) -> Result<String, PkiError> {
    let failed = |source| PkiError::File { call: "read", path: path.to_owned(), source };
    std::fs::read_to_string(path).map_err(failed)
}

/// Writes a file of the cluster's keys, whole or not at all, down to the disk.
///
/// # Errors
/// [`PkiError::File`].
pub(crate) fn write_file(path: &Path, text: &str, mode: u32) -> Result<(), PkiError> {
    let fresh = path.with_extension("new");
    std::fs::OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(mode)
        .open(&fresh)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&fresh, path))
        .map_err(|source| PkiError::File { call: "write", path: path.to_owned(), source })
}

/// From a little before now (clocks differ) for `lifetime`.
fn valid(params: &mut CertificateParams, lifetime: Duration) {
    let now = u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(now.saturating_sub(BACKDATE.as_secs()));
    params.not_after = epoch + Duration::from_secs(now) + lifetime;
}
