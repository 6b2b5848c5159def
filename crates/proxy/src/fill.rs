//! A response on its way from the origin, shared by all who asked for it meanwhile.
//!
//! One task pumps the origin's body into a buffer; each client has a [`FillReader`] with a position
//! of its own and copies what has arrived since, so that a slow client holds nobody up and the
//! buffer, once full, becomes the cached body without another copy. A reader that comes to
//! its data after the end gets a slice of that body.
//!
//! A body of unknown length may outgrow the bound. Then the buffer becomes a window: the part that
//! everyone has read is let go, and the pump waits for the slowest, as it would for a lone client.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use edgeward_semantics::VaryFields;
use http::{HeaderMap, StatusCode};

use crate::stored::Stored;

/// What followers learn before the body.
#[derive(Debug)]
pub(crate) struct FillHead {
    pub(crate) status: StatusCode,
    /// As stored: without what only the first asker may see.
    pub(crate) headers: HeaderMap,
    /// The fields that select this response, and the leader's secondary key by them.
    pub(crate) variant: Option<(VaryFields, Vec<u8>)>,
    pub(crate) length: Option<u64>,
    /// Whether those who waited may be answered by it. One that is stale on arrival or says
    /// `no-cache` answers the leader alone (RFC 9111 §4), though it may be stored.
    pub(crate) shareable: bool,
    /// Whether it has a place in the cache, as far as is known by now.
    pub(crate) stored: bool,
}

/// How a follower's wait ended.
#[derive(Debug)]
pub(crate) enum Followed {
    /// A head that may be this follower's; the body flows.
    Head(Arc<FillHead>),
    /// What was stored before holds still, or may be served although it is stale.
    Found(Arc<Stored>),
    /// The response is for the leader alone: ask for your own.
    Released,
    /// The origin failed the leader before a head came.
    Failed(Failure),
}

/// What is left of an error for those who shared its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) detail: &'static str,
}

/// The body ended before its end.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the origin's response ended early")]
pub(crate) struct BrokenFill;

/// One fetch and all who share it.
#[derive(Debug)]
pub(crate) struct Fill {
    state: Mutex<State>,
    /// What it fetches was invalidated meanwhile: it must not be stored.
    doomed: AtomicBool,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    readers: Vec<Option<Reader>>,
    readers_open: usize,
    /// The pump, waiting for readers to make room or for the last of them to leave.
    pump: Option<Waker>,
}

#[derive(Debug)]
struct Reader {
    position: u64,
    waker: Option<Waker>,
}

#[derive(Debug)]
enum Stage {
    Asked,
    Flowing(Flow),
    Whole {
        head: Arc<FillHead>,
        body: Bytes,
        _memory: Option<FillMemory>,
    },
    Found(Arc<Stored>),
    Released,
    Failed(Failure),
    Broken,
}

#[derive(Debug)]
struct Flow {
    head: Arc<FillHead>,
    buffer: Vec<u8>,
    /// Offset in the body of the buffer's first byte: above zero only for a window.
    base: u64,
    window: bool,
    memory: FillMemory,
    ended: bool,
}

/// What the pump does after it has put bytes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// More is welcome.
    Go,
    /// The window is full: wait with [`Fill::poll_room`].
    Wait,
}

