//! Makes an expression mean what upstream's interpreter means by it.
//!
//! | as parsed | as run | why |
//! |---|---|---|
//! | `a.b` | `a["b"]` | the interpreter answers false where `a` has no fields, and forgets that `a` is optional |
//! | `has(a.b)` | `"b" in a` | the same |
//! | `variables.x` | `@variable("x")` | evaluated once, when it is needed first |
//! | `Object.spec{a: 1}` | `{"a": 1}` | the interpreter knows no types |
//! | `cel.bind(x, init, e)` | a loop of no rounds | the macro is not known |
//! | `o.optMap(x, e)` | a function | the interpreter forgets that a named value is optional |
//! | `l.all(i, v, e)` and its like | with `cel.bind` and one-place loops, see `macros` | nor these |
//! | `device.attributes[d]` | `@domain(device["attributes"], d)` | a domain without attributes is there, and empty |
//! | each round of a loop | counted by `@step()` | a limit instead of upstream's costs |

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, ListExpr, LiteralValue,
    MapEntryExpr, MapExpr, StructExpr, operators,
};

use crate::functions::{DOMAIN, OPT_FLAT_MAP, OPT_MAP};
use crate::macros::expanded;
use crate::stack::{DEEPEST, TOO_DEEP};
use crate::{About, Known};

/// Looks a variable up.
pub(crate) const VARIABLE: &str = "@variable";
/// Counts a round of a loop.
pub(crate) const STEP: &str = "@step";
/// The name of the variable that `authorizer.requestResource` is.
pub const REQUEST_RESOURCE: &str = "authorizer.requestResource";

/// Always there in an expression about a request.
const REQUEST: [&str; 4] = ["object", "oldObject", "request", "namespaceObject"];
/// Always there in an expression about a device.
const DEVICE: [&str; 1] = ["device"];
/// What a device has by domain.
const BY_DOMAIN: [&str; 2] = ["attributes", "capacity"];
/// What stands before the dot in names of functions.
const NAMESPACES: [&str; 10] =
    ["base64", "format", "ip", "jsonpatch", "lists", "math", "optional", "sets", "strings", "cel"];
/// Rewrites an expression; says what of it is not known.
pub(crate) fn rewrite(parsed: IdedExpr, known: &Known<'_>) -> Result<IdedExpr, String> {
    Rewriter { known, locals: Vec::new(), depth: 0 }.expr(parsed)
}

struct Rewriter<'a> {
    known: &'a Known<'a>,
    /// Names of loops around.
    locals: Vec<String>,
    depth: usize,
}

fn unknown(name: &str) -> String {
    format!("undeclared reference to '{name}' (in container '')")
}

fn literal(text: &str) -> Expr {
    Expr::Literal(LiteralValue::String(text.into()))
}

fn call(name: &str, args: Vec<IdedExpr>) -> Expr {
    Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args })
}

/// A field's name as it stands in objects. Upstream's escapes for what is no identifier.
fn unescaped(field: &str) -> String {
    let mut out = field.to_owned();
    for (from, to) in [("__dot__", "."), ("__dash__", "-"), ("__slash__", "/"), ("__underscores__", "__")] {
        out = out.replace(from, to);
    }
    match out.strip_prefix("__").and_then(|s| s.strip_suffix("__")) {
        Some(word) if !word.is_empty() => word.to_owned(),
        _ => out,
    }
}

