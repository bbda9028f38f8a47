use super::*;
use crate::schema::{self, Simpler, Ty, Type};
use serde_json::{Map, Value, json};

/// An object of this type with every field filled, as deep as `depth` types go.
fn full(ty: &'static Type, depth: usize) -> Value {
    let mut map = Map::new();
    for field in &ty.fields {
        let Some(place) = field.place else { continue };
        let value = match &field.ty {
            // Always on the wire, and never within itself.
            Ty::Ref(id) if depth == 0 && !place.optional => Some(full(id.get(), 0)),
            ty => filled(ty, depth),
        };
        if let Some(value) = value {
            map.insert(field.name.to_owned(), value);
        }
    }
    Value::Object(map)
}

fn filled(ty: &Ty, depth: usize) -> Option<Value> {
    Some(match ty {
        Ty::String => "text".into(),
        Ty::Bool => true.into(),
        Ty::Int32 => (-3).into(),
        Ty::Int64 => (1_i64 << 40).into(),
        Ty::Double => 1.5.into(),
        Ty::Bytes => "AQI=".into(),
        Ty::Time => "2026-01-02T03:04:05Z".into(),
        Ty::MicroTime => "2026-01-02T03:04:05.000006Z".into(),
        Ty::Quantity => "1500m".into(),
        Ty::IntOrString => {
            if depth.is_multiple_of(2) {
                json!(80)
            } else {
                json!("http")
            }
        }
        Ty::Object => json!({"free": [null, 1]}),
        Ty::Any => json!(["any", {"thing": false}]),
        Ty::Ref(_) | Ty::RefOr(..) if depth == 0 => return None,
        Ty::Ref(id) => full(id.get(), depth - 1),
        Ty::RefOr(_, Simpler::Bool) => true.into(),
        Ty::RefOr(_, Simpler::Strings) => json!(["a", "b"]),
        Ty::RefOr(id, Simpler::List) => json!([full(id.get(), depth - 1), {}]),
        Ty::List(item) => json!([filled(item, depth)?, filled(item, depth)?]),
        Ty::Map(item) => json!({"a": filled(item, depth)?, "b": filled(item, depth)?}),
    })
}

fn whole(group: &str, version: &str, kind: &str, depth: usize) -> Value {
    let mut object = full(schema::of(group, version, kind).unwrap(), depth);
    object["apiVersion"] =
        if group.is_empty() { version.into() } else { format!("{group}/{version}").into() };
    object["kind"] = kind.into();
    object
}

#[test]
fn every_field_of_every_kind_survives_the_way_there_and_back() {
    let mut count = 0;
    for kind in schema::types().iter().flat_map(|t| &t.kinds) {
        let object = whole(kind.group, kind.version, kind.kind, 5);
        let bytes = encode(&object).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
        let back = decode(&bytes).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
        assert!(back == object, "{kind:?}: {back}\n{object}");
        count += 1;
    }
    assert!(count >= 149, "{count} kinds");
}

#[test]
fn a_list_is_written_item_by_item_as_it_is_at_once() {
    for (group, version, kind) in [
        ("", "v1", "PodList"),
        ("storage.k8s.io", "v1", "StorageClassList"),
        ("meta.k8s.io", "v1", "PartialObjectMetadataList"),
        ("", "v1", "APIResourceList"),
        ("", "v1", "ConfigMap"),
    ] {
        let list = whole(group, version, kind, 4);
        assert_eq!(encode_json(list.to_string().as_bytes()).unwrap(), encode(&list).unwrap(), "{kind}");
    }
    let empty =
        json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": []});
    assert_eq!(encode_json(empty.to_string().as_bytes()).unwrap(), encode(&empty).unwrap());
    assert!(matches!(encode_json(b"{}"), Err(Error::NoKind)));
    assert!(matches!(encode_json(b"[1"), Err(Error::Value { .. })));
}

#[test]
fn what_go_cannot_tell_from_absent_is_written_and_read_as_absent() {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"ports": [{"port": 80, "targetPort": "http"}], "externalTrafficPolicy": "Local",
            "internalTrafficPolicy": "Cluster", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}}});
    let bytes = encode(&service).unwrap();
    let back = decode(&bytes).unwrap();
    assert_eq!(back["spec"]["ports"][0], json!({"port": 80, "targetPort": "http"}));
    assert_eq!(back["spec"].get("clusterIP"), None, "an empty string that JSON leaves out");
    assert_eq!(back["spec"]["sessionAffinityConfig"], service["spec"]["sessionAffinityConfig"]);
    assert_eq!(back["metadata"], json!({"name": "s"}), "the zero creation time is no time");
    let zeros = bytes.windows(2).filter(|w| w == b"\x1a\0").count();
    assert!(zeros > 0, "clusterIP is on the wire");
}

