//! How nodes run: the words that `up` and `agent` share, and that `up` hands on to the further nodes of its machine.

use std::ffi::OsString;

use clap::{Args, ValueEnum};
use trine_contracts::networks::Isolation;
use trine_kubelet::container::quantity;
use trine_kubelet::eviction::Thresholds;
use trine_kubelet::log_rotation::Limits;
use trine_kubelet::networks::PodNetworks;

use crate::registries::RegistryArgs;

/// Words of every command that runs a node.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct NodeWords {
    /// Where images come from
    #[command(flatten)]
    pub registries: RegistryArgs,
    /// How the kubelet runs
    #[command(flatten)]
    pub kubelet: KubeletWords,
}

impl NodeWords {
    /// The same words, for another process.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        let mut words = self.registries.words();
        words.extend(self.kubelet.words());
        words
    }
}

/// Words of every command that runs a kubelet; named as those of upstream's.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct KubeletWords {
    /// Below what the node takes no more Pods and ends some, SIGNAL<LEAST,...: of memory.available, nodefs.available,
    /// nodefs.inodesFree and pid.available [default: memory.available<100Mi,nodefs.available<1Gi,nodefs.inodesFree<5%]
    #[arg(long, value_name = "THRESHOLDS")]
    pub eviction_hard: Option<Thresholds>,
    /// Length at which a container's log is rotated, a quantity [default: 10Mi]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub container_log_max_size: Option<u64>,
    /// How many files there may be of a container's log [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    pub container_log_max_files: Option<u32>,
    /// Which definitions Pods may name in k8s.v1.cni.cncf.io/networks: any, isolated (their own namespace's and those of
    /// --global-namespaces), or none, if somebody else, Multus for instance, attaches them [default: any]
    #[arg(long, value_name = "any|isolated|none")]
    pub pod_networks: Option<NetworksOf>,
    /// Namespaces whose definitions isolated Pods may name, too [default: default]
    #[arg(long, value_name = "NAMESPACE,...", value_delimiter = ',')]
    pub global_namespaces: Vec<String>,
}

/// Whose definitions of networks Pods may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NetworksOf {
    /// Anybody's.
    Any,
    /// Their own namespace's.
    Isolated,
    /// Nobody's: the kubelet leaves that to others.
    None,
}

impl KubeletWords {
    /// What must be left of the node.
    #[must_use]
    pub fn thresholds(&self) -> Thresholds {
        self.eviction_hard.clone().unwrap_or_default()
    }

    /// How much of containers' output is kept.
    #[must_use]
    pub fn logs(&self) -> Limits {
        let usual = Limits::default();
        Limits {
            max_bytes: self.container_log_max_size.unwrap_or(usual.max_bytes),
            max_files: self.container_log_max_files.unwrap_or(usual.max_files),
        }
    }

    /// Whose definitions of networks Pods may name.
    #[must_use]
    pub fn networks(&self) -> PodNetworks {
        let open = &self.global_namespaces;
        let open = || if open.is_empty() { vec!["default".to_owned()] } else { open.clone() };
        match self.pod_networks {
            None | Some(NetworksOf::Any) => PodNetworks::default(),
            Some(NetworksOf::Isolated) => PodNetworks::Here(Isolation::Except(open())),
            Some(NetworksOf::None) => PodNetworks::Elsewhere,
        }
    }

    fn words(&self) -> Vec<OsString> {
        let networks = self.pod_networks.as_ref().and_then(ValueEnum::to_possible_value);
        let open = Some(self.global_namespaces.join(",")).filter(|open| !open.is_empty());
        let told = [
            ("--eviction-hard", self.eviction_hard.as_ref().map(ToString::to_string)),
            ("--container-log-max-size", self.container_log_max_size.map(|n| n.to_string())),
            ("--container-log-max-files", self.container_log_max_files.map(|n| n.to_string())),
            ("--pod-networks", networks.map(|value| value.get_name().to_owned())),
            ("--global-namespaces", open),
        ];
        told.into_iter().filter_map(|(word, value)| Some([word.into(), value?.into()])).flatten().collect()
    }
}

fn size(text: &str) -> Result<u64, String> {
    let bytes = quantity::value(text).and_then(|bytes| u64::try_from(bytes).ok()).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| format!("{text:?} is no quantity above 0"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        node: NodeWords,
    }

    #[test]
    fn another_process_is_told_the_same() {
        let told = [
            "x",
            "--registry-config",
            "/mirrors",
            "--eviction-hard",
            "nodefs.available<5%",
            "--container-log-max-size",
            "4096",
            "--container-log-max-files",
            "3",
            "--pod-networks",
            "isolated",
            "--global-namespaces",
            "a,b",
        ];
        let node = Words::parse_from(told).node;
        assert_eq!(node.words(), told[1..]);
        assert_eq!(node.kubelet.thresholds().to_string(), "nodefs.available<5%");
        assert_eq!(node.kubelet.logs(), Limits { max_bytes: 4096, max_files: 3 });
        let open = Isolation::Except(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(node.kubelet.networks(), PodNetworks::Here(open));
        let untold = Words::parse_from(["x"]).node;
        assert_eq!(untold.kubelet.networks(), PodNetworks::Here(Isolation::None));
        assert_eq!(untold.words(), Vec::<OsString>::new());
        assert_eq!(untold.kubelet.logs(), Limits::default());
        for wrong in [
            ["--eviction-hard", "cpu<5%"],
            ["--container-log-max-size", "0"],
            ["--container-log-max-files", "1"],
            ["--pod-networks", "some"],
        ] {
            assert!(Words::try_parse_from(["x", wrong[0], wrong[1]]).is_err(), "{wrong:?}");
        }
        assert_eq!(size("10Mi"), Ok(10 << 20));
    }
}
