//! Large buffers that nobody uses at the moment, for all peers of a process.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use edgeward_dedup::buffer::{Pool, Shelf};

/// Last in, first out: what was used last is what a processor's cache still has.
#[derive(Default)]
pub(crate) struct Buffers(Mutex<Vec<Box<[u8]>>>);

impl Buffers {
    pub(crate) fn pool() -> Pool {
        Pool::new(Arc::new(Self::default()))
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Box<[u8]>>> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf for Buffers {
    fn take(&self) -> Option<Box<[u8]>> {
        self.kept().pop()
    }

    fn put(&self, memory: Box<[u8]>) {
        let mut kept = self.kept();
        if kept.len() < KEPT_MAX {
            kept.push(memory);
        }
    }
}

impl fmt::Debug for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffers({})", self.kept().len())
    }
}

/// Those that are kept although nobody uses them: 20 MiB.
const KEPT_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    use edgeward_dedup::buffer::LARGE_BYTES;

    /// A large buffer is the next one again when its last reader is gone, and not before.
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

    /// No more are kept than was said, and small ones never.
    #[test]
    fn what_is_kept_is_bounded() {
        let shelf = Arc::new(Buffers::default());
        let pool = Pool::new(shelf.clone());
        let many: Vec<_> = (0..2 * KEPT_MAX)
            .map(|_| pool.buffer(LARGE_BYTES))
            .collect();
        drop(many);
        drop(pool.buffer(LARGE_BYTES / 2));
        drop(pool.buffer(LARGE_BYTES + 1));
        assert_eq!(shelf.kept().len(), KEPT_MAX);
    }
}
