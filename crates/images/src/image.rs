//! An image as its users see it, and how its configuration is read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::content::Digest;

/// An image of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// `sha256:…` of its configuration.
    pub id: String,
    /// Its tags in full, sorted.
    pub repo_tags: Vec<String>,
    /// `repository@sha256:…` of the manifests it came by, sorted.
    pub repo_digests: Vec<String>,
    /// Bytes of its files, all layers together.
    pub size: u64,
    /// How its containers are started.
    pub config: ImageConfig,
    /// Chain ids of its layers, lowest first; they name the folders below `layers/`.
    pub layers: Vec<String>,
}

/// What an image says about the containers made from it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// `KEY=value` lines.
    pub env: Vec<String>,
    /// What is always run.
    pub entrypoint: Vec<String>,
    /// Its default arguments.
    pub cmd: Vec<String>,
    /// `user`, `uid`, `user:group` or `uid:gid`; empty for root.
    pub user: String,
    /// Empty for `/`.
    pub working_dir: String,
    /// As named or numbered; empty for TERM.
    pub stop_signal: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// `80/tcp` and the like, sorted.
    pub exposed_ports: Vec<String>,
    /// Paths that want a volume, sorted.
    pub volumes: Vec<String>,
    /// The CPU it was made for, in Go's words (`amd64`).
    pub architecture: String,
}

/// The configuration file of OCI and Docker, as far as it matters here.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ConfigFile {
    #[serde(default)]
    pub architecture: String,
    #[serde(default)]
    pub os: String,
    #[serde(default)]
    pub config: Option<ConfigSection>,
    pub rootfs: RootFsSection,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct ConfigSection {
    pub user: Option<String>,
    pub env: Option<Vec<String>>,
    pub entrypoint: Option<Vec<String>>,
    pub cmd: Option<Vec<String>>,
    pub working_dir: Option<String>,
    pub stop_signal: Option<String>,
    pub labels: Option<BTreeMap<String, String>>,
    pub exposed_ports: Option<BTreeMap<String, serde_json::Value>>,
    pub volumes: Option<BTreeMap<String, serde_json::Value>>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RootFsSection {
    #[serde(rename = "type", default)]
    pub kind: String,
    #[serde(default)]
    pub diff_ids: Vec<String>,
}

/// A configuration that was understood.
#[derive(Debug, Clone)]
pub(crate) struct Parsed {
    pub config: ImageConfig,
    pub diff_ids: Vec<Digest>,
}

/// Reads a configuration file; the error says what is wrong with it.
pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed, String> {
    let file: ConfigFile =
        serde_json::from_slice(bytes).map_err(|e| format!("its configuration is not valid: {e}"))?;
    if !file.os.is_empty() && file.os != "linux" {
        return Err(format!("it is made for {}, not for linux", file.os));
    }
    let diff_ids = file
        .rootfs
        .diff_ids
        .iter()
        .map(|id| {
            Digest::parse(id)
                .ok_or_else(|| format!("its configuration names a layer {id:?} that is no sha256"))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let section = file.config.unwrap_or_default();
    let keys =
        |map: Option<BTreeMap<String, serde_json::Value>>| map.unwrap_or_default().into_keys().collect();
    let config = ImageConfig {
        env: section.env.unwrap_or_default(),
        entrypoint: section.entrypoint.unwrap_or_default(),
        cmd: section.cmd.unwrap_or_default(),
        user: section.user.unwrap_or_default(),
        working_dir: section.working_dir.unwrap_or_default(),
        stop_signal: section.stop_signal.unwrap_or_default(),
        labels: section.labels.unwrap_or_default(),
        exposed_ports: keys(section.exposed_ports),
        volumes: keys(section.volumes),
        architecture: file.architecture,
    };
    Ok(Parsed { config, diff_ids })
}

/// The chain ids of layers with these diff ids, lowest first.
pub(crate) fn chain(diff_ids: &[Digest]) -> Vec<Digest> {
    let mut chain: Vec<Digest> = Vec::with_capacity(diff_ids.len());
    for diff in diff_ids {
        let next = match chain.last() {
            None => diff.clone(),
            Some(below) => Digest::of(format!("{below} {diff}").as_bytes()),
        };
        chain.push(next);
    }
    chain
}

/// This machine's CPU in the words of image manifests.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_with_nulls_and_unknown_fields_is_read() {
        let diff = Digest::of(b"x");
        let json = format!(
            r#"{{"architecture":"amd64","os":"linux","created":"2020-01-01T00:00:00Z","config":{{"Env":["A=b"],"Cmd":null,
            "Entrypoint":["/app"],"ExposedPorts":{{"80/tcp":{{}}}},"Volumes":null,"OnBuild":null}},
            "rootfs":{{"type":"layers","diff_ids":["{diff}"]}},"history":[]}}"#
        );
        let parsed = parse(json.as_bytes()).unwrap();
        assert_eq!(parsed.config.entrypoint, ["/app"]);
        assert_eq!(parsed.config.exposed_ports, ["80/tcp"]);
        assert_eq!(parsed.diff_ids, [diff]);
    }

    #[test]
    fn an_image_for_another_system_or_with_a_path_for_a_digest_is_refused() {
        assert!(parse(br#"{"os":"windows","rootfs":{"diff_ids":[]}}"#).unwrap_err().contains("windows"));
        assert!(parse(br#"{"rootfs":{"diff_ids":["sha256:../../etc"]}}"#).unwrap_err().contains("no sha256"));
        assert!(parse(b"{").unwrap_err().contains("not valid"));
    }

    #[test]
    fn the_first_chain_id_is_the_diff_id_and_later_ones_depend_on_all_below() {
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        let one = chain(&[a.clone(), b.clone()]);
        let two = chain(&[b.clone(), a.clone()]);
        assert_eq!(one[0], a);
        assert_ne!(one[1], two[1]);
        assert_eq!(one[1], Digest::of(format!("{a} {b}").as_bytes()));
    }
}
