//! The level of what is good practice: not root, nothing that is not needed.

use serde_json::Value;

use super::baseline::{added, has_own_users};
use super::finding::{Check, Finding, distinct, named, plural, quoted, setters, those};
use crate::registry::text;

/// Volumes that may be used.
const VOLUMES: [&str; 8] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
const IMAGE_VOLUME: &str = "image";

/// What it has against a Pod beyond the baseline.
pub fn check(pod: &Value) -> Vec<Finding> {
    // Windows knows neither privileges nor capabilities.
    let windows = pod["spec"]["os"]["name"] == "windows";
    let checks: [(bool, Check); 6] = [
        (!windows, escalation),
        (!windows, capabilities),
        (true, volumes),
        (true, non_root),
        (true, user),
        (!windows, seccomp),
    ];
    checks.into_iter().filter(|(wanted, _)| *wanted).filter_map(|(_, check)| check(pod)).collect()
}

fn context(container: &Value) -> &Value {
    &container["securityContext"]
}

fn escalation(pod: &Value) -> Option<Finding> {
    let who = those(pod, |c| context(c)["allowPrivilegeEscalation"] != false);
    (!who.is_empty()).then(|| Finding {
        reason: "allowPrivilegeEscalation != false",
        detail: format!(
            "{} must set securityContext.allowPrivilegeEscalation=false",
            named("container", &who)
        ),
    })
}

fn capabilities(pod: &Value) -> Option<Finding> {
    let drops_all = |c: &Value| {
        context(c)["capabilities"]["drop"].as_array().is_some_and(|l| l.iter().any(|d| d == "ALL"))
    };
    let allowed = ["NET_BIND_SERVICE"];
    let keeping = those(pod, |c| !drops_all(c));
    let adding = those(pod, |c| !added(c, &allowed).is_empty());
    let mut parts = Vec::new();
    if !keeping.is_empty() {
        parts.push(format!(
            "{} must set securityContext.capabilities.drop=[\"ALL\"]",
            named("container", &keeping)
        ));
    }
    if !adding.is_empty() {
        let what = super::finding::containers(pod).flat_map(|c| added(c, &allowed)).collect();
        parts.push(format!(
            "{} must not include {} in securityContext.capabilities.add",
            named("container", &adding),
            quoted(&distinct(what))
        ));
    }
    (!parts.is_empty()).then(|| Finding { reason: "unrestricted capabilities", detail: parts.join("; ") })
}

fn volumes(pod: &Value) -> Option<Finding> {
    let kind = |volume: &Value| -> Option<String> {
        let mut fields = volume.as_object()?.iter().filter(|(k, v)| *k != "name" && !v.is_null());
        fields.find(|(k, _)| !VOLUMES.contains(&k.as_str()) && *k != IMAGE_VOLUME).map(|(k, _)| k.clone())
    };
    let bad: Vec<(String, String)> = pod["spec"]["volumes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|v| Some((text(&v["name"]).to_owned(), kind(v)?)))
        .collect();
    let names: Vec<String> = bad.iter().map(|(name, _)| name.clone()).collect();
    let kinds = distinct(bad.into_iter().map(|(_, kind)| kind).collect());
    (!names.is_empty()).then(|| Finding {
        reason: "restricted volume types",
        detail: format!(
            "{} {} {} {}",
            named("volume", &names),
            if names.len() == 1 { "uses" } else { "use" },
            plural("restricted volume type", kinds.len()),
            quoted(&kinds)
        ),
    })
}

fn non_root(pod: &Value) -> Option<Finding> {
    if has_own_users(pod) {
        return None;
    }
    let of_pod = &pod["spec"]["securityContext"]["runAsNonRoot"];
    let reason = "runAsNonRoot != true";
    let explicit = those(pod, |c| context(c)["runAsNonRoot"] == false);
    if let Some(who) = setters(*of_pod == false, &explicit) {
        return Some(Finding {
            reason,
            detail: format!("{who} must not set securityContext.runAsNonRoot=false"),
        });
    }
    let silent = those(pod, |c| context(c)["runAsNonRoot"].is_null() && *of_pod != true);
    (!silent.is_empty()).then(|| Finding {
        reason,
        detail: format!("pod or {} must set securityContext.runAsNonRoot=true", named("container", &silent)),
    })
}

fn user(pod: &Value) -> Option<Finding> {
    if has_own_users(pod) {
        return None;
    }
    let of_pod = pod["spec"]["securityContext"]["runAsUser"] == 0;
    let who = setters(of_pod, &those(pod, |c| context(c)["runAsUser"] == 0))?;
    Some(Finding { reason: "runAsUser=0", detail: format!("{who} must not set runAsUser=0") })
}

fn seccomp(pod: &Value) -> Option<Finding> {
    let profile = |context: &Value| context["seccompProfile"]["type"].as_str().map(str::to_owned);
    let good = |p: &str| matches!(p, "RuntimeDefault" | "Localhost");
    let bad = |context: &Value| profile(context).is_some_and(|p| !good(&p));
    let of_pod = &pod["spec"]["securityContext"];
    if let Some(who) = setters(bad(of_pod), &those(pod, |c| bad(context(c)))) {
        let contexts = super::finding::containers(pod).map(context).chain([of_pod]);
        let values = distinct(contexts.filter(|c| bad(c)).filter_map(profile).collect());
        let detail = format!("{who} must not set securityContext.seccompProfile.type to {}", quoted(&values));
        return Some(Finding { reason: "seccompProfile", detail });
    }
    let silent = those(pod, |c| profile(context(c)).is_none() && profile(of_pod).is_none());
    (!silent.is_empty()).then(|| Finding {
        reason: "seccompProfile",
        detail: format!(
            "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
            named("container", &silent)
        ),
    })
}
