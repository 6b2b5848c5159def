//! One peer: what it is sent, what comes from it, and what both know.
//!
//! A driver holds one [`Endpoint`] for each peer, whatever the number of connections. It hands in every frame that
//! comes, and asks for frames while the line takes them; between connections it keeps the endpoint and calls
//! [`Endpoint::connected`] with the next HELLO.

use bytes::Bytes;

use crate::buffer::Pool;
use crate::codec::Codec;
use crate::id::IdKey;
use crate::knowledge::Knowledge;
use crate::receiver::{Receiver, ReceiverConfig, ReceiverEvent, Taken};
use crate::sender::{Lane, SendError, Sender, SenderConfig, SenderEvent};
use crate::store::ChunkStore;
use crate::wire::{Agreed, Disagreement, Frame, FrameSink, Hello, Role, StreamId};
use crate::{Handled, Tools, Violation};

/// Both machines for one peer.
#[derive(Debug)]
pub struct Endpoint {
    ids: IdKey,
    pool: Pool,
    knowledge: Knowledge,
    sender: Sender,
    receiver: Receiver,
    receiver_config: ReceiverConfig,
    session: u64,
    sender_config: SenderConfig,
    /// Of our store, as the peer was told last.
    epoch: u64,
    epoch_due: bool,
    /// The peer's.
    peer_session: Option<u64>,
}

/// What an endpoint is made of.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// Names chunks; the peer's must be the same.
    pub ids: IdKey,
    /// How bodies are sent, as far as the peer agrees: chunks are cut as the end wants that was connected to, compressed as both
    /// can, and streams and credit are what the peer takes.
    pub sender: SenderConfig,
    /// How bodies are received.
    pub receiver: ReceiverConfig,
    /// Containers of the store of which is remembered what the peer has.
    pub containers_max: usize,
    /// Random, drawn anew for each endpoint.
    pub session: u64,
    /// Memory for bodies; endpoints may share it.
    pub pool: Pool,
}

/// Something to do for who uses the streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// About a body that is sent.
    Sent(SenderEvent),
    /// About one that is received.
    Received(ReceiverEvent),
}

impl Endpoint {
    /// Before the first connection.
    pub fn new(config: EndpointConfig) -> Self {
        Self {
            knowledge: Knowledge::new(config.containers_max),
            sender: Sender::new(config.sender),
            receiver: Receiver::new(config.receiver),
            receiver_config: config.receiver,
            ids: config.ids,
            pool: config.pool,
            session: config.session,
            sender_config: config.sender,
            epoch: 0,
            epoch_due: false,
            peer_session: None,
        }
    }

    /// What was exchanged with the peer, as far as is known.
    pub fn knowledge(&self) -> &Knowledge {
        &self.knowledge
    }

    /// What an earlier end, with this store, had exchanged with this peer. If either's store is another by now, nothing is believed.
    pub fn recall(&mut self, knowledge: Knowledge) {
        self.knowledge = knowledge;
    }

    /// What to say first on a connection.
    pub fn hello(&mut self, store: &impl ChunkStore) -> Hello {
        self.epoch = store.epoch();
        self.epoch_due = false;
        Hello {
            methods: self.sender_config.methods,
            streams_max: u32::try_from(self.receiver_config.streams_max).unwrap_or(u32::MAX),
            credit: self.receiver_config.credit,
            ..Hello::new(
                &self.ids,
                self.sender_config.chunker,
                self.session,
                self.epoch,
            )
        }
    }

