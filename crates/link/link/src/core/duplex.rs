//! Duplex streams: the functions of [`Core`] that the users of a stream call to open, read, write and close it.

use std::io;
use std::time::Instant;

use bytes::Bytes;

use edgeward_dedup::reason;
use edgeward_dedup::receiver::TakeResult;
use edgeward_dedup::sender::SendError;
use edgeward_dedup::wire::StreamId;

use super::{Core, DuplexId};
use crate::budget::Budget;
use crate::label::{Label, Target};
use crate::probe;
use crate::send_delay::{SMALL_BYTES, SendDelay};
use crate::traffic::StreamRows;

/// A duplex stream: one one-way stream of the protocol in each direction, and the state of its held bytes. These are
/// written bytes that wait for later bytes, see [`crate::send_delay`].
pub(super) struct Duplex {
    pub(super) target: Target,
    /// The rows of the stream's counters.
    pub(super) rows: StreamRows,
    /// True if this endpoint opened the stream, false if the peer did.
    pub(super) opened_here: bool,
    /// The outgoing one-way stream. `None` until a stream of the peer is accepted, and after the peer has restarted.
    pub(super) outgoing: Option<StreamId>,
    /// True while bytes may be written.
    pub(super) is_writable: bool,
    /// True if the peer has acknowledged all bytes.
    pub(super) is_delivered: bool,
    /// The reason why the outgoing stream was stopped: by the peer, by a reset, or by a restart of the peer.
    pub(super) stop_reason: Option<u32>,
    /// The incoming one-way stream. `None` until the peer accepts a stream opened here, and after it has restarted.
    pub(super) incoming: Option<StreamId>,
    /// The end of the incoming body: complete, or failed with this reason. `None` until then.
    pub(super) incoming_end: Option<Result<(), u32>>,
    /// True if the writer waits for credit.
    pub(super) writer_waits: bool,
    /// True while the stream is in `Core::writers_at_limit`.
    pub(super) waits_at_limit: bool,
    /// The times of the held bytes, if bytes are held.
    pub(super) send_delay: Option<SendDelay>,
    /// The time of the next decision about the held bytes, if it is scheduled.
    pub(super) next_decision: Option<Instant>,
    /// True after the first write.
    pub(super) has_written: bool,
}

impl Duplex {
    /// Records that the writer can write again. Returns true if it has waited.
    pub(super) fn resume_writer(&mut self) -> bool {
        let has_waited = std::mem::take(&mut self.writer_waits);
        if let Some(send_delay) = self.send_delay.as_mut().filter(|_| has_waited) {
            send_delay.record_resume();
        }
        has_waited
    }

    /// If bytes are held and no decision about them is scheduled, returns the time of the next decision and records
    /// it. The caller adds this time to `Core::send_decisions`.
    pub(super) fn schedule_decision(&mut self) -> Option<Instant> {
        let due = self
            .send_delay
            .as_ref()
            .map(SendDelay::first_decision)
            .filter(|_| self.next_decision.is_none());
        self.next_decision = self.next_decision.or(due);
        due
    }
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Bytes(usize),
    /// No byte was accepted, because the stream has no credit or too many bytes to the peer are unacknowledged.
    /// [`Core::take_ready`] lists the stream when the writer can try again.
    Full,
    /// The stream accepts no more bytes: it was stopped with this reason, or closed.
    Ended(u32),
}

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Bytes(Bytes),
    /// No bytes have arrived. [`Core::take_ready`] lists the stream when the reader can try again.
    Wait,
    /// The body is complete.
    End,
    /// The body was aborted for this reason.
    Failed(u32),
}

