//! Runs a program of the distribution under a deadline, with its words kept for the error.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::exec::{self, ExecError};

/// Bytes of a program's output kept for an error.
const KEPT: usize = 2048;

/// Folders searched after PATH: daemons often run without them in it.
const SBIN: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Why a program did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It is not installed.
    #[error("the program {program} is not installed (it is in the package {package})")]
    Missing {
        /// The program.
        program: &'static str,
        /// The package of the usual distributions that holds it.
        package: &'static str,
    },
    /// It could not be run, or took too long and was killed.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// It gave up.
    #[error("{program} failed ({how}): {output}")]
    Failed {
        /// The program.
        program: &'static str,
        /// Its exit status or signal.
        how: String,
        /// The end of what it printed, on one line.
        output: String,
    },
}

/// Where `program` is, in PATH or an sbin folder.
pub(super) fn find(program: &'static str, package: &'static str) -> Result<PathBuf, ProgramError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SBIN.iter().map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
        .ok_or(ProgramError::Missing { program, package })
}

/// Runs `program`; exit statuses in `fine` are success.
pub(super) fn run(
    program: &'static str,
    package: &'static str,
    args: &[&OsStr],
    fine: &[i32],
    deadline: Duration,
) -> Result<(), ProgramError> {
    let output = exec::run(Command::new(find(program, package)?).args(args), &[], deadline)?;
    if output.status.code().is_some_and(|code| code == 0 || fine.contains(&code)) {
        return Ok(());
    }
    let said = [end_of(&output.stdout), end_of(&output.stderr)].join(" ");
    Err(ProgramError::Failed { program, how: output.how(), output: one_line(&said) })
}

fn end_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(KEPT)..]).into_owned()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_a_missing_and_a_slow_program_are_told_apart() {
        let args = |script: &'static str| [OsStr::new("-c"), OsStr::new(script)];
        let second = Duration::from_secs(5);
        run("sh", "dash", &args("exit 0"), &[], second).unwrap();
        run("sh", "dash", &args("exit 3"), &[3], second).unwrap();
        let error = run("sh", "dash", &args("echo no; echo way >&2; exit 4"), &[], second).unwrap_err();
        assert_eq!(error.to_string(), "sh failed (exit status 4): no way");
        let error = run("no-such-program", "nowhere", &[], &[], second).unwrap_err();
        assert!(error.to_string().contains("package nowhere"), "{error}");
        let error = run("sh", "dash", &args("exec sleep 60"), &[], Duration::from_millis(30)).unwrap_err();
        assert!(matches!(error, ProgramError::Exec(ExecError::Deadline { .. })), "{error}");
    }
}
