//! Calls a plugin, built in or executed: the same request, the same answer.

use std::ffi::OsString;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use trine_kernel::exec::{self, ExecError, Output};

use crate::plugins::{self, Caller, Plugin};
use crate::spec::{CniError, Code, Env};

/// How long an executed plugin may take. CNI names no limit; kubelet gives a sandbox four minutes in all.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Where a plugin was found.
pub enum Found {
    /// It is one of ours.
    BuiltIn(&'static dyn Plugin),
    /// It is a program.
    Program(PathBuf),
}

impl std::fmt::Debug for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BuiltIn(plugin) => f.debug_tuple("BuiltIn").field(&plugin.name()).finish(),
            Self::Program(path) => f.debug_tuple("Program").field(path).finish(),
        }
    }
}

/// Which of two plugins of one type is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefer {
    /// The program, as anybody expects who installed it; ours if there is none.
    Program,
    /// Ours: the built-in network uses what belongs to it.
    BuiltIn,
}

/// Finds the plugin `kind` in `dirs` and among the built-in ones. A program that is this very executable (the
/// multi-call binary) is not executed but called.
///
/// # Errors
/// [`Code::InvalidConfig`] if there is none.
pub fn find(kind: &str, dirs: &[PathBuf], prefer: Prefer) -> Result<Found, CniError> {
    let built_in = plugins::find(kind);
    if prefer == Prefer::BuiltIn
        && let Some(plugin) = built_in
    {
        return Ok(Found::BuiltIn(plugin));
    }
    let program = dirs.iter().map(|dir| dir.join(kind)).find(|path| is_program(path));
    match (program, built_in) {
        (Some(path), Some(plugin)) if is_self(&path) => Ok(Found::BuiltIn(plugin)),
        (Some(path), _) => Ok(Found::Program(path)),
        (None, Some(plugin)) => Ok(Found::BuiltIn(plugin)),
        (None, None) => {
            let dirs: Vec<_> = dirs.iter().map(|dir| dir.display().to_string()).collect();
            Err(CniError::new(
                Code::InvalidConfig,
                format!("plugin type {kind:?} is not built in and not found in [{}]", dirs.join(", ")),
            )
            .by_plugin(kind))
        }
    }
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

fn is_self(path: &Path) -> bool {
    let id = |path: &Path| std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    id(path).is_some_and(|it| id(Path::new("/proc/self/exe")) == Some(it))
}

/// Calls a plugin and gives its answer (none for DEL, CHECK, GC and STATUS).
///
/// # Errors
/// The plugin's own error, or why it gave none.
pub fn call(found: &Found, kind: &str, env: &Env, config: Value) -> Result<Option<Value>, CniError> {
    let answer = match found {
        Found::BuiltIn(plugin) => plugins::serve(*plugin, env, config, Caller::InProcess),
        Found::Program(path) => execute(path, env, &config),
    };
    answer.map_err(|e| e.by_plugin(kind))
}

/// Calls a built-in plugin in this process, as a runtime would: the configuration is what it would read, the answer what it would
/// print. The host is the calling thread's network namespace.
///
/// # Errors
/// The plugin's own error; [`Code::InvalidConfig`] if there is none of that type.
pub fn call_built_in(kind: &str, env: &Env, config: Value) -> Result<Option<Value>, CniError> {
    call(&find(kind, &[], Prefer::BuiltIn)?, kind, env, config)
}

fn execute(path: &Path, env: &Env, config: &Value) -> Result<Option<Value>, CniError> {
    let mut command = Command::new(path);
    command.current_dir("/");
    for (name, value) in env.variables() {
        // CNI_ARGS may be empty; a variable of our own environment must not leak in.
        command.env(name, value);
    }
    command.env_remove("CNI_NETNS_OVERRIDE");
    let output = exec::run(&mut command, config.to_string().as_bytes(), DEADLINE).map_err(|e| match e {
        ExecError::Deadline { .. } => {
            CniError::new(Code::TryAgainLater, format!("{} hangs", path.display())).because(e)
        }
        ExecError::Io { .. } => {
            CniError::new(Code::Io, format!("{} cannot be executed", path.display())).because(e)
        }
    })?;
    if !output.stderr.is_empty() {
        tracing::debug!(plugin = %path.display(), stderr = %String::from_utf8_lossy(&output.stderr).trim(), "said");
    }
    read(path, &output)
}

fn read(path: &Path, output: &Output) -> Result<Option<Value>, CniError> {
    let printed = output.stdout.trim_ascii();
    let value = serde_json::from_slice::<Value>(printed);
    if output.status.success() {
        if printed.is_empty() {
            return Ok(None);
        }
        return value.map(Some).map_err(|e| {
            CniError::new(Code::Decoding, format!("{} printed no JSON", path.display()))
                .details(excerpt(printed))
                .because(e)
        });
    }
    // The specification once said that errors go to standard error.
    let error = value.ok().or_else(|| serde_json::from_slice(output.stderr.trim_ascii()).ok());
    Err(error.as_ref().and_then(CniError::from_json).unwrap_or_else(|| {
        let said = if printed.is_empty() { output.stderr.trim_ascii() } else { printed };
        CniError::new(Code::Internal, format!("{} failed with {}", path.display(), output.how()))
            .details(excerpt(said))
    }))
}

/// The end of an output, where the reason usually is.
fn excerpt(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(512)..]).into_owned()
}

