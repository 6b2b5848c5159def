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
pub(crate) struct Budget {
    left: usize,
}

/// One frame's worth, which takes 0.3 to 1 ms. Polling the sockets takes a hundredth of that.
pub(crate) const BUDGET_BYTES: usize = 256 << 10;

/// Recognising this many bytes takes as long as cutting, hashing, storing and encrypting one: 0.6 ms for a MiB.
const RECOGNISED_PER_BYTE: usize = 4;

/// The least cost of a step.
const STEP_BYTES: usize = 1 << 10;

impl Default for Budget {
    fn default() -> Self {
        Self { left: BUDGET_BYTES }
    }
}

impl Budget {
    /// Charges a step that processed this many bytes.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes.max(STEP_BYTES));
    }

    /// Like [`spend`](Self::spend), where `recognised` of the bytes were recognised by their fingerprints and cost
    /// less.
    pub(crate) fn spend_recognised(&mut self, bytes: usize, recognised: usize) {
        let recognised = recognised.min(bytes);
        self.spend(bytes - recognised + recognised / RECOGNISED_PER_BYTE);
    }

    /// Returns true if the budget is spent.
    pub(crate) fn is_spent(&self) -> bool {
        self.left == 0
    }

    /// If the budget is spent, starts a new one, yields and returns true.
    pub(crate) fn yield_if_spent(&mut self, cx: &mut Context<'_>) -> bool {
        let is_spent = self.is_spent();
        if is_spent {
            *self = Self::default();
            yield_now(cx);
        }
        is_spent
    }
}

/// Has the task polled again after the other tasks and after the sockets.
///
/// A task that wakes itself is queued before the sockets are polled. While the queue is not empty, the runtime
/// polls sockets only every 61 polls of tasks.
pub(crate) fn yield_now(cx: &mut Context<'_>) {
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
    fn a_budget_lasts_as_many_bytes_as_it_has() {
        let mut budget = Budget::default();
        budget.spend(BUDGET_BYTES - 1);
        assert!(!budget.is_spent());
        budget.spend(1);
        assert!(budget.is_spent());
        let mut budget = Budget::default();
        budget.spend_recognised(BUDGET_BYTES, BUDGET_BYTES);
        budget.spend_recognised(BUDGET_BYTES, 2 * BUDGET_BYTES);
        budget.spend_recognised(BUDGET_BYTES / 2 - 1, 0);
        assert!(!budget.is_spent());
        budget.spend_recognised(1, 0);
        assert!(budget.is_spent(), "what is recognised costs a quarter");
        let mut budget = Budget::default();
        let steps = std::iter::repeat_with(|| budget.spend(0)).take(BUDGET_BYTES / STEP_BYTES);
        steps.for_each(drop);
        assert!(budget.is_spent(), "steps that move nothing end as well");
    }

    /// A socket is polled before the next slice of a task that always has work, or the one after it.
    ///
    /// Method: a task that is always ready counts its polls. The test takes the median number of polls between a
    /// byte's write to a socket and its read by another task. On loopback the kernel delivers the byte at once.
    #[tokio::test]
    async fn sockets_are_polled_between_slices() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let mut near = TcpStream::connect(addr).await.expect("it listens");
        let (mut far, _) = listener.accept().await.expect("it connects");
        let slices = Rc::new(Cell::new(0_u32));
        let local = tokio::task::LocalSet::new();
        let counted = Rc::clone(&slices);
        local.spawn_local(std::future::poll_fn(move |cx| {
            counted.set(counted.get() + 1);
            yield_now(cx);
            Poll::<()>::Pending
        }));
        let waited = local.run_until(async move {
            let mut waited = Vec::new();
            for _ in 0..101 {
                let before = slices.get();
                near.write_all(b"?").await.expect("it is open");
                far.read_exact(&mut [0]).await.expect("it is open");
                waited.push(slices.get() - before);
            }
            waited.sort_unstable();
            waited
        });
        let waited = waited.await;
        assert!(waited[50] <= 3, "{waited:?}");
    }
}
