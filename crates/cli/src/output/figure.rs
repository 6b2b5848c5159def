//! Formats figures for people, each with its unit.

use std::time::Duration;

/// Formats `1234567` as `1,234,567`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a fraction as a percentage with two decimals: `0.1234` as `12.34 %`.
pub(crate) fn percent(share: f64) -> String {
    if share.is_finite() {
        format!("{:.2} %", share * 100.0)
    } else {
        NO_FIGURE.to_owned()
    }
}

/// Formats the difference of two fractions in percentage points: `-0.004` as `-0.40`.
pub(crate) fn points(difference: f64) -> String {
    if difference.is_finite() {
        format!("{:+.2}", difference * 100.0)
    } else {
        NO_FIGURE.to_owned()
    }
}

/// Formats a duration with three significant digits and a suitable unit: `1.23 ms`. From 100 s on, the text has
/// minutes and whole seconds: `2 min 05 s`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds >= 100.0 {
        let whole = duration.as_secs();
        return format!("{} min {:02} s", whole / 60, whole % 60);
    }
    let (value, unit) = if seconds >= 1.0 {
        (seconds, "s")
    } else if seconds >= 1e-3 {
        (seconds * 1e3, "ms")
    } else {
        (seconds * 1e6, "µs")
    };
    let decimals = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.decimals$} {unit}")
}

/// Formats a rate with separated thousands: `12,345 /s`.
pub(crate) fn per_second(n: f64) -> String {
    if n.is_finite() && n >= 0.0 {
        format!("{} /s", count(n.round() as u64))
    } else {
        NO_FIGURE.to_owned()
    }
}

/// The text for an undefined figure, for example a ratio whose denominator is 0.
const NO_FIGURE: &str = "-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        for (n, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(count(n), text);
        }
    }

    #[test]
    fn an_undefined_figure_is_a_dash() {
        assert_eq!(percent(f64::NAN), "-");
        assert_eq!(percent(0.123_45), "12.35 %");
        assert_eq!(points(-0.004), "-0.40");
        assert_eq!(per_second(f64::INFINITY), "-");
    }

    #[test]
    fn a_duration_has_a_suitable_unit() {
        for (micros, text) in [
            (7, "7.00 µs"),
            (999, "999 µs"),
            (1_234, "1.23 ms"),
            (99_500, "99.5 ms"),
            (2_500_000, "2.50 s"),
            (125_000_000, "2 min 05 s"),
        ] {
            assert_eq!(duration(Duration::from_micros(micros)), text);
        }
    }
}
