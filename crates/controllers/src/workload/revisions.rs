//! The templates that a workload has had, kept as ControllerRevisions so that it can be rolled back to them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use trine_objects::selector::label::LabelSelector;
use trine_typed::k8s_openapi::NamespaceResourceScope;
use trine_typed::k8s_openapi::api::apps::v1::ControllerRevision;
use trine_typed::k8s_openapi::api::core::v1::PodTemplateSpec;
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use trine_typed::k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use trine_typed::kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use trine_typed::kube::{self, Api, Client, Resource, ResourceExt};
use trine_typed::mirror::{Key, Kind, Mirror, controller_of};

use super::claim::{Claimer, reference};
use super::template;
use crate::frame::ControllerError;

/// The revisions of a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// The one of its present template, if there is one.
    pub current: Option<Arc<ControllerRevision>>,
    /// The number that the present one is to have.
    pub number: i64,
    /// The others, from the oldest on.
    pub olds: Vec<Arc<ControllerRevision>>,
}

/// Sorts out revisions: of several with the present template, the highest is the present one.
#[must_use]
pub fn history(mut revisions: Vec<Arc<ControllerRevision>>, template: &PodTemplateSpec) -> History {
    revisions.sort_by_key(|r| {
        (r.revision, r.metadata.creation_timestamp.as_ref().map(|t| t.0), r.metadata.name.clone())
    });
    let at = revisions.iter().rposition(|r| template_of(r).is_some_and(|t| template::same(&t, template)));
    let current = at.map(|at| revisions.remove(at));
    let highest = revisions.last().and_then(|r| r.revision).unwrap_or_default();
    let number = current.as_ref().and_then(|c| c.revision).unwrap_or_default().max(highest + 1);
    History { current, number, olds: revisions }
}

