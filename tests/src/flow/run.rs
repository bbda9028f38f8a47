//! Flows against a server: each in a folder and a namespace of its own, two at a time.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::parse::{Flow, How, Shown, Step, words};

/// Longest time for one command.
const COMMAND_DEADLINE: &str = "30";
/// Longest wait for what comes by itself.
const DEADLINE: Duration = Duration::from_secs(30);
/// Flows at a time.
const AT_A_TIME: usize = 3;

/// How flows went.
pub struct Outcomes(Vec<Outcome>);

struct Outcome {
    name: String,
    steps: usize,
    took: Duration,
    result: Result<(), String>,
}

impl Outcomes {
    /// Prints the table of all flows.
    ///
    /// # Panics
    /// If one failed.
    pub fn hold(&self) {
        let (mut table, mut failures) = (String::new(), String::new());
        for one in &self.0 {
            let verdict = if one.result.is_ok() { "holds" } else { "FAILED" };
            let (took, steps) = (one.took.as_millis(), one.steps);
            let _ = writeln!(table, "{verdict:6} {took:5} ms {steps:2} commands  {}", one.name);
            if let Err(why) = &one.result {
                let _ = writeln!(failures, "\n# {}\n{why}", one.name);
            }
        }
        // Past the capture of tests: the table is of interest when all holds.
        let _ = writeln!(std::io::stderr(), "{table}{} flows", self.0.len());
        assert!(failures.is_empty(), "{failures}");
    }
}

/// Runs flows with `kubectl` as the user of `kubeconfig`. `TRINE_FLOW` picks those whose names have its text.
///
/// # Panics
/// If the namespaces cannot be made.
#[must_use]
pub fn run(kubectl: &Path, kubeconfig: &Path, flows: &[Flow]) -> Outcomes {
    let dir = tempfile::Builder::new().prefix("trine-flows-").tempdir().expect("a temporary folder");
    let picked = std::env::var("TRINE_FLOW").unwrap_or_default();
    let flows: Vec<&Flow> = flows.iter().filter(|f| f.name.contains(&picked)).collect();
    let server = Kubectl { program: kubectl, kubeconfig, cache: &dir.path().join("cache") };
    server.make_namespaces(dir.path(), flows.len());
    let next = Mutex::new(0);
    let outcomes = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let number = {
                        let mut next = next.lock().expect("the counter");
                        *next += 1;
                        *next - 1
                    };
                    let Some(flow) = flows.get(number) else { return };
                    let since = Instant::now();
                    let result = Running::new(&server, dir.path(), number).and_then(|mut r| r.flow(flow));
                    let (name, steps) = (flow.name.clone(), flow.steps.len());
                    let outcome = Outcome { name, steps, took: since.elapsed(), result };
                    outcomes.lock().expect("the outcomes").insert(number, outcome);
                }
            });
        }
    });
    Outcomes(outcomes.into_inner().expect("the outcomes").into_values().collect())
}

struct Kubectl<'a> {
    program: &'a Path,
    kubeconfig: &'a Path,
    cache: &'a Path,
}

fn namespace(number: usize) -> String {
    format!("flow-{number}")
}