impl Core {
    /// Opens a stream to a target.
    pub(crate) fn open(&mut self, target: Target) -> Result<DuplexId, SendError> {
        let label = Label::Open(target.clone()).encode();
        let out = self.endpoint.open(&label, self.config.dedup)?;
        let id = self.new_duplex(target, true);
        let duplex = self
            .duplexes
            .get_mut(&id)
            .expect("the stream was just created");
        (duplex.outgoing, duplex.is_writable) = (Some(out), true);
        self.outgoing_streams.insert(out, (id, duplex.rows));
        Ok(id)
    }

    /// Returns the next stream that the peer opened.
    pub(crate) fn next_opened(&mut self) -> Option<(DuplexId, Target)> {
        while let Some(id) = self.unaccepted.pop_front() {
            if let Some(duplex) = self.duplexes.get(&id) {
                return Some((id, duplex.target.clone()));
            }
        }
        None
    }

    /// Accepts a stream that the peer opened, so that it can be written. An error is the reason to send to the peer.
    pub(crate) fn accept(&mut self, id: DuplexId) -> Result<(), u32> {
        let duplex = self.duplexes.get_mut(&id).ok_or(reason::RESTARTED)?;
        let incoming = duplex.incoming.ok_or(reason::RESTARTED)?;
        let label = Label::Answer(incoming).encode();
        let out = self.endpoint.open(&label, self.config.dedup);
        let out = out.map_err(|_| reason::TOO_MANY)?;
        (duplex.outgoing, duplex.is_writable) = (Some(out), true);
        self.outgoing_streams.insert(out, (id, duplex.rows));
        Ok(())
    }

    /// Refuses a stream that the peer opened.
    pub(crate) fn refuse(&mut self, id: DuplexId, reason: u32) {
        self.reset(id, reason);
    }

    /// Writes bytes to a stream. The stream may accept only a part of them.
    pub(crate) fn write(
        &mut self,
        id: DuplexId,
        bytes: &[u8],
        now: Instant,
        budget: &mut Budget,
    ) -> Written {
        let stream = match self.writable(id) {
            Ok(stream) => stream,
            Err(reason) => return Written::Ended(reason),
        };
        if !bytes.is_empty() {
            let opaque = self.probe(bytes);
            self.probe_first_bytes(id, stream, opaque);
        }
        let before = self.endpoint.sender().counters().recognised;
        let written = self.endpoint.write(stream, bytes);
        self.answer_own_requests();
        match written {
            Ok(0) if !bytes.is_empty() => {
                self.wait_for_credit(id);
                Written::Full
            }
            Ok(written) => {
                self.spend(written, before, budget);
                self.start_send_delay(id, stream, now);
                Written::Bytes(written)
            }
            Err(_) => Written::Ended(reason::CANCELLED),
        }
    }

    /// Like [`write`](Self::write), but without a copy: the function `read` gets a part of the sender's buffer, reads
    /// bytes into it and returns their number. `read` must not block.
    pub(crate) fn write_from(
        &mut self,
        id: DuplexId,
        now: Instant,
        budget: &mut Budget,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Written> {
        let stream = match self.writable(id) {
            Ok(stream) => stream,
            Err(reason) => return Ok(Written::Ended(reason)),
        };
        let spare = match self.endpoint.spare(stream) {
            Ok(Some(spare)) => spare,
            Ok(None) => {
                self.wait_for_credit(id);
                return Ok(Written::Full);
            }
            Err(_) => return Ok(Written::Ended(reason::CANCELLED)),
        };
        let read = read(spare);
        let bytes = *read.as_ref().unwrap_or(&0);
        let probes = bytes > 0 && self.config.probe;
        let opaque = probes
            .then(|| probe::opaque_type(&spare[..bytes]))
            .flatten();
        if bytes > 0 {
            self.probe_first_bytes(id, stream, opaque);
        }
        let before = self.endpoint.sender().counters().recognised;
        // This call is needed even if no byte was read: it returns the memory of the buffer that `spare` reserved.
        self.endpoint.filled(stream, bytes);
        self.answer_own_requests();
        if bytes > 0 {
            self.spend(bytes, before, budget);
            self.start_send_delay(id, stream, now);
        }
        read.map(Written::Bytes)
    }

    /// Charges the written bytes to the budget. Bytes that were recognised by fingerprints cost less; `before` is the
    /// sender's counter of recognised bytes before the write.
    fn spend(&self, written: usize, before: u64, budget: &mut Budget) {
        let recognised = self.endpoint.sender().counters().recognised - before;
        budget.spend_recognised(written, usize::try_from(recognised).unwrap_or(written));
    }

    /// Returns the outgoing stream, or the reason why no bytes can be written to it.
    fn writable(&self, id: DuplexId) -> Result<StreamId, u32> {
        let duplex = self.duplexes.get(&id).ok_or(reason::RESTARTED)?;
        if let Some(reason) = duplex.stop_reason {
            return Err(reason);
        }
        duplex
            .outgoing
            .filter(|_| duplex.is_writable)
            .ok_or(reason::CANCELLED)
    }

    /// Returns the content type of opaque bytes (encrypted or compressed), if the configuration allows the probe.
    fn probe(&self, bytes: &[u8]) -> Option<&'static str> {
        self.config.probe.then(|| probe::opaque_type(bytes))?
    }

