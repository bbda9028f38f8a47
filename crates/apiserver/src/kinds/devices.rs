//! Devices that Pods claim (`resource.k8s.io`): classes and claims of them, and what drivers and administrators say.

use super::columns::{age, name};
use super::fields::{child, default, items, items_mut, set, text};
use super::hooks::metadata_fields;
use super::{Cause, Causes, Column, Cx, Hooks, Invalid, device_status};
use serde_json::{Value, json};
use trine_objects::{names, time};

/// The most requests of a claim. Source: `DeviceRequestsMaxSize`.
const REQUESTS_MAX: usize = 32;
/// The most who reserve a claim. Source: `ResourceClaimReservedForMaxSize`.
const RESERVED_MAX: usize = 256;
/// The most devices of a slice. Source: `ResourceSliceMaxDevices`.
const DEVICES_MAX: usize = 128;

/// The hooks of DeviceClasses.
pub struct Classes;

impl Hooks for Classes {
    fn validate(&self, obj: &Value, _old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        selectors(&obj["spec"], "spec", &mut causes);
        causes.0
    }
}

fn selectors(object: &Value, path: &str, causes: &mut Causes) {
    for (i, selector) in items(object, "selectors").iter().enumerate() {
        let path = format!("{path}.selectors[{i}]");
        if selector["cel"].is_object() {
            causes.needed(&selector["cel"], "expression", &format!("{path}.cel"));
        } else {
            causes.add(Cause::required(format!("{path}.cel"), ""));
        }
    }
}

fn claim_defaults(spec: &mut Value) {
    if !spec["devices"].is_object() {
        return;
    }
    for request in items_mut(&mut spec["devices"], "requests") {
        if request["exactly"].is_object() {
            count(&mut request["exactly"]);
        }
        items_mut(request, "firstAvailable").for_each(count);
    }
}

fn count(request: &mut Value) {
    default(request, "allocationMode", "ExactCount");
    if request["allocationMode"] == "ExactCount" && request["count"].as_i64().unwrap_or(0) == 0 {
        set(request, "count", 1);
    }
}

fn check_claim(spec: &Value, path: &str, causes: &mut Causes) {
    let devices = &spec["devices"];
    let requests = items(devices, "requests");
    let path = format!("{path}.devices");
    if requests.len() > REQUESTS_MAX {
        causes.add(Cause::too_many(format!("{path}.requests"), requests.len(), REQUESTS_MAX));
    }
    let mut seen = Vec::new();
    for (i, request) in requests.iter().enumerate() {
        let path = format!("{path}.requests[{i}]");
        let own = text(request, "name");
        causes.needed_name(&format!("{path}.name"), own, names::dns1123_label);
        if seen.contains(&own) {
            causes.add(Cause::duplicate(format!("{path}.name"), own));
        }
        seen.push(own);
        let several = items(request, "firstAvailable");
        match (request["exactly"].is_object(), several.is_empty()) {
            (true, false) => {
                let detail =
                    "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
                causes.add(Cause::invalid(&*path, "", detail));
            }
            (false, true) => {
                causes
                    .add(Cause::required(&*path, "exactly one of `exactly` or `firstAvailable` is required"));
            }
            (true, true) => exact(&request["exactly"], &format!("{path}.exactly"), causes),
            (false, false) => {
                for (j, sub) in several.iter().enumerate() {
                    let path = format!("{path}.firstAvailable[{j}]");
                    causes.needed_name(&format!("{path}.name"), text(sub, "name"), names::dns1123_label);
                    exact(sub, &path, causes);
                }
            }
        }
    }
}

fn exact(request: &Value, path: &str, causes: &mut Causes) {
    let class = text(request, "deviceClassName");
    causes.needed_name(&format!("{path}.deviceClassName"), class, names::dns1123_subdomain);
    selectors(request, path, causes);
    causes.one_of(request, "allocationMode", path, &["All", "ExactCount"]);
    match (text(request, "allocationMode"), request["count"].as_i64().unwrap_or(0)) {
        ("ExactCount", n) if n <= 0 => {
            causes.add(Cause::invalid(format!("{path}.count"), n, "must be greater than zero"));
        }
        ("All", n) if n != 0 => {
            let detail = "must not be specified when allocationMode is 'All'";
            causes.add(Cause::invalid(format!("{path}.count"), n, detail));
        }
        _ => {}
    }
}

/// The hooks of ResourceClaims.
pub struct Claims;

impl Hooks for Claims {
    fn defaults(&self, obj: &mut Value) {
        if obj["spec"].is_object() {
            claim_defaults(&mut obj["spec"]);
        }
    }

