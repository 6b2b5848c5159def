//! Duplex streams: the operations that their users perform.

use std::io;
use std::task::Waker;
use std::time::Instant;

use bytes::Bytes;

use edgeward_chunk_store::PendingReads;
use edgeward_dedup::reason;
use edgeward_dedup::receiver::Taken;
use edgeward_dedup::sender::SendError;
use edgeward_dedup::wire::StreamId;

use super::{Core, TalkId};
use crate::hold::{Hold, SMALL_BYTES};
use crate::label::{Label, Target};
use crate::probe;
use crate::turn::Turn;

/// A duplex stream, made of one stream of the protocol in each direction: the waiting tasks, and the bytes held
/// back.
pub(super) struct Talk {
    pub(super) target: Target,
    /// The index of its host's counters.
    pub(super) host: usize,
    pub(super) ours: bool,
    pub(super) out: Option<StreamId>,
    /// True while bytes may be written.
    pub(super) out_open: bool,
    /// True if the peer has acknowledged all bytes.
    pub(super) out_complete: bool,
    /// The reason if the peer stopped the stream, or if it ended together with the connection state.
    pub(super) out_stopped: Option<u32>,
    pub(super) incoming: Option<StreamId>,
    pub(super) in_end: Option<Result<(), u32>>,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
    pub(super) hold: Option<Hold>,
    pub(super) due: Option<Instant>,
    pub(super) written: bool,
}

impl Talk {
    /// Takes the waker of a waiting writer, because the stream can be written again.
    pub(super) fn wake_writer(&mut self) -> Option<Waker> {
        let writer = self.writer.take();
        if let Some(hold) = self.hold.as_mut().filter(|_| writer.is_some()) {
            hold.resume();
        }
        writer
    }

    /// Returns when to check the held bytes, if no check is scheduled.
    pub(super) fn ask_again(&mut self) -> Option<Instant> {
        let due = self
            .hold
            .as_ref()
            .map(Hold::due)
            .filter(|_| self.due.is_none());
        self.due = self.due.or(due);
        due
    }
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Bytes(usize),
    /// No bytes for now; the waker is kept.
    Full,
    /// The stream accepts no more bytes: it was stopped with this reason, or closed.
    Ended(u32),
}

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Bytes(Bytes),
    /// No bytes for now; the waker is kept.
    Wait,
    End,
    Failed(u32),
}

impl Core {
    /// Opens a stream.
    pub(crate) fn open(&mut self, target: Target) -> Result<TalkId, SendError> {
        let label = Label::Begin(target.clone()).encode();
        let out = self.endpoint.open(&label, self.config.dedup)?;
        let id = self.new_talk(target, true);
        let talk = self.talks.get_mut(&id).expect("it was just made");
        (talk.out, talk.out_open) = (Some(out), true);
        self.by_out.insert(out, (id, talk.host));
        self.kick();
        Ok(id)
    }

    /// Returns the next stream that the peer opened.
    pub(crate) fn accept(&mut self, waker: &Waker) -> Option<(TalkId, Target)> {
        while let Some(id) = self.begun.pop_front() {
            if let Some(talk) = self.talks.get(&id) {
                return Some((id, talk.target.clone()));
            }
        }
        self.begun_waker = Some(waker.clone());
        None
    }

    /// Accepts a stream: from now on it can be written.
    pub(crate) fn answer(&mut self, id: TalkId) -> Result<(), u32> {
        let talk = self.talks.get_mut(&id).ok_or(reason::RESTARTED)?;
        let incoming = talk.incoming.ok_or(reason::RESTARTED)?;
        let label = Label::Answer(incoming).encode();
        let out = self.endpoint.open(&label, self.config.dedup);
        let out = out.map_err(|_| reason::TOO_MANY)?;
        (talk.out, talk.out_open) = (Some(out), true);
        self.by_out.insert(out, (id, talk.host));
        self.kick();
        Ok(())
    }

    /// Refuses the stream.
    pub(crate) fn refuse(&mut self, id: TalkId, reason: u32) {
        self.end(id, reason);
    }

