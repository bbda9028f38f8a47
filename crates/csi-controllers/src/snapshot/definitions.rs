//! The definitions of the kinds of `snapshot.storage.k8s.io`, for a cluster that has none.

use serde_json::{Value, json};

use super::kinds::{GROUP, VERSION};

/// The definitions of VolumeSnapshot, VolumeSnapshotContent and VolumeSnapshotClass.
#[must_use]
pub fn definitions() -> [Value; 3] {
    [snapshot(), content(), class()]
}

pub(crate) fn text(about: &str) -> Value {
    json!({"type": "string", "description": about})
}

pub(crate) fn error() -> Value {
    json!({"type": "object", "description": "Why it is not ready.", "properties": {
        "time": {"type": "string", "format": "date-time", "description": "When it was so."},
        "message": text("Why.")}})
}

fn definition(
    names: (&str, &str, &str),
    short: &[&str],
    scope: &str,
    schema: &Value,
    columns: &Value,
) -> Value {
    definition_in(GROUP, &[VERSION], names, short, scope, schema, columns)
}

/// The definition of a kind of `group`, in versions that differ by name alone; the first is stored.
pub(crate) fn definition_in(
    group: &str,
    versions: &[&str],
    (kind, plural, singular): (&str, &str, &str),
    short: &[&str],
    scope: &str,
    schema: &Value,
    columns: &Value,
) -> Value {
    let status = schema["properties"].get("status").is_some();
    let version = |name: &&str| {
        let mut version = json!({
            "name": name, "served": true, "storage": *name == versions[0],
            "schema": {"openAPIV3Schema": schema}, "additionalPrinterColumns": columns,
        });
        if status {
            version["subresources"] = json!({"status": {}});
        }
        version
    };
    let versions: Vec<Value> = versions.iter().map(version).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{group}"),
            // Names in this group are the community's: whoever defines them says where that was agreed.
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-csi/external-snapshotter/pull/814"},
        },
        "spec": {
            "group": group, "scope": scope, "versions": versions,
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular,
                "shortNames": short},
        },
    })
}

pub(crate) fn object(about: &str, properties: &Value, required: &[&str]) -> Value {
    let mut properties = properties.clone();
    for (key, kind) in [("apiVersion", "string"), ("kind", "string"), ("metadata", "object")] {
        properties[key] = json!({"type": kind});
    }
    json!({"type": "object", "description": about, "properties": properties, "required": required})
}

/// One of two fields, which then stays as it is.
fn source(about: &str, [first, second]: [(&str, &str); 2]) -> Value {
    let (a, b) = (first.0, second.0);
    let stays = |field: &str| {
        json!({"rule": format!("!has(oldSelf.{field}) || has(self.{field})"),
            "message": format!("{field} is required once set")})
    };
    let fixed = |about: &str| {
        json!({"type": "string", "description": about,
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "the field is immutable"}]})
    };
    json!({"type": "object", "description": about,
        "properties": {a: fixed(first.1), b: fixed(second.1)},
        "x-kubernetes-validations": [stays(a), stays(b),
            {"rule": format!("(has(self.{a}) && !has(self.{b})) || (!has(self.{a}) && has(self.{b}))"),
                "message": format!("exactly one of {a} and {b} must be set")}]})
}

