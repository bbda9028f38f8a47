//! Label selectors, in both their forms.

use super::SelectorError;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// A conjunction of requirements on labels. The empty selector matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// All must hold.
    pub requirements: Vec<Requirement>,
}

/// One requirement on the label `key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// What must be true of it.
    pub test: Test,
}

/// What a requirement asks of a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// It is there with one of these values.
    In(BTreeSet<String>),
    /// It is absent, or has none of these values.
    NotIn(BTreeSet<String>),
    /// It is there.
    Exists,
    /// It is absent.
    DoesNotExist,
    /// It is an integer above this one.
    GreaterThan(i64),
    /// It is an integer below this one.
    LessThan(i64),
}

impl Requirement {
    /// Whether a label's value, if it is there, satisfies the requirement.
    pub fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match &self.test {
            Test::In(set) => value.is_some_and(|v| set.contains(v)),
            Test::NotIn(set) => value.is_none_or(|v| !set.contains(v)),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::GreaterThan(n) => number().is_some_and(|v| v > *n),
            Test::LessThan(n) => number().is_some_and(|v| v < *n),
        }
    }
}

impl LabelSelector {
    /// Reads the text of a `labelSelector` query parameter.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut parser = Parser { tokens: lex(text), at: 0, text };
        let selector = parser.selector()?;
        Ok(selector)
    }

    /// Reads a spec's selector object (`matchLabels`, `matchExpressions`).
    pub fn from_object(selector: &Value) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
            for (key, value) in labels {
                let value = value.as_str().unwrap_or_default().to_owned();
                requirements.push(Requirement { key: key.clone(), test: Test::In([value].into()) });
            }
        }
        let expressions = selector.get("matchExpressions").and_then(Value::as_array);
        for expression in expressions.into_iter().flatten() {
            requirements.push(from_expression(expression)?);
        }
        Ok(Self { requirements })
    }

    /// A selector for exactly these labels, as in a Service's `spec.selector`.
    pub fn from_map(labels: &Map<String, Value>) -> Self {
        let one = |(key, value): (&String, &Value)| Requirement {
            key: key.clone(),
            test: Test::In([value.as_str().unwrap_or_default().to_owned()].into()),
        };
        Self { requirements: labels.iter().map(one).collect() }
    }

    /// Whether an object with these labels (a JSON object, or null for none) is selected.
    pub fn matches(&self, labels: &Value) -> bool {
        self.matches_with(|key| labels.get(key).and_then(Value::as_str))
    }

    /// The same, with labels looked up by a function.
    pub fn matches_with<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|r| r.holds(label(&r.key)))
    }

    /// Whether everything matches.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
}

/// On one line, ordered by key, as in a `labelSelector` parameter.
impl std::fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let listed = |set: &BTreeSet<String>| set.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        let mut parts: Vec<(&str, String)> = self
            .requirements
            .iter()
            .map(|Requirement { key, test }| {
                let text = match test {
                    Test::In(set) if set.len() == 1 => format!("{key}={}", listed(set)),
                    Test::In(set) => format!("{key} in ({})", listed(set)),
                    Test::NotIn(set) if set.len() == 1 => format!("{key}!={}", listed(set)),
                    Test::NotIn(set) => format!("{key} notin ({})", listed(set)),
                    Test::Exists => key.clone(),
                    Test::DoesNotExist => format!("!{key}"),
                    Test::GreaterThan(n) => format!("{key}>{n}"),
                    Test::LessThan(n) => format!("{key}<{n}"),
                };
                (key.as_str(), text)
            })
            .collect();
        parts.sort_by(|a, b| a.0.cmp(b.0));
        let texts: Vec<String> = parts.into_iter().map(|(_, text)| text).collect();
        f.write_str(&texts.join(","))
    }
}

