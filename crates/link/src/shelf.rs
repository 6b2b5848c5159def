//! Large buffers that are not in use, shared by all peers of a process.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use edgeward_dedup::buffer::{LARGE_BYTES, Pool, Shelf};

/// Last in, first out: the processor's cache most likely still has the buffer used last.
#[derive(Default)]
pub(crate) struct Buffers(Mutex<Kept>);

/// Free buffers by size.
type Kept = [Vec<Box<[u8]>>; LARGE_BYTES.len()];

impl Buffers {
    pub(crate) fn pool() -> Pool {
        Pool::new(Arc::new(Self::default()))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf for Buffers {
    fn take(&self, bytes: usize) -> Option<Box<[u8]>> {
        let size = LARGE_BYTES.iter().position(|&size| size == bytes)?;
        self.kept()[size].pop()
    }

    fn put(&self, memory: Box<[u8]>) {
        let Some(size) = LARGE_BYTES.iter().position(|&size| size == memory.len()) else {
            return;
        };
        let mut kept = self.kept();
        if kept[size].len() < KEPT_MAX[size] {
            kept[size].push(memory);
        }
    }
}

impl fmt::Debug for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffers({:?})", self.kept().each_ref().map(Vec::len))
    }
}

/// The limit of free buffers: 10 MiB of each size.
const KEPT_MAX: [usize; LARGE_BYTES.len()] = [32, 20];

#[cfg(test)]
mod tests {
    use super::*;

    /// A large buffer is reused after its last reader has dropped it, and not before.
    #[test]
    fn large_buffers_return() {
        let pool = Buffers::pool();
        let mut buffer = pool.buffer(200_000);
        let memory = buffer.as_ptr();
        buffer.put(&[7; 190_000]);
        let bytes = buffer.freeze(10..190_000);
        let reader = bytes.slice(5..10);
        drop(bytes);
        let other = pool.buffer(200_000);
        assert_ne!(other.as_ptr(), memory);
        drop(reader);
        assert_eq!(pool.buffer(200_000).as_ptr(), memory);
    }

    /// At most the limit of large buffers is kept. Small ones are not kept.
    #[test]
    fn what_is_kept_is_bounded() {
        let shelf = Arc::new(Buffers::default());
        let pool = Pool::new(shelf.clone());
        for (bytes, kept_max) in LARGE_BYTES.into_iter().zip(KEPT_MAX) {
            let many: Vec<_> = (0..2 * kept_max).map(|_| pool.buffer(bytes)).collect();
            drop(many);
        }
        drop(pool.buffer(LARGE_BYTES[0] / 2));
        drop(pool.buffer(LARGE_BYTES[1] + 1));
        assert_eq!(shelf.kept().each_ref().map(Vec::len), KEPT_MAX);
    }
}
