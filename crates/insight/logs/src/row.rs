//! Rows: the data of a request that a partition stores until the requests are counted.

use std::fmt::Debug;
use std::hash::Hash;

use edgeward_analysis::{Entry, Fingerprints, Object};

/// The key of a URL: a fingerprint of 64 or 128 bits.
pub(crate) trait Key: Copy + Ord + Hash + Debug + Send + Sync {
    /// The length of an encoded key in bytes.
    const BYTES: usize;

    /// Makes the key of a URL with this 64-bit fingerprint.
    fn from_fingerprint(first: u64, fingerprints: &mut Fingerprints, entry: &Entry<'_>) -> Self;

    /// Returns the first 64 bits. They determine the partition, the slot in the table, and if the URL belongs
    /// to the sample.
    fn first(self) -> u64;

    /// Encodes the key into [`Self::BYTES`] bytes.
    fn write(self, out: &mut [u8]);

    /// Decodes a key.
    fn read(bytes: &[u8]) -> Self;
}

impl Key for u64 {
    const BYTES: usize = 8;

    #[inline]
    fn from_fingerprint(first: u64, _fingerprints: &mut Fingerprints, _entry: &Entry<'_>) -> Self {
        first
    }

    #[inline]
    fn first(self) -> u64 {
        self
    }

    #[inline]
    fn write(self, out: &mut [u8]) {
        out.copy_from_slice(&self.to_le_bytes());
    }

    #[inline]
    fn read(bytes: &[u8]) -> Self {
        number(bytes)
    }
}

impl Key for u128 {
    const BYTES: usize = 16;

    #[inline]
    fn from_fingerprint(first: u64, fingerprints: &mut Fingerprints, entry: &Entry<'_>) -> Self {
        Self::from(first) << 64 | Self::from(fingerprints.second_half(entry))
    }

    #[inline]
    fn first(self) -> u64 {
        (self >> 64) as u64
    }

    #[inline]
    fn write(self, out: &mut [u8]) {
        out.copy_from_slice(&self.to_le_bytes());
    }

    #[inline]
    fn read(bytes: &[u8]) -> Self {
        Self::from_le_bytes(bytes.try_into().expect("the slice has the length of a key"))
    }
}

/// A request in the form in which a partition stores it. The associated type [`Self::Sum`] has the sums over
/// all requests for one URL.
pub(crate) trait Row: Copy + Debug + Send + Sync {
    /// The length of an encoded row in bytes.
    const BYTES: usize;

    /// True for the rows of a full analysis. Besides counting the requests for each URL, a full analysis tallies all
    /// lines (for example by hour and by status) and takes a sample.
    const TALLIED: bool;

    /// The type of the key of a URL.
    type Key: Key;

    /// The type of the sums over all requests for one URL.
    type Sum: Copy + Default + Send;

    /// Makes the row of a request for the URL with this key.
    fn new(key: Self::Key, entry: &Entry<'_>) -> Self;

    /// Returns the key of the URL.
    fn key(self) -> Self::Key;

    /// Encodes the row into [`Self::BYTES`] bytes.
    fn write(self, out: &mut [u8]);

    /// Decodes a row.
    fn read(bytes: &[u8]) -> Self;

    /// Adds the request to the sums of its URL.
    fn add_to(self, sum: &mut Self::Sum);

    /// Converts the sums of a URL to an [`Object`].
    fn object(sum: &Self::Sum) -> Object;
}

/// A row that has only the key of the URL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UrlRow<K>(pub(crate) K);

impl<K: Key> Row for UrlRow<K> {
    const BYTES: usize = K::BYTES;
    const TALLIED: bool = false;
    type Key = K;
    type Sum = u64;

    #[inline]
    fn new(key: K, _entry: &Entry<'_>) -> Self {
        Self(key)
    }

    #[inline]
    fn key(self) -> K {
        self.0
    }

    #[inline]
    fn write(self, out: &mut [u8]) {
        self.0.write(out);
    }

    #[inline]
    fn read(bytes: &[u8]) -> Self {
        Self(K::read(bytes))
    }

    #[inline]
    fn add_to(self, sum: &mut u64) {
        *sum += 1;
    }

    fn object(sum: &u64) -> Object {
        Object {
            requests: *sum,
            ..Object::default()
        }
    }
}

/// A row that also has the length of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizedRow<K> {
    pub(crate) key: K,
    pub(crate) bytes: u64,
    /// True if the response had a whole object: the status is 200 and the method is GET.
    pub(crate) complete: bool,
}

impl<K: Key> Row for SizedRow<K> {
    const BYTES: usize = K::BYTES + 8;
    const TALLIED: bool = true;
    type Key = K;
    type Sum = Object;

    #[inline]
    fn new(key: K, entry: &Entry<'_>) -> Self {
        Self {
            key,
            bytes: entry.bytes.unwrap_or(0),
            // A 206 is a part of an object, and a response to HEAD has no body (RFC 9110, 15.3.7 and 9.3.2).
            complete: entry.status == 200 && entry.method == b"GET",
        }
    }

    #[inline]
    fn key(self) -> K {
        self.key
    }

    #[inline]
    fn write(self, out: &mut [u8]) {
        let (key, rest) = out.split_at_mut(K::BYTES);
        self.key.write(key);
        let bytes = self.bytes.min(BYTES_MAX) | u64::from(self.complete) << 63;
        rest.copy_from_slice(&bytes.to_le_bytes());
    }

    #[inline]
    fn read(bytes: &[u8]) -> Self {
        let (key, rest) = bytes.split_at(K::BYTES);
        let rest = number(rest);
        Self {
            key: K::read(key),
            bytes: rest & BYTES_MAX,
            complete: rest > BYTES_MAX,
        }
    }

    #[inline]
    fn add_to(self, sum: &mut Object) {
        sum.request(self.bytes, self.complete);
    }

    fn object(sum: &Object) -> Object {
        *sum
    }
}

#[inline]
fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("the slice has 8 bytes"))
}

/// The maximum length that a row can store. The top bit of the encoded number marks a complete response.
const BYTES_MAX: u64 = u64::MAX >> 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_read_back<K: Key>(key: K) {
        for complete in [false, true] {
            for bytes in [0, 1, BYTES_MAX] {
                let row = SizedRow {
                    key,
                    bytes,
                    complete,
                };
                let mut out = vec![0; SizedRow::<K>::BYTES];
                row.write(&mut out);
                assert_eq!(SizedRow::read(&out), row);
            }
        }
    }

    #[test]
    fn a_written_row_is_read_back() {
        assert_read_back(0xfeed_face_dead_beef_u64);
        assert_read_back(0xfeed_face_dead_beef_0123_4567_89ab_cdef_u128);
    }
}
