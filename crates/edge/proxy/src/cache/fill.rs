//! Fills: responses under way from the origin, each shared by the requests for its key.
//!
//! One task, the pump, writes the origin's body into the fill. Each client has a [`FillReader`] with a position of
//! its own, so that a slow client does not delay others. If the memory tier may store the body, the [`BodyBuffer`] is
//! one buffer, which becomes the cached body without a further copy. Otherwise it is a list of the arrived pieces,
//! which readers and the disk share. After the end of the body, readers get slices of the body.
//!
//! If a body exceeds its length limit or the memory budget, the fill keeps only a window: the bytes that the slowest
//! reader has not read. The pump then waits for that reader.

mod body_buffer;
mod reader;
mod readers;
mod shared_copies;
#[cfg(test)]
mod tests;

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use edgeward_purge::Stamp;
use edgeward_semantics::negotiation::{self, Representation};
use edgeward_semantics::slices::SliceMismatch;
use edgeward_semantics::{NoVarySearch, StoredPolicy, VaryFields};
use edgeward_types::KeyHash;
use http::{HeaderMap, StatusCode};

use super::key_parts::key_under_rule;
use super::stored::Stored;
use crate::rt::budget::MemoryShare;
use crate::rt::panics::lock;
pub(crate) use body_buffer::{BodyBuffer, CompleteBody};
pub(crate) use reader::{FillEnd, FillReader};
use readers::Readers;
use shared_copies::SharedCopies;

/// The head of a fill's response, as followers get it.
#[derive(Debug)]
pub(crate) struct FillHead {
    pub(crate) status: StatusCode,
    /// The header fields of the response, without those that only the leader may get.
    pub(crate) headers: HeaderMap,
    /// The variant that the response is, if the responses of its target vary.
    pub(crate) variant: Option<FillVariant>,
    /// The target of the leader's request, and the rule of the response, if requests for other targets may have joined.
    pub(crate) coverage: Option<(Box<[u8]>, Option<NoVarySearch>)>,
    /// The length of the body, if it is known.
    pub(crate) length: Option<u64>,
    /// True if the response may answer followers. A response that is stale on arrival or has `no-cache` may be
    /// stored, but answers only the leader (RFC 9111 §4).
    pub(crate) shareable: bool,
    /// True if the origin has shown that it does not serve ranges of the response: it sent 200 to a request with a
    /// range, or `Accept-Ranges: none`.
    pub(crate) ignores_ranges: bool,
    /// True if a tier has admitted the response.
    pub(crate) stored: bool,
    /// The newest purge before the request was sent to the origin.
    pub(crate) stamp: Stamp,
    /// Present if the edge may encode the response.
    pub(crate) encodable: Option<Encodable>,
}

/// The values of an arriving response that its encodings need.
#[derive(Clone, Debug)]
pub(crate) struct Encodable {
    /// See [`StoredResponse::generation`](super::stored::StoredResponse::generation).
    pub(crate) generation: NonZeroU64,
    /// The key under which the response is stored if a tier has admitted it.
    pub(crate) key: Box<[u8]>,
    pub(crate) policy: StoredPolicy,
}

/// One of the responses of a target that vary.
#[derive(Debug)]
pub(crate) struct FillVariant {
    pub(crate) fields: VaryFields,
    /// The secondary key of the leader's request.
    pub(crate) secondary: Vec<u8>,
    /// `None` if the response answers only requests with the same secondary key.
    pub(crate) representation: Option<Representation>,
}

impl FillVariant {
    /// Returns true if the response answers a request with these fields.
    pub(crate) fn answers(&self, request: &HeaderMap) -> bool {
        let key = self.fields.key(request);
        let answers = |chosen| negotiation::answers(chosen, &self.secondary, &key);
        key == self.secondary || self.representation.is_some_and(answers)
    }
}

impl FillHead {
    /// Returns true if the response may answer requests for `target`, a target's own key.
    pub(crate) fn covers(&self, target: &[u8]) -> bool {
        let Some((own, rule)) = &self.coverage else {
            return true;
        };
        let is_equivalent = |rule| key_under_rule(own, rule, 0) == key_under_rule(target, rule, 0);
        **own == *target || rule.as_ref().is_some_and(is_equivalent)
    }
}

/// The result of a follower's wait for the head.
#[derive(Debug)]
pub(crate) enum FollowResult {
    /// The head arrived, and the body follows. The response may be a variant that does not match the follower.
    Head(Arc<FillHead>),
    /// A stored response answers the request: the origin validated it, or it may be served although it is stale.
    Stored(Arc<Stored>),
    /// The response is for the leader alone. The follower has to send a request of its own.
    Released,
    /// The leader's request failed before a head arrived.
    Failed(Failure),
}