fn from_expression(expression: &Value) -> Result<Requirement, SelectorError> {
    let text = |name: &str| expression.get(name).and_then(Value::as_str).unwrap_or_default();
    let listed = expression.get("values").and_then(Value::as_array);
    let values: BTreeSet<String> =
        listed.into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect();
    let test = match text("operator") {
        "In" if !values.is_empty() => Test::In(values),
        "NotIn" if !values.is_empty() => Test::NotIn(values),
        "Exists" if values.is_empty() => Test::Exists,
        "DoesNotExist" if values.is_empty() => Test::DoesNotExist,
        "In" | "NotIn" => {
            return Err(SelectorError("for 'in', 'notin' operators, values set can't be empty".into()));
        }
        "Exists" | "DoesNotExist" => {
            return Err(SelectorError("values set must be empty for exists and does not exist".into()));
        }
        other => return Err(SelectorError(format!("{other:?} is not a valid label selector operator"))),
    };
    Ok(Requirement { key: text("key").to_owned(), test })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Sign(&'a str),
}

fn lex(text: &str) -> Vec<Token<'_>> {
    const SIGNS: [&str; 9] = ["==", "!=", "=", "!", ",", "(", ")", ">", "<"];
    let (mut tokens, mut rest) = (Vec::new(), text);
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return tokens;
        }
        if let Some(sign) = SIGNS.iter().find(|s| rest.starts_with(**s)) {
            tokens.push(Token::Sign(&rest[..sign.len()]));
            rest = &rest[sign.len()..];
            continue;
        }
        let end = rest.find(|c: char| c.is_whitespace() || "=!,()><".contains(c)).unwrap_or(rest.len());
        tokens.push(Token::Word(&rest[..end]));
        rest = &rest[end..];
    }
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    text: &'a str,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).copied()
    }

    fn next(&mut self) -> Option<Token<'a>> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn error<T>(&self, token: Option<Token>, expected: &str) -> Result<T, SelectorError> {
        let found = match token {
            Some(Token::Word(t) | Token::Sign(t)) => t,
            None => "",
        };
        Err(SelectorError(format!(
            "unable to parse requirement: found '{found}', expected: {expected} (in \"{}\")",
            self.text
        )))
    }

    fn selector(&mut self) -> Result<LabelSelector, SelectorError> {
        let mut requirements = Vec::new();
        if self.tokens.is_empty() {
            return Ok(LabelSelector::default());
        }
        loop {
            requirements.push(self.requirement()?);
            match self.next() {
                None => return Ok(LabelSelector { requirements }),
                Some(Token::Sign(",")) if self.peek().is_some() => {}
                Some(Token::Sign(",")) => return self.error(None, "identifier after ','"),
                other => return self.error(other, "',' or 'end of string'"),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let absent = self.peek() == Some(Token::Sign("!"));
        if absent {
            self.at += 1;
        }
        let key = match self.next() {
            Some(Token::Word(key)) => key.to_owned(),
            other => return self.error(other, "identifier"),
        };
        crate::names::qualified_name(&key).map_err(|e| {
            SelectorError(format!(
                "unable to parse requirement: <nil>: Invalid value: {key:?}: {}",
                e.join("; ")
            ))
        })?;
        let test = if absent { Test::DoesNotExist } else { self.test()? };
        Ok(Requirement { key, test })
    }

    fn test(&mut self) -> Result<Test, SelectorError> {
        match self.peek() {
            None | Some(Token::Sign(",")) => return Ok(Test::Exists),
            _ => {}
        }
        match self.next() {
            Some(Token::Word("in")) => Ok(Test::In(self.set()?)),
            Some(Token::Word("notin")) => Ok(Test::NotIn(self.set()?)),
            Some(Token::Sign("=" | "==")) => Ok(Test::In([self.value()?].into())),
            Some(Token::Sign("!=")) => Ok(Test::NotIn([self.value()?].into())),
            Some(Token::Sign(">")) => Ok(Test::GreaterThan(self.number()?)),
            Some(Token::Sign("<")) => Ok(Test::LessThan(self.number()?)),
            other => self.error(other, "in, notin, =, ==, !=, gt, lt"),
        }
    }

    fn value(&mut self) -> Result<String, SelectorError> {
        match self.peek() {
            None | Some(Token::Sign(",")) => Ok(String::new()),
            Some(Token::Word(value)) => {
                self.at += 1;
                self.checked(value)
            }
            other => self.error(other, "identifier"),
        }
    }

    fn checked(&self, value: &str) -> Result<String, SelectorError> {
        crate::names::label_value(value).map_err(|e| {
            SelectorError(format!(
                "unable to parse requirement: values[0]: Invalid value: {value:?}: {}",
                e.join("; ")
            ))
        })?;
        Ok(value.to_owned())
    }

    fn number(&mut self) -> Result<i64, SelectorError> {
        let token = self.next();
        match token {
            Some(Token::Word(word)) if word.parse::<i64>().is_ok() => Ok(word.parse().unwrap_or_default()),
            _ => self.error(token, "an integer for 'Gt', 'Lt' operators"),
        }
    }

    fn set(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        let open = self.next();
        if open != Some(Token::Sign("(")) {
            return self.error(open, "'('");
        }
        let mut set = BTreeSet::new();
        loop {
            match self.next() {
                Some(Token::Sign(")")) => {
                    set.insert(String::new());
                    return Ok(set);
                }
                Some(Token::Sign(",")) => {
                    set.insert(String::new());
                }
                Some(Token::Word(word)) => {
                    set.insert(self.checked(word)?);
                    match self.next() {
                        Some(Token::Sign(")")) => return Ok(set),
                        Some(Token::Sign(",")) => {}
                        other => return self.error(other, "',' or ')'"),
                    }
                }
                other => return self.error(other, "',', ')' or identifier"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_selectors_match_as_documented() {
        let labels = json!({"app": "web", "tier": "front", "empty": "", "n": "5"});
        for (text, wanted) in [
            ("", true),
            ("app=web", true),
            ("app==web", true),
            ("app = web", true),
            ("app!=web", false),
            ("other!=web", true),
            ("app in (web, db)", true),
            ("app in (db)", false),
            ("app notin (db,cache)", true),
            ("other notin (db)", true),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("app,tier=front,!other", true),
            ("app=web,tier=back", false),
            ("empty=", true),
            ("app=", false),
            ("empty in ()", true),
            ("in in (in)", false),
            ("n>4", true),
            ("n<5", false),
            ("app>1", false),
        ] {
            let selector = LabelSelector::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(selector.matches(&labels), wanted, "{text}");
        }
    }

    #[test]
    fn malformed_text_is_refused() {
        for text in [
            "app=web,",
            ",app",
            "app in web",
            "app in (web",
            "=web",
            "app=a b",
            "!app=web",
            "a>b",
            "-a=b",
            "app=-x",
        ] {
            assert!(LabelSelector::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn object_selectors_match_as_documented() {
        let labels = json!({"app": "web", "tier": "front"});
        let expression = |op: &str, values: Value| json!({"matchExpressions": [{"key": "app", "operator": op, "values": values}]});
        for (object, wanted) in [
            (json!({}), Some(true)),
            (json!({"matchLabels": {"app": "web"}}), Some(true)),
            (json!({"matchLabels": {"app": "db"}}), Some(false)),
            (expression("In", json!(["web"])), Some(true)),
            (expression("NotIn", json!(["web"])), Some(false)),
            (expression("Exists", json!([])), Some(true)),
            (expression("DoesNotExist", Value::Null), Some(false)),
            (expression("In", json!([])), None),
            (expression("Exists", json!(["x"])), None),
            (expression("Near", json!(["x"])), None),
        ] {
            let found = LabelSelector::from_object(&object).ok().map(|s| s.matches(&labels));
            assert_eq!(found, wanted, "{object}");
        }
    }

    #[test]
    fn absent_labels_match_only_negative_requirements() {
        assert!(LabelSelector::parse("!a,b!=c").unwrap().matches(&Value::Null));
        assert!(!LabelSelector::parse("a").unwrap().matches(&Value::Null));
    }
}
