//! Typed values of a plan: text, numbers within bounds, durations, sizes, shares, choices.
//!
//! A method that reads a value reports a problem with a hint and returns `None` if the value is invalid. Only
//! [`Entry::positive`] leaves the report to its caller.

use std::ops::RangeInclusive;
use std::time::Duration;

use edgeward_types::ByteSize;
use toml::de::DeValue;

use super::nearest::nearest;
use super::table::{Entry, Table};
use super::{Amount, SettingValue, Size};

impl<'a> Entry<'a> {
    /// Returns a non-empty text of one line and bounded length.
    pub fn text(&self) -> Option<&'a str> {
        let DeValue::String(text) = self.value.get_ref() else {
            self.wrong("is not text", "write it in quotes");
            return None;
        };
        let chars = text.chars().count();
        if text.trim().is_empty() || chars > TEXT_CHARS_MAX || text.chars().any(char::is_control) {
            self.wrong(
                "is not one line of text",
                format!("write 1 to {TEXT_CHARS_MAX} characters, without line breaks"),
            );
            return None;
        }
        Some(text)
    }

    /// Returns a list of texts. A single text is a list of length 1.
    pub(crate) fn texts(&self) -> Option<Vec<String>> {
        let DeValue::Array(items) = self.value.get_ref() else {
            return self.text().map(|text| vec![text.to_owned()]);
        };
        let texts: Option<Vec<String>> = items
            .iter()
            .map(|item| Some(item.get_ref().as_str()?.to_owned()))
            .collect();
        let texts = texts.filter(|texts| !texts.is_empty() && texts.len() <= LIST_MAX);
        if texts.is_none() {
            self.wrong("is not a list of names", "write [\"nginx\", \"varnish\"]");
        }
        texts
    }

    /// Returns an integer within bounds.
    pub(crate) fn whole(&self, bounds: RangeInclusive<u64>) -> Option<u64> {
        let number = self.integer().and_then(|n| u64::try_from(n).ok());
        let number = number.filter(|number| bounds.contains(number));
        if number.is_none() {
            let (least, most) = bounds.into_inner();
            self.wrong(
                "is not a number in the allowed range",
                format!("write a whole number from {least} to {most}"),
            );
        }
        number
    }

    /// Returns the value if it is one of `words`.
    pub(crate) fn choice(&self, words: &[&'static str]) -> Option<&'static str> {
        let text = self.text()?;
        let found = words.iter().find(|word| **word == text).copied();
        if found.is_none() {
            let hint = match nearest(text, words.iter().copied()) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("use {}", words.join(", ")),
            };
            self.wrong("is not a known value", hint);
        }
        found
    }

    /// Returns a duration such as `"30ms"`, within bounds.
    pub(crate) fn time(&self, bounds: RangeInclusive<Duration>) -> Option<Duration> {
        let time = self.value.get_ref().as_str().and_then(time);
        let time = time.filter(|time| bounds.contains(time));
        if time.is_none() {
            let (least, most) = bounds.into_inner();
            self.wrong(
                "is not a time in the allowed range",
                format!("write \"30ms\", \"2s\" or \"5min\", from {least:?} to {most:?}"),
            );
        }
        time
    }

    /// Returns a share such as `0.7` or `"70%"`.
    pub(crate) fn share(&self) -> Option<f64> {
        let share = match self.value.get_ref() {
            DeValue::String(text) => percent(text),
            _ => self.fraction(),
        };
        let share = share.filter(|share| (0.0..=1.0).contains(share));
        if share.is_none() {
            self.wrong("is not a share", "write 0.7 or \"70%\"");
        }
        share
    }

    /// Returns a part of the trace: `20000` (requests), or `"20%"` of the requests.
    pub(crate) fn amount(&self) -> Option<Amount> {
        let amount = match self.value.get_ref() {
            DeValue::String(text) => percent(text)
                .filter(|share| (0.0..=1.0).contains(share))
                .map(Amount::Share),
            _ => self
                .integer()
                .and_then(|n| u64::try_from(n).ok())
                .map(Amount::Requests),
        };
        if amount.is_none() {
            self.wrong(
                "is not a part of the trace",
                "write a number of requests, or \"20%\"",
            );
        }
        amount
    }

    /// Returns a size such as `"64MiB"`, in bytes, within bounds.
    pub(crate) fn bytes(&self, bounds: RangeInclusive<u64>) -> Option<u64> {
        let bytes = match self.value.get_ref() {
            DeValue::String(text) => text.parse::<ByteSize>().ok().map(ByteSize::bytes),
            _ => self.integer().and_then(|n| u64::try_from(n).ok()),
        };
        let bytes = bytes.filter(|bytes| bounds.contains(bytes));
        if bytes.is_none() {
            let (least, most) = bounds.into_inner();
            self.wrong(
                "is not a size in the allowed range",
                format!(
                    "write \"64MiB\", from {} to {}",
                    ByteSize(least),
                    ByteSize(most)
                ),
            );
        }
        bytes
    }

    /// Returns the capacity of a contender: `"64MiB"`, or `"1%"` of the total size of the objects.
    pub(crate) fn capacity(&self, bounds: RangeInclusive<u64>) -> Option<Size> {
        let text = self.value.get_ref().as_str();
        let Some(text) = text.filter(|text| text.trim_end().ends_with('%')) else {
            return self.bytes(bounds).map(Size::Bytes);
        };
        let share = percent(text).filter(|share| *share > 0.0 && *share <= 10.0);
        if share.is_none() {
            self.wrong(
                "is not a share of the trace's objects",
                "write \"1%\", more than 0 and up to 1000%",
            );
        }
        share.map(Size::Share)
    }

    /// Returns a value of an edge's configuration: a text, an integer or a boolean.
    pub(crate) fn setting(&self) -> Option<SettingValue> {
        let setting = match self.value.get_ref() {
            DeValue::String(_) => self.text().map(|text| SettingValue::Text(text.to_owned())),
            DeValue::Boolean(on) => Some(SettingValue::Boolean(*on)),
            DeValue::Integer(_) => self.integer().map(SettingValue::Number),
            _ => None,
        };
        if setting.is_none() && !matches!(self.value.get_ref(), DeValue::String(_)) {
            self.wrong(
                "has a type that is not supported here",
                "write text, a whole number, true or false",
            );
        }
        setting
    }

    /// Returns a text or number as a word of a command line. Reports any other value.
    pub fn word(&self) -> Option<String> {
        match self.value.get_ref() {
            DeValue::Integer(_) if self.integer().is_some() => {
                self.integer().map(|n| n.to_string())
            }
            DeValue::Float(number) => Some(number.as_str().to_owned()),
            DeValue::String(_) => self.text().map(str::to_owned),
            _ => {
                self.wrong(
                    "is neither text nor a number",
                    "write a text in quotes, or a number",
                );
                None
            }
        }
    }

    /// Returns a boolean. Reports any other value.
    pub fn boolean(&self) -> Option<bool> {
        let boolean = self.value.get_ref().as_bool();
        if boolean.is_none() {
            self.wrong("is not a boolean", "write true or false");
        }
        boolean
    }

    fn integer(&self) -> Option<i64> {
        let number = self.value.get_ref().as_integer()?;
        i64::from_str_radix(number.as_str(), number.radix()).ok()
    }

    fn fraction(&self) -> Option<f64> {
        match self.value.get_ref() {
            DeValue::Float(number) => number.as_str().parse().ok(),
            DeValue::Integer(_) => self.integer().map(|n| n as f64),
            _ => None,
        }
    }

    /// Returns a finite number. Returns `None` for any other value, and reports no problem.
    pub(crate) fn number(&self) -> Option<f64> {
        self.fraction().filter(|number| number.is_finite())
    }

    /// Returns a number, integer or float, that is greater than zero and at most `most`. Returns `None` for any other
    /// value, and reports no problem.
    pub(crate) fn positive(&self, most: f64) -> Option<f64> {
        self.fraction()
            .filter(|number| *number > 0.0 && *number <= most)
    }
}

