//! What all policies have in common.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use crate::admission::conditions::Conditions;
use crate::admission::matching::Matching;
use crate::registry::text;
use trine_cel::{Expression, Known, Variables};

/// A policy; `E` is what it decides.
#[derive(Debug)]
pub struct Policy<E> {
    /// Its name.
    pub name: String,
    /// Which requests it decides about.
    pub matching: Matching,
    /// What must hold of these beside.
    pub conditions: Conditions,
    /// The kind of its parameters.
    pub param_kind: Option<ParamKind>,
    /// Whether what goes wrong is passed over.
    pub lenient: bool,
    /// Its named expressions.
    pub variables: Variables,
    /// What it decides.
    pub decides: E,
}

/// The kind of parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamKind {
    /// `group/version`.
    pub api_version: String,
    /// The kind.
    pub kind: String,
}

/// What of a policy's expressions is read with: its names.
pub struct Names {
    params: bool,
    variables: Vec<String>,
}

impl Names {
    /// What an expression may use; `authorizer` says whether it may ask who may do what.
    #[must_use]
    pub fn known(&self, authorizer: bool) -> Known<'_> {
        Known { params: self.params, authorizer, variables: &self.variables, ..Known::default() }
    }

    /// What an expression may use that makes a change.
    #[must_use]
    pub fn known_to_changes(&self) -> Known<'_> {
        Known { objects: true, ..self.known(true) }
    }
}

impl<E> Policy<E> {
    /// Reads a policy. `decides` reads what it decides, which may use its names.
    pub fn read(policy: &Value, decides: impl FnOnce(&Value, &Names) -> E) -> Self {
        let spec = &policy["spec"];
        let lenient = spec["failurePolicy"] == "Ignore";
        let param_kind = spec["paramKind"].is_object().then(|| ParamKind {
            api_version: text(&spec["paramKind"]["apiVersion"]).to_owned(),
            kind: text(&spec["paramKind"]["kind"]).to_owned(),
        });
        let mut names = Names { params: param_kind.is_some(), variables: Vec::new() };
        let mut variables = HashMap::new();
        for variable in spec["variables"].as_array().into_iter().flatten() {
            // One that does not compile is not known to those after it: they say so.
            if let Ok(expression) = Expression::compile(text(&variable["expression"]), &names.known(true)) {
                let name = text(&variable["name"]).to_owned();
                variables.insert(name.clone(), expression);
                names.variables.push(name);
            }
        }
        let alone = Known { params: names.params, authorizer: true, ..Known::default() };
        Self {
            name: text(&policy["metadata"]["name"]).to_owned(),
            matching: Matching::of_resources(&spec["matchConstraints"]),
            conditions: Conditions::read(&spec["matchConditions"], &alone, lenient),
            param_kind,
            lenient,
            variables: Arc::new(variables),
            decides: decides(spec, &names),
        }
    }
}
