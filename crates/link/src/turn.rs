//! A cooperative scheduling budget: how long a task works before it yields.
//!
//! All tasks of an endpoint share one thread, and an urgent request usually waits in a socket that was not polled
//! yet. A task with milliseconds of work, for example after a peer grants megabytes at once, does it in slices. The
//! runtime polls its sockets between two slices, so a request waits for one slice of each busy task, and not for
//! all their work.

use std::future::Future as _;
use std::pin::pin;
use std::task::Context;

/// The remaining budget, in bytes of bodies. A byte costs about the same time, whatever is done with it.
#[derive(Debug)]
pub(crate) struct Turn {
    left: usize,
}

/// One frame's worth, which takes 0.3 to 1 ms. Polling the sockets takes a hundredth of that.
pub(crate) const TURN_BYTES: usize = 256 << 10;

/// Recognising this many bytes takes as long as cutting, hashing, storing and encrypting one: 0.6 ms for a MiB.
const RECOGNISED_PER_BYTE: usize = 4;

/// The least cost of a step.
const STEP_BYTES: usize = 1 << 10;

impl Default for Turn {
    fn default() -> Self {
        Self { left: TURN_BYTES }
    }
}

impl Turn {
    /// Charges a step that processed this many bytes.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes.max(STEP_BYTES));
    }

    /// Like [`spend`](Self::spend), where `recognised` of the bytes were recognised by their fingerprints and cost
    /// less.
    pub(crate) fn spend_partly(&mut self, bytes: usize, recognised: usize) {
        let recognised = recognised.min(bytes);
        self.spend(bytes - recognised + recognised / RECOGNISED_PER_BYTE);
    }

    /// Returns true if the budget is spent.
    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// If the budget is spent, starts a new one, yields and returns true.
    pub(crate) fn ends(&mut self, cx: &mut Context<'_>) -> bool {
        let over = self.is_over();
        if over {
            *self = Self::default();
            step_aside(cx);
        }
        over
    }
}

/// Has the task polled again after the other tasks and after the sockets.
///
/// A task that wakes itself is queued before the sockets are polled. While the queue is not empty, the runtime
/// polls sockets only every 61 polls of tasks.
pub(crate) fn step_aside(cx: &mut Context<'_>) {
    // The first poll of `yield_now` registers the waker with the runtime; nothing else is needed.
    _ = pin!(tokio::task::yield_now()).poll(cx);
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::cell::Cell;
    use std::rc::Rc;
    use std::task::Poll;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    #[test]
    fn a_turn_is_as_long_as_its_bytes() {
        let mut turn = Turn::default();
        turn.spend(TURN_BYTES - 1);
        assert!(!turn.is_over());
        turn.spend(1);
        assert!(turn.is_over());
        let mut turn = Turn::default();
        turn.spend_partly(TURN_BYTES, TURN_BYTES);
        turn.spend_partly(TURN_BYTES, 2 * TURN_BYTES);
        turn.spend_partly(TURN_BYTES / 2 - 1, 0);
        assert!(!turn.is_over());
        turn.spend_partly(1, 0);
        assert!(turn.is_over(), "what is recognised costs a quarter");
        let mut turn = Turn::default();
        let steps = std::iter::repeat_with(|| turn.spend(0)).take(TURN_BYTES / STEP_BYTES);
        steps.for_each(drop);
        assert!(turn.is_over(), "steps that move nothing end as well");
    }

    /// A socket is polled before the next slice of a task that always has work, or the one after it.
    ///
    /// Method: a task that is always ready counts its polls. The test takes the median number of polls between a
    /// byte's write to a socket and its read by another task. On loopback the kernel delivers the byte at once.
    #[tokio::test]
    async fn sockets_are_looked_at_between_turns() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let mut near = TcpStream::connect(addr).await.expect("it listens");
        let (mut far, _) = listener.accept().await.expect("it connects");
        let turns = Rc::new(Cell::new(0_u32));
        let local = tokio::task::LocalSet::new();
        let counted = Rc::clone(&turns);
        local.spawn_local(std::future::poll_fn(move |cx| {
            counted.set(counted.get() + 1);
            step_aside(cx);
            Poll::<()>::Pending
        }));
        let waited = local.run_until(async move {
            let mut waited = Vec::new();
            for _ in 0..101 {
                let before = turns.get();
                near.write_all(b"?").await.expect("it is open");
                far.read_exact(&mut [0]).await.expect("it is open");
                waited.push(turns.get() - before);
            }
            waited.sort_unstable();
            waited
        });
        let waited = waited.await;
        assert!(waited[50] <= 3, "{waited:?}");
    }
}
