//! Units, and two formats of figures: a short one for ticks and an exact one for the value at the pointer.

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A count, or a number without a unit: `12,345`, at a tick `12.3 k`.
    Count,
    /// A share: `0.25` is `25 %`.
    Share,
    /// Bytes: `64 MiB`.
    Bytes,
    /// Seconds: `1.5 ms`.
    Seconds,
}

impl Unit {
    /// Formats the figure exactly: counts and bytes as whole numbers, percentages with three decimals, times with four
    /// significant digits. A count with a fraction gets six significant digits.
    pub fn exact(self, value: f64) -> String {
        if !value.is_finite() {
            return MISSING.to_owned();
        }
        match self {
            Self::Count => grouped(value),
            Self::Share if value.abs() < 1e6 => format!("{:.2} %", value * 100.0),
            Self::Share => self.short(value),
            Self::Bytes if value.abs() < 1024.0 => format!("{} B", grouped(value)),
            Self::Bytes => format!("{} ({} B)", self.short(value), grouped(value.round())),
            Self::Seconds => seconds(value, 4),
        }
    }

    /// Formats the figure for a row of figures: shares have one digit after the point, so that they align.
    pub fn aligned(self, value: f64) -> String {
        match self {
            Self::Share if value == 0.0 || (0.001..1e6).contains(&value) => {
                format!("{:.1} %", value * 100.0)
            }
            _ => self.short(value),
        }
    }

    /// Formats the figure with few characters, but enough to distinguish neighbouring ticks.
    pub fn short(self, value: f64) -> String {
        if !value.is_finite() {
            return MISSING.to_owned();
        }
        match self {
            Self::Count => scaled(value, 1000.0, &["", " k", " M", " G", " T", " P", " E"]),
            Self::Share => format!("{} %", significant(value * 100.0, 3)),
            Self::Bytes => scaled(
                value,
                1024.0,
                &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"],
            ),
            Self::Seconds => seconds(value, 3),
        }
    }
}

/// Formats `1234567.0` as `1,234,567`. A number with a fraction gets six significant digits.
fn grouped(value: f64) -> String {
    let text = if value.fract() == 0.0 && value.abs() < 1e15 {
        format!("{value:.0}")
    } else {
        significant(value, 6)
    };
    if text.contains('e') {
        return text;
    }
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.as_str()),
    };
    let (whole, fraction) = rest.split_at(rest.find('.').unwrap_or(rest.len()));
    let mut grouped = String::from(sign);
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

/// Formats the figure with the largest of `units` in which its value is at least 1. Each unit is `step` times
/// the previous one.
fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut shown = value;
    let mut unit = units[0];
    for larger in &units[1..] {
        // Without this tolerance, 999.6 would be formatted as 1000 of the smaller unit.
        if shown.abs() < step * 0.9995 {
            break;
        }
        shown /= step;
        unit = larger;
    }
    // In binary units, numbers from 1000 to 1023 need four digits.
    let digits = if shown.abs() >= 999.5 { 4 } else { 3 };
    format!("{}{unit}", significant(shown, digits))
}

fn seconds(value: f64, digits: i32) -> String {
    let size = value.abs();
    let (shown, unit) = if size == 0.0 {
        return "0 s".to_owned();
    } else if size < 1e-6 {
        (value * 1e9, "ns")
    } else if size < 1e-3 {
        (value * 1e6, "µs")
    } else if size < 1.0 {
        (value * 1e3, "ms")
    } else if size < 120.0 {
        (value, "s")
    } else if size < 7200.0 {
        (value / 60.0, "min")
    } else if size < 172_800.0 {
        (value / 3600.0, "h")
    } else {
        (value / 86_400.0, "d")
    };
    format!("{} {unit}", significant(shown, digits))
}

/// Formats the figure with this number of significant digits, without trailing zeros after the decimal point. All
/// digits before the decimal point are kept.
fn significant(value: f64, digits: i32) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor() as i32;
    if !(-6..=15).contains(&magnitude) {
        return format!("{value:.*e}", usize::try_from(digits - 1).unwrap_or(0));
    }
    let decimals = usize::try_from(digits - 1 - magnitude).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// The text for a missing figure.
const MISSING: &str = "–";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_short_at_a_tick_and_exact_under_the_pointer() {
        for (unit, value, short, exact) in [
            (Unit::Count, 0.0, "0", "0"),
            (Unit::Count, 1_234_567.0, "1.23 M", "1,234,567"),
            (Unit::Count, 999_999.0, "1 M", "999,999"),
            (Unit::Count, -1500.0, "-1.5 k", "-1,500"),
            (Unit::Count, 0.25, "0.25", "0.25"),
            (Unit::Count, 12_345.678_9, "12.3 k", "12,345.7"),
            (Unit::Share, 0.25, "25 %", "25.00 %"),
            (Unit::Share, 0.123_456, "12.3 %", "12.35 %"),
            (Unit::Bytes, 512.0, "512 B", "512 B"),
            (
                Unit::Bytes,
                1_040_000.0,
                "1016 KiB",
                "1016 KiB (1,040,000 B)",
            ),
            (Unit::Bytes, 67_108_864.0, "64 MiB", "64 MiB (67,108,864 B)"),
            (Unit::Seconds, 0.0, "0 s", "0 s"),
            (Unit::Seconds, 0.001_234_56, "1.23 ms", "1.235 ms"),
            (Unit::Seconds, 0.000_5, "500 µs", "500 µs"),
            (Unit::Seconds, 300.0, "5 min", "5 min"),
        ] {
            assert_eq!(unit.short(value), short, "{unit:?} {value}");
            assert_eq!(unit.exact(value), exact, "{unit:?} {value}");
        }
    }

    /// Figures below each other have one digit after the point, unless it would be zero.
    #[test]
    fn shares_in_a_column_have_the_same_number_of_digits() {
        for (value, text) in [
            (0.0, "0.0 %"),
            (0.000_4, "0.04 %"),
            (0.001, "0.1 %"),
            (0.36, "36.0 %"),
            (0.364_8, "36.5 %"),
            (1.0, "100.0 %"),
            (f64::NAN, MISSING),
        ] {
            assert_eq!(Unit::Share.aligned(value), text, "{value}");
        }
        assert_eq!(Unit::Count.aligned(1500.0), "1.5 k");
    }

    #[test]
    fn a_value_that_is_not_a_number_is_shown_as_a_dash() {
        for unit in [Unit::Count, Unit::Share, Unit::Bytes, Unit::Seconds] {
            for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                assert_eq!(unit.short(value), MISSING);
                assert_eq!(unit.exact(value), MISSING);
            }
        }
    }

    #[test]
    fn extreme_figures_stay_readable() {
        for value in [f64::MAX, f64::MIN_POSITIVE, -f64::MAX, 1e300] {
            for unit in [Unit::Count, Unit::Share, Unit::Bytes, Unit::Seconds] {
                assert!(unit.short(value).len() < 20, "{}", unit.short(value));
                assert!(unit.exact(value).len() < 50, "{}", unit.exact(value));
            }
        }
    }
}
