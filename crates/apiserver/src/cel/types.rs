//! What types an expression's parts have, by the schema of the object that it is about. A policy's author is told of what cannot
//! be; the expression runs all the same. What is not known fits everything.

use std::collections::HashMap;

use trine_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators,
};
use trine_cel::{bounded, parse, reading};
use trine_objects::schema::{ObjectRef, Scalar, SchemaRef, Shape};

/// The type of a part.
#[derive(Debug, Clone)]
enum Type<'a> {
    /// Anything.
    Unknown,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Null,
    Time,
    List(Box<Type<'a>>),
    Object(ObjectRef<'a>),
}

/// Names of operators that compare.
const ORDER: [&str; 4] =
    [operators::LESS, operators::LESS_EQUALS, operators::GREATER, operators::GREATER_EQUALS];
/// Names of operators that compute with numbers.
const ARITHMETIC: [&str; 4] =
    [operators::SUBSTRACT, operators::MULTIPLY, operators::DIVIDE, operators::MODULO];

impl<'a> Type<'a> {
    /// The type of what has a schema.
    fn of(schema: SchemaRef<'a>) -> Self {
        match schema.shape() {
            Shape::Any | Shape::Scalar(Scalar::Quantity | Scalar::IntOrString) => Self::Unknown,
            Shape::Scalar(Scalar::String) => Self::Text,
            Shape::Scalar(Scalar::Bool) => Self::Bool,
            Shape::Scalar(Scalar::Int32 | Scalar::Int64) => Self::Int,
            Shape::Scalar(Scalar::Double) => Self::Double,
            Shape::Scalar(Scalar::Bytes) => Self::Bytes,
            Shape::Scalar(Scalar::Time) => Self::Time,
            Shape::List(list) => Self::List(Box::new(Self::of(list.items))),
            Shape::Object(object) => Self::Object(object),
        }
    }

    /// As it stands in messages.
    fn name(&self) -> String {
        match self {
            Self::Unknown => "dyn".to_owned(),
            Self::Bool => "bool".to_owned(),
            Self::Int => "int".to_owned(),
            Self::Uint => "uint".to_owned(),
            Self::Double => "double".to_owned(),
            Self::Text => "string".to_owned(),
            Self::Bytes => "bytes".to_owned(),
            Self::Null => "null".to_owned(),
            Self::Time => "timestamp".to_owned(),
            Self::List(items) => format!("list({})", items.name()),
            Self::Object(_) => "object".to_owned(),
        }
    }

    fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }

    fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }

    /// Whether two types may be the same.
    fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unknown, _) | (_, Self::Unknown) => true,
            (Self::List(a), Self::List(b)) => a.meets(b),
            // What is absent is null where it is an object or a list.
            (Self::Null, Self::Object(_) | Self::List(_) | Self::Time) => true,
            (Self::Object(_) | Self::List(_) | Self::Time, Self::Null) => true,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }
}

/// Finds the types of expressions about one kind of object.
#[derive(Debug)]
pub struct Types<'a> {
    names: HashMap<String, Type<'a>>,
    variables: HashMap<String, Type<'a>>,
    wrong: Vec<String>,
}

impl<'a> Types<'a> {
    /// For objects of a schema, and perhaps parameters of another.
    #[must_use]
    pub fn new(object: SchemaRef<'a>, params: Option<SchemaRef<'a>>) -> Self {
        let object = Type::of(object);
        let mut names =
            HashMap::from([("object".to_owned(), object.clone()), ("oldObject".to_owned(), object)]);
        if let Some(params) = params {
            names.insert("params".to_owned(), Type::of(params));
        }
        Self { names, variables: HashMap::new(), wrong: Vec::new() }
    }

    /// A variable is what its expression is.
    pub fn declare(&mut self, name: &str, expression: &str) {
        let (type_, _) = self.find(expression);
        self.variables.insert(name.to_owned(), type_);
    }

    /// What of an expression cannot be.
    pub fn check(&mut self, expression: &str) -> Vec<String> {
        self.find(expression).1
    }

    fn find(&mut self, expression: &str) -> (Type<'a>, Vec<String>) {
        let type_ = if bounded(expression).is_ok() {
            reading(|| parse(expression).map_or(Type::Unknown, |ast| self.infer(&ast)))
        } else {
            Type::Unknown
        };
        (type_, std::mem::take(&mut self.wrong))
    }