    /// At the first write of a stream: if the bytes are opaque, turns deduplication off.
    fn probe_first_bytes(&mut self, id: DuplexId, stream: StreamId, opaque: Option<&'static str>) {
        let duplex = self.duplexes.get_mut(&id);
        let first = duplex.is_some_and(|duplex| !std::mem::replace(&mut duplex.has_written, true));
        if let Some(content_type) = opaque.filter(|_| first) {
            self.endpoint.bypass(stream);
            self.traffic.bypassed += 1;
            self.set_content_type(id, content_type);
        }
    }

    /// Sets the content type with which the outgoing body is counted from now on.
    pub(crate) fn set_content_type(&mut self, id: DuplexId, content_type: &str) {
        let Some(duplex) = self.duplexes.get_mut(&id) else {
            return;
        };
        duplex.rows = self.traffic.set_content_type(duplex.rows, content_type);
        let stream = duplex.outgoing;
        if let Some((_, rows)) = stream.and_then(|stream| self.outgoing_streams.get_mut(&stream)) {
            *rows = duplex.rows;
        }
    }

    /// Records that the writer waits for credit or for the limit of unacknowledged bytes.
    fn wait_for_credit(&mut self, id: DuplexId) {
        if let Some(duplex) = self.duplexes.get_mut(&id) {
            duplex.writer_waits = true;
            if self.endpoint.sender().unacked() >= self.config.unacked_max
                && !std::mem::replace(&mut duplex.waits_at_limit, true)
            {
                self.writers_at_limit.push_back(id);
            }
        }
    }

    /// Starts or extends the holding time of written bytes.
    fn start_send_delay(&mut self, id: DuplexId, stream: StreamId, now: Instant) {
        let Some(duplex) = self.duplexes.get_mut(&id) else {
            return;
        };
        match &mut duplex.send_delay {
            Some(send_delay) => send_delay.record_write(now),
            None => duplex.send_delay = Some(SendDelay::new(now)),
        }
        if !self.endpoint.sender().has_backlog(stream) && duplex.next_decision.is_none() {
            let due = duplex
                .send_delay
                .as_ref()
                .map_or(now, SendDelay::first_decision);
            duplex.next_decision = Some(due);
            self.send_decisions.insert((due, id));
        }
    }

    /// Sets the time of the last write to `now`, the time at which the written bytes were processed.
    pub(crate) fn set_write_end(&mut self, id: DuplexId, now: Instant) {
        if let Some(send_delay) = self
            .duplexes
            .get_mut(&id)
            .and_then(|duplex| duplex.send_delay.as_mut())
        {
            send_delay.record_write(now);
        }
    }