    fn prepare_create(&self, obj: &mut Value, _cx: &mut Cx) -> Result<(), Invalid> {
        set(obj, "status", json!({}));
        Ok(())
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _cx: &mut Cx) -> Result<(), Invalid> {
        device_status::forget_given_back(new, old);
        Ok(())
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        check_claim(&obj["spec"], "spec", &mut causes);
        let Some(old) = old else { return causes.0 };
        if obj["status"]["devices"] != old["status"]["devices"] {
            device_status::check(&obj["status"], &mut causes);
        }
        if obj["spec"] != old["spec"] {
            causes.add(Cause::invalid("spec", obj["spec"].clone(), "field is immutable"));
        }
        let (after, before) = (&obj["status"], &old["status"]);
        let reserved = items(after, "reservedFor");
        if reserved.len() > RESERVED_MAX {
            causes.add(Cause::too_many("status.reservedFor", reserved.len(), RESERVED_MAX));
        }
        if !reserved.is_empty() && after["allocation"].is_null() {
            let detail = "may not be specified when `allocated` is not set";
            causes.add(Cause::forbidden("status.reservedFor", detail));
        }
        for (i, one) in reserved.iter().enumerate() {
            for field in ["resource", "name", "uid"] {
                causes.needed(one, field, &format!("status.reservedFor[{i}]"));
            }
            if reserved[..i].iter().any(|other| other["uid"] == one["uid"]) {
                causes.add(Cause::duplicate(format!("status.reservedFor[{i}].uid"), one["uid"].clone()));
            }
        }
        if !before["allocation"].is_null()
            && !after["allocation"].is_null()
            && before["allocation"] != after["allocation"]
        {
            let value = after["allocation"].clone();
            causes.add(Cause::invalid("status.allocation", value, "field is immutable"));
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::text("State"), Column::AGE] }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let leaving = !obj["metadata"]["deletionTimestamp"].is_null();
        let allocated = !obj["status"]["allocation"].is_null();
        let reserved = allocated && !items(&obj["status"], "reservedFor").is_empty();
        let states: Vec<&str> = [
            (leaving, "deleted"),
            (!leaving && !allocated, "pending"),
            (allocated, "allocated"),
            (reserved, "reserved"),
        ]
        .into_iter()
        .filter_map(|(is, state)| is.then_some(state))
        .collect();
        vec![name(obj), states.join(",").into(), age(obj, now_unix)]
    }
}

/// The hooks of ResourceClaimTemplates.
pub struct Templates;

impl Hooks for Templates {
    fn defaults(&self, obj: &mut Value) {
        if obj["spec"]["spec"].is_object() {
            claim_defaults(&mut obj["spec"]["spec"]);
        }
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        check_claim(&obj["spec"]["spec"], "spec.spec", &mut causes);
        if old.is_some_and(|old| old["spec"] != obj["spec"]) {
            causes.add(Cause::invalid("spec", obj["spec"].clone(), "field is immutable"));
        }
        causes.0
    }
}

/// Notes since when each taint of a slice's devices is there, unless the driver says so: one that was there before keeps its time.
fn date_taints(new: &mut Value, old: &Value, now_unix: i64) {
    for device in items_mut(child(new, "spec"), "devices") {
        let before = items(&old["spec"], "devices").iter().find(|other| other["name"] == device["name"]);
        let before: Vec<Value> = before.map(|device| items(device, "taints").to_vec()).unwrap_or_default();
        for taint in items_mut(device, "taints") {
            let same = |other: &&Value| ["key", "value", "effect"].iter().all(|f| taint[*f] == other[*f]);
            let since =
                before.iter().find(same).map(|other| other["timeAdded"].clone()).filter(|at| !at.is_null());
            default(taint, "timeAdded", since.unwrap_or_else(|| time::format(now_unix).into()));
        }
    }
}

/// The hooks of ResourceSlices.
pub struct Slices;

