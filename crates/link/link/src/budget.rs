//! A cooperative scheduling budget: how long a task works before it yields.
//!
//! Many tasks of an endpoint share a thread, and an urgent request usually waits in a socket that was not
//! polled yet. A task may have work for milliseconds, for example after a peer has granted megabytes of credit.
//! It then works in slices. The runtime polls its sockets between two slices, so a request waits only for one
//! slice of each busy task.

use std::future::Future as _;
use std::pin::pin;
use std::task::Context;

/// The remaining budget, in bytes of bodies. All operations on a body take about the same time per byte, except the
/// recognition of known chunks ([`spend_recognised`](Budget::spend_recognised)).
#[derive(Debug)]
pub(crate) struct Budget {
    remaining_bytes: usize,
}

/// The budget of one slice. It takes 0.3 to 1 ms; polling the sockets takes a hundredth of this time.
pub(crate) const BUDGET_BYTES: usize = 256 << 10;

/// A sender recognises a known chunk by its fingerprint. It recognises 4 bytes in the time that it takes to
/// cut, hash, store and encrypt one new byte. 1 MiB is recognised in 0.6 ms.
const RECOGNISED_PER_BYTE: usize = 4;

/// The lowest charge of a step, in bytes.
const STEP_BYTES: usize = 1 << 10;

impl Default for Budget {
    fn default() -> Self {
        Self {
            remaining_bytes: BUDGET_BYTES,
        }
    }
}

impl Budget {
    /// Returns half of the default budget, for each of two kinds of work of one task.
    pub(crate) fn half() -> Self {
        Self {
            remaining_bytes: BUDGET_BYTES / 2,
        }
    }

    /// Charges a step that processed this many bytes.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.remaining_bytes = self.remaining_bytes.saturating_sub(bytes.max(STEP_BYTES));
    }

    /// Charges a step that processed this many bytes. `recognised` bytes among them were recognised by their
    /// fingerprints, so they are charged less.
    pub(crate) fn spend_recognised(&mut self, bytes: usize, recognised: usize) {
        let recognised = recognised.min(bytes);
        self.spend(bytes - recognised + recognised / RECOGNISED_PER_BYTE);
    }

    /// Returns true if the budget is spent.
    pub(crate) fn is_spent(&self) -> bool {
        self.remaining_bytes == 0
    }

    #[cfg(test)]
    pub(crate) fn remaining_bytes(&self) -> usize {
        self.remaining_bytes
    }

    /// If the budget is spent, starts a new one, calls [`yield_now`] and returns true: the caller returns `Pending`.
    pub(crate) fn yield_if_spent(&mut self, cx: &mut Context<'_>) -> bool {
        let is_spent = self.is_spent();
        if is_spent {
            *self = Self::default();
            yield_now(cx);
        }
        is_spent
    }
}

/// Schedules the next poll of the current task after the other tasks and after the sockets. The caller returns
/// `Pending`.
///
/// A task that simply wakes itself would enter the queue before the sockets are polled. While the queue is not empty,
/// the runtime polls the sockets only after every 61 polls of tasks.
pub(crate) fn yield_now(cx: &mut Context<'_>) {
    // The first poll of `yield_now` registers the waker with the runtime. The future can then be dropped.
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
    fn a_budget_is_spent_after_its_number_of_bytes() {
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
        assert!(budget.is_spent(), "a recognised byte costs a quarter");
        let mut budget = Budget::default();
        let steps = std::iter::repeat_with(|| budget.spend(0)).take(BUDGET_BYTES / STEP_BYTES);
        steps.for_each(drop);
        assert!(
            budget.is_spent(),
            "steps without bytes spend the budget too"
        );
    }

    /// While one task always has work, a byte that arrives at a socket is usually read after at most three slices of
    /// this task.
    ///
    /// Method: let a task that is always ready count its polls, one per slice. Write a byte to a socket, read it in
    /// another task, and count the polls between write and read. Repeat this and take the median. On loopback, the
    /// kernel delivers the byte at once.
    #[tokio::test]
    async fn sockets_are_polled_between_slices() {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("the port can be bound");
        let addr = listener.local_addr().expect("the address is valid");
        let mut writer = TcpStream::connect(addr).await.expect("the port is open");
        let (mut reader, _) = listener.accept().await.expect("a client connects");
        let slices = Rc::new(Cell::new(0_u32));
        let local = tokio::task::LocalSet::new();
        let slice_counter = Rc::clone(&slices);
        local.spawn_local(std::future::poll_fn(move |cx| {
            slice_counter.set(slice_counter.get() + 1);
            yield_now(cx);
            Poll::<()>::Pending
        }));
        let waited = local.run_until(async move {
            let mut waited = Vec::new();
            for _ in 0..101 {
                let before = slices.get();
                writer.write_all(b"?").await.expect("the socket is open");
                reader
                    .read_exact(&mut [0])
                    .await
                    .expect("the socket is open");
                waited.push(slices.get() - before);
            }
            waited.sort_unstable();
            waited
        });
        let waited = waited.await;
        assert!(waited[50] <= 3, "{waited:?}");
    }
}
