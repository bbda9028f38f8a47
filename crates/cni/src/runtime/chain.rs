//! One operation over the plugins of a network.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use trine_kernel::testing::failpoint;

use crate::invoke::{self, Prefer};
use crate::plugins;
use crate::spec::{AttachmentId, CniError, Command, Env, NetworkList, PluginConfig, RuntimeFacts};

/// What every call of a chain has in common.
#[derive(Debug, Clone)]
pub struct Chain<'a> {
    /// The network.
    pub network: &'a NetworkList,
    /// Where programs are.
    pub bin_dirs: &'a [PathBuf],
    /// The attachment; none for STATUS and GC.
    pub id: Option<&'a AttachmentId>,
    /// The namespace; none if it is gone.
    pub netns: Option<&'a Path>,
    /// The pairs of `CNI_ARGS`.
    pub args: &'a [(String, String)],
    /// The capabilities on offer.
    pub capabilities: Option<&'a Map<String, Value>>,
    /// Keys that our own network takes from the runtime unless its configuration has them.
    pub defaults: &'a Map<String, Value>,
}

impl Chain<'_> {
    /// ADD: each plugin gets the result of the one before.
    ///
    /// # Errors
    /// The first plugin's that fails.
    pub fn add(&self) -> Result<Value, CniError> {
        let mut result = None;
        for plugin in &self.network.plugins {
            let answer = self.call(Command::Add, plugin, result.as_ref(), Map::new())?;
            // A plugin that prints nothing has nothing to change.
            result = answer.or(result);
            failpoint("ADD: plugin");
        }
        Ok(result.unwrap_or_else(|| json!({"cniVersion": self.network.version.text()})))
    }

    /// CHECK: every plugin gets the final result.
    ///
    /// # Errors
    /// The first plugin's that fails.
    pub fn check(&self, result: Option<&Value>) -> Result<(), CniError> {
        self.network
            .plugins
            .iter()
            .try_for_each(|plugin| self.call(Command::Check, plugin, result, Map::new()).map(drop))
    }

    /// DEL in reverse. A failing plugin keeps no other from its DEL: the address is given back in any case.
    ///
    /// # Errors
    /// All errors.
    pub fn del(&self, result: Option<&Value>) -> Result<(), CniError> {
        // Without a result the attachment never came about, and a plugin that is not there made no part of it.
        let failed = result.is_none();
        let result = result.filter(|_| self.network.version.has_check());
        let there = |kind: &str| invoke::find(kind, self.bin_dirs, prefer(kind)).is_ok();
        let calls = self.network.plugins.iter().rev().filter(|plugin| !failed || there(&plugin.kind));
        let errors = calls.filter_map(|plugin| {
            let called = self.call(Command::Del, plugin, result, Map::new());
            failpoint("DEL: plugin");
            called.err()
        });
        CniError::all(errors.collect())
    }

    /// STATUS.
    ///
    /// # Errors
    /// The first plugin's that fails. Before 1.1.0 it is only checked that the plugins are there.
    pub fn status(&self) -> Result<(), CniError> {
        for plugin in &self.network.plugins {
            if self.network.version.has_gc() {
                self.call(Command::Status, plugin, None, Map::new())?;
            } else {
                let found = invoke::find(&plugin.kind, self.bin_dirs, prefer(&plugin.kind));
                found.map_err(|e| e.in_network("STATUS", &self.network.name))?;
            }
        }
        Ok(())
    }

    /// GC, if the network has it. It goes on after an error.
    ///
    /// # Errors
    /// All errors.
    pub fn gc(&self, valid: &[AttachmentId]) -> Result<(), CniError> {
        if !self.network.version.has_gc() || self.network.disable_gc {
            return Ok(());
        }
        let valid = json!(valid);
        let extra = Map::from_iter([
            ("cni.dev/valid-attachments".to_owned(), valid.clone()),
            // The specification's first name for it; libcni sends both.
            ("cni.dev/attachments".to_owned(), valid),
        ]);
        let calls = self.network.plugins.iter();
        let errors = calls.filter_map(|plugin| self.call(Command::Gc, plugin, None, extra.clone()).err());
        CniError::all(errors.collect())
    }

    fn call(
        &self,
        command: Command,
        plugin: &PluginConfig,
        prev_result: Option<&Value>,
        extra: Map<String, Value>,
    ) -> Result<Option<Value>, CniError> {
        let call = command.text();
        let facts = RuntimeFacts { capabilities: self.capabilities, prev_result };
        let mut config = plugin.request(self.network, facts);
        config.extend(extra);
        if plugin.kind == plugins::OWN {
            for (key, value) in self.defaults {
                config.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
        let span = tracing::info_span!(
            target: "trine::step", "plugin", otel.name = call, plane = "cni",
            sandbox = self.id.map(|id| id.container_id.as_str()),
            detail = %format_args!("{call} {} by {}", self.network.name, plugin.kind),
            error = tracing::field::Empty,
        );
        span.in_scope(|| {
            let found = invoke::find(&plugin.kind, self.bin_dirs, prefer(&plugin.kind))?;
            invoke::call(&found, &plugin.kind, &self.env(command), Value::Object(config))
        })
        .map_err(|e| e.in_network(call, &self.network.name))
        .inspect_err(|e| {
            span.record("error", tracing::field::display(e.chain()));
        })
    }

    fn env(&self, command: Command) -> Env {
        let pairs: Vec<_> = self.args.iter().map(|(key, value)| format!("{key}={value}")).collect();
        Env {
            command: command.text().to_owned(),
            container_id: self.id.map(|id| id.container_id.clone()).unwrap_or_default(),
            netns: self.netns.map(|netns| netns.display().to_string()).unwrap_or_default(),
            ifname: self.id.map(|id| id.ifname.clone()).unwrap_or_default(),
            args: pairs.join(";"),
            path: invoke::search_path(self.bin_dirs),
        }
    }
}

/// Our own network's plugin is never somebody else's program of that name.
fn prefer(kind: &str) -> Prefer {
    if kind == plugins::OWN { Prefer::BuiltIn } else { Prefer::Program }
}
