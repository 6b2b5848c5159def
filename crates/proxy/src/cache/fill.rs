//! A response on its way from the origin, shared by all who asked for it meanwhile.
//!
//! One task pumps the origin's body in; each client has a [`FillReader`] with a position of its own, so that a slow
//! client holds nobody up. What is in is [`Held`]: in one buffer if memory may keep it, which then becomes the cached
//! body without another copy, else as the pieces that came, which readers and the disk share. A reader that
//! comes to its data after the end gets a slice of the body.
//!
//! A body that outgrows its bound is held as a window: the pump waits for the slowest reader.

mod held;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use edgeward_semantics::VaryFields;
use edgeward_types::KeyHash;
use http::{HeaderMap, StatusCode};

use crate::base::budget::MemoryShare;
use crate::cache::stored::Stored;
use crate::exchange::pieces::PieceMemory;
pub(crate) use held::{Held, Whole};

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
    /// Once it has failed: what the requests that waited for it wait for next.
    retry: OnceLock<Retry>,
}

/// The fetch that follows a failed one.
#[derive(Debug)]
pub(crate) struct Retry {
    pub(crate) key: Box<[u8]>,
    /// Nothing if it could not be shared.
    pub(crate) fill: Option<Arc<Fill>>,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    readers: Vec<Option<Reader>>,
    readers_open: usize,
    /// The pump, waiting for readers to make room or for the last of them to leave.
    pump: Option<Waker>,
    /// The pump waits until a reader is at most so many bytes behind.
    near: Option<u64>,
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
        /// Where the cache has it, or had.
        key: KeyHash,
    },
    Found(Arc<Stored>),
    Released,
    Failed(Failure),
    Broken,
}

