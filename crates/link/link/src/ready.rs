//! Wakes the task of a peer, and records for which streams it was woken.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use crate::core::DuplexId;

/// The streams of a peer whose users can continue, and the waker of the peer's task.
#[derive(Debug, Default)]
pub(crate) struct Ready(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Each stream is listed once, see [`StreamWaker`].
    streams: Vec<DuplexId>,
    task: Option<Waker>,
}

impl Ready {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the waker of the peer's task, and returns the listed streams.
    pub(crate) fn take(&self, task: &Waker) -> Vec<DuplexId> {
        let mut state = self.state();
        match &mut state.task {
            Some(waker) => waker.clone_from(task),
            None => state.task = Some(task.clone()),
        }
        std::mem::take(&mut state.streams)
    }

    fn wake_for(&self, stream: DuplexId) {
        let mut state = self.state();
        state.streams.push(stream);
        let task = state.task.take();
        drop(state);
        task.into_iter().for_each(Waker::wake);
    }
}

/// Wakes the task of a peer for one stream.
#[derive(Debug)]
pub(crate) struct StreamWaker {
    stream: DuplexId,
    ready: Arc<Ready>,
    /// True while the stream is listed.
    is_listed: AtomicBool,
}

impl StreamWaker {
    pub(crate) fn new(stream: DuplexId, ready: &Arc<Ready>) -> Arc<Self> {
        Arc::new(Self {
            stream,
            ready: Arc::clone(ready),
            is_listed: AtomicBool::new(false),
        })
    }

    /// Must be called after the stream was taken from the list, and before its user continues.
    pub(crate) fn unlist(&self) {
        self.is_listed.store(false, Ordering::Release);
    }
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_listed.swap(true, Ordering::AcqRel) {
            self.ready.wake_for(self.stream);
        }
    }
}
