//! One line of a CRI log: `<time> <stdout|stderr> <F|P> <text>`.

use jiff::Timestamp;

/// What a reader asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Go on while the container runs.
    pub follow: bool,
    /// Of the container before this one.
    pub previous: bool,
    /// Only so many lines from the end.
    pub tail: Option<usize>,
    /// Only what is not older.
    pub since: Option<Timestamp>,
    /// Put the time before each line.
    pub timestamps: bool,
    /// At most so many bytes.
    pub limit: Option<usize>,
    /// Only this stream.
    pub stream: Option<String>,
}

/// The text of a line as the reader wants it; `None` if it is not for this reader, or not a log line.
/// A line in pieces (`P`) is put together again by leaving out the line feeds between them; `continued` says
/// that a piece came before.
#[must_use]
pub fn render(line: &[u8], options: &Options, continued: bool) -> Option<Vec<u8>> {
    let mut parts = line.splitn(4, |b| *b == b' ');
    let (time, stream, tag) = (parts.next()?, parts.next()?, parts.next()?);
    let text = parts.next().unwrap_or_default();
    let time = std::str::from_utf8(time).ok()?;
    if options.since.is_some_and(|since| time.parse::<Timestamp>().is_ok_and(|at| at < since)) {
        return None;
    }
    if options.stream.as_ref().is_some_and(|wanted| wanted.as_bytes() != stream) {
        return None;
    }
    let mut out = Vec::with_capacity(text.len() + time.len() + 2);
    if options.timestamps && !continued {
        out.extend_from_slice(time.as_bytes());
        out.push(b' ');
    }
    out.extend_from_slice(text);
    if !partial(tag) {
        out.push(b'\n');
    }
    Some(out)
}

fn partial(tag: &[u8]) -> bool {
    tag.split(|b| *b == b':').next() == Some(b"P")
}

/// Whether more of this line follows.
#[must_use]
pub fn is_partial(line: &[u8]) -> bool {
    line.splitn(4, |b| *b == b' ').nth(2).is_some_and(partial)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_rendered_as_the_reader_asked() {
        let line = b"2026-01-02T03:04:05.000000006Z stdout F hello world";
        let render = |options: &Options, line: &[u8]| {
            super::render(line, options, false).map(|b| String::from_utf8(b).unwrap())
        };
        let plain = Options::default();
        let timestamps = Options { timestamps: true, ..Default::default() };
        let later = Options { since: Some("2026-01-02T03:04:06Z".parse().unwrap()), ..Default::default() };
        let stderr = Options { stream: Some("stderr".into()), ..Default::default() };
        let rows = [
            ("plain", &plain, line.as_slice(), Some("hello world\n")),
            ("time", &timestamps, line, Some("2026-01-02T03:04:05.000000006Z hello world\n")),
            ("too old", &later, line, None),
            ("other stream", &stderr, line, None),
            ("piece", &plain, b"2026-01-02T03:04:05Z stdout P he", Some("he")),
            ("empty", &plain, b"2026-01-02T03:04:05Z stdout F ", Some("\n")),
            ("no log line", &plain, b"garbage", None),
        ];
        for (name, options, line, expected) in rows {
            assert_eq!(render(options, line).as_deref(), expected, "{name}");
        }
        assert!(is_partial(b"t stdout P x") && !is_partial(b"t stdout F x"));
    }
}
