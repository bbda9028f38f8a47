//! Certificates for an API server that brings none: one authority, and what it has signed, as files of the run.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// An authority with its folder.
pub struct Authority {
    dir: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key.
pub struct Pair {
    /// The certificate's file, PEM.
    pub cert: PathBuf,
    /// The key's.
    pub key: PathBuf,
}

impl Authority {
    /// A fresh one, whose certificate is `ca.crt` in `dir`.
    ///
    /// # Errors
    /// What the file system says.
    pub fn new(dir: PathBuf) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&dir)?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "swap");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        std::fs::write(dir.join("ca.crt"), issuer.pem())?;
        std::fs::write(dir.join("ca.key"), issuer.key().serialize_pem())?;
        Ok(Self { dir, issuer })
    }

    /// Its own certificate and key.
    #[must_use]
    pub fn own(&self) -> Pair {
        Pair { cert: self.dir.join("ca.crt"), key: self.dir.join("ca.key") }
    }

    /// Signs a certificate for a user of a group, or for a server of these names.
    ///
    /// # Errors
    /// What the file system says.
    pub fn sign(&self, user: &str, group: &str, names: &[&str]) -> anyhow::Result<Pair> {
        let key = KeyPair::generate()?;
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, group);
        let name = user.replace(':', "-");
        let pair =
            Pair { cert: self.dir.join(format!("{name}.crt")), key: self.dir.join(format!("{name}.key")) };
        std::fs::write(&pair.cert, params.signed_by(&key, &self.issuer)?.pem())?;
        std::fs::write(&pair.key, key.serialize_pem())?;
        Ok(pair)
    }

    /// The kubeconfig of a user of a group.
    ///
    /// # Errors
    /// What the file system says.
    pub fn kubeconfig(&self, server: &str, user: &str, group: &str) -> anyhow::Result<PathBuf> {
        let pair = self.sign(user, group, &[])?;
        let file = pair.cert.with_extension("kubeconfig");
        let shown =
            format!("client-certificate: {}, client-key: {}", pair.cert.display(), pair.key.display());
        std::fs::write(
            &file,
            kubeconfig(server, &format!("certificate-authority: {}", self.own().cert.display()), &shown),
        )?;
        Ok(file)
    }
}

/// The text of a kubeconfig: `authority` and `shown` are fields of the cluster and of the user.
#[must_use]
pub fn kubeconfig(server: &str, authority: &str, shown: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: swap\nclusters:\n- name: swap\n  cluster:\n    server: {server}\n    \
         {authority}\nusers:\n- name: swap\n  user: {{{shown}}}\ncontexts:\n- name: swap\n  context: {{cluster: swap, user: \
         swap}}\n"
    )
}

/// What a kubeconfig of one cluster says: the server, and the field with its authority.
///
/// # Errors
/// If it does not.
pub fn server_of(file: &Path) -> anyhow::Result<(String, String)> {
    let text = std::fs::read_to_string(file)?;
    let field = |name: &str| {
        let line = text.lines().map(str::trim).find(|line| line.starts_with(name));
        line.map(str::to_owned).ok_or_else(|| anyhow::anyhow!("{} has no {name}", file.display()))
    };
    let server = field("server")?.trim_start_matches("server:").trim().trim_matches('"').to_owned();
    Ok((server, field("certificate-authority")?))
}
