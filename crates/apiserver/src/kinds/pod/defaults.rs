//! What a Pod's author may leave open.

use crate::kinds::fields::{child, default, is_unset, items_mut, set, text};
use serde_json::{Value, json};

/// Permissions of files from ConfigMaps, Secrets and the like: 0644.
const FILE_MODE: i64 = 0o644;
/// Seconds between the asking and the killing of a container.
const GRACE_SECONDS: i64 = 30;

/// Fills a Pod's `spec`, or that of a template.
pub fn spec(spec: &mut Value) {
    default(spec, "dnsPolicy", "ClusterFirst");
    default(spec, "restartPolicy", "Always");
    default(spec, "securityContext", json!({}));
    default(spec, "terminationGracePeriodSeconds", GRACE_SECONDS);
    default(spec, "schedulerName", "default-scheduler");
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        items_mut(spec, list).for_each(container);
    }
    items_mut(spec, "volumes").for_each(volume);
    account(spec);
}

/// The account stands under both its names.
fn account(spec: &mut Value) {
    if is_unset(&spec["serviceAccountName"]) && !is_unset(&spec["serviceAccount"]) {
        let name = spec["serviceAccount"].clone();
        set(spec, "serviceAccountName", name);
    }
    if !is_unset(&spec["serviceAccountName"]) {
        let name = spec["serviceAccountName"].clone();
        set(spec, "serviceAccount", name);
    }
}

/// Fills a container.
pub fn container(container: &mut Value) {
    let policy = pull_policy(text(container, "image"));
    default(container, "imagePullPolicy", policy);
    default(container, "terminationMessagePath", "/dev/termination-log");
    default(container, "terminationMessagePolicy", "File");
    default(container, "resources", json!({}));
    items_mut(container, "ports").for_each(|port| default(port, "protocol", "TCP"));
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if container[probe].is_object() {
            self::probe(&mut container[probe]);
        }
    }
    for hook in ["postStart", "preStop"] {
        if container["lifecycle"][hook]["httpGet"].is_object() {
            http_get(&mut container["lifecycle"][hook]["httpGet"]);
        }
    }
    for variable in items_mut(container, "env") {
        env_source(variable);
    }
}

fn env_source(variable: &mut Value) {
    if variable["valueFrom"]["fieldRef"].is_object() {
        default(&mut variable["valueFrom"]["fieldRef"], "apiVersion", "v1");
    }
    if variable["valueFrom"]["resourceFieldRef"].is_object() {
        default(&mut variable["valueFrom"]["resourceFieldRef"], "divisor", "0");
    }
}

fn pull_policy(image: &str) -> &'static str {
    if pulls_always(image) { "Always" } else { "IfNotPresent" }
}

/// Whether an image is pulled each time: it has no digest, and no tag or the tag `latest`.
fn pulls_always(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let name = image.rsplit('/').next().unwrap_or_default();
    matches!(name.split_once(':'), None | Some((_, "latest")))
}

fn requests_from_limits(resources: &mut Value) {
    let Some(limits) = resources["limits"].as_object().cloned() else { return };
    if limits.is_empty() {
        return;
    }
    let requests = child(resources, "requests");
    for (name, limit) in limits {
        default(requests, &name, limit);
    }
}

fn probe(probe: &mut Value) {
    for (field, value) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        // Zero is the absence of a number here.
        if probe[field].as_i64().unwrap_or(0) == 0 {
            set(probe, field, value);
        }
    }
    if probe["httpGet"].is_object() {
        http_get(&mut probe["httpGet"]);
    }
    if probe["grpc"].is_object() && probe["grpc"]["service"].is_null() {
        set(&mut probe["grpc"], "service", "");
    }
}

fn http_get(action: &mut Value) {
    default(action, "path", "/");
    default(action, "scheme", "HTTP");
}

fn volume(volume: &mut Value) {
    let has_source = volume.as_object().is_some_and(|m| m.iter().any(|(k, v)| k != "name" && !v.is_null()));
    if !has_source {
        set(volume, "emptyDir", json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if volume[source].is_object() {
            default(&mut volume[source], "defaultMode", FILE_MODE);
        }
    }
    if volume["image"].is_object() {
        let policy = pull_policy(text(&volume["image"], "reference"));
        default(&mut volume["image"], "pullPolicy", policy);
    }
    if volume["hostPath"].is_object() && volume["hostPath"]["type"].is_null() {
        set(&mut volume["hostPath"], "type", "");
    }
    if volume["downwardAPI"].is_object() {
        items_mut(&mut volume["downwardAPI"], "items").for_each(field_item);
    }
    if volume["projected"].is_object() {
        for source in items_mut(&mut volume["projected"], "sources") {
            if source["serviceAccountToken"].is_object() {
                default(&mut source["serviceAccountToken"], "expirationSeconds", 3600);
            }
            if source["downwardAPI"].is_object() {
                items_mut(&mut source["downwardAPI"], "items").for_each(field_item);
            }
        }
    }
    if volume["ephemeral"]["volumeClaimTemplate"]["spec"].is_object() {
        default(&mut volume["ephemeral"]["volumeClaimTemplate"]["spec"], "volumeMode", "Filesystem");
    }
}

fn field_item(item: &mut Value) {
    if item["fieldRef"].is_object() {
        default(&mut item["fieldRef"], "apiVersion", "v1");
    }
    if item["resourceFieldRef"].is_object() {
        default(&mut item["resourceFieldRef"], "divisor", "0");
    }
}

/// What only a Pod is given, not a template: links to Services, requests as high as limits, the node's ports.
pub fn pod(obj: &mut Value) {
    let spec = child(obj, "spec");
    self::spec(spec);
    default(spec, "enableServiceLinks", true);
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        set(spec, "terminationGracePeriodSeconds", 1);
    }
    let host_network = spec["hostNetwork"] == true;
    for list in ["initContainers", "containers"] {
        for container in items_mut(spec, list) {
            requests_from_limits(&mut container["resources"]);
            if host_network {
                items_mut(container, "ports").for_each(host_port);
            }
        }
    }
}

fn host_port(port: &mut Value) {
    if port["hostPort"].as_i64().unwrap_or(0) == 0 {
        let number = port["containerPort"].clone();
        set(port, "hostPort", number);
    }
}
