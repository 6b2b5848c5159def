//! The tunnels of a worker, as its sweep sees them: the time of the last byte of each. A tunnel copies bytes between a
//! client and the origin after both have switched to another protocol.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Waker};

use edgeward_types::Timestamp;

use crate::config::LimitsConfig;
use crate::rt::clock::Clock;

/// The tunnels of one worker that its sweep checks.
#[derive(Debug, Default)]
pub(crate) struct Tunnels(RefCell<Vec<Weak<Progress>>>);

impl Tunnels {
    pub(super) fn watch(&self, progress: &Rc<Progress>) {
        self.0.borrow_mut().push(Rc::downgrade(progress));
    }

    /// Ends the tunnels that are idle for too long.
    pub(super) fn sweep(&self, now: Timestamp, limits: &LimitsConfig) {
        self.0.borrow_mut().retain(|progress| {
            let progress = progress.upgrade();
            if let Some(progress) = &progress {
                progress.end_if_idle(now, limits);
            }
            progress.is_some()
        });
    }
}

/// The time of a tunnel's last byte.
#[derive(Debug)]
pub(super) struct Progress {
    clock: Arc<Clock>,
    last: Cell<Timestamp>,
    /// True if one peer has closed its direction.
    is_half_closed: Cell<bool>,
    is_idle: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

impl Progress {
    pub(super) fn new(clock: Arc<Clock>) -> Self {
        Self {
            last: Cell::new(clock.now()),
            clock,
            is_half_closed: Cell::new(false),
            is_idle: Cell::new(false),
            task: RefCell::default(),
        }
    }

    /// Returns true if the tunnel must end, because it was idle for too long.
    pub(super) fn is_idle(&self) -> bool {
        self.is_idle.get()
    }

    pub(super) fn set_half_closed(&self, is_half_closed: bool) {
        self.is_half_closed.set(is_half_closed);
    }

    /// Registers the task to wake when the tunnel must end.
    pub(super) fn register_task(&self, cx: &Context<'_>) {
        let mut task = self.task.borrow_mut();
        if !matches!(&*task, Some(task) if task.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
    }

    /// Records that bytes were forwarded.
    pub(super) fn record(&self) {
        self.last.set(self.clock.now());
    }

    fn end_if_idle(&self, now: Timestamp, limits: &LimitsConfig) {
        let mut timeout = limits.tunnel_idle_timeout;
        if self.is_half_closed.get() {
            // A peer that has closed has sent all; a protocol closes the other direction soon.
            timeout = timeout.min(limits.body_idle_timeout);
        }
        if !self.is_idle.get() && now.since(self.last.get()) > timeout {
            self.is_idle.set(true);
            if let Some(task) = self.task.take() {
                task.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rt::clock::Ticker;

    /// Both sides of the boundary, for an open tunnel and for one that a peer has half-closed.
    #[test]
    fn a_tunnel_is_idle_after_its_timeout_and_half_closed_after_that_of_bodies() {
        let limits = LimitsConfig::default();
        for (is_half_closed, timeout) in [
            (false, limits.tunnel_idle_timeout),
            (true, limits.body_idle_timeout),
        ] {
            let progress = Progress::new(Ticker::start().expect("the thread starts").clock());
            progress.is_half_closed.set(is_half_closed);
            let start = Timestamp::from_secs(1000);
            progress.last.set(start);
            let at = |millis: u64| Timestamp::from_millis(start.as_millis() + millis);
            let timeout = u64::try_from(timeout.as_millis()).expect("the timeout is short");
            progress.end_if_idle(at(timeout), &limits);
            assert!(!progress.is_idle.get());
            progress.end_if_idle(at(timeout + 1), &limits);
            assert!(progress.is_idle.get());
        }
    }
}
