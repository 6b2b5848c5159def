//! The reader of a fill: joins it, waits for the head, then returns the bytes of the body, or of a range of it.

use std::cell::Cell;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use http::StatusCode;

use super::body_buffer::{Arrived, COPIED_BYTES_MAX};
use super::head::FillHead;
use super::readers::Readers;
use super::shared_fill::{Failure, Fill, Flow, FollowLimits, Stage, State};
use crate::cache::stored::{Hot, Stored};
use crate::exchange::pieces::PieceMemory;
use crate::rt::panics::lock;

/// One client's position in a fill.
#[derive(Debug)]
pub(crate) struct FillReader {
    fill: Arc<Fill>,
    id: usize,
    /// The end of the range that the client gets. No body is longer than the default.
    end: Cell<u64>,
    /// The bytes that the reader got since its task last let other tasks run.
    turn_bytes: Cell<usize>,
}

/// The end of a body that was arriving.
#[derive(Debug)]
pub(crate) enum FillEnd {
    /// The whole body.
    Body(Bytes),
    /// All bytes have arrived, in several pieces. The reader has them; the number is their length.
    Pieces(u64),
    /// The body ended early, or only a window of it is kept.
    Unavailable,
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

/// The error of a body that ended early.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the origin's response ended early")]
pub(crate) struct BrokenFill;

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
}

impl FillReader {
    pub(super) fn new(fill: Arc<Fill>, id: usize) -> Self {
        Self {
            fill,
            id,
            end: Cell::new(u64::MAX),
            turn_bytes: Cell::new(0),
        }
    }

    pub(crate) fn fill(&self) -> &Arc<Fill> {
        &self.fill
    }

    /// Moves the reader to a range of the body. A range must not begin before the reader's position, because the bytes
    /// before it may have been released.
    pub(crate) fn set_range(&self, range: Range<u64>) {
        self.end.set(range.end);
        let pump = self.move_to(&mut lock(&self.fill.state), range.start);
        wake(pump);
    }

    /// Moves the reader, and returns the pump if it waited for this.
    fn move_to(&self, state: &mut State, position: u64) -> Option<Waker> {
        let has_left_slowest = state.readers.set_position(self.id, position);
        let is_near = state.lag_max.is_some_and(|lag_max| match &state.stage {
            Stage::Flowing(flow) => flow.buffer.end_offset().saturating_sub(position) <= lag_max,
            _ => true,
        });
        let wakes_pump = has_left_slowest || is_near;
        wakes_pump.then(|| state.pump.take()).flatten()
    }

    /// Waits for the head, or for the end of a fill without one.
    pub(crate) fn poll_head(&self, cx: &Context<'_>) -> Poll<FollowResult> {
        let mut state = lock(&self.fill.state);
        Poll::Ready(match &state.stage {
            Stage::Requested => {
                state.readers.register(self.id, cx);
                return Poll::Pending;
            }
            Stage::Flowing(Flow { head, .. }) | Stage::Complete { head, .. } if head.shareable => {
                FollowResult::Head(Arc::clone(head))
            }
            Stage::Flowing(_) | Stage::Complete { .. } => FollowResult::Released,
            Stage::Stored(stored) => FollowResult::Stored(Arc::clone(stored)),
            Stage::Released => FollowResult::Released,
            Stage::Failed(failure) => FollowResult::Failed(*failure),
            Stage::Broken => FollowResult::Failed(Failure {
                status: StatusCode::BAD_GATEWAY,
                detail: "http_response_incomplete",
                mismatch: None,
            }),
        })
    }

    /// Returns the head, if it has arrived and the body is not broken. Unlike [`poll_head`](Self::poll_head), also
    /// returns a head that only the leader may use.
    pub(crate) fn head(&self) -> Option<Arc<FillHead>> {
        match &lock(&self.fill.state).stage {
            Stage::Flowing(Flow { head, .. }) | Stage::Complete { head, .. } => {
                Some(Arc::clone(head))
            }
            _ => None,
        }
    }

    /// Waits until all bytes have arrived. The reader stays at its position.
    pub(crate) fn poll_end(&self, cx: &Context<'_>) -> Poll<FillEnd> {
        let mut state = lock(&self.fill.state);
        Poll::Ready(match &state.stage {
            Stage::Complete { body, .. } => FillEnd::Body(body.clone()),
            Stage::Flowing(flow) if flow.is_window => FillEnd::Unavailable,
            Stage::Flowing(flow) if flow.has_ended => FillEnd::Pieces(flow.buffer.end_offset()),
            Stage::Flowing(_) => {
                state.readers.register(self.id, cx);
                return Poll::Pending;
            }
            _ => FillEnd::Unavailable,
        })
    }

