//! The time of the frames that keep a connection open while its client waits for a response.

use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// Resolves at intervals while armed. A connection without a request needs no frames, and its task sleeps.
pub(super) struct KeepAlive {
    interval: Interval,
    is_armed: bool,
}

impl KeepAlive {
    /// The time between two frames depends on the idle timeout of the edge: the timeout of the transport is the lower
    /// one of both endpoints, and that of a client is unknown here.
    pub(super) fn new(idle_timeout: Duration) -> Self {
        let period = period(idle_timeout);
        let mut interval = interval_at(Instant::now() + period, period);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            interval,
            is_armed: false,
        }
    }

    /// Begins an interval, unless one has begun. Call this function when a request begins.
    pub(super) fn arm(&mut self) {
        if !std::mem::replace(&mut self.is_armed, true) {
            self.interval.reset();
        }
    }

    /// Begins no further interval. Call this function after one has ended, if no request is under way.
    pub(super) fn disarm(&mut self) {
        self.is_armed = false;
    }

    /// Resolves at the end of the interval, after which the next one begins.
    pub(super) async fn due(&mut self) {
        match self.is_armed {
            true => _ = self.interval.tick().await,
            false => std::future::pending().await,
        }
    }
}

fn period(idle_timeout: Duration) -> Duration {
    (idle_timeout / 3).clamp(PERIOD_MIN, PERIOD_MAX)
}

/// A third of the timeout of browsers and of most libraries, 30 s.
const PERIOD_MAX: Duration = Duration::from_secs(10);
const PERIOD_MIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};

    use super::*;

    #[test]
    fn connections_with_requests_are_kept_open_for_clients_with_a_usual_timeout() {
        for (idle_timeout_ms, period_ms) in [(1, 100), (600, 200), (75_000, 10_000)] {
            let period = period(Duration::from_millis(idle_timeout_ms));
            assert_eq!(period, Duration::from_millis(period_ms));
        }
    }

    struct Unused;

    impl Wake for Unused {
        fn wake(self: Arc<Self>) {}
    }

    /// Returns true if a timer will wake the task.
    fn has_timer(keep_alive: &mut KeepAlive) -> bool {
        let task = Arc::new(Unused);
        let waker: Waker = Arc::clone(&task).into();
        let mut due = pin!(keep_alive.due());
        let polled = due.as_mut().poll(&mut Context::from_waker(&waker));
        assert_eq!(polled, Poll::Pending);
        drop(waker);
        Arc::strong_count(&task) > 1
    }

    /// Method: a timer that will wake a task keeps the waker of the task.
    #[test]
    fn a_connection_without_requests_has_no_timer() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.expect("the runtime can be built").block_on(async {
            let mut keep_alive = KeepAlive::new(PERIOD_MAX * 3);
            assert!(!has_timer(&mut keep_alive));
            keep_alive.arm();
            assert!(has_timer(&mut keep_alive));
            keep_alive.disarm();
            assert!(!has_timer(&mut keep_alive));
            keep_alive.arm();
            assert!(has_timer(&mut keep_alive));
        });
    }
}
