//! What a kubeconfig says of the cluster's authority.

use std::path::Path;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use trine_typed::kube::config::Kubeconfig;

/// The certificate, PEM, of the authority of the kubeconfig's current cluster.
///
/// # Errors
/// If the file cannot be read, or names none.
pub fn pem(kubeconfig: &Path) -> anyhow::Result<String> {
    let read = || -> anyhow::Result<String> {
        let file = Kubeconfig::read_from(kubeconfig)?;
        let current = file.current_context.as_ref();
        let context = file.contexts.into_iter().find(|c| current.is_none_or(|name| *name == c.name));
        let name = context.and_then(|c| c.context).context("it has no current context")?.cluster;
        let cluster = file.clusters.into_iter().find(|c| c.name == name).and_then(|c| c.cluster);
        let cluster = cluster.with_context(|| format!("it has no cluster {name}"))?;
        let bytes = match (cluster.certificate_authority_data, cluster.certificate_authority) {
            (Some(data), _) => STANDARD.decode(data).context("certificate-authority-data")?,
            // The reader has made the path absolute.
            (None, Some(path)) => std::fs::read(&path).context(path)?,
            (None, None) => anyhow::bail!("it names no authority"),
        };
        Ok(String::from_utf8(bytes)?)
    };
    read().with_context(|| format!("the authority in {}", kubeconfig.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_is_in_the_kubeconfig_or_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca.pem"), "beside").unwrap();
        let config = |cluster: &str| {
            let path = dir.path().join("kubeconfig");
            let text = format!(
                "current-context: b\nclusters:\n- name: other\n  cluster: {{server: 'https://o'}}\n- name: c\n  \
                 cluster: {{server: 'https://c'{cluster}}}\ncontexts:\n- name: a\n  context: {{cluster: other}}\n\
                 - name: b\n  context: {{cluster: c}}\n"
            );
            std::fs::write(&path, text).unwrap();
            path
        };
        let data = format!(", certificate-authority-data: {}", STANDARD.encode("inside"));
        assert_eq!(pem(&config(&data)).unwrap(), "inside");
        assert_eq!(pem(&config(", certificate-authority: ca.pem")).unwrap(), "beside");
        let error = format!("{:#}", pem(&config("")).unwrap_err());
        assert!(error.contains("names no authority"), "{error}");
    }
}
