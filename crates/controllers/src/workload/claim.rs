//! Taking over and letting go: what a selector selects and nobody controls becomes ours; what is ours and not selected any
//! longer is let go.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::OnceCell;
use trine_objects::selector::label::LabelSelector;
use trine_typed::k8s_openapi::NamespaceResourceScope;
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use trine_typed::kube::api::{Patch, PatchParams};
use trine_typed::kube::{self, Api, Client, Resource, ResourceExt};
use trine_typed::mirror::{Kind, Mirror, controller_of};

use super::doubt;
use super::selecting::selects;
use crate::frame::ControllerError;

/// What an owner has to do about an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// It is the owner's.
    Ours,
    /// It is nobody's and is to become the owner's.
    Adopt,
    /// It is the owner's and is to be nobody's.
    Release,
    /// It is none of the owner's business.
    Leave,
}

/// Decides about an object. An owner that is being deleted changes nothing.
#[must_use]
pub fn claim(owner: &ObjectMeta, selected: bool, object: &ObjectMeta) -> Claim {
    let deleting = |meta: &ObjectMeta| meta.deletion_timestamp.is_some();
    match controller_of(object) {
        Some(other) if Some(other.uid.as_str()) != owner.uid.as_deref() => Claim::Leave,
        Some(_) if selected => Claim::Ours,
        Some(_) if !deleting(owner) => Claim::Release,
        None if selected && !deleting(owner) && !deleting(object) && owner.namespace == object.namespace => {
            Claim::Adopt
        }
        _ => Claim::Leave,
    }
}

/// The owner reference of a controller.
#[must_use]
pub fn reference<O: Resource<DynamicType = ()>>(owner: &O) -> OwnerReference {
    OwnerReference {
        api_version: O::api_version(&()).into_owned(),
        kind: O::kind(&()).into_owned(),
        name: owner.name_any(),
        uid: owner.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Claims for one owner.
pub struct Claimer<'a, O> {
    /// The way of the controller.
    pub client: &'a Client,
    /// The owner.
    pub owner: &'a O,
    /// What it selects.
    pub selector: &'a LabelSelector,
    /// Finalizers that what is adopted gets, and what is released loses.
    pub finalizers: &'a [&'a str],
}

