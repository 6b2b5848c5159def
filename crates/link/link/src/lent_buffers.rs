//! Buffers for reading from sockets, lent to a connection while it has received bytes.
//!
//! A gateway has thousands of connections that are idle most of the time. A connection without received bytes returns
//! its buffers to its thread, which lends them to the next connection that can read.

use std::cell::RefCell;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Returns a buffer of this length. Its content is arbitrary.
pub(crate) fn lend(bytes: usize) -> Vec<u8> {
    let spare = SPARE.with_borrow_mut(|spare| {
        let at = spare.iter().position(|buffer| buffer.len() == bytes)?;
        Some(spare.swap_remove(at))
    });
    spare.unwrap_or_else(|| vec![0; bytes])
}

/// Takes a buffer back. Beyond a few buffers, its memory is released.
pub(crate) fn take_back(buffer: Vec<u8>) {
    SPARE.with_borrow_mut(|spare| {
        if !buffer.is_empty() && spare.len() < SPARE_MAX {
            spare.push(buffer);
        }
    });
}

/// The highest number of spare buffers of a thread: two of each length. Most connections return theirs before another
/// connection of the thread reads.
const SPARE_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// A returned buffer is lent again, to a caller that needs this length. The number of spare buffers is bounded.
    #[test]
    fn returned_buffers_are_lent_again() {
        let mut buffer = lend(10);
        buffer[0] = 7;
        take_back(buffer);
        assert_eq!(lend(11), [0; 11]);
        assert_eq!(lend(10)[0], 7);
        assert_eq!(lend(10)[0], 0, "the other one was not returned");
        (0..100).for_each(|_| take_back(vec![1; 10]));
        take_back(Vec::new());
        let lent = (0..100).filter(|_| lend(10)[0] == 1).count();
        assert_eq!(lent, SPARE_MAX);
    }
}