/// The error of a shared request, for its followers. `detail` is the RFC 9209 error type for `Cache-Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) detail: &'static str,
    /// For the fetch of a slice: why the response was not the slice.
    pub(crate) mismatch: Option<SliceMismatch>,
}

/// The error of a body that ended early.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the origin's response ended early")]
pub(crate) struct BrokenFill;

/// The limits of a fill's followers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FollowLimits {
    /// The most readers at one time (`caching.collapse_followers_max`, and the leader).
    pub(crate) readers_max: usize,
    /// The time at which followers stop to wait for the head (`caching.collapse_wait_max`).
    pub(crate) head_deadline: Instant,
}

/// The reason why a request cannot join a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinError {
    /// The fill has as many readers as its limit allows.
    Full,
    /// The head has not arrived before the deadline.
    Overdue,
    /// The response is for the leader alone, the fetch has failed, or only a window of the body is kept.
    NotShared,
}

/// The shared state of one fetch: its head, its body and its readers.
#[derive(Debug)]
pub(crate) struct Fill {
    limits: FollowLimits,
    state: Mutex<State>,
    /// The fetch for which the followers wait after this fill has failed.
    retry: OnceLock<Retry>,
}

/// The fetch that follows a failed fetch, and the cache key for which it was started.
#[derive(Debug)]
pub(crate) struct Retry {
    pub(crate) key: Box<[u8]>,
    /// `None` if the fetch could not be shared.
    pub(crate) fill: Option<Arc<Fill>>,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    readers: Readers,
    /// Wakes the pump, which waits for space in the window, for a reader to catch up, or for readers to leave.
    pump: Option<Waker>,
    /// While the pump waits for a reader to catch up: the number of bytes that the reader may be behind.
    lag_max: Option<u64>,
}

#[derive(Debug)]
enum Stage {
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
struct Flow {
    head: Arc<FillHead>,
    buffer: BodyBuffer,
    copies: SharedCopies,
    /// True if only a window of the body is kept.
    is_window: bool,
    /// The share of the memory budget for the bytes. `None` after the complete body was taken.
    memory: Option<MemoryShare>,
    has_ended: bool,
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
    /// Returns a new fill and the reader of its leader.
    pub(crate) fn new(limits: FollowLimits) -> (Arc<Self>, FillReader) {
        let fill = Arc::new(Self {
            limits,
            state: Mutex::new(State {
                stage: Stage::Requested,
                readers: Readers::default(),
                pump: None,
                lag_max: None,
            }),
            retry: OnceLock::new(),
        });
        let reader = fill.add_reader(lock(&fill.state));
        (fill, reader)
    }

    /// Registers the pump's task, which is woken when a reader leaves.
    pub(crate) fn register_pump(&self, cx: &Context<'_>) {
        lock(&self.state).pump = Some(cx.waker().clone());
    }

    /// Returns the fetch that follows this failed fill. The first call starts it with `begin`.
    pub(crate) fn retry_or_start(&self, begin: impl FnOnce() -> Retry) -> &Retry {
        self.retry.get_or_init(begin)
    }

    /// Returns a reader, unless the fill can no longer be shared.
    pub(crate) fn join(self: &Arc<Self>) -> Result<FillReader, JoinError> {
        let state = lock(&self.state);
        match &state.stage {
            Stage::Flowing(flow) if !flow.head.shareable || flow.is_window => {
                return Err(JoinError::NotShared);
            }
            Stage::Complete { head, .. } if !head.shareable => return Err(JoinError::NotShared),
            Stage::Released | Stage::Failed(_) | Stage::Broken => return Err(JoinError::NotShared),
            Stage::Requested if Instant::now() >= self.limits.head_deadline => {
                return Err(JoinError::Overdue);
            }
            Stage::Flowing(_) | Stage::Complete { .. } | Stage::Requested | Stage::Stored(_) => {}
        }
        if state.readers.len() >= self.limits.readers_max {
            return Err(JoinError::Full);
        }
        Ok(self.add_reader(state))
    }

    /// Returns a reader for a request that waited for a failed fetch, even if this fill has ended or is not shareable.
    /// Returns `None` if only a window of the body is kept.
    pub(crate) fn join_retry(self: &Arc<Self>) -> Option<FillReader> {
        let state = lock(&self.state);
        let has_released = matches!(&state.stage, Stage::Flowing(flow) if flow.is_window);
        (!has_released).then(|| self.add_reader(state))
    }

    fn add_reader(self: &Arc<Self>, mut state: MutexGuard<'_, State>) -> FillReader {
        FillReader::new(Arc::clone(self), state.readers.add())
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
const WINDOW_BYTES: usize = 1 << 20;
