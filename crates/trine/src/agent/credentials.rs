//! What a node that joined keeps in its data dir: `agent/kubeconfig` with its certificate and the cluster's authority in it, and
//! `agent/serving.pem`, what its kubelet shows. With them it comes back without a token.

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::kube::config::Kubeconfig;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::Pem;

use crate::control::write_private;
use crate::layout::Layout;
use crate::node::Pair;

/// A node's way to its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The server's URL.
    pub server: String,
    /// The cluster's authority, PEM.
    pub ca_pem: String,
    /// The node's certificate, PEM.
    pub cert_pem: String,
    /// Its key, PEM.
    pub key_pem: String,
}

/// How much longer a certificate holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// Long enough.
    Fresh,
    /// Two thirds of its time are over.
    Due,
    /// No longer.
    Over,
}

/// True if the node has ever joined.
#[must_use]
pub fn exist(layout: &Layout) -> bool {
    layout.agent().join("kubeconfig").exists()
}

/// True if the node has joined and comes back without a token.
#[must_use]
pub fn hold(layout: &Layout) -> bool {
    let stored = load(layout).ok().flatten();
    stored.is_some_and(|stored| validity(&stored.cert_pem, Timestamp::now()) != Validity::Over)
}

/// What is kept, if the node has joined.
///
/// # Errors
/// If the file is there and broken.
pub fn load(layout: &Layout) -> anyhow::Result<Option<Stored>> {
    if !exist(layout) {
        return Ok(None);
    }
    let path = layout.agent().join("kubeconfig");
    let read = || -> anyhow::Result<Stored> {
        let file = Kubeconfig::read_from(&path)?;
        let cluster = file.clusters.into_iter().find_map(|c| c.cluster).context("it has no cluster")?;
        let user = file.auth_infos.into_iter().find_map(|u| u.auth_info).context("it has no user")?;
        let text = |data: Option<String>, what: &'static str| -> anyhow::Result<String> {
            let bytes = STANDARD.decode(data.context(what)?).context(what)?;
            String::from_utf8(bytes).context(what)
        };
        use trine_typed::kube::config::AuthInfo;
        let AuthInfo { client_certificate_data, client_key_data, .. } = user;
        let key = client_key_data.map(|key| secrecy::ExposeSecret::expose_secret(&key).to_owned());
        Ok(Stored {
            server: cluster.server.context("it names no server")?,
            ca_pem: text(cluster.certificate_authority_data, "the authority's certificate")?,
            cert_pem: text(client_certificate_data, "the node's certificate")?,
            key_pem: text(key, "the node's key")?,
        })
    };
    read().map(Some).with_context(|| format!("{} cannot be used", path.display()))
}

/// Keeps a way to the server.
///
/// # Errors
/// What the file system says.
pub fn save(layout: &Layout, stored: &Stored) -> anyhow::Result<()> {
    std::fs::create_dir_all(layout.agent())?;
    let encode = |text: &str| STANDARD.encode(text);
    let user = format!(
        "client-certificate-data: {}\n    client-key-data: {}",
        encode(&stored.cert_pem),
        encode(&stored.key_pem)
    );
    write_private(&layout.agent().join("kubeconfig"), &kubeconfig(&stored.server, &stored.ca_pem, &user))
}

/// The text of a kubeconfig; `user` are lines of YAML about who shows what.
#[must_use]
pub fn kubeconfig(server: &str, ca_pem: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: trine\nclusters:\n- name: trine\n  cluster:\n    server: {server}\n    \
         certificate-authority-data: {}\nusers:\n- name: node\n  user:\n    {user}\ncontexts:\n- name: trine\n  context: \
         {{cluster: trine, user: node}}\n",
        STANDARD.encode(ca_pem),
    )
}

