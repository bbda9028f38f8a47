//! When a CronJob runs: a line of five fields as in crontab, or a name as `@daily`. Numbers, `*`, `?`, ranges, lists, steps,
//! and the names of months and weekdays.

/// A field: its lowest and highest number, and its names from the lowest.
struct Field {
    low: u32,
    high: u32,
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [Field; 5] = [
    Field { low: 0, high: 59, names: &[] },
    Field { low: 0, high: 23, names: &[] },
    Field { low: 1, high: 31, names: &[] },
    Field { low: 1, high: 12, names: MONTHS },
    Field { low: 0, high: 6, names: DAYS },
];
/// Units of a duration.
const UNITS: [&str; 7] = ["ns", "us", "µs", "ms", "s", "m", "h"];

/// The numbers of each field, as bits: minutes, hours, days of the month, months, weekdays from Sunday.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// One set of bits for each field.
    pub fields: [u64; 5],
}

impl Schedule {
    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it, in the words that clients know.
    pub fn parse(line: &str) -> Result<Self, String> {
        let named = match line {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            line => line,
        };
        if let Some(interval) = named.strip_prefix("@every ") {
            // A duration is no set of times; here it only has to be one.
            return match is_duration(interval) {
                true => Ok(Self { fields: [u64::MAX; 5] }),
                false => Err(format!("failed to parse duration {line}")),
            };
        }
        if named.starts_with('@') {
            return Err(format!("unrecognized descriptor: {line}"));
        }
        let parts: Vec<&str> = named.split_whitespace().collect();
        if parts.len() != FIELDS.len() {
            return Err(format!("expected exactly 5 fields, found {}: [{}]", parts.len(), parts.join(" ")));
        }
        let mut fields = [0; 5];
        for ((bits, part), field) in fields.iter_mut().zip(parts).zip(&FIELDS) {
            for range in part.split(',') {
                *bits |= field.range(range)?;
            }
        }
        Ok(Self { fields })
    }
}

/// Whether a text is a duration as `1h30m`.
fn is_duration(text: &str) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        let after = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let next = after.trim_start_matches(char::is_alphabetic);
        if after.len() == rest.len() || !UNITS.contains(&&after[..after.len() - next.len()]) {
            return false;
        }
        rest = next;
    }
    !text.is_empty()
}

impl Field {
    /// The bits of one item of a list.
    fn range(&self, text: &str) -> Result<u64, String> {
        let (span, step) = text.split_once('/').map_or((text, None), |(span, step)| (span, Some(step)));
        if step.is_some_and(|s| s.contains('/')) {
            return Err(format!("too many slashes: {text}"));
        }
        let (low, high) = match span.split_once('-') {
            _ if span == "*" || span == "?" => (self.low, self.high),
            Some((_, high)) if high.contains('-') => return Err(format!("too many hyphens: {text}")),
            Some((low, high)) => (self.number(low)?, self.number(high)?),
            None if step.is_some() => (self.number(span)?, self.high),
            None => (self.number(span)?, self.number(span)?),
        };
        let step = step.map_or(Ok(1), number)?;
        if low < self.low {
            return Err(format!("beginning of range ({low}) below minimum ({}): {text}", self.low));
        }
        if high > self.high {
            return Err(format!("end of range ({high}) above maximum ({}): {text}", self.high));
        }
        if low > high {
            return Err(format!("beginning of range ({low}) beyond end of range ({high}): {text}"));
        }
        if step == 0 {
            return Err(format!("step of range should be a positive number: {text}"));
        }
        let step = usize::try_from(step).unwrap_or(usize::MAX);
        Ok((low..=high).step_by(step).fold(0, |bits, n| bits | 1 << n))
    }

    fn number(&self, text: &str) -> Result<u32, String> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        match named.and_then(|at| u32::try_from(at).ok()) {
            Some(at) => Ok(self.low + at),
            None => number(text),
        }
    }
}

fn number(text: &str) -> Result<u32, String> {
    if text.len() > 1 && text.starts_with('-') {
        return Err(format!("negative number ({text}) not allowed: {text}"));
    }
    text.parse().map_err(|_| {
        format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax")
    })
}
