//! What becomes of what a deleted object owns. The client's wish is kept as a finalizer, which the garbage collector takes
//! away when it is done.

use serde_json::{Value, json};

use crate::kinds::{Cause, Invalid};
use crate::request::Query;
use crate::status::ApiError;

/// Holds an object until what it owns has forgotten it.
pub const ORPHAN: &str = "orphan";
/// Holds an object until what it owns is gone.
pub const FOREGROUND: &str = "foregroundDeletion";

/// What a client wishes for what an object owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dependents {
    /// Deleted after the object.
    Background,
    /// Deleted before the object.
    Foreground,
    /// Left behind.
    Orphan,
    /// The older way to say that they are not left behind.
    NotOrphan,
}

impl Dependents {
    /// Reads `propagationPolicy` and the older `orphanDependents`, from the body or the query.
    ///
    /// # Errors
    /// [`ApiError::Invalid`] for another word, and for both at once.
    pub fn parse(query: &Query, body: &Value) -> Result<Option<Self>, ApiError> {
        let policy = body["propagationPolicy"].as_str().or_else(|| query.get("propagationPolicy"));
        let orphan = body["orphanDependents"].as_bool();
        let orphan = orphan.or_else(|| query.get("orphanDependents").map(|v| matches!(v, "true" | "1")));
        let refused = |cause: Cause| {
            Err(ApiError::Invalid {
                kind: "DeleteOptions".to_owned(),
                group: String::new(),
                name: String::new(),
                causes: Invalid(vec![cause]),
            })
        };
        match (policy, orphan) {
            (Some(policy), Some(_)) => refused(Cause::invalid(
                "propagationPolicy",
                policy,
                "orphanDependents and deletionPropagation cannot be both set",
            )),
            (Some("Background"), None) => Ok(Some(Self::Background)),
            (Some("Foreground"), None) => Ok(Some(Self::Foreground)),
            (Some("Orphan"), None) => Ok(Some(Self::Orphan)),
            (Some(other), None) => refused(Cause::not_supported(
                "propagationPolicy",
                other,
                &["Foreground", "Background", "Orphan", "nil"],
            )),
            (None, Some(true)) => Ok(Some(Self::Orphan)),
            (None, Some(false)) => Ok(Some(Self::NotOrphan)),
            (None, None) => Ok(None),
        }
    }
}

/// Gives an object that is being deleted the finalizers of a wish. Without one it keeps what it has; `orphans` is what its kind
/// does else.
pub fn hold(object: &mut Value, wish: Option<Dependents>, orphans: bool) {
    let before: Vec<Value> = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let has = |finalizer: &str| before.iter().any(|f| f == finalizer);
    let (orphan, foreground) = match wish {
        Some(Dependents::Orphan) => (true, false),
        Some(Dependents::Foreground) => (false, true),
        Some(Dependents::Background | Dependents::NotOrphan) => (false, false),
        None if has(ORPHAN) => (true, has(FOREGROUND)),
        None if has(FOREGROUND) => (false, true),
        None => (orphans, false),
    };
    if (orphan, foreground) == (has(ORPHAN), has(FOREGROUND)) {
        return;
    }
    let mut after: Vec<Value> = before.into_iter().filter(|f| *f != ORPHAN && *f != FOREGROUND).collect();
    for (wanted, finalizer) in [(orphan, ORPHAN), (foreground, FOREGROUND)] {
        if wanted {
            after.push(finalizer.into());
        }
    }
    if after.is_empty() {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("finalizers");
        }
    } else {
        object["metadata"]["finalizers"] = json!(after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_read_from_body_and_query() {
        let parse = |query: &str, body: Value| Dependents::parse(&Query::parse(query), &body);
        assert_eq!(parse("", Value::Null), Ok(None));
        assert_eq!(parse("propagationPolicy=Orphan", json!({})), Ok(Some(Dependents::Orphan)));
        assert_eq!(parse("", json!({"orphanDependents": false})), Ok(Some(Dependents::NotOrphan)));
        let both = json!({"orphanDependents": true, "propagationPolicy": "Orphan"});
        assert!(parse("", both).unwrap_err().to_string().contains("cannot be both set"));
        assert!(parse("propagationPolicy=x", json!({})).is_err());
    }

    #[test]
    fn a_wish_becomes_a_finalizer() {
        let rows = [
            (json!([]), None, false, json!(null)),
            (json!([]), None, true, json!(["orphan"])),
            (json!(["a"]), Some(Dependents::Foreground), false, json!(["a", "foregroundDeletion"])),
            (json!(["orphan", "a"]), Some(Dependents::Foreground), false, json!(["a", "foregroundDeletion"])),
            (json!(["foregroundDeletion"]), None, true, json!(["foregroundDeletion"])),
            (json!(["foregroundDeletion"]), Some(Dependents::Background), true, json!(null)),
            (json!(["foregroundDeletion"]), Some(Dependents::Orphan), false, json!(["orphan"])),
            (json!([]), Some(Dependents::NotOrphan), true, json!(null)),
        ];
        for (before, wish, orphans, after) in rows {
            let mut object = json!({"metadata": {}});
            if before != json!([]) {
                object["metadata"]["finalizers"] = before.clone();
            }
            hold(&mut object, wish, orphans);
            assert_eq!(object["metadata"]["finalizers"], after, "{before} {wish:?}");
        }
    }
}