#[test]
fn what_stands_for_a_schema_keeps_its_form() {
    let crd = |schema: Value| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {},
            "spec": {"conversion": {"strategy": "None"}, "group": "", "names": {"kind": "", "plural": ""}, "scope": "",
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
            "status": {"acceptedNames": {"kind": "", "plural": ""}, "conditions": [], "storedVersions": []}})
    };
    for schema in [
        json!({"items": {"type": "string"}, "additionalProperties": false, "default": {"a": [1, null]}}),
        json!({"items": [{"type": "string"}, {}], "additionalProperties": true, "enum": ["a", null, 1.5]}),
        json!({"additionalProperties": {"properties": {"x": {"$ref": "r", "maximum": 10, "minimum": -0.5}}}}),
        json!({"dependencies": {"a": ["b", "c"], "d": {"type": "object"}}, "$schema": "s",
            "x-kubernetes-validations": [{"rule": "self.x > 0", "optionalOldSelf": false}]}),
    ] {
        let object = crd(schema.clone());
        let back = decode(&encode(&object).unwrap()).unwrap();
        assert_eq!(back["spec"]["versions"][0]["schema"]["openAPIV3Schema"], schema);
    }
}

#[test]
fn a_message_in_parts_is_one_and_unknown_fields_are_skipped() {
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "n"}, "spec": {}});
    let bytes = encode(&lease).unwrap();
    let envelope = Envelope::parse(&bytes).unwrap();
    let mut raw = envelope.raw.to_vec();
    raw.extend(b"\x0a\x05\x1a\x03abc"); // metadata again, with a namespace
    raw.extend(b"\xfa\x3f\x01x\xf8\x3f\x07"); // field 1023, bytes and number
    let mut again = MAGIC.to_vec();
    wire::put_bytes(&mut again, 2, &raw);
    let back = decode_as(&again, "coordination.k8s.io/v1", "Lease").unwrap();
    assert_eq!(back["metadata"], json!({"name": "n", "namespace": "abc"}));
    assert!(matches!(decode(&again), Err(Error::NoKind)));
}

#[test]
fn packed_numbers_are_read_too() {
    let raw = b"\x0a\x00\x12\x04\x5a\x02\x01\x02";
    // ResourceSlice-like lists of numbers: securityContext.supplementalGroups of a Pod is field 4 there.
    let mut pod = MAGIC.to_vec();
    let context = b"\x22\x03\x01\x02\x03\x20\x04";
    let mut spec = Vec::new();
    wire::put_bytes(&mut spec, 14, context);
    let mut body = Vec::new();
    wire::put_bytes(&mut body, 2, &spec);
    wire::put_bytes(&mut pod, 2, &body);
    let back = decode_as(&pod, "v1", "Pod").unwrap();
    assert_eq!(back["spec"]["securityContext"]["supplementalGroups"], json!([1, 2, 3, 4]));
    assert_eq!(raw.len(), 8);
}

#[test]
fn refusals_say_why() {
    let message = |bytes: &[u8]| decode_as(bytes, "v1", "Pod").unwrap_err().to_string();
    assert_eq!(message(b""), "empty data");
    assert!(message(b"{}").starts_with("provided data does not appear to be a protobuf message"));
    assert_eq!(message(b"k8s\0"), "empty body");
    assert_eq!(message(b"k8s\0\x12\xff\xff\xff\xff\x7f"), "unexpected EOF");
    assert_eq!(message(b"k8s\0\x12\x02\x08\x01"), "proto: wrong wireType = 0 for field metadata");
    assert_eq!(message(b"k8s\0\x12\x05\x0a\x03\x0a\x01\xff"), "field name: invalid UTF-8");
    let widget = json!({"apiVersion": "x.io/v1", "kind": "Widget"});
    assert_eq!(
        encode(&widget).unwrap_err().to_string(),
        "no kind \"Widget\" is registered for version \"x.io/v1\""
    );
    let wrong = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"priority": "high"}});
    assert_eq!(
        encode(&wrong).unwrap_err().to_string(),
        "field priority: expected a 32-bit integer, got a string"
    );
}

