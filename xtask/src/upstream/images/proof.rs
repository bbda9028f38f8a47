//! Each image started by Trine and asked for what it is for.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};

use super::Registry;
use super::recipe::{Proof, Recipe};
use super::table::recipes;
use crate::upstream::trine::Trine;

/// How long an image may take to be pulled and started.
const START_DEADLINE: Duration = Duration::from_secs(120);
/// How long what it serves may take to be there.
const ANSWER_DEADLINE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(100);

/// Starts every image under each of its names, and has its proof run in it.
///
/// # Errors
/// With all images that do not do what they are for, one line each.
pub fn prove(program: &Path, registry: &Registry, only: Option<&str>, log: &Path) -> anyhow::Result<()> {
    let config = registry.config_dir.display().to_string();
    let trine = Trine::start(program, "images", &["up", "--registry-config", &config], "kubeconfig", log)?;
    let cluster = Cluster { program, trine: &trine };
    let mut broken = Vec::new();
    for recipe in recipes().filter(|recipe| only.is_none_or(|name| name == recipe.name)) {
        for reference in recipe.references {
            match cluster.prove(recipe, reference) {
                Ok(()) => println!("ok: {reference}"),
                Err(error) => broken.push(format!("{reference}: {error:#}")),
            }
        }
    }
    anyhow::ensure!(broken.is_empty(), "these do not do what they are for:\n{}", broken.join("\n"));
    Ok(())
}

struct Cluster<'a> {
    program: &'a Path,
    trine: &'a Trine,
}

impl Cluster<'_> {
    fn prove(&self, recipe: &Recipe, reference: &str) -> anyhow::Result<()> {
        let pod = pod(&recipe.proof, reference);
        self.trine(&["apply", "-f", "-"], &pod.to_string())?;
        let result = self.running(reference).and_then(|()| {
            recipe.proof.asked.iter().try_for_each(|(command, said)| self.answers(command, said))
        });
        self.trine(&["delete", "pod/proof", "--grace-period", "1"], "")?;
        result
    }

    fn running(&self, reference: &str) -> anyhow::Result<()> {
        let since = Instant::now();
        loop {
            let text = self.trine(&["get", "pod/proof", "-o", "json"], "")?;
            let pod: Value = serde_json::from_str(&text).context("what get says")?;
            let status = &pod["status"]["containerStatuses"][0];
            if status["state"]["running"].is_object() {
                anyhow::ensure!(status["image"] == reference, "it is called {}", status["image"]);
                return Ok(());
            }
            let over = since.elapsed() > START_DEADLINE || status["state"]["terminated"].is_object();
            anyhow::ensure!(!over, "it does not run: {}", status["state"]);
            std::thread::sleep(POLL);
        }
    }

    /// A command in the container says that, at the latest once what it serves is there.
    fn answers(&self, command: &[&str], said: &str) -> anyhow::Result<()> {
        let words: Vec<&str> = ["exec", "proof", "--"].iter().chain(command).copied().collect();
        let since = Instant::now();
        loop {
            let answer = self.trine(&words, "");
            match answer {
                Ok(text) if text.contains(said) => return Ok(()),
                answer if since.elapsed() > ANSWER_DEADLINE => {
                    let found = answer.unwrap_or_else(|error| format!("{error:#}"));
                    anyhow::bail!("{command:?} says {:?}, not {said:?}", found.trim());
                }
                _ => std::thread::sleep(POLL),
            }
        }
    }

    /// What a command of Trine's prints, on either output.
    fn trine(&self, words: &[&str], input: &str) -> anyhow::Result<String> {
        let (command, rest) = words.split_first().context("a command")?;
        let mut child = Command::new(self.program)
            .arg(command)
            .arg("--data-dir")
            .arg(&self.trine.data_dir)
            .args(rest)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        child.stdin.take().context("it has an input")?.write_all(input.as_bytes())?;
        let output = child.wait_with_output()?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        anyhow::ensure!(output.status.success(), "{}: {}", words.join(" "), said.trim());
        Ok(said)
    }
}

/// A Pod of the image, as its proof wants it.
fn pod(proof: &Proof, reference: &str) -> Value {
    let mut container = json!({"name": "main", "image": reference});
    if !proof.command.is_empty() {
        container["command"] = json!(proof.command);
    }
    if !proof.args.is_empty() {
        container["args"] = json!(proof.args);
    }
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "proof"},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    })
}
