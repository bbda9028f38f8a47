//! The executed form of a plugin: environment and standard input in, standard output and exit code out.

use std::io::{Read, Write};
use std::process::ExitCode;

use serde_json::Value;
use trine_kernel::afterwards;

use super::serve::{ALL, Caller, Plugin, find, serve};
use crate::spec::{CniError, Code, Env, Version};

/// The types of the built-in plugins, for a multi-call binary.
#[must_use]
pub fn built_in() -> Vec<&'static str> {
    ALL.iter().map(|plugin| plugin.name()).collect()
}

/// Serves the plugin `name` as a program of its own: `CNI_*` from the environment, the configuration from standard
/// input, the answer or the error on standard output.
#[must_use]
pub fn plugin_main(name: &str) -> ExitCode {
    match find(name) {
        Some(plugin) => program(plugin),
        None => finish(Err(CniError::new(Code::InvalidConfig, format!("there is no plugin {name:?}"))), ""),
    }
}

/// Serves `plugin` as a program of its own.
#[must_use]
pub fn program(plugin: &dyn Plugin) -> ExitCode {
    afterwards::program();
    let env = Env::of_process();
    let name = plugin.name();
    if env.command.is_empty() {
        eprintln!("CNI {name} plugin of Trine, versions {} to {}", Version::V0_1_0, Version::NEWEST);
        return ExitCode::SUCCESS;
    }
    let mut input = Vec::new();
    let read = if env.command == "VERSION" { Ok(0) } else { std::io::stdin().read_to_end(&mut input) };
    let config = match read {
        Ok(0) => Ok(Value::Null),
        Ok(_) => serde_json::from_slice(&input)
            .map_err(|e| CniError::new(Code::Decoding, "standard input is not JSON").because(e)),
        Err(e) => Err(CniError::new(Code::Io, "standard input cannot be read").because(e)),
    };
    let asked = config.as_ref().ok().and_then(|c| c.get("cniVersion")).and_then(Value::as_str);
    let asked = asked.unwrap_or_default().to_owned();
    finish(config.and_then(|config| serve(plugin, &env, config, Caller::Program)), &asked)
}

fn finish(answer: Result<Option<Value>, CniError>, asked: &str) -> ExitCode {
    let (text, code) = match answer {
        Ok(value) => (value.map(|value| value.to_string()), ExitCode::SUCCESS),
        Err(error) => {
            let version = Version::parse(asked).unwrap_or(Version::NEWEST);
            (Some(error.to_json(version).to_string()), ExitCode::FAILURE)
        }
    };
    if let Some(text) = text
        && std::io::stdout().write_all(text.as_bytes()).is_err()
    {
        return ExitCode::FAILURE;
    }
    afterwards::finish();
    code
}
