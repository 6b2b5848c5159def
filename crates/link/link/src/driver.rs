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

use edgeward_dedup::store::{Answer, RequestId};

use crate::budget::{Budget, yield_now};
use crate::connection::{Connection, ConnectionError};
use crate::core::{Core, DuplexId};
use crate::peer::{Message, NewConnection, PeerState};
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
    /// Gets the streams that the peer opens, at most as many as the peer may open. `None` after shutdown.
    opened: Option<mpsc::UnboundedSender<IncomingStream>>,
    /// Gets the results of the store, at most one for each request that the core has passed on.
    store_results: mpsc::UnboundedReceiver<StoreResult>,
    store_sender: mpsc::UnboundedSender<StoreResult>,
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
    ) -> (Self, mpsc::UnboundedReceiver<IncomingStream>) {
        let (opened, receiver) = mpsc::unbounded_channel();
        let (store_sender, store_results) = mpsc::unbounded_channel();
        let driver = Self {
            core,
            messages,
            state,
            ready: Arc::default(),
            connections: Vec::new(),
            ended: Vec::new(),
            users: HashMap::new(),
            queue: VecDeque::new(),
            opened: Some(opened),
            store_results,
            store_sender,
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
        while let Poll::Ready(Some(result)) = self.store_results.poll_recv(cx) {
            match result {
                StoreResult::Answer(id, answer) => self.core.complete(id, answer),
                StoreResult::Panicked => self.core.fail_slow_request(),
                StoreResult::ReadAhead => self.core.end_read_ahead(),
            }
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
        self.begin_reads();
        self.publish();
        drop(slots);
    }

    /// Begins the reads of the store that have become necessary. Each request has its own thread, so that one that waits
    /// for the device does not delay the others.
    fn begin_reads(&mut self) {
        let requests = self.core.take_slow_requests();
        let slow_answer = (!requests.is_empty()).then(|| self.core.slow_answer());
        for (id, request) in requests {
            let (slow_answer, results) = (slow_answer.clone(), self.store_sender.clone());
            tokio::task::spawn_blocking(move || {
                let answer = AssertUnwindSafe(|| slow_answer.and_then(|answer| answer(&request)));
                let answer = catch_unwind(answer);
                let answer = answer.map(|answer| StoreResult::Answer(id, answer));
                // Without a result, the stream and at last all connections of the peer would wait for ever.
                _ = results.send(answer.unwrap_or(StoreResult::Panicked));
            });
        }
        if let Some(reads) = self.core.take_read_ahead() {
            let (store, results) = (self.core.store().clone(), self.store_sender.clone());
            tokio::task::spawn_blocking(move || {
                // The thread that needs these chunks reads them again, and reports an error.
                _ = catch_unwind(AssertUnwindSafe(|| store.fetch(&reads)));
                _ = results.send(StoreResult::ReadAhead);
            });
        }
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
            let (stream, pipes) = LinkStream::new();
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

/// The end of work of the store on a thread that may block.
enum StoreResult {
    /// The answer to a request.
    Answer(RequestId, Option<Answer>),
    /// The thread has panicked while it performed a request.
    Panicked,
    /// Reads that were made ahead have ended.
    ReadAhead,
}

#[cfg(test)]
mod tests;
