//! The codec against the samples that upstream publishes with its types: every kind with every field filled, as JSON and as
//! protobuf side by side. They are read from the Go module, which `cargo xtask test` fetches where there is `go`.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use trine_objects::{protobuf, schema};

const SAMPLES: &str = "k8s.io/api@v0.37.0/testdata/HEAD";
/// Samples of kinds that never are the body of a request or an answer in protobuf: internals, options (which travel in the
/// query), and what is exchanged with webhooks (JSON only).
const NEVER_SENT: [&str; 16] = [
    "admission.k8s.io.v1.AdmissionReview",
    "apidiscovery.k8s.io.v2.APIGroupDiscovery",
    "core.v1.CreateOptions",
    "core.v1.GetOptions",
    "core.v1.ListOptions",
    "core.v1.NodeProxyOptions",
    "core.v1.PatchOptions",
    "core.v1.PodAttachOptions",
    "core.v1.PodExecOptions",
    "core.v1.PodLogOptions",
    "core.v1.PodPortForwardOptions",
    "core.v1.PodProxyOptions",
    "core.v1.RangeAllocation",
    "core.v1.SerializedReference",
    "core.v1.ServiceProxyOptions",
    "core.v1.UpdateOptions",
];

fn samples() -> Option<PathBuf> {
    let asked = Command::new("go").args(["env", "GOMODCACHE"]).output().ok().filter(|o| o.status.success());
    let cache = PathBuf::from(String::from_utf8(asked?.stdout).ok()?.trim());
    Some(cache.join(SAMPLES)).filter(|dir| dir.is_dir())
}

fn is_stable(version: &str) -> bool {
    version.strip_prefix('v').is_some_and(|n| !n.is_empty() && n.bytes().all(|c| c.is_ascii_digit()))
}

/// The first place where two values differ.
fn difference(a: &Value, b: &Value, path: &str) -> Option<String> {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            let keys: std::collections::BTreeSet<&String> = x.keys().chain(y.keys()).collect();
            keys.into_iter().find_map(|k| {
                let null = Value::Null;
                difference(x.get(k).unwrap_or(&null), y.get(k).unwrap_or(&null), &format!("{path}.{k}"))
            })
        }
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
            x.iter().zip(y).enumerate().find_map(|(i, (v, w))| difference(v, w, &format!("{path}[{i}]")))
        }
        (a, b) => (a != b).then(|| format!("{path}: {a} and {b}")),
    }
}

#[test]
fn upstreams_samples_are_equal_both_ways() {
    let Some(dir) = samples() else {
        trine_kernel::testing::skip(
            "upstreams_samples_are_equal_both_ways",
            "needs go and the module k8s.io/api",
        );
        return;
    };
    let (mut tested, mut without, mut wrong) = (0, Vec::new(), Vec::new());
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "pb")) {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let json: Value =
            serde_json::from_slice(&std::fs::read(file.with_extension("json")).unwrap()).unwrap();
        let bytes = std::fs::read(file).unwrap();
        // The sample of a watch event is no object; frames of watches have their own test.
        let Some(api_version) = json["apiVersion"].as_str() else { continue };
        let (group, version) = trine_objects::resources::split_api_version(api_version);
        if !is_stable(version) {
            continue;
        }
        if schema::of(group, version, json["kind"].as_str().unwrap()).is_none() {
            without.push(name);
            continue;
        }
        tested += 1;
        match protobuf::decode(&bytes) {
            Ok(read) => wrong.extend(difference(&json, &read, "").map(|d| format!("{name}: read {d}"))),
            Err(error) => wrong.push(format!("{name}: {error}")),
        }
        match protobuf::encode(&json) {
            Ok(written) if written == bytes => {}
            Ok(written) => {
                let at = written
                    .iter()
                    .zip(&bytes)
                    .position(|(a, b)| a != b)
                    .unwrap_or(written.len().min(bytes.len()));
                let around = |b: &[u8]| {
                    String::from_utf8_lossy(&b[at.saturating_sub(20)..(at + 20).min(b.len())]).into_owned()
                };
                wrong.push(format!(
                    "{name}: written {} bytes instead of {}, differing at {at}: {:?} and {:?}",
                    written.len(),
                    bytes.len(),
                    around(&written),
                    around(&bytes)
                ));
            }
            Err(error) => wrong.push(format!("{name}: {error}")),
        }
    }
    println!("{tested} samples, without a type: {without:?}");
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(without, NEVER_SENT);
    assert!(tested >= 77, "only {tested} samples");
}
