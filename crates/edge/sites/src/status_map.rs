//! Values for statuses of responses.

use std::fmt;
use std::str::FromStr;

use http::StatusCode;

/// One status, `404`, or all statuses of a class, `5xx`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusSet {
    /// The status with this number.
    One(u16),
    /// The hundred statuses that begin with this digit.
    Class(u16),
}

/// The text is not a [`StatusSet`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a status; write a number from 100 to 599, or a class such as 5xx")]
pub struct ParseStatusSetError(Box<str>);

impl FromStr for StatusSet {
    type Err = ParseStatusSetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseStatusSetError(text.into());
        let (number, is_class) = match text.strip_suffix("xx") {
            Some(digit) => (digit, true),
            None => (text, false),
        };
        let number: u16 = number.parse().map_err(|_| error())?;
        match (is_class, number) {
            (true, 1..=5) => Ok(Self::Class(number)),
            (false, 100..=599) => Ok(Self::One(number)),
            _ => Err(error()),
        }
    }
}

impl fmt::Display for StatusSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(number) => write!(f, "{number}"),
            Self::Class(digit) => write!(f, "{digit}xx"),
        }
    }
}

/// A map from statuses to values. The value of a status itself precedes the value of its class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusMap<T> {
    entries: Vec<(StatusSet, T)>,
    /// True if the map undoes the values of earlier rules.
    clears: bool,
}

impl<T> Default for StatusMap<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            clears: false,
        }
    }
}

impl<T> StatusMap<T> {
    /// Removes all values, also those of earlier rules.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.clears = true;
    }

    /// Sets the value of a status or class.
    pub fn insert(&mut self, set: StatusSet, value: T) {
        match self.entries.iter_mut().find(|(known, _)| *known == set) {
            Some((_, old)) => *old = value,
            None => self.entries.push((set, value)),
        }
    }

    /// Returns the value for a status.
    pub fn get(&self, status: StatusCode) -> Option<&T> {
        let value_of = |wanted| {
            let mut entries = self.entries.iter();
            entries.find_map(|(set, value)| (*set == wanted).then_some(value))
        };
        let number = status.as_u16();
        value_of(StatusSet::One(number)).or_else(|| value_of(StatusSet::Class(number / 100)))
    }

    /// Returns true if no status has a value.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns all entries, in the order of their first insertion.
    pub fn iter(&self) -> impl Iterator<Item = (StatusSet, &T)> {
        self.entries.iter().map(|(set, value)| (*set, value))
    }
}

impl<T: Clone> StatusMap<T> {
    /// Sets all values of `later`.
    pub(crate) fn merge(&mut self, later: &Self) {
        if later.clears {
            self.clear();
        }
        for (set, value) in &later.entries {
            self.insert(*set, value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_precedes_its_class_and_later_values_replace_earlier_ones() {
        let mut map = StatusMap::default();
        for (set, value) in [("5xx", 1), ("503", 2), ("404", 3), ("5xx", 4)] {
            map.insert(set.parse().expect(set), value);
        }
        let get = |status| {
            map.get(StatusCode::from_u16(status).expect("a status"))
                .copied()
        };
        assert_eq!(get(500), Some(4));
        assert_eq!(get(503), Some(2));
        assert_eq!(get(404), Some(3));
        assert_eq!(get(200), None);
    }

    #[test]
    fn statuses_parse_back_from_their_text() {
        for text in ["200", "404", "5xx", "1xx", "599"] {
            assert_eq!(text.parse::<StatusSet>().expect(text).to_string(), text);
        }
        for text in ["", "xx", "6xx", "0xx", "99", "600", "2XX", "-1", "20x"] {
            assert!(text.parse::<StatusSet>().is_err(), "{text}");
        }
    }
}
