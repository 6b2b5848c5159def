//! Settings that are numbers, sizes, durations and booleans.

use std::fmt::Display;
use std::marker::PhantomData;
use std::num::{IntErrorKind, NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::Path;
use std::time::Duration;

use edgeward_types::ByteSize;

use super::kind::{OrNone, SettingValue};
use super::raw::{Raw, ValueError, to_value_error};
use super::units::{duration_text, parse_duration, size_text};

/// `"64MiB"`, or a number of bytes, from the first to the second size.
pub(in crate::config) struct Size(
    pub(in crate::config) ByteSize,
    pub(in crate::config) ByteSize,
);

impl SettingValue for Size {
    type Parsed = ByteSize;

    fn name(&self) -> String {
        "size".to_owned()
    }

    fn noun_phrase(&self) -> &'static str {
        "a size"
    }

    fn example(&self) -> String {
        "\"64MiB\"".to_owned()
    }

    fn read(&self, raw: &Raw, _folder: &Path) -> Result<ByteSize, ValueError> {
        let (Raw::Flag(text) | Raw::Text(text) | Raw::Number(text)) = raw else {
            return Err(self.wrong_type_error(raw));
        };
        let size = text.parse().map_err(|error| to_value_error(text, &error))?;
        check_bounds(size, self.0, self.1, |size| size_text(*size))
    }

    fn show(&self, size: &ByteSize) -> Option<String> {
        Some(size_text(*size))
    }

    fn bounds(&self) -> Option<(String, String)> {
        Some((size_text(self.0), size_text(self.1)))
    }
}

/// `"30s"`, from the first to the second duration.
pub(in crate::config) struct Time(
    pub(in crate::config) Duration,
    pub(in crate::config) Duration,
);

impl SettingValue for Time {
    type Parsed = Duration;

    fn name(&self) -> String {
        "duration".to_owned()
    }

    fn noun_phrase(&self) -> &'static str {
        "a duration"
    }

    fn example(&self) -> String {
        "\"30s\"".to_owned()
    }

    fn read(&self, raw: &Raw, _folder: &Path) -> Result<Duration, ValueError> {
        let duration = parse_duration(self.text(raw)?)?;
        check_bounds(duration, self.0, self.1, |duration| {
            duration_text(*duration)
        })
    }

    fn show(&self, duration: &Duration) -> Option<String> {
        Some(duration_text(*duration))
    }

    fn bounds(&self) -> Option<(String, String)> {
        Some((duration_text(self.0), duration_text(self.1)))
    }

    fn hint(&self, raw: &Raw) -> String {
        match raw {
            Raw::Number(text) => format!("add a unit: write \"{text}s\" or \"{text}ms\""),
            _ => format!("write {}", self.example()),
        }
    }
}

/// The types of fields for whole numbers.
pub(in crate::config) trait Number: Copy + Display {
    /// Converts a number within the bounds of a setting, which fit the type.
    fn from_u64(number: u64) -> Self;
}

macro_rules! numbers {
    ($($number:ty),+) => {$(
        impl Number for $number {
            fn from_u64(number: u64) -> Self {
                Self::try_from(number).expect("the bounds of the setting fit the type")
            }
        }
    )+};
    (nonzero: $($number:ty),+) => {$(
        impl Number for $number {
            fn from_u64(number: u64) -> Self {
                Self::new(Number::from_u64(number)).expect("the minimum is above zero")
            }
        }
    )+};
}

numbers!(u8, u16, u32, u64, usize, i32);
numbers!(nonzero: NonZeroU32, NonZeroU64, NonZeroUsize);

/// A whole number, from the first to the second number.
pub(in crate::config) struct Count<N>(u64, u64, PhantomData<fn() -> N>);

impl<N> Count<N> {
    /// Returns the type of numbers from `min` to `max`, which must fit the type of the field.
    pub(in crate::config) const fn of(min: u64, max: u64) -> Self {
        Self(min, max, PhantomData)
    }
}

impl<N: Number> SettingValue for Count<N> {
    type Parsed = N;

    fn name(&self) -> String {
        "number".to_owned()
    }

    fn noun_phrase(&self) -> &'static str {
        WHOLE_NUMBER
    }

    fn example(&self) -> String {
        format!("a number such as {}", self.0.max(8))
    }

    fn read(&self, raw: &Raw, _folder: &Path) -> Result<N, ValueError> {
        let number = whole_number(self, raw)?;
        check_bounds(number, self.0, self.1, u64::to_string).map(N::from_u64)
    }

    fn show(&self, number: &N) -> Option<String> {
        Some(number.to_string())
    }

    fn bounds(&self) -> Option<(String, String)> {
        Some((self.0.to_string(), self.1.to_string()))
    }

    fn is_quoted(&self) -> bool {
        false
    }

    fn hint(&self, raw: &Raw) -> String {
        hint_without_quotes(self, raw)
    }
}