#[test]
fn depth_and_number_of_values_are_bounded() {
    // Schemas within schemas: `not` is field 28.
    let mut schema = Vec::new();
    for _ in 0..5_000 {
        let mut outer = Vec::with_capacity(schema.len() + 8);
        wire::put_bytes(&mut outer, 28, &schema);
        schema = outer;
    }
    let ty = schema::of("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap();
    let props = schema::types().iter().find(|t| t.name().ends_with("v1.JSONSchemaProps")).unwrap();
    assert!(ty.field("spec").is_some());
    assert!(matches!(decode::message(props, &schema), Err(Error::TooDeep)));
    // Envelopes within envelopes.
    let mut nested = b"k8s\0\x12\x00".to_vec();
    for _ in 0..500 {
        let mut raw = Vec::new();
        wire::put_bytes(&mut raw, 1, &nested);
        let mut body = Vec::new();
        wire::put_bytes(&mut body, 2, &raw);
        let mut outer = MAGIC.to_vec();
        wire::put_bytes(&mut outer, 1, b"\x0a\x07apps/v1\x12\x12ControllerRevision");
        wire::put_bytes(&mut outer, 2, &body);
        nested = outer;
    }
    assert!(matches!(decode(&nested), Err(Error::TooDeep)));
    // Two bytes an item.
    let many = [0x0a, 0].repeat(MAX_VALUES + 1);
    let list = schema::named("core.v1.PodSpec").unwrap();
    assert!(matches!(decode::message(list, &many), Err(Error::TooMany)));
    let mut deep = json!({});
    for _ in 0..200 {
        deep = json!({"not": deep});
    }
    let mut out = Vec::new();
    assert!(matches!(encode::message(&mut out, props, deep.as_object().unwrap(), 0), Err(Error::TooDeep)));
}

/// A small generator of numbers with a fixed seed (xorshift), so that a failure comes again.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

#[test]
fn damaged_bytes_are_refused_or_read_and_never_more() {
    let mut random = Random(0x1234_5678_9abc_def1);
    let (mut read, mut refused) = (0, 0);
    for (group, version, kind) in [
        ("", "v1", "Pod"),
        ("apps", "v1", "DeploymentList"),
        ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        ("resource.k8s.io", "v1", "ResourceSlice"),
        ("", "v1", "Secret"),
        ("", "v1", "Event"),
        ("authentication.k8s.io", "v1", "TokenReview"),
        ("", "v1", "APIResourceList"),
    ] {
        let good = encode(&whole(group, version, kind, 3)).unwrap();
        for _ in 0..400 {
            let mut bytes = good.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len());
                match random.below(5) {
                    0 => bytes.truncate(at.max(1)),
                    1 => bytes[at] = random.below(256) as u8,
                    2 => bytes[at] ^= 1 << random.below(8),
                    3 => bytes.splice(at..at, [0xff, 0xff, 0xff, 0xff, 0x0f]).for_each(drop),
                    _ => drop(bytes.drain(at..(at + random.below(9)).min(bytes.len()))),
                }
                if bytes.is_empty() {
                    bytes.push(b'k');
                }
            }
            match decode(&bytes) {
                // What can be read can be written, unless a value is none for its field (a quantity's text is not checked).
                Ok(object) => {
                    let _ = encode(&object);
                    read += 1;
                }
                Err(error) => {
                    assert!(error.to_string().len() < 1000);
                    refused += 1;
                }
            }
        }
    }
    assert!(read > 100 && refused > 1000, "{read} read, {refused} refused");
}

#[test]
fn a_frame_of_a_watch_is_a_length_and_a_bare_event() {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let mut out = vec![1, 2, 3];
    watch_event(&mut out, "ADDED", &object).unwrap();
    let frame = &out[3..];
    assert_eq!(u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize, frame.len() - 4);
    assert_eq!(&frame[4..11], b"\x0a\x05ADDED");
    let event = decode::message(schema::named("~meta.v1.WatchEvent").unwrap(), &frame[4..]).unwrap();
    assert_eq!(event["object"], object);
    let before = out.clone();
    assert!(watch_event(&mut out, "ADDED", &json!({"apiVersion": "x.io/v1", "kind": "W"})).is_err());
    assert_eq!(out, before);
}
