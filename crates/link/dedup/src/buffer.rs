//! Memory for bodies: filled once, passed on without a copy, and reused.
//!
//! The bytes of a body are read into a [`Buffer`]. They stay there until three users no longer need them: the sender,
//! which waits for their acknowledgement; the connection, which writes them; and the code that reads the body.
//!
//! New memory from the system is slow, because the system maps and zeroes each page at its first use. Large buffers
//! therefore come from a [`Pool`] and return to its cache. The buffer that was returned last is used first, because it
//! may still be in a cache of the processor.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

/// The sizes of large buffers. The sender sends new chunks in batches of 256 KiB, or of 448 KiB if it compresses
/// them. A buffer has space for a batch, and 64 KiB for the chunk that crosses the end of the batch.
pub const LARGE_BYTES: [usize; 2] = [320 << 10, 512 << 10];

/// Buffers of up to this length are allocated with their exact size, so that a few bytes do not keep a large buffer
/// in use.
const SMALL_BYTES_MAX: usize = LARGE_BYTES[0] / 2;

/// Returns the length of the memory of a buffer for this many bytes.
pub fn allocated_bytes(bytes: usize) -> usize {
    let mut sizes = LARGE_BYTES.into_iter().filter(|_| bytes > SMALL_BYTES_MAX);
    sizes.find(|&size| bytes <= size).unwrap_or(bytes)
}

/// Keeps unused large buffers for the next user. The crate `edgeward_link` implements this trait.
pub trait BufferCache: Send + Sync {
    /// Returns memory of this size, which is one of [`LARGE_BYTES`], if one is available.
    fn take(&self, bytes: usize) -> Option<Box<[u8]>>;

    /// Stores unused memory for the next user, or frees the memory if the cache is full.
    fn put(&self, memory: Box<[u8]>);
}

/// Provides large buffers. Without a [`BufferCache`], each buffer is allocated. All clones of a pool use the
/// same cache.
#[derive(Clone, Default)]
pub struct Pool(Option<Arc<dyn BufferCache>>);

impl Pool {
    /// Creates a pool that takes buffers from this cache.
    pub fn new(cache: Arc<dyn BufferCache>) -> Self {
        Self(Some(cache))
    }

    /// Returns a buffer with space for at least `bytes`.
    pub fn buffer(&self, bytes: usize) -> Buffer {
        let bytes = allocated_bytes(bytes);
        let cache = self.0.as_ref().filter(|_| LARGE_BYTES.contains(&bytes));
        let memory = cache.and_then(|cache| cache.take(bytes));
        Buffer {
            bytes: memory.unwrap_or_else(|| vec![0; bytes].into()),
            filled: 0,
            cache: cache.cloned(),
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pool")
    }
}

/// Bytes, with space for more.
#[derive(Default)]
pub struct Buffer {
    bytes: Box<[u8]>,
    filled: usize,
    /// The cache to which the memory returns.
    cache: Option<Arc<dyn BufferCache>>,
}

impl Buffer {
    /// Returns the number of bytes that can still be added.
    pub fn free_bytes(&self) -> usize {
        self.bytes.len() - self.filled
    }

    /// Returns the unfilled part. Its content is undefined.
    pub fn spare(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    /// Records that `bytes` bytes were written into [`spare`](Self::spare).
    ///
    /// # Panics
    ///
    /// If the unfilled part is shorter.
    pub fn fill(&mut self, bytes: usize) {
        assert!(
            bytes <= self.free_bytes(),
            "{bytes} bytes into {}",
            self.free_bytes()
        );
        self.filled += bytes;
    }

    /// Makes space for at least `bytes` more bytes.
    pub fn reserve(&mut self, bytes: usize, pool: &Pool) {
        if self.free_bytes() < bytes {
            let new_bytes = (self.filled + bytes).max((self.bytes.len() * 2).min(LARGE_BYTES[0]));
            let mut larger = pool.buffer(new_bytes);
            larger.put(self);
            *self = larger;
        }
    }

    /// Appends bytes.
    ///
    /// # Panics
    ///
    /// If there is no space for them.
    pub fn put(&mut self, bytes: &[u8]) {
        self.spare()[..bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
    }

    /// Releases the memory of the buffer if it is empty.
    pub fn release(&mut self) {
        if self.filled == 0 {
            *self = Self::default();
        }
    }

    /// Returns the first `bytes` bytes as immutable bytes. The remaining bytes become the content of this buffer.
    pub(crate) fn split_off_front(&mut self, bytes: usize, pool: &Pool) -> Bytes {
        // A short front is copied, so that it does not keep a much larger buffer in use.
        if bytes < self.bytes.len() / 2 {
            let front = Bytes::copy_from_slice(&self[..bytes]);
            self.bytes.copy_within(bytes..self.filled, 0);
            self.filled -= bytes;
            self.release();
            return front;
        }
        let rest = &self[bytes..];
        let mut next = Self::default();
        if !rest.is_empty() {
            // The buffer was large, so the next one will probably get as many bytes as the front has.
            let new_bytes = if LARGE_BYTES.contains(&self.bytes.len()) {
                bytes.max(SMALL_BYTES_MAX + 1)
            } else {
                0
            };
            next = pool.buffer(new_bytes.max(rest.len()));
            next.put(rest);
        }
        let mut front = std::mem::replace(self, next);
        front.filled = bytes;
        front.freeze(0..bytes)
    }

    /// Returns a range as immutable bytes. The memory returns to the cache when the last clone of these bytes
    /// is dropped.
    pub fn freeze(self, range: Range<usize>) -> Bytes {
        Bytes::from_owner(self).slice(range)
    }
}

impl std::ops::Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} of {} bytes)", self.filled, self.bytes.len())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(cache) = self.cache.take() {
            cache.put(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    proptest! {
        /// Method: append and split a buffer and a vector in the same way. Both always have the same bytes, and
        /// bytes that were split off do not change later.
        #[test]
        fn a_buffer_has_the_bytes_of_a_vector(steps in vec((any::<u8>(), 0_usize..150_000, 0_usize..200_000), 1..20)) {
            let pool = Pool::default();
            let (mut buffer, mut oracle) = (Buffer::default(), Vec::new());
            let mut fronts = Vec::new();
            for (byte, put, split) in steps {
                buffer.reserve(put, &pool);
                buffer.put(&vec![byte; put]);
                oracle.resize(oracle.len() + put, byte);
                let split = split.min(oracle.len());
                let rest = oracle.split_off(split);
                fronts.push((buffer.split_off_front(split, &pool), std::mem::replace(&mut oracle, rest)));
                prop_assert_eq!(&buffer[..], &oracle[..]);
            }
            for (front, expected) in fronts {
                prop_assert_eq!(&front[..], &expected[..]);
            }
        }
    }
}
