//! This process becomes another program. Unlike `std`'s, the environment keeps its order, which programs show.
#![allow(unsafe_code)]

use std::ffi::{CString, NulError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What a process is to become.
#[derive(Debug)]
pub struct Program {
    path: CString,
    args: Vec<CString>,
    env: Vec<CString>,
}

impl Program {
    /// The file `path` with the arguments `args`, its name first, and the environment `env` (`KEY=value`). Of lines with the same key
    /// the last one stays; what has no key goes.
    ///
    /// # Errors
    /// If there is a NUL in something.
    pub fn new(path: &Path, args: &[String], env: &[String]) -> Result<Self, NulError> {
        let texts = |texts: Vec<&str>| texts.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>();
        Ok(Self {
            path: CString::new(path.as_os_str().as_bytes())?,
            args: texts(args.iter().map(String::as_str).collect())?,
            env: texts(last_of_each(env))?,
        })
    }

    /// Becomes it, with no signal blocked and SIGPIPE as it was before Rust ignored it; comes back only with the reason why not.
    #[must_use]
    pub fn execute(&self) -> io::Error {
        let pointers = |texts: &[CString]| {
            texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
        };
        let (args, env) = (pointers(&self.args), pointers(&self.env));
        // SAFETY: the lists end with null, their texts live as long as `self`, and the set is written before it is read.
        unsafe {
            let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigemptyset(none.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            libc::execve(self.path.as_ptr(), args.as_ptr(), env.as_ptr());
        }
        io::Error::last_os_error()
    }
}

fn last_of_each(env: &[String]) -> Vec<&str> {
    let key = |line: &str| line.split_once('=').map(|(key, _)| key.to_owned()).filter(|key| !key.is_empty());
    let mut seen = std::collections::HashSet::new();
    let mut lines: Vec<&str> = env
        .iter()
        .rev()
        .filter(|line| key(line).is_some_and(|key| seen.insert(key)))
        .map(String::as_str)
        .collect();
    lines.reverse();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_keeps_its_order_and_the_last_of_each_key() {
        let env = ["B=1", "A=2", "B=3", "=x", "none", "C=a=b"].map(str::to_owned);
        assert_eq!(last_of_each(&env), ["A=2", "B=3", "C=a=b"]);
    }

    #[test]
    fn a_text_with_a_nul_is_refused() {
        assert!(Program::new(Path::new("/bin/true"), &["a\0b".to_owned()], &[]).is_err());
        assert!(Program::new(Path::new("/bin/true"), &[], &["A=\0".to_owned()]).is_err());
    }

    #[test]
    fn who_cannot_be_executed_is_told_why() {
        let program = Program::new(Path::new("/nosuch"), &["nosuch".to_owned()], &[]).unwrap();
        assert_eq!(program.execute().kind(), io::ErrorKind::NotFound);
    }
}
