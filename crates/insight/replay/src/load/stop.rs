//! Lets another thread end a replay before the end of its trace.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// A switch that ends a replay. A stop wakes the tasks that wait for a due time or for a response. Clones share the
/// state.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    requested: AtomicBool,
    notify: Notify,
}

impl Stop {
    /// Requests the stop. Pending requests are abandoned, and the replay reports the results so far.
    pub fn request(&self) {
        self.0.requested.store(true, Ordering::SeqCst);
        self.0.notify.notify_waiters();
    }

    /// Returns true if the stop was requested.
    pub fn is_requested(&self) -> bool {
        self.0.requested.load(Ordering::Relaxed)
    }

    /// Returns the output of `work`, or `None` if the stop is requested first.
    pub(crate) async fn unless_requested<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut requested = pin!(self.0.notify.notified());
        // The wake-up is registered before the flag is checked. In the reverse order, a stop after the check and before
        // the registration would be missed.
        requested.as_mut().enable();
        if self.0.requested.load(Ordering::SeqCst) {
            return None;
        }
        tokio::select! {
            biased;
            output = work => Some(output),
            () = requested => None,
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
            assert_eq!(stop.unless_requested(async { 7 }).await, Some(7));
            let waiting = stop.unless_requested(std::future::pending::<()>());
            let (ended, ()) = tokio::join!(waiting, async { stop.clone().request() });
            assert_eq!(ended, None);
            assert_eq!(stop.unless_requested(async { 7 }).await, None);
        });
    }
}