#[derive(Debug)]
struct Flow {
    head: Arc<FillHead>,
    held: Held,
    window: bool,
    /// Until the body is taken out.
    memory: Option<MemoryShare>,
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
                near: None,
            }),
            retry: OnceLock::new(),
        })
    }

    /// Has the pump woken when a reader leaves.
    pub(crate) fn attend(&self, cx: &Context<'_>) {
        self.lock().pump = Some(cx.waker().clone());
    }

    /// What follows this fill, which has failed. `begin` is called once.
    pub(crate) fn retry_or(&self, begin: impl FnOnce() -> Retry) -> &Retry {
        self.retry.get_or_init(begin)
    }

    /// One more who shares it, or nothing if it is past sharing.
    pub(crate) fn join(self: &Arc<Self>) -> Option<FillReader> {
        let state = self.lock();
        let joinable = match &state.stage {
            Stage::Flowing(flow) => flow.head.shareable && !flow.window,
            Stage::Whole { head, .. } => head.shareable,
            Stage::Asked | Stage::Found(_) => true,
            Stage::Released | Stage::Failed(_) | Stage::Broken => false,
        };
        joinable.then(|| self.add_reader(state))
    }

    /// Returns a reader for a request that has waited for this fill since before it began.
    pub(crate) fn join_late(self: &Arc<Self>) -> Option<FillReader> {
        let state = self.lock();
        let has_let_go = matches!(&state.stage, Stage::Flowing(flow) if flow.window);
        (!has_let_go).then(|| self.add_reader(state))
    }

    fn add_reader(self: &Arc<Self>, mut state: MutexGuard<'_, State>) -> FillReader {
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
        FillReader {
            fill: Arc::clone(self),
            id,
        }
    }

    pub(crate) fn has_readers(&self) -> bool {
        self.lock().readers_open > 0
    }

    /// The head is here and the body will follow into `held`.
    pub(crate) fn flow(&self, head: Arc<FillHead>, held: Held, memory: MemoryShare) {
        self.lock().stage = Stage::Flowing(Flow {
            head,
            held,
            window: false,
            memory: Some(memory),
            ended: false,
        });
    }

    /// Puts bytes behind the others. `length_max` bounds what is held of a body that is no window yet.
    pub(crate) fn push(&self, bytes: &Bytes, length_max: u64) -> Pace {
        let mut state = self.lock();
        let state = &mut *state;
        let Stage::Flowing(flow) = &mut state.stage else {
            return Pace::Go;
        };
        if !flow.window {
            let needed = (flow.held.len() + bytes.len()) as u64;
            let grows = |memory: &mut MemoryShare| memory.grow_to(needed);
            if needed > length_max || !flow.memory.as_mut().is_some_and(grows) {
                flow.window = true;
            }
        }
        flow.held.push(bytes);
        if !flow.window {
            return Pace::Go;
        }
        let slowest = slowest(&state.readers);
        flow.held.let_go(slowest);
        if flow.held.len() >= WINDOW_BYTES {
            Pace::Wait
        } else {
            Pace::Go
        }
    }

    /// Whether only a window is held: then memory cannot keep it.
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
        flow.held.let_go(slowest);
        if flow.held.len() < WINDOW_BYTES {
            return Poll::Ready(());
        }
        state.pump = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Resolves when a reader is at most `near` bytes behind, or the body no longer flows.
    pub(crate) fn poll_near(&self, cx: &Context<'_>, near: u64) -> Poll<()> {
        let mut state = self.lock();
        state.near = (state.lead() > Some(near)).then_some(near);
        if state.near.is_none() {
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

    /// Takes the body out in one piece, and its memory's charge. Nothing of a window and of many pieces, which only end.
    pub(crate) fn finish(&self) -> Option<(Whole, MemoryShare)> {
        let mut state = self.lock();
        let Stage::Flowing(flow) = &mut state.stage else {
            return None;
        };
        if !flow.window
            && let Some(body) = flow.held.take_whole()
            && let Some(memory) = flow.memory.take()
        {
            // Until `whole`, readers that look find nothing new and wait.
            return Some((body, memory));
        }
        flow.ended = true;
        let wakers = state.take_wakers();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        None
    }

    /// What was taken out came back as a body. `key`: where the cache has it, if it has.
    pub(crate) fn whole(&self, body: Bytes, key: KeyHash) {
        self.become_stage(|stage| match stage {
            Stage::Flowing(flow) => Stage::Whole {
                head: flow.head,
                body,
                key,
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
    /// The number of bytes that the fastest reader has not taken, while the body flows.
    fn lead(&self) -> Option<u64> {
        let Stage::Flowing(flow) = &self.stage else {
            return None;
        };
        let readers = self.readers.iter().flatten();
        let fastest = readers.map(|reader| reader.position).max().unwrap_or(0);
        Some(flow.held.end().saturating_sub(fastest))
    }

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

/// One client's place in a fill.
#[derive(Debug)]
pub(crate) struct FillReader {
    fill: Arc<Fill>,
    id: usize,
}

impl FillReader {
    pub(crate) fn fill(&self) -> &Arc<Fill> {
        &self.fill
    }

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

    /// The next bytes of the body, and whose memory they are; `None` at its end.
    pub(crate) fn poll_bytes(
        &self,
        cx: &Context<'_>,
    ) -> Poll<Option<Result<(Bytes, PieceMemory), BrokenFill>>> {
        let mut state = self.fill.lock();
        let position = state.position(self.id);
        let (bytes, memory, window) = match &state.stage {
            Stage::Whole { body, key, .. } => {
                let at = usize::try_from(position).map_or(body.len(), |at| at.min(body.len()));
                let memory = PieceMemory::Cached {
                    key: *key,
                    body_bytes: body.len() as u64,
                };
                (body.slice(at..), memory, false)
            }
            Stage::Flowing(flow) => {
                let arrived = flow.held.from(position);
                if arrived.is_empty() && !flow.ended {
                    state.wait(self.id, cx);
                    return Poll::Pending;
                }
                (arrived, PieceMemory::Private, flow.window)
            }
            _ => return Poll::Ready(Some(Err(BrokenFill))),
        };
        if bytes.is_empty() {
            return Poll::Ready(None);
        }
        state.advance(self.id, bytes.len() as u64);
        let is_near = state.near.is_some() && state.lead() <= state.near;
        let goes_on = window || is_near;
        let pump = goes_on.then(|| state.pump.take()).flatten();
        drop(state);
        if let Some(pump) = pump {
            pump.wake();
        }
        Poll::Ready(Some(Ok((bytes, memory))))
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

/// How far the pump runs ahead of the slowest reader of a body that cannot be kept.
const WINDOW_BYTES: usize = 1 << 20;
