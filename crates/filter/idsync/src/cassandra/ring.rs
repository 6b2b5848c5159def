//! Divides the token ring into ranges, which are the spans of a scan.

use std::fmt;

/// A token range: greater than `after`, up to and including `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) after: i64,
    pub(super) last: i64,
}

impl Range {
    /// Encodes the range for the ledger, which records the spans of a scan and their progress.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        [self.after.to_be_bytes(), self.last.to_be_bytes()].concat()
    }

    /// Decodes a range that [`to_bytes`](Self::to_bytes) encoded.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (after, last) = bytes.split_first_chunk()?;
        Some(Self {
            after: i64::from_be_bytes(*after),
            last: i64::from_be_bytes(last.try_into().ok()?),
        })
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.after, self.last)
    }
}

/// Divides the ring at the boundaries between its nodes, `tokens`. Ranges longer than `1 / ranges_min` of the
/// ring are divided further.
///
/// The first range begins after `i64::MIN`, so it does not contain this number. This number is not a valid
/// token, because Cassandra's partitioner replaces it by `i64::MAX`.
pub(super) fn ranges(tokens: impl IntoIterator<Item = i64>, ranges_min: u32) -> Vec<Range> {
    let mut ends: Vec<i64> = tokens.into_iter().collect();
    ends.push(i64::MAX);
    ends.sort_unstable();
    ends.dedup();
    let longest = (u64::MAX / u64::from(ranges_min.max(1))).saturating_add(1);
    let mut ranges = Vec::new();
    let mut after = i64::MIN;
    for end in ends {
        while after < end {
            let remaining = end.abs_diff(after);
            let pieces = remaining.div_ceil(longest);
            let last = after.saturating_add_unsigned(remaining.div_ceil(pieces));
            ranges.push(Range { after, last });
            after = last;
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The ranges contain every token exactly once, and the boundaries of nodes are boundaries of ranges.
        #[test]
        fn the_ranges_cover_the_ring(tokens in prop::collection::vec(any::<i64>(), 0..50), ranges_min in 1u32..70) {
            let ranges = ranges(tokens.clone(), ranges_min);
            prop_assert_eq!(ranges[0].after, i64::MIN);
            prop_assert_eq!(ranges[ranges.len() - 1].last, i64::MAX);
            for pair in ranges.windows(2) {
                prop_assert_eq!(pair[0].last, pair[1].after);
            }
            for token in tokens.iter().filter(|token| **token != i64::MIN) {
                prop_assert!(ranges.iter().any(|range| range.last == *token));
            }
            let longest = ranges.iter().map(|range| range.last.abs_diff(range.after)).max();
            prop_assert!(longest <= Some((u64::MAX / u64::from(ranges_min)).saturating_add(1)));
            prop_assert!(ranges.len() <= tokens.len() + 1 + ranges_min as usize);
            for range in ranges {
                prop_assert!(range.after < range.last);
                prop_assert_eq!(Range::from_bytes(&range.to_bytes()), Some(range));
            }
        }
    }

    #[test]
    fn a_ring_without_tokens_is_one_range() {
        let whole = Range {
            after: i64::MIN,
            last: i64::MAX,
        };
        assert_eq!(ranges([], 1), [whole]);
        assert_eq!(ranges([i64::MIN, i64::MAX], 1), [whole]);
        assert_eq!(ranges([], 64).len(), 64);
    }
}