    fn infer(&mut self, ast: &IdedExpr) -> Type<'a> {
        match &ast.expr {
            Expr::Literal(LiteralValue::Boolean(_)) => Type::Bool,
            Expr::Literal(LiteralValue::Int(_)) => Type::Int,
            Expr::Literal(LiteralValue::UInt(_)) => Type::Uint,
            Expr::Literal(LiteralValue::Double(_)) => Type::Double,
            Expr::Literal(LiteralValue::String(_)) => Type::Text,
            Expr::Literal(LiteralValue::Bytes(_)) => Type::Bytes,
            Expr::Literal(LiteralValue::Null) => Type::Null,
            Expr::Ident(name) => self.names.get(name).cloned().unwrap_or(Type::Unknown),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let mut items: Vec<Type<'a>> = list.elements.iter().map(|e| self.infer(e)).collect();
                let same = items.windows(2).all(|pair| pair[0].meets(&pair[1]));
                Type::List(Box::new(items.pop().filter(|_| same).unwrap_or(Type::Unknown)))
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Map(_) | Expr::Struct(_) | Expr::Unspecified => Type::Unknown,
        }
    }

    fn select(&mut self, select: &SelectExpr) -> Type<'a> {
        if let Expr::Ident(name) = &select.operand.expr
            && name == "variables"
        {
            let known = self.variables.get(&select.field).cloned();
            return known.filter(|_| !select.test).unwrap_or(Type::Unknown);
        }
        let found = match self.infer(&select.operand) {
            Type::Object(object) => match object.known(&select.field) {
                Some(field) => Type::of(field),
                None => {
                    self.wrong.push(format!("undefined field '{}'", select.field));
                    Type::Unknown
                }
            },
            Type::Unknown => Type::Unknown,
            other => {
                self.wrong.push(format!("type '{}' does not support field selection", other.name()));
                Type::Unknown
            }
        };
        if select.test { Type::Bool } else { found }
    }

    fn call(&mut self, call: &CallExpr) -> Type<'a> {
        let name = call.func_name.as_str();
        if let Some(target) = &call.target {
            // Names of functions may have a first part, which is no value.
            let known = !matches!(&target.expr, Expr::Ident(name) if !self.names.contains_key(name));
            if known {
                self.infer(target);
            }
        }
        let args: Vec<Type<'a>> = call.args.iter().map(|arg| self.infer(arg)).collect();
        match (name, args.as_slice()) {
            (operators::CONDITIONAL, [_, yes, no]) => {
                if yes.meets(no) {
                    yes.clone()
                } else {
                    Type::Unknown
                }
            }
            (operators::LOGICAL_AND | operators::LOGICAL_OR, [a, b]) => {
                let fit = [a, b].iter().all(|t| matches!(t, Type::Bool | Type::Unknown));
                self.fits(fit, name, &args);
                Type::Bool
            }
            (operators::LOGICAL_NOT, [a]) => {
                self.fits(matches!(a, Type::Bool | Type::Unknown), name, &args);
                Type::Bool
            }
            (operators::EQUALS | operators::NOT_EQUALS, [a, b]) => {
                let numbers = a.is_number() && b.is_number();
                self.fits(numbers || a.meets(b), name, &args);
                Type::Bool
            }
            (name, [a, b]) if ORDER.contains(&name) => {
                let ordered = |t: &Type<'a>| !matches!(t, Type::Null | Type::List(_) | Type::Object(_));
                let numbers = a.is_number() && b.is_number();
                self.fits(numbers || a.meets(b) && ordered(a) && ordered(b), name, &args);
                Type::Bool
            }
            (operators::ADD, [a, b]) => {
                let adds = |t: &Type<'a>| !matches!(t, Type::Null | Type::Bool | Type::Object(_));
                // A duration may be added to a time.
                let times = matches!(a, Type::Time) || matches!(b, Type::Time);
                self.fits(times || a.meets(b) && adds(a) && adds(b), name, &args);
                if a.is_unknown() { b.clone() } else { a.clone() }
            }
            (name, [a, b]) if ARITHMETIC.contains(&name) => {
                let computes = |t: &Type<'a>| t.is_unknown() || t.is_number();
                let times = name == operators::SUBSTRACT && matches!(a, Type::Time);
                self.fits(times || a.meets(b) && computes(a) && computes(b), name, &args);
                if times { Type::Unknown } else { a.clone() }
            }
            (operators::INDEX, [Type::List(items), _]) => (**items).clone(),
            (operators::IN | "startsWith" | "endsWith" | "contains" | "matches" | "bool", _) => Type::Bool,
            ("size" | "int" | "indexOf" | "lastIndexOf", _) => Type::Int,
            ("string" | "join" | "lowerAscii" | "upperAscii" | "replace" | "substring" | "trim", _) => {
                Type::Text
            }
            ("double", _) => Type::Double,
            ("uint", _) => Type::Uint,
            _ => Type::Unknown,
        }
    }

    fn fits(&mut self, fits: bool, name: &str, args: &[Type<'a>]) {
        if !fits {
            let types: Vec<String> = args.iter().map(Type::name).collect();
            self.wrong
                .push(format!("found no matching overload for '{name}' applied to '({})'", types.join(", ")));
        }
    }

    fn comprehension(&mut self, c: &ComprehensionExpr) -> Type<'a> {
        let item = match self.infer(&c.iter_range) {
            Type::List(items) => *items,
            Type::Object(_) => Type::Text,
            _ => Type::Unknown,
        };
        let start = self.infer(&c.accu_init);
        let accu = if matches!(start, Type::Bool | Type::Int) { start } else { Type::Unknown };
        let names = [(&c.iter_var, item), (&c.accu_var, accu)];
        let before = names.map(|(name, type_)| (name.clone(), self.names.insert(name.clone(), type_)));
        self.infer(&c.loop_step);
        let result = self.infer(&c.result);
        for (name, type_) in before {
            match type_ {
                Some(type_) => drop(self.names.insert(name, type_)),
                None => drop(self.names.remove(&name)),
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(expression: &str) -> Vec<String> {
        let schema = trine_objects::schema::of("apps", "v1", "Deployment").map(SchemaRef::from).unwrap();
        let mut types = Types::new(schema, None);
        types.declare("replicas", "object.spec.replicas");
        types.check(expression)
    }

    #[test]
    fn what_cannot_be_is_named_in_upstreams_words() {
        for (expression, wanted) in [
            ("object.spec.replicas > '1'", "found no matching overload for '_>_' applied to '(int, string)'"),
            (
                "'got ' + object.spec.replicas",
                "found no matching overload for '_+_' applied to '(string, int)'",
            ),
            ("variables.replicas == 'x'", "found no matching overload for '_==_' applied to '(int, string)'"),
            ("object.spec.maxRetries < 10", "undefined field 'maxRetries'"),
            ("object.metadata.name.first == 'x'", "type 'string' does not support field selection"),
            (
                "object.spec.template.spec.containers.all(c, c.image > 1)",
                "found no matching overload for '_>_' applied to '(string, int)'",
            ),
            ("!object.spec.replicas", "found no matching overload for '!_' applied to '(int)'"),
            (
                "object.spec.paused && object.spec.replicas",
                "found no matching overload for '_&&_' applied to '(bool, int)'",
            ),
        ] {
            assert_eq!(wrong(expression), [wanted], "{expression}");
        }
    }

    #[test]
    fn what_can_be_or_is_not_known_passes() {
        for expression in [
            "object.spec.replicas > 1",
            "object.spec.replicas > 1.5",
            "object.spec.replicas % 2 == 1 || variables.replicas < 3",
            "object.metadata.labels['a'] == 'b' && object.metadata.labels.a == 'c'",
            "has(object.spec.paused) && !object.spec.paused",
            "object.spec.template.spec.containers.all(c, c.image.startsWith('x') && size(c.ports) > 0)",
            "object.spec.template.spec.containers.map(c, c.image)[0] == 'x'",
            "oldObject == null || oldObject.spec.replicas == object.spec.replicas",
            "params.data.key == 'x' && request.userInfo.username + 'x' == 'yx'",
            "object.spec.strategy.rollingUpdate.maxSurge == 1",
            "object.metadata.creationTimestamp > timestamp('2026-01-01T00:00:00Z')",
            "object.?spec.?replicas.orValue(1) == 1",
            "math.greatest(object.spec.replicas, 2) == 2",
        ] {
            assert_eq!(wrong(expression), Vec::<String>::new(), "{expression}");
        }
    }
}
