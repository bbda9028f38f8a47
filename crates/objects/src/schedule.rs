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
/// Units of a duration, and how many microseconds they are; less is none.
const UNITS: [(&str, f64); 7] =
    [("ns", 0.001), ("us", 1.0), ("µs", 1.0), ("ms", 1e3), ("s", 1e6), ("m", 6e7), ("h", 3.6e9)];
/// The field of the days of the month, and that of weekdays.
const DAY_FIELDS: [usize; 2] = [2, 4];

/// When something is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// At these times.
    At(Times),
    /// So many seconds after the last time; one at least.
    Every(u32),
}

/// The numbers of each field, as bits: minutes, hours, days of the month, months, weekdays from Sunday.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// One set of bits for each field.
    pub fields: [u64; 5],
    /// Whether days of the month and weekdays have both to match, because one of them may be any.
    pub both_days: bool,
}

impl Times {
    /// Whether a month, from 1, has such a time.
    #[must_use]
    pub fn has_month(&self, month: u32) -> bool {
        self.has(3, month)
    }

    /// Whether a day of the month, from 1, that is this weekday, from 0 for Sunday, has such a time.
    #[must_use]
    pub fn has_day(&self, day: u32, weekday: u32) -> bool {
        let (day, weekday) = (self.has(2, day), self.has(4, weekday));
        if self.both_days { day && weekday } else { day || weekday }
    }

    /// Whether an hour has such a time.
    #[must_use]
    pub fn has_hour(&self, hour: u32) -> bool {
        self.has(1, hour)
    }

    /// Whether a minute is such a time.
    #[must_use]
    pub fn has_minute(&self, minute: u32) -> bool {
        self.has(0, minute)
    }

    fn has(&self, field: usize, number: u32) -> bool {
        self.fields[field] >> number & 1 == 1
    }
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
            let seconds = duration(interval).ok_or_else(|| format!("failed to parse duration {line}"))?;
            return Ok(Self::Every(seconds.max(1)));
        }
        if named.starts_with('@') {
            return Err(format!("unrecognized descriptor: {line}"));
        }
        let parts: Vec<&str> = named.split_whitespace().collect();
        if parts.len() != FIELDS.len() {
            return Err(format!("expected exactly 5 fields, found {}: [{}]", parts.len(), parts.join(" ")));
        }
        let mut fields = [0; 5];
        let mut both_days = false;
        for (at, (part, field)) in parts.into_iter().zip(&FIELDS).enumerate() {
            for range in part.split(',') {
                fields[at] |= field.range(range)?;
                both_days |= DAY_FIELDS.contains(&at) && matches!(range, "*" | "?" | "*/1" | "?/1");
            }
        }
        Ok(Self::At(Times { fields, both_days }))
    }
}

/// The whole seconds of a duration as `1h30m`.
fn duration(text: &str) -> Option<u32> {
    let (mut rest, mut micros) = (text, 0.0);
    while !rest.is_empty() {
        let after = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let next = after.trim_start_matches(char::is_alphabetic);
        let unit = &after[..after.len() - next.len()];
        let (_, size) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let number: f64 = rest[..rest.len() - after.len()].parse().ok()?;
        micros += number * size;
        rest = next;
    }
    // A duration that is longer than the number holds is as long as that.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    (!text.is_empty()).then_some((micros / 1e6) as u32)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_times_or_as_an_interval() {
        let times = |line: &str| match Schedule::parse(line) {
            Ok(Schedule::At(times)) => times,
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(times("@hourly"), times("0 * * * *"));
        assert_eq!(
            times("*/20 8-10/2 1,15 feb MON-FRI").fields,
            [1 | 1 << 20 | 1 << 40, 1 << 8 | 1 << 10, 1 << 1 | 1 << 15, 1 << 2, 0b11_1110,]
        );
        assert_eq!(times("5-7 */12 1 feb sun").fields, [0b1110_0000, 1 | 1 << 12, 1 << 1, 1 << 2, 1]);
        assert_eq!(times("*/1 * * * ?").fields[0], (1 << 60) - 1);
        for (line, seconds) in
            [("@every 1h30m", 5400), ("@every 90s", 90), ("@every 1ms", 1), ("@every 1.5m", 90)]
        {
            assert_eq!(Schedule::parse(line), Ok(Schedule::Every(seconds)), "{line}");
        }
    }

    #[test]
    fn what_is_no_schedule_is_refused_in_upstreams_words() {
        for (line, why) in [
            ("* * * *", "expected exactly 5 fields, found 4"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("x * * * *", "failed to parse int from x"),
            ("@sometimes", "unrecognized descriptor: @sometimes"),
            ("@every 5", "failed to parse duration @every 5"),
            ("@every soon", "failed to parse duration @every soon"),
        ] {
            assert!(Schedule::parse(line).unwrap_err().starts_with(why), "{line}");
        }
    }

    #[test]
    fn days_of_the_month_and_weekdays_are_either_or_if_both_are_named() {
        let day = |line: &str, day: u32, weekday: u32| match Schedule::parse(line) {
            Ok(Schedule::At(times)) => times.has_day(day, weekday),
            other => panic!("{line}: {other:?}"),
        };
        let rows = [
            ("0 0 13 * *", 13, 2, true),
            ("0 0 13 * *", 12, 5, false),
            ("0 0 * * 5", 12, 5, true),
            ("0 0 ? * 5", 13, 2, false),
            ("0 0 13 * 5", 13, 2, true),
            ("0 0 13 * 5", 12, 5, true),
            ("0 0 13 * 5", 12, 2, false),
            ("0 0 */2 * 5", 3, 2, true),
        ];
        for (line, number, weekday, expected) in rows {
            assert_eq!(day(line, number, weekday), expected, "{line}: {number}, {weekday}");
        }
    }
}
