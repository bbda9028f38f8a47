//! `matchConditions`: expressions that must all hold before a webhook or a policy is asked.

use serde_json::Value;

use crate::registry::text;
use trine_cel::{Expression, Known, Run};

/// Expressions that must all hold.
#[derive(Debug, Default)]
pub struct Conditions {
    all: Vec<Result<Expression, String>>,
    /// Whether what cannot be said counts as no.
    lenient: bool,
}

/// Whether conditions are met.
#[derive(Debug, PartialEq, Eq)]
pub enum Met {
    /// All hold.
    Yes,
    /// One does not.
    No,
    /// One cannot be evaluated, the others hold, and the policy is to fail.
    Unknown(String),
}

impl Conditions {
    /// Reads `matchConditions`.
    #[must_use]
    pub fn read(list: &Value, known: &Known<'_>, lenient: bool) -> Self {
        let list = list.as_array().into_iter().flatten();
        Self { all: list.map(|c| Expression::compile(text(&c["expression"]), known)).collect(), lenient }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether they are met: one that does not hold decides, whatever cannot be said of the others.
    #[must_use]
    pub fn met(&self, run: &Run) -> Met {
        let mut errors = Vec::new();
        for condition in &self.all {
            let holds = match condition {
                Ok(expression) => run
                    .holds(expression)
                    .map_err(|e| format!("expression '{}' resulted in error: {e}", expression.text)),
                Err(error) => Err(error.clone()),
            };
            match holds {
                Ok(true) => {}
                Ok(false) => return Met::No,
                Err(error) => errors.push(error),
            }
        }
        match errors.as_slice() {
            [] => Met::Yes,
            _ if self.lenient => Met::No,
            [one] => Met::Unknown(one.clone()),
            many => Met::Unknown(format!("[{}]", many.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use trine_cel::Bindings;

    #[test]
    fn one_that_does_not_hold_decides_before_one_that_fails() {
        let object = json!({"a": 1});
        let run = Run::new(Bindings { object: Some(&object), ..Bindings::default() });
        let met = |expressions: &[&str], lenient| {
            let list: Vec<Value> = expressions.iter().map(|e| json!({"expression": e})).collect();
            Conditions::read(&list.into(), &Known::default(), lenient).met(&run)
        };
        assert_eq!(met(&["object.a == 1", "true"], false), Met::Yes);
        assert_eq!(met(&["object.b == 1", "object.a == 2"], false), Met::No);
        assert_eq!(met(&["object.b == 1", "true"], true), Met::No);
        let Met::Unknown(why) = met(&["object.b == 1", "true"], false) else { panic!("it is known") };
        assert_eq!(why, "expression 'object.b == 1' resulted in error: no such key: b");
    }
}
