//! When two templates are the same, and a short name for one.
//!
//! Whether templates are the same is asked of the templates: a name made from one by another release, or by upstream, may differ.

use trine_typed::k8s_openapi::api::core::v1::PodTemplateSpec;

/// The label that tells apart the Pods of a Deployment's ReplicaSets.
pub const HASH_LABEL: &str = "pod-template-hash";

/// Whether two templates are the same but for [`HASH_LABEL`].
#[must_use]
pub fn same(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    a.spec == b.spec && without_hash(a).metadata == without_hash(b).metadata
}

/// The labels, annotations and so on of a template, without [`HASH_LABEL`] and without empty maps.
fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut meta = template.metadata.clone().unwrap_or_default();
    if let Some(labels) = &mut meta.labels {
        labels.remove(HASH_LABEL);
    }
    meta.labels = meta.labels.filter(|labels| !labels.is_empty());
    meta.annotations = meta.annotations.filter(|annotations| !annotations.is_empty());
    PodTemplateSpec { metadata: Some(meta), spec: None }
}

/// A short name for a template, other ones for other `collisions`.
#[must_use]
pub fn hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    short(&serde_json::to_vec(template).unwrap_or_default(), collisions)
}

/// A short name for bytes: FNV-1a, written with the letters that names are made of.
#[must_use]
pub fn short(bytes: &[u8], collisions: Option<i32>) -> String {
    let mut hash = bytes.iter().fold(FNV_OFFSET, fnv);
    if let Some(collisions) = collisions {
        let mut eight = [0; 8];
        eight[..4].copy_from_slice(&collisions.to_le_bytes());
        hash = eight.iter().fold(hash, fnv);
    }
    let letter = |digit: u8| char::from(LETTERS[usize::from(digit) % LETTERS.len()]);
    hash.to_string().bytes().map(letter).collect()
}

const FNV_OFFSET: u32 = 2_166_136_261;
const FNV_PRIME: u32 = 16_777_619;
/// No vowels and nothing that looks like one: no word comes about.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

fn fnv(hash: u32, byte: &u8) -> u32 {
    (hash ^ u32::from(*byte)).wrapping_mul(FNV_PRIME)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(meta: serde_json::Value, image: &str) -> PodTemplateSpec {
        let spec = json!({"metadata": meta, "spec": {"containers": [{"name": "a", "image": image}]}});
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn only_the_label_with_the_hash_makes_no_difference() {
        let plain = template(json!({"labels": {"app": "a"}}), "a:1");
        let hashed = template(json!({"labels": {"app": "a", "pod-template-hash": "x"}}), "a:1");
        assert!(same(&plain, &hashed));
        assert!(same(
            &template(json!({}), "a:1"),
            &template(json!({"labels": {"pod-template-hash": "x"}}), "a:1")
        ));
        assert!(!same(&plain, &template(json!({"labels": {"app": "a"}}), "a:2")));
        assert!(!same(&plain, &template(json!({"labels": {"app": "a"}, "annotations": {"b": "c"}}), "a:1")));
    }

    #[test]
    fn a_collision_gives_another_name() {
        let template = template(json!({}), "a:1");
        let names = [None, Some(0), Some(1)].map(|collisions| hash(&template, collisions));
        assert!(names[0] != names[1] && names[1] != names[2] && names[0] != names[2]);
        assert_eq!(hash(&template, Some(1)), names[2], "always the same");
        assert!(names.iter().all(|n| n.len() <= 10 && n.bytes().all(|b| LETTERS.contains(&b))));
        // FNV-1a of "a" is 0xe40c292c, which is 3826002220.
        assert_eq!(short(b"a", None), "7d6b446664".to_owned());
    }
}
