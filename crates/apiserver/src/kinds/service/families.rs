//! Which families of addresses a Service has. Source: KEP-563.

use serde_json::{Value, json};
use std::net::IpAddr;

use crate::kinds::Cause;
use crate::kinds::fields::{is_unset, items, set, text};

const V4: &str = "IPv4";
const V6: &str = "IPv6";
/// The policies, from the one that takes the least.
pub const SINGLE: &str = "SingleStack";
pub const PREFER: &str = "PreferDualStack";
pub const REQUIRE: &str = "RequireDualStack";
/// A Service has at most one address of each.
const MOST: usize = 2;

/// The family of an address.
pub fn of(address: IpAddr) -> &'static str {
    if address.is_ipv4() { V4 } else { V6 }
}

fn other(family: &str) -> &'static str {
    if family == V4 { V6 } else { V4 }
}

/// Completes policy and families of a Service that has cluster addresses or none of its own, but not an external name. `cluster`:
/// the families that addresses can be had of, the primary one first. What was dropped by saying so is taken off `clusterIPs`, too.
///
/// # Errors
/// What contradicts itself or cannot be had here.
pub fn decide(spec: &mut Value, old: Option<&Value>, cluster: &[&'static str]) -> Result<(), Vec<Cause>> {
    let headless =
        text(spec, "clusterIP") == "None" || items(spec, "clusterIPs").first() == Some(&json!("None"));
    let by_itself = headless && spec["selector"].as_object().is_none_or(serde_json::Map::is_empty);
    let policy = match text(spec, "ipFamilyPolicy") {
        "" => match old.map(|old| text(old, "ipFamilyPolicy")) {
            Some(before) if !before.is_empty() => before.to_owned(),
            _ if by_itself => REQUIRE.to_owned(),
            _ => SINGLE.to_owned(),
        },
        said => said.to_owned(),
    };
    set(spec, "ipFamilyPolicy", policy.clone());
    refused(told(spec))?;
    if let Some(old) = old {
        drop_second(spec, old, &policy)?;
    }
    refused(too_many(spec, &policy))?;
    infer(spec, headless, cluster)?;
    let mut families: Vec<String> = strings(spec, "ipFamilies");
    if !by_itself {
        refused(missing(&policy, &families, cluster))?;
    }
    if families.is_empty() {
        families.extend(cluster.first().map(|&family| family.to_owned()));
    }
    if let [only] = families.as_slice()
        && policy != SINGLE
        && (by_itself || cluster.len() == MOST)
    {
        let second = other(only).to_owned();
        families.push(second);
    }
    set(spec, "ipFamilies", json!(families));
    Ok(())
}

fn strings(spec: &Value, field: &str) -> Vec<String> {
    items(spec, field).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn refused(causes: Vec<Cause>) -> Result<(), Vec<Cause>> {
    if causes.is_empty() { Ok(()) } else { Err(causes) }
}

/// What contradicts itself, whatever the cluster has.
fn told(spec: &Value) -> Vec<Cause> {
    let (families, ips) = (strings(spec, "ipFamilies"), strings(spec, "clusterIPs"));
    let mut causes = Vec::new();
    for (field, values) in [("ipFamilies", &families), ("clusterIPs", &ips)] {
        if values.len() > MOST {
            let detail = "may only hold up to 2 values";
            causes.push(Cause::invalid(format!("spec.{field}"), json!(values), detail));
        }
    }
    for (i, family) in families.iter().enumerate() {
        let field = format!("spec.ipFamilies[{i}]");
        if ![V4, V6].contains(&family.as_str()) {
            causes.push(Cause::not_supported(field, family.as_str(), &[V4, V6]));
        } else if families[..i].contains(family) {
            causes.push(Cause::duplicate(field, family.as_str()));
        }
    }
    let parsed: Vec<&str> = ips.iter().filter_map(|ip| ip.parse().ok()).map(of).collect();
    if let [first, second] = parsed.as_slice()
        && first == second
    {
        let detail = "may specify no more than one IP for each IP family";
        causes.push(Cause::invalid("spec.clusterIPs", json!(ips), detail));
    }
    for (i, (ip, family)) in ips.iter().zip(&families).enumerate() {
        if ip.parse().is_ok_and(|ip| of(ip) != family) {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{i}]`");
            causes.push(Cause::invalid(format!("spec.clusterIPs[{i}]"), ip.as_str(), &detail));
        }
    }
    causes
}

/// Whoever asks for one family lets the second go; whoever leaves it out must ask.
fn drop_second(spec: &mut Value, old: &Value, policy: &str) -> Result<(), Vec<Cause>> {
    let mut causes = Vec::new();
    for (field, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
        let (before, mut now) = (strings(old, field), strings(spec, field));
        if policy == SINGLE && before == now && now.len() > 1 {
            now.truncate(1);
            set(spec, field, json!(now));
        } else if policy != SINGLE && !now.is_empty() && now.len() < before.len() {
            let detail = format!("must be 'SingleStack' to release the secondary {what}");
            causes.push(Cause::invalid("spec.ipFamilyPolicy", policy, &detail));
        }
    }
    refused(causes)
}

fn too_many(spec: &Value, policy: &str) -> Vec<Cause> {
    let several = [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")]
        .into_iter()
        .filter(|(field, _)| policy == SINGLE && items(spec, field).len() == MOST);
    several
        .map(|(_, what)| {
            let detail =
                format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            Cause::invalid("spec.ipFamilyPolicy", policy, &detail)
        })
        .collect()
}

/// Families that are not said are those of the addresses that are.
fn infer(spec: &mut Value, headless: bool, cluster: &[&'static str]) -> Result<(), Vec<Cause>> {
    let (mut families, ips) = (strings(spec, "ipFamilies"), strings(spec, "clusterIPs"));
    let mut causes = Vec::new();
    for (i, ip) in ips.iter().enumerate().skip(families.len()).filter(|_| !headless) {
        match ip.parse().map(of) {
            Ok(family) if cluster.contains(&family) => families.push(family.to_owned()),
            Ok(family) => {
                let detail = format!("{family} is not configured on this cluster");
                causes.push(Cause::invalid(format!("spec.clusterIPs[{i}]"), json!(ips), &detail));
            }
            // Validation says what is wrong with it.
            Err(_) => {}
        }
    }
    if !families.is_empty() {
        set(spec, "ipFamilies", json!(families));
    }
    refused(causes)
}

fn missing(policy: &str, families: &[String], cluster: &[&'static str]) -> Vec<Cause> {
    let mut causes = Vec::new();
    if policy == REQUIRE && cluster.len() < MOST {
        let detail = "this cluster is not configured for dual-stack services";
        causes.push(Cause::invalid("spec.ipFamilyPolicy", policy, detail));
    }
    let strange = families.iter().enumerate().filter(|(_, family)| !cluster.contains(&family.as_str()));
    causes.extend(strange.map(|(i, family)| {
        Cause::invalid(format!("spec.ipFamilies[{i}]"), family.as_str(), "not configured on this cluster")
    }));
    causes
}

/// Families and addresses stay once they are given; a second one may come and go.
pub fn unchanged(new: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for field in ["clusterIPs", "ipFamilies"] {
        for (i, (is, was)) in items(new, field).iter().zip(items(old, field)).enumerate() {
            if is != was && !is_unset(was) {
                let detail = "may not change once set";
                causes.push(Cause::invalid(format!("spec.{field}[{i}]"), new[field].clone(), detail));
            }
        }
    }
    causes
}
