//! Numbers that may be said as percentages.

use trine_typed::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// What becomes of a part of a thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// It counts as a whole.
    Up,
    /// It does not count.
    Down,
}

/// How many of `total` a value means. What cannot be read means none, as validation keeps it out.
#[must_use]
pub fn of(value: &IntOrString, total: i32, round: Round) -> i32 {
    let percent = match value {
        IntOrString::Int(number) => return *number,
        IntOrString::String(text) => match text.strip_suffix('%').and_then(|n| n.parse::<i64>().ok()) {
            Some(percent) => percent,
            None => return 0,
        },
    };
    let hundredths = percent.saturating_mul(i64::from(total));
    let whole = match round {
        Round::Up => hundredths.div_euclid(100) + i64::from(hundredths.rem_euclid(100) != 0),
        Round::Down => hundredths.div_euclid(100),
    };
    i32::try_from(whole).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_and_numbers_are_taken_as_they_are() {
        let text = |text: &str| IntOrString::String(text.to_owned());
        let rows = [
            (IntOrString::Int(3), 10, 3, 3),
            (text("25%"), 10, 3, 2),
            (text("0%"), 10, 0, 0),
            (text("100%"), 7, 7, 7),
            (text("30%"), 1, 1, 0),
            (text("200%"), 2, 4, 4),
            (text("many"), 2, 0, 0),
        ];
        for (value, total, up, down) in rows {
            assert_eq!(
                (of(&value, total, Round::Up), of(&value, total, Round::Down)),
                (up, down),
                "{value:?}"
            );
        }
    }
}