    /// Returns the next bytes of the body with the owner of their memory, or `None` at the end. `hot` charges the
    /// memory of copies.
    pub(crate) fn poll_bytes(
        &self,
        hot: &Hot,
        cx: &Context<'_>,
    ) -> Poll<Option<Result<(Bytes, PieceMemory), BrokenFill>>> {
        let mut guard = lock(&self.fill.state);
        let state = &mut *guard;
        let position = state.readers.position(self.id);
        // The bytes are in memory, so their number fits usize.
        let left = usize::try_from(self.end.get().saturating_sub(position)).unwrap_or(usize::MAX);
        if left == 0 {
            return Poll::Ready(None);
        }
        let is_crowded = state.readers.len() >= CROWD_READERS;
        if is_crowded && self.turn_bytes.get() >= TURN_BYTES {
            self.turn_bytes.set(0);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let (bytes, memory) = match &mut state.stage {
            Stage::Complete { body, key, .. } => {
                let at = usize::try_from(position).map_or(body.len(), |at| at.min(body.len()));
                let most = if is_crowded { TURN_BYTES } else { usize::MAX };
                let length = (body.len() - at).min(left).min(most);
                let memory = PieceMemory::Cached {
                    key: *key,
                    body_bytes: body.len() as u64,
                };
                (body.slice(at..at + length), memory)
            }
            Stage::Flowing(flow) => match flow.read(position, left, state.readers.len(), hot) {
                Some(read) => read,
                None if flow.has_ended => return Poll::Ready(None),
                None => {
                    self.turn_bytes.set(0);
                    state.readers.register(self.id, cx);
                    return Poll::Pending;
                }
            },
            _ => return Poll::Ready(Some(Err(BrokenFill))),
        };
        if bytes.is_empty() {
            return Poll::Ready(None);
        }
        self.turn_bytes.set(self.turn_bytes.get() + bytes.len());
        let pump = self.move_to(state, position + bytes.len() as u64);
        drop(guard);
        wake(pump);
        Poll::Ready(Some(Ok((bytes, memory))))
    }
}

impl Flow {
    /// Returns up to `left` bytes at `position` with the owner of their memory, or `None` if no byte has arrived.
    fn read(
        &mut self,
        position: u64,
        left: usize,
        readers: usize,
        hot: &Hot,
    ) -> Option<(Bytes, PieceMemory)> {
        Some(match self.buffer.arrived_at(position) {
            Arrived::Buffered([]) => return None,
            // `memory` charges the piece once for all its readers.
            Arrived::Piece(piece) if readers > 1 => {
                (piece.slice(..piece.len().min(left)), PieceMemory::Uncounted)
            }
            Arrived::Piece(piece) => (piece.slice(..piece.len().min(left)), PieceMemory::Private),
            Arrived::Buffered(arrived) if readers > 1 => {
                let copy = self
                    .copies
                    .read(position, arrived, |bytes| hot.charge(bytes));
                (copy.slice(..copy.len().min(left)), PieceMemory::SharedCopy)
            }
            Arrived::Buffered(arrived) => {
                let length = arrived.len().min(left).min(COPIED_BYTES_MAX);
                (
                    Bytes::copy_from_slice(&arrived[..length]),
                    PieceMemory::Private,
                )
            }
        })
    }
}

impl Drop for FillReader {
    fn drop(&mut self) {
        let mut state = lock(&self.fill.state);
        let wakes_pump = state.readers.remove(self.id);
        let pump = wakes_pump.then(|| state.pump.take()).flatten();
        drop(state);
        wake(pump);
    }
}

fn wake(task: Option<Waker>) {
    if let Some(task) = task {
        task.wake();
    }
}

/// From this number of readers on, each reader gets at most [`TURN_BYTES`] before the tasks of other readers run.
/// Otherwise the first of ten thousand readers would get megabytes each before the last one gets its first byte.
pub(super) const CROWD_READERS: usize = 64;

/// Two writes of 64 KiB, the size that costs the least CPU time per byte for copies.
pub(super) const TURN_BYTES: usize = 128 << 10;