impl<'a> Table<'a> {
    /// Returns the text under a required key.
    pub(crate) fn needed_text(&self, key: &'static str, hint: &str) -> Option<String> {
        match self.entry(key) {
            Some(entry) => entry.text().map(str::to_owned),
            None => {
                self.missing(key, hint);
                None
            }
        }
    }
}

/// Parses `30ms`, `1.5s`, `2min`, `300us`.
fn time(text: &str) -> Option<Duration> {
    let text = text.trim();
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit_at);
    let scale = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let number: f64 = number.trim().parse().ok()?;
    Duration::try_from_secs_f64(number * scale).ok()
}

/// Parses `70%` as 0.7.
fn percent(text: &str) -> Option<f64> {
    let number = text.trim().strip_suffix('%')?.trim();
    let number: f64 = number.parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number / 100.0)
}

/// The maximum length of a text, in characters: about one paragraph.
const TEXT_CHARS_MAX: usize = 600;

/// The maximum length of a list of texts.
const LIST_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_shares_are_parsed_in_their_usual_forms() {
        for (text, micros) in [
            ("30ms", 30_000),
            ("1.5s", 1_500_000),
            ("2min", 120_000_000),
            ("0s", 0),
        ] {
            assert_eq!(time(text), Some(Duration::from_micros(micros)), "{text}");
        }
        for text in ["", "30", "ms", "-1ms", "1 day", "nan s", "1e300h"] {
            assert_eq!(time(text), None, "{text}");
        }
        assert_eq!(percent("70%"), Some(0.7));
        assert_eq!(percent("0.5 %"), Some(0.005));
        for text in ["70", "%", "-1%", "nan%", "inf%"] {
            assert_eq!(percent(text), None, "{text}");
        }
    }
}
