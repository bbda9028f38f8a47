//! The definitions of the kinds of `groupsnapshot.storage.k8s.io`, for a cluster that has none.

use serde_json::{Value, json};

use super::kinds::GROUP;
use crate::snapshot::definitions::{definition_in, error, object, text};

/// The versions, of which the second is the first by another name.
const VERSIONS: [&str; 2] = ["v1", "v1beta2"];

/// The definitions of VolumeGroupSnapshot, VolumeGroupSnapshotContent and VolumeGroupSnapshotClass.
#[must_use]
pub fn definitions() -> [Value; 3] {
    [group(), content(), class()]
}

/// `schema`, which stays as it is once it is set.
fn fixed(mut schema: Value, field: &str) -> Value {
    schema["x-kubernetes-validations"] =
        json!([{"rule": "self == oldSelf", "message": format!("{field} is immutable once set")}]);
    schema
}

/// One of two fields, which then stays as it is.
fn one_of(about: &str, [(a, first), (b, second)]: [(&str, Value); 2]) -> Value {
    let stays = |field: &str| {
        json!({"rule": format!("!has(oldSelf.{field}) || has(self.{field})"),
            "message": format!("{field} is required once set")})
    };
    json!({"type": "object", "description": about, "properties": {a: fixed(first, a), b: fixed(second, b)},
        "x-kubernetes-validations": [stays(a), stays(b),
            {"rule": format!("(has(self.{a}) && !has(self.{b})) || (!has(self.{a}) && has(self.{b}))"),
                "message": format!("exactly one of {a} and {b} must be set")}]})
}

fn strings(about: &str) -> Value {
    json!({"type": "array", "description": about, "items": {"type": "string"}})
}

fn time(about: &str) -> Value {
    json!({"type": "string", "format": "date-time", "description": about})
}

fn selector() -> Value {
    json!({"type": "object", "description": "Claims of the same namespace, by their labels.",
        "x-kubernetes-map-type": "atomic", "properties": {
            "matchLabels": {"type": "object", "additionalProperties": {"type": "string"},
                "description": "Labels that they have."},
            "matchExpressions": {"type": "array", "x-kubernetes-list-type": "atomic",
                "description": "What must be true of their labels.",
                "items": {"type": "object", "required": ["key", "operator"], "properties": {
                    "key": text("The label."), "operator": text("In, NotIn, Exists or DoesNotExist."),
                    "values": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"},
                        "description": "For In and NotIn."}}}}}})
}

