//! When a schedule is due, by the clocks of a time zone: a time that its clocks skip is left out, one that they show twice is
//! due twice.

use std::time::Duration;

use trine_objects::schedule::{Schedule, Times};
use trine_typed::k8s_openapi::jiff::civil::Time;
use trine_typed::k8s_openapi::jiff::tz::TimeZone;
use trine_typed::k8s_openapi::jiff::{Timestamp, ToSpan, Zoned};

/// How far ahead is looked for a time, years.
const HORIZON: i16 = 5;

/// A schedule and the zone whose clocks it goes by.
#[derive(Debug, Clone)]
pub struct Clock {
    /// The schedule.
    pub schedule: Schedule,
    /// The zone.
    pub zone: TimeZone,
}

/// The last time that is due, and how many there have been, about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The last one.
    pub last: Timestamp,
    /// How many.
    pub count: i64,
}

impl Clock {
    /// The first time after `after`; none if there is none for years.
    #[must_use]
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match self.schedule {
            Schedule::Every(seconds) => Timestamp::from_second(after.as_second() + i64::from(seconds)).ok(),
            Schedule::At(times) => next(&times, after.to_zoned(self.zone.clone())).map(|t| t.timestamp()),
        }
    }

    /// What has become due after `after`, until `now`.
    #[must_use]
    pub fn due(&self, after: Timestamp, now: Timestamp) -> Option<Due> {
        let first = self.next(after).filter(|first| *first <= now)?;
        let Some(second) = self.next(first).filter(|second| *second <= now) else {
            return Some(Due { last: first, count: 1 });
        };
        let interval = (second.as_second() - first.as_second()).max(1);
        let count = (now.as_second() - first.as_second()) / interval + 1;
        let last = match self.schedule {
            Schedule::Every(_) => Timestamp::from_second(first.as_second() + (count - 1) * interval).ok()?,
            Schedule::At(_) => self.last_before(second, now),
        };
        Some(Due { last, count })
    }

    /// The last time until `now`, of which `known` is one: by halving the span in which it must be.
    fn last_before(&self, known: Timestamp, now: Timestamp) -> Timestamp {
        let (mut last, mut end) = (known, now);
        while end.as_second() - last.as_second() > 1 {
            let half = last.as_second() + (end.as_second() - last.as_second()) / 2;
            let Ok(half) = Timestamp::from_second(half) else { return last };
            match self.next(half).filter(|next| *next <= now) {
                Some(next) => last = next,
                None => end = half,
            }
        }
        last
    }

    /// How long it takes until the next time after `after`.
    #[must_use]
    pub fn wait(&self, after: Timestamp, now: Timestamp) -> Option<Duration> {
        let next = self.next(after)?;
        Some(Duration::try_from(next.duration_since(now)).unwrap_or_default())
    }
}

/// Goes from one mismatch to the next until a minute matches all fields.
fn next(times: &Times, after: Zoned) -> Option<Zoned> {
    let last_year = after.year().checked_add(HORIZON)?;
    let mut at = next_minute(&after)?;
    while at.year() <= last_year {
        let number = |n: i8| u32::try_from(n).unwrap_or_default();
        let weekday = number(at.weekday().to_sunday_zero_offset());
        at = if !times.has_month(number(at.month())) {
            let first = at.date().first_of_month().checked_add(1.month()).ok()?;
            first.to_zoned(at.time_zone().clone()).ok()?
        } else if !times.has_day(number(at.day()), weekday) {
            let day = at.date().tomorrow().ok()?;
            day.to_datetime(Time::midnight()).to_zoned(at.time_zone().clone()).ok()?
        } else if !times.has_hour(number(at.hour())) {
            let rest = 60 - i64::from(at.minute());
            at.checked_add(rest.minutes()).ok()?
        } else if !times.has_minute(number(at.minute())) {
            at.checked_add(1.minute()).ok()?
        } else {
            return Some(at);
        };
    }
    None
}

/// The begin of the next minute.
fn next_minute(after: &Zoned) -> Option<Zoned> {
    let minute = after.timestamp().as_second().div_euclid(60) + 1;
    Some(Timestamp::from_second(minute * 60).ok()?.to_zoned(after.time_zone().clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(line: &str, zone: &str) -> Clock {
        Clock { schedule: Schedule::parse(line).unwrap(), zone: TimeZone::get(zone).unwrap() }
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_next_time_is_found_by_the_clocks_of_the_zone() {
        let rows = [
            ("*/5 * * * *", "UTC", "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"),
            ("*/5 * * * *", "UTC", "2026-01-01T00:04:59Z", "2026-01-01T00:05:00Z"),
            ("0 3 * * 1", "UTC", "2026-01-01T00:00:00Z", "2026-01-05T03:00:00Z"),
            ("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("30 6-16/4 * * 1-5", "UTC", "2026-01-02T14:30:00Z", "2026-01-05T06:30:00Z"),
            ("0 9 * * *", "Europe/Berlin", "2026-01-01T00:00:00Z", "2026-01-01T08:00:00Z"),
            ("0 9 * * *", "Europe/Berlin", "2026-07-01T00:00:00Z", "2026-07-01T07:00:00Z"),
            // 02:30 is skipped that night; 02:30 is shown twice in autumn.
            ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-30T00:30:00Z"),
            ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"),
            ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"),
            ("15 * * * *", "Asia/Kolkata", "2026-01-01T00:00:00Z", "2026-01-01T00:45:00Z"),
            ("@every 90s", "UTC", "2026-01-01T00:00:10Z", "2026-01-01T00:01:40Z"),
        ];
        for (line, zone, after, expected) in rows {
            assert_eq!(clock(line, zone).next(at(after)), Some(at(expected)), "{line} {zone} {after}");
        }
        assert_eq!(clock("0 0 31 2 *", "UTC").next(at("2026-01-01T00:00:00Z")), None);
    }

    #[test]
    fn of_many_missed_times_the_last_is_found_at_once() {
        let rows = [
            ("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:00:30Z", None),
            ("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", Some(("2026-01-01T00:01:00Z", 1))),
            ("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:05:30Z", Some(("2026-01-01T00:05:00Z", 5))),
            (
                "* * * * *",
                "1996-01-01T00:00:00Z",
                "2026-01-01T00:05:30Z",
                Some(("2026-01-01T00:05:00Z", 15_779_525)),
            ),
            // The first two times are near each other, the last one is far away.
            (
                "0,1 0 * 1 *",
                "2026-01-01T00:00:00Z",
                "2026-12-01T00:00:00Z",
                Some(("2026-01-31T00:01:00Z", 334)),
            ),
            (
                "30 6-16/4 * * 1-5",
                "2026-01-02T06:30:00Z",
                "2026-01-04T12:00:00Z",
                Some(("2026-01-02T14:30:00Z", 13)),
            ),
            ("@every 1h", "2026-01-01T00:10:00Z", "2026-01-02T00:00:00Z", Some(("2026-01-01T23:10:00Z", 23))),
        ];
        for (line, after, now, expected) in rows {
            let found = clock(line, "UTC").due(at(after), at(now)).map(|due| (due.last, due.count > 100));
            let expected = expected.map(|(last, count)| (at(last), count > 100));
            assert_eq!(found, expected, "{line} {after} {now}");
        }
    }
}