impl<O: Kind + Resource<Scope = NamespaceResourceScope>> Claimer<'_, O> {
    /// What may be the owner's, for [`Self::claim`] to look at; looked up first if that is doubted.
    ///
    /// # Errors
    /// What [`doubt::resolve`] says.
    pub async fn candidates<D: Kind + Resource<Scope = NamespaceResourceScope>>(
        &self,
        mirror: &Mirror<D>,
    ) -> Result<Vec<Arc<D>>, ControllerError> {
        doubt::resolve(self.client, mirror, self.owner, self.selector).await?;
        let mut objects = mirror.controlled_by(&self.owner.uid().unwrap_or_default());
        let orphans = mirror.orphans(&self.owner.namespace().unwrap_or_default());
        objects.extend(orphans.into_iter().filter(|object| selects(self.selector, object.meta())));
        Ok(objects)
    }

    /// Takes over and lets go among these objects, and returns those that are the owner's now.
    ///
    /// # Errors
    /// The first refused write; the others have been tried.
    pub async fn claim<D: Kind + Resource<Scope = NamespaceResourceScope>>(
        &self,
        mirror: &Mirror<D>,
        objects: Vec<Arc<D>>,
    ) -> Result<Vec<Arc<D>>, ControllerError> {
        let (mut ours, mut failure, alive) = (Vec::new(), None, OnceCell::new());
        for object in objects {
            let selected = selects(self.selector, object.meta());
            let done = match claim(self.owner.meta(), selected, object.meta()) {
                Claim::Leave => continue,
                Claim::Ours => Ok(Some(object)),
                // A copy may be behind: the owner may be gone, and another one of its name there.
                Claim::Adopt => match alive.get_or_try_init(|| self.alive()).await {
                    Ok(true) => self.adopt(mirror, &object).await,
                    Ok(false) => continue,
                    Err(error) => Err(error),
                },
                Claim::Release => self.release(mirror, &object).await.map(|()| None),
            };
            match done {
                Ok(done) => ours.extend(done),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(ours), Err)
    }

    async fn alive(&self) -> Result<bool, ControllerError> {
        let api: Api<O> = Api::namespaced(self.client.clone(), &self.owner.namespace().unwrap_or_default());
        let name = self.owner.name_any();
        let found = api.get_opt(&name).await.map_err(ControllerError::of("get owner", name))?;
        Ok(found.is_some_and(|o| o.uid() == self.owner.uid() && o.meta().deletion_timestamp.is_none()))
    }

    async fn adopt<D: Kind + Resource<Scope = NamespaceResourceScope>>(
        &self,
        mirror: &Mirror<D>,
        object: &D,
    ) -> Result<Option<Arc<D>>, ControllerError> {
        let mut meta = json!({"uid": object.uid(), "ownerReferences": [reference(self.owner)]});
        if !self.finalizers.is_empty() {
            meta["finalizers"] = json!(self.finalizers);
        }
        match self.patch(object, meta).await {
            Ok(adopted) => {
                mirror.learn(&adopted);
                Ok(Some(Arc::new(adopted)))
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => {
                doubt::note(mirror, &self.owner.uid().unwrap_or_default(), &error);
                Err(ControllerError::of("adopt", object.name_any())(error))
            }
        }
    }

    async fn release<D: Kind + Resource<Scope = NamespaceResourceScope>>(
        &self,
        mirror: &Mirror<D>,
        object: &D,
    ) -> Result<(), ControllerError> {
        let mut meta = json!({"uid": object.uid(),
            "ownerReferences": [{"$patch": "delete", "uid": self.owner.uid()}]});
        if !self.finalizers.is_empty() {
            meta["$deleteFromPrimitiveList/finalizers"] = json!(self.finalizers);
        }
        match self.patch(object, meta).await {
            Ok(released) => mirror.learn(&released),
            // It is gone, or another one of its name is there.
            Err(kube::Error::Api(status)) if [404, 422].contains(&status.code) => {}
            // That may be said of a UID; but also of a lost race, after which it is still there.
            Err(error) => return Err(ControllerError::of("release", object.name_any())(error)),
        }
        Ok(())
    }

    async fn patch<D: Kind + Resource<Scope = NamespaceResourceScope>>(
        &self,
        object: &D,
        meta: Value,
    ) -> Result<D, kube::Error> {
        let api: Api<D> = Api::namespaced(self.client.clone(), &object.namespace().unwrap_or_default());
        let patch = Patch::Strategic(json!({"metadata": meta}));
        api.patch(&object.name_any(), &PatchParams::default(), &patch).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_selected_and_nobodys_is_adopted() {
        let meta = |value: Value| -> ObjectMeta { serde_json::from_value(value).unwrap() };
        let owner = || json!({"namespace": "ns", "uid": "o"});
        let gone = "2026-01-01T00:00:00Z";
        let going = json!({"namespace": "ns", "uid": "o", "deletionTimestamp": gone});
        let of = |uid: &str| {
            let owner = json!({"apiVersion": "v1", "kind": "K", "name": "n", "uid": uid, "controller": true});
            json!({"namespace": "ns", "ownerReferences": [owner]})
        };
        let free = || json!({"namespace": "ns"});
        let rows = [
            ("nobody's", owner(), true, free(), Claim::Adopt),
            ("nobody's, not selected", owner(), false, free(), Claim::Leave),
            ("nobody's, by an owner on its way out", going.clone(), true, free(), Claim::Leave),
            (
                "on its way out",
                owner(),
                true,
                json!({"namespace": "ns", "deletionTimestamp": gone}),
                Claim::Leave,
            ),
            ("elsewhere", owner(), true, json!({"namespace": "other"}), Claim::Leave),
            ("ours", owner(), true, of("o"), Claim::Ours),
            ("ours, not selected", owner(), false, of("o"), Claim::Release),
            ("ours, by an owner on its way out", going.clone(), true, of("o"), Claim::Ours),
            ("ours, not selected, by such an owner", going, false, of("o"), Claim::Leave),
            ("another's", owner(), true, of("other"), Claim::Leave),
        ];
        for (name, owner, selected, object, expected) in rows {
            assert_eq!(claim(&meta(owner), selected, &meta(object)), expected, "{name}");
        }
    }
}
