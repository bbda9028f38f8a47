//! The story: a claim, a Service, and a Pod that serves HTTP and keeps a note on the volume; its log and a command in it; its end;
//! a second Pod that has the note; the end of all. `trine`'s client commands tell it to any API server.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};

use super::facts::{Facts, note, note_conditions, note_names, note_reasons};
use super::http::ask;

/// The image that is made of the program.
pub const IMAGE: &str = "trine.local/swap:1";
/// How long each wait may take.
const DEADLINE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);
const NOTE: &str = "kept on the volume";

/// An archive of an image that is nothing but the program, in `dir`.
///
/// # Errors
/// If it cannot be made.
pub fn image(program: &Path, dir: &Path) -> anyhow::Result<PathBuf> {
    let archive = dir.join("swap.tar");
    let mut build = Command::new(program);
    build.args(["image", "build", "--tag", IMAGE, "--entrypoint", "/trine", "--entrypoint", "web"]);
    build.arg("--data-dir").arg(dir).arg("--output").arg(&archive);
    build.arg(format!("{}:/trine", program.display()));
    said(&mut build)?;
    Ok(archive)
}

/// Gives an archive to the runtime of a data dir.
///
/// # Errors
/// If it is not taken.
pub fn import(program: &Path, archive: &Path, data_dir: &Path) -> anyhow::Result<()> {
    said(Command::new(program).args(["image", "import"]).arg(archive).arg("--data-dir").arg(data_dir))
        .map(drop)
}

/// Runs a command to its end; what it said.
///
/// # Errors
/// If it fails, with its last words.
pub fn said(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let words: Vec<_> = command.get_args().take(3).map(|word| word.to_string_lossy()).collect();
    let last = errors.trim().lines().last().unwrap_or_default();
    anyhow::ensure!(output.status.success(), "{}: {last}", words.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Tells the story to the API server of `kubeconfig`, and what was seen.
///
/// # Errors
/// At the first thing that does not come true in time.
pub fn tell(program: &Path, kubeconfig: &Path) -> anyhow::Result<Facts> {
    let teller = Teller { program, kubeconfig };
    let mut facts = Facts::new();
    teller.apply(&[claim(), service(), pod("web-0")])?;
    let first = teller.ready("web-0")?;
    let address = teller.get("service/web")?["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
    let address = format!("{address}:80");
    let answer = soon("an answer through the Service", || ask(&address, "GET", "/", ""))?;
    facts.insert("answer".to_owned(), answer);
    facts.insert("note".to_owned(), ask(&address, "PUT", "/note", NOTE).context("the note is not written")?);
    facts.insert("log".to_owned(), teller.said(&["logs", "web-0"])?);
    facts.insert("exec".to_owned(), teller.said(&["exec", "web-0", "--", "/trine", "web", "--help"])?);
    teller.look(&mut facts, &first)?;
    teller.said(&["delete", "pod/web-0"]).context("the Pod does not go")?;
    teller.apply(&[pod("web-1")])?;
    teller.ready("web-1")?;
    let kept = soon("the note", || {
        let note = ask(&address, "GET", "/note", "")?;
        anyhow::ensure!(note == NOTE, "the volume gave {note:?} back");
        Ok(note)
    })?;
    facts.insert("note of the second Pod".to_owned(), kept);
    teller.said(&["delete", "pod/web-1", "service/web", "pvc/data"]).context("not all goes")?;
    soon("the volume's end", || {
        let left = teller.get("pv")?["items"].as_array().map_or(0, Vec::len);
        anyhow::ensure!(left == 0, "{left} volumes are left");
        Ok(())
    })?;
    Ok(facts)
}

/// Tries until it succeeds; the last failure if it never does.
///
/// # Errors
/// After [`DEADLINE`].
pub fn soon<T>(what: &str, mut attempt: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let since = Instant::now();
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) if since.elapsed() > DEADLINE => {
                return Err(error).with_context(|| format!("{what}: not within {DEADLINE:?}"));
            }
            Err(_) => std::thread::sleep(POLL),
        }
    }
}

/// Who tells it to whom.
pub struct Teller<'a> {
    /// `trine`.
    pub program: &'a Path,
    /// The API server, and as whom.
    pub kubeconfig: &'a Path,
}

