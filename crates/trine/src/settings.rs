//! What every node of a cluster must know of it: the ConfigMap `trine-cluster` in `kube-system`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::Context;
use serde_json::json;
use trine_kernel::netlink::{Cidr, Cidrs};
use trine_overlay::{Checksums, Mode};
use trine_typed::k8s_openapi::api::core::v1::ConfigMap;
use trine_typed::kube::api::{Patch, PatchParams};
use trine_typed::kube::{Api, Client};

use crate::identity::Identity;

/// The ConfigMap's name.
const NAME: &str = "trine-cluster";
/// Its keys.
const POD_CIDR: &str = "podCIDR";
const SERVICE_CIDR: &str = "serviceCIDR";
const NODES_CIDR: &str = "machineNodesCIDR";
const CLUSTER_DNS: &str = "clusterDNS";
const CLUSTER_DOMAIN: &str = "clusterDomain";
const OVERLAY: &str = "overlay";
const CHECKSUMS: &str = "tunnelChecksums";
const VNI: &str = "vxlanVNI";
/// The number of the tunnels of a cluster that says none.
const FIRST_VNI: u32 = 1;

/// What is the same for all nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The Pod addresses of the whole cluster, of each family.
    pub pod_cidr: Cidrs,
    /// The virtual addresses of Services.
    pub service_cidr: Cidrs,
    /// The addresses of the nodes that share the server's machine, if it has several.
    pub nodes_cidr: Option<Cidrs>,
    /// Resolvers for Pods; without any they get the node's own.
    pub cluster_dns: Vec<IpAddr>,
    /// The domain of Services' names.
    pub cluster_domain: String,
    /// Which ways to other nodes may be taken.
    pub overlay: Mode,
    /// Who computes the checksums of what goes through tunnels.
    pub checksums: Checksums,
    /// The number of the cluster's tunnels: its server's instance, so that clusters on one machine differ.
    pub vni: u32,
}

impl Settings {
    /// Those of the cluster whose server has this identity.
    ///
    /// # Errors
    /// If its ranges are none.
    pub fn of(identity: &Identity) -> anyhow::Result<Self> {
        let service_cidr: Cidrs = identity.service_cidr.parse().context("the Service range")?;
        Ok(Self {
            pod_cidr: identity.pod_cidr.parse().context("the Pod range")?,
            nodes_cidr: identity
                .nodes_cidr
                .as_ref()
                .map(|r| r.parse())
                .transpose()
                .context("the nodes' range")?,
            cluster_dns: vec![dns_address(service_cidr.primary())],
            service_cidr,
            cluster_domain: "cluster.local".to_owned(),
            overlay: identity.overlay.as_deref().map(str::parse).transpose()?.unwrap_or_default(),
            checksums: identity.tunnel_checksums.as_deref().map(str::parse).transpose()?.unwrap_or_default(),
            vni: u32::from_str_radix(&identity.instance, 16).unwrap_or_default().max(FIRST_VNI),
        })
    }

    /// Writes them for the nodes to read.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn publish(&self, client: &Client) -> anyhow::Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": self.data()});
        let params = PatchParams::apply("trine").force();
        maps.patch(NAME, &params, &Patch::Apply(&object))
            .await
            .context("cannot publish the cluster's settings")?;
        Ok(())
    }

    /// Reads them.
    ///
    /// # Errors
    /// What the API server says, or what is wrong with them.
    pub async fn fetch(client: &Client) -> anyhow::Result<Self> {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
        let map = maps.get(NAME).await.context("cannot read the cluster's settings")?;
        Self::read(&map.data.unwrap_or_default()).context("the cluster's settings")
    }

    fn data(&self) -> BTreeMap<&'static str, String> {
        let dns: Vec<String> = self.cluster_dns.iter().map(ToString::to_string).collect();
        let mut data = BTreeMap::from([
            (POD_CIDR, self.pod_cidr.to_string()),
            (SERVICE_CIDR, self.service_cidr.to_string()),
            (CLUSTER_DNS, dns.join(",")),
            (CLUSTER_DOMAIN, self.cluster_domain.clone()),
            (OVERLAY, self.overlay.to_string()),
            (CHECKSUMS, self.checksums.to_string()),
            (VNI, self.vni.to_string()),
        ]);
        data.extend(self.nodes_cidr.as_ref().map(|range| (NODES_CIDR, range.to_string())));
        data
    }

    fn read(data: &BTreeMap<String, String>) -> anyhow::Result<Self> {
        let text = |key: &str| data.get(key).map(String::as_str).unwrap_or_default();
        // A server of an older version does not say all.
        let said = |key: &str| data.get(key).map(String::as_str);
        let range = |key: &'static str| text(key).parse::<Cidrs>().context(key);
        let dns = text(CLUSTER_DNS).split(',').filter(|a| !a.is_empty());
        Ok(Self {
            pod_cidr: range(POD_CIDR)?,
            service_cidr: range(SERVICE_CIDR)?,
            nodes_cidr: data.contains_key(NODES_CIDR).then(|| range(NODES_CIDR)).transpose()?,
            cluster_dns: dns.map(str::parse).collect::<Result<_, _>>().context(CLUSTER_DNS)?,
            cluster_domain: text(CLUSTER_DOMAIN).to_owned(),
            overlay: said(OVERLAY).map(str::parse).transpose().context(OVERLAY)?.unwrap_or_default(),
            checksums: said(CHECKSUMS).map(str::parse).transpose().context(CHECKSUMS)?.unwrap_or_default(),
            vni: said(VNI).map(str::parse).transpose().context(VNI)?.unwrap_or(FIRST_VNI),
        })
    }
}

/// The address of the Service `kube-dns`: the tenth of the range, as everywhere.
fn dns_address(services: Cidr) -> IpAddr {
    match services.addr {
        IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits() + 10).into(),
        IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits() + 10).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_read_again() {
        let alone = Settings {
            pod_cidr: "10.244.0.0/16".parse().unwrap(),
            service_cidr: "10.96.0.0/16".parse().unwrap(),
            nodes_cidr: None,
            cluster_dns: Vec::new(),
            cluster_domain: "cluster.local".to_owned(),
            overlay: Mode::Auto,
            checksums: Checksums::Auto,
            vni: 1,
        };
        let several = Settings {
            pod_cidr: "10.244.0.0/16,fd00:1:2:100::/56".parse().unwrap(),
            nodes_cidr: Some("10.222.0.0/16,fd00:1:2:1::/64".parse().unwrap()),
            cluster_dns: vec!["10.96.0.10".parse().unwrap(), "fd00::a".parse().unwrap()],
            overlay: Mode::Vxlan,
            checksums: Checksums::Software,
            vni: 0x00ff_ffff,
            ..alone.clone()
        };
        for settings in [alone, several] {
            let data = settings.data().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
            assert_eq!(Settings::read(&data).unwrap(), settings);
        }
        assert!(Settings::read(&BTreeMap::new()).is_err());
    }
}
