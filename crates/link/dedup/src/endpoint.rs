//! The state of the link with one peer: its sender, its receiver, and the chunks both endpoints have.
//!
//! A driver has one [`Endpoint`] for each peer, whatever the number of connections. The driver passes every received
//! frame to the endpoint, and takes frames to send from it while the link can send. The endpoint survives the loss of
//! its connections: the driver calls [`Endpoint::handle_hello`] with the HELLO of each new connection.

use bytes::Bytes;

use crate::buffer::Pool;
use crate::codec::Codec;
use crate::id::IdKey;
use crate::knowledge::Knowledge;
use crate::receiver::{Receiver, ReceiverConfig, ReceiverEvent, TakeResult};
use crate::sender::{Lane, SendError, Sender, SenderConfig, SenderEvent};
use crate::store::{Answer, Request, RequestId};
use crate::wire::{AgreedTerms, Disagreement, Frame, FrameSink, Hello, Role, StreamId};
use crate::{Resources, Violation};

/// The sender and the receiver for one peer.
#[derive(Debug)]
pub struct Endpoint {
    id_key: IdKey,
    pool: Pool,
    knowledge: Knowledge,
    sender: Sender,
    receiver: Receiver,
    receiver_config: ReceiverConfig,
    session: u64,
    sender_config: SenderConfig,
    /// The epoch of our store that was last sent to the peer, or will be sent next.
    epoch: u64,
    /// True until a changed epoch is sent to the peer in an EPOCH frame.
    epoch_due: bool,
    /// The session of the peer's last HELLO.
    peer_session: Option<u64>,
}

/// The settings of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// Computes chunk hashes. The peer's key must be the same.
    pub id_key: IdKey,
    /// How bodies are sent. The handshake replaces some of these settings: the chunker is that of the listening
    /// endpoint, the compression methods are those that both endpoints support, and the number of streams and the
    /// credit are those that the peer allows.
    pub sender: SenderConfig,
    /// How bodies are received.
    pub receiver: ReceiverConfig,
    /// The maximum number of containers for which the endpoint remembers which chunks the peer has.
    pub containers_max: usize,
    /// A random number that is different for each endpoint. After a restart, the peer detects the new number.
    pub session: u64,
    /// Provides memory for bodies; endpoints may share it.
    pub pool: Pool,
}

/// An event for the program that uses the streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An event of a body that is sent.
    Sent(SenderEvent),
    /// An event of a body that is received.
    Received(ReceiverEvent),
}

/// A stream that waited for an answer of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continued {
    /// A stream that is sent. Bytes may be written to it again.
    Outgoing(StreamId),
    /// A stream that is received.
    Incoming(StreamId),
}

impl Endpoint {
    /// Creates an endpoint before its first connection.
    pub fn new(config: EndpointConfig) -> Self {
        Self {
            knowledge: Knowledge::new(config.containers_max),
            sender: Sender::new(config.sender),
            receiver: Receiver::new(config.receiver),
            receiver_config: config.receiver,
            id_key: config.id_key,
            pool: config.pool,
            session: config.session,
            sender_config: config.sender,
            epoch: 0,
            epoch_due: false,
            peer_session: None,
        }
    }

    /// Returns the key by which chunks are hashed.
    pub fn id_key(&self) -> &IdKey {
        &self.id_key
    }

    /// Returns the pool of buffers.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns the chunks that were exchanged with the peer.
    pub fn knowledge(&self) -> &Knowledge {
        &self.knowledge
    }

    /// Returns the chunks that were exchanged with the peer, so that the driver can share and save them.
    pub fn knowledge_mut(&mut self) -> &mut Knowledge {
        &mut self.knowledge
    }

    /// Restores the knowledge that an earlier endpoint with the same store had. The knowledge is discarded once the
    /// endpoint detects that the epoch of either store has changed since then.
    pub fn restore_knowledge(&mut self, knowledge: Knowledge) {
        self.knowledge = knowledge;
    }

