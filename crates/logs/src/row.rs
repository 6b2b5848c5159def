//! What is kept of a request until it is counted.

use edgeward_analysis::{Entry, Object};

/// A request as a partition holds it, and what many of one URL become.
pub(crate) trait Row: Copy + Send + Sync {
    /// Bytes of a row in a partition.
    const BYTES: usize;

    /// What the requests of one URL add up to.
    type Sum: Copy + Default + Send;

    /// What is kept of a request for the URL with this fingerprint.
    fn of(fingerprint: u64, entry: &Entry<'_>) -> Self;

    /// Whose URL it was.
    fn fingerprint(self) -> u64;

    fn write(self, out: &mut Vec<u8>);

    /// The row that these bytes are.
    fn read(bytes: &[u8]) -> Self;

    fn add_to(self, sum: &mut Self::Sum);

    fn object(sum: &Self::Sum) -> Object;
}

/// A request and no more: its fingerprint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bare(pub(crate) u64);

impl Row for Bare {
    const BYTES: usize = 8;
    type Sum = u64;

    #[inline]
    fn of(fingerprint: u64, _entry: &Entry<'_>) -> Self {
        Self(fingerprint)
    }

    #[inline]
    fn fingerprint(self) -> u64 {
        self.0
    }

    #[inline]
    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes());
    }

    #[inline]
    fn read(bytes: &[u8]) -> Self {
        Self(number(bytes))
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

/// A request with the bytes it was answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sized {
    pub(crate) fingerprint: u64,
    pub(crate) bytes: u64,
    /// Whether that was all of an object.
    pub(crate) complete: bool,
}

impl Row for Sized {
    const BYTES: usize = 16;
    type Sum = Object;

    #[inline]
    fn of(fingerprint: u64, entry: &Entry<'_>) -> Self {
        Self {
            fingerprint,
            bytes: entry.bytes.unwrap_or(0),
            // A 206 is a part, and the answer to a HEAD has no body (RFC 9110, 15.3.7 and 9.3.2).
            complete: entry.status == 200 && entry.method == b"GET",
        }
    }

    #[inline]
    fn fingerprint(self) -> u64 {
        self.fingerprint
    }

    #[inline]
    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.fingerprint.to_le_bytes());
        let bytes = self.bytes.min(BYTES_MAX) | u64::from(self.complete) << 63;
        out.extend_from_slice(&bytes.to_le_bytes());
    }

    #[inline]
    fn read(bytes: &[u8]) -> Self {
        let (fingerprint, rest) = bytes.split_at(8);
        let rest = number(rest);
        Self {
            fingerprint: number(fingerprint),
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
    u64::from_le_bytes(bytes.try_into().expect("a row is read in its own length"))
}

/// The top bit tells a complete answer.
const BYTES_MAX: u64 = u64::MAX >> 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_reads_back_as_it_was_written() {
        for complete in [false, true] {
            for bytes in [0, 1, BYTES_MAX] {
                let row = Sized {
                    fingerprint: 0xfeed_face_dead_beef,
                    bytes,
                    complete,
                };
                let mut out = Vec::new();
                row.write(&mut out);
                assert_eq!(out.len(), Sized::BYTES);
                assert_eq!(Sized::read(&out), row);
            }
        }
    }
}