fn snapshot() -> Value {
    let spec = json!({"type": "object", "required": ["source"], "description": "What is asked for.", "properties": {
        "source": source("Of what.", [
            ("persistentVolumeClaimName", "A claim of the same namespace, whose volume is copied."),
            ("volumeSnapshotContentName", "A content that is there already."),
        ]),
        "volumeSnapshotClassName": {"type": "string", "description": "The class; the driver's default one if it is not said.",
            "x-kubernetes-validations": [{"rule": "size(self) > 0", "message": "must not be the empty string when set"}]}}});
    let status = json!({"type": "object", "description": "What is there.", "properties": {
        "boundVolumeSnapshotContentName": text("The content that this is bound to."),
        "creationTime": {"type": "string", "format": "date-time", "description": "When it was taken."},
        "readyToUse": {"type": "boolean", "description": "Whether volumes can be made of it."},
        "restoreSize": {"description": "The least size of a volume that is made of it.", "x-kubernetes-int-or-string": true,
            "anyOf": [{"type": "integer"}, {"type": "string"}]},
        "volumeGroupSnapshotName": text("The group that it was taken in."),
        "error": error()}});
    let schema = object(
        "A copy of a claim's volume at one moment.",
        &json!({"spec": spec, "status": status}),
        &["spec"],
    );
    let columns = json!([
        {"name": "ReadyToUse", "type": "boolean", "jsonPath": ".status.readyToUse"},
        {"name": "SourcePVC", "type": "string", "jsonPath": ".spec.source.persistentVolumeClaimName"},
        {"name": "SourceSnapshotContent", "type": "string", "jsonPath": ".spec.source.volumeSnapshotContentName"},
        {"name": "RestoreSize", "type": "string", "jsonPath": ".status.restoreSize"},
        {"name": "SnapshotClass", "type": "string", "jsonPath": ".spec.volumeSnapshotClassName"},
        {"name": "SnapshotContent", "type": "string", "jsonPath": ".status.boundVolumeSnapshotContentName"},
        {"name": "CreationTime", "type": "date", "jsonPath": ".status.creationTime"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]);
    definition(
        ("VolumeSnapshot", "volumesnapshots", "volumesnapshot"),
        &["vs"],
        "Namespaced",
        &schema,
        &columns,
    )
}

fn content() -> Value {
    let reference = json!({"type": "object", "description": "The snapshot that this is for.", "x-kubernetes-map-type": "atomic",
        "properties": {
            "apiVersion": text("Its group and version."), "kind": text("VolumeSnapshot."), "name": text("Its name."),
            "namespace": text("Its namespace."), "uid": text("Its uid, once both are bound."),
            "resourceVersion": text("Which state of it."), "fieldPath": text("A part of it.")},
        "x-kubernetes-validations": [
            {"rule": "has(self.name) && has(self.__namespace__)", "message": "name and namespace must be set"}]});
    let spec = json!({"type": "object", "required": ["deletionPolicy", "driver", "source", "volumeSnapshotRef"],
        "description": "Whose, of what.", "properties": {
            "deletionPolicy": {"type": "string", "enum": ["Delete", "Retain"],
                "description": "Whether the driver's snapshot goes with this."},
            "driver": text("The driver."),
            "source": source("Of what.", [
                ("volumeHandle", "The driver's handle of the volume to copy."),
                ("snapshotHandle", "The driver's handle of a snapshot that is there."),
            ]),
            "sourceVolumeMode": {"type": "string", "description": "The mode of the volume that it is taken of.",
                "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "sourceVolumeMode is immutable"}]},
            "volumeSnapshotClassName": text("Its class."),
            "volumeSnapshotRef": reference}});
    let status = json!({"type": "object", "description": "What the driver says.", "properties": {
        "snapshotHandle": text("Its handle."),
        "creationTime": {"type": "integer", "format": "int64", "description": "When it was taken, nanoseconds since 1970."},
        "restoreSize": {"type": "integer", "format": "int64", "minimum": 0,
            "description": "The least size of a volume made of it, bytes."},
        "readyToUse": {"type": "boolean", "description": "Whether volumes can be made of it."},
        "volumeGroupSnapshotHandle": text("The driver's handle of the group that it was taken in."),
        "error": error()}});
    let schema = object("A snapshot at its driver.", &json!({"spec": spec, "status": status}), &["spec"]);
    let columns = json!([
        {"name": "ReadyToUse", "type": "boolean", "jsonPath": ".status.readyToUse"},
        {"name": "RestoreSize", "type": "integer", "jsonPath": ".status.restoreSize"},
        {"name": "DeletionPolicy", "type": "string", "jsonPath": ".spec.deletionPolicy"},
        {"name": "Driver", "type": "string", "jsonPath": ".spec.driver"},
        {"name": "VolumeSnapshotClass", "type": "string", "jsonPath": ".spec.volumeSnapshotClassName"},
        {"name": "VolumeSnapshot", "type": "string", "jsonPath": ".spec.volumeSnapshotRef.name"},
        {"name": "VolumeSnapshotNamespace", "type": "string", "jsonPath": ".spec.volumeSnapshotRef.namespace"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]);
    let names = ("VolumeSnapshotContent", "volumesnapshotcontents", "volumesnapshotcontent");
    definition(names, &["vsc", "vscs"], "Cluster", &schema, &columns)
}

fn class() -> Value {
    let properties = json!({
        "driver": text("The driver."),
        "deletionPolicy": {"type": "string", "enum": ["Delete", "Retain"],
            "description": "Whether a driver's snapshot goes with its object."},
        "parameters": {"type": "object", "additionalProperties": {"type": "string"},
            "description": "What the driver is told."}});
    let schema = object("How snapshots of a driver are taken.", &properties, &["deletionPolicy", "driver"]);
    let columns = json!([
        {"name": "Driver", "type": "string", "jsonPath": ".driver"},
        {"name": "DeletionPolicy", "type": "string", "jsonPath": ".deletionPolicy"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]);
    let names = ("VolumeSnapshotClass", "volumesnapshotclasses", "volumesnapshotclass");
    definition(names, &["vsclass", "vsclasses"], "Cluster", &schema, &columns)
}
