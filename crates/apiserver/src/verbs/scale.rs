//! `scale`: how many replicas something has, read and set without knowing its kind.

use serde_json::{Value, json};
use trine_objects::schema;
use trine_objects::selector::label::LabelSelector;

use super::Written;
use super::options::WriteOptions;
use super::owners::{Ownership, Place};
use super::update::{self, PatchKind, parse};
use crate::catalog::Served;
use crate::kinds::{Cause, Invalid};
use crate::registry::{Registry, text};
use crate::request::Target;
use crate::status::ApiError;

/// How often a lost race is run again.
const RETRIES: usize = 8;

/// Where a kind keeps its numbers. Paths are of field names, without dots in front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// The wished number.
    pub spec_replicas: Vec<String>,
    /// The observed number.
    pub status_replicas: Vec<String>,
    /// The selector of what is counted: a text, or a selector object, or labels.
    pub selector: Option<Vec<String>>,
}

impl Paths {
    /// Those of the kinds that are built in.
    #[must_use]
    pub fn built_in() -> Self {
        let path = |steps: [&str; 2]| steps.map(str::to_owned).to_vec();
        Self {
            spec_replicas: path(["spec", "replicas"]),
            status_replicas: path(["status", "replicas"]),
            selector: Some(path(["spec", "selector"])),
        }
    }

    /// From a definition's paths, which read `.spec.replicas`.
    #[must_use]
    pub fn of(spec_replicas: &str, status_replicas: &str, selector: Option<&str>) -> Self {
        let path = |path: &str| -> Vec<String> {
            path.split('.').filter(|step| !step.is_empty()).map(str::to_owned).collect()
        };
        Self {
            spec_replicas: path(spec_replicas),
            status_replicas: path(status_replicas),
            selector: selector.map(path),
        }
    }
}

fn at<'a>(object: &'a Value, path: &[String]) -> &'a Value {
    path.iter().fold(object, |value, step| &value[step.as_str()])
}

/// A selector on one line, from any of its forms.
fn selector(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(map) if map.contains_key("matchLabels") || map.contains_key("matchExpressions") => {
            LabelSelector::from_object(value).map(|s| s.to_string()).unwrap_or_default()
        }
        Value::Object(map) => LabelSelector::from_map(map).to_string(),
        _ => String::new(),
    }
}

