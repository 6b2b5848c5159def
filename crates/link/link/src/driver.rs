//! The task of a peer. It owns the connections to the peer and serves the users of its streams.
//!
//! Each poll gives turns to the connections, which read and write frames, and to the users that can continue, until
//! nothing makes progress or the [`Budget`] of one poll is spent. Users of streams exchange bytes with this task
//! through pipes, and never wait for it. A gateway runs the tasks of its peers on several threads.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tokio::sync::{mpsc, oneshot, watch};

use edgeward_dedup::store::RequestId;

use crate::budget::{Budget, yield_now};
use crate::connection::{Connection, ConnectionError};
use crate::core::{Core, DuplexId, SlowAnswer};
use crate::peer::{Message, NewConnection, PeerState};
use crate::pipe::PipeMemory;
use crate::ready::{Ready, StreamWaker};
use crate::stream::{IncomingStream, LinkStream};
use crate::user::{Turn, User};

/// The task of a peer, see [`run`](Self::run).
pub(crate) struct Driver {
    core: Core,
    messages: mpsc::Receiver<Message>,
    state: watch::Sender<PeerState>,
    /// The streams whose users can continue.
    ready: Arc<Ready>,
    connections: Vec<RunningConnection>,
    /// The connections that have ended, until the state without them is published.
    ended: Vec<(oneshot::Sender<ConnectionError>, ConnectionError)>,
    users: HashMap<DuplexId, ServedUser>,
    /// The users that can continue. Each is listed once.
    queue: VecDeque<DuplexId>,
    /// The memory of the pipes of all users.
    pipe_memory: PipeMemory,
    /// Gets the streams that the peer opens, at most as many as the peer may open. `None` after shutdown.
    opened: Option<mpsc::UnboundedSender<IncomingStream>>,
    /// Gets the answers of the store's threads, one for each request that they have accepted.
    answers: mpsc::UnboundedReceiver<StoreAnswer>,
    answer_sender: mpsc::UnboundedSender<StoreAnswer>,
}

struct RunningConnection {
    connection: Box<Connection>,
    /// Gets the reason when the connection has ended. If its receiver is dropped, the connection is closed.
    ended: oneshot::Sender<ConnectionError>,
}

struct ServedUser {
    user: User,
    stream_waker: Arc<StreamWaker>,
    waker: Waker,
    /// True while the user is in the queue.
    is_queued: bool,
}

impl Driver {
    /// Creates the task of a peer. The second value is the queue of the streams that the peer opens.
    pub(crate) fn new(
        core: Core,
        messages: mpsc::Receiver<Message>,
        state: watch::Sender<PeerState>,
        pipe_memory: PipeMemory,
    ) -> (Self, mpsc::UnboundedReceiver<IncomingStream>) {
        let (opened, receiver) = mpsc::unbounded_channel();
        let (answer_sender, answers) = mpsc::unbounded_channel();
        let driver = Self {
            core,
            messages,
            state,
            ready: Arc::default(),
            connections: Vec::new(),
            ended: Vec::new(),
            users: HashMap::new(),
            queue: VecDeque::new(),
            pipe_memory,
            opened: Some(opened),
            answers,
            answer_sender,
        };
        (driver, receiver)
    }

    /// Runs until the task is aborted. After a panic, the streams of this peer end and its connections are closed, and
    /// the peer can connect again.
    pub(crate) async fn run(mut self) {
        // The task has budgets of its own. That of Tokio, 128 operations, would be spent by the users alone.
        tokio::task::coop::unconstrained(std::future::poll_fn(|cx| {
            if catch_unwind(AssertUnwindSafe(|| self.poll(cx))).is_err() {
                // The panic may have left the state machines inconsistent. The users see that their streams have ended.
                tracing::error!("a task of the link has panicked: all streams of its peer end");
                self.core.restart();
                // The tasks that wait for the connections read the state when these end.
                self.publish();
                self.connections.clear();
                self.queue = self.users.keys().copied().collect();
                self.users
                    .values_mut()
                    .for_each(|served| served.is_queued = true);
                yield_now(cx);
            }
            Poll::<()>::Pending
        }))
        .await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) {
        for id in self.ready.take(cx.waker()) {
            if let Some(served) = self.users.get(&id) {
                served.stream_waker.unlist();
            }
            self.enqueue(id);
        }
        while let Poll::Ready(Some((id, is_awaited, answer))) = self.answers.poll_recv(cx) {
            self.core.complete(id, is_awaited, answer);
        }
        // A slot counts against the limit of streams until its open stream is counted, when the state is published.
        let mut slots = Vec::new();
        while let Poll::Ready(Some(message)) = self.messages.poll_recv(cx) {
            match message {
                Message::Connect(new) => self.connect(*new),
                Message::Open {
                    target,
                    pipes,
                    slot,
                } => {
                    slots.push(slot);
                    match self.core.open(target) {
                        Ok(id) => self.add_user(id, User::new(pipes)),
                        // The peer accepts fewer streams than before the reservation.
                        Err(_) => pipes.fail(edgeward_dedup::reason::TOO_MANY),
                    }
                }
                Message::Call(call) => call(&mut self.core),
            }
        }
        let now = Instant::now();
        // With one budget for both, busy users would leave nothing for the connections.
        let (mut budget, mut user_budget) = (Budget::half(), Budget::half());
        // If the first connection always spent the budget, the others would never get a turn.
        if !self.connections.is_empty() {
            self.connections.rotate_left(1);
        }
        loop {
            for id in self.core.take_ready() {
                self.enqueue(id);
            }
            self.report_opened();
            // The users come first: held bytes of a body are not sent if its user has written the next ones.
            let has_moved_bytes = self.turn_users(&mut user_budget);
            let has_moved_frames = self.for_each_connection(cx, |connection, cx, core| {
                connection.turn(cx, core, now, &mut budget)
            });
            if budget.is_spent() || user_budget.is_spent() {
                // A task that is always busy must keep its idle connections alive, too.
                self.for_each_connection(cx, |connection, cx, core| {
                    connection.check_ticks(cx, core)?;
                    Ok(false)
                });
                yield_now(cx);
                break;
            }
            let has_ended = !has_moved_frames
                && !has_moved_bytes
                && !self.for_each_connection(cx, |connection, cx, core| {
                    connection.check_timers(cx, core)?;
                    Ok(false)
                });
            if has_ended {
                break;
            }
        }
        let answers = self.answer_sender.clone();
        self.core
            .submit_slow_requests(move |id, is_awaited, answer| {
                _ = answers.send((id, is_awaited, answer));
            });
        self.core.share_knowledge();
        self.publish();
        drop(slots);
    }

