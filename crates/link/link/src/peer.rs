//! The handle to the task of a peer: the messages to it, and the state that it publishes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};

use edgeward_dedup::sender::SendError;
use edgeward_dedup::wire::{Disagreement, Hello, Role};

use crate::connection::{Connection, ConnectionError};
use crate::core::{ConnectionId, Core};
use crate::driver::Driver;
use crate::handshake::HandshakeError;
use crate::label::Target;
use crate::pipe::PipeMemory;
use crate::stream::{IncomingStream, Pipes};

/// A peer. Its task ([`Driver`]) owns the state machines. No other task or thread waits for its work, except those that
/// ask it for something and can yield meanwhile.
pub(crate) struct Peer {
    messages: mpsc::Sender<Message>,
    state: watch::Receiver<PeerState>,
    pipe_memory: PipeMemory,
    /// The number of slots that are reserved for streams.
    reserved_streams: AtomicUsize,
}

/// The state of a peer that its task publishes after each change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerState {
    /// The number of streams that can be opened.
    pub(crate) free_streams: usize,
    /// The number of current connections.
    pub(crate) connections: usize,
    /// The number of connections made so far.
    pub(crate) connections_made: ConnectionId,
    /// The number of unacknowledged and unread bytes.
    pub(crate) memory_bytes: u64,
    /// The session of the peer's last HELLO.
    pub(crate) session: Option<u64>,
    /// True if a stream is open, or something has to be sent or acknowledged.
    pub(crate) is_busy: bool,
}

impl PeerState {
    pub(crate) fn of(core: &Core) -> Self {
        Self {
            free_streams: core.free_streams(),
            connections: core.connection_count(),
            connections_made: core.connections_made(),
            memory_bytes: core.memory_bytes(),
            session: core.peer_session(),
            is_busy: core.is_busy(),
        }
    }
}

/// A message to the task of a peer.
pub(crate) enum Message {
    /// Adds a connection.
    Connect(Box<NewConnection>),
    /// Opens a stream.
    Open {
        target: Target,
        pipes: Pipes,
        slot: StreamSlot,
    },
    /// Runs a function that takes microseconds.
    Call(Box<dyn FnOnce(&mut Core) + Send>),
}

/// A connection whose endpoints have exchanged HELLO.
pub(crate) struct NewConnection {
    pub(crate) connection: Connection,
    pub(crate) role: Role,
    pub(crate) our_hello: Hello,
    pub(crate) peer_hello: Hello,
    /// Gets the result of adding the connection.
    pub(crate) added: oneshot::Sender<Result<(), Disagreement>>,
    /// Gets the reason when the connection has ended. If its receiver is dropped, the connection is closed.
    pub(crate) ended: oneshot::Sender<ConnectionError>,
}

/// A connection that was added to a peer. Dropping this value closes it.
#[derive(Debug)]
pub(crate) struct AddedConnection(oneshot::Receiver<ConnectionError>);

impl AddedConnection {
    /// Waits until the connection has ended, and returns the reason.
    pub(crate) async fn ended(self) -> ConnectionError {
        self.0.await.unwrap_or(ConnectionError::Superseded)
    }
}

/// The right to open one stream. It counts against the limit of streams until it is dropped.
#[derive(Debug)]
pub(crate) struct StreamSlot(Arc<Peer>);

