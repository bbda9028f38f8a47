//! Kubernetes quantities (`100m`, `1.5Gi`, `1e3`) as whole numbers.

/// The quantity in thousandths, rounded up; `None` if it is not a quantity.
#[must_use]
pub fn milli(text: &str) -> Option<i128> {
    let text = text.trim();
    let end =
        text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (negative, digits) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let (multiply, divide) = factor(suffix)?;
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let numerator = mantissa.checked_mul(multiply)?.checked_mul(1000)?;
    let denominator = divide.checked_mul(scale)?;
    let value = (numerator + denominator - 1) / denominator;
    Some(if negative { -value } else { value })
}

/// The quantity as a whole number, rounded up.
#[must_use]
pub fn value(text: &str) -> Option<i64> {
    let milli = milli(text)?;
    i64::try_from(if milli > 0 { (milli + 999) / 1000 } else { milli / 1000 }).ok()
}

/// Multiplier and divisor of a suffix.
fn factor(suffix: &str) -> Option<(i128, i128)> {
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        exponent => {
            let digits = exponent.strip_prefix(['e', 'E'])?;
            let power: i32 = digits.parse().ok()?;
            let of = |p: i32| 10_i128.checked_pow(p.unsigned_abs());
            if power >= 0 { (of(power)?, 1) } else { (1, of(power)?) }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_of_every_form_are_read() {
        let rows: &[(&str, Option<i128>)] = &[
            ("1", Some(1000)),
            ("100m", Some(100)),
            ("0.1", Some(100)),
            (".5", Some(500)),
            ("1.5Gi", Some(1_610_612_736_000)),
            ("1e3", Some(1_000_000)),
            ("5E-1", Some(500)),
            ("1E", Some(1_000_000_000_000_000_000_000)),
            ("1u", Some(1)),
            ("-2", Some(-2000)),
            ("", None),
            ("x", None),
            ("1Xi", None),
        ];
        for (text, expected) in rows {
            assert_eq!(milli(text), *expected, "{text}");
        }
        assert_eq!(value("1500m"), Some(2));
    }
}
