//! What a request wants, as those who decide about it see it. Read from method and path alone, whether the resource exists or
//! not: who may not ask is not told.

use http::Method;
use trine_objects::selector::field::FieldSelector;

use crate::request::Query;
use crate::status::ApiError;
use crate::user::User;

/// Parts of a namespace itself; anything else below a namespace is inside of it.
const NAMESPACE_PARTS: [&str; 2] = ["status", "finalize"];

/// What somebody wants to do with some resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resource {
    /// API group; the core group is empty.
    pub group: String,
    /// Version, which no decision looks at.
    pub version: String,
    /// Plural name.
    pub resource: String,
    /// Below the object; empty for the object.
    pub subresource: String,
    /// Empty for all namespaces and outside of them.
    pub namespace: String,
    /// Empty for many objects.
    pub name: String,
    /// The field selector, as it was given.
    pub fields: String,
    /// The label selector, as it was given.
    pub labels: String,
}

/// What a request is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// Objects.
    Resource(Resource),
    /// A path that names no objects.
    Path(String),
}

/// What a request wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, `proxy`; of a path the
    /// method in lower case.
    pub verb: String,
    /// What it is about.
    pub subject: Subject,
}

impl Resource {
    /// `pods`, `pods/log`.
    #[must_use]
    pub fn combined(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }

    /// `pods`, `deployments.apps`.
    #[must_use]
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.resource.clone()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }
}

impl Attributes {
    /// A wish about objects that no request stands for: `(verb, group, resource[/subresource], namespace, name)`.
    #[must_use]
    pub fn of(verb: &str, group: &str, resource: &str, namespace: &str, name: &str) -> Self {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let resource = Resource {
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..Resource::default()
        };
        Self { verb: verb.to_owned(), subject: Subject::Resource(resource) }
    }

    /// Reads a request.
    #[must_use]
    pub fn read(method: &Method, path: &str, query: &str) -> Self {
        let by_method =
            || Self { verb: method.as_str().to_ascii_lowercase(), subject: Subject::Path(path.to_owned()) };
        let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
        let (group, version, mut rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return by_method(),
        };
        if rest.is_empty() {
            return by_method();
        }
        let mut verb = match *method {
            Method::POST => "create",
            Method::GET | Method::HEAD => "get",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "",
        };
        if let ["watch" | "proxy", after @ ..] = rest
            && !after.is_empty()
        {
            verb = rest[0];
            rest = after;
        }
        let mut namespace = "";
        if let ["namespaces", name, inside @ ..] = rest {
            namespace = name;
            if inside.first().is_some_and(|p| !NAMESPACE_PARTS.contains(p)) {
                rest = inside;
            }
        }
        let part = |i: usize| rest.get(i).copied().unwrap_or_default().to_owned();
        let query = Query::parse(query);
        let given = |key: &str| query.get(key).unwrap_or_default().to_owned();
        let mut resource = Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: part(0),
            name: part(1),
            subresource: if verb == "proxy" { String::new() } else { part(2) },
            namespace: namespace.to_owned(),
            fields: given("fieldSelector"),
            labels: given("labelSelector"),
        };
        if resource.name.is_empty() {
            match verb {
                "get" if query.flag("watch") => verb = "watch",
                "get" => verb = "list",
                "delete" => verb = "deletecollection",
                _ => {}
            }
            // Who wants the one object of a name may be allowed that name only.
            if matches!(verb, "list" | "watch" | "deletecollection") {
                resource.name = field(&resource.fields, "metadata.name").unwrap_or_default();
            }
        }
        Self { verb: verb.to_owned(), subject: Subject::Resource(resource) }
    }

    /// The same as a creation, if it opens a stream into a container.
    #[must_use]
    pub fn as_creation(&self) -> Option<Self> {
        match &self.subject {
            Subject::Resource(r)
                if self.verb == "get"
                    && r.group.is_empty()
                    && r.resource == "pods"
                    && matches!(r.subresource.as_str(), "exec" | "attach" | "portforward") =>
            {
                Some(Self { verb: "create".to_owned(), subject: self.subject.clone() })
            }
            _ => None,
        }
    }

    /// Whether objects are only looked at.
    #[must_use]
    pub fn is_read(&self) -> bool {
        matches!(self.verb.as_str(), "get" | "list" | "watch")
    }

    /// The refusal of this to a user, and perhaps why.
    #[must_use]
    pub fn denied(&self, user: &User, why: &str) -> ApiError {
        let mut message = self.refusal(user);
        if !why.is_empty() {
            message = format!("{message}: {why}");
        }
        let (resource, name) = match &self.subject {
            Subject::Resource(r) => (r.qualified(), r.name.clone()),
            Subject::Path(_) => (String::new(), String::new()),
        };
        ApiError::Denied { resource, name, why: message }
    }

    /// Who may not do what, in the words that clients know.
    #[must_use]
    pub fn refusal(&self, user: &User) -> String {
        let (user, verb) = (&user.name, &self.verb);
        match &self.subject {
            Subject::Path(path) => format!("User {user:?} cannot {verb} path {path:?}"),
            Subject::Resource(r) => {
                let (what, group) = (r.combined(), &r.group);
                let place = if r.namespace.is_empty() {
                    "at the cluster scope".to_owned()
                } else {
                    format!("in the namespace {:?}", r.namespace)
                };
                format!("User {user:?} cannot {verb} resource {what:?} in API group {group:?} {place}")
            }
        }
    }
}

