//! How long a task works before others have their turn.
//!
//! All tasks of an end share one thread, and what is urgent usually lies in a socket that nobody has looked at yet. A task that has work for
//! milliseconds, as when a peer grants megabytes at once, does it in turns; between two of them the runtime looks at its sockets, so a question
//! waits for one turn of each task that is busy, and not for all that they have to do.

use std::future::Future as _;
use std::pin::pin;
use std::task::Context;

/// What is left of a turn, in bytes of bodies: they cost about the same whatever is done with them.
#[derive(Debug)]
pub(crate) struct Turn {
    left: usize,
}

/// A frame's worth, and a third to a whole millisecond: looking at the sockets takes a hundredth of that.
pub(crate) const TURN_BYTES: usize = 256 << 10;

/// So many bytes that are only recognised take as long as one that is cut, named, stored and encrypted: 0.6 ms a MiB.
const RECOGNISED_PER_BYTE: usize = 4;

/// What little costs, too.
const STEP_BYTES: usize = 1 << 10;

impl Default for Turn {
    fn default() -> Self {
        Self { left: TURN_BYTES }
    }
}

impl Turn {
    /// Something was done to so many bytes.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes.max(STEP_BYTES));
    }

    /// As [`spend`](Self::spend), and of those `recognised` were known by marks.
    pub(crate) fn spend_partly(&mut self, bytes: usize, recognised: usize) {
        let recognised = recognised.min(bytes);
        self.spend(bytes - recognised + recognised / RECOGNISED_PER_BYTE);
    }

    /// Whether the next step is for the next turn.
    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Begins the next turn when others had theirs; whether that is now due.
    pub(crate) fn ends(&mut self, cx: &mut Context<'_>) -> bool {
        let over = self.is_over();
        if over {
            *self = Self::default();
            step_aside(cx);
        }
        over
    }
}

/// Has the task polled again after the others, and after the sockets were looked at.
///
/// A task that only wakes itself is next in a row that is never empty, and for as long as there is one the runtime looks at sockets every 61
/// polls.
pub(crate) fn step_aside(cx: &mut Context<'_>) {
    // Its first poll leaves our waker with the runtime, and is all there is to it.
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

    /// Beside a task that always has work a socket is looked at before its next turn, or the one after it.
    ///
    /// Method: a task that never has nothing to do counts its turns; of the turns between a byte that is written to a socket and the task that
    /// reads it the median over many bytes counts. The kernel hands the byte over at once on loopback.
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
