//! Devices, and what selectors say of them. Source: KEP-4381.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue};
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, Value as Cel};
use serde_json::Value;

use crate::run::{count_steps, resolve, said};
use crate::{Expression, functions};

/// A device as selectors see it: `device.driver`, `device.attributes[domain].name`, `device.capacity[domain].name`,
/// `device.allowMultipleAllocations`.
#[derive(Debug, Clone)]
pub struct Device(Cel);

/// Evaluates selectors.
pub struct Selecting {
    context: Context<'static>,
    steps: Arc<AtomicU64>,
}

impl std::fmt::Debug for Selecting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Selecting")
    }
}

impl Default for Selecting {
    fn default() -> Self {
        let mut context = Context::default().with_all();
        functions::register(&mut context);
        let steps = Arc::new(AtomicU64::new(0));
        count_steps(&mut context, Arc::clone(&steps));
        Self { context, steps }
    }
}

impl Selecting {
    /// A device of a driver, as it stands in a `ResourceSlice`.
    ///
    /// # Errors
    /// `attribute NAME: ...`, `capacity NAME: ...`: its value is none that expressions know.
    pub fn device(&self, driver: &str, device: &Value) -> Result<Device, String> {
        let mut attributes: HashMap<&str, HashMap<Key, Cel>> = HashMap::new();
        for (name, value) in device["attributes"].as_object().into_iter().flatten() {
            let value = self.attribute(value).map_err(|why| format!("attribute {name}: {why}"))?;
            let (domain, id) = qualified(name, driver);
            attributes.entry(domain).or_default().insert(key(id), value);
        }
        let mut capacity: HashMap<&str, HashMap<Key, Cel>> = HashMap::new();
        for (name, value) in device["capacity"].as_object().into_iter().flatten() {
            let value = match &value["value"] {
                Value::String(text) => self.made("quantity", text),
                other => self.made("quantity", &other.to_string()),
            };
            let value = value.map_err(|why| format!("capacity {name}: {why}"))?;
            let (domain, id) = qualified(name, driver);
            capacity.entry(domain).or_default().insert(key(id), value);
        }
        let by_domain = |all: HashMap<&str, HashMap<Key, Cel>>| {
            map(all.into_iter().map(|(domain, inner)| (key(domain), map(inner))).collect())
        };
        let many = device["allowMultipleAllocations"].as_bool().unwrap_or_default();
        Ok(Device(map(HashMap::from([
            (key("driver"), Cel::String(Arc::new(driver.to_owned()))),
            (key("allowMultipleAllocations"), Cel::Bool(many)),
            (key("attributes"), by_domain(attributes)),
            (key("capacity"), by_domain(capacity)),
        ]))))
    }

    /// Whether a selector takes a device.
    ///
    /// # Errors
    /// Why that cannot be said.
    pub fn takes(&self, selector: &Expression, device: &Device) -> Result<bool, String> {
        self.steps.store(0, Ordering::Relaxed);
        let mut inner = self.context.new_inner_scope();
        inner.add_variable_from_value("device", device.0.clone());
        match resolve(selector, &inner).map_err(|error| said(&error))? {
            Cel::Bool(takes) => Ok(takes),
            other => Err(format!("CEL result of type {} could not be converted to bool", other.type_of())),
        }
    }

    fn attribute(&self, value: &Value) -> Result<Cel, String> {
        if let Some(int) = value["int"].as_i64() {
            return Ok(Cel::Int(int));
        }
        if let Some(bool) = value["bool"].as_bool() {
            return Ok(Cel::Bool(bool));
        }
        if let Some(text) = value["string"].as_str() {
            return Ok(Cel::String(Arc::new(text.to_owned())));
        }
        match value["version"].as_str() {
            Some(version) => self.made("semver", version),
            None => Err("unsupported attribute value".to_owned()),
        }
    }