impl Hooks for Slices {
    fn prepare_create(&self, obj: &mut Value, cx: &mut Cx) -> Result<(), Invalid> {
        date_taints(obj, &Value::Null, cx.now_unix);
        Ok(())
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, cx: &mut Cx) -> Result<(), Invalid> {
        date_taints(new, old, cx.now_unix);
        Ok(())
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let spec = &obj["spec"];
        let mut causes = Causes::default();
        causes.needed_name("spec.driver", text(spec, "driver"), names::dns1123_subdomain);
        causes.needed(&spec["pool"], "name", "spec.pool");
        if let Some(n) = spec["pool"]["resourceSliceCount"].as_i64().filter(|n| *n <= 0) {
            causes.add(Cause::invalid("spec.pool.resourceSliceCount", n, "must be greater than zero"));
        }
        causes.not_negative(&spec["pool"], "generation", "spec.pool");
        let whose = [
            !text(spec, "nodeName").is_empty(),
            spec["nodeSelector"].is_object(),
            spec["allNodes"] == true,
            spec["perDeviceNodeSelection"] == true,
        ];
        let given = whose.iter().filter(|is| **is).count();
        if given != 1 {
            let detail =
                "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
            causes.add(if given == 0 {
                Cause::required("spec", detail)
            } else {
                Cause::invalid("spec", "", &format!("{detail}, but multiple fields are set"))
            });
        }
        let devices = items(spec, "devices");
        if devices.len() > DEVICES_MAX {
            causes.add(Cause::too_many("spec.devices", devices.len(), DEVICES_MAX));
        }
        for (i, device) in devices.iter().enumerate() {
            let field = format!("spec.devices[{i}].name");
            causes.needed_name(&field, text(device, "name"), names::dns1123_label);
            if devices[..i].iter().any(|other| other["name"] == device["name"]) {
                causes.add(Cause::duplicate(field, device["name"].clone()));
            }
        }
        if let Some(old) = old {
            for (object, field) in [("spec", "driver"), ("spec", "nodeName")] {
                if obj[object][field] != old[object][field] {
                    let value = obj[object][field].clone();
                    causes.add(Cause::invalid(format!("{object}.{field}"), value, "field is immutable"));
                }
            }
            if spec["pool"]["name"] != old["spec"]["pool"]["name"] {
                let value = spec["pool"]["name"].clone();
                causes.add(Cause::invalid("spec.pool.name", value, "field is immutable"));
            }
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::text("Node"), Column::text("Driver"), Column::text("Pool"), Column::AGE] }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let spec = &obj["spec"];
        vec![
            name(obj),
            text(spec, "nodeName").into(),
            text(spec, "driver").into(),
            text(&spec["pool"], "name").into(),
            age(obj, now_unix),
        ]
    }

    fn fields(&self, obj: &Value) -> Vec<(String, String)> {
        let mut fields = metadata_fields(obj);
        for field in ["driver", "nodeName"] {
            fields.push((format!("spec.{field}"), text(&obj["spec"], field).to_owned()));
        }
        fields.push(("spec.pool.name".to_owned(), text(&obj["spec"]["pool"], "name").to_owned()));
        fields
    }
}

/// The hooks of DeviceTaintRules.
pub struct TaintRules;

impl Hooks for TaintRules {
    fn prepare_create(&self, obj: &mut Value, cx: &mut Cx) -> Result<(), Invalid> {
        set(obj, "status", json!({}));
        let now = time::format(cx.now_unix);
        default(child(child(obj, "spec"), "taint"), "timeAdded", now);
        Ok(())
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, cx: &mut Cx) -> Result<(), Invalid> {
        let (before, taint) = (&old["spec"]["taint"], child(child(new, "spec"), "taint"));
        let same = ["key", "value", "effect"].iter().all(|f| taint[*f] == before[*f]);
        let at = if same { before["timeAdded"].clone() } else { time::format(cx.now_unix).into() };
        default(taint, "timeAdded", at);
        Ok(())
    }

    fn validate(&self, obj: &Value, _old: Option<&Value>) -> Vec<Cause> {
        let taint = &obj["spec"]["taint"];
        let mut causes = Causes::default();
        causes.needed_name("spec.taint.key", text(taint, "key"), names::qualified_name);
        causes.name("spec.taint.value", text(taint, "value"), names::label_value);
        let effect = text(taint, "effect");
        let known = ["NoExecute", "NoSchedule", "None"];
        if effect.is_empty() {
            causes.add(Cause::required("spec.taint.effect", ""));
        } else if !known.contains(&effect) {
            causes.add(Cause::not_supported("spec.taint.effect", effect, &known));
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                Column::NAME,
                Column::text("Key"),
                Column::text("Value"),
                Column::text("Effect"),
                Column::text("TimeAdded"),
                Column::AGE,
            ]
        }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let taint = &obj["spec"]["taint"];
        let added = taint["timeAdded"].as_str().and_then(time::parse);
        vec![
            name(obj),
            text(taint, "key").into(),
            text(taint, "value").into(),
            text(taint, "effect").into(),
            added.map(|t| time::human(now_unix - t)).unwrap_or_default().into(),
            age(obj, now_unix),
        ]
    }
}
