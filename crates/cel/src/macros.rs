//! Macros that the parser does not know: those over keys and values, and `sortBy`. Each is written with those that it knows.
//! Source: the `ext` libraries of cel-go that Kubernetes has.

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, operators,
};

use crate::functions::{KEYS, MERGE, PUT, SORT};

/// What is looped over, and what a loop has made so far. No expression can say these names.
const OVER: &str = "@over";
const MADE: &str = "@made";

/// Writes ASTs.
struct Writer {
    id: u64,
}

/// The same call without the macro; `None` if it is none of these.
pub(crate) fn expanded(call: &CallExpr) -> Option<IdedExpr> {
    let target = call.target.as_deref()?;
    let w = Writer { id: target.id };
    let name = |at: usize| match call.args.get(at).map(|arg| &arg.expr) {
        Some(Expr::Ident(name)) => Some(name.clone()),
        _ => None,
    };
    let arg = |at: usize| call.args.get(at).cloned();
    let (kind, count) = (call.func_name.as_str(), call.args.len());
    if (kind, count) == ("sortBy", 2) {
        let grown = w.call(operators::ADD, vec![w.ident(MADE), w.list(vec![arg(1)?])]);
        let keys = w.fold(w.ident(OVER), name(0)?, w.list(Vec::new()), w.truth(true), grown, w.ident(MADE));
        return Some(w.bind(OVER, target.clone(), w.call(SORT, vec![w.ident(OVER), keys])));
    }
    let filtered = matches!((kind, count), ("transformList" | "transformMap" | "transformMapEntry", 4));
    let several = matches!(
        kind,
        "all"
            | "exists"
            | "exists_one"
            | "existsOne"
            | "transformList"
            | "transformMap"
            | "transformMapEntry"
    );
    if !(several && (count == 3 || filtered)) {
        return None;
    }
    let (key, value) = (name(0)?, name(1)?);
    // The body sees the value that belongs to the key.
    let seen = |body: IdedExpr| {
        let item = w.call(operators::INDEX, vec![w.ident(OVER), w.ident(&key)]);
        w.bind(&value, item, body)
    };
    let made = || w.ident(MADE);
    let body = seen(arg(count - 1)?);
    let always = w.truth(true);
    let (start, go_on, step, result) = match kind {
        "all" => {
            let go_on = w.call(operators::NOT_STRICTLY_FALSE, vec![made()]);
            (w.truth(true), go_on, w.call(operators::LOGICAL_AND, vec![made(), body]), made())
        }
        "exists" => {
            let no = w.call(operators::LOGICAL_NOT, vec![made()]);
            let go_on = w.call(operators::NOT_STRICTLY_FALSE, vec![no]);
            (w.truth(false), go_on, w.call(operators::LOGICAL_OR, vec![made(), body]), made())
        }
        "exists_one" | "existsOne" => {
            let more = w.call(operators::ADD, vec![made(), w.number(1)]);
            let step = w.call(operators::CONDITIONAL, vec![body, more, made()]);
            (w.number(0), always, step, w.call(operators::EQUALS, vec![made(), w.number(1)]))
        }
        "transformList" => {
            let grown = w.call(operators::ADD, vec![made(), w.list(vec![body])]);
            (w.list(Vec::new()), always, grown, made())
        }
        "transformMap" => (w.map(), always, w.call(PUT, vec![made(), w.ident(&key), body]), made()),
        _ => (w.map(), always, w.call(MERGE, vec![made(), body]), made()),
    };
    let step =
        if filtered { w.call(operators::CONDITIONAL, vec![seen(arg(2)?), step, made()]) } else { step };
    let keys = w.call(KEYS, vec![w.ident(OVER)]);
    Some(w.bind(OVER, target.clone(), w.fold(keys, key.clone(), start, go_on, step, result)))
}

impl Writer {
    fn of(&self, expr: Expr) -> IdedExpr {
        IdedExpr { id: self.id, expr }
    }

    fn ident(&self, name: &str) -> IdedExpr {
        self.of(Expr::Ident(name.to_owned()))
    }

    fn truth(&self, value: bool) -> IdedExpr {
        self.of(Expr::Literal(LiteralValue::Boolean(value.into())))
    }

    fn number(&self, value: i64) -> IdedExpr {
        self.of(Expr::Literal(LiteralValue::Int(value.into())))
    }

    fn list(&self, elements: Vec<IdedExpr>) -> IdedExpr {
        self.of(Expr::List(ListExpr::new(elements)))
    }

    fn map(&self) -> IdedExpr {
        self.of(Expr::Map(MapExpr::default()))
    }

    fn call(&self, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
        self.of(Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }))
    }

    fn method(&self, target: IdedExpr, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
        self.of(Expr::Call(CallExpr { func_name: name.to_owned(), target: Some(Box::new(target)), args }))
    }

    fn bind(&self, name: &str, value: IdedExpr, body: IdedExpr) -> IdedExpr {
        self.method(self.ident("cel"), "bind", vec![self.ident(name), value, body])
    }

    fn fold(
        &self,
        over: IdedExpr,
        item: String,
        start: IdedExpr,
        go_on: IdedExpr,
        step: IdedExpr,
        result: IdedExpr,
    ) -> IdedExpr {
        self.of(Expr::Comprehension(Box::new(ComprehensionExpr {
            iter_range: over,
            iter_var: item,
            iter_var2: None,
            accu_var: MADE.to_owned(),
            accu_init: start,
            loop_cond: go_on,
            loop_step: step,
            result,
        })))
    }
}
