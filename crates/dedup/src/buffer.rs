//! Memory for bodies on their way: written once, handed on without a copy, and used again.
//!
//! A body's bytes are read into a [`Buffer`] and stay where they are until the last who needs them is done: the piece
//! that waits for its acknowledgement, the connection that writes it, the user who takes it. Fresh memory costs more than what is done with
//! it, since the system maps and zeroes each page; so large buffers come out of a [`Pool`] and return there, last in first out,
//! while a processor's cache still has them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

/// Large buffers have one of these sizes: a batch of 256 or 448 KiB, and the chunk that filled it.
pub const LARGE_BYTES: [usize; 2] = [320 << 10, 512 << 10];

/// What is shorter is allocated as it is wanted: a few bytes that somebody holds shall not hold many times as much memory.
const SMALL_BYTES_MAX: usize = LARGE_BYTES[0] / 2;

/// Keeps large buffers that nobody uses, for whoever wants one next. A driver brings it.
pub trait Shelf: Send + Sync {
    /// The memory of one with so many bytes, one of [`LARGE_BYTES`], if there is any.
    fn take(&self, bytes: usize) -> Option<Box<[u8]>>;

    /// Takes memory back, or frees it where there is enough.
    fn put(&self, memory: Box<[u8]>);
}

/// Where large buffers come from: without a [`Shelf`] each is allocated anew. Clones share it.
#[derive(Clone, Default)]
pub struct Pool(Option<Arc<dyn Shelf>>);

impl Pool {
    /// Buffers out of this shelf.
    pub fn new(shelf: Arc<dyn Shelf>) -> Self {
        Self(Some(shelf))
    }

    /// A buffer with room for `bytes` at least.
    pub fn buffer(&self, bytes: usize) -> Buffer {
        let mut sizes = LARGE_BYTES.into_iter().filter(|_| bytes > SMALL_BYTES_MAX);
        let large = sizes.find(|&size| bytes <= size);
        let kept = self.0.as_ref().filter(|_| large.is_some());
        let bytes = large.unwrap_or(bytes);
        let memory = kept.and_then(|shelf| shelf.take(bytes));
        Buffer {
            bytes: memory.unwrap_or_else(|| vec![0; bytes].into()),
            filled: 0,
            shelf: kept.cloned(),
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pool")
    }
}

/// Bytes with room for more.
#[derive(Default)]
pub struct Buffer {
    bytes: Box<[u8]>,
    filled: usize,
    /// Where it returns to.
    shelf: Option<Arc<dyn Shelf>>,
}

impl Buffer {
    /// How many more there is room for.
    pub fn room(&self) -> usize {
        self.bytes.len() - self.filled
    }

    /// Where the next bytes belong. What is there means nothing.
    pub fn spare(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    /// So many bytes were put into [`spare`](Self::spare).
    ///
    /// # Panics
    ///
    /// If there was no room for them.
    pub fn fill(&mut self, bytes: usize) {
        assert!(bytes <= self.room(), "{bytes} bytes into {}", self.room());
        self.filled += bytes;
    }

    /// Room for `bytes` more at least.
    pub fn reserve(&mut self, bytes: usize, pool: &Pool) {
        if self.room() < bytes {
            let wanted = (self.filled + bytes).max((self.bytes.len() * 2).min(LARGE_BYTES[0]));
            let mut larger = pool.buffer(wanted);
            larger.put(self);
            *self = larger;
        }
    }

    /// Appends bytes there is room for.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn put(&mut self, bytes: &[u8]) {
        self.spare()[..bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
    }

    /// Gives memory back that holds nothing.
    pub fn release(&mut self) {
        if self.filled == 0 {
            *self = Self::default();
        }
    }

    /// The first `bytes` as they will never change again; the rest begins a buffer of its own.
    pub fn split_off_front(&mut self, bytes: usize, pool: &Pool) -> Bytes {
        // Less would hold more memory than it has bytes.
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
            // Of a large one the next will be as long.
            let wanted = if LARGE_BYTES.contains(&self.bytes.len()) {
                bytes.max(SMALL_BYTES_MAX + 1)
            } else {
                0
            };
            next = pool.buffer(wanted.max(rest.len()));
            next.put(rest);
        }
        let mut front = std::mem::replace(self, next);
        front.filled = bytes;
        front.freeze(0..bytes)
    }

    /// A range of its bytes as they will never change again; the memory returns when the last clone is dropped.
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
        if let Some(shelf) = self.shelf.take() {
            shelf.put(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    proptest! {
        /// Whatever is put in and split off, the bytes are those of a vector, and none of those split off changes later.
        #[test]
        fn buffers_are_vectors(steps in vec((any::<u8>(), 0_usize..150_000, 0_usize..200_000), 1..20)) {
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