    /// Turns deduplication of a stream off, if it has not begun and the configuration allows it (`probe`).
    pub(crate) fn bypass(&mut self, id: DuplexId) {
        let duplex = self.duplexes.get(&id).filter(|_| self.config.probe);
        if let Some(stream) = duplex.and_then(|duplex| duplex.outgoing)
            && self.endpoint.bypass(stream)
        {
            self.traffic.bypassed += 1;
        }
    }

    /// Called when the writer flushes. Sends the held bytes at once if they are at most [`SMALL_BYTES`].
    pub(crate) fn flush(&mut self, id: DuplexId) {
        let Some(duplex) = self.duplexes.get_mut(&id) else {
            return;
        };
        let Some(stream) = duplex.outgoing else {
            return;
        };
        let unframed_bytes = self.endpoint.sender().unframed_bytes(stream);
        if (1..=SMALL_BYTES).contains(&unframed_bytes)
            && !self.endpoint.sender().has_backlog(stream)
        {
            self.endpoint.flush(stream);
            duplex.send_delay = None;
            if let Some(due) = duplex.next_decision.take() {
                self.send_decisions.remove(&(due, id));
            }
            self.answer_own_requests();
        }
    }

    /// Ends the outgoing body. Fails with the reason if the stream was stopped before.
    pub(crate) fn close(&mut self, id: DuplexId) -> Result<(), u32> {
        let duplex = self.duplexes.get_mut(&id).ok_or(reason::RESTARTED)?;
        if let Some(reason) = duplex.stop_reason {
            return Err(reason);
        }
        if let Some(stream) = duplex.outgoing.filter(|_| duplex.is_writable) {
            duplex.is_writable = false;
            duplex.send_delay = None;
            let closed = self.endpoint.close(stream);
            self.answer_own_requests();
            return closed.map_err(|_| reason::CANCELLED);
        }
        Ok(())
    }

    /// Returns the next bytes of the peer's body.
    pub(crate) fn read(&mut self, id: DuplexId) -> Read {
        let Some(duplex) = self.duplexes.get_mut(&id) else {
            return Read::Failed(reason::RESTARTED);
        };
        match duplex.incoming_end {
            Some(Ok(())) => return Read::End,
            Some(Err(reason)) => return Read::Failed(reason),
            None => {}
        }
        let Some(stream) = duplex.incoming else {
            // The peer refused the stream instead of opening the incoming one-way stream.
            if let Some(reason) = duplex.stop_reason {
                return Read::Failed(reason);
            }
            return Read::Wait;
        };
        let end = match self.endpoint.take(stream) {
            TakeResult::Bytes(bytes) => return Read::Bytes(bytes),
            TakeResult::Wait => return Read::Wait,
            TakeResult::Complete => Ok(()),
            TakeResult::Failed(reason) => Err(reason),
            TakeResult::Unknown => Err(reason::RESTARTED),
        };
        duplex.incoming_end = Some(end);
        self.incoming_streams.remove(&stream);
        match end {
            Ok(()) => Read::End,
            Err(reason) => Read::Failed(reason),
        }
    }

    /// Returns `Ok` if the peer accepted the stream, or the reason of a refusal, or `None` if the peer has not decided
    /// yet.
    pub(crate) fn accepted(&self, id: DuplexId) -> Option<Result<(), u32>> {
        let Some(duplex) = self.duplexes.get(&id) else {
            return Some(Err(reason::RESTARTED));
        };
        if duplex.incoming.is_some() {
            return Some(Ok(()));
        }
        duplex.stop_reason.map(Err)
    }

    /// Stops the incoming body, whose remaining bytes are not needed.
    pub(crate) fn stop_reading(&mut self, id: DuplexId) {
        if let Some(duplex) = self.duplexes.get_mut(&id)
            && duplex.incoming_end.is_none()
        {
            // If the peer has not accepted the stream yet, its answer is stopped when it arrives.
            duplex.incoming_end = Some(Err(reason::CANCELLED));
            if let Some(stream) = duplex.incoming {
                self.incoming_streams.remove(&stream);
                self.endpoint.stop(stream, reason::CANCELLED);
            }
        }
    }

