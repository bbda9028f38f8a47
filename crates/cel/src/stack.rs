//! Expressions are read and evaluated by functions that call themselves for each level: whoever writes one decides how deep.

use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr};
use kube_cel::cel::parser::{ParseErrors, Parser};

/// The longest expression, bytes. Upstream's parser takes more; this one's time grows with the square of the length.
const LONGEST: usize = 8 << 10;
/// The deepest expression, levels.
pub(crate) const DEEPEST: usize = 300;
/// What reading an expression of that length may need of the stack, bytes. It is reserved, and only what is touched is used.
const READING: usize = 256 << 20;
/// What evaluating an expression of that depth may need; where less is left than the first, the second is taken from elsewhere.
const EVALUATING: (usize, usize) = (1 << 20, 16 << 20);

/// Said of an expression that is too deep.
pub(crate) const TOO_DEEP: &str = "expression recursion limit exceeded";

/// Does what reads expressions.
pub fn reading<R>(read: impl FnOnce() -> R) -> R {
    stacker::grow(READING, read)
}

/// Does what evaluates expressions that are [`bounded`].
pub fn evaluating<R>(evaluate: impl FnOnce() -> R) -> R {
    stacker::maybe_grow(EVALUATING.0, EVALUATING.1, evaluate)
}

/// Reads an expression, not longer than may be. Only within [`reading`].
///
/// # Errors
/// It is none, or too long.
pub fn parse(text: &str) -> Result<IdedExpr, String> {
    if text.len() > LONGEST {
        return Err(format!("the expression has more than {LONGEST} bytes"));
    }
    let parsed: Result<_, ParseErrors> = Parser::new().enable_optional_syntax(true).parse(text.trim());
    parsed.map_err(|e| e.to_string())
}

/// Whether an expression that others compile and evaluate can be left to them.
///
/// # Errors
/// It is too long or too deep, or they would stop at it.
pub fn bounded(text: &str) -> Result<(), String> {
    reading(|| parse(text).and_then(|parsed| walk(&parsed, 0)))
}

fn walk(expr: &IdedExpr, depth: usize) -> Result<(), String> {
    if depth == DEEPEST {
        return Err(TOO_DEEP.to_owned());
    }
    let below = |expr: &IdedExpr| walk(expr, depth + 1);
    match &expr.expr {
        Expr::Literal(_) | Expr::Ident(_) => Ok(()),
        Expr::Unspecified => Err("an expression without a meaning".to_owned()),
        Expr::Struct(written) => {
            Err(format!("undeclared reference to '{}' (in container '')", written.type_name))
        }
        Expr::Select(select) => below(&select.operand),
        Expr::Call(call) => {
            call.target.iter().try_for_each(|t| below(t)).and_then(|()| call.args.iter().try_for_each(below))
        }
        Expr::List(list) => list.elements.iter().try_for_each(below),
        Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
            EntryExpr::MapEntry(e) => below(&e.key).and_then(|()| below(&e.value)),
            EntryExpr::StructField(f) => below(&f.value),
        }),
        Expr::Comprehension(c) => [&c.iter_range, &c.accu_init, &c.loop_cond, &c.loop_step, &c.result]
            .into_iter()
            .try_for_each(below),
    }
}
