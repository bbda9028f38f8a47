//! NetworkPolicies.

use super::columns::{age, name};
use super::fields::{child, default, is_unset, items, items_mut, set, text};
use super::workload::template::{label_selector, selector_text};
use super::{Cause, Causes, Column, Hooks};
use serde_json::{Value, json};
use trine_objects::names;

const NO_PORT: &str = "must be between 1 and 65535, inclusive";
const NO_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
/// The lists of rules, and what their peers are called.
const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

/// The hooks of NetworkPolicies.
pub struct NetworkPolicies;

impl Hooks for NetworkPolicies {
    fn defaults(&self, obj: &mut Value) {
        let spec = child(obj, "spec");
        default(spec, "podSelector", json!({}));
        if items(spec, "policyTypes").is_empty() {
            let outwards = !items(spec, "egress").is_empty();
            let types = if outwards { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
            set(spec, "policyTypes", types);
        }
        for (direction, _) in DIRECTIONS {
            for rule in items_mut(spec, direction) {
                items_mut(rule, "ports").for_each(|port| default(port, "protocol", "TCP"));
            }
        }
    }

    fn validate(&self, obj: &Value, _old: Option<&Value>) -> Vec<Cause> {
        let spec = &obj["spec"];
        let mut causes = Causes::default();
        label_selector(&spec["podSelector"], "spec.podSelector", &mut causes);
        for (direction, peers) in DIRECTIONS {
            for (i, rule) in items(spec, direction).iter().enumerate() {
                let path = format!("spec.{direction}[{i}]");
                for (j, port) in items(rule, "ports").iter().enumerate() {
                    self::port(port, &format!("{path}.ports[{j}]"), &mut causes);
                }
                for (j, peer) in items(rule, peers).iter().enumerate() {
                    self::peer(peer, &format!("{path}.{peers}[{j}]"), &mut causes);
                }
            }
        }
        let types = items(spec, "policyTypes");
        if types.len() > 2 {
            let detail = "may not specify more than two policyTypes";
            causes.add(Cause::invalid("spec.policyTypes", spec["policyTypes"].clone(), detail));
            return causes.0;
        }
        for (i, kind) in types.iter().enumerate() {
            if !["Ingress", "Egress"].contains(&kind.as_str().unwrap_or_default()) {
                let field = format!("spec.policyTypes[{i}]");
                causes.add(Cause::not_supported(field, kind.clone(), &["Ingress", "Egress"]));
            }
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::text("Pod-Selector"), Column::AGE] }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        vec![name(obj), selector_text(&obj["spec"]["podSelector"]).into(), age(obj, now_unix)]
    }
}

fn port(port: &Value, path: &str, causes: &mut Causes) {
    causes.one_of(port, "protocol", path, &["SCTP", "TCP", "UDP"]);
    let end = port["endPort"].as_i64();
    let end_field = format!("{path}.endPort");
    let valid = |n: i64| (1..=65_535).contains(&n);
    match (&port["port"], end) {
        (Value::Null, Some(end)) => {
            causes.add(Cause::invalid(end_field, end, "may not be specified when `port` is not specified"));
        }
        (Value::Null, None) => {}
        (Value::String(name), end) => {
            if let Some(end) = end {
                let detail = "may not be specified when `port` is non-numeric";
                causes.add(Cause::invalid(end_field, end, detail));
            }
            causes.name(&format!("{path}.port"), name, names::port_name);
        }
        (number, end) => {
            let number = number.as_i64().unwrap_or(0);
            if !valid(number) {
                causes.add(Cause::invalid(format!("{path}.port"), number, NO_PORT));
            }
            if let Some(end) = end.filter(|end| *end < number) {
                causes.add(Cause::invalid(&*end_field, end, "must be greater than or equal to `port`"));
            }
            if let Some(end) = end.filter(|end| !valid(*end)) {
                causes.add(Cause::invalid(end_field, end, NO_PORT));
            }
        }
    }
}

fn peer(peer: &Value, path: &str, causes: &mut Causes) {
    let mut given = 0;
    for selector in ["podSelector", "namespaceSelector"] {
        if !peer[selector].is_null() {
            given += 1;
            label_selector(&peer[selector], &format!("{path}.{selector}"), causes);
        }
    }
    let block = &peer["ipBlock"];
    if block.is_null() {
        if given == 0 {
            causes.add(Cause::required(path, "must specify a peer"));
        }
        return;
    }
    if given > 0 {
        causes.add(Cause::forbidden(path, "may not specify both ipBlock and another peer"));
    }
    let path = format!("{path}.ipBlock");
    if is_unset(&block["cidr"]) {
        return causes.add(Cause::required(format!("{path}.cidr"), ""));
    }
    let Some(all) = Range::parse(text(block, "cidr")) else {
        return causes.add(Cause::invalid(format!("{path}.cidr"), block["cidr"].clone(), NO_CIDR));
    };
    for (i, except) in items(block, "except").iter().enumerate() {
        let field = format!("{path}.except[{i}]");
        match Range::parse(except.as_str().unwrap_or_default()) {
            None => causes.add(Cause::invalid(field, except.clone(), NO_CIDR)),
            Some(range) if !range.is_strictly_in(&all) => {
                causes.add(Cause::invalid(field, except.clone(), "must be a strict subset of `cidr`"));
            }
            Some(_) => {}
        }
    }
}

/// A range of addresses: the first, as 128 bits from the left, and how many of these are fixed.
pub struct Range {
    first: u128,
    fixed: u32,
    v6: bool,
}

impl Range {
    /// Reads `address/length`; bits behind the length do not matter.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let fixed: u32 = length.parse().ok()?;
        let (bits, width, v6) = match address.parse().ok()? {
            std::net::IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 32, false),
            std::net::IpAddr::V6(v6) => (v6.to_bits(), 128, true),
        };
        let mask = if fixed == 0 { 0 } else { u128::MAX << (128 - fixed.min(128)) };
        (fixed <= width).then_some(Self { first: bits & mask, fixed, v6 })
    }

    fn is_strictly_in(&self, other: &Self) -> bool {
        let mask = if other.fixed == 0 { 0 } else { u128::MAX << (128 - other.fixed) };
        self.v6 == other.v6 && self.fixed > other.fixed && self.first & mask == other.first
    }
}
