//! The messages to a device's writer: bounded in bytes and in number. Callers never wait for space.
//!
//! A caller reserves bytes before it gathers them for a message. The writer releases them after it has handled the
//! message. The bound therefore also covers bytes that no queued message has yet.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::sync::{Condvar, Mutex};

/// A queue of messages from many senders to one receiver.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    messages: Mutex<State<T>>,
    filled: Condvar,
    /// Bytes that are reserved and not yet released.
    bytes: AtomicU64,
    bytes_max: u64,
    messages_max: usize,
}

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<T>,
    closed: bool,
}

/// The reason why a message was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotQueued {
    Full,
    Closed,
}

impl<T> Queue<T> {
    pub(crate) fn new(bytes_max: u64, messages_max: usize) -> Self {
        Self {
            messages: Mutex::new(State {
                waiting: VecDeque::new(),
                closed: false,
            }),
            filled: Condvar::default(),
            bytes: AtomicU64::new(0),
            bytes_max,
            messages_max,
        }
    }

    /// Counts bytes as queued. If the sum exceeds the bound, returns false and counts no bytes.
    pub(crate) fn reserve_bytes(&self, bytes: u64) -> bool {
        let before = self.bytes.fetch_add(bytes, Relaxed);
        // Exception: if no bytes are queued, a message may have any size, even above the bound.
        let fits = before == 0 || before + bytes <= self.bytes_max;
        if !fits {
            self.release_bytes(bytes);
        }
        fits
    }

    /// Counts bytes as written or dropped.
    pub(crate) fn release_bytes(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    /// Returns true if more than half of the byte bound is used.
    pub(crate) fn is_half_full(&self) -> bool {
        self.bytes() > self.bytes_max / 2
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub(crate) fn messages_max(&self) -> usize {
        self.messages_max
    }

    pub(crate) fn len(&self) -> usize {
        self.messages.lock().waiting.len()
    }

    /// Appends a message. Fails if the queue has `messages_max` messages or is closed.
    pub(crate) fn push(&self, message: T) -> Result<(), NotQueued> {
        self.push_within(message, self.messages_max)
    }

    /// Appends a message even if the queue is full. Use this function only for messages that are small and
    /// rare, and must not be lost.
    pub(crate) fn push_unbounded(&self, message: T) -> Result<(), NotQueued> {
        self.push_within(message, usize::MAX)
    }

    /// Inserts a message before all others, even if the queue is full. Use this function for a message that a
    /// client waits for, if the message may overtake earlier ones.
    pub(crate) fn push_first(&self, message: T) -> Result<(), NotQueued> {
        let mut state = self.messages.lock();
        if state.closed {
            return Err(NotQueued::Closed);
        }
        state.waiting.push_front(message);
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    /// Removes and returns the next message if `is_accepted` returns true for this message. Otherwise, or if
    /// the queue is empty, returns `None`. Does not wait.
    pub(crate) fn pop_if(&self, is_accepted: impl FnOnce(&T) -> bool) -> Option<T> {
        let mut state = self.messages.lock();
        let first = state.waiting.front()?;
        if !is_accepted(first) {
            return None;
        }
        state.waiting.pop_front()
    }

    fn push_within(&self, message: T, messages_max: usize) -> Result<(), NotQueued> {
        let mut state = self.messages.lock();
        if state.closed {
            return Err(NotQueued::Closed);
        }
        if state.waiting.len() >= messages_max {
            return Err(NotQueued::Full);
        }
        state.waiting.push_back(message);
        let was_empty = state.waiting.len() == 1;
        drop(state);
        if was_empty {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Removes and returns the next message, and waits for it if the queue is empty. Returns `None` after
    /// `timeout`, or if the queue is closed and empty.
    pub(crate) fn pop(&self, timeout: Duration) -> Option<T> {
        let mut state = self.messages.lock();
        if state.waiting.is_empty() && !state.closed && !timeout.is_zero() {
            let idle = |state: &mut State<T>| state.waiting.is_empty() && !state.closed;
            state = self.filled.wait_timeout_while(state, timeout, idle);
        }
        state.waiting.pop_front()
    }

    /// Refuses further messages. Messages in the queue can still be taken.
    pub(crate) fn close(&self) {
        self.messages.lock().closed = true;
        self.filled.notify_one();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.messages.lock().closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_in_order_and_refused_above_the_bound() {
        let queue = Queue::new(100, 2);
        assert_eq!(queue.push(1), Ok(()));
        assert_eq!(queue.push(2), Ok(()));
        assert_eq!(queue.push(3), Err(NotQueued::Full));
        assert_eq!(queue.push_unbounded(3), Ok(()));
        let popped: Vec<_> = std::iter::from_fn(|| queue.pop(Duration::ZERO)).collect();
        assert_eq!(popped, [1, 2, 3]);
    }

    #[test]
    fn bytes_are_reserved_up_to_the_bound_and_released() {
        let queue = Queue::<()>::new(100, 1);
        assert!(queue.reserve_bytes(60) && queue.reserve_bytes(40));
        assert!(!queue.reserve_bytes(1));
        queue.release_bytes(40);
        assert!(!queue.reserve_bytes(41) && queue.reserve_bytes(40));
        queue.release_bytes(100);
        assert!(queue.reserve_bytes(1000), "an empty queue accepts any size");
        assert!(!queue.reserve_bytes(1));
    }

    #[test]
    fn a_closed_queue_can_be_emptied_but_not_filled() {
        let queue = Queue::new(100, 10);
        assert_eq!(queue.push(1), Ok(()));
        queue.close();
        assert_eq!(queue.push(2), Err(NotQueued::Closed));
        assert_eq!(queue.pop(Duration::from_secs(60)), Some(1));
        assert_eq!(queue.pop(Duration::from_secs(60)), None, "at once");
    }

    #[test]
    fn a_message_wakes_the_waiting_receiver() {
        let queue = Queue::new(100, 10);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| queue.pop(Duration::from_secs(60)));
            assert_eq!(queue.push(7), Ok(()));
            assert_eq!(waiting.join().expect("no thread panics"), Some(7));
        });
    }
}
