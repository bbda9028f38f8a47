//! JSON paths in the dialect of Kubernetes: what printer columns, selectable fields and `-o jsonpath` name.
//!
//! Supported: `.a.b`, `['a']`, `.a\.b`, `[0]`, `[-1]`, `[1:3]`, `[*]`, `..a` and `[?(@.a=="x")]` with `==`, `!=`, `<`, `<=`,
//! `>`, `>=` against a text, a number or a bool.

use serde_json::Value;
use std::cmp::Ordering;

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Range(Option<i64>, Option<i64>),
    All,
    Deep(String),
    Where { path: JsonPath, test: Option<(Compare, Value)> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compare {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// Why a path cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid JSON path {path:?}: {why}")]
pub struct PathError {
    path: String,
    why: &'static str,
}

impl JsonPath {
    /// Reads `.spec.replicas`; a leading `$` may stand before it.
    ///
    /// # Errors
    /// [`PathError`].
    pub fn parse(path: &str) -> Result<Self, PathError> {
        let mut reader = Reader { rest: path.trim().trim_start_matches('$') };
        reader.steps().map(Self).map_err(|why| PathError { path: path.to_owned(), why })
    }

    /// Every value that the path leads to.
    #[must_use]
    pub fn find<'a>(&self, root: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![root];
        for step in &self.0 {
            found = found.into_iter().flat_map(|at| step.below(at)).collect();
        }
        found
    }

    /// The names of the path, if it names one field by its parents: what a selectable field has to be.
    #[must_use]
    pub fn fields(&self) -> Option<Vec<&str>> {
        let names = self.0.iter().map(|step| match step {
            Step::Field(name) => Some(name.as_str()),
            _ => None,
        });
        names.collect()
    }
}

impl Step {
    fn below<'a>(&self, at: &'a Value) -> Vec<&'a Value> {
        match (self, at) {
            (Self::Field(name), Value::Object(map)) => map.get(name).into_iter().collect(),
            (Self::All, Value::Object(map)) => map.values().collect(),
            (Self::All, Value::Array(list)) => list.iter().collect(),
            (Self::Index(index), Value::Array(list)) => usize::try_from(from_end(*index, list.len()))
                .ok()
                .and_then(|i| list.get(i))
                .into_iter()
                .collect(),
            (Self::Range(from, to), Value::Array(list)) => {
                let bound = |at: Option<i64>, open: usize| {
                    at.map_or(open, |i| usize::try_from(from_end(i, list.len())).unwrap_or(0).min(list.len()))
                };
                let (from, to) = (bound(*from, 0), bound(*to, list.len()));
                list.get(from..to).into_iter().flatten().collect()
            }
            (Self::Deep(name), at) => deep(name, at),
            (Self::Where { path, test }, Value::Array(list)) => {
                list.iter().filter(|item| holds(path, test.as_ref(), item)).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// An index that counts from the end if it is negative.
fn from_end(index: i64, length: usize) -> i64 {
    if index < 0 { index + i64::try_from(length).unwrap_or(i64::MAX) } else { index }
}

fn deep<'a>(name: &str, at: &'a Value) -> Vec<&'a Value> {
    let inner: Vec<&Value> = match at {
        Value::Object(map) => map.values().collect(),
        Value::Array(list) => list.iter().collect(),
        _ => return Vec::new(),
    };
    let here = at.get(name);
    here.into_iter().chain(inner.into_iter().flat_map(|v| deep(name, v))).collect()
}

fn holds(path: &JsonPath, test: Option<&(Compare, Value)>, item: &Value) -> bool {
    let found = path.find(item);
    let Some((compare, wanted)) = test else { return !found.is_empty() };
    found.iter().any(|value| {
        let order = match (value, wanted) {
            (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            (a, b) => (*a == b).then_some(Ordering::Equal),
        };
        match compare {
            Compare::Equal => order == Some(Ordering::Equal),
            Compare::NotEqual => order != Some(Ordering::Equal),
            Compare::Less => order == Some(Ordering::Less),
            Compare::AtMost => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Compare::Greater => order == Some(Ordering::Greater),
            Compare::AtLeast => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        }
    })
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn steps(&mut self) -> Result<Vec<Step>, &'static str> {
        let mut steps = Vec::new();
        while !self.rest.is_empty() {
            if self.eat("..") {
                steps.push(Step::Deep(self.name()?));
            } else if self.eat("[") {
                steps.push(self.bracket()?);
            } else {
                // The first field may stand without its dot.
                if !self.eat(".") && !steps.is_empty() {
                    return Err("expected '.' or '['");
                }
                steps.push(if self.eat("*") { Step::All } else { Step::Field(self.name()?) });
            }
        }
        Ok(steps)
    }

    fn eat(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn name(&mut self) -> Result<String, &'static str> {
        let mut name = String::new();
        let mut letters = self.rest.char_indices();
        let mut end = self.rest.len();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '\\' => name.extend(letters.next().map(|(_, escaped)| escaped)),
                '.' | '[' => {
                    end = at;
                    break;
                }
                other => name.push(other),
            }
        }
        self.rest = &self.rest[end..];
        if name.is_empty() { Err("a field has no name") } else { Ok(name) }
    }

    /// What stands in brackets; the opening one is read.
    fn bracket(&mut self) -> Result<Step, &'static str> {
        if self.eat("?(") {
            let end = self.rest.find(")]").ok_or("a filter has no end")?;
            let (filter, rest) = self.rest.split_at(end);
            self.rest = &rest[2..];
            return filter_step(filter);
        }
        for quote in ["'", "\""] {
            if self.eat(quote) {
                let end = self.rest.find(&format!("{quote}]")).ok_or("a quoted name has no end")?;
                let (name, rest) = self.rest.split_at(end);
                self.rest = &rest[2..];
                return Ok(Step::Field(name.to_owned()));
            }
        }
        let end = self.rest.find(']').ok_or("a bracket has no end")?;
        let (inner, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        let number = |text: &str| text.parse().map_err(|_| "an index is not a number");
        let open = |text: &str| if text.is_empty() { Ok(None) } else { number(text).map(Some) };
        match inner.split_once(':') {
            _ if inner == "*" => Ok(Step::All),
            Some((from, to)) => Ok(Step::Range(open(from)?, open(to)?)),
            None => Ok(Step::Index(number(inner)?)),
        }
    }
}

