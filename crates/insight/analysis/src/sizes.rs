//! A histogram of sizes in bytes with four buckets per doubling.

use crate::wire::{DecodeError, Reader, Writer};

/// A histogram of sizes in bytes. It has four buckets per doubling, so the largest size of a bucket is less than 25 %
/// above the smallest. The error of a quantile is therefore below 25 %. The histogram takes 4 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    counts: Box<[u64; BUCKETS]>,
    bytes: Box<[u64; BUCKETS]>,
    max: u64,
}

/// A non-empty bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeBucket {
    /// The smallest size in the bucket.
    pub from: u64,
    /// The smallest size above the bucket.
    pub to: u64,
    /// The number of sizes in the bucket.
    pub count: u64,
    /// The sum of the sizes in the bucket.
    pub bytes: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            counts: Box::new([0; BUCKETS]),
            bytes: Box::new([0; BUCKETS]),
            max: 0,
        }
    }
}

impl Sizes {
    /// Counts one size.
    #[inline]
    pub fn add(&mut self, size: u64) {
        let at = bucket_of(size);
        self.counts[at] += 1;
        self.bytes[at] = self.bytes[at].saturating_add(size);
        self.max = self.max.max(size);
    }

    /// Adds another histogram.
    pub fn merge(&mut self, other: &Self) {
        for at in 0..BUCKETS {
            self.counts[at] += other.counts[at];
            self.bytes[at] = self.bytes[at].saturating_add(other.bytes[at]);
        }
        self.max = self.max.max(other.max);
    }

    pub(crate) fn write_to(&self, out: &mut Writer) {
        out.number(self.max);
        let filled = || (0..BUCKETS).filter(|at| self.counts[*at] > 0);
        out.number(filled().count() as u64);
        for at in filled() {
            out.byte(at as u8);
            out.number(self.counts[at]);
            out.number(self.bytes[at]);
        }
    }

    pub(crate) fn read_from(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut sizes = Self {
            max: from.number()?,
            ..Self::default()
        };
        // An entry has at least three bytes: the bucket's number, the count and the sum.
        for _ in 0..from.count(3)? {
            let at = usize::from(from.byte()?);
            let count = from.counted()?;
            if at >= BUCKETS || count == 0 || sizes.counts[at] > 0 {
                return Err(from.decode_error());
            }
            sizes.counts[at] = count;
            sizes.bytes[at] = from.number()?;
        }
        Ok(sizes)
    }

    /// The number of counted sizes.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The largest size.
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// Yields the non-empty buckets, the smallest first.
    pub fn buckets(&self) -> impl Iterator<Item = SizeBucket> + '_ {
        (0..BUCKETS)
            .filter(|at| self.counts[*at] > 0)
            .map(|at| SizeBucket {
                from: floor_of(at),
                to: floor_of(at + 1),
                count: self.counts[at],
                bytes: self.bytes[at],
            })
    }

    /// Returns the mean of the sizes in the bucket that contains the quantile `q` (0 to 1). `None` if the histogram is
    /// empty.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let count_below = (self.count() as f64 * q) as u64;
        let mut cumulated = 0;
        let bucket = self.buckets().find(|bucket| {
            cumulated += bucket.count;
            cumulated > count_below
        });
        let bucket = bucket.or_else(|| self.buckets().last())?;
        Some(bucket.bytes / bucket.count)
    }
}

#[inline]
fn bucket_of(size: u64) -> usize {
    if size < 4 {
        return size as usize;
    }
    let octave = size.ilog2();
    // The two bits below the leading 1 bit.
    let quarter = (size >> (octave - 2)) & 3;
    (octave * 4 - 4) as usize + quarter as usize
}

/// Returns the smallest size of a bucket, or `u64::MAX` for the bucket after the last.
const fn floor_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 4 {
        return bucket;
    }
    let octave = bucket / 4 + 1;
    if octave > 63 {
        return u64::MAX;
    }
    (4 + bucket % 4) << (octave - 2)
}

/// The number of buckets: one for each of the sizes 0 to 3, then four for each of the 62 octaves from 4 to 2^64.
const BUCKETS: usize = 4 + 62 * 4;
const _: () = assert!(BUCKETS <= 256, "a bucket's number is a byte");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_lies_within_its_bucket() {
        let sizes = (0..64).flat_map(|bit| {
            let size = 1u64 << bit;
            [
                size - 1,
                size,
                size + 1,
                size + size / 2,
                size | size >> 1 | size >> 2,
            ]
        });
        for size in sizes.chain([u64::MAX]) {
            let at = bucket_of(size);
            assert!(at < BUCKETS);
            assert!(floor_of(at) <= size, "{size}");
            assert!(size < floor_of(at + 1) || at == BUCKETS - 1, "{size}");
        }
    }

    #[test]
    fn quantiles_of_uniform_sizes_have_an_error_below_20_percent() {
        let mut sizes = Sizes::default();
        assert_eq!(sizes.quantile(0.5), None);
        (1..=10_000).for_each(|size| sizes.add(size));
        for (q, exact) in [(0.0, 1.0), (0.5, 5_001.0), (0.9, 9_001.0), (0.99, 9_901.0)] {
            let size = sizes.quantile(q).expect("the histogram has sizes") as f64;
            assert!((size / exact - 1.0).abs() < 0.2, "{q}: {size}");
        }
        assert_eq!((sizes.max(), sizes.count()), (10_000, 10_000));
        let mut twice = sizes.clone();
        twice.merge(&sizes);
        assert_eq!(twice.count(), 20_000);
    }
}