impl Drop for StreamSlot {
    fn drop(&mut self) {
        self.0.reserved_streams.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Peer {
    /// Creates a peer and its task. The last value is the queue of the streams that the peer opens.
    pub(crate) fn new(core: Core) -> (Arc<Self>, Driver, mpsc::UnboundedReceiver<IncomingStream>) {
        let (messages, receiver) = mpsc::channel(MESSAGES_MAX);
        let (publisher, state) = watch::channel(PeerState::of(&core));
        let pipe_memory = PipeMemory::default();
        let (driver, opened) = Driver::new(core, receiver, publisher, pipe_memory.clone());
        let peer = Self {
            messages,
            state,
            pipe_memory,
            reserved_streams: AtomicUsize::new(0),
        };
        (Arc::new(peer), driver, opened)
    }

    /// Passes a message to the task of the peer. Fails if too many messages wait, or if the task has ended.
    pub(crate) fn send(&self, message: Message) -> Result<(), SendError> {
        let sent = self.messages.try_send(message);
        sent.map_err(|_| SendError::TooManyStreams)
    }

    /// Asks the task of the peer to run `action`, which must take microseconds. The result has an error if the task has
    /// ended. Returns `None` if too many messages wait for the task.
    pub(crate) fn ask<R: Send + 'static>(
        &self,
        action: impl FnOnce(&mut Core) -> R + Send + 'static,
    ) -> Option<oneshot::Receiver<R>> {
        let (sender, result) = oneshot::channel();
        let call = Box::new(|core: &mut Core| _ = sender.send(action(core)));
        match self.messages.try_send(Message::Call(call)) {
            Err(TrySendError::Full(_)) => None,
            // After the end of the task, the sender is dropped.
            Ok(()) | Err(TrySendError::Closed(_)) => Some(result),
        }
    }

    /// Lets the task of the peer run `action`, which must take microseconds. Returns `None` if the task has ended.
    pub(crate) async fn call<R: Send + 'static>(
        &self,
        action: impl FnOnce(&mut Core) -> R + Send + 'static,
    ) -> Option<R> {
        let (sender, result) = oneshot::channel();
        let call = Box::new(|core: &mut Core| _ = sender.send(action(core)));
        self.messages.send(Message::Call(call)).await.ok()?;
        result.await.ok()
    }

    /// Adds a connection after both endpoints have sent HELLO.
    pub(crate) async fn connect(
        &self,
        connection: Connection,
        role: Role,
        our_hello: Hello,
        peer_hello: Hello,
    ) -> Result<AddedConnection, HandshakeError> {
        let (added, is_added) = oneshot::channel();
        let (ended, end) = oneshot::channel();
        let message = Message::Connect(Box::new(NewConnection {
            connection,
            role,
            our_hello,
            peer_hello,
            added,
            ended,
        }));
        let sent = self.messages.send(message).await;
        sent.map_err(|_| HandshakeError::ShutDown)?;
        is_added.await.map_err(|_| HandshakeError::ShutDown)??;
        Ok(AddedConnection(end))
    }

    /// Reserves a slot for a stream. Fails if as many streams are open or reserved as the peer accepts.
    pub(crate) fn reserve_stream(self: &Arc<Self>) -> Result<StreamSlot, SendError> {
        let reserved = self.reserved_streams.fetch_add(1, Ordering::AcqRel);
        let slot = StreamSlot(Arc::clone(self));
        if reserved < self.state().free_streams {
            Ok(slot)
        } else {
            Err(SendError::TooManyStreams)
        }
    }

    /// Returns the last published state.
    pub(crate) fn state(&self) -> PeerState {
        *self.state.borrow()
    }

    /// Returns the memory of the pipes of all streams.
    pub(crate) fn pipe_memory(&self) -> &PipeMemory {
        &self.pipe_memory
    }

    /// Returns the number of unacknowledged and unread bytes, and of those in the pipes of streams.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.state().memory_bytes + self.pipe_memory.bytes()
    }

    /// Waits until `condition` holds for the published state, or the task has ended.
    pub(crate) async fn wait_for(&self, condition: impl FnMut(&PeerState) -> bool) {
        _ = self.state.clone().wait_for(condition).await;
    }

    /// Returns true if a stream is open or reserved, or something has to be sent or acknowledged.
    pub(crate) fn is_busy(&self) -> bool {
        self.reserved_streams.load(Ordering::Acquire) > 0 || self.state().is_busy
    }
}

/// The highest number of messages that wait for the task of a peer. Most are streams of the last milliseconds.
pub(crate) const MESSAGES_MAX: usize = 64 << 10;

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Peer")
    }
}