    /// Removes a stream whose user has dropped it. If the outgoing body was closed, its remaining bytes are still
    /// delivered; otherwise the outgoing stream is reset.
    pub(crate) fn detach(&mut self, id: DuplexId) {
        let Some(duplex) = self.duplexes.remove(&id) else {
            return;
        };
        if let Some(due) = duplex.next_decision {
            self.send_decisions.remove(&(due, id));
        }
        if let Some(stream) = duplex.outgoing {
            let is_in_transit =
                !duplex.is_writable && !duplex.is_delivered && duplex.stop_reason.is_none();
            if !is_in_transit {
                self.outgoing_streams.remove(&stream);
            }
            if duplex.is_writable && duplex.stop_reason.is_none() {
                self.endpoint.reset(stream, reason::CANCELLED);
            }
        }
        if let Some(stream) = duplex.incoming {
            self.incoming_streams.remove(&stream);
            if duplex.incoming_end.is_none() {
                self.endpoint.stop(stream, reason::CANCELLED);
            }
        }
    }

    /// Resets a stream in both directions.
    fn reset(&mut self, id: DuplexId, reason: u32) {
        let Some(duplex) = self.duplexes.get_mut(&id) else {
            return;
        };
        if let Some(stream) = duplex.outgoing
            && duplex.stop_reason.is_none()
        {
            self.endpoint.reset(stream, reason);
        }
        if let Some(stream) = duplex.incoming
            && duplex.incoming_end.is_none()
        {
            self.endpoint.stop(stream, reason);
            self.incoming_streams.remove(&stream);
        }
        duplex.stop_reason.get_or_insert(reason);
        duplex.incoming_end.get_or_insert(Err(reason));
        self.ready.push(id);
    }

    /// Resets all streams. Called if the link was down for too long or is shutting down.
    pub(crate) fn reset_all(&mut self, reason: u32) {
        let all: Vec<_> = self.duplexes.keys().copied().collect();
        all.into_iter().for_each(|id| self.reset(id, reason));
    }

    /// Resets all streams, detaches all connections, and refuses new streams from then on.
    pub(crate) fn shut_down(&mut self) {
        self.is_shut_down = true;
        self.reset_all(reason::CANCELLED);
        self.detach_connections();
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.is_shut_down
    }

    /// Ends all streams after the peer has restarted. Sender and receiver have dropped their one-way streams before.
    pub(super) fn fail_all(&mut self, reason: u32) {
        self.outgoing_streams.clear();
        self.incoming_streams.clear();
        self.unaccepted.clear();
        self.send_decisions.clear();
        self.writers_at_limit.clear();
        for (id, duplex) in &mut self.duplexes {
            (
                duplex.outgoing,
                duplex.incoming,
                duplex.send_delay,
                duplex.next_decision,
            ) = (None, None, None, None);
            duplex.is_writable = false;
            duplex.stop_reason.get_or_insert(reason);
            duplex.incoming_end.get_or_insert(Err(reason));
            self.ready.push(*id);
        }
    }

    /// Adds a duplex stream without one-way streams, and returns its id.
    pub(super) fn new_duplex(&mut self, target: Target, opened_here: bool) -> DuplexId {
        let id = self.next_duplex;
        self.next_duplex += 1;
        let rows = self.traffic.add_stream(&target);
        let duplex = Duplex {
            target,
            rows,
            opened_here,
            outgoing: None,
            is_writable: false,
            is_delivered: false,
            stop_reason: None,
            incoming: None,
            incoming_end: None,
            writer_waits: false,
            waits_at_limit: false,
            send_delay: None,
            next_decision: None,
            has_written: false,
        };
        self.duplexes.insert(id, duplex);
        id
    }
}
