//! `authorizer`: an expression asks whether somebody may do something, as in
//! `authorizer.group('').resource('pods').namespace('x').check('create').allowed()`.

use std::sync::Arc;

use trine_cel::cel::extractors::This;
use trine_cel::cel::objects::Opaque;
use trine_cel::cel::{Context, ExecutionError, ResolveResult, Value as Cel};
use trine_cel::{Names, REQUEST_RESOURCE};

use crate::access::Authorizer;
use crate::access::attributes::{Attributes, Resource, Subject};
use crate::access::decision::Decision;
use crate::user::User;

/// Who asks whom, and about which object a request is.
#[derive(Clone)]
pub struct Asking {
    /// Who decides.
    pub authorizer: Arc<Authorizer>,
    /// Whose request it is.
    pub user: Arc<User>,
    /// What the request is about: `authorizer.requestResource`.
    pub request: Resource,
}

impl Asking {
    /// `authorizer` and `authorizer.requestResource`.
    fn roots(&self) -> (Cel, Cel) {
        let user = Arc::clone(&self.user);
        let own = Asked::Resource { user: Arc::clone(&user), wanted: self.request.clone() };
        (Asked::Anything { user }.into(), own.into())
    }
}

impl Names for Asking {
    fn add(&self, context: &mut Context<'static>) {
        let (everything, own) = self.roots();
        context.add_variable_from_value("authorizer", everything);
        context.add_variable_from_value(REQUEST_RESOURCE, own);
        register(context, self);
    }
}

/// What was asked for so far.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    Anything { user: Arc<User> },
    Path { user: Arc<User>, path: String },
    Group { user: Arc<User>, group: String },
    Resource { user: Arc<User>, wanted: Resource },
    Answer { allowed: bool, reason: String },
}

impl Opaque for Asked {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.authorization.Authorizer"
    }
}

impl From<Asked> for Cel {
    fn from(asked: Asked) -> Self {
        Self::Opaque(Arc::new(asked))
    }
}

/// Adds the functions.
fn register(context: &mut Context<'_>, asking: &Asking) {
    context.add_function("path", |This(this): This<Cel>, path: Arc<String>| match asked(&this)? {
        Asked::Anything { user } => given(Asked::Path { user, path: path.to_string() }),
        _ => overload(),
    });
    context.add_function(
        "serviceAccount",
        |This(this): This<Cel>, namespace: Arc<String>, name: Arc<String>| match asked(&this)? {
            Asked::Anything { .. } => {
                given(Asked::Anything { user: Arc::new(User::account(&namespace, &name, "")) })
            }
            _ => overload(),
        },
    );
    context.add_function("group", |This(this): This<Cel>, group: Arc<String>| match asked(&this)? {
        Asked::Anything { user } => given(Asked::Group { user, group: group.to_string() }),
        _ => overload(),
    });
    context.add_function("resource", |This(this): This<Cel>, resource: Arc<String>| match asked(&this)? {
        Asked::Group { user, group } => {
            let wanted = Resource {
                group,
                version: "*".to_owned(),
                resource: resource.to_string(),
                ..Resource::default()
            };
            given(Asked::Resource { user, wanted })
        }
        _ => overload(),
    });
    narrowing(context, "subresource", |wanted, to| wanted.subresource = to);
    narrowing(context, "namespace", |wanted, to| wanted.namespace = to);
    narrowing(context, "name", |wanted, to| wanted.name = to);
    narrowing(context, "fieldSelector", |wanted, to| wanted.fields = to);
    narrowing(context, "labelSelector", |wanted, to| wanted.labels = to);
    let authorizer = Arc::clone(&asking.authorizer);
    context.add_function("check", move |This(this): This<Cel>, verb: Arc<String>| {
        let (user, subject) = match asked(&this)? {
            Asked::Path { user, path } => (user, Subject::Path(path)),
            Asked::Resource { user, wanted } => (user, Subject::Resource(wanted)),
            _ => return overload(),
        };
        let wanted = Attributes { verb: verb.to_string(), subject };
        given(match authorizer.decide(&user, &wanted) {
            Decision::Allow(reason) => Asked::Answer { allowed: true, reason },
            Decision::NoOpinion(reason) => Asked::Answer { allowed: false, reason },
        })
    });
    context.add_function("allowed", |This(this): This<Cel>| match asked(&this)? {
        Asked::Answer { allowed, .. } => Ok(Cel::Bool(allowed)),
        _ => overload(),
    });
    context.add_function("reason", |This(this): This<Cel>| match asked(&this)? {
        Asked::Answer { reason, .. } => Ok(reason.into()),
        _ => overload(),
    });
    // Decisions are made in memory: none fails.
    context.add_function("errored", |This(this): This<Cel>| match asked(&this)? {
        Asked::Answer { .. } => Ok(Cel::Bool(false)),
        _ => overload(),
    });
    context.add_function("error", |This(this): This<Cel>| match asked(&this)? {
        Asked::Answer { .. } => Ok(String::new().into()),
        _ => overload(),
    });
}

fn narrowing(context: &mut Context<'_>, name: &str, narrow: fn(&mut Resource, String)) {
    context.add_function(name, move |This(this): This<Cel>, to: Arc<String>| match asked(&this)? {
        Asked::Resource { user, mut wanted } => {
            narrow(&mut wanted, to.to_string());
            given(Asked::Resource { user, wanted })
        }
        _ => overload(),
    });
}

fn asked(value: &Cel) -> Result<Asked, ExecutionError> {
    match value {
        Cel::Opaque(opaque) => opaque.downcast_ref::<Asked>().cloned().ok_or(ExecutionError::NoSuchOverload),
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

fn given(asked: Asked) -> ResolveResult {
    Ok(asked.into())
}

fn overload() -> ResolveResult {
    Err(ExecutionError::NoSuchOverload)
}
