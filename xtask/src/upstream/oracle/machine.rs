//! A network namespace that stands for a machine, with another for a Pod, made with `ip` and gone with it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

use super::cases::Step;
use super::compare::{Answer, Seen};

/// A machine's namespace and a Pod's.
pub struct Namespaces {
    /// The machine's name.
    pub host: String,
    /// The Pod's.
    pub pod: String,
}

impl Namespaces {
    /// Makes both. `side` tells several apart.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn new(side: &str) -> anyhow::Result<Self> {
        let id = std::process::id();
        let spaces = Self { host: format!("upstream-{id}-{side}h"), pod: format!("upstream-{id}-{side}p") };
        for name in [&spaces.host, &spaces.pod] {
            ip(&["netns", "add", name])?;
        }
        ip(&["-n", &spaces.host, "link", "set", "lo", "up"])?;
        Ok(spaces)
    }

    /// Where the Pod's is pinned.
    pub fn pod_path(&self) -> String {
        format!("/run/netns/{}", self.pod)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in [&self.pod, &self.host] {
            if let Err(error) = ip(&["netns", "delete", name]) {
                eprintln!("{error:#}");
            }
        }
    }
}

/// The machine of one side.
pub struct Machine {
    spaces: Namespaces,
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
        let machine = Self {
            spaces: Namespaces::new(side)?,
            plugins: plugins.to_owned(),
            data: super::tempdir(side)?,
            previous: Value::Null,
        };
        // It stands for one of hardware: its name and address are the same on both sides.
        ip(&[
            "-n",
            &machine.spaces.host,
            "link",
            "add",
            "nic0",
            "address",
            "02:00:00:00:0c:01",
            "type",
            "ifb",
        ])?;
        ip(&["-n", &machine.spaces.host, "link", "set", "nic0", "up"])?;
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
        command.args(["netns", "exec", &self.spaces.host]).arg(self.plugins.join(plugin)).env_clear();
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("CNI_PATH", &self.plugins);
        command
            .env("CNI_COMMAND", step.command)
            .env("CNI_IFNAME", step.interface)
            .env("CNI_CONTAINERID", "pod1");
        command.env("CNI_NETNS", self.spaces.pod_path()).env("CNI_ARGS", "");
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
        if step.command == "DEL" {
            self.settle()?;
        }
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
            let queues = run("tc", &["-n", name, "-json", "qdisc", "show"])?;
            Ok(json!({
                "links": ask(&["address", "show"])?,
                "routes": ask(&["-4", "route", "show", "table", "all"])?,
                "rules": ask(&["-4", "rule", "show"])?,
                "queues": serde_json::from_str::<Value>(&queues).unwrap_or(json!([])),
            }))
        };
        Ok(Seen { host: of(&self.spaces.host)?, pod: of(&self.spaces.pod)? })
    }
}

impl Machine {
    /// Waits until no link is there that Trine's plugins have set aside and remove after they have answered.
    fn settle(&self) -> anyhow::Result<()> {
        for name in [&self.spaces.host, &self.spaces.pod] {
            for _ in 0..SETTLES {
                let aside =
                    |line: &str| line.split_whitespace().nth(1).is_some_and(|link| link.starts_with("trx"));
                if !ip(&["-n", name, "-oneline", "link", "show"])?.lines().any(aside) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }
}

/// How often is looked.
const SETTLES: usize = 250;

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

fn ip(words: &[&str]) -> anyhow::Result<String> {
    run("ip", words)
}

fn run(program: &str, words: &[&str]) -> anyhow::Result<String> {
    let output =
        Command::new(program).args(words).output().with_context(|| format!("cannot run {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{program} {}: {}", words.join(" "), said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