impl Rewriter<'_> {
    fn is_local(&self, name: &str) -> bool {
        self.locals.iter().any(|local| local == name)
    }

    fn is_known(&self, name: &str) -> bool {
        self.is_local(name)
            || self.always().contains(&name)
            || name == "params" && self.known.params
            || name == "authorizer" && self.known.authorizer
    }

    fn always(&self) -> &'static [&'static str] {
        match self.known.about {
            About::Request => &REQUEST,
            About::Device => &DEVICE,
        }
    }

    /// Whether this is `device.attributes` or `device.capacity`: there every domain is, some with nothing in it.
    fn is_by_domain(&self, expr: &IdedExpr) -> bool {
        let Expr::Select(select) = &expr.expr else { return false };
        self.known.about == About::Device
            && !select.test
            && BY_DOMAIN.contains(&select.field.as_str())
            && self.is(&select.operand, "device")
    }

    /// Whether this is a name of ours, not of a loop around.
    fn is(&self, expr: &IdedExpr, name: &str) -> bool {
        matches!(&expr.expr, Expr::Ident(found) if found == name) && !self.is_local(name)
    }

    fn expr(&mut self, parsed: IdedExpr) -> Result<IdedExpr, String> {
        if self.depth == DEEPEST {
            return Err(TOO_DEEP.to_owned());
        }
        self.depth += 1;
        let rewritten = self.one(parsed);
        self.depth -= 1;
        rewritten
    }

    fn one(&mut self, IdedExpr { id, expr }: IdedExpr) -> Result<IdedExpr, String> {
        let ided = |expr| Ok(IdedExpr { id, expr });
        match expr {
            Expr::Unspecified => Err("an expression without a meaning".to_owned()),
            Expr::Literal(value) => ided(Expr::Literal(value)),
            Expr::Ident(name) if self.is_known(&name) => ided(Expr::Ident(name)),
            Expr::Ident(name) => Err(unknown(&name)),
            Expr::Select(select) => {
                if self.is(&select.operand, "variables") {
                    if !self.known.variables.contains(&select.field) {
                        return Err(format!("undefined field '{}'", select.field));
                    }
                    let name = IdedExpr { id, expr: literal(&select.field) };
                    // All that are declared are there.
                    return ided(if select.test {
                        Expr::Literal(LiteralValue::Boolean(true.into()))
                    } else {
                        call(VARIABLE, vec![name])
                    });
                }
                if self.known.authorizer
                    && self.is(&select.operand, "authorizer")
                    && select.field == "requestResource"
                {
                    return ided(Expr::Ident(REQUEST_RESOURCE.to_owned()));
                }
                let by_domain = self.is_by_domain(&select.operand) && !select.test;
                let operand = self.expr(*select.operand)?;
                let field = IdedExpr { id, expr: literal(&unescaped(&select.field)) };
                if by_domain {
                    return ided(call(DOMAIN, vec![operand, field]));
                }
                ided(if select.test {
                    call(operators::IN, vec![field, operand])
                } else {
                    call(operators::INDEX, vec![operand, field])
                })
            }
            Expr::Call(call) => ided(self.call(call)?),
            Expr::List(list) => {
                let elements = self.all(list.elements)?;
                ided(Expr::List(ListExpr { elements, ..list }))
            }
            Expr::Map(map) => ided(Expr::Map(self.map(map)?)),
            Expr::Struct(written) => ided(Expr::Map(self.written(written)?)),
            Expr::Comprehension(comprehension) => {
                ided(Expr::Comprehension(Box::new(self.comprehension(*comprehension)?)))
            }
        }
    }

    fn all(&mut self, exprs: Vec<IdedExpr>) -> Result<Vec<IdedExpr>, String> {
        exprs.into_iter().map(|expr| self.expr(expr)).collect()
    }

    fn call(&mut self, call: CallExpr) -> Result<Expr, String> {
        let optional = [("optMap", OPT_MAP), ("optFlatMap", OPT_FLAT_MAP)];
        if let Some((_, function)) = optional.iter().find(|(name, _)| *name == call.func_name)
            && let (Some(target), [name, body]) = (&call.target, call.args.as_slice())
        {
            return self.optional(function, target, name, body);
        }
        if let Some(expanded) = expanded(&call) {
            return self.expr(expanded).map(|e| e.expr);
        }
        if call.func_name == operators::INDEX
            && let [operand, domain] = call.args.as_slice()
            && self.is_by_domain(operand)
        {
            let args = vec![self.expr(operand.clone())?, self.expr(domain.clone())?];
            return Ok(Expr::Call(CallExpr { func_name: DOMAIN.to_owned(), target: None, args }));
        }
        let target = match call.target {
            None => None,
            Some(target) if self.is(&target, "cel") && call.func_name == "bind" => {
                return self.bind(call.args);
            }
            Some(target) => match &target.expr {
                Expr::Ident(name) if !self.is_known(name) && NAMESPACES.contains(&name.as_str()) => {
                    Some(target)
                }
                _ => Some(Box::new(self.expr(*target)?)),
            },
        };
        // `a.?b`: the field's name is the second argument.
        if call.func_name == operators::OPT_SELECT
            && let [operand, field] = call.args.as_slice()
        {
            let args = vec![self.expr(operand.clone())?, field.clone()];
            return Ok(Expr::Call(CallExpr {
                func_name: operators::OPT_INDEX.to_owned(),
                target: None,
                args,
            }));
        }
        Ok(Expr::Call(CallExpr { target, args: self.all(call.args)?, func_name: call.func_name }))
    }

    /// `value.optMap(name, expression)`.
    fn optional(
        &mut self,
        function: &str,
        target: &IdedExpr,
        name: &IdedExpr,
        body: &IdedExpr,
    ) -> Result<Expr, String> {
        let Expr::Ident(local) = &name.expr else {
            return Err("optMap() variable name must be a simple identifier".to_owned());
        };
        let target = self.expr(target.clone())?;
        self.locals.push(local.clone());
        let body = self.expr(body.clone());
        self.locals.pop();
        let name = IdedExpr { id: name.id, expr: literal(local) };
        Ok(call(function, vec![target, name, body?]))
    }

    /// `cel.bind(name, value, expression)`.
    fn bind(&mut self, args: Vec<IdedExpr>) -> Result<Expr, String> {
        let [name, value, body] = <[IdedExpr; 3]>::try_from(args)
            .map_err(|_| "cel.bind() takes a name, a value and an expression".to_owned())?;
        let Expr::Ident(accu_var) = name.expr else {
            return Err("cel.bind() variable names must be simple identifiers".to_owned());
        };
        let id = name.id;
        let ided = |expr| IdedExpr { id, expr };
        let accu_init = self.expr(value)?;
        self.locals.push(accu_var.clone());
        let result = self.expr(body);
        self.locals.pop();
        Ok(Expr::Comprehension(Box::new(ComprehensionExpr {
            iter_range: ided(Expr::List(ListExpr::default())),
            iter_var: "#unused".to_owned(),
            iter_var2: None,
            loop_cond: ided(Expr::Literal(LiteralValue::Boolean(false.into()))),
            loop_step: ided(Expr::Ident(accu_var.clone())),
            accu_var,
            accu_init,
            result: result?,
        })))
    }

    fn map(&mut self, map: MapExpr) -> Result<MapExpr, String> {
        let entry = |entry: IdedEntryExpr, this: &mut Self| {
            let (key, value, optional) = match entry.expr {
                EntryExpr::MapEntry(e) => (this.expr(e.key)?, e.value, e.optional),
                EntryExpr::StructField(f) => {
                    (IdedExpr { id: entry.id, expr: literal(&unescaped(&f.field)) }, f.value, f.optional)
                }
            };
            let value = this.expr(value)?;
            let expr = EntryExpr::MapEntry(MapEntryExpr { key, value, optional });
            Ok(IdedEntryExpr { id: entry.id, expr })
        };
        let entries = map.entries.into_iter().map(|e| entry(e, self)).collect::<Result<_, String>>()?;
        Ok(MapExpr { entries })
    }

    /// An object that is written down.
    fn written(&mut self, written: StructExpr) -> Result<MapExpr, String> {
        let name = written.type_name.trim_start_matches('.');
        let object = name == "Object" || name.starts_with("Object.") || name == "JSONPatch";
        if !object || !self.known.objects {
            return Err(unknown(name));
        }
        self.map(MapExpr { entries: written.entries })
    }

    fn comprehension(&mut self, c: ComprehensionExpr) -> Result<ComprehensionExpr, String> {
        if c.iter_var2.is_some() {
            return Err("a loop that the interpreter does not know".to_owned());
        }
        let (iter_range, accu_init) = (self.expr(c.iter_range)?, self.expr(c.accu_init)?);
        let outside = self.locals.len();
        self.locals.extend([c.iter_var.clone(), c.accu_var.clone()]);
        let inside = [c.loop_cond, c.loop_step, c.result].map(|expr| self.expr(expr));
        self.locals.truncate(outside);
        let [loop_cond, loop_step, result] = inside;
        let loop_cond = loop_cond?;
        let id = loop_cond.id;
        let ided = |expr| IdedExpr { id, expr };
        let never = ided(Expr::Literal(LiteralValue::Boolean(false.into())));
        let counted = call(operators::CONDITIONAL, vec![ided(call(STEP, Vec::new())), loop_cond, never]);
        let (loop_step, result) = (loop_step?, result?);
        Ok(ComprehensionExpr { iter_range, accu_init, loop_cond: ided(counted), loop_step, result, ..c })
    }
}
