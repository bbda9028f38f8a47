//! Where a policy is in force, and with which parameters.

use serde_json::Value;
use trine_objects::selector::label::LabelSelector;

use crate::admission::matching::Matching;
use crate::registry::text;

/// Where a policy is in force.
#[derive(Debug)]
pub struct Binding {
    /// Its name.
    pub name: String,
    /// The policy's.
    pub policy: String,
    /// For which requests, of those that the policy wants.
    pub matching: Matching,
    /// Which parameters.
    pub params: Option<ParamRef>,
    /// What is done when a validation fails: `Deny`, `Warn`, `Audit`.
    pub actions: Vec<String>,
}

/// Which parameters a policy is told.
#[derive(Debug)]
pub struct ParamRef {
    /// One, by its name.
    pub name: String,
    /// In this namespace; where the request is if it is empty.
    pub namespace: String,
    /// Those that are selected.
    pub selector: Option<LabelSelector>,
    /// Whether requests are refused where there are none.
    pub needed: bool,
}

impl Binding {
    /// Reads a binding.
    #[must_use]
    pub fn read(binding: &Value) -> Self {
        let spec = &binding["spec"];
        let params = &spec["paramRef"];
        let selector = &params["selector"];
        let actions = spec["validationActions"].as_array().into_iter().flatten();
        Self {
            name: text(&binding["metadata"]["name"]).to_owned(),
            policy: text(&spec["policyName"]).to_owned(),
            matching: Matching::of_resources(&spec["matchResources"]),
            params: params.is_object().then(|| ParamRef {
                name: text(&params["name"]).to_owned(),
                namespace: text(&params["namespace"]).to_owned(),
                selector: selector
                    .is_object()
                    .then(|| LabelSelector::from_object(selector).unwrap_or_default()),
                needed: params["parameterNotFoundAction"] == "Deny",
            }),
            actions: actions.map(|a| text(a).to_owned()).collect(),
        }
    }
}
