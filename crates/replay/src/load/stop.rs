//! Lets another thread end a replay before the end of its trace.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// A stop request. A replay checks the request at any time, and the request wakes waiting tasks. Clones share the
/// state.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    asked: AtomicBool,
    wake: Notify,
}

impl Stop {
    /// Requests the stop. Pending requests are abandoned, and the replay reports the results so far.
    pub fn ask(&self) {
        self.0.asked.store(true, Ordering::SeqCst);
        self.0.wake.notify_waiters();
    }

    /// Returns true if the stop was requested.
    pub fn is_asked(&self) -> bool {
        self.0.asked.load(Ordering::Relaxed)
    }

    /// Returns the output of `work`, or `None` if the stop is requested first.
    pub(super) async fn before<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut asked = pin!(self.0.wake.notified());
        // The wake-up is registered before the flag is checked, so that a stop between the two is not missed.
        asked.as_mut().enable();
        if self.0.asked.load(Ordering::SeqCst) {
            return None;
        }
        tokio::select! {
            biased;
            output = work => Some(output),
            () = asked => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_ends_waiting_work_and_prevents_later_work() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.expect("the runtime starts").block_on(async {
            let stop = Stop::default();
            assert_eq!(stop.before(async { 7 }).await, Some(7));
            let waiting = stop.before(std::future::pending::<()>());
            let (ended, ()) = tokio::join!(waiting, async { stop.clone().ask() });
            assert_eq!(ended, None);
            assert_eq!(stop.before(async { 7 }).await, None);
        });
    }
}