    /// The peer said HELLO: streams go on if it is the session from before, and begin anew if not.
    pub fn connected(
        &mut self,
        role: Role,
        ours: &Hello,
        theirs: &Hello,
    ) -> Result<Agreed, Disagreement> {
        let agreed = ours.agree(role, theirs)?;
        self.knowledge.peer_epoch(theirs.epoch);
        if self.peer_session == Some(theirs.session) {
            self.sender.reconnected();
            self.receiver.reconnected();
        } else {
            if self.peer_session.replace(theirs.session).is_some() {
                self.sender.restarted();
                self.receiver.restarted();
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

    /// One of several connections broke, and what was under way on it is lost: it goes again on the others.
    pub fn connection_lost(&mut self) {
        self.sender.reconnected();
        self.receiver.reconnected();
    }

    /// Takes a frame. One that is to come again did nothing.
    pub fn handle<S: ChunkStore, C: Codec>(
        &mut self,
        frame: Frame<'_>,
        store: &mut S,
        codec: &mut C,
    ) -> Result<Handled, Violation> {
        self.handle_in(frame, None, store, codec)
    }

    /// As [`handle`](Self::handle). `memory` is what the frame was decoded from: bytes of bodies that travelled as they are stay
    /// there until they are taken.
    pub fn handle_in<S: ChunkStore, C: Codec>(
        &mut self,
        frame: Frame<'_>,
        memory: Option<&Bytes>,
        store: &mut S,
        codec: &mut C,
    ) -> Result<Handled, Violation> {
        self.watch_store(store);
        match frame {
            Frame::Hello(_) => Err(Violation::Direction),
            Frame::Epoch(epoch) => {
                self.knowledge.peer_epoch(epoch);
                Ok(Handled::Done)
            }
            Frame::Ack(_) | Frame::Nak { .. } | Frame::Credit(_) | Frame::Stop { .. } => self
                .sender
                .handle(&frame, &mut self.knowledge)
                .map(Handled::from),
            frame => {
                let (_, receiver, mut tools) = self.parts(store, codec);
                receiver.handle(frame, memory, &mut tools)
            }
        }
    }

    /// Appends the next frame to `out` that may go on this lane; false if there is none. Answers go before bodies.
    pub fn transmit<S: ChunkStore, C: Codec>(
        &mut self,
        lane: Lane,
        line_busy: bool,
        store: &mut S,
        codec: &mut C,
        out: &mut impl FrameSink,
    ) -> bool {
        self.watch_store(store);
        let answers = lane != Lane::Long;
        if answers && std::mem::take(&mut self.epoch_due) {
            Frame::Epoch(self.epoch).encode(out.head());
            return true;
        }
        let (sender, receiver, mut tools) = self.parts(store, codec);
        (answers && receiver.transmit(out.head()))
            || sender.transmit(lane, line_busy, &mut tools, out)
    }

    /// Begins a body; [`Sender::open`].
    pub fn open(&mut self, label: &[u8], dedup: bool) -> Result<StreamId, SendError> {
        self.sender.open(label, dedup)
    }

    /// Takes bytes of a body; [`Sender::write`].
    pub fn write<S: ChunkStore, C: Codec>(
        &mut self,
        stream: StreamId,
        bytes: &[u8],
        store: &mut S,
        codec: &mut C,
    ) -> Result<usize, SendError> {
        self.watch_store(store);
        let (sender, _, mut tools) = self.parts(store, codec);
        sender.write(stream, bytes, &mut tools)
    }

    /// Where the next bytes of a body belong; [`Sender::spare`].
    pub fn spare<S: ChunkStore, C: Codec>(
        &mut self,
        stream: StreamId,
        store: &mut S,
        codec: &mut C,
    ) -> Result<Option<&mut [u8]>, SendError> {
        self.watch_store(store);
        let mut tools = Tools {
            store,
            codec,
            knowledge: &mut self.knowledge,
            ids: &self.ids,
            pool: &self.pool,
        };
        self.sender.spare(stream, &mut tools)
    }

    /// So many bytes were put there; [`Sender::filled`].
    pub fn filled<S: ChunkStore, C: Codec>(
        &mut self,
        stream: StreamId,
        bytes: usize,
        store: &mut S,
        codec: &mut C,
    ) {
        let (sender, _, mut tools) = self.parts(store, codec);
        sender.filled(stream, bytes, &mut tools);
    }

    /// Goes on with a body to which the store owed an answer; [`Sender::resume`].
    pub fn resume<S: ChunkStore, C: Codec>(
        &mut self,
        stream: StreamId,
        store: &mut S,
        codec: &mut C,
    ) {
        self.watch_store(store);
        let (sender, _, mut tools) = self.parts(store, codec);
        sender.resume(stream, &mut tools);
    }

    /// Lets nothing wait; [`Sender::flush`].
    pub fn flush<S: ChunkStore, C: Codec>(
        &mut self,
        stream: StreamId,
        store: &mut S,
        codec: &mut C,
    ) {
        self.watch_store(store);
        let (sender, _, mut tools) = self.parts(store, codec);
        sender.flush(stream, &mut tools);
    }

    /// Lets whole chunks not wait; [`Sender::flush_whole`].
    pub fn flush_whole<S: ChunkStore, C: Codec>(
        &mut self,
        stream: StreamId,
        store: &mut S,
        codec: &mut C,
    ) {
        self.watch_store(store);
        let (sender, _, mut tools) = self.parts(store, codec);
        sender.flush_whole(stream, &mut tools);
    }

    /// Looks no more of a body up; [`Sender::bypass`].
    pub fn bypass(&mut self, stream: StreamId) -> bool {
        self.sender.bypass(stream)
    }

    /// Ends a body; [`Sender::close`].
    pub fn close<S: ChunkStore, C: Codec>(
        &mut self,
        stream: StreamId,
        store: &mut S,
        codec: &mut C,
    ) -> Result<(), SendError> {
        self.watch_store(store);
        let (sender, _, mut tools) = self.parts(store, codec);
        sender.close(stream, &mut tools)
    }

    /// Gives up a body that is sent; [`Sender::reset`].
    pub fn reset(&mut self, stream: StreamId, reason: u32) {
        self.sender.reset(stream, reason);
    }

    /// Gives up a body that is received; [`Receiver::stop`].
    pub fn stop(&mut self, stream: StreamId, reason: u32) {
        self.receiver.stop(stream, reason);
    }

    /// The next bytes of a body that is received; [`Receiver::take`].
    pub fn take(&mut self, stream: StreamId) -> Taken {
        self.receiver.take(stream)
    }

    /// What there is to do.
    pub fn event(&mut self) -> Option<Event> {
        let received = self.receiver.event().map(Event::Received);
        received.or_else(|| self.sender.event().map(Event::Sent))
    }

    /// The sending half: room and counters.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// The receiving half: counters.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// Tells the peer when the store is another than it was.
    fn watch_store(&mut self, store: &impl ChunkStore) {
        let epoch = store.epoch();
        self.knowledge.own_epoch(epoch);
        if self.peer_session.is_some() && epoch != self.epoch {
            self.epoch = epoch;
            self.epoch_due = true;
        }
    }

    fn parts<'a, S, C>(
        &'a mut self,
        store: &'a mut S,
        codec: &'a mut C,
    ) -> (&'a mut Sender, &'a mut Receiver, Tools<'a, S, C>) {
        let tools = Tools {
            store,
            codec,
            knowledge: &mut self.knowledge,
            ids: &self.ids,
            pool: &self.pool,
        };
        (&mut self.sender, &mut self.receiver, tools)
    }
}