impl Kubectl<'_> {
    fn make_namespaces(&self, dir: &Path, count: usize) {
        let manifest: String = (0..count)
            .map(|n| format!("---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {}}}\n", namespace(n)))
            .collect();
        let file = dir.join("namespaces.yaml");
        std::fs::write(&file, manifest).expect("the manifest is written");
        let mut command = Command::new(self.program);
        command.arg("--kubeconfig").arg(self.kubeconfig).arg("--cache-dir").arg(self.cache);
        let output = command.args(["create", "-f"]).arg(file).output().expect("kubectl starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A flow under way.
struct Running<'a> {
    server: &'a Kubectl<'a>,
    dir: PathBuf,
    kubeconfig: PathBuf,
    kept: BTreeMap<String, String>,
    beside: Option<(Child, PathBuf)>,
}

/// What a command did.
#[derive(Default)]
struct Done {
    code: Option<i32>,
    out: String,
    err: String,
}

impl<'a> Running<'a> {
    fn new(server: &'a Kubectl<'a>, dir: &Path, number: usize) -> Result<Self, String> {
        let say = |e: std::io::Error| e.to_string();
        let namespace = namespace(number);
        let dir = dir.join(&namespace);
        std::fs::create_dir(&dir).map_err(say)?;
        let kubeconfig = dir.join(".kubeconfig");
        let text = std::fs::read_to_string(server.kubeconfig).map_err(say)?;
        let text = text.replace("user: admin}", &format!("user: admin, namespace: {namespace}}}"));
        std::fs::write(&kubeconfig, &text).map_err(say)?;
        let url = between(&text, "server: …").unwrap_or_default();
        let kept = BTreeMap::from([("NS".to_owned(), namespace), ("SERVER".to_owned(), url)]);
        Ok(Self { server, dir, kubeconfig, kept, beside: None })
    }

    fn flow(&mut self, flow: &Flow) -> Result<(), String> {
        for step in &flow.steps {
            // What was kept may be in files too.
            for (name, text) in &flow.files {
                let path = self.dir.join(name);
                let parent = path.parent().ok_or("a file in no folder")?;
                std::fs::create_dir_all(parent).map_err(|e| e.to_string())?;
                if !path.exists() || text.contains("${") {
                    std::fs::write(path, self.filled(text)).map_err(|e| e.to_string())?;
                }
            }
            let output = self.step(step).map_err(|why| format!("$ {}\n{why}", self.filled(&step.text)))?;
            if let Some(kept) = &step.kept {
                let (name, around) = kept.split_once(' ').unwrap_or((kept, "…"));
                let value = between(&output, around).ok_or_else(|| format!("no {around:?} in {output}"))?;
                self.kept.insert(name.to_owned(), value);
            }
        }
        Ok(())
    }

    fn filled(&self, text: &str) -> String {
        self.kept
            .iter()
            .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
    }

    fn step(&mut self, step: &Step) -> Result<String, String> {
        match step.how {
            How::Once(code) => {
                let done = self.run(step)?;
                self.judge(step, &done, Some(code)).map(|()| done.out)
            }
            How::Repeated => self.until(|r| {
                let done = r.run(step)?;
                r.judge(step, &done, Some(0)).map(|()| done.out)
            }),
            How::Beside => {
                self.end();
                let path = self.dir.join(".beside");
                let file = std::fs::File::create(&path).map_err(|e| e.to_string())?;
                let error = file.try_clone().map_err(|e| e.to_string())?;
                let mut command = self.command(&self.filled(&step.text));
                command.stdin(Stdio::null()).stdout(file).stderr(error);
                self.beside = Some((command.spawn().map_err(|e| e.to_string())?, path));
                self.look(step)
            }
            How::Again => self.look(step),
        }
    }

    /// Waits until the command beside has shown what it has to.
    fn look(&mut self, step: &Step) -> Result<String, String> {
        let path = self.beside.as_ref().map(|(_, path)| path.clone()).ok_or("nothing runs beside")?;
        self.until(|r| {
            let out = std::fs::read_to_string(&path).map_err(|e| e.to_string())?;
            let done = Done { out, ..Done::default() };
            r.judge(step, &done, None).map(|()| done.out)
        })
    }

    fn until<T>(&self, mut check: impl FnMut(&Self) -> Result<T, String>) -> Result<T, String> {
        let since = Instant::now();
        loop {
            match check(self) {
                Err(why) if since.elapsed() > DEADLINE => {
                    return Err(format!("not after {DEADLINE:?}: {why}"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
                done => return done,
            }
        }
    }

    fn command(&self, text: &str) -> Command {
        let mut command = Command::new("timeout");
        // A command that hangs must not take the tests with it.
        command.args(["--foreground", COMMAND_DEADLINE]).arg(self.server.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig).arg("--cache-dir").arg(self.server.cache);
        command
            .current_dir(&self.dir)
            .env("HOME", &self.dir)
            .env("TMPDIR", &self.dir)
            .env("NO_COLOR", "1")
            .env_remove("KUBECONFIG");
        let mut leading = true;
        for word in words(text) {
            let variable = word.split_once('=').filter(|(name, _)| {
                leading && !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')
            });
            match variable {
                Some((name, value)) => drop(command.env(name, value)),
                None => {
                    leading = false;
                    command.arg(word);
                }
            }
        }
        command
    }

    fn run(&self, step: &Step) -> Result<Done, String> {
        let mut command = self.command(&self.filled(&step.text));
        command.stdin(match &step.input {
            Some(name) => std::fs::File::open(self.dir.join(name)).map_err(|e| e.to_string())?.into(),
            None => Stdio::null(),
        });
        let output = command.output().map_err(|e| e.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Done { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) })
    }

    fn judge(&self, step: &Step, done: &Done, code: Option<i32>) -> Result<(), String> {
        let seen = || {
            format!("--- it ended with {:?}, said\n{}--- and complained\n{}", done.code, done.out, done.err)
        };
        if code.is_some() && done.code != code {
            return Err(format!("it did not end with {code:?}\n{}", seen()));
        }
        let (out, err) = (one_blank(&done.out), one_blank(&done.err));
        let mut lines = Vec::new();
        for shown in &step.shows {
            let (text, good) = match shown {
                Shown::Line(text) => {
                    lines.push(one_blank(&self.filled(text)));
                    continue;
                }
                Shown::Part(text) => (text, out.lines().any(|l| has(l, &one_blank(&self.filled(text))))),
                Shown::Not(text) => (text, !out.lines().any(|l| has(l, &one_blank(&self.filled(text))))),
                Shown::Error(text) => (text, err.lines().any(|l| has(l, &one_blank(&self.filled(text))))),
            };
            if !good {
                return Err(format!("not as it should be: {text:?}\n{}", seen()));
            }
        }
        if !lines.is_empty() {
            let actual: Vec<&str> = out.lines().collect();
            let same = actual.len() == lines.len()
                && lines.iter().zip(&actual).all(|(wanted, line)| is(line, wanted));
            if !same {
                return Err(format!("its lines should be\n{}\n{}", lines.join("\n"), seen()));
            }
        }
        Ok(())
    }

    fn end(&mut self) {
        if let Some((mut child, _)) = self.beside.take() {
            // `timeout` passes it on to kubectl, a SIGKILL would not.
            let _ = Command::new("kill").arg(child.id().to_string()).status();
            let _ = child.wait();
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs of blanks become one; lines stay.
fn one_blank(text: &str) -> String {
    text.lines()
        .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ") + "\n")
        .collect::<String>()
        .trim_end()
        .to_owned()
}

/// Whether a line is as `wanted` says, in which `…` is anything.
fn is(line: &str, wanted: &str) -> bool {
    match wanted.split_once('…') {
        None => line == wanted,
        Some((start, rest)) => line.strip_prefix(start).is_some_and(|line| ends(line, rest)),
    }
}

/// What stands at the `…` of `around` in the first line that has it; for `…` alone, the whole text.
fn between(text: &str, around: &str) -> Option<String> {
    if around == "…" {
        return Some(text.trim().to_owned());
    }
    let (before, after) = around.split_once('…')?;
    text.lines().find_map(|line| {
        let rest = &line[line.find(before)? + before.len()..];
        let end = if after.is_empty() { rest.len() } else { rest.find(after)? };
        Some(rest[..end].trim().to_owned())
    })
}

/// Whether some end of `line` is as `wanted` says.
fn ends(line: &str, wanted: &str) -> bool {
    line.char_indices().map(|(at, _)| at).chain([line.len()]).any(|at| is(&line[at..], wanted))
}

/// Whether a line has a part as `wanted` says.
fn has(line: &str, wanted: &str) -> bool {
    ends(line, &format!("{wanted}…"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_stand_for_anything_within_a_line() {
        assert!(is("web 1/1 Running 5s", "web … Running …") && !is("web 1/1 Pending", "web … Running …"));
        assert!(has("a b c d", "b … d") && has("a b c", "b") && !has("a b c", "c … a"));
        assert!(!is("a b", "a"));
        assert_eq!(between("from :1 -> 80\nfrom :567 -> 81", ":… -> 81").as_deref(), Some("567"));
        assert_eq!(between("all\n", "…").as_deref(), Some("all"));
    }
}