/// The template that a revision keeps.
#[must_use]
pub fn template_of(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.0.get("spec")?.get("template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

/// A new revision of a workload, with its name as a label of this key. The data is a patch that brings the template back.
#[must_use]
pub fn revision<O: Resource<DynamicType = ()>>(
    owner: &O,
    template: &PodTemplateSpec,
    label: &str,
    collisions: Option<i32>,
    number: i64,
) -> ControllerRevision {
    let hash = template::hash(template, collisions);
    let mut labels = template.metadata.as_ref().and_then(|m| m.labels.clone()).unwrap_or_default();
    labels.insert(label.to_owned(), hash.clone());
    let mut data: Value = json!(template);
    data["$patch"] = "replace".into();
    let metadata = ObjectMeta {
        name: Some(format!("{}-{hash}", owner.name_any())),
        namespace: owner.namespace(),
        labels: Some(labels),
        owner_references: Some(vec![reference(owner)]),
        ..Default::default()
    };
    let data = RawExtension(json!({"spec": {"template": data}}));
    ControllerRevision { metadata, data, revision: Some(number) }
}

/// The old revisions that go: from the oldest on, those that nothing uses (`live` names), beyond those that are kept.
#[must_use]
pub fn beyond_history(
    olds: &[Arc<ControllerRevision>],
    kept: Option<i32>,
    is_live: impl Fn(&ControllerRevision) -> bool,
) -> Vec<Arc<ControllerRevision>> {
    let kept = usize::try_from(kept.unwrap_or(10)).unwrap_or_default();
    let dead: Vec<&Arc<ControllerRevision>> = olds.iter().filter(|r| !is_live(r)).collect();
    let extra = dead.len().saturating_sub(kept);
    dead.into_iter().take(extra).cloned().collect()
}

/// What came of making a revision.
#[derive(Debug)]
pub enum Made {
    /// It is there.
    Revision(Arc<ControllerRevision>),
    /// Another template has its name: it needs another one.
    Collision,
}

/// The way of a controller to the revisions of its workloads.
#[derive(Clone)]
pub struct Revisions {
    /// The way to the API server.
    pub client: Client,
    /// Where it reads them.
    pub mirror: Mirror<ControllerRevision>,
}

impl Revisions {
    fn api(&self, namespace: Option<String>) -> Api<ControllerRevision> {
        Api::namespaced(self.client.clone(), &namespace.unwrap_or_default())
    }

    /// The revisions of a workload, after taking over and letting go.
    ///
    /// # Errors
    /// A refused write.
    pub async fn of<O: Kind + Resource<Scope = NamespaceResourceScope>>(
        &self,
        owner: &O,
        selector: &LabelSelector,
    ) -> Result<Vec<Arc<ControllerRevision>>, ControllerError> {
        let mut found = self.mirror.controlled_by(&owner.uid().unwrap_or_default());
        found.extend(self.mirror.orphans(&owner.namespace().unwrap_or_default()));
        let claimer = Claimer { client: &self.client, owner, selector, finalizers: &[] };
        claimer.claim(&self.mirror, found).await
    }

    /// Makes a revision, or finds it made.
    ///
    /// # Errors
    /// If it is refused.
    pub async fn create(&self, revision: &ControllerRevision) -> Result<Made, ControllerError> {
        let (name, api) = (revision.name_any(), self.api(revision.namespace()));
        match api.create(&PostParams::default(), revision).await {
            Ok(made) => {
                self.mirror.learn(&made);
                Ok(Made::Revision(Arc::new(made)))
            }
            Err(kube::Error::Api(refused)) if refused.reason == "AlreadyExists" => {
                let found =
                    api.get(&name).await.map_err(ControllerError::of("get ControllerRevision", name))?;
                let owner = |r: &ControllerRevision| controller_of(&r.metadata).map(|o| o.uid.clone());
                let same = template_of(&found).zip(template_of(revision));
                if owner(&found) == owner(revision) && same.is_some_and(|(a, b)| template::same(&a, &b)) {
                    self.mirror.learn(&found);
                    return Ok(Made::Revision(Arc::new(found)));
                }
                Ok(Made::Collision)
            }
            Err(error) => Err(ControllerError::of("create ControllerRevision", name)(error)),
        }
    }

    /// Gives a revision its number.
    ///
    /// # Errors
    /// If it is refused.
    pub async fn number(
        &self,
        revision: &ControllerRevision,
        number: i64,
    ) -> Result<Arc<ControllerRevision>, ControllerError> {
        let name = revision.name_any();
        let patch = json!({"metadata": {"resourceVersion": revision.resource_version()}, "revision": number});
        let done =
            self.api(revision.namespace()).patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        let numbered = done.map_err(ControllerError::of("number ControllerRevision", name))?;
        self.mirror.learn(&numbered);
        Ok(Arc::new(numbered))
    }

    /// Removes revisions; those that are gone are success.
    ///
    /// # Errors
    /// The first refusal.
    pub async fn delete(&self, revisions: &[Arc<ControllerRevision>]) -> Result<(), ControllerError> {
        for revision in revisions {
            let (name, uid) = (revision.name_any(), revision.uid().unwrap_or_default());
            let same = Preconditions { uid: Some(uid.clone()), resource_version: None };
            let params = DeleteParams { preconditions: Some(same), ..Default::default() };
            match self.api(revision.namespace()).delete(&name, &params).await {
                Ok(_) => self.mirror.forget(&Key::of(&revision.metadata), &uid),
                Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {
                    self.mirror.forget(&Key::of(&revision.metadata), &uid);
                }
                Err(error) => return Err(ControllerError::of("delete ControllerRevision", name)(error)),
            }
        }
        Ok(())
    }
}

/// The names of revisions.
#[must_use]
pub fn names(revisions: &[Arc<ControllerRevision>]) -> BTreeSet<String> {
    revisions.iter().map(|r| r.name_any()).collect()
}

#[cfg(test)]
mod tests {
    use trine_typed::k8s_openapi::api::apps::v1::DaemonSet;

    use super::*;

    fn template(image: &str) -> PodTemplateSpec {
        serde_json::from_value(json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": image}]}}))
            .unwrap()
    }

    fn kept(image: &str, number: i64) -> Arc<ControllerRevision> {
        let owner: DaemonSet =
            serde_json::from_value(json!({"metadata": {"name": "d", "namespace": "ns", "uid": "u"},
            "spec": {"selector": {}, "template": {}}}))
            .unwrap();
        Arc::new(revision(&owner, &template(image), "hash", None, number))
    }

    #[test]
    fn a_revision_keeps_a_template_and_is_named_after_it() {
        let found = json!(kept("i:1", 3));
        let hash = found["metadata"]["labels"]["hash"].as_str().unwrap();
        assert_eq!(found["metadata"]["name"], format!("d-{hash}"));
        assert_eq!((&found["metadata"]["labels"]["app"], &found["revision"]), (&json!("a"), &json!(3)));
        assert_eq!(found["data"]["spec"]["template"]["$patch"], "replace");
        assert_eq!(template_of(&kept("i:1", 3)), Some(template("i:1")));
    }

    #[test]
    fn the_present_revision_is_found_by_its_template_and_gets_the_highest_number() {
        type Row<'a> = (&'a str, &'a [(&'a str, i64)], Option<i64>, i64, &'a [i64]);
        let rows: [Row; 5] = [
            ("none", &[], None, 1, &[]),
            ("a new template", &[("b", 2), ("c", 1)], None, 3, &[1, 2]),
            ("the same as ever", &[("b", 1), ("a", 2)], Some(2), 2, &[1]),
            ("rolled back", &[("a", 1), ("b", 2)], Some(1), 3, &[2]),
            ("twice the same", &[("a", 1), ("a", 2)], Some(2), 2, &[1]),
        ];
        for (name, revisions, current, number, olds) in rows {
            let revisions = revisions.iter().map(|(image, number)| kept(image, *number)).collect();
            let found = history(revisions, &template("a"));
            assert_eq!(found.current.and_then(|c| c.revision), current, "{name}");
            assert_eq!(found.number, number, "{name}");
            assert_eq!(found.olds.iter().filter_map(|r| r.revision).collect::<Vec<_>>(), olds, "{name}");
        }
    }

    #[test]
    fn the_oldest_that_nothing_uses_go() {
        let olds: Vec<_> = (1..=5).map(|n| kept(&format!("i:{n}"), n)).collect();
        let gone = |limit| {
            let gone = beyond_history(&olds, Some(limit), |r| r.revision == Some(1));
            gone.iter().filter_map(|r| r.revision).collect::<Vec<_>>()
        };
        assert_eq!((gone(2), gone(0), gone(9)), (vec![2, 3], vec![2, 3, 4, 5], vec![]));
    }
}
