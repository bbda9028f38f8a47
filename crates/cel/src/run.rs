//! Evaluates expressions about one request.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use kube_cel::KubeCelExt;
use kube_cel::cel::{Context, ExecutionError, FunctionContext, ResolveResult, Value as Cel};
use serde_json::Value;

use crate::Expression;
use crate::functions;
use crate::rewrite::{STEP, VARIABLE};
use crate::stack::evaluating;
use crate::values::to_cel;

/// Rounds of loops in all expressions of one run. Upstream counts costs, of which a round is at least one: 1,000,000 for an
/// expression.
const MOST_STEPS: u64 = 1_000_000;

/// The named expressions of a policy.
pub type Variables = Arc<HashMap<String, Expression>>;

/// What brings names and functions of its own.
pub trait Names {
    /// Adds them. Called once for each [`Run`], before anything is evaluated.
    fn add(&self, context: &mut Context<'static>);
}

/// What the names in expressions stand for.
#[derive(Default)]
pub struct Bindings<'a> {
    /// The object as it is to be.
    pub object: Option<&'a Value>,
    /// The object as it is.
    pub old: Option<&'a Value>,
    /// The request.
    pub request: Option<&'a Value>,
    /// What a policy is told by its binding.
    pub params: Option<&'a Value>,
    /// The object's namespace.
    pub namespace: Option<&'a Value>,
    /// Further names, with their functions.
    pub more: Option<&'a dyn Names>,
    /// Named expressions.
    pub variables: Variables,
}

/// Values that are computed when they are needed.
struct Lazy {
    expressions: Variables,
    done: Mutex<HashMap<String, ResolveResult>>,
}

impl Lazy {
    fn get(&self, name: &str, context: &Context<'_>) -> ResolveResult {
        let done = || self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = done().get(name) {
            return known.clone();
        }
        let Some(expression) = self.expressions.get(name) else {
            return Err(ExecutionError::no_such_key(name));
        };
        let value = resolve(expression, context);
        done().insert(name.to_owned(), value.clone());
        value
    }
}

/// The values of one request.
pub struct Run {
    context: Context<'static>,
}

impl Run {
    /// Binds the names.
    #[must_use]
    pub fn new(bindings: Bindings<'_>) -> Self {
        let mut context = Context::default().with_all();
        let of = |value: Option<&Value>| value.map_or(Cel::Null, to_cel);
        for (name, value) in [
            ("object", bindings.object),
            ("oldObject", bindings.old),
            ("request", bindings.request),
            ("params", bindings.params),
            ("namespaceObject", bindings.namespace),
        ] {
            context.add_variable_from_value(name, of(value));
        }
        if let Some(more) = bindings.more {
            more.add(&mut context);
        }
        functions::register(&mut context);
        count_steps(&mut context, Arc::default());
        let lazy = Lazy { expressions: bindings.variables, done: Mutex::default() };
        context.add_function(
            VARIABLE,
            move |within: &FunctionContext<'_, '_>, name: Arc<String>| -> ResolveResult {
                lazy.get(&name, within.ptx)
            },
        );
        Self { context }
    }

    /// What an expression gives.
    ///
    /// # Errors
    /// Why it gives nothing, in upstream's words where it has some.
    pub fn value(&self, expression: &Expression) -> Result<Cel, String> {
        resolve(expression, &self.context).map_err(|e| said(&e))
    }

    /// Whether something holds.
    ///
    /// # Errors
    /// Why that cannot be said.
    pub fn holds(&self, expression: &Expression) -> Result<bool, String> {
        match self.value(expression)? {
            Cel::Bool(holds) => Ok(holds),
            other => Err(format!("must evaluate to bool, got {}", other.type_of())),
        }
    }
}

/// Lets loops go on as long as `steps` allows.
pub(crate) fn count_steps(context: &mut Context<'static>, steps: Arc<AtomicU64>) {
    context.add_function(STEP, move || -> ResolveResult {
        if steps.fetch_add(1, Ordering::Relaxed) < MOST_STEPS {
            return Ok(Cel::Bool(true));
        }
        Err(ExecutionError::function_error("loop", "operation cancelled: actual cost limit exceeded"))
    });
}