    /// Ends all streams and forgets which chunks the peer has, as after a restart of the process. The peer detects a
    /// new session.
    pub fn restart(&mut self) {
        let mut restarted = Self::new(EndpointConfig {
            id_key: self.id_key.clone(),
            sender: self.sender_config,
            receiver: self.receiver_config,
            containers_max: self.knowledge.containers_max(),
            session: self.session.wrapping_add(1),
            pool: self.pool.clone(),
        });
        restarted.sender.number_requests_after(&self.sender);
        restarted.receiver.number_requests_after(&self.receiver);
        *self = restarted;
    }

    /// Sets the epoch of the store. If it has changed, the store has lost its chunks, and an EPOCH frame is sent.
    pub fn set_own_epoch(&mut self, epoch: u64) {
        self.knowledge.set_own_epoch(epoch);
        if std::mem::replace(&mut self.epoch, epoch) != epoch {
            self.epoch_due = self.peer_session.is_some();
        }
    }

    /// Returns the HELLO for a new connection.
    pub fn hello(&mut self) -> Hello {
        self.epoch_due = false;
        Hello {
            methods: self.sender_config.methods,
            streams_max: u32::try_from(self.receiver_config.streams_max).unwrap_or(u32::MAX),
            credit: self.receiver_config.credit,
            ..Hello::new(
                &self.id_key,
                self.sender_config.chunker,
                self.session,
                self.epoch,
            )
        }
    }

    /// Handles the peer's HELLO. If its session differs from that of the peer's last HELLO, the peer has restarted, and
    /// all streams end. After the first HELLO, and with the same session, streams continue.
    pub fn handle_hello(
        &mut self,
        role: Role,
        ours: &Hello,
        theirs: &Hello,
    ) -> Result<AgreedTerms, Disagreement> {
        let agreed = ours.agree(role, theirs)?;
        self.knowledge.set_peer_epoch(theirs.epoch);
        if self.peer_session == Some(theirs.session) {
            self.sender.handle_reconnect();
            self.receiver.handle_reconnect();
        } else {
            if self.peer_session.replace(theirs.session).is_some() {
                self.sender.handle_restart();
                self.receiver.handle_restart();
            }
            self.sender.configure(SenderConfig {
                chunker: agreed.chunker,
                methods: agreed.methods,
                streams_max: theirs.streams_max as usize,
                credit: theirs.credit,
                ..self.sender_config
            });
        }
        Ok(agreed)
    }

    /// Handles the loss of one of several connections: unacknowledged frames are sent again on the other connections.
    pub fn handle_connection_loss(&mut self) {
        self.sender.handle_reconnect();
        self.receiver.handle_reconnect();
    }

    /// Handles a frame. `memory` is the buffer from which the frame was decoded: uncompressed bytes of bodies stay
    /// there until they are read. The driver then performs the [requests](Self::request) to the store.
    pub fn handle<C: Codec>(
        &mut self,
        frame: Frame<'_>,
        memory: Option<&Bytes>,
        codec: &mut C,
    ) -> Result<(), Violation> {
        match frame {
            Frame::Hello(_) => Err(Violation::Direction),
            Frame::Epoch(epoch) => {
                self.knowledge.set_peer_epoch(epoch);
                Ok(())
            }
            Frame::Ack(_) | Frame::Nak { .. } | Frame::Credit(_) | Frame::Stop { .. } => {
                self.sender.handle(&frame, &mut self.knowledge)
            }
            frame => {
                let (_, receiver, mut resources) = self.split();
                receiver.handle(frame, memory, codec, &mut resources)
            }
        }
    }

    /// Returns the next request to the store. The driver passes its answer to [`complete`](Self::complete), at once or
    /// later. Every function that takes bytes, frames or answers may queue requests.
    pub fn request(&mut self) -> Option<(RequestId, Request)> {
        let request = self.receiver.request();
        request.or_else(|| self.sender.request())
    }

    /// Handles the answer of the store to a request. Returns the stream that can now continue, if there is one.
    pub fn complete<C: Codec>(
        &mut self,
        request: RequestId,
        answer: Answer,
        codec: &mut C,
    ) -> Result<Option<Continued>, Violation> {
        let (sender, receiver, mut resources) = self.split();
        if request.is_receiver {
            let stream = receiver.complete(request, answer, codec, &mut resources)?;
            return Ok(stream.map(Continued::Incoming));
        }
        let stream = sender.complete(request, answer, &mut resources);
        Ok(stream.map(Continued::Outgoing))
    }

