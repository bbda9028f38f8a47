//! What is noted of which request: `audit.k8s.io/v1` Policy. The first rule that fits a request decides.

use serde::Deserialize;

use crate::access::attributes::{Attributes, Resource, Subject};
use crate::user::User;

/// How much is noted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Level {
    /// Nothing.
    #[default]
    None,
    /// Who, what, when.
    Metadata,
    /// And the body of the request.
    Request,
    /// And the body of the answer.
    RequestResponse,
}

impl Level {
    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// When it is noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Stage {
    /// The request is here.
    RequestReceived,
    /// A long answer begins.
    ResponseStarted,
    /// The answer is complete.
    ResponseComplete,
    /// The server failed.
    Panic,
}

impl Stage {
    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

/// The rules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Policy {
    rules: Vec<Rule>,
    omit_stages: Vec<Stage>,
    omit_managed_fields: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rule {
    level: Level,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    paths: Vec<String>,
    omit_stages: Vec<Stage>,
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

/// What is decided about one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// How much.
    pub level: Level,
    /// Not at these moments.
    pub omit: Vec<Stage>,
    /// Without `metadata.managedFields`.
    pub without_managed_fields: bool,
}

impl Policy {
    /// Reads YAML or JSON.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(text: &str) -> Result<Self, String> {
        let value: serde_json::Value = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
        if value["apiVersion"] != "audit.k8s.io/v1" || value["kind"] != "Policy" {
            return Err("it is not a Policy of audit.k8s.io/v1".to_owned());
        }
        serde_json::from_value(value).map_err(|e| e.to_string())
    }

    /// Who, what and when of everything.
    #[must_use]
    pub fn metadata() -> Self {
        let rule = Rule { level: Level::Metadata, ..Rule::default() };
        let omit_stages = vec![Stage::RequestReceived];
        Self { rules: vec![rule], omit_stages, ..Self::default() }
    }

    /// What is noted of a request.
    #[must_use]
    pub fn decide(&self, user: Option<&User>, wanted: &Attributes) -> Decided {
        let rule = self.rules.iter().find(|rule| rule.fits(user, wanted));
        let omitted = rule.into_iter().flat_map(|r| r.omit_stages.iter());
        Decided {
            level: rule.map_or(Level::None, |r| r.level),
            omit: self.omit_stages.iter().chain(omitted).copied().collect(),
            without_managed_fields: rule
                .and_then(|r| r.omit_managed_fields)
                .unwrap_or(self.omit_managed_fields),
        }
    }
}

impl Rule {
    fn fits(&self, user: Option<&User>, wanted: &Attributes) -> bool {
        let named = |list: &[String], value: &str| list.iter().any(|v| v == value);
        let is_user = self.users.is_empty() || user.is_some_and(|u| named(&self.users, &u.name));
        let in_group = self.user_groups.is_empty()
            || user.is_some_and(|u| u.groups.iter().any(|g| named(&self.user_groups, g)));
        let verb = self.verbs.is_empty() || named(&self.verbs, &wanted.verb) || named(&self.verbs, "*");
        if !(is_user && in_group && verb) {
            return false;
        }
        match &wanted.subject {
            Subject::Resource(_) if self.namespaces.is_empty() && self.resources.is_empty() => {
                self.paths.is_empty()
            }
            Subject::Resource(r) => self.fits_resource(r),
            Subject::Path(_) if self.paths.is_empty() => {
                self.namespaces.is_empty() && self.resources.is_empty()
            }
            Subject::Path(path) => self.paths.iter().any(|p| {
                p == "*" || p == path || p.strip_suffix('*').is_some_and(|start| path.starts_with(start))
            }),
        }
    }

    fn fits_resource(&self, r: &Resource) -> bool {
        if !self.namespaces.is_empty() && !self.namespaces.contains(&r.namespace) {
            return false;
        }
        self.resources.is_empty() || self.resources.iter().any(|group| group.fits(r))
    }
}

impl GroupResources {
    fn fits(&self, r: &Resource) -> bool {
        if self.group != r.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.resource_names.is_empty() && !self.resource_names.contains(&r.name) {
            return false;
        }
        let combined = r.combined();
        self.resources.iter().any(|wanted| {
            *wanted == combined
                || wanted == "*"
                || wanted.strip_prefix("*/").is_some_and(|sub| !sub.is_empty() && sub == r.subresource)
                || wanted.strip_suffix("/*").is_some_and(|resource| resource == r.resource)
        })
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: ["system:kube-proxy"]
  verbs: [watch]
- level: None
  nonResourceURLs: ["/healthz*", "/version"]
- level: RequestResponse
  resources: [{group: "", resources: ["pods/*", "configmaps"], resourceNames: []}]
  namespaces: [kube-system]
- level: Request
  resources: [{group: rbac.authorization.k8s.io}]
- level: Metadata
  userGroups: ["system:authenticated"]
"#;

    #[test]
    fn the_first_rule_that_fits_decides() {
        let policy = Policy::read(POLICY).unwrap();
        let (bob, proxy) = (User::new("bob", &[]), User::new("system:kube-proxy", &[]));
        let of = Attributes::of;
        let rows = [
            (&proxy, of("watch", "", "pods", "", ""), Level::None),
            (&proxy, of("list", "", "pods", "", ""), Level::Metadata),
            (&bob, Attributes::read(&Method::GET, "/healthz/x", ""), Level::None),
            (&bob, Attributes::read(&Method::GET, "/metrics", ""), Level::Metadata),
            (&bob, of("create", "", "pods/exec", "kube-system", "p"), Level::RequestResponse),
            (&bob, of("create", "", "pods", "kube-system", "p"), Level::RequestResponse),
            (&bob, of("create", "", "pods", "default", "p"), Level::Metadata),
            (&bob, of("create", "rbac.authorization.k8s.io", "roles", "default", "r"), Level::Request),
        ];
        for (user, wanted, level) in rows {
            let decided = policy.decide(Some(user), &wanted);
            assert_eq!(decided.level, level, "{} {wanted:?}", user.name);
            assert_eq!(decided.omit, [Stage::RequestReceived]);
        }
        let nobody = policy.decide(Some(&User::anonymous()), &of("list", "", "pods", "", ""));
        assert_eq!(nobody.level, Level::None, "no rule fits");
        for text in ["", "a: b", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Much}]"] {
            assert!(Policy::read(text).is_err(), "{text}");
        }
    }
}