fn group() -> Value {
    let spec = json!({"type": "object", "required": ["source"], "description": "What is asked for.", "properties": {
        "source": one_of("Of what.", [
            ("selector", selector()),
            ("volumeGroupSnapshotContentName", text("A content that is there already.")),
        ]),
        "volumeGroupSnapshotClassName": {"type": "string",
            "description": "The class; the driver's default one if it is not said.",
            "x-kubernetes-validations": [{"rule": "size(self) > 0",
                "message": "volumeGroupSnapshotClassName must not be the empty string when set"}]}}});
    let bound = text("The content that this is bound to.");
    let status = json!({"type": "object", "description": "What is there.", "properties": {
        "boundVolumeGroupSnapshotContentName": fixed(bound, "boundVolumeGroupSnapshotContentName"),
        "creationTime": time("When it was taken."),
        "readyToUse": {"type": "boolean", "description": "Whether volumes can be made of all its members."},
        "error": error()}});
    let schema = object(
        "Copies of the volumes of several claims at one moment.",
        &json!({"spec": spec, "status": status}),
        &["spec"],
    );
    let columns = json!([
        {"name": "ReadyToUse", "type": "boolean", "jsonPath": ".status.readyToUse"},
        {"name": "VolumeGroupSnapshotClass", "type": "string", "jsonPath": ".spec.volumeGroupSnapshotClassName"},
        {"name": "VolumeGroupSnapshotContent", "type": "string",
            "jsonPath": ".status.boundVolumeGroupSnapshotContentName"},
        {"name": "CreationTime", "type": "date", "jsonPath": ".status.creationTime"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]);
    let names = ("VolumeGroupSnapshot", "volumegroupsnapshots", "volumegroupsnapshot");
    definition_in(GROUP, &VERSIONS, names, &["vgs"], "Namespaced", &schema, &columns)
}

fn reference() -> Value {
    json!({"type": "object", "description": "The group that this is for.", "x-kubernetes-map-type": "atomic",
        "properties": {
            "apiVersion": text("Its group and version."), "kind": text("VolumeGroupSnapshot."),
            "name": text("Its name."), "namespace": text("Its namespace."),
            "uid": text("Its uid, once both are bound."), "resourceVersion": text("Which state of it."),
            "fieldPath": text("A part of it.")},
        "x-kubernetes-validations": [{"rule": "has(self.name) && has(self.__namespace__)",
            "message": "both volumeGroupSnapshotRef.name and volumeGroupSnapshotRef.namespace must be set"}]})
}

fn content() -> Value {
    let handles = json!({"type": "object", "description": "Snapshots that are there.",
        "required": ["volumeGroupSnapshotHandle", "volumeSnapshotHandles"], "properties": {
            "volumeGroupSnapshotHandle": text("The driver's handle of the group."),
            "volumeSnapshotHandles": strings("The driver's handles of its members.")}});
    let class = "volumeGroupSnapshotClassName";
    let spec = json!({"type": "object", "description": "Whose, of what.",
        "required": ["deletionPolicy", "driver", "source", "volumeGroupSnapshotRef"], "properties": {
            "deletionPolicy": {"type": "string", "enum": ["Delete", "Retain"],
                "description": "Whether the driver's snapshots go with this."},
            "driver": fixed(text("The driver."), "driver"),
            "source": one_of("Of what.", [
                ("volumeHandles", strings("The driver's handles of the volumes to copy.")),
                ("groupSnapshotHandles", handles),
            ]),
            class: fixed(text("Its class."), class),
            "volumeGroupSnapshotRef": reference()}});
    let whole = |about: &str| json!({"type": "integer", "format": "int64", "description": about});
    let member = json!({"type": "object", "properties": {
        "volumeHandle": text("The driver's handle of the volume."),
        "snapshotHandle": text("The driver's handle of the snapshot."),
        "creationTime": whole("When it was taken, nanoseconds since 1970."),
        "readyToUse": {"type": "boolean", "description": "Whether volumes can be made of it."},
        "restoreSize": whole("The least size of a volume made of it, bytes.")}});
    let handle = text("Its handle.");
    let status = json!({"type": "object", "description": "What the driver says.", "properties": {
        "volumeGroupSnapshotHandle": fixed(handle, "volumeGroupSnapshotHandle"),
        "creationTime": time("When it was taken."),
        "readyToUse": {"type": "boolean", "description": "Whether volumes can be made of all its members."},
        "error": error(),
        "volumeSnapshotInfoList": {"type": "array", "description": "Its members.", "items": member}}});
    let schema = object(
        "Snapshots of one moment at their driver.",
        &json!({"spec": spec, "status": status}),
        &["spec"],
    );
    let columns = json!([
        {"name": "ReadyToUse", "type": "boolean", "jsonPath": ".status.readyToUse"},
        {"name": "DeletionPolicy", "type": "string", "jsonPath": ".spec.deletionPolicy"},
        {"name": "Driver", "type": "string", "jsonPath": ".spec.driver"},
        {"name": "VolumeGroupSnapshotClass", "type": "string", "jsonPath": ".spec.volumeGroupSnapshotClassName"},
        {"name": "VolumeGroupSnapshotNamespace", "type": "string",
            "jsonPath": ".spec.volumeGroupSnapshotRef.namespace"},
        {"name": "VolumeGroupSnapshot", "type": "string", "jsonPath": ".spec.volumeGroupSnapshotRef.name"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]);
    let names = ("VolumeGroupSnapshotContent", "volumegroupsnapshotcontents", "volumegroupsnapshotcontent");
    definition_in(GROUP, &VERSIONS, names, &["vgsc", "vgscs"], "Cluster", &schema, &columns)
}

fn class() -> Value {
    let policy = json!({"type": "string", "enum": ["Delete", "Retain"],
        "description": "Whether a driver's snapshots go with their object."});
    let parameters = json!({"type": "object", "additionalProperties": {"type": "string"},
        "description": "What the driver is told."});
    let properties = json!({
        "driver": fixed(text("The driver."), "driver"),
        "deletionPolicy": fixed(policy, "deletionPolicy"),
        "parameters": fixed(parameters, "parameters")});
    let schema =
        object("How groups of snapshots of a driver are taken.", &properties, &["deletionPolicy", "driver"]);
    let columns = json!([
        {"name": "Driver", "type": "string", "jsonPath": ".driver"},
        {"name": "DeletionPolicy", "type": "string", "jsonPath": ".deletionPolicy"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]);
    let names = ("VolumeGroupSnapshotClass", "volumegroupsnapshotclasses", "volumegroupsnapshotclass");
    definition_in(GROUP, &VERSIONS, names, &["vgsclass", "vgsclasses"], "Cluster", &schema, &columns)
}