    /// Writes bytes to a stream.
    pub(crate) fn write(
        &mut self,
        id: TalkId,
        bytes: &[u8],
        now: Instant,
        waker: &Waker,
        turn: &mut Turn,
    ) -> Written {
        let stream = match self.writable(id) {
            Ok(stream) => stream,
            Err(reason) => return Written::Ended(reason),
        };
        if !bytes.is_empty() {
            self.first_is(id, stream, self.config.probe && probe::is_opaque(bytes));
        }
        let before = self.endpoint.sender().counters().recognised;
        let mut store = self.store.non_blocking();
        let written = self
            .endpoint
            .write(stream, bytes, &mut store, &mut self.codec);
        let wanted = store.into_pending();
        self.stalls(stream, wanted);
        match written {
            Ok(0) if !bytes.is_empty() => {
                self.wait_for_room(id, waker);
                Written::Full
            }
            Ok(written) => {
                self.spend(written, before, turn);
                self.wrote(id, stream, now);
                Written::Bytes(written)
            }
            Err(_) => Written::Ended(reason::GIVEN_UP),
        }
    }

    /// Like [`write`](Self::write), but `read` writes the bytes straight into the sender's buffer. `read` must not
    /// block.
    pub(crate) fn write_from(
        &mut self,
        id: TalkId,
        now: Instant,
        waker: &Waker,
        turn: &mut Turn,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Written> {
        let stream = match self.writable(id) {
            Ok(stream) => stream,
            Err(reason) => return Ok(Written::Ended(reason)),
        };
        let (store, codec) = (&mut self.store, &mut self.codec);
        let spare = match self.endpoint.spare(stream, store, codec) {
            Ok(Some(spare)) => spare,
            Ok(None) => {
                self.wait_for_room(id, waker);
                return Ok(Written::Full);
            }
            Err(_) => return Ok(Written::Ended(reason::GIVEN_UP)),
        };
        let read = read(spare);
        let bytes = *read.as_ref().unwrap_or(&0);
        let opaque = bytes > 0 && self.config.probe && probe::is_opaque(&spare[..bytes]);
        if bytes > 0 {
            self.first_is(id, stream, opaque);
        }
        let before = self.endpoint.sender().counters().recognised;
        // This is also called for zero bytes, so that the stream keeps no memory for them.
        let mut store = self.store.non_blocking();
        self.endpoint
            .filled(stream, bytes, &mut store, &mut self.codec);
        let wanted = store.into_pending();
        self.stalls(stream, wanted);
        if bytes > 0 {
            self.spend(bytes, before, turn);
            self.wrote(id, stream, now);
        } else if self.endpoint.sender().backlog(stream) {
            // The buffer was made available by ending a frame, which can now be sent.
            self.kick();
        }
        read.map(Written::Bytes)
    }

    /// Called after bytes of a stream were processed. If the stream is stalled, a connection is woken to perform
    /// its reads.
    fn stalls(&mut self, stream: StreamId, wanted: PendingReads) {
        if self.stalls.add(self.endpoint.sender(), stream, wanted, 1) {
            self.kick();
        }
    }

    /// Charges a write to the budget, by the cost of processing it. `before` is the count of recognised bytes
    /// before the write.
    fn spend(&self, written: usize, before: u64, turn: &mut Turn) {
        let recognised = self.endpoint.sender().counters().recognised - before;
        turn.spend_partly(written, usize::try_from(recognised).unwrap_or(written));
    }

    /// Returns the outgoing stream, or the reason why it cannot be written.
    fn writable(&self, id: TalkId) -> Result<StreamId, u32> {
        let talk = self.talks.get(&id).ok_or(reason::RESTARTED)?;
        if let Some(reason) = talk.out_stopped {
            return Err(reason);
        }
        talk.out.filter(|_| talk.out_open).ok_or(reason::GIVEN_UP)
    }

    /// Decides at the first write of a stream whether its bytes bypass deduplication.
    fn first_is(&mut self, id: TalkId, stream: StreamId, opaque: bool) {
        let talk = self.talks.get_mut(&id);
        let first = talk.is_some_and(|talk| !std::mem::replace(&mut talk.written, true));
        if first && opaque {
            self.endpoint.bypass(stream);
            self.tallies.bypassed += 1;
        }
    }

    fn wait_for_room(&mut self, id: TalkId, waker: &Waker) {
        if let Some(talk) = self.talks.get_mut(&id) {
            talk.writer = Some(waker.clone());
            if self.endpoint.sender().unacked() >= self.config.unacked_max {
                self.crowded.push_back(id);
            }
        }
    }

    /// Starts the holding time of written bytes, and wakes a connection if it has to know.
    fn wrote(&mut self, id: TalkId, stream: StreamId, now: Instant) {
        let Some(talk) = self.talks.get_mut(&id) else {
            return;
        };
        match &mut talk.hold {
            Some(hold) => hold.wrote(now),
            None => talk.hold = Some(Hold::new(now)),
        }
        if self.endpoint.sender().backlog(stream) {
            self.kick();
        } else if talk.due.is_none() {
            let due = talk.hold.as_ref().map_or(now, Hold::due);
            talk.due = Some(due);
            let first = self.due.first().is_none_or(|(first, _)| due < *first);
            self.due.insert((due, id));
            if first {
                self.kick();
            }
        }
    }

    /// Sets the end of the last write to now: the pause of the writer begins there.
    pub(crate) fn wrote_until(&mut self, id: TalkId, now: Instant) {
        if let Some(hold) = self.talks.get_mut(&id).and_then(|talk| talk.hold.as_mut()) {
            hold.wrote(now);
        }
    }

    /// Bytes written from now on bypass deduplication.
    pub(crate) fn bypass(&mut self, id: TalkId) {
        let talk = self.talks.get(&id).filter(|_| self.config.probe);
        if let Some(stream) = talk.and_then(|talk| talk.out)
            && self.endpoint.bypass(stream)
        {
            self.tallies.bypassed += 1;
        }
    }

    /// Sends a small amount of held bytes, because the writer has no more for now.
    pub(crate) fn flush(&mut self, id: TalkId) {
        let Some(talk) = self.talks.get_mut(&id) else {
            return;
        };
        let Some(stream) = talk.out else { return };
        let unsealed = self.endpoint.sender().unsealed(stream);
        if (1..=SMALL_BYTES).contains(&unsealed) && !self.endpoint.sender().backlog(stream) {
            let mut store = self.store.non_blocking();
            self.endpoint.flush(stream, &mut store, &mut self.codec);
            let wanted = store.into_pending();
            talk.hold = None;
            if let Some(due) = talk.due.take() {
                self.due.remove(&(due, id));
            }
            self.stalls(stream, wanted);
            self.kick();
        }
    }

    /// Ends the outgoing body.
    pub(crate) fn close(&mut self, id: TalkId) -> Result<(), u32> {
        let talk = self.talks.get_mut(&id).ok_or(reason::RESTARTED)?;
        if let Some(reason) = talk.out_stopped {
            return Err(reason);
        }
        if let Some(stream) = talk.out.filter(|_| talk.out_open) {
            talk.out_open = false;
            talk.hold = None;
            let mut store = self.store.non_blocking();
            let closed = self.endpoint.close(stream, &mut store, &mut self.codec);
            let wanted = store.into_pending();
            self.stalls(stream, wanted);
            self.kick();
            return closed.map_err(|_| reason::GIVEN_UP);
        }
        Ok(())
    }

    /// Returns the next bytes of the peer's body.
    pub(crate) fn read(&mut self, id: TalkId, waker: &Waker) -> Read {
        let Some(talk) = self.talks.get_mut(&id) else {
            return Read::Failed(reason::RESTARTED);
        };
        match talk.in_end {
            Some(Ok(())) => return Read::End,
            Some(Err(reason)) => return Read::Failed(reason),
            None => {}
        }
        let Some(stream) = talk.incoming else {
            // The peer refused the stream before it was answered.
            if let Some(reason) = talk.out_stopped {
                return Read::Failed(reason);
            }
            talk.reader = Some(waker.clone());
            return Read::Wait;
        };
        let ended = match self.endpoint.take(stream) {
            Taken::Bytes(bytes) => {
                // Reading releases credit, which has to be sent.
                self.kick();
                return Read::Bytes(bytes);
            }
            Taken::Wait => {
                talk.reader = Some(waker.clone());
                return Read::Wait;
            }
            Taken::Complete => Ok(()),
            Taken::Failed(reason) => Err(reason),
            Taken::Unknown => Err(reason::RESTARTED),
        };
        talk.in_end = Some(ended);
        self.by_in.remove(&stream);
        self.kick();
        match ended {
            Ok(()) => Read::End,
            Err(reason) => Read::Failed(reason),
        }
    }

    /// Returns whether the peer accepted the stream, or why not. `None`: still unknown, and the waker is kept.
    pub(crate) fn answered(&mut self, id: TalkId, waker: &Waker) -> Option<Result<(), u32>> {
        let Some(talk) = self.talks.get_mut(&id) else {
            return Some(Err(reason::RESTARTED));
        };
        if talk.incoming.is_some() {
            return Some(Ok(()));
        }
        if let Some(reason) = talk.out_stopped {
            return Some(Err(reason));
        }
        talk.reader = Some(waker.clone());
        None
    }

    /// Removes a stream that has no user any more. A closed body is still delivered; an open one is reset.
    pub(crate) fn detach(&mut self, id: TalkId) {
        let Some(talk) = self.talks.remove(&id) else {
            return;
        };
        if let Some(due) = talk.due {
            self.due.remove(&(due, id));
        }
        if let Some(stream) = talk.out {
            let under_way = !talk.out_open && !talk.out_complete && talk.out_stopped.is_none();
            if !under_way {
                self.by_out.remove(&stream);
            }
            if talk.out_open && talk.out_stopped.is_none() {
                self.endpoint.reset(stream, reason::GIVEN_UP);
            }
        }
        if let Some(stream) = talk.incoming {
            self.by_in.remove(&stream);
            if talk.in_end.is_none() {
                self.endpoint.stop(stream, reason::GIVEN_UP);
            }
        }
        self.kick();
    }

    /// Resets a stream in both directions.
    fn end(&mut self, id: TalkId, reason: u32) {
        let Some(talk) = self.talks.get_mut(&id) else {
            return;
        };
        if let Some(stream) = talk.out
            && talk.out_stopped.is_none()
        {
            self.endpoint.reset(stream, reason);
        }
        if let Some(stream) = talk.incoming
            && talk.in_end.is_none()
        {
            self.endpoint.stop(stream, reason);
            self.by_in.remove(&stream);
        }
        talk.out_stopped.get_or_insert(reason);
        talk.in_end.get_or_insert(Err(reason));
        self.wake.extend(talk.reader.take());
        self.wake.extend(talk.writer.take());
        self.kick();
    }

    /// Resets every stream, because the link was down for too long or is shutting down.
    pub(crate) fn give_up(&mut self, reason: u32) {
        let all: Vec<_> = self.talks.keys().copied().collect();
        all.into_iter().for_each(|id| self.end(id, reason));
    }

    /// Like [`give_up`](Self::give_up), and refuses new streams.
    pub(crate) fn shut(&mut self) {
        self.closed = true;
        self.give_up(reason::GIVEN_UP);
        self.wake.extend(self.begun_waker.take());
    }

    pub(crate) fn is_shut(&self) -> bool {
        self.closed
    }

    /// Ends all streams, because the state machines have forgotten them.
    pub(super) fn end_all(&mut self, reason: u32) {
        self.by_out.clear();
        self.by_in.clear();
        self.begun.clear();
        self.due.clear();
        self.crowded.clear();
        for talk in self.talks.values_mut() {
            (talk.out, talk.incoming, talk.hold, talk.due) = (None, None, None, None);
            talk.out_open = false;
            talk.out_stopped.get_or_insert(reason);
            talk.in_end.get_or_insert(Err(reason));
            self.wake.extend(talk.reader.take());
            self.wake.extend(talk.writer.take());
        }
    }

    pub(super) fn new_talk(&mut self, target: Target, ours: bool) -> TalkId {
        let id = self.talk_next;
        self.talk_next += 1;
        let host = self.tallies.host(&target);
        let talk = Talk {
            target,
            host,
            ours,
            out: None,
            out_open: false,
            out_complete: false,
            out_stopped: None,
            incoming: None,
            in_end: None,
            reader: None,
            writer: None,
            hold: None,
            due: None,
            written: false,
        };
        self.talks.insert(id, talk);
        id
    }
}
