//! Fetches that go on although their clients have left. They give way to requests that wait for a connection.

use std::cell::RefCell;
use std::collections::VecDeque;

use tokio::task::JoinHandle;

use crate::base::counters::Counters;

/// The fetches of a worker that run in tasks of their own, oldest first.
#[derive(Default)]
pub(crate) struct Orphans(RefCell<VecDeque<Orphan>>);

struct Orphan {
    task: JoinHandle<()>,
    is_wanted: Box<dyn Fn() -> bool>,
}

impl Orphans {
    /// Lists a fetch, which `task` drives. `is_wanted` tells whether a client waits for it.
    pub(crate) fn push(&self, task: JoinHandle<()>, is_wanted: impl Fn() -> bool + 'static) {
        let mut fetches = self.0.borrow_mut();
        while fetches
            .front()
            .is_some_and(|first| first.task.is_finished())
        {
            fetches.pop_front();
        }
        fetches.push_back(Orphan {
            task,
            is_wanted: Box::new(is_wanted),
        });
    }

    /// Cancels the oldest fetch that no client waits for, if there is one. Its connection is closed.
    pub(super) fn cancel_oldest(&self, counters: &Counters) {
        let mut fetches = self.0.borrow_mut();
        fetches.retain(|fetch| !fetch.task.is_finished());
        let oldest = fetches.iter().position(|fetch| !(fetch.is_wanted)());
        if let Some(fetch) = oldest.and_then(|at| fetches.remove(at)) {
            fetch.task.abort();
            counters.fetches_cancelled.increment();
        }
    }
}
