//! A program that is spoken with by lines; ended when dropped.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long it may take to say something.
const DEADLINE: Duration = Duration::from_secs(60);

/// A running program.
pub struct Talking {
    child: Child,
    lines: Receiver<String>,
}

impl Talking {
    /// Starts a program with its words.
    pub fn start(program: &Path, words: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let out = BufReader::new(child.stdout.take().expect("its output"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// Says a line to it.
    pub fn say(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("its input");
        writeln!(input, "{line}").expect("it listens");
    }

    /// The lines up to the one that begins with `wanted`.
    pub fn hear(&self, wanted: &str) -> Vec<String> {
        let since = Instant::now();
        let mut heard = Vec::new();
        while let Some(left) = DEADLINE.checked_sub(since.elapsed()) {
            let Ok(line) = self.lines.recv_timeout(left) else { break };
            let found = line.starts_with(wanted);
            heard.push(line);
            if found {
                return heard;
            }
        }
        panic!("no {wanted:?} in {heard:#?}");
    }

    /// Asks it to end, and waits for that.
    pub fn end(mut self) {
        let asked = Command::new("kill").arg(self.child.id().to_string()).status();
        assert!(asked.is_ok_and(|s| s.success()));
        let _ = self.child.wait();
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
