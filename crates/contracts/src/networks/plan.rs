//! From what a Pod asks for to what its sandbox is attached to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::attachments::{Attachment, Attachments, DEFAULT_LINK};
use super::selection::{self, Selection};
pub use super::selection::{DEFAULT_NETWORK, NETWORKS};
use super::{Unusable, unusable};

/// Where definitions of default networks are if their namespace is not said (Multus: `multusNamespace`).
pub const SYSTEM_NAMESPACE: &str = "kube-system";

/// What a Pod asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// In place of the node's default network.
    pub default: Option<Selection>,
    /// Beside the default network.
    pub others: Vec<Selection>,
}

/// Whose definitions a Pod may name: by default anybody's, as with Multus.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Isolation {
    /// Any.
    #[default]
    None,
    /// Its own namespace's, and those of these namespaces.
    Except(Vec<String>),
}

/// What the annotations ask for; none if nothing.
///
/// # Errors
/// If an annotation cannot be meant.
pub fn asked(annotations: &BTreeMap<String, String>, namespace: &str) -> Result<Option<Asked>, Unusable> {
    // An empty one is none, as with Multus.
    let text = |key: &str| annotations.get(key).map(String::as_str).filter(|text| !text.is_empty());
    let of = |key: &str, why: Unusable| unusable(format!("annotation {key}: {why}"));
    let others = match text(NETWORKS) {
        Some(text) => selection::parse(text, namespace).map_err(|why| of(NETWORKS, why))?,
        None => Vec::new(),
    };
    let default = match text(DEFAULT_NETWORK) {
        Some(text) => Some(default(text).map_err(|why| of(DEFAULT_NETWORK, why))?),
        None => None,
    };
    Ok((default.is_some() || !others.is_empty()).then_some(Asked { default, others }))
}

fn default(text: &str) -> Result<Selection, Unusable> {
    let mut all = selection::parse(text, SYSTEM_NAMESPACE)?;
    match (all.pop(), all.is_empty()) {
        (Some(only), true) if only.interface.is_empty() || only.interface == DEFAULT_LINK => Ok(only),
        (Some(_), true) => Err(unusable(format!("the default network's interface is {DEFAULT_LINK}"))),
        (None, _) => Err(unusable("it names no network")),
        (Some(_), false) => Err(unusable("there is only one default network")),
    }
}

impl Asked {
    /// The definitions that are needed, by namespace and name.
    ///
    /// # Errors
    /// If one may not be named by Pods of `namespace`.
    pub fn definitions(
        &self,
        namespace: &str,
        isolation: &Isolation,
    ) -> Result<BTreeSet<(String, String)>, Unusable> {
        if let Isolation::Except(open) = isolation {
            let closed = |of: &&Selection| of.namespace != namespace && !open.contains(&of.namespace);
            // Who may say what the default network is has a namespace of the system's for it.
            if let Some(other) = self.others.iter().find(closed) {
                return Err(unusable(format!(
                    "namespace isolation enabled, annotation violates permission, pod is in namespace {namespace} but \
                     refers to target namespace {}",
                    other.namespace
                )));
            }
        }
        let all = self.default.iter().chain(&self.others);
        Ok(all.map(|one| (one.namespace.clone(), one.name.clone())).collect())
    }

    /// What the sandbox is attached to, by the `config` of each definition (empty: the network of its name on the node).
    ///
    /// # Errors
    /// If a definition cannot be used, links have the same name, or default routes go two ways.
    pub fn attachments(&self, configs: &BTreeMap<(String, String), String>) -> Result<Attachments, Unusable> {
        let routes = self.routes()?;
        let mut links = BTreeSet::from([DEFAULT_LINK.to_owned(), "lo".to_owned()]);
        let mut networks = Vec::new();
        for (number, one) in self.others.iter().enumerate() {
            let link =
                if one.interface.is_empty() { format!("net{}", number + 1) } else { one.interface.clone() };
            if !links.insert(link.clone()) {
                return Err(unusable(format!(
                    "cannot set {}/{} interface name to {link:?}: interface name {link} already exists",
                    one.namespace, one.name
                )));
            }
            networks.push(attachment(one, link, routes, configs)?);
        }
        let own = Attachment {
            interface: DEFAULT_LINK.to_owned(),
            gateways: routes.then(Vec::new),
            ..Attachment::default()
        };
        let default = match &self.default {
            Some(one) => Some(attachment(one, DEFAULT_LINK.to_owned(), routes, configs)?),
            None => routes.then_some(own),
        };
        Ok(Attachments { default, networks })
    }