fn filter_step(filter: &str) -> Result<Step, &'static str> {
    const OPERATORS: [(&str, Compare); 6] = [
        ("==", Compare::Equal),
        ("!=", Compare::NotEqual),
        ("<=", Compare::AtMost),
        (">=", Compare::AtLeast),
        ("<", Compare::Less),
        (">", Compare::Greater),
    ];
    let parse = |text: &str| {
        let path = text.trim().strip_prefix('@').ok_or("a filter begins with @")?;
        Reader { rest: path }.steps().map(JsonPath)
    };
    let found = OPERATORS.iter().find_map(|(sign, compare)| Some((filter.split_once(sign)?, *compare)));
    let Some(((left, right), compare)) = found else {
        return Ok(Step::Where { path: parse(filter)?, test: None });
    };
    let right = right.trim();
    let quoted = |quote: char| right.strip_prefix(quote).and_then(|r| r.strip_suffix(quote));
    let wanted = match quoted('"').or_else(|| quoted('\'')) {
        Some(text) => Value::from(text),
        None => {
            serde_json::from_str(right).map_err(|_| "a filter compares with a text, a number or a bool")?
        }
    };
    Ok(Step::Where { path: parse(left)?, test: Some((compare, wanted)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_where_upstreams_lead() {
        let object = json!({"metadata": {"labels": {"a.b/c": "l"}}, "spec": {"list": [1, 2, 3], "port": "web"},
            "status": {"conditions": [{"type": "Ready", "status": "True", "n": 2}, {"type": "Old", "status": "False"}]}});
        for (path, wanted) in [
            (".spec.port", json!(["web"])),
            ("spec.port", json!(["web"])),
            ("$.spec.port", json!(["web"])),
            (".metadata.labels['a.b/c']", json!(["l"])),
            (".metadata.labels.a\\.b/c", json!(["l"])),
            (".spec.list[0]", json!([1])),
            (".spec.list[-1]", json!([3])),
            (".spec.list[-1:]", json!([3])),
            (".spec.list[0:2]", json!([1, 2])),
            (".spec.list[*]", json!([1, 2, 3])),
            (".spec.list[7]", json!([])),
            (".status.conditions[?(@.type==\"Ready\")].status", json!(["True"])),
            (".status.conditions[?(@.type=='Ready')].status", json!(["True"])),
            (".status.conditions[?(@.type!=\"Ready\")].type", json!(["Old"])),
            (".status.conditions[?(@.n>1)].type", json!(["Ready"])),
            (".status.conditions[?(@.n)].type", json!(["Ready"])),
            ("..type", json!(["Ready", "Old"])),
            (".nothing.at.all", json!([])),
        ] {
            let found: Vec<Value> =
                JsonPath::parse(path).unwrap().find(&object).into_iter().cloned().collect();
            assert_eq!(Value::from(found), wanted, "{path}");
        }
    }

    #[test]
    fn broken_paths_are_refused() {
        for path in [".a[", ".a[x]", ".a[?(b)]", ".a..", ".a['b]", ".a[?(@.b==c)]", ".a[0]b"] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
    }

    #[test]
    fn a_plain_path_tells_its_fields() {
        assert_eq!(JsonPath::parse(".spec.a").unwrap().fields(), Some(vec!["spec", "a"]));
        assert_eq!(JsonPath::parse(".spec.a[0]").unwrap().fields(), None);
    }
}
