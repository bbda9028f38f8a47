//! What a Pod's volumes may not be.

use super::projected;
use crate::kinds::fields::{is_unset, items, text};
use crate::kinds::{Cause, Causes};
use serde_json::Value;
use std::collections::HashMap;
use trine_objects::{names, quantity};

/// Checks the volumes and gives them by name.
pub fn all<'a>(spec: &'a Value, path: &str, causes: &mut Causes) -> HashMap<&'a str, &'a Value> {
    let mut by_name = HashMap::new();
    for (i, volume) in items(spec, "volumes").iter().enumerate() {
        let path = format!("{path}.volumes[{i}]");
        let name = text(volume, "name");
        causes.needed_name(&format!("{path}.name"), name, names::dns1123_label);
        if by_name.insert(name, volume).is_some() {
            causes.add(Cause::duplicate(format!("{path}.name"), name));
        }
        source(volume, &path, causes);
    }
    by_name
}

fn source(volume: &Value, path: &str, causes: &mut Causes) {
    let given = volume.as_object().into_iter().flatten().filter(|(k, v)| *k != "name" && !v.is_null());
    let sources: Vec<(&str, &Value)> = given.map(|(k, v)| (k.as_str(), v)).collect();
    let [(kind, source)] = sources.as_slice() else {
        match sources.get(1) {
            None => causes.add(Cause::required(path, "must specify a volume type")),
            Some((second, _)) => {
                causes.add(Cause::forbidden(
                    format!("{path}.{second}"),
                    "may not specify more than 1 volume type",
                ));
            }
        }
        return;
    };
    let path = format!("{path}.{kind}");
    match *kind {
        "hostPath" => host_path(source, &path, causes),
        "emptyDir" if quantity::from_value(&source["sizeLimit"]).is_ok_and(|q| q.is_negative()) => {
            let detail = "SizeLimit field must be a valid resource quantity";
            causes.add(Cause::forbidden(format!("{path}.sizeLimit"), detail));
        }
        "configMap" => {
            causes.needed(source, "name", &path);
            files(source, &path, causes);
        }
        "secret" => {
            causes.needed(source, "secretName", &path);
            files(source, &path, causes);
        }
        "persistentVolumeClaim" => causes.needed(source, "claimName", &path),
        "csi" => causes.needed(source, "driver", &path),
        "nfs" => {
            causes.needed(source, "server", &path);
            causes.needed(source, "path", &path);
        }
        "image" => causes.one_of(source, "pullPolicy", &path, &["Always", "IfNotPresent", "Never"]),
        "downwardAPI" => downward(source, &path, causes),
        "projected" => projected::all(source, &path, causes),
        "ephemeral" if !source["volumeClaimTemplate"].is_object() => {
            causes.add(Cause::required(format!("{path}.volumeClaimTemplate"), ""));
        }
        _ => {}
    }
}

fn host_path(source: &Value, path: &str, causes: &mut Causes) {
    causes.needed(source, "path", path);
    if text(source, "path").split('/').any(|step| step == "..") {
        causes.add(Cause::invalid(format!("{path}.path"), text(source, "path"), "must not contain '..'"));
    }
    let known =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    causes.one_of(source, "type", path, &known);
}

/// The mode and the listed keys of files made from data.
pub fn files(source: &Value, path: &str, causes: &mut Causes) {
    mode(source, "defaultMode", path, causes);
    for (i, item) in items(source, "items").iter().enumerate() {
        let path = format!("{path}.items[{i}]");
        causes.needed(item, "key", &path);
        inner_path(item, "path", &path, true, causes);
        mode(item, "mode", &path, causes);
    }
}

/// A file's permissions.
pub fn mode(object: &Value, key: &str, path: &str, causes: &mut Causes) {
    if let Some(mode) = object[key].as_i64()
        && !(0..=0o777).contains(&mode)
    {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        causes.add(Cause::invalid(format!("{path}.{key}"), mode, detail));
    }
}

/// A path within a volume: relative, never upwards.
pub fn inner_path(object: &Value, key: &str, path: &str, needed: bool, causes: &mut Causes) {
    let value = text(object, key);
    let field = format!("{path}.{key}");
    if value.is_empty() {
        if needed {
            causes.add(Cause::required(field, ""));
        }
    } else if value.starts_with('/') {
        causes.add(Cause::invalid(field, value, "must be a relative path"));
    } else if value.split('/').any(|step| step == "..") {
        causes.add(Cause::invalid(field, value, "must not contain '..'"));
    }
}

/// Files about the Pod itself.
pub fn downward(source: &Value, path: &str, causes: &mut Causes) {
    mode(source, "defaultMode", path, causes);
    for (i, item) in items(source, "items").iter().enumerate() {
        let path = format!("{path}.items[{i}]");
        inner_path(item, "path", &path, true, causes);
        mode(item, "mode", &path, causes);
        match (item["fieldRef"].is_object(), item["resourceFieldRef"].is_object()) {
            (true, true) => {
                causes.add(Cause::invalid(
                    path,
                    "resource",
                    "fieldRef and resourceFieldRef can not be specified simultaneously",
                ));
            }
            (false, false) => {
                causes.add(Cause::required(path, "one of fieldRef and resourceFieldRef is required"))
            }
            (true, false) => causes.needed(&item["fieldRef"], "fieldPath", &format!("{path}.fieldRef")),
            (false, true) => {
                causes.needed(&item["resourceFieldRef"], "resource", &format!("{path}.resourceFieldRef"))
            }
        }
    }
}

/// What a container mounts and which devices it sees.
pub fn uses(container: &Value, path: &str, volumes: &HashMap<&str, &Value>, causes: &mut Causes) {
    let mut seen = std::collections::HashSet::new();
    for (list, place) in [("volumeMounts", "mountPath"), ("volumeDevices", "devicePath")] {
        for (i, mount) in items(container, list).iter().enumerate() {
            let path = format!("{path}.{list}[{i}]");
            let name = text(mount, "name");
            if name.is_empty() {
                causes.add(Cause::required(format!("{path}.name"), ""));
            } else if !volumes.contains_key(name) {
                causes.add(Cause::not_found(format!("{path}.name"), name));
            }
            causes.needed(mount, place, &path);
            if !is_unset(&mount[place]) && !seen.insert(text(mount, place)) {
                causes.add(Cause::invalid(format!("{path}.{place}"), text(mount, place), "must be unique"));
            }
            if list == "volumeDevices" && volumes.get(name).is_some_and(|v| !is_claim(v)) {
                let detail =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                causes.add(Cause::invalid(format!("{path}.name"), name, detail));
            }
            inner_path(mount, "subPath", &path, false, causes);
            inner_path(mount, "subPathExpr", &path, false, causes);
            if !is_unset(&mount["subPath"]) && !is_unset(&mount["subPathExpr"]) {
                let field = format!("{path}.subPathExpr");
                causes.add(Cause::invalid(
                    field,
                    text(mount, "subPathExpr"),
                    "subPathExpr and subPath are mutually exclusive",
                ));
            }
            causes.one_of(mount, "mountPropagation", &path, &["Bidirectional", "HostToContainer", "None"]);
            if text(mount, "mountPropagation") == "Bidirectional"
                && container["securityContext"]["privileged"] != true
            {
                let detail = "Bidirectional mount propagation is available only to privileged containers";
                causes.add(Cause::forbidden(format!("{path}.mountPropagation"), detail));
            }
        }
    }
}

fn is_claim(volume: &Value) -> bool {
    volume["persistentVolumeClaim"].is_object() || volume["ephemeral"].is_object()
}