/// The value that a field selector wants of a field. Read as the list reads it: what is taken for a term here and for a part
/// of a value there would let somebody see more than he may.
#[must_use]
pub fn field(selector: &str, name: &str) -> Option<String> {
    FieldSelector::parse(selector).ok()?.required(name).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(group: &str, resource: &str, sub: &str, namespace: &str, name: &str) -> Subject {
        let text = str::to_owned;
        Subject::Resource(Resource {
            group: text(group),
            version: text("v1"),
            resource: text(resource),
            subresource: text(sub),
            namespace: text(namespace),
            name: text(name),
            ..Resource::default()
        })
    }

    #[test]
    fn requests_are_read_as_upstream_reads_them() {
        let rows = [
            (Method::GET, "/api/v1/pods", "", "list", resource("", "pods", "", "", "")),
            (Method::GET, "/api/v1/pods", "watch=true", "watch", resource("", "pods", "", "", "")),
            (
                Method::GET,
                "/api/v1/namespaces/d/pods/a/log",
                "",
                "get",
                resource("", "pods", "log", "d", "a"),
            ),
            (
                Method::DELETE,
                "/api/v1/namespaces/d/pods",
                "",
                "deletecollection",
                resource("", "pods", "", "d", ""),
            ),
            (
                Method::POST,
                "/api/v1/namespaces/d/pods/a/exec",
                "",
                "create",
                resource("", "pods", "exec", "d", "a"),
            ),
            (Method::GET, "/api/v1/namespaces/d", "", "get", resource("", "namespaces", "", "d", "d")),
            (
                Method::PUT,
                "/api/v1/namespaces/d/finalize",
                "",
                "update",
                resource("", "namespaces", "finalize", "d", "d"),
            ),
            (
                Method::PATCH,
                "/apis/apps/v1/namespaces/d/deployments/x/scale",
                "",
                "patch",
                resource("apps", "deployments", "scale", "d", "x"),
            ),
            (Method::GET, "/apis/none/v1/things", "", "list", resource("none", "things", "", "", "")),
            (Method::GET, "/api/v1/watch/namespaces/d/pods", "", "watch", resource("", "pods", "", "d", "")),
            (Method::GET, "/apis/apps/v1", "", "get", Subject::Path("/apis/apps/v1".to_owned())),
            (Method::POST, "/metrics", "", "post", Subject::Path("/metrics".to_owned())),
        ];
        for (method, path, query, verb, subject) in rows {
            let got = Attributes::read(&method, path, query);
            assert_eq!(got, Attributes { verb: verb.to_owned(), subject }, "{method} {path}");
        }
        let named =
            Attributes::read(&Method::GET, "/api/v1/namespaces/d/secrets", "fieldSelector=metadata.name%3Ds");
        assert!(matches!(named.subject, Subject::Resource(r) if r.name == "s"));
        let sly = "metadata.namespace!=x\\,metadata.name=s";
        assert_eq!(field(sly, "metadata.name"), None, "a part of a value is no term");
    }

    #[test]
    fn refusals_read_as_clients_know_them() {
        let user = User::new("x", &[]);
        let list = Attributes::of("list", "", "pods", "default", "");
        assert_eq!(
            list.refusal(&user),
            "User \"x\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""
        );
        let nodes = Attributes::of("get", "", "nodes/proxy", "", "n");
        assert!(nodes.refusal(&user).ends_with("\"nodes/proxy\" in API group \"\" at the cluster scope"));
        let path = Attributes::read(&Method::GET, "/api", "");
        assert_eq!(path.refusal(&user), "User \"x\" cannot get path \"/api\"");
    }
}
