//! Runs a program of the distribution under a deadline, with its words kept for the error.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

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
    /// It could not be started or waited for.
    #[error("{program} could not be run")]
    Run {
        /// The program.
        program: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// It gave up.
    #[error("{program} failed ({status}): {output}")]
    Failed {
        /// The program.
        program: &'static str,
        /// Its exit status.
        status: ExitStatus,
        /// The end of what it printed, on one line.
        output: String,
    },
    /// It took too long and was killed.
    #[error("{program} took longer than {} s and was killed", deadline.as_secs())]
    TimedOut {
        /// The program.
        program: &'static str,
        /// The time it had.
        deadline: Duration,
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
    let file = find(program, package)?;
    let failed = |source| ProgramError::Run { program, source };
    let mut child = Command::new(file)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let readers = [
        child.stdout.take().map(|pipe| std::thread::spawn(move || read_end(pipe))),
        child.stderr.take().map(|pipe| std::thread::spawn(move || read_end(pipe))),
    ];
    let Some(status) = wait(&mut child, deadline).map_err(failed)? else {
        return Err(ProgramError::TimedOut { program, deadline });
    };
    let output: Vec<String> = readers.into_iter().flatten().filter_map(|reader| reader.join().ok()).collect();
    if status.code().is_some_and(|code| code == 0 || fine.contains(&code)) {
        return Ok(());
    }
    Err(ProgramError::Failed { program, status, output: one_line(&output.join(" ")) })
}

/// Waits for `child` until `deadline`; kills it and gives `None` beyond.
fn wait(child: &mut Child, deadline: Duration) -> io::Result<Option<ExitStatus>> {
    let since = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if since.elapsed() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

fn read_end(mut pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = pipe.read_to_end(&mut bytes);
    let from = bytes.len().saturating_sub(KEPT);
    String::from_utf8_lossy(&bytes[from..]).into_owned()
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
        assert_eq!(error.to_string(), "sh failed (exit status: 4): no way");
        let error = run("no-such-program", "nowhere", &[], &[], second).unwrap_err();
        assert!(error.to_string().contains("package nowhere"), "{error}");
        let error = run("sh", "dash", &args("exec sleep 60"), &[], Duration::from_millis(30)).unwrap_err();
        assert!(matches!(error, ProgramError::TimedOut { .. }), "{error}");
    }
}
