//! A buffer for writes that bypass the page cache (`O_DIRECT`).
//!
//! Such a write requires an address that is a multiple of
//! [`WRITE_ALIGN`](crate::disk::device::WRITE_ALIGN). A `Vec` may be at any address. This buffer is a memory
//! mapping, which begins at a page boundary.

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// The capacity of the buffer is a multiple of this number of bytes.
const STEP_BYTES: usize = 256 << 10;

/// A byte vector with the operations that the writer needs.
#[derive(Debug, Default)]
pub(super) struct PageBuffer {
    /// `None` until bytes are added.
    memory: Option<MmapMut>,
    length: usize,
}

impl PageBuffer {
    /// Truncates the buffer to `length`, or extends it with zeros.
    pub(super) fn resize_with_zeros(&mut self, length: usize) {
        let before = self.length;
        self.grow_to(length);
        self.length = length;
        if length > before {
            self[before..].fill(0);
        }
    }

    pub(super) fn extend_from_slice(&mut self, bytes: &[u8]) {
        let before = self.length;
        self.grow_to(before + bytes.len());
        self.length = before + bytes.len();
        self[before..].copy_from_slice(bytes);
    }

    /// Empties the buffer. The memory is kept.
    pub(super) fn clear(&mut self) {
        self.length = 0;
    }

    fn grow_to(&mut self, length: usize) {
        let capacity = self.memory.as_ref().map_or(0, |memory| memory.len());
        if length <= capacity {
            return;
        }
        let capacity = length.max(2 * capacity).next_multiple_of(STEP_BYTES);
        let mut larger = MmapMut::map_anon(capacity).unwrap_or_else(|error| {
            // A `Vec` also panics if no memory is left.
            panic!("no memory for a write buffer of {capacity} bytes: {error}")
        });
        larger[..self.length].copy_from_slice(self);
        self.memory = Some(larger);
    }
}

impl Deref for PageBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory
            .as_ref()
            .map_or(&[], |memory| &memory[..self.length])
    }
}

impl DerefMut for PageBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory
            .as_mut()
            .map_or(&mut [], |memory| &mut memory[..self.length])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::disk::device::WRITE_ALIGN;

    proptest! {
        #[test]
        fn the_buffer_behaves_like_a_vec_and_begins_at_a_page(
            steps in prop::collection::vec((0..3_u8, 0..20_000_usize), 0..12),
        ) {
            let (mut buffer, mut vec) = (PageBuffer::default(), Vec::new());
            for (step, size) in steps {
                match step {
                    0 => {
                        buffer.extend_from_slice(&vec![7; size]);
                        vec.extend_from_slice(&vec![7; size]);
                    }
                    1 => {
                        buffer.resize_with_zeros(size);
                        vec.resize(size, 0);
                    }
                    _ => {
                        buffer.clear();
                        vec.clear();
                    }
                }
                prop_assert_eq!(&buffer[..], &vec[..]);
                prop_assert!(vec.is_empty() || buffer.as_ptr().addr().is_multiple_of(WRITE_ALIGN as usize));
            }
        }
    }
}