/// A whole number of 64 bits.
pub(in crate::config) struct Seed;

impl SettingValue for Seed {
    type Parsed = u64;

    fn name(&self) -> String {
        "number".to_owned()
    }

    fn noun_phrase(&self) -> &'static str {
        WHOLE_NUMBER
    }

    fn example(&self) -> String {
        "a number such as 42".to_owned()
    }

    fn read(&self, raw: &Raw, _folder: &Path) -> Result<u64, ValueError> {
        whole_number(self, raw)
    }

    fn show(&self, seed: &u64) -> Option<String> {
        Some(seed.to_string())
    }

    fn is_quoted(&self) -> bool {
        false
    }

    fn hint(&self, raw: &Raw) -> String {
        hint_without_quotes(self, raw)
    }
}

/// A number from 0 to 1.
pub(in crate::config) struct Share;

impl SettingValue for Share {
    type Parsed = f64;

    fn name(&self) -> String {
        "number".to_owned()
    }

    fn noun_phrase(&self) -> &'static str {
        "a number from 0 to 1"
    }

    fn example(&self) -> String {
        "a number such as 0.01".to_owned()
    }

    fn read(&self, raw: &Raw, _folder: &Path) -> Result<f64, ValueError> {
        let (Raw::Flag(text) | Raw::Number(text) | Raw::Other { source: text, .. }) = raw else {
            return Err(self.wrong_type_error(raw));
        };
        let share = text.parse().ok().filter(|share: &f64| share.is_finite());
        let share = share.ok_or_else(|| self.wrong_type_error(raw))?;
        check_bounds(share, 0.0, 1.0, f64::to_string)
    }

    fn show(&self, share: &f64) -> Option<String> {
        Some(share.to_string())
    }

    fn is_quoted(&self) -> bool {
        false
    }
}

/// `true` or `false`.
pub(in crate::config) struct Switch;

impl SettingValue for Switch {
    type Parsed = bool;

    fn name(&self) -> String {
        "boolean".to_owned()
    }

    fn noun_phrase(&self) -> &'static str {
        "a boolean"
    }

    fn example(&self) -> String {
        "true or false".to_owned()
    }

    fn read(&self, raw: &Raw, _folder: &Path) -> Result<bool, ValueError> {
        match raw {
            Raw::Switch(on) => Ok(*on),
            Raw::Flag(text) => text.parse().map_err(|_| self.wrong_type_error(raw)),
            _ => Err(self.wrong_type_error(raw)),
        }
    }

    fn show(&self, on: &bool) -> Option<String> {
        Some(on.to_string())
    }

    fn is_quoted(&self) -> bool {
        false
    }

    fn hint(&self, raw: &Raw) -> String {
        match raw {
            Raw::Text(text) if text.parse::<bool>().is_ok() => {
                format!("write {text} without quotes")
            }
            _ => format!("write {}", self.example()),
        }
    }
}

/// The values of the limits of request bodies, also of those of rules.
pub(in crate::config) const REQUEST_BODY_SIZES: OrNone<Size> =
    OrNone(Size(ByteSize(0), ByteSize::gib(16 << 10)));

const WHOLE_NUMBER: &str = "a whole number";

fn whole_number(kind: &impl SettingValue, raw: &Raw) -> Result<u64, ValueError> {
    let (Raw::Flag(text) | Raw::Number(text)) = raw else {
        return Err(kind.wrong_type_error(raw));
    };
    let digits = text.replace('_', "");
    let parsed = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    let hint = || format!("write {}", kind.example());
    parsed.map_err(|error| match error.kind() {
        IntErrorKind::PosOverflow => ValueError::new("does not fit in 64 bits"),
        _ if digits.starts_with('-') => ValueError::new("is negative").hint(hint()),
        _ => ValueError::new(format!("is not {}", kind.noun_phrase())).hint(hint()),
    })
}

fn hint_without_quotes(kind: &impl SettingValue, raw: &Raw) -> String {
    match raw {
        Raw::Text(text) if text.parse::<u64>().is_ok() => format!("write {text} without quotes"),
        _ => format!("write {}", kind.example()),
    }
}

/// Returns `value` if it is between `min` and `max`. `text` formats a bound for the hint of the error.
fn check_bounds<T: PartialOrd>(
    value: T,
    min: T,
    max: T,
    text: fn(&T) -> String,
) -> Result<T, ValueError> {
    let reason = if value < min {
        "is too small"
    } else if value > max {
        "is too large"
    } else {
        return Ok(value);
    };
    Err(ValueError::new(reason).hint(format!("use {} to {}", text(&min), text(&max))))
}
