//! One step of a path into an object, as the field sets of `managedFields` write it.

use serde_json::{Map, Value};
use std::cmp::Ordering;
use std::fmt;

/// One step of a path.
#[derive(Debug, Clone)]
pub enum Step {
    /// A field or key of an object: `f:name`.
    Field(String),
    /// The list item that has these values, ordered by name: `k:{"name":"value"}`.
    Key(Vec<(String, Value)>),
    /// The item of a set: `v:"value"`.
    Value(Value),
    /// A place in a list: `i:0`.
    Index(i64),
}

/// Why text is no step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no path element")]
pub struct NotAStep(pub String);

impl Step {
    /// The step into a field.
    pub fn field(name: &str) -> Self {
        Self::Field(name.to_owned())
    }

    /// The step to a list item by some of its fields.
    pub fn key(mut fields: Vec<(String, Value)>) -> Self {
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        Self::Key(fields)
    }

    /// Reads a step; `None` for a kind of step that is not known here, which is passed over.
    ///
    /// # Errors
    /// [`NotAStep`].
    pub fn decode(text: &str) -> Result<Option<Self>, NotAStep> {
        let wrong = || NotAStep(text.to_owned());
        let (kind, rest) = text.split_once(':').ok_or_else(wrong)?;
        Ok(match kind {
            "f" => Some(Self::field(rest)),
            "v" => Some(Self::Value(serde_json::from_str(rest).map_err(|_| wrong())?)),
            "i" => Some(Self::Index(rest.parse().map_err(|_| wrong())?)),
            "k" => {
                let fields: Map<String, Value> = serde_json::from_str(rest).map_err(|_| wrong())?;
                Some(Self::key(fields.into_iter().collect()))
            }
            other if other.len() == 1 => None,
            _ => return Err(wrong()),
        })
    }

    /// Writes a step.
    pub fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Value(value) => format!("v:{}", json(value)),
            Self::Index(at) => format!("i:{at}"),
            Self::Key(fields) => {
                let fields: Vec<String> =
                    fields.iter().map(|(k, v)| format!("{}:{}", json(&k.as_str().into()), json(v))).collect();
                format!("k:{{{}}}", fields.join(","))
            }
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

/// JSON with the escapes that Go's encoder makes, so that equal sets are equal texts.
fn json(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

impl Ord for Step {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Value(a), Self::Value(b)) => compare(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => {
                let pairs = a.iter().zip(b);
                pairs
                    .map(|((an, av), (bn, bv))| an.cmp(bn).then_with(|| compare(av, bv)))
                    .find(|o| o.is_ne())
                    .unwrap_or_else(|| a.len().cmp(&b.len()))
            }
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Step {}

/// `.name`, `[key="value"]`, `[="value"]`, `[0]`.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Index(at) => write!(f, "[{at}]"),
            Self::Value(value) => write!(f, "[={}]", Shown(value)),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (i, (name, value)) in fields.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", Shown(value))?;
                }
                f.write_str("]")
            }
        }
    }
}

struct Shown<'a>(&'a Value);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Array(list) => {
                f.write_str("[")?;
                for (i, item) in list.iter().enumerate() {
                    write!(f, "{}{}", if i > 0 { "," } else { "" }, Shown(item))?;
                }
                f.write_str("]")
            }
            Value::Object(map) => map.iter().try_for_each(|(k, v)| write!(f, "{k}={}", Shown(v))),
            plain => write!(f, "{plain}"),
        }
    }
}

/// A total order over values: numbers, texts, booleans, lists, objects, null. Numbers compare by what they amount to.
pub(super) fn compare(a: &Value, b: &Value) -> Ordering {
    fn rank(value: &Value) -> u8 {
        match value {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Array(_) => 3,
            Value::Object(_) => 4,
            Value::Null => 5,
        }
    }
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => a.as_f64().unwrap_or_default().total_cmp(&b.as_f64().unwrap_or_default()),
        },
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let unequal = a.iter().zip(b).map(|(a, b)| compare(a, b)).find(|o| o.is_ne());
            unequal.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let pairs = a.iter().zip(b);
            let unequal = pairs
                .map(|((ak, av), (bk, bv))| ak.cmp(bk).then_with(|| compare(av, bv)))
                .find(|o| o.is_ne());
            unequal.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

/// Whether two values are the same, `1` and `1.0` being so.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| same(v, w)))
        }
        (a, b) => compare(a, b).is_eq(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn steps_are_written_read_and_shown() {
        for (step, text, shown) in [
            (Step::field("a.b/c"), "f:a.b/c", ".a.b/c"),
            (
                Step::key(vec![("protocol".into(), json!("TCP")), ("port".into(), json!(80))]),
                r#"k:{"port":80,"protocol":"TCP"}"#,
                r#"[port=80,protocol="TCP"]"#,
            ),
            (Step::Value(json!("x")), r#"v:"x""#, r#"[="x"]"#),
            (Step::Value(json!("a<b")), r#"v:"a\u003cb""#, r#"[="a<b"]"#),
            (Step::Value(json!(true)), "v:true", "[=true]"),
            (Step::Index(3), "i:3", "[3]"),
        ] {
            assert_eq!((step.encode().as_str(), step.to_string().as_str()), (text, shown));
            assert_eq!(Step::decode(text), Ok(Some(step)));
        }
        assert_eq!(Step::decode("z:new"), Ok(None));
        for text in ["", "f", "x y", "i:x", "k:[]", "k:{", "v:", "v:1 2", "zz:1"] {
            assert!(Step::decode(text).is_err(), "{text}");
        }
    }

    #[test]
    fn steps_are_ordered_by_kind_then_by_content() {
        let key = |n: i64| Step::key(vec![("a".into(), json!(n))]);
        let ordered = [
            Step::field("a"),
            Step::field("b"),
            key(2),
            key(10),
            Step::key(vec![("a".into(), json!(10)), ("b".into(), json!(1))]),
            Step::Value(json!(1.5)),
            Step::Value(json!(2)),
            Step::Value(json!("1")),
            Step::Index(0),
        ];
        assert!(ordered.is_sorted());
        assert_eq!(Step::Value(json!(1)), Step::Value(json!(1.0)));
    }
}
