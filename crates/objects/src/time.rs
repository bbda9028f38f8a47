//! Times as objects hold them (RFC 3339), and ages as people read them.

use jiff::Timestamp;

/// Seconds since 1970 of a time in RFC 3339.
pub fn parse(text: &str) -> Option<i64> {
    parse_nanos(text).map(|n| n.div_euclid(1_000_000_000) as i64)
}

/// Nanoseconds since 1970 of a time in RFC 3339.
pub fn parse_nanos(text: &str) -> Option<i128> {
    // The general form also takes a space for the T, and no offset; an offset is needed here.
    if text.as_bytes().get(10) != Some(&b'T') {
        return None;
    }
    text.parse::<Timestamp>().ok().map(Timestamp::as_nanosecond)
}

/// A time in whole seconds, as `metav1.Time` is written.
pub fn format(unix_seconds: i64) -> String {
    Timestamp::from_second(unix_seconds).map_or_else(|_| "1970-01-01T00:00:00Z".to_owned(), |t| t.to_string())
}

/// A time with six digits of fraction, as `metav1.MicroTime` is written.
pub fn format_micro(unix_micros: i64) -> String {
    let seconds = format(unix_micros.div_euclid(1_000_000));
    format!("{}.{:06}Z", seconds.trim_end_matches('Z'), unix_micros.rem_euclid(1_000_000))
}

/// A span as tables show it: two units at most, fewer as it grows. `5d3h`, `26h`, `4m10s`, `90s`.
pub fn human(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let two = |big: i64, big_unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{big}{big_unit}") } else { format!("{big}{big_unit}{small}{small_unit}") }
    };
    match seconds {
        // The clocks of two machines differ a little; more is a broken clock.
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => two(s / MINUTE, "m", s % MINUTE, "s"),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => two(s / HOUR, "h", s % HOUR / MINUTE, "m"),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => two(s / DAY, "d", s % DAY / HOUR, "h"),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two(s / YEAR, "y", s % YEAR / DAY, "d"),
        s => format!("{}y", s / YEAR),
    }
}

/// The age of something made at this time, or `<unknown>`.
pub fn age(made: Option<&str>, now_unix: i64) -> String {
    made.and_then(parse).map_or_else(|| "<unknown>".to_owned(), |t| human(now_unix - t))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_as_in_kubectl() {
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (130, "2m10s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (10_860, "3h1m"),
            (8 * 3600, "8h"),
            (47 * 3600, "47h"),
            (48 * 3600, "2d"),
            (5 * 86_400 + 3 * 3600, "5d3h"),
            (8 * 86_400, "8d"),
            (729 * 86_400, "729d"),
            (730 * 86_400, "2y"),
            (800 * 86_400, "2y70d"),
            (8 * 365 * 86_400, "8y"),
        ] {
            assert_eq!(human(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn times_are_read_and_written() {
        assert_eq!(parse("1970-01-02T00:00:00Z"), Some(86_400));
        assert_eq!(parse("1970-01-01T02:00:00.5+01:00"), Some(3600));
        for bad in ["", "now", "1970-01-02", "1970-01-02 00:00:00Z", "1970-01-02T00:00:00"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(format(86_400), "1970-01-02T00:00:00Z");
        assert_eq!(format_micro(86_400_000_042), "1970-01-02T00:00:00.000042Z");
        assert_eq!(age(Some("1970-01-02T00:00:00Z"), 86_405), "5s");
        assert_eq!(age(None, 0), "<unknown>");
    }
}
