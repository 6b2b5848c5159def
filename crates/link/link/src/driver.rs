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

use tokio::sync::{mpsc, oneshot};

use crate::budget::{Budget, yield_now};
use crate::connection::{Connection, ConnectionError};
use crate::core::{Core, DuplexId};
use crate::label::Target;
use crate::peer::{Arrival, Peer};
use crate::ready::StreamWaker;
use crate::stream::Pipes;
use crate::user::{Turn, User};

/// The task of a peer, see [`run`](Self::run).
pub(crate) struct Driver {
    peer: Arc<Peer>,
    arrivals: mpsc::Receiver<Arrival>,
    connections: Vec<RunningConnection>,
    users: HashMap<DuplexId, ServedUser>,
    /// The users that can continue. Each is listed once.
    queue: VecDeque<DuplexId>,
    /// Gets the streams that the peer opens, at most as many as the peer may open. `None` after shutdown.
    opened: Option<mpsc::UnboundedSender<(DuplexId, Target)>>,
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
        peer: Arc<Peer>,
        arrivals: mpsc::Receiver<Arrival>,
    ) -> (Self, mpsc::UnboundedReceiver<(DuplexId, Target)>) {
        let (opened, receiver) = mpsc::unbounded_channel();
        let driver = Self {
            peer,
            arrivals,
            connections: Vec::new(),
            users: HashMap::new(),
            queue: VecDeque::new(),
            opened: Some(opened),
        };
        (driver, receiver)
    }

    /// Runs until the task is aborted. After a panic, the streams of this peer end and its connections are closed, and
    /// the peer can connect again.
    pub(crate) async fn run(mut self) {
        // The task has budgets of its own. That of Tokio, 128 operations, would be spent by the users alone.
        tokio::task::coop::unconstrained(std::future::poll_fn(|cx| {
            if catch_unwind(AssertUnwindSafe(|| self.poll(cx))).is_err() {
                // The lock is poisoned, so the next poll restarts the core. The users then see that their streams
                // have ended.
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
        let peer = Arc::clone(&self.peer);
        for id in peer.ready().take(cx.waker()) {
            if let Some(served) = self.users.get(&id) {
                served.stream_waker.unlist();
            }
            self.enqueue(id);
        }
        let mut core = peer.lock();
        // A slot counts against the limit of streams until its open stream is counted, when the lock is released.
        let mut slots = Vec::new();
        while let Poll::Ready(Some(arrival)) = self.arrivals.poll_recv(cx) {
            match arrival {
                Arrival::Connection(connection, ended) => {
                    self.connections
                        .push(RunningConnection { connection, ended });
                }
                Arrival::Open {
                    target,
                    pipes,
                    slot,
                } => {
                    slots.push(slot);
                    match core.open(target) {
                        Ok(id) => self.add_user(id, pipes),
                        // The peer accepts fewer streams than before the reservation.
                        Err(_) => pipes.fail(edgeward_dedup::reason::TOO_MANY),
                    }
                }
                Arrival::Accept { id, pipes } => match core.accept(id) {
                    Ok(()) => self.add_user(id, pipes),
                    Err(reason) => {
                        pipes.fail(reason);
                        core.detach(id);
                    }
                },
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
            for id in core.take_ready() {
                self.enqueue(id);
            }
            // The users come first: held bytes of a body are not sent if its user has written the next ones.
            let has_moved_bytes = self.turn_users(&mut core, &mut user_budget);
            let has_moved_frames = self.turn_connections(cx, &mut core, now, &mut budget);
            if budget.is_spent() || user_budget.is_spent() {
                // A task that is always busy must keep its idle connections alive, too.
                self.for_each_connection(cx, &mut core, |connection, cx, core| {
                    connection.check_ticks(cx, core)?;
                    Ok(false)
                });
                yield_now(cx);
                break;
            }
            if !has_moved_frames && !has_moved_bytes && !self.check_timers(cx, &mut core) {
                break;
            }
        }
        self.report_opened(&mut core);
        peer.release(core);
        drop(slots);
    }

    fn add_user(&mut self, id: DuplexId, pipes: Pipes) {
        let stream_waker = StreamWaker::new(id, self.peer.ready());
        let served = ServedUser {
            user: User::new(pipes),
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

    /// Gives each connection a turn. Returns true if frames were handled or bytes were read or written.
    fn turn_connections(
        &mut self,
        cx: &mut Context<'_>,
        core: &mut Core,
        now: Instant,
        budget: &mut Budget,
    ) -> bool {
        self.for_each_connection(cx, core, |connection, cx, core| {
            connection.turn(cx, core, now, budget)
        })
    }

    /// Called when nothing makes progress. Returns true if a connection has ended.
    fn check_timers(&mut self, cx: &mut Context<'_>, core: &mut Core) -> bool {
        self.for_each_connection(cx, core, |connection, cx, core| {
            connection.check_timers(cx, core)?;
            Ok(false)
        })
    }

    /// Calls `action` for each connection, and removes those that have ended. Returns true if a call returned true or a
    /// connection has ended.
    fn for_each_connection(
        &mut self,
        cx: &mut Context<'_>,
        core: &mut Core,
        mut action: impl FnMut(
            &mut Connection,
            &mut Context<'_>,
            &mut Core,
        ) -> Result<bool, ConnectionError>,
    ) -> bool {
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
                    _ = ended.send(error);
                    has_progress = true;
                }
            }
        }
        has_progress
    }

    /// Gives turns to the users in the queue until it is empty or the budget is spent. Returns true if bytes were moved
    /// or a stream has ended.
    fn turn_users(&mut self, core: &mut Core, budget: &mut Budget) -> bool {
        let mut has_progress = false;
        while !budget.is_spent()
            && let Some(id) = self.queue.pop_front()
        {
            let Some(served) = self.users.get_mut(&id) else {
                continue;
            };
            served.is_queued = false;
            let cx = &mut Context::from_waker(&served.waker);
            match served.user.turn(id, core, cx, budget) {
                Turn::Wait => {}
                Turn::Progress => {
                    has_progress = true;
                    self.enqueue(id);
                }
                Turn::End => {
                    has_progress = true;
                    self.users.remove(&id);
                    core.detach(id);
                }
            }
        }
        has_progress
    }

    /// Passes the streams that the peer has opened to the task that serves them.
    fn report_opened(&mut self, core: &mut Core) {
        while let Some(opened) = core.next_opened() {
            let id = opened.0;
            let is_passed = self
                .opened
                .as_ref()
                .is_some_and(|sender| sender.send(opened).is_ok());
            if !is_passed {
                core.detach(id);
            }
        }
        if core.is_shut_down() {
            self.opened = None;
        }
    }
}

#[cfg(test)]
mod tests;