/// An object as `autoscaling/v1` Scale.
#[must_use]
pub fn view(object: &Value, paths: &Paths) -> Value {
    let number = |path: &[String]| at(object, path).as_i64().unwrap_or(0);
    let meta = &object["metadata"];
    let mut metadata = json!({"name": meta["name"]});
    for field in ["namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if !meta[field].is_null() {
            metadata[field] = meta[field].clone();
        }
    }
    let mut status = json!({"replicas": number(&paths.status_replicas)});
    let selector = paths.selector.as_deref().map(|p| selector(at(object, p))).unwrap_or_default();
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    let mut spec = json!({});
    match number(&paths.spec_replicas) {
        0 => {}
        n => spec["replicas"] = n.into(),
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

/// A change of a Scale.
pub enum Change {
    /// The new one.
    Replace(Value),
    /// A configuration to apply.
    Apply(Value),
    /// A patch of it.
    Patch(PatchKind, Value),
}

/// Writes an object's scale; gives it as it is now.
///
/// # Errors
/// [`ApiError`].
pub async fn write(
    registry: &Registry,
    target: &Target,
    change: Change,
    paths: &Paths,
    options: &WriteOptions,
) -> Result<Written, ApiError> {
    let (name, stored) = (target.name.as_deref().unwrap_or_default(), target.stored());
    for attempt in 0.. {
        let current = registry.get(&target.resource, &target.namespace, name)?;
        let old = parse(current.json())?;
        let mut live = old.clone();
        target.resource.show(registry, &mut live).await?;
        let scale = match &change {
            Change::Replace(scale) | Change::Apply(scale) => scale.clone(),
            Change::Patch(kind, patch) => {
                let mut scale = view(&live, paths);
                update::patched(schema::of("autoscaling", "v1", "Scale"), *kind, patch, &mut scale)?;
                scale
            }
        };
        let mut new = live.clone();
        set(&target.resource, &mut new, &scale, paths)?;
        let mut owner = Ownership::Record(&options.manager);
        if matches!(change, Change::Apply(_)) {
            let mut config = json!({"apiVersion": live["apiVersion"], "kind": live["kind"],
                "metadata": {"name": live["metadata"]["name"]}});
            put(&mut config, paths, at(&new, &paths.spec_replicas).clone());
            let place = Place::of(registry, target);
            new = place.apply(&live, &config, &options.manager, options.force).await?;
            owner = Ownership::Settled;
        }
        target.resource.store(registry, &mut new).await?;
        let (Change::Replace(asked) | Change::Apply(asked) | Change::Patch(_, asked)) = &change;
        let conditional = !text(&asked["metadata"]["resourceVersion"]).is_empty();
        match update::write(registry, &stored, old, current.revision, new, owner, options.dry_run).await {
            Err(ApiError::Conflict { .. }) if !conditional && attempt < RETRIES => {}
            Ok(mut done) => {
                target.resource.show(registry, &mut done.object).await?;
                return Ok(Written { object: view(&done.object, paths), json: None, ..done });
            }
            Err(error) => return Err(error),
        }
    }
    Err(ApiError::Internal("no end of retries".to_owned()))
}

/// Puts a Scale's number, and the revision that it is about, into its object.
///
/// # Errors
/// [`ApiError::BadRequest`] for what is no Scale of this object, [`ApiError::Invalid`] for a number that cannot be.
pub fn set(resource: &Served, object: &mut Value, scale: &Value, paths: &Paths) -> Result<(), ApiError> {
    let given = |value: &Value| Some(text(value).to_owned()).filter(|t| !t.is_empty());
    let kind = given(&scale["kind"]).is_none_or(|k| k == "Scale");
    let version = given(&scale["apiVersion"]).is_none_or(|v| v == "autoscaling/v1");
    if !kind || !version || !scale.is_object() {
        let got = format!("{}/{}", text(&scale["apiVersion"]), text(&scale["kind"]));
        let why = format!("the object provided is unrecognized (must be of type Scale): got {got}");
        return Err(ApiError::BadRequest(why));
    }
    let name = text(&object["metadata"]["name"]).to_owned();
    for field in ["name", "namespace"] {
        let (wanted, got) = (text(&object["metadata"][field]), text(&scale["metadata"][field]));
        if !got.is_empty() && got != wanted {
            return Err(ApiError::BadRequest(format!(
                "the {field} of the object ({got}) does not match the {field} on the URL ({wanted})"
            )));
        }
    }
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        let cause = Cause::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
        return Err(ApiError::Invalid {
            kind: "Scale".to_owned(),
            group: "autoscaling".to_owned(),
            name,
            causes: Invalid(vec![cause]),
        });
    }
    let uid = given(&scale["metadata"]["uid"]).filter(|uid| object["metadata"]["uid"] != **uid);
    let revision = given(&scale["metadata"]["resourceVersion"]);
    if uid.is_some() || revision.is_some_and(|r| object["metadata"]["resourceVersion"] != *r) {
        return Err(ApiError::modified(resource, &name));
    }
    put(object, paths, replicas.into());
    Ok(())
}

/// Writes the wished number where the kind keeps it.
fn put(object: &mut Value, paths: &Paths, replicas: Value) {
    let place = paths.spec_replicas.iter().fold(object, |value, step| {
        if !value.is_object() {
            *value = json!({});
        }
        &mut value[step.as_str()]
    });
    *place = replicas;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_shows_and_sets_the_numbers_of_any_kind() {
        let mut object = json!({"metadata": {"name": "d", "namespace": "n", "uid": "u", "resourceVersion": "7"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"b": "1", "a": "2"}}}, "status": {"replicas": 1}});
        let scale = view(&object, &Paths::built_in());
        assert_eq!(scale["spec"], json!({"replicas": 2}));
        assert_eq!(scale["status"], json!({"replicas": 1, "selector": "a=2,b=1"}));
        let catalog = crate::catalog::Catalog::new().now();
        let resource = catalog.find("apps", "v1", "deployments").unwrap();
        let mut set = |scale: Value| super::set(resource, &mut object, &scale, &Paths::built_in());
        set(json!({"spec": {"replicas": 5}})).unwrap();
        set(json!({"metadata": {"resourceVersion": "6"}})).unwrap_err();
        let error = set(json!({"spec": {"replicas": -1}})).unwrap_err().to_string();
        assert!(
            error.contains("Scale.autoscaling \"d\" is invalid: spec.replicas: Invalid value: -1"),
            "{error}"
        );
        assert!(matches!(set(json!({"kind": "Pod"})), Err(ApiError::BadRequest(_))));
        assert_eq!(object["spec"]["replicas"], 5);
    }

    #[test]
    fn paths_of_a_definition_are_followed() {
        let paths = Paths::of(".spec.size", ".status.n", Some(".status.sel"));
        let object =
            json!({"metadata": {"name": "x"}, "spec": {"size": 3}, "status": {"n": 1, "sel": "a in (b)"}});
        let scale = view(&object, &paths);
        assert_eq!(scale["spec"]["replicas"], 3);
        assert_eq!(scale["status"], json!({"replicas": 1, "selector": "a in (b)"}));
    }
}
