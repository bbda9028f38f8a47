//! How a plugin asks another one for addresses: by the same request, under another command.

use serde_json::Value;

use crate::invoke::{self, Prefer};
use crate::spec::{CniError, CniResult, Code, Command, Env, Request};

/// The plugin that gives addresses.
#[derive(Debug)]
pub struct Ipam<'a> {
    request: &'a Request,
    config: Value,
    kind: String,
    prefer: Prefer,
}

impl<'a> Ipam<'a> {
    /// The one that the configuration names; none if it names none.
    pub fn of(request: &'a Request, prefer: Prefer) -> Option<Self> {
        let ipam = request.config.get("ipam")?;
        let kind = ipam.get("type").and_then(Value::as_str).filter(|kind| !kind.is_empty())?.to_owned();
        Some(Self { request, config: request.config.clone(), kind, prefer })
    }

    /// The same with a key of its configuration set, unless it is.
    pub fn with_default(mut self, key: &str, value: Option<&Value>) -> Self {
        if let (Some(ipam), Some(value)) = (self.config["ipam"].as_object_mut(), value) {
            ipam.entry(key).or_insert_with(|| value.clone());
        }
        self
    }

    /// ADD: at least one address.
    ///
    /// # Errors
    /// Its error, or that it gave none; DEL has been called then.
    pub fn add(&self) -> Result<CniResult, CniError> {
        let answer = self.call(Command::Add).and_then(|answer| {
            let result = CniResult::from_json(&answer.unwrap_or_default())?;
            if result.ips.is_empty() {
                return Err(CniError::new(Code::InvalidConfig, "it gave no address").by_plugin(&self.kind));
            }
            Ok(result)
        });
        if answer.is_err() {
            // The specification asks for it also when ADD itself failed.
            let _ = self.del();
        }
        answer
    }

    /// DEL.
    ///
    /// # Errors
    /// Its error.
    pub fn del(&self) -> Result<(), CniError> {
        self.call(Command::Del).map(drop)
    }

    /// CHECK, GC or STATUS.
    ///
    /// # Errors
    /// Its error.
    pub fn ask(&self, command: Command) -> Result<(), CniError> {
        self.call(command).map(drop)
    }

    fn call(&self, command: Command) -> Result<Option<Value>, CniError> {
        let found = invoke::find(&self.kind, &self.request.path(), self.prefer)?;
        let env = Env { command: command.text().to_owned(), ..self.request.env.clone() };
        invoke::call(&found, &self.kind, &env, self.config.clone())
    }
}