    /// Publishes the state, and then reports the connections that have ended.
    fn publish(&mut self) {
        let state = PeerState::of(&self.core);
        self.state
            .send_if_modified(|before| std::mem::replace(before, state) != state);
        for (ended, error) in self.ended.drain(..) {
            _ = ended.send(error);
        }
    }

    fn connect(&mut self, new: NewConnection) {
        let NewConnection {
            mut connection,
            role,
            our_hello,
            peer_hello,
            added,
            ended,
        } = new;
        let result = self.core.add_connection(role, &our_hello, &peer_hello);
        let result = result.map(|id| {
            connection.set_id(id);
            self.connections.push(RunningConnection {
                connection: Box::new(connection),
                ended,
            });
        });
        self.publish();
        _ = added.send(result);
    }

    fn add_user(&mut self, id: DuplexId, user: User) {
        let stream_waker = StreamWaker::new(id, &self.ready);
        let served = ServedUser {
            user,
            waker: Waker::from(Arc::clone(&stream_waker)),
            stream_waker,
            is_queued: false,
        };
        self.users.insert(id, served);
        self.enqueue(id);
    }

    fn enqueue(&mut self, id: DuplexId) {
        if let Some(served) = self.users.get_mut(&id)
            && !std::mem::replace(&mut served.is_queued, true)
        {
            self.queue.push_back(id);
        }
    }

    /// Calls `action` for each connection, and removes those that have ended. Returns true if a call returned true or a
    /// connection has ended.
    fn for_each_connection(
        &mut self,
        cx: &mut Context<'_>,
        mut action: impl FnMut(
            &mut Connection,
            &mut Context<'_>,
            &mut Core,
        ) -> Result<bool, ConnectionError>,
    ) -> bool {
        let core = &mut self.core;
        let (mut at, mut has_progress) = (0, false);
        while let Some(running) = self.connections.get_mut(at) {
            let id = running.connection.id();
            let done = if !core.has_connection(id) {
                let violation = core.take_violation().map(ConnectionError::Violation);
                Err(violation.unwrap_or(ConnectionError::Superseded))
            } else if running.ended.poll_closed(cx).is_ready() {
                Err(ConnectionError::Superseded)
            } else {
                action(&mut running.connection, cx, core)
            };
            match done {
                Ok(progress) => {
                    has_progress |= progress;
                    at += 1;
                }
                Err(error) => {
                    core.remove_connection(id);
                    let RunningConnection { connection, ended } = self.connections.remove(at);
                    drop(connection);
                    self.ended.push((ended, error));
                    has_progress = true;
                }
            }
        }
        has_progress
    }

    /// Gives turns to the users in the queue until it is empty or the budget is spent. Returns true if bytes were moved
    /// or a stream has ended.
    fn turn_users(&mut self, budget: &mut Budget) -> bool {
        let mut has_progress = false;
        while !budget.is_spent()
            && let Some(id) = self.queue.pop_front()
        {
            let Some(served) = self.users.get_mut(&id) else {
                continue;
            };
            served.is_queued = false;
            let cx = &mut Context::from_waker(&served.waker);
            match served.user.turn(id, &mut self.core, cx, budget) {
                Turn::Wait => {}
                Turn::Progress => {
                    has_progress = true;
                    self.enqueue(id);
                }
                Turn::End => {
                    has_progress = true;
                    self.users.remove(&id);
                    self.core.detach(id);
                }
            }
        }
        has_progress
    }

    /// Passes the streams that the peer has opened to the task that serves them.
    fn report_opened(&mut self) {
        while let Some((id, target)) = self.core.next_opened() {
            let (stream, pipes) = LinkStream::new(&self.pipe_memory);
            // If no task serves streams, the stream is dropped here, which resets it.
            if let Some(opened) = &self.opened {
                _ = opened.send(IncomingStream::new(target, stream));
            }
            self.add_user(id, User::unanswered(pipes));
        }
        if self.core.is_shut_down() {
            self.opened = None;
        }
    }
}

/// The answer to a request, which a frame or a body waits for if the second value is true.
type StoreAnswer = (RequestId, bool, SlowAnswer);

#[cfg(test)]
mod tests;
