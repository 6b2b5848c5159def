//! The shared state of one fetch, which the pump changes.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use edgeward_semantics::slices::SliceMismatch;
use edgeward_types::KeyHash;
use http::StatusCode;

use super::body_buffer::{BodyBuffer, CompleteBody};
use super::head::FillHead;
use super::readers::Readers;
use super::shared_copies::SharedCopies;
use crate::cache::stored::Stored;
use crate::rt::budget::MemoryShare;
use crate::rt::panics::lock;

/// The limits of a fill's followers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FollowLimits {
    /// The most readers at one time (`caching.collapse_followers_max`, and the leader).
    pub(crate) readers_max: usize,
    /// The time at which followers stop to wait for the head (`caching.collapse_wait_max`).
    pub(crate) head_deadline: Instant,
}

/// The error of a shared request, for its followers. `detail` is the RFC 9209 error type for `Cache-Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) detail: &'static str,
    /// For the fetch of a slice: why the response was not the slice.
    pub(crate) mismatch: Option<SliceMismatch>,
}

/// The shared state of one fetch: its head, its body and its readers.
#[derive(Debug)]
pub(crate) struct Fill {
    pub(super) limits: FollowLimits,
    pub(super) state: Mutex<State>,
    /// The fetch for which the followers wait after this fill has failed.
    pub(super) retry: OnceLock<Retry>,
}

/// The fetch that follows a failed fetch, and the cache key for which it was started.
#[derive(Debug)]
pub(crate) struct Retry {
    pub(crate) key: Box<[u8]>,
    /// `None` if the fetch could not be shared.
    pub(crate) fill: Option<Arc<Fill>>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) stage: Stage,
    pub(super) readers: Readers,
    /// Wakes the pump, which waits for space in the window, for a reader to catch up, or for readers to leave.
    pub(super) pump: Option<Waker>,
    /// While the pump waits for a reader to catch up: the number of bytes that the reader may be behind.
    pub(super) lag_max: Option<u64>,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// The head has not arrived.
    Requested,
    Flowing(Flow),
    Complete {
        head: Arc<FillHead>,
        body: Bytes,
        /// The key of the response in memory, if it was stored there.
        key: KeyHash,
    },
    Stored(Arc<Stored>),
    Released,
    Failed(Failure),
    /// The body ended early, or the leader was dropped.
    Broken,
}

#[derive(Debug)]
pub(super) struct Flow {
    pub(super) head: Arc<FillHead>,
    pub(super) buffer: BodyBuffer,
    pub(super) copies: SharedCopies,
    /// True if only a window of the body is kept.
    pub(super) is_window: bool,
    /// The share of the memory budget for the bytes. `None` after the complete body was taken.
    pub(super) memory: Option<MemoryShare>,
    pub(super) has_ended: bool,
}

/// The pump's next action after a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushResult {
    /// Push the next bytes.
    Continue,
    /// Wait with [`Fill::poll_window_space`], because the window is full.
    WindowFull,
}

impl Fill {
    /// Registers the pump's task, which is woken when a reader leaves.
    pub(crate) fn register_pump(&self, cx: &Context<'_>) {
        lock(&self.state).pump = Some(cx.waker().clone());
    }

    /// Returns the fetch that follows this failed fill. The first call starts it with `begin`.
    pub(crate) fn retry_or_start(&self, begin: impl FnOnce() -> Retry) -> &Retry {
        self.retry.get_or_init(begin)
    }

    /// Returns the time until which followers wait for the head.
    pub(crate) fn head_deadline(&self) -> Instant {
        self.limits.head_deadline
    }

    /// Returns the number of bytes of the body that have arrived, or `u64::MAX` after the end of the fetch.
    pub(crate) fn arrived_bytes(&self) -> u64 {
        match &lock(&self.state).stage {
            Stage::Requested => 0,
            Stage::Flowing(flow) => flow.buffer.end_offset(),
            _ => u64::MAX,
        }
    }

    pub(crate) fn has_readers(&self) -> bool {
        !lock(&self.state).readers.is_empty()
    }

