//! A container's last words: its termination message, or the end of its log.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crate::api::log_line::{Options, render};
use crate::runtime::{ContainerView, RunState};

/// Longest message (upstream: 4096 bytes a container).
const MAX_MESSAGE: usize = 4096;
/// Longest piece of log that stands in for it (upstream).
const MAX_LOG: usize = 2048;
/// Lines of log that stand in for it (upstream).
const MAX_LOG_LINES: usize = 80;
/// How much of the log's end is looked at: the lines carry time stamps, too.
const LOG_WINDOW: u64 = 64 * 1024;

/// The message of a container that ended.
#[must_use]
pub fn message(view: &ContainerView) -> String {
    if view.state != RunState::Exited {
        return String::new();
    }
    let own = view.termination_file.as_deref().map(|path| read_end(Path::new(path), MAX_MESSAGE as u64));
    let own = own.unwrap_or_default();
    if !own.is_empty() || !view.termination_from_log || view.exit_code == 0 {
        return own;
    }
    from_log(&read_end(Path::new(&view.log_path), LOG_WINDOW))
}

/// At most `limit` bytes of the end of a file.
fn read_end(path: &Path, limit: u64) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(limit)))?;
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// The texts of the last log lines.
fn from_log(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| line.splitn(4, ' ').count() == 4).collect();
    let last = &lines[lines.len().saturating_sub(MAX_LOG_LINES)..];
    let all = Options::default();
    let rendered: Vec<u8> =
        last.iter().filter_map(|line| render(line.as_bytes(), &all, false)).flatten().collect();
    let mut text = String::from_utf8_lossy(&rendered).into_owned();
    if text.len() > MAX_LOG {
        let mut cut = text.len() - MAX_LOG;
        while !text.is_char_boundary(cut) {
            cut += 1;
        }
        text.drain(..cut);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_stands_in_only_after_an_error_without_a_message() {
        let dir = tempfile::tempdir().unwrap();
        let (words, log) = (dir.path().join("words"), dir.path().join("log"));
        std::fs::write(&words, "").unwrap();
        std::fs::write(&log, "2026-01-01T00:00:00Z stderr F it broke\n2026-01-01T00:00:00Z stdout F here\n")
            .unwrap();
        let view = |code, fallback| ContainerView {
            state: RunState::Exited,
            exit_code: code,
            termination_file: Some(words.to_string_lossy().into_owned()),
            termination_from_log: fallback,
            log_path: log.to_string_lossy().into_owned(),
            ..Default::default()
        };
        assert_eq!(message(&view(1, true)), "it broke\nhere\n");
        std::fs::write(&log, "2026-01-01T00:00:00Z stdout F a\n2026-01-01T00:00:00Z stdout P DONE\n")
            .unwrap();
        assert_eq!(message(&view(1, true)), "a\nDONE", "no newline is made up");
        assert_eq!(message(&view(0, true)), "");
        assert_eq!(message(&view(1, false)), "");
        std::fs::write(&words, "last words").unwrap();
        assert_eq!(message(&view(1, true)), "last words");
    }
}