impl Fill {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                stage: Stage::Asked,
                readers: Vec::new(),
                readers_open: 0,
                pump: None,
            }),
            doomed: AtomicBool::new(false),
        })
    }

    /// Forbids storing it. Whoever already shares it may have it: they asked before.
    pub(crate) fn doom(&self) {
        self.doomed.store(true, Ordering::Release);
    }

    pub(crate) fn is_doomed(&self) -> bool {
        self.doomed.load(Ordering::Acquire)
    }

    /// Has the pump woken when a reader leaves.
    pub(crate) fn attend(&self, cx: &Context<'_>) {
        self.lock().pump = Some(cx.waker().clone());
    }

    /// One more who shares it, or nothing if it is past sharing.
    pub(crate) fn join(self: &Arc<Self>) -> Option<FillReader> {
        let mut state = self.lock();
        let joinable = match &state.stage {
            Stage::Flowing(flow) => flow.head.shareable && !flow.window,
            Stage::Whole { head, .. } => head.shareable,
            Stage::Asked | Stage::Found(_) => true,
            Stage::Released | Stage::Failed(_) | Stage::Broken => false,
        };
        if !joinable {
            return None;
        }
        let reader = Reader {
            position: 0,
            waker: None,
        };
        state.readers_open += 1;
        let id = match state.readers.iter().position(Option::is_none) {
            Some(free) => {
                state.readers[free] = Some(reader);
                free
            }
            None => {
                state.readers.push(Some(reader));
                state.readers.len() - 1
            }
        };
        Some(FillReader {
            fill: Arc::clone(self),
            id,
        })
    }

    pub(crate) fn has_readers(&self) -> bool {
        self.lock().readers_open > 0
    }

    /// The head is here and the body will follow into `buffer`.
    pub(crate) fn flow(&self, head: Arc<FillHead>, buffer: Vec<u8>, memory: FillMemory) {
        self.lock().stage = Stage::Flowing(Flow {
            head,
            buffer,
            base: 0,
            window: false,
            memory,
            ended: false,
        });
    }

    /// Puts bytes behind the others. `length_max` bounds the buffer of a body of unknown length.
    pub(crate) fn push(&self, bytes: &[u8], length_max: u64) -> Pace {
        let mut state = self.lock();
        let state = &mut *state;
        let Stage::Flowing(flow) = &mut state.stage else {
            return Pace::Go;
        };
        if !flow.window {
            let needed = (flow.buffer.len() + bytes.len()) as u64;
            if needed > length_max || !flow.memory.grow_to(needed) {
                flow.window = true;
            }
        }
        flow.buffer.extend_from_slice(bytes);
        if !flow.window {
            return Pace::Go;
        }
        let slowest = slowest(&state.readers);
        flow.let_go(slowest);
        if flow.buffer.len() >= WINDOW_BYTES {
            Pace::Wait
        } else {
            Pace::Go
        }
    }

    /// Whether the buffer has become a window: then it cannot be stored.
    pub(crate) fn is_window(&self) -> bool {
        matches!(&self.lock().stage, Stage::Flowing(flow) if flow.window)
    }

    /// Resolves when a full window has room again or nobody reads any more.
    pub(crate) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.readers_open == 0 {
            return Poll::Ready(());
        }
        let slowest = slowest(&state.readers);
        let Stage::Flowing(flow) = &mut state.stage else {
            return Poll::Ready(());
        };
        flow.let_go(slowest);
        if flow.buffer.len() < WINDOW_BYTES {
            return Poll::Ready(());
        }
        state.pump = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Wakes the readers to what was put in.
    pub(crate) fn announce(&self) {
        let wakers = self.lock().take_wakers();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Takes the buffer out to make it the body. Nothing for a window, which only ends.
    pub(crate) fn finish(&self) -> Option<Vec<u8>> {
        let mut state = self.lock();
        let Stage::Flowing(flow) = &mut state.stage else {
            return None;
        };
        if !flow.window {
            // Until `whole`, readers that look find nothing new and wait.
            return Some(std::mem::take(&mut flow.buffer));
        }
        flow.ended = true;
        let wakers = state.take_wakers();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        None
    }

    /// The buffer came back as a body. `in_cache`: its bytes are in the cache's books from now on.
    pub(crate) fn whole(&self, body: Bytes, in_cache: bool) {
        self.become_stage(|stage| match stage {
            Stage::Flowing(flow) => Stage::Whole {
                head: flow.head,
                body,
                _memory: (!in_cache).then_some(flow.memory),
            },
            other => other,
        });
    }

    pub(crate) fn found(&self, stored: Arc<Stored>) {
        self.become_stage(|_| Stage::Found(stored));
    }

    pub(crate) fn release(&self) {
        self.become_stage(|_| Stage::Released);
    }

    pub(crate) fn fail(&self, failure: Failure) {
        self.become_stage(|_| Stage::Failed(failure));
    }

    /// The body ended early: all who read it are told so.
    pub(crate) fn break_off(&self) {
        self.become_stage(|stage| match stage {
            Stage::Whole { .. } | Stage::Found(_) | Stage::Failed(_) | Stage::Released => stage,
            // A window whose end its readers have not reached yet.
            Stage::Flowing(ref flow) if flow.ended => stage,
            Stage::Asked | Stage::Flowing(_) | Stage::Broken => Stage::Broken,
        });
    }

    fn become_stage(&self, next: impl FnOnce(Stage) -> Stage) {
        let mut state = self.lock();
        let stage = std::mem::replace(&mut state.stage, Stage::Broken);
        state.stage = next(stage);
        let wakers = state.take_wakers();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code of ours panics with the lock held; should it, the state is still one of the stages.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take_wakers(&mut self) -> Vec<Waker> {
        self.readers
            .iter_mut()
            .flatten()
            .filter_map(|reader| reader.waker.take())
            .collect()
    }
}

/// How far the reader is who has read least.
fn slowest(readers: &[Option<Reader>]) -> Option<u64> {
    readers.iter().flatten().map(|r| r.position).min()
}

impl Flow {
    /// Drops what every reader has behind it, once that is worth moving the rest.
    fn let_go(&mut self, slowest: Option<u64>) {
        let end = self.base + self.buffer.len() as u64;
        let read = slowest.unwrap_or(end).saturating_sub(self.base);
        let read = usize::try_from(read)
            .unwrap_or(usize::MAX)
            .min(self.buffer.len());
        if read * 2 >= self.buffer.len() {
            self.buffer.drain(..read);
            self.base += read as u64;
        }
    }
}

/// One client's place in a fill.
#[derive(Debug)]
pub(crate) struct FillReader {
    fill: Arc<Fill>,
    id: usize,
}

impl FillReader {
    /// Waits for the head, or for the news that there will be none.
    pub(crate) fn poll_head(&self, cx: &Context<'_>) -> Poll<Followed> {
        let mut state = self.fill.lock();
        Poll::Ready(match &state.stage {
            Stage::Asked => {
                state.wait(self.id, cx);
                return Poll::Pending;
            }
            Stage::Flowing(Flow { head, .. }) | Stage::Whole { head, .. } if head.shareable => {
                Followed::Head(Arc::clone(head))
            }
            Stage::Flowing(_) | Stage::Whole { .. } => Followed::Released,
            Stage::Found(stored) => Followed::Found(Arc::clone(stored)),
            Stage::Released => Followed::Released,
            Stage::Failed(failure) => Followed::Failed(*failure),
            Stage::Broken => Followed::Failed(Failure {
                status: StatusCode::BAD_GATEWAY,
                detail: "http_response_incomplete",
            }),
        })
    }

    /// The next bytes of the body; `None` at its end.
    pub(crate) fn poll_bytes(&self, cx: &Context<'_>) -> Poll<Option<Result<Bytes, BrokenFill>>> {
        let mut state = self.fill.lock();
        let position = state.position(self.id);
        let (bytes, window) = match &state.stage {
            Stage::Whole { body, .. } => {
                let at = usize::try_from(position).map_or(body.len(), |at| at.min(body.len()));
                (body.slice(at..), false)
            }
            Stage::Flowing(flow) => {
                let from = usize::try_from(position - flow.base).unwrap_or(usize::MAX);
                let arrived = flow.buffer.get(from..).unwrap_or_default();
                if arrived.is_empty() && !flow.ended {
                    state.wait(self.id, cx);
                    return Poll::Pending;
                }
                let piece = &arrived[..arrived.len().min(PIECE_BYTES)];
                (Bytes::copy_from_slice(piece), flow.window)
            }
            _ => return Poll::Ready(Some(Err(BrokenFill))),
        };
        if bytes.is_empty() {
            return Poll::Ready(None);
        }
        state.advance(self.id, bytes.len() as u64);
        let pump = if window { state.pump.take() } else { None };
        drop(state);
        if let Some(pump) = pump {
            pump.wake();
        }
        Poll::Ready(Some(Ok(bytes)))
    }
}

impl State {
    fn position(&self, id: usize) -> u64 {
        self.readers[id]
            .as_ref()
            .map_or(0, |reader| reader.position)
    }

    fn advance(&mut self, id: usize, bytes: u64) {
        if let Some(reader) = &mut self.readers[id] {
            reader.position += bytes;
        }
    }

    fn wait(&mut self, id: usize, cx: &Context<'_>) {
        if let Some(reader) = &mut self.readers[id] {
            reader.waker = Some(cx.waker().clone());
        }
    }
}

impl Drop for FillReader {
    fn drop(&mut self) {
        let mut state = self.fill.lock();
        state.readers[self.id] = None;
        state.readers_open -= 1;
        let pump = state.pump.take();
        drop(state);
        if let Some(pump) = pump {
            pump.wake();
        }
    }
}

/// Memory that all fills together may use; see `limits.fill_bytes_max`.
#[derive(Debug)]
pub(crate) struct FillBudget {
    used: AtomicU64,
    max: u64,
}

impl FillBudget {
    pub(crate) fn new(max: u64) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicU64::new(0),
            max,
        })
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// For a body whose place in the cache is charged already: takes nothing, however it grows.
    pub(crate) fn charged_elsewhere(self: &Arc<Self>) -> FillMemory {
        FillMemory {
            budget: Arc::clone(self),
            share: Share::None,
        }
    }

    /// A share of so many bytes, if there is one.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64) -> Option<FillMemory> {
        let mut memory = FillMemory {
            budget: Arc::clone(self),
            share: Share::Bytes(0),
        };
        memory.grow_to(bytes).then_some(memory)
    }
}

/// A share of the budget, given back when dropped.
#[derive(Debug)]
pub(crate) struct FillMemory {
    budget: Arc<FillBudget>,
    share: Share,
}

#[derive(Clone, Copy, Debug)]
enum Share {
    None,
    Bytes(u64),
}

impl FillMemory {
    /// Makes the share at least so large. False, and no change, if the budget does not allow it.
    fn grow_to(&mut self, bytes: u64) -> bool {
        let Share::Bytes(held) = self.share else {
            return true;
        };
        let Some(more) = bytes.checked_sub(held).filter(|&more| more > 0) else {
            return true;
        };
        let max = self.budget.max;
        let grown = self
            .budget
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(more).filter(|&used| used <= max)
            });
        if grown.is_ok() {
            self.share = Share::Bytes(bytes);
        }
        grown.is_ok()
    }
}

impl Drop for FillMemory {
    fn drop(&mut self) {
        if let Share::Bytes(held) = self.share {
            self.budget.used.fetch_sub(held, Ordering::Relaxed);
        }
    }
}

/// What a reader copies at a time.
const PIECE_BYTES: usize = 64 << 10;

/// How far the pump runs ahead of the slowest reader of a body that cannot be kept.
const WINDOW_BYTES: usize = 1 << 20;
