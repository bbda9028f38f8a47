//! Between JSON and what expressions see. Names of fields stay as they are: an expression's escapes are undone when it is
//! compiled.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::Value as Cel;
use kube_cel::cel::objects::{Key, Map, OptionalValue};
use serde_json::Value;

/// JSON as expressions see it.
pub(crate) fn to_cel(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(b) => Cel::Bool(*b),
        Value::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(i), _) => Cel::Int(i),
            (None, Some(u)) => Cel::UInt(u),
            (None, None) => Cel::Float(n.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(s) => Cel::String(Arc::new(s.clone())),
        Value::Array(list) => Cel::List(Arc::new(list.iter().map(to_cel).collect())),
        Value::Object(map) => {
            let entry = |(k, v): (&String, &Value)| (Key::String(Arc::new(k.clone())), to_cel(v));
            Cel::Map(Map { map: Arc::new(map.iter().map(entry).collect::<HashMap<_, _>>()) })
        }
    }
}

/// What an expression gave, as JSON; `None` for what JSON has no form for.
#[must_use]
pub fn to_json(value: &Cel) -> Option<Value> {
    Some(match value {
        Cel::Null => Value::Null,
        Cel::Bool(b) => (*b).into(),
        Cel::Int(i) => (*i).into(),
        Cel::UInt(u) => (*u).into(),
        Cel::Float(f) => serde_json::Number::from_f64(*f)?.into(),
        Cel::String(s) => s.as_str().into(),
        Cel::Bytes(bytes) => {
            use base64::Engine;
            base64::engine::general_purpose::STANDARD.encode(bytes.as_slice()).into()
        }
        Cel::List(list) => Value::Array(list.iter().map(to_json).collect::<Option<_>>()?),
        Cel::Map(map) => {
            let entry = |(k, v): (&Key, &Cel)| match k {
                Key::String(k) => Some((k.to_string(), to_json(v)?)),
                _ => None,
            };
            Value::Object(map.map.iter().map(entry).collect::<Option<_>>()?)
        }
        Cel::Timestamp(time) => time.to_rfc3339().into(),
        Cel::Opaque(other) => return other.downcast_ref::<OptionalValue>().and_then(|o| to_json(o.value()?)),
        _ => return None,
    })
}
