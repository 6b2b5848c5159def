//! The free large buffers, which all peers of a process share and use again.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use edgeward_dedup::buffer::{BufferCache, LARGE_BYTES, Pool};

/// The free buffers, behind a lock. The buffer that was returned last is used first, because it is most likely still
/// in the processor's cache.
#[derive(Default)]
pub(crate) struct Buffers(Mutex<FreeBuffers>);

/// The free buffers of each size of `LARGE_BYTES`.
type FreeBuffers = [Vec<Box<[u8]>>; LARGE_BYTES.len()];

impl Buffers {
    pub(crate) fn pool() -> Pool {
        Pool::new(Arc::new(Self::default()))
    }

    fn free(&self) -> MutexGuard<'_, FreeBuffers> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BufferCache for Buffers {
    fn take(&self, bytes: usize) -> Option<Box<[u8]>> {
        let size = LARGE_BYTES.iter().position(|&size| size == bytes)?;
        self.free()[size].pop()
    }

    fn put(&self, memory: Box<[u8]>) {
        let Some(size) = LARGE_BYTES.iter().position(|&size| size == memory.len()) else {
            return;
        };
        let mut free = self.free();
        if free[size].len() < FREE_MAX[size] {
            free[size].push(memory);
        }
    }
}

impl fmt::Debug for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffers({:?})", self.free().each_ref().map(Vec::len))
    }
}

/// The limit of free buffers: 10 MiB of each size.
const FREE_MAX: [usize; LARGE_BYTES.len()] = [32, 20];

#[cfg(test)]
mod tests {
    use super::*;

    /// A large buffer is reused after its last reader has dropped it, but not earlier.
    #[test]
    fn large_buffers_are_reused() {
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

    /// At most `FREE_MAX` free buffers of each large size are kept. Small buffers are freed.
    #[test]
    fn the_number_of_free_buffers_is_bounded() {
        let buffers = Arc::new(Buffers::default());
        let pool = Pool::new(buffers.clone());
        for (bytes, free_max) in LARGE_BYTES.into_iter().zip(FREE_MAX) {
            let used: Vec<_> = (0..2 * free_max).map(|_| pool.buffer(bytes)).collect();
            drop(used);
        }
        drop(pool.buffer(LARGE_BYTES[0] / 2));
        drop(pool.buffer(LARGE_BYTES[1] + 1));
        assert_eq!(buffers.free().each_ref().map(Vec::len), FREE_MAX);
    }
}