/// `dirs` as `CNI_PATH`.
#[must_use]
pub fn search_path(dirs: &[PathBuf]) -> String {
    // A folder with a colon in its name cannot be said; it is left out.
    let sayable = dirs.iter().filter(|dir| !dir.as_os_str().as_encoded_bytes().contains(&b':'));
    std::env::join_paths(sayable).unwrap_or_else(|_| OsString::new()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(dir: &tempfile::TempDir, name: &str, body: &str) -> PathBuf {
        let path = dir.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn programs_come_before_built_in_plugins_unless_ours_is_wanted() {
        let dir = tempfile::tempdir().unwrap();
        script(&dir, "host-local", "exit 0");
        std::fs::write(dir.path().join("loopback"), "not executable").unwrap();
        let dirs = [dir.path().join("none"), dir.path().to_owned()];
        assert!(matches!(find("host-local", &dirs, Prefer::Program), Ok(Found::Program(_))));
        assert!(matches!(find("host-local", &dirs, Prefer::BuiltIn), Ok(Found::BuiltIn(_))));
        assert!(matches!(find("loopback", &dirs, Prefer::Program), Ok(Found::BuiltIn(_))));
        let error = find("nothing", &dirs, Prefer::Program).unwrap_err();
        assert!(error.msg.contains("plugin type \"nothing\""), "{error}");
        assert!(error.msg.contains(&dir.path().display().to_string()), "{error}");
    }

    #[test]
    fn answers_errors_and_noise_of_programs_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let rows = [
            ("echo '{\"ips\":[]}'", Ok(true), ""),
            ("exit 0", Ok(false), ""),
            ("echo hello", Err(Code::Decoding), "hello"),
            (
                "echo '{\"code\":11,\"msg\":\"busy\",\"details\":\"d\"}'; exit 1",
                Err(Code::TryAgainLater),
                "busy",
            ),
            ("echo '{\"code\":7,\"msg\":\"bad\"}' >&2; exit 1", Err(Code::InvalidConfig), "bad"),
            ("echo panic >&2; exit 2", Err(Code::Internal), "failed with exit status 2 (panic)"),
            ("kill -9 $$", Err(Code::Internal), "signal 9"),
        ];
        for (n, (body, expected, words)) in rows.into_iter().enumerate() {
            let path = script(&dir, &format!("p{n}"), body);
            let env = Env { command: "ADD".to_owned(), ..Env::default() };
            match (call(&Found::Program(path), "p", &env, serde_json::json!({})), expected) {
                (Ok(answer), Ok(some)) => assert_eq!(answer.is_some(), some, "{body}"),
                (Err(e), Err(code)) => {
                    assert_eq!(e.code, code, "{body}");
                    assert!(e.to_string().contains(words), "{e}");
                }
                (result, _) => panic!("{body}: {result:?}"),
            }
        }
    }

    #[test]
    fn a_program_sees_the_six_variables_and_its_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let path = script(&dir, "p", &format!("env | grep ^CNI_ | sort > {0}; cat >> {0}", out.display()));
        let env = Env {
            command: "ADD".to_owned(),
            container_id: "c".to_owned(),
            netns: "/n".to_owned(),
            ifname: "eth0".to_owned(),
            args: "K=V".to_owned(),
            path: "/a:/b".to_owned(),
        };
        call(&Found::Program(path), "p", &env, serde_json::json!({"name": "n"})).unwrap();
        assert_eq!(
            std::fs::read_to_string(out).unwrap(),
            "CNI_ARGS=K=V\nCNI_COMMAND=ADD\nCNI_CONTAINERID=c\nCNI_IFNAME=eth0\nCNI_NETNS=/n\nCNI_PATH=/a:/b\n\
             {\"name\":\"n\"}"
        );
    }
}
