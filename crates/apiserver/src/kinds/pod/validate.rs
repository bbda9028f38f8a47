//! What a Pod's spec may not be.

use super::{container, scheduling, sysctls, volume};
use crate::kinds::fields::{entries, is_unset, items, text};
use crate::kinds::metadata::labels;
use crate::kinds::{Cause, Causes};
use serde_json::Value;
use trine_objects::names;

/// The largest user or group id, and the longest active deadline in seconds.
pub const INT32_MAX: i64 = i32::MAX as i64;

/// Everything wrong with a Pod's spec at `path`.
pub fn spec(spec: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Causes::default();
    let volumes = volume::all(spec, path, &mut causes);
    container::all(spec, path, &volumes, &mut causes);
    causes.one_of(spec, "restartPolicy", path, &["Always", "OnFailure", "Never"]);
    dns(spec, path, &mut causes);
    causes.range(spec, "activeDeadlineSeconds", path, 1, INT32_MAX);
    causes.not_negative(spec, "terminationGracePeriodSeconds", path);
    causes.extend(labels(spec, "nodeSelector", &format!("{path}.nodeSelector")));
    for (key, check) in [
        ("nodeName", names::dns1123_subdomain as fn(&str) -> names::Checked),
        ("hostname", names::dns1123_label),
        ("subdomain", names::dns1123_label),
        ("serviceAccountName", names::dns1123_subdomain),
        ("priorityClassName", names::dns1123_subdomain),
        ("runtimeClassName", names::dns1123_subdomain),
    ] {
        if !is_unset(&spec[key]) {
            causes.name(&format!("{path}.{key}"), text(spec, key), check);
        }
    }
    security(&spec["securityContext"], &format!("{path}.securityContext"), &mut causes);
    sysctls::all(spec, path, &mut causes);
    scheduling::tolerations(spec, path, &mut causes);
    scheduling::affinity(&spec["affinity"], &format!("{path}.affinity"), &mut causes);
    scheduling::spread(spec, path, &mut causes);
    for (i, gate) in items(spec, "schedulingGates").iter().enumerate() {
        causes.needed_name(
            &format!("{path}.schedulingGates[{i}].name"),
            text(gate, "name"),
            names::qualified_name,
        );
    }
    for (i, alias) in items(spec, "hostAliases").iter().enumerate() {
        if text(alias, "ip").parse::<std::net::IpAddr>().is_err() {
            let field = format!("{path}.hostAliases[{i}].ip");
            causes.add(Cause::invalid(
                field,
                text(alias, "ip"),
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ));
        }
    }
    causes.0
}

/// What is wrong only in a new Pod.
pub fn create(spec: &Value) -> Vec<Cause> {
    let mut causes = Causes::default();
    if !items(spec, "ephemeralContainers").is_empty() {
        causes.add(Cause::forbidden("spec.ephemeralContainers", "cannot be set on create"));
    }
    if !is_unset(&spec["nodeName"]) && !items(spec, "schedulingGates").is_empty() {
        causes.add(Cause::forbidden(
            "spec.nodeName",
            "cannot be set until all schedulingGates have been cleared",
        ));
    }
    causes.0
}

fn dns(spec: &Value, path: &str, causes: &mut Causes) {
    causes.one_of(spec, "dnsPolicy", path, &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]);
    let servers = items(&spec["dnsConfig"], "nameservers");
    if text(spec, "dnsPolicy") == "None" && servers.is_empty() {
        let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        causes.add(Cause::required(format!("{path}.dnsConfig.nameservers"), detail));
    }
    for (i, server) in servers.iter().enumerate() {
        let server = server.as_str().unwrap_or_default();
        if server.parse::<std::net::IpAddr>().is_err() {
            let field = format!("{path}.dnsConfig.nameservers[{i}]");
            causes.add(Cause::invalid(
                field,
                server,
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ));
        }
    }
}

/// A security context, of a Pod or a container.
pub fn security(context: &Value, path: &str, causes: &mut Causes) {
    for key in ["runAsUser", "runAsGroup", "fsGroup"] {
        causes.range(context, key, path, 0, INT32_MAX);
    }
    for (i, group) in items(context, "supplementalGroups").iter().enumerate() {
        if group.as_i64().is_some_and(|g| !(0..=INT32_MAX).contains(&g)) {
            let field = format!("{path}.supplementalGroups[{i}]");
            causes.add(Cause::invalid(
                field,
                group.clone(),
                &format!("must be between 0 and {INT32_MAX}, inclusive"),
            ));
        }
    }
    causes.one_of(context, "fsGroupChangePolicy", path, &["OnRootMismatch", "Always"]);
    causes.one_of(context, "procMount", path, &["Default", "Unmasked"]);
    let seccomp = &context["seccompProfile"];
    if seccomp.is_object() {
        let path = format!("{path}.seccompProfile");
        causes.needed(seccomp, "type", &path);
        causes.one_of(seccomp, "type", &path, &["Localhost", "RuntimeDefault", "Unconfined"]);
        if text(seccomp, "type") == "Localhost" && is_unset(&seccomp["localhostProfile"]) {
            causes.add(Cause::required(
                format!("{path}.localhostProfile"),
                "must be set when seccomp type is Localhost",
            ));
        }
        volume::inner_path(seccomp, "localhostProfile", &path, false, causes);
    }
    if context["privileged"] == true && context["allowPrivilegeEscalation"] == false {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        causes.add(Cause::invalid(path, context.clone(), detail));
    }
}

/// Requests and limits at `path`.
pub fn resources(resources: &Value, path: &str, causes: &mut Causes) {
    use trine_objects::quantity::from_value;
    for kind in ["limits", "requests"] {
        for (name, amount) in entries(resources, kind) {
            let field = format!("{path}.{kind}[{name}]");
            resource_name(name, &field, causes);
            let Ok(quantity) = from_value(amount) else { continue };
            if quantity.is_negative() {
                causes.add(Cause::invalid(&*field, amount.clone(), "must be greater than or equal to 0"));
            }
            if name.contains('/') && quantity.nano() % 1_000_000_000 != 0 {
                causes.add(Cause::invalid(field, amount.clone(), "must be an integer"));
            }
        }
    }
    for (name, request) in entries(resources, "requests") {
        let limit = &resources["limits"][name];
        let (Ok(asked), Ok(most)) = (from_value(request), from_value(limit)) else {
            if name.contains('/') {
                causes.add(Cause::required(
                    format!("{path}.limits"),
                    "Limit must be set for non overcommitable resources",
                ));
            }
            continue;
        };
        if name.contains('/') && asked != most {
            let detail = format!("must be equal to {name} limit of {most}");
            causes.add(Cause::invalid(format!("{path}.requests"), request.clone(), &detail));
        } else if asked > most {
            let detail = format!("must be less than or equal to {name} limit of {most}");
            causes.add(Cause::invalid(format!("{path}.requests"), request.clone(), &detail));
        }
    }
}

fn resource_name(name: &str, field: &str, causes: &mut Causes) {
    causes.name(field, name, names::qualified_name);
    let standard = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    if !name.contains('/') && !standard {
        causes.add(Cause::invalid(field, name, "must be a standard resource for containers"));
    }
}
