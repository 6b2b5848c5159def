//! The methods by which clients purge.

use std::fmt;
use std::str::FromStr;

/// The methods by which a client purges.
pub const METHODS: [&str; 3] = ["PURGE", "BAN", "PURGEKEYS"];

/// Returns true if a method purges in a cache: it is one of [`METHODS`], or its name has the word `PURGE` or `BAN`.
pub fn is_purge_method(method: &str) -> bool {
    method.contains("PURGE") || method.contains("BAN")
}

/// A set of the [`METHODS`]. The default is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeMethods([bool; METHODS.len()]);

impl PurgeMethods {
    /// All methods.
    pub const ALL: Self = Self([true; METHODS.len()]);

    /// Returns the methods of the set.
    pub fn iter(self) -> impl Iterator<Item = &'static str> {
        let methods = METHODS.into_iter().zip(self.0);
        methods.filter_map(|(method, is_member)| is_member.then_some(method))
    }
}

/// Writes the methods with commas between.
impl fmt::Display for PurgeMethods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, method) in self.iter().enumerate() {
            let comma = if n > 0 { ", " } else { "" };
            write!(f, "{comma}{method}")?;
        }
        Ok(())
    }
}

/// The text is not a list of [`METHODS`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a method that purges; write PURGE, BAN and PURGEKEYS with commas between")]
pub struct ParsePurgeMethodsError(Box<str>);

impl FromStr for PurgeMethods {
    type Err = ParsePurgeMethodsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut methods = Self::default();
        let words = text.split(',').map(str::trim);
        for word in words.filter(|word| !word.is_empty()) {
            let at = METHODS.iter().position(|method| *method == word);
            methods.0[at.ok_or_else(|| ParsePurgeMethodsError(word.into()))?] = true;
        }
        Ok(methods)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_set_of_methods_is_written_as_it_is_read() {
        for bits in 0..1_u8 << METHODS.len() {
            let mut at = 0;
            let methods = PurgeMethods([(); METHODS.len()].map(|()| {
                at += 1;
                bits >> (at - 1) & 1 == 1
            }));
            assert_eq!(methods.to_string().parse(), Ok(methods));
            assert_eq!(methods.iter().count(), bits.count_ones() as usize);
        }
        assert!("purge".parse::<PurgeMethods>().is_err());
    }
}