    /// True if the Pod says which way its default routes go.
    fn routes(&self) -> Result<bool, Unusable> {
        let all: Vec<&Vec<IpAddr>> =
            self.default.iter().chain(&self.others).filter_map(|one| one.default_route.as_ref()).collect();
        for v6 in [false, true] {
            if all.iter().flat_map(|list| list.iter()).filter(|ip| ip.is_ipv6() == v6).count() > 1 {
                return Err(unusable("default-route has more than one gateway of a family"));
            }
        }
        if all.len() > 1 && all.iter().any(|list| list.is_empty()) {
            return Err(unusable("default-route is there twice"));
        }
        Ok(!all.is_empty())
    }
}

fn attachment(
    one: &Selection,
    interface: String,
    routes: bool,
    configs: &BTreeMap<(String, String), String>,
) -> Result<Attachment, Unusable> {
    let name = format!("{}/{}", one.namespace, one.name);
    let text = configs
        .get(&(one.namespace.clone(), one.name.clone()))
        .ok_or_else(|| unusable(format!("network-attachment-definition {name} was not read")))?;
    let config = config(text, &one.name)
        .map_err(|why| unusable(format!("network-attachment-definition {name}: {why}")))?;
    Ok(Attachment {
        config_name: config.is_none().then(|| one.name.clone()),
        config,
        interface,
        cni_args: one.cni_args.clone(),
        wishes: wishes(one),
        gateways: match &one.default_route {
            // The plugins' own routes stay.
            Some(list) if list.is_empty() => None,
            Some(list) => Some(list.clone()),
            None => routes.then(Vec::new),
        },
        name,
    })
}

/// A definition's configuration, with a name; none if it is empty.
fn config(text: &str, name: &str) -> Result<Option<Value>, String> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let mut config = match serde_json::from_str(text) {
        Ok(Value::Object(config)) => config,
        Ok(_) => return Err("its config is not a JSON object".to_owned()),
        Err(e) => return Err(format!("its config is not JSON: {e}")),
    };
    if config.get("name").is_none_or(|own| own.is_null() || own == "") {
        config.insert("name".to_owned(), json!(name));
    }
    Ok(Some(Value::Object(config)))
}