impl Teller<'_> {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        // Before `--`, behind which nothing is ours.
        command.arg(words[0]).arg("--kubeconfig").arg(self.kubeconfig).args(&words[1..]);
        command
    }

    fn said(&self, words: &[&str]) -> anyhow::Result<String> {
        Ok(said(&mut self.command(words))?.trim().to_owned())
    }

    /// An object, or all of a kind.
    ///
    /// # Errors
    /// If it is not there.
    pub fn get(&self, what: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.said(&["get", what, "-o", "json"])?)?)
    }

    /// Makes objects; a namespace that is being set up refuses Pods for a moment.
    ///
    /// # Errors
    /// If they are refused for longer.
    pub fn apply(&self, objects: &[Value]) -> anyhow::Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
        soon("the objects are not taken", || {
            let mut command = self.command(&["apply", "-f", "-"]);
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
            let mut child = command.spawn()?;
            child.stdin.take().context("its input")?.write_all(list.as_bytes())?;
            let output = child.wait_with_output()?;
            let errors = String::from_utf8_lossy(&output.stderr);
            anyhow::ensure!(output.status.success(), "{}", errors.trim());
            Ok(())
        })
    }

    /// Waits until a Pod is Ready; with its events if it is not in time.
    fn ready(&self, name: &str) -> anyhow::Result<Value> {
        let ready = soon(&format!("{name} is not Ready"), || {
            let pod = self.get(&format!("pod/{name}"))?;
            let conditions = pod.pointer("/status/conditions").and_then(Value::as_array).cloned();
            let ready = conditions.iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True");
            anyhow::ensure!(ready, "{}", pod["status"]);
            Ok(pod)
        });
        ready.map_err(|error| {
            let events = self.get("events").unwrap_or_default();
            let told = events["items"].as_array().into_iter().flatten();
            let told: BTreeMap<String, String> =
                told.map(|e| (e["reason"].to_string(), e["message"].to_string())).collect();
            error.context(format!("events: {told:?}"))
        })
    }

    /// Notes the objects as they are while the first Pod runs.
    fn look(&self, facts: &mut Facts, pod: &Value) -> anyhow::Result<()> {
        note(
            facts,
            "Pod",
            pod,
            &[
                "/status/phase",
                "/status/qosClass",
                "/status/containerStatuses/0/ready",
                "/status/containerStatuses/0/started",
                "/status/containerStatuses/0/restartCount",
                "/status/containerStatuses/0/image",
                "/spec/schedulerName",
                "/spec/serviceAccountName",
                "/spec/tolerations",
            ],
        );
        note_names(facts, "Pod", pod, "/status/containerStatuses/0/state");
        note_conditions(facts, "Pod", pod);
        let claim = self.get("pvc/data")?;
        note(
            facts,
            "claim",
            &claim,
            &[
                "/status/phase",
                "/status/capacity/storage",
                "/status/accessModes",
                "/spec/storageClassName",
                "/spec/volumeMode",
                "/metadata/finalizers",
            ],
        );
        note_names(facts, "claim", &claim, "/metadata/annotations");
        let volumes = self.get("pv")?;
        let volume = &volumes["items"][0];
        note(
            facts,
            "volume",
            volume,
            &[
                "/status/phase",
                "/spec/capacity/storage",
                "/spec/persistentVolumeReclaimPolicy",
                "/spec/csi/driver",
                "/spec/csi/fsType",
                "/spec/claimRef/name",
            ],
        );
        note_names(facts, "volume", volume, "/metadata/annotations");
        let attachments = self.get("volumeattachments")?;
        note(facts, "attachment", &attachments["items"][0], &["/status/attached", "/spec/attacher"]);
        note(facts, "Service", &self.get("service/web")?, &["/spec/type", "/spec/ports", "/spec/ipFamilies"]);
        let slices = self.get("endpointslices")?;
        let slices = slices["items"].as_array().into_iter().flatten();
        for slice in slices.filter(|s| s["metadata"]["labels"]["kubernetes.io/service-name"] == "web") {
            note(
                facts,
                "slice",
                slice,
                &["/addressType", "/ports", "/endpoints/0/conditions", "/endpoints/0/targetRef/name"],
            );
        }
        note_reasons(facts, "web-0", &self.get("events")?);
        Ok(())
    }
}

fn claim() -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "400Mi"}}}})
}

fn service() -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {
        "selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]}})
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}}, "spec": {
        "terminationGracePeriodSeconds": 5,
        "containers": [{
            "name": "web", "image": IMAGE, "imagePullPolicy": "Never", "args": ["--data", "/data"],
            "ports": [{"name": "http", "containerPort": 8080}],
            "readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 1},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}})
}
