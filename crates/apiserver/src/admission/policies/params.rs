//! The objects that a binding tells its policy. Source: `CollectParams`.

use std::sync::Arc;

use serde_json::Value;
use trine_objects::resources::split_api_version;
use trine_store::Object;
use trine_store::cache::Part;

use super::binding::ParamRef;
use super::policy::ParamKind;
use crate::catalog::Served;
use crate::registry::{Registry, scope};
use crate::verbs::update::parse;

/// The parameters for a request in a namespace: each is one decision more. `None` stands for a policy without parameters.
///
/// # Errors
/// Why they cannot be had.
pub(super) async fn collect(
    registry: &Registry,
    kind: Option<&ParamKind>,
    wanted: Option<&ParamRef>,
    namespace: &str,
) -> Result<Vec<Option<Value>>, String> {
    let Some(kind) = kind else { return Ok(vec![None]) };
    let (group, version) = split_api_version(&kind.api_version);
    let resource = registry.catalog().now().by_kind(group, version, &kind.kind).cloned();
    let resource = resource.ok_or_else(|| {
        format!("failed to find resource referenced by paramKind: '{}, Kind={}'", kind.api_version, kind.kind)
    })?;
    let Some(wanted) = wanted else { return Ok(vec![None]) };
    if !resource.namespaced && !wanted.namespace.is_empty() {
        return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
    }
    let namespace = match (resource.namespaced, wanted.namespace.as_str()) {
        (false, _) => "",
        (true, "") if namespace.is_empty() => {
            let why =
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
            return Err(why.to_owned());
        }
        (true, "") => namespace,
        (true, given) => given,
    };
    let found = find(registry, &resource, wanted, namespace).await?;
    if found.is_empty() && wanted.needed {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found.into_iter().map(Some).collect())
}

async fn find(
    registry: &Registry,
    resource: &Arc<Served>,
    wanted: &ParamRef,
    namespace: &str,
) -> Result<Vec<Value>, String> {
    let stored = resource.stored();
    let found = if !wanted.name.is_empty() {
        registry.get(&stored, namespace, &wanted.name).ok().into_iter().collect()
    } else if let Some(selector) = &wanted.selector {
        let mut listed = registry.prefix(&stored).list(&Part::all(&scope(&stored, namespace))).objects;
        listed.retain(|o| selector.matches_with(|key| o.label(key)));
        listed
    } else {
        return Err("one of name or selector must be provided".to_owned());
    };
    let shown = resource.show_all(registry, found).await.map_err(|e| e.to_string())?;
    let read = |object: &Arc<Object>| {
        let mut object = parse(object.json()).map_err(|e| e.to_string())?;
        resource.from_stored(&mut object);
        Ok(object)
    };
    shown.iter().map(read).collect()
}