    /// What a function makes of a text.
    fn made(&self, function: &str, text: &str) -> Result<Cel, String> {
        let text = IdedExpr { id: 1, expr: Expr::Literal(LiteralValue::String(text.into())) };
        let call = CallExpr { func_name: function.to_owned(), target: None, args: vec![text] };
        let call = IdedExpr { id: 2, expr: Expr::Call(call) };
        Cel::resolve(&call, &self.context).map_err(|error| said(&error))
    }
}

/// A name's domain, which is the driver's where it names none, and what it is there.
fn qualified<'a>(name: &'a str, driver: &'a str) -> (&'a str, &'a str) {
    name.split_once('/').unwrap_or((driver, name))
}

fn key(name: &str) -> Key {
    Key::String(Arc::new(name.to_owned()))
}

fn map(entries: HashMap<Key, Cel>) -> Cel {
    Cel::Map(Map { map: Arc::new(entries) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{About, Known};

    fn takes(text: &str) -> Result<bool, String> {
        let selecting = Selecting::default();
        let device = json!({"name": "gpu-0",
            "attributes": {"model": {"string": "a100"}, "dra.example.com/version": {"version": "1.2.3"},
                "cores": {"int": 8}, "other.io/fast": {"bool": true}},
            "capacity": {"memory": {"value": "40Gi"}}});
        let device = selecting.device("dra.example.com", &device)?;
        let known = Known { about: About::Device, ..Known::default() };
        selecting.takes(&Expression::compile(text, &known)?, &device)
    }

    #[test]
    fn a_selector_sees_the_driver_the_attributes_and_the_capacity_of_a_device() {
        for (text, expected) in [
            ("device.driver == 'dra.example.com'", true),
            ("device.attributes['dra.example.com'].model == 'a100'", true),
            ("device.attributes['dra.example.com'].cores >= 16", false),
            ("device.attributes['other.io'].fast", true),
            ("device.attributes['dra.example.com'].version.isGreaterThan(semver('1.0.0'))", true),
            ("device.attributes['dra.example.com'].version.compareTo(semver('1.2.3')) == 0", true),
            ("device.attributes['dra.example.com'].version == semver('1.2.3')", true),
            ("device.capacity['dra.example.com'].memory.compareTo(quantity('40Gi')) == 0", true),
            ("device.capacity['dra.example.com'].memory.isLessThan(quantity('1Gi'))", false),
            ("device.capacity['dra.example.com'].memory == quantity('40960Mi')", true),
            ("device.allowMultipleAllocations", false),
            (
                "cel.bind(dra, device.attributes['dra.example.com'], dra.model == 'a100' && dra.cores == 8)",
                true,
            ),
            // A domain that it has nothing of is empty, not an error.
            ("has(device.attributes['nobody.io'].model)", false),
            ("'nobody.io' in device.attributes", false),
            ("'other.io' in device.attributes", true),
            ("device.attributes['nobody.io'].?model.orValue('none') == 'none'", true),
            ("device.attributes['dra.example.com'].?model.orValue('none') == 'a100'", true),
        ] {
            assert_eq!(takes(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_a_selector_cannot_say_is_an_error() {
        for (text, expected) in [
            ("device.attributes['dra.example.com'].exists", "no such key: exists"),
            ("device.attributes['nobody.io'].model == 'x'", "no such key: model"),
            (
                "device.attributes['dra.example.com'].model",
                "CEL result of type string could not be converted to bool",
            ),
        ] {
            assert_eq!(takes(text), Err(expected.to_owned()), "{text}");
        }
        let error = takes("object.spec == 1").unwrap_err();
        assert!(error.contains("undeclared reference to 'object'"), "{error}");
    }

    #[test]
    fn an_attribute_that_is_no_version_is_said() {
        let device = json!({"attributes": {"driver": {"version": "one"}}});
        let error = Selecting::default().device("d", &device).unwrap_err();
        assert!(error.starts_with("attribute driver: "), "{error}");
    }
}