    /// Returns true if the head of the response has arrived, or the fetch has ended.
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(lock(&self.state).stage, Stage::Requested)
    }

    /// Returns true if requests beside the leader wait for the response.
    pub(crate) fn has_followers(&self) -> bool {
        lock(&self.state).readers.len() > 1
    }

    /// Publishes the head. Later calls of `push` append the body to the buffer.
    pub(crate) fn publish(&self, head: Arc<FillHead>, buffer: BodyBuffer, memory: MemoryShare) {
        lock(&self.state).stage = Stage::Flowing(Flow {
            head,
            buffer,
            copies: SharedCopies::default(),
            is_window: false,
            memory: Some(memory),
            has_ended: false,
        });
    }

    /// Appends bytes. A body that exceeds `length_max` or the memory budget becomes a window.
    pub(crate) fn push(&self, bytes: &Bytes, length_max: u64) -> PushResult {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let Stage::Flowing(flow) = &mut state.stage else {
            return PushResult::Continue;
        };
        if !flow.is_window {
            let needed = (flow.buffer.len() + bytes.len()) as u64;
            let grows = |memory: &mut MemoryShare| memory.grow_to(needed);
            if needed > length_max || !flow.memory.as_mut().is_some_and(grows) {
                flow.is_window = true;
            }
        }
        flow.buffer.push(bytes);
        if !flow.is_window {
            return PushResult::Continue;
        }
        flow.buffer.release_before(state.readers.slowest());
        if flow.buffer.len() >= WINDOW_BYTES {
            PushResult::WindowFull
        } else {
            PushResult::Continue
        }
    }

    /// Returns true if only a window of the body is kept, so that memory cannot store the body.
    pub(crate) fn is_window(&self) -> bool {
        matches!(&lock(&self.state).stage, Stage::Flowing(flow) if flow.is_window)
    }

    /// Resolves when the window has space, or when no reader remains.
    pub(crate) fn poll_window_space(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let Some(slowest) = state.readers.slowest() else {
            return Poll::Ready(());
        };
        let Stage::Flowing(flow) = &mut state.stage else {
            return Poll::Ready(());
        };
        flow.buffer.release_before(Some(slowest));
        if flow.buffer.len() < WINDOW_BYTES {
            return Poll::Ready(());
        }
        state.readers.await_slowest();
        state.pump = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Resolves when a reader is at most `lag_max` bytes behind the pump, or when the body has ended.
    pub(crate) fn poll_reader_near(&self, cx: &Context<'_>, lag_max: u64) -> Poll<()> {
        let mut state = lock(&self.state);
        state.lag_max = (state.bytes_ahead() > Some(lag_max)).then_some(lag_max);
        if state.lag_max.is_none() {
            return Poll::Ready(());
        }
        state.pump = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Wakes the readers.
    pub(crate) fn announce(&self) {
        wake_readers(lock(&self.state));
    }

    /// Ends the body. Returns the body in one piece with its memory share. Returns `None` if only a window was kept, or
    /// if the body has several large pieces.
    pub(crate) fn finish(&self) -> Option<(CompleteBody, MemoryShare)> {
        let mut state = lock(&self.state);
        let Stage::Flowing(flow) = &mut state.stage else {
            return None;
        };
        if !flow.is_window
            && let Some(body) = flow.buffer.take_complete()
            && let Some(memory) = flow.memory.take()
        {
            // Readers wait until `publish_body` is called, because they find no further bytes until then.
            return Some((body, memory));
        }
        flow.has_ended = true;
        wake_readers(state);
        None
    }

    /// Gives the complete body to the readers. `key` is the key of the response in memory, if it was stored there.
    pub(crate) fn publish_body(&self, body: Bytes, key: KeyHash) {
        self.set_stage(|stage| match stage {
            Stage::Flowing(flow) => Stage::Complete {
                head: flow.head,
                body,
                key,
            },
            other => other,
        });
    }

    pub(crate) fn finish_with_stored(&self, stored: Arc<Stored>) {
        self.set_stage(|_| Stage::Stored(stored));
    }

    pub(crate) fn release(&self) {
        self.set_stage(|_| Stage::Released);
    }

    pub(crate) fn fail(&self, failure: Failure) {
        self.set_stage(|_| Stage::Failed(failure));
    }

    /// Ends the fill early. Its readers get an error.
    pub(crate) fn abort(&self) {
        self.set_stage(|stage| match stage {
            Stage::Complete { .. } | Stage::Stored(_) | Stage::Failed(_) | Stage::Released => stage,
            // The body is complete, and readers may still read its last bytes.
            Stage::Flowing(ref flow) if flow.has_ended => stage,
            Stage::Requested | Stage::Flowing(_) | Stage::Broken => Stage::Broken,
        });
    }

    fn set_stage(&self, next: impl FnOnce(Stage) -> Stage) {
        let mut state = lock(&self.state);
        let stage = std::mem::replace(&mut state.stage, Stage::Broken);
        state.stage = next(stage);
        wake_readers(state);
    }
}

impl State {
    /// Returns how many bytes the pump is ahead of the fastest reader. `None` if no body is arriving.
    fn bytes_ahead(&self) -> Option<u64> {
        let Stage::Flowing(flow) = &self.stage else {
            return None;
        };
        let fastest = self.readers.fastest().unwrap_or(0);
        Some(flow.buffer.end_offset().saturating_sub(fastest))
    }
}

/// Unlocks the state, then wakes the readers.
fn wake_readers(mut state: MutexGuard<'_, State>) {
    let wakers = state.readers.take_wakers();
    drop(state);
    wakers.into_iter().for_each(Waker::wake);
}

/// The number of bytes that the pump may be ahead of the slowest reader of a window.
pub(super) const WINDOW_BYTES: usize = 1 << 20;
