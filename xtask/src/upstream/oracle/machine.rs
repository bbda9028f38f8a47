//! A network namespace that stands for a machine, with another for a Pod, made with `ip` and gone with it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use serde_json::{Value, json};

use super::cases::Step;
use super::compare::{Answer, Seen};

/// The machine of one side.
pub struct Machine {
    host: String,
    pod: String,
    plugins: PathBuf,
    data: PathBuf,
    previous: Value,
}

impl Machine {
    /// Makes both namespaces. `side` tells the two machines apart.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn new(side: &str, plugins: &Path) -> anyhow::Result<Self> {
        let id = std::process::id();
        let machine = Self {
            host: format!("upstream-{id}-{side}h"),
            pod: format!("upstream-{id}-{side}p"),
            plugins: plugins.to_owned(),
            data: super::tempdir(side)?,
            previous: Value::Null,
        };
        for name in [&machine.host, &machine.pod] {
            ip(&["netns", "add", name])?;
        }
        ip(&["-n", &machine.host, "link", "set", "lo", "up"])?;
        Ok(machine)
    }

    /// Calls a plugin.
    ///
    /// # Errors
    /// If it cannot be run at all.
    pub fn ask(&mut self, plugin: &str, step: &Step, config: &str) -> anyhow::Result<Answer> {
        let mut config: Value =
            serde_json::from_str(&config.replace("DATA", &self.data.display().to_string()))?;
        if step.previous {
            config["prevResult"] = self.previous.clone();
        }
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.host]).arg(self.plugins.join(plugin)).env_clear();
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("CNI_PATH", &self.plugins);
        command
            .env("CNI_COMMAND", step.command)
            .env("CNI_IFNAME", step.interface)
            .env("CNI_CONTAINERID", "pod1");
        command.env("CNI_NETNS", Path::new("/run/netns").join(&self.pod)).env("CNI_ARGS", "");
        for (name, value) in step.env {
            if value.is_empty() {
                command.env_remove(name);
            } else {
                command.env(name, value);
            }
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot run ip")?;
        child.stdin.take().context("it has a standard input")?.write_all(config.to_string().as_bytes())?;
        let output = child.wait_with_output()?;
        let answer = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        if step.command == "ADD" && output.status.success() {
            self.previous = answer.clone();
        }
        Ok(Answer { success: output.status.success(), json: answer })
    }

    /// What is in both namespaces.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn seen(&self) -> anyhow::Result<Seen> {
        let of = |name: &str| -> anyhow::Result<Value> {
            let ask = |words: &[&str]| -> anyhow::Result<Value> {
                let mut all = vec!["-json", "-details", "-n", name];
                all.extend(words);
                let said = ip(&all)?;
                Ok(if said.trim().is_empty() { json!([]) } else { serde_json::from_str(&said)? })
            };
            Ok(json!({"links": ask(&["address", "show"])?, "routes": ask(&["-4", "route", "show"])?}))
        };
        Ok(Seen { host: of(&self.host)?, pod: of(&self.pod)? })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for name in [&self.pod, &self.host] {
            if let Err(error) = ip(&["netns", "delete", name]) {
                eprintln!("{error:#}");
            }
        }
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

fn ip(words: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("ip").args(words).output().context("cannot run ip")?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "ip {}: {}", words.join(" "), said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
