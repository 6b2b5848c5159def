//! The text form of durations and sizes.

use std::time::Duration;

use edgeward_types::ByteSize;

use super::raw::ValueError;

/// Formats a duration in the form that a user would write, in the largest unit that represents it exactly.
pub(in crate::config) fn duration_text(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let fits = |unit: u64| millis.is_multiple_of(unit) && millis >= unit;
    let (name, unit) = DURATION_UNITS
        .iter()
        .rev()
        .find(|(_, unit)| fits(*unit))
        .copied()
        .unwrap_or(("ms", 1));
    format!("{}{name}", millis / unit)
}

/// Formats a size in the form that a user would write. If a form with a unit would round the size, the result is the
/// number of bytes.
pub(in crate::config) fn size_text(size: ByteSize) -> String {
    let text = size.to_string().replace(' ', "");
    if text.parse() == Ok(size) {
        text
    } else {
        size.bytes().to_string()
    }
}

/// Parses a duration such as `"30s"`.
pub(super) fn parse_duration(text: &str) -> Result<Duration, ValueError> {
    if text.starts_with('-') {
        let hint = "write a whole number and ms, s, min, h or d, such as 30s";
        return Err(ValueError::new("is negative").hint(hint));
    }
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let hint = "write a whole number and ms, s, min, h or d, such as 30s";
    if number.is_empty() {
        return Err(ValueError::new("does not start with a number").hint(hint));
    }
    let unit = unit.trim_start();
    let Some(&(_, millis)) = DURATION_UNITS.iter().find(|(name, _)| *name == unit) else {
        let reason = if unit.is_empty() {
            "has no unit"
        } else {
            "has an unknown unit"
        };
        return Err(ValueError::new(reason).hint(hint));
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(millis))
        .map(Duration::from_millis)
        .ok_or_else(|| ValueError::new("is too long").hint(hint))
}

/// The units of durations and their lengths in milliseconds. Each length is a multiple of the previous one.
pub(in crate::config) const DURATION_UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1000),
    ("min", 60 * 1000),
    ("h", 60 * 60 * 1000),
    ("d", 24 * 60 * 60 * 1000),
];
