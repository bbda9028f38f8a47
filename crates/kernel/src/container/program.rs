//! Finds the program and becomes it. The words of the errors are those that users of containers know and search for.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::oci::Process;
use super::privileges::Rest;
use super::words;
use crate::proc::Program;

/// Where programs are looked for if the environment does not say.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Takes the steps that are left and becomes the program of `process`; comes back only with the reason why not.
pub(super) fn run(process: &Process, rest: &Rest) -> String {
    let Some(name) = process.args.first() else { return "no command specified".to_owned() };
    let path = match find(name, &process.env) {
        Ok(path) => path,
        Err(why) => return why,
    };
    let program = match Program::new(&path, &process.args, &process.env) {
        Ok(program) => program,
        Err(error) => return format!("exec {}: {error}", path.display()),
    };
    if let Err(error) = rest.take() {
        return error.to_string();
    }
    let error = program.execute();
    format!("exec {}: {}", path.display(), words(&error))
}

fn find(name: &str, env: &[String]) -> Result<PathBuf, String> {
    if name.contains('/') {
        let path = Path::new(name);
        return match std::fs::metadata(path) {
            Err(error) => Err(format!("exec: {name:?}: stat {name}: {}", words(&error))),
            Ok(meta) if meta.is_dir() => Err(format!("exec: {name:?}: is a directory")),
            Ok(_) if access(path, Access::EXEC_OK).is_err() => {
                Err(format!("exec: {name:?}: permission denied"))
            }
            Ok(_) => Ok(path.to_owned()),
        };
    }
    let path = env.iter().rev().find_map(|line| line.strip_prefix("PATH=")).unwrap_or(DEFAULT_PATH);
    path.split(':')
        .map(|folder| Path::new(if folder.is_empty() { "." } else { folder }).join(name))
        .find(|file| file.is_file() && access(file, Access::EXEC_OK).is_ok())
        .ok_or_else(|| format!("exec: {name:?}: executable file not found in $PATH"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_in_the_words_that_users_know() {
        let none = find("nosuch", &["PATH=/usr/bin:/bin".to_owned()]);
        assert_eq!(none.unwrap_err(), "exec: \"nosuch\": executable file not found in $PATH");
        assert_eq!(
            find("/nosuch", &[]).unwrap_err(),
            "exec: \"/nosuch\": stat /nosuch: no such file or directory"
        );
        assert_eq!(find("/etc", &[]).unwrap_err(), "exec: \"/etc\": is a directory");
        assert!(find("/etc/passwd", &[]).unwrap_err().ends_with("permission denied"));
    }

    #[test]
    fn a_program_is_found_on_the_path_of_the_environment() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tool");
        std::fs::write(&file, "").unwrap();
        let env = [format!("PATH=/nowhere:{}", dir.path().display())];
        assert!(find("tool", &env).is_err(), "not executable yet");
        rustix::fs::chmod(&file, rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
        assert_eq!(find("tool", &env).unwrap(), file);
    }
}
