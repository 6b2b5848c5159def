//! Bytes on their way to the device, where it can take them from itself.
//!
//! A write past the page cache wants its bytes at an address that is a multiple of [`WRITE_ALIGN`](crate::disk::device::WRITE_ALIGN). A `Vec` is wherever the
//! allocator has room; this lies in memory of its own, which begins with a page.

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// Room comes in steps of this: what was needed once stays, and little more.
const STEP_BYTES: usize = 256 << 10;

/// As a `Vec<u8>`, as far as a writer needs one.
#[derive(Debug, Default)]
pub(super) struct PageBuffer {
    /// None until there is something.
    memory: Option<MmapMut>,
    length: usize,
}

impl PageBuffer {
    /// Cuts it off at `length`, or fills it up to there with zeros.
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

    /// Empty again; the memory stays.
    pub(super) fn clear(&mut self) {
        self.length = 0;
    }

    fn grow_to(&mut self, length: usize) {
        let room = self.memory.as_ref().map_or(0, |memory| memory.len());
        if length <= room {
            return;
        }
        let room = length.max(2 * room).next_multiple_of(STEP_BYTES);
        let mut larger = MmapMut::map_anon(room).unwrap_or_else(|error| {
            // As when a `Vec` finds no memory.
            panic!("no memory for {room} bytes on their way to the disk: {error}")
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
        fn it_holds_what_a_vec_would_hold_and_begins_with_a_page(
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