pub(crate) fn resolve(expression: &Expression, context: &Context<'_>) -> ResolveResult {
    evaluating(|| Cel::resolve(&expression.ast, context))
}

/// Why an expression gives nothing, in upstream's words where it has some.
pub(crate) fn said(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::NoSuchOverload
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::UnsupportedUnaryOperator(..)
        | ExecutionError::UnsupportedTargetType { .. }
        | ExecutionError::UnexpectedType { .. }
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::NotSupportedAsMethod { .. } => "no such overload".to_owned(),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        ExecutionError::UndeclaredReference(name) => format!("unsupported function: {name}"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Known, to_json};
    use serde_json::json;

    fn evaluated(text: &str, object: &Value) -> Result<Value, String> {
        let known = Known { params: true, objects: true, ..Known::default() };
        let expression = Expression::compile(text, &known)?;
        let run = Run::new(Bindings { object: Some(object), ..Bindings::default() });
        run.value(&expression).map(|v| to_json(&v).unwrap_or(Value::Null))
    }

    #[test]
    fn expressions_mean_what_upstream_means() {
        let object = json!({"metadata": {"name": "x", "namespace": "d", "labels": {"app.kubernetes.io/name": "w"}},
            "spec": {"replicas": 3, "foo-bar": 1, "list": [{"a": 1}, {"a": 2}], "none": null}});
        for (text, wanted) in [
            ("object.spec.replicas > 1", json!(true)),
            ("object.metadata.labels['app.kubernetes.io/name'] == 'w'", json!(true)),
            ("'app.kubernetes.io/name' in object.metadata.labels", json!(true)),
            ("has(object.spec.replicas) && !has(object.spec.other)", json!(true)),
            ("object.metadata.namespace", json!("d")),
            ("object.metadata.__namespace__", json!("d")),
            ("object.spec.foo__dash__bar", json!(1)),
            ("object.spec.list.all(e, e.a > 0)", json!(true)),
            ("object.spec.list.exists(e, e.a > 1)", json!(true)),
            ("object.spec.list.map(e, e.a)", json!([1, 2])),
            ("object.spec.list.filter(e, e.a > 1)[0].a", json!(2)),
            ("object.?spec.?other.orValue('no')", json!("no")),
            ("object.?spec.replicas.orValue(0)", json!(3)),
            ("object[?'nothing'].orValue(7)", json!(7)),
            ("cel.bind(r, object.spec.replicas, r + r)", json!(6)),
            ("oldObject == null", json!(true)),
            ("params == null ? 'none' : params.x", json!("none")),
            (
                "Object{spec: Object.spec{replicas: object.spec.replicas + 1}}",
                json!({"spec": {"replicas": 4}}),
            ),
            (
                "[JSONPatch{op: 'add', path: '/a/' + jsonpatch.escapeKey('b/c'), value: {'x': [1]}}]",
                json!([{"op": "add", "path": "/a/b~1c", "value": {"x": [1]}}]),
            ),
            ("quantity('1Gi').isGreaterThan(quantity('500Mi'))", json!(true)),
            ("string(object.spec.replicas) + '!'", json!("3!")),
            ("object.spec.list.all(i, e, e.a == i + 1)", json!(true)),
            ("object.spec.list.exists(i, e, i > 1)", json!(false)),
            ("object.spec.list.existsOne(i, e, e.a > 1)", json!(true)),
            ("object.metadata.labels.all(k, v, k.contains('/') && v == 'w')", json!(true)),
            ("object.spec.list.transformList(i, e, i + e.a)", json!([1, 3])),
            ("object.spec.list.transformList(i, e, i > 0, e.a)", json!([2])),
            ("object.metadata.labels.transformMap(k, v, v + '!')", json!({"app.kubernetes.io/name": "w!"})),
            (
                "object.metadata.labels.transformMapEntry(k, v, {v: k})",
                json!({"w": "app.kubernetes.io/name"}),
            ),
            ("[[1, 2], [3]].transformList(i, l, l.transformList(j, x, x * 10 + i))", json!([[10, 20], [31]])),
            ("['bb', 'a', 'ccc'].sortBy(s, size(s))", json!(["a", "bb", "ccc"])),
            ("object.?spec.replicas.optMap(r, r + 1).orValue(0)", json!(4)),
            ("object.?spec.nothing.optMap(r, r + 1).orValue(0)", json!(0)),
            ("object.?spec.optFlatMap(s, s.?replicas).orValue(0)", json!(3)),
        ] {
            assert_eq!(evaluated(text, &object), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_said_is_an_error() {
        let object = json!({"spec": {"text": "t", "none": null}});
        for (text, wanted) in [
            ("object.spec.other > 1", "no such key: other"),
            ("!object.spec.text.field", "no such overload"),
            ("!has(object.spec.text.field)", "no such overload"),
            ("oldObject.spec", "no such overload"),
            ("'a' + 1", "no such overload"),
            ("1 / 0", "division by zero"),
            (
                "lists.range(1001).all(a, lists.range(1001).all(b, true))",
                "operation cancelled: actual cost limit exceeded",
            ),
        ] {
            assert_eq!(evaluated(text, &object), Err(wanted.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_not_known_does_not_compile() {
        for (text, wanted) in [
            ("... [] bad expression", "compilation failed: ERROR"),
            ("nothing.here", "undeclared reference to 'nothing'"),
            ("[1].all(x, y)", "undeclared reference to 'y'"),
            ("[1].all(x, true) && x", "undeclared reference to 'x'"),
            ("variables.x", "undefined field 'x'"),
            ("authorizer.path('/').check('get').allowed()", "undeclared reference to 'authorizer'"),
            ("Pod{}", "undeclared reference to 'Pod'"),
            ("{'a': 1}.transformMap(k, v, w)", "undeclared reference to 'w'"),
        ] {
            let error = evaluated(text, &Value::Null).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    #[test]
    fn an_expression_does_not_exhaust_the_stack() {
        let small = std::thread::Builder::new().stack_size(256 << 10);
        let test = || {
            let nested = format!("{}1{}", "[".repeat(90), "]".repeat(90));
            assert!(evaluated(&nested, &Value::Null).is_ok());
            assert_eq!(evaluated(&vec!["1"; 250].join("+"), &Value::Null), Ok(json!(250)));
            for text in
                [vec!["1"; 4000].join("+"), "[".repeat(4000), "a.".repeat(4000) + "b", " ".repeat(9000)]
            {
                assert!(evaluated(&text, &Value::Null).unwrap_err().starts_with("compilation failed: "));
            }
        };
        small.spawn(test).unwrap().join().unwrap();
    }

    #[test]
    fn variables_are_computed_once_and_only_when_needed() {
        let names = ["bad".to_owned(), "sum".to_owned()];
        let known = Known { variables: &names, ..Known::default() };
        let compile = |text: &str| Expression::compile(text, &known).unwrap();
        let variables = HashMap::from([
            ("bad".to_owned(), compile("object.nothing")),
            ("sum".to_owned(), compile("lists.range(1000).all(x, x >= 0) ? 1 : 0")),
        ]);
        let object = json!({});
        let run = Run::new(Bindings {
            object: Some(&object),
            variables: Arc::new(variables),
            ..Bindings::default()
        });
        assert_eq!(run.holds(&compile("true || variables.bad")), Ok(true));
        assert_eq!(run.holds(&compile("variables.bad")), Err("no such key: nothing".to_owned()));
        // Computed each time, the rounds would be too many.
        let often = compile("lists.range(2000).all(x, variables.sum == 1)");
        assert_eq!(run.holds(&often), Ok(true));
    }
}