/// What the kubelet shows, if a certificate is kept.
#[must_use]
pub fn load_serving(layout: &Layout) -> Option<Pair> {
    let text = std::fs::read_to_string(layout.agent().join("serving.pem")).ok()?;
    let at = text.find("-----BEGIN PRIVATE KEY-----")?;
    let (cert, key) = text.split_at(at);
    Some((cert.to_owned(), key.to_owned()))
}

/// Keeps what the kubelet shows.
///
/// # Errors
/// What the file system says.
pub fn save_serving(layout: &Layout, pair: &Pair) -> anyhow::Result<()> {
    std::fs::create_dir_all(layout.agent())?;
    write_private(&layout.agent().join("serving.pem"), &format!("{}{}", pair.0, pair.1))
}

/// How much longer a certificate holds; what is none does not.
#[must_use]
pub fn validity(cert_pem: &str, now: Timestamp) -> Validity {
    let parsed = Pem::read(std::io::Cursor::new(cert_pem.as_bytes())).ok();
    let times = parsed.as_ref().and_then(|(block, _)| {
        let certificate = block.parse_x509().ok()?;
        let validity = certificate.validity();
        Some((validity.not_before.timestamp(), validity.not_after.timestamp()))
    });
    times.map_or(Validity::Over, |(from, until)| judge(from, until, now.as_second()))
}

/// All in seconds since 1970.
fn judge(from: i64, until: i64, now: i64) -> Validity {
    if now >= until || now < from {
        Validity::Over
    } else if now >= from + (until - from) / 3 * 2 {
        Validity::Due
    } else {
        Validity::Fresh
    }
}

/// True if a certificate names this address, so that a node that has moved gets another.
#[must_use]
pub fn names(cert_pem: &str, address: std::net::IpAddr) -> bool {
    let octets = match address {
        std::net::IpAddr::V4(v4) => v4.octets().to_vec(),
        std::net::IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let Ok((block, _)) = Pem::read(std::io::Cursor::new(cert_pem.as_bytes())) else { return false };
    let Ok(certificate) = block.parse_x509() else { return false };
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return false };
    names.value.general_names.iter().any(|n| matches!(n, GeneralName::IPAddress(ip) if *ip == octets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_found_again_and_only_its_owner_reads_it() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path()).unwrap();
        assert_eq!(load(&layout).unwrap(), None);
        let stored = Stored {
            server: "https://10.222.0.1:6443".to_owned(),
            ca_pem: "a\nb\n".to_owned(),
            cert_pem: "c\n".to_owned(),
            key_pem: "k\n".to_owned(),
        };
        save(&layout, &stored).unwrap();
        assert_eq!(load(&layout).unwrap(), Some(stored));
        let mode = std::fs::metadata(layout.agent().join("kubeconfig")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(layout.agent().join("kubeconfig"), "{}").unwrap();
        assert!(load(&layout).is_err());
    }

    #[test]
    fn a_serving_certificate_is_kept_with_its_key_and_names_its_address() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path()).unwrap();
        assert_eq!(load_serving(&layout), None);
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["10.0.0.7".to_owned(), "n".to_owned()]).unwrap();
        let pair = (params.self_signed(&key).unwrap().pem(), key.serialize_pem());
        save_serving(&layout, &pair).unwrap();
        assert_eq!(load_serving(&layout), Some(pair.clone()));
        assert!(names(&pair.0, "10.0.0.7".parse().unwrap()));
        assert!(!names(&pair.0, "10.0.0.8".parse().unwrap()));
        assert_eq!(validity(&pair.0, Timestamp::now()), Validity::Fresh);
    }

    #[test]
    fn a_certificate_is_exchanged_after_two_thirds_of_its_time() {
        let rows = [(99, Validity::Over), (100, Validity::Fresh), (299, Validity::Fresh)];
        let rows =
            rows.into_iter().chain([(300, Validity::Due), (399, Validity::Due), (400, Validity::Over)]);
        for (now, expected) in rows {
            assert_eq!(judge(100, 400, now), expected, "{now}");
        }
        assert_eq!(validity("nonsense", Timestamp::now()), Validity::Over);
    }
}
