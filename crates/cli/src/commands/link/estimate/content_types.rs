//! Sums of savings by the content type of files.

use std::collections::BTreeMap;

use edgeward_chunk_store::estimate::Savings;

/// The savings by content type.
#[derive(Debug, Default)]
pub(super) struct ContentTypes(BTreeMap<String, Savings>);

impl ContentTypes {
    /// Adds the savings of a body.
    pub(super) fn add(&mut self, content_type: String, saved: &Savings) {
        let is_full = self.0.len() >= TYPES_MAX && !self.0.contains_key(&content_type);
        let name = if is_full {
            "(others)".to_owned()
        } else {
            content_type
        };
        let sum = self.0.entry(name).or_default();
        *sum = sum.plus(saved);
    }

    /// Returns the savings of each content type, the one with the most bytes first.
    pub(super) fn into_sums(self) -> Vec<(String, Savings)> {
        let mut sums: Vec<_> = self.0.into_iter().collect();
        sums.sort_by_key(|(_, saved)| std::cmp::Reverse(saved.bytes));
        sums
    }
}

/// The highest number of content types with sums of their own.
const TYPES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_types_are_bounded() {
        let mut types = ContentTypes::default();
        for n in 0..200 {
            let saved = Savings {
                bytes: n,
                ..Savings::default()
            };
            types.add(format!("type {n}"), &saved);
        }
        let sums = types.into_sums();
        assert_eq!(sums.len(), TYPES_MAX + 1);
        assert_eq!(sums[0].0, "(others)");
        let bytes: u64 = sums.iter().map(|(_, saved)| saved.bytes).sum();
        assert_eq!(bytes, (0..200).sum::<u64>());
    }
}
