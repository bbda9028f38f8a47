//! A request as those see it who are configured to decide about it: webhooks and policies.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Change;
use crate::access::attributes::Resource as Wanted;
use crate::access::token::accounts::user_info;
use crate::asked::{Asked, asked};
use crate::catalog::Served;
use crate::kinds::Objects;
use crate::registry::{Registry, text};
use crate::status::ApiError;
use crate::user::{self, User};
use crate::verbs::scale;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// An object is made.
    Create,
    /// An object is changed.
    Update,
    /// An object is deleted.
    Delete,
    /// Somebody connects to what an object stands for.
    Connect,
}

impl Operation {
    /// `CREATE`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }

    /// The kind of its options.
    fn options(self) -> &'static str {
        match self {
            Self::Create | Self::Connect => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Delete => "DeleteOptions",
        }
    }
}

/// A request that is about to be done.
#[derive(Debug)]
pub struct Attempt {
    /// What is done.
    pub operation: Operation,
    /// To objects of what, under the version that was asked for.
    pub resource: Arc<Served>,
    /// Below the object; empty for the object itself.
    pub subresource: String,
    /// Empty for what is in no namespace; of a namespace its own name.
    pub namespace: String,
    /// The object's name; empty if it is not known yet.
    pub name: String,
    /// The options of the request.
    pub options: Value,
    /// Whether nothing will be written.
    pub dry_run: bool,
    /// Who asks.
    pub user: Arc<User>,
    /// Whether the objects are in the form in which they are stored.
    pub stored: bool,
}

impl Attempt {
    /// A write. `None` if nobody has a say about it: the server does it by itself.
    #[must_use]
    pub fn of(change: &Change<'_>, new: Option<&Value>) -> Option<Self> {
        let (user, asked) = (user::caller()?, asked()?);
        let operation = match (change.old, new) {
            (_, None) => Operation::Delete,
            (None, Some(_)) => Operation::Create,
            (Some(_), Some(_)) => Operation::Update,
        };
        let metadata = &new.or(change.old)?["metadata"];
        let place = (text(&metadata["namespace"]), text(&metadata["name"]));
        let mut attempt = Self::new(operation, &asked, user, change.subresource, place);
        attempt.dry_run = change.dry_run;
        attempt.stored = true;
        Some(attempt)
    }

    /// Something that is done to a part of an object, in the form of that part: a binding, a command.
    #[must_use]
    pub fn of_part(
        operation: Operation,
        part: &str,
        (namespace, name): (&str, &str),
        dry_run: bool,
    ) -> Option<Self> {
        let (user, asked) = (user::caller()?, asked()?);
        let mut attempt = Self::new(operation, &asked, user, part, (namespace, name));
        attempt.dry_run = dry_run;
        Some(attempt)
    }

    fn new(
        operation: Operation,
        asked: &Asked,
        user: Arc<User>,
        subresource: &str,
        (namespace, name): (&str, &str),
    ) -> Self {
        let resource = Arc::clone(&asked.resource);
        let of_itself = resource.group.is_empty() && resource.plural == "namespaces";
        Self {
            operation,
            subresource: subresource.to_owned(),
            namespace: if of_itself { name } else { namespace }.to_owned(),
            name: name.to_owned(),
            options: if operation == Operation::Connect {
                Value::Null
            } else {
                asked.options(operation.options())
            },
            dry_run: false,
            user,
            stored: false,
            resource,
        }
    }

    /// Whether it is about namespaces.
    #[must_use]
    pub fn is_of_namespaces(&self) -> bool {
        self.resource.group.is_empty() && self.resource.plural == "namespaces"
    }

    /// The namespace that it happens in.
    #[must_use]
    pub fn namespace_object(&self, registry: &Registry) -> Option<Value> {
        Objects::get(registry, "", "namespaces", "", &self.namespace).filter(|_| !self.namespace.is_empty())
    }

    /// The same as a question to those who decide who may do what.
    #[must_use]
    pub fn wanted(&self) -> Wanted {
        Wanted {
            group: self.resource.group.to_string(),
            version: self.resource.version.to_string(),
            resource: self.resource.plural.to_string(),
            subresource: self.subresource.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            ..Wanted::default()
        }
    }

    /// An object of this request under a version of its resource.
    ///
    /// # Errors
    /// [`ApiError::Failed`] if a webhook does not convert it.
    pub async fn shown(
        &self,
        registry: &Registry,
        version: &Served,
        object: Option<&Value>,
    ) -> Result<Option<Value>, ApiError> {
        let Some(object) = object else { return Ok(None) };
        let mut shown = object.clone();
        if self.stored {
            version.show(registry, &mut shown).await?;
            if self.subresource == "scale" {
                shown = scale::view(&shown, &version.scale_paths());
            }
        }
        Ok(Some(shown))
    }

    /// The request, as it is told to one who knows it under a version: an `AdmissionRequest` without id and objects.
    #[must_use]
    pub fn told(&self, version: &Served) -> Value {
        let resource = |r: &Served| json!({"group": r.group, "version": r.version, "resource": r.plural});
        let mut told = json!({
            "kind": kind(version, &self.subresource), "resource": resource(version),
            "requestKind": kind(&self.resource, &self.subresource), "requestResource": resource(&self.resource),
            "operation": self.operation.name(), "userInfo": user_info(&self.user), "dryRun": self.dry_run,
            "options": self.options,
        });
        for (key, value) in [
            ("subResource", &self.subresource),
            ("requestSubResource", &self.subresource),
            ("name", &self.name),
            ("namespace", &self.namespace),
        ] {
            if !value.is_empty() {
                told[key] = value.as_str().into();
            }
        }
        told
    }
}

/// The kind of what is written to a resource or to a part of it.
fn kind(resource: &Served, subresource: &str) -> Value {
    match resource.subresource(subresource) {
        Some(part) => json!({"group": part.group, "version": part.version, "kind": part.kind}),
        None => json!({"group": resource.group, "version": resource.version, "kind": resource.kind}),
    }
}