    /// Appends the next frame to `out`, or returns false if there is no frame. `lane` states which frames the
    /// connection carries. Acknowledgements are sent before bodies. For `link_busy`, see [`Sender::transmit`].
    pub fn transmit<C: Codec>(
        &mut self,
        lane: Lane,
        link_busy: bool,
        codec: &mut C,
        out: &mut impl FrameSink,
    ) -> bool {
        let sends_short = lane != Lane::Long;
        if sends_short && std::mem::take(&mut self.epoch_due) {
            Frame::Epoch(self.epoch).encode(out.head());
            return true;
        }
        let (sender, receiver, mut resources) = self.split();
        (sends_short && receiver.transmit(out.head()))
            || sender.transmit(lane, link_busy, codec, &mut resources, out)
    }

    /// Opens a stream; see [`Sender::open`].
    pub fn open(&mut self, label: &[u8], dedup: bool) -> Result<StreamId, SendError> {
        self.sender.open(label, dedup)
    }

    /// Writes bytes of a body; see [`Sender::write`].
    pub fn write(&mut self, stream: StreamId, bytes: &[u8]) -> Result<usize, SendError> {
        let (sender, _, mut resources) = self.split();
        sender.write(stream, bytes, &mut resources)
    }

    /// Returns the buffer for the next bytes of a body; see [`Sender::spare`].
    pub fn spare(&mut self, stream: StreamId) -> Result<Option<&mut [u8]>, SendError> {
        let mut resources = Resources {
            knowledge: &mut self.knowledge,
            id_key: &self.id_key,
            pool: &self.pool,
        };
        self.sender.spare(stream, &mut resources)
    }

    /// Records bytes written into the buffer of [`spare`](Self::spare); see [`Sender::filled`].
    pub fn filled(&mut self, stream: StreamId, bytes: usize) {
        let (sender, _, mut resources) = self.split();
        sender.filled(stream, bytes, &mut resources);
    }

    /// Sends all bytes of a body that are held back; see [`Sender::flush`].
    pub fn flush(&mut self, stream: StreamId) {
        let (sender, _, mut resources) = self.split();
        sender.flush(stream, &mut resources);
    }

    /// Sends the complete chunks that are held back; see [`Sender::flush_whole`].
    pub fn flush_whole(&mut self, stream: StreamId) {
        let (sender, _, mut resources) = self.split();
        sender.flush_whole(stream, &mut resources);
    }

    /// Stops deduplicating a body; see [`Sender::bypass`].
    pub fn bypass(&mut self, stream: StreamId) -> bool {
        self.sender.bypass(stream)
    }

    /// Ends a body; see [`Sender::close`].
    pub fn close(&mut self, stream: StreamId) -> Result<(), SendError> {
        let (sender, _, mut resources) = self.split();
        sender.close(stream, &mut resources)
    }

    /// Resets a body that is sent; see [`Sender::reset`].
    pub fn reset(&mut self, stream: StreamId, reason: u32) {
        self.sender.reset(stream, reason);
    }

    /// Stops a body that is received; see [`Receiver::stop`].
    pub fn stop(&mut self, stream: StreamId, reason: u32) {
        self.receiver.stop(stream, reason);
    }

    /// Returns the next bytes of a body that is received; see [`Receiver::take`].
    pub fn take(&mut self, stream: StreamId) -> TakeResult {
        self.receiver.take(stream)
    }

    /// Returns the next event.
    pub fn event(&mut self) -> Option<Event> {
        let received = self.receiver.event().map(Event::Received);
        received.or_else(|| self.sender.event().map(Event::Sent))
    }

    /// Returns the sender.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Returns the receiver.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    fn split(&mut self) -> (&mut Sender, &mut Receiver, Resources<'_>) {
        let resources = Resources {
            knowledge: &mut self.knowledge,
            id_key: &self.id_key,
            pool: &self.pool,
        };
        (&mut self.sender, &mut self.receiver, resources)
    }
}