fn wishes(one: &Selection) -> Map<String, Value> {
    let mut all = Map::new();
    let mut wish = |key: &str, value: Value| all.insert(key.to_owned(), value);
    if !one.ips.is_empty() {
        wish("ips", json!(one.ips));
    }
    let lower = |text: &str| json!(text.to_ascii_lowercase().replace('-', ":"));
    if !one.mac.is_empty() {
        wish("mac", lower(&one.mac));
    }
    if !one.infiniband_guid.is_empty() {
        wish("infinibandGUID", lower(&one.infiniband_guid));
    }
    if !one.device_id.is_empty() {
        wish("deviceID", json!(one.device_id));
    }
    if let Some(ports) = &one.port_mappings {
        let port = |p: &selection::Port| {
            let protocol =
                if p.protocol.is_empty() { "tcp".to_owned() } else { p.protocol.to_ascii_lowercase() };
            json!({"hostPort": p.host_port, "containerPort": p.container_port, "protocol": protocol, "hostIP": p.host_ip})
        };
        wish("portMappings", ports.iter().map(port).collect());
    }
    if let Some(b) = &one.bandwidth {
        let rates = json!({"ingressRate": b.ingress_rate, "ingressBurst": b.ingress_burst,
            "egressRate": b.egress_rate, "egressBurst": b.egress_burst});
        wish("bandwidth", rates);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked_for(networks: &str, default: &str) -> Result<Option<Asked>, Unusable> {
        let pair = |key: &str, text: &str| (key.to_owned(), text.to_owned());
        asked(&BTreeMap::from([pair(NETWORKS, networks), pair(DEFAULT_NETWORK, default)]), "pods")
    }

    fn resolved(networks: &str, default: &str, configs: &[(&str, &str)]) -> Result<Attachments, Unusable> {
        let configs = configs.iter().map(|(key, config)| {
            let (namespace, name) = key.split_once('/').unwrap();
            ((namespace.to_owned(), name.to_owned()), (*config).to_owned())
        });
        asked_for(networks, default)?.unwrap().attachments(&configs.collect())
    }

    const BRIDGE: &str = r#"{"cniVersion":"0.3.1","type":"bridge","x":{"y":1}}"#;

    #[test]
    fn nothing_is_asked_for_without_annotations_or_with_empty_ones() {
        assert_eq!(asked(&BTreeMap::new(), "pods"), Ok(None));
        assert_eq!(asked_for("", ""), Ok(None));
        assert!(asked_for("[]", "").unwrap().is_none());
        let why = asked_for("A", "").unwrap_err().to_string();
        assert!(why.starts_with("annotation k8s.v1.cni.cncf.io/networks: "), "{why}");
    }

    #[test]
    fn links_are_counted_by_their_place_and_may_be_chosen() {
        let configs = [("pods/a", BRIDGE), ("other/b", ""), ("pods/c", BRIDGE)];
        let all = resolved("a,other/b@data,a,c", "", &configs).unwrap();
        let links: Vec<&str> = all.networks.iter().map(|n| n.interface.as_str()).collect();
        assert_eq!(links, ["net1", "data", "net3", "net4"]);
        assert_eq!(all.default, None);
        let a = &all.networks[0];
        assert_eq!(a.name, "pods/a");
        // All is kept, and the name is the definition's.
        let config = json!({"cniVersion": "0.3.1", "type": "bridge", "x": {"y": 1}, "name": "a"});
        assert_eq!((a.config.clone(), a.config_name.clone()), (Some(config), None));
        let b = &all.networks[1];
        assert_eq!((b.config.clone(), b.config_name.as_deref()), (None, Some("b")));
        assert_eq!(Attachments::parse(&all.text()), Ok(all), "what is planned, a runtime takes");
    }

    #[test]
    fn links_of_one_name_and_definitions_that_say_nothing_are_refused() {
        let rows = [
            ("a@net2,a", BRIDGE, "interface name net2 already exists"),
            ("a@x,a@x", BRIDGE, "interface name x already exists"),
            ("a@eth0", BRIDGE, "interface name eth0 already exists"),
            ("a@lo", BRIDGE, "interface name lo already exists"),
            ("a", "{", "network-attachment-definition pods/a: its config is not JSON"),
            ("a", "[]", "not a JSON object"),
            ("b", BRIDGE, "was not read"),
        ];
        for (networks, config, part) in rows {
            let why = resolved(networks, "", &[("pods/a", config)]).unwrap_err().to_string();
            assert!(why.contains(part), "{networks} {config}: {why}");
        }
    }

    #[test]
    fn a_name_of_its_own_stays_and_a_list_is_kept_whole() {
        let list = r#"{"cniVersion":"1.0.0","name":"own","plugins":[{"type":"bridge"},{"type":"tuning"}]}"#;
        let all = resolved("a", "", &[("pods/a", list)]).unwrap();
        assert_eq!(all.networks[0].config, serde_json::from_str(list).ok());
    }

    #[test]
    fn wishes_become_capabilities() {
        let networks = r#"[{"name":"a","ips":["10.0.0.5/24"],"mac":"02-AA-00-00-00-01","deviceID":"d",
            "infiniband-guid":"24:8A:07:03:00:8D:AE:2F","portMappings":[{"hostPort":80,"containerPort":8080}],
            "bandwidth":{"egressRate":8},"cni-args":{"k":"v"}}]"#;
        let all = resolved(networks, "", &[("pods/a", BRIDGE)]).unwrap();
        let expected = json!({"ips": ["10.0.0.5/24"], "mac": "02:aa:00:00:00:01", "deviceID": "d",
            "infinibandGUID": "24:8a:07:03:00:8d:ae:2f",
            "portMappings": [{"hostPort": 80, "containerPort": 8080, "protocol": "tcp", "hostIP": ""}],
            "bandwidth": {"ingressRate": 0, "ingressBurst": 0, "egressRate": 8, "egressBurst": 0}});
        assert_eq!(Value::Object(all.networks[0].wishes.clone()), expected);
        assert_eq!(all.networks[0].cni_args["k"], "v");
    }

    #[test]
    fn default_routes_go_one_way() {
        let way = |routes: [Option<&str>; 2]| {
            let one = |(name, route): (&str, Option<&str>)| match route {
                Some(route) => format!(r#"{{"name":"{name}","default-route":{route}}}"#),
                None => format!(r#"{{"name":"{name}"}}"#),
            };
            let networks = ["a", "b"].into_iter().zip(routes).map(one).collect::<Vec<_>>().join(",");
            let all = resolved(&format!("[{networks}]"), "", &[("pods/a", BRIDGE), ("pods/b", BRIDGE)])?;
            let of = |n: &Attachment| n.gateways.clone().map(|g| g.iter().map(ToString::to_string).collect());
            let default: Option<Option<Vec<String>>> = all.default.as_ref().map(of);
            Ok::<_, Unusable>((default, all.networks.iter().map(of).collect::<Vec<_>>()))
        };
        let list = |all: &[&str]| Some(all.iter().map(|ip| (*ip).to_owned()).collect::<Vec<_>>());
        assert_eq!(way([None, None]), Ok((None, vec![None, None])));
        let four = Some(r#"["10.0.0.1"]"#);
        let six = Some(r#"["fd00::1"]"#);
        assert_eq!(way([None, four]), Ok((Some(list(&[])), vec![list(&[]), list(&["10.0.0.1"])])));
        assert_eq!(way([six, four]), Ok((Some(list(&[])), vec![list(&["fd00::1"]), list(&["10.0.0.1"])])));
        assert_eq!(way([Some("[]"), None]), Ok((Some(list(&[])), vec![None, list(&[])])), "the plugins' own");
        for two in [[four, four], [Some(r#"["10.0.0.1","10.0.0.2"]"#), None], [Some("[]"), four]] {
            assert!(way(two).is_err(), "{two:?}");
        }
    }

    #[test]
    fn another_default_network_takes_the_place_of_the_nodes() {
        let configs = [("kube-system/d", BRIDGE), ("pods/a", BRIDGE)];
        let all = resolved("a", "d", &configs).unwrap();
        let default = all.default.unwrap();
        assert_eq!((default.name.as_str(), default.interface.as_str()), ("kube-system/d", "eth0"));
        assert_eq!(all.networks[0].interface, "net1");
        for (text, part) in [("d,e", "only one"), ("d@net1", "is eth0"), ("[]", "names no network")] {
            let why = asked_for("", text).unwrap_err().to_string();
            assert!(why.contains(part), "{text}: {why}");
        }
    }

    #[test]
    fn isolated_pods_name_definitions_of_their_own_namespace_and_of_open_ones() {
        let asked = asked_for("a,other/b,open/c", "").unwrap().unwrap();
        assert_eq!(asked.definitions("pods", &Isolation::None).unwrap().len(), 3);
        let open = |names: &[&str]| Isolation::Except(names.iter().map(|n| (*n).to_owned()).collect());
        assert!(asked.definitions("pods", &open(&["open", "other"])).is_ok());
        let why = asked.definitions("pods", &open(&["open"])).unwrap_err().to_string();
        assert!(why.contains("pod is in namespace pods but refers to target namespace other"), "{why}");
    }
}
