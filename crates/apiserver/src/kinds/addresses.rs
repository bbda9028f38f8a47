//! Addresses of Services as objects: IPAddresses, and the ServiceCIDRs that they are taken from.

use super::columns::{age, name, or_none};
use super::fields::{items, set, text};
use super::hooks::metadata_fields;
use super::network_policy::Range;
use super::{Cause, Causes, Column, Cx, Hooks, Invalid};
use serde_json::{Value, json};
use std::net::IpAddr;
use trine_objects::names;

/// The hooks of IPAddresses.
pub struct Addresses;

impl Hooks for Addresses {
    fn name(&self, name: &str) -> names::Checked {
        match name.parse::<IpAddr>() {
            Ok(ip) if ip.to_string() == name => Ok(()),
            Ok(ip) => Err(vec![format!("must be in canonical form (\"{ip}\")")]),
            Err(_) => Err(vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()]),
        }
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        let parent = &obj["spec"]["parentRef"];
        if parent.is_null() {
            causes.add(Cause::required("spec.parentRef", ""));
        } else {
            causes.needed(parent, "resource", "spec.parentRef");
            causes.needed(parent, "name", "spec.parentRef");
        }
        if old.is_some_and(|old| old["spec"]["parentRef"] != *parent) {
            causes.add(Cause::invalid("spec.parentRef", parent.clone(), "field is immutable"));
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::text("ParentRef"), Column::AGE] }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let parent = &obj["spec"]["parentRef"];
        let mut shown = text(parent, "resource").to_lowercase();
        for (sign, field) in [(".", "group"), ("/", "namespace"), ("/", "name")] {
            if !text(parent, field).is_empty() {
                shown += &format!("{sign}{}", text(parent, field));
            }
        }
        vec![name(obj), or_none(&shown), age(obj, now_unix)]
    }

    fn fields(&self, obj: &Value) -> Vec<(String, String)> {
        metadata_fields(obj)
    }
}

/// The hooks of ServiceCIDRs.
pub struct Cidrs;

impl Hooks for Cidrs {
    fn prepare_create(&self, obj: &mut Value, _cx: &mut Cx) -> Result<(), Invalid> {
        set(obj, "status", json!({}));
        Ok(())
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        let cidrs = items(&obj["spec"], "cidrs");
        match cidrs {
            [] => causes.add(Cause::required("spec.cidrs", "at least one CIDR required")),
            [_, _, _, ..] => {
                let detail = "may only hold up to 2 values";
                causes.add(Cause::invalid("spec", obj["spec"].clone(), detail));
            }
            [a, b] if text_of(a).contains(':') == text_of(b).contains(':') => {
                let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
                causes.add(Cause::invalid("spec.cidrs", json!(cidrs), detail));
            }
            _ => {}
        }
        for (i, cidr) in cidrs.iter().enumerate() {
            if Range::parse(text_of(cidr)).is_none() {
                let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
                causes.add(Cause::invalid(format!("spec.cidrs[{i}]"), cidr.clone(), detail));
            }
        }
        if old.is_some_and(|old| old["spec"]["cidrs"] != obj["spec"]["cidrs"]) {
            causes.add(Cause::invalid("spec.cidrs", json!(cidrs), "field is immutable"));
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::text("CIDRs"), Column::AGE] }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let cidrs: Vec<&str> = items(&obj["spec"], "cidrs").iter().map(text_of).collect();
        vec![name(obj), cidrs.join(",").into(), age(obj, now_unix)]
    }
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
