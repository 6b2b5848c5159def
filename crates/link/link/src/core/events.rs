//! Handles the events of the sender and the receiver: opens streams, and lists those whose users can continue.
//!
//! A *duplex stream* consists of two one-way streams of the protocol, one in each direction.

use edgeward_dedup::endpoint::Event;
use edgeward_dedup::reason;
use edgeward_dedup::receiver::ReceiverEvent;
use edgeward_dedup::sender::SenderEvent;
use edgeward_dedup::wire::StreamId;

use super::{Core, DuplexId};
use crate::label::{Label, refusal_reason};

impl Core {
    /// Handles all events of the sender and the receiver.
    pub(super) fn handle_events(&mut self) {
        while let Some(event) = self.endpoint.event() {
            match event {
                Event::Received(ReceiverEvent::Opened { stream, label }) => {
                    self.handle_open(stream, &label);
                }
                Event::Received(ReceiverEvent::Ready(stream)) => {
                    if let Some((duplex, _)) = self.incoming_streams.get(&stream) {
                        self.ready.push(*duplex);
                    }
                }
                Event::Sent(SenderEvent::Complete(stream)) => {
                    let duplex = self.outgoing_streams.get(&stream);
                    match duplex.and_then(|(duplex, _)| self.duplexes.get_mut(duplex)) {
                        Some(duplex) => duplex.is_delivered = true,
                        None => _ = self.outgoing_streams.remove(&stream),
                    }
                }
                Event::Sent(SenderEvent::Stopped { stream, reason }) => {
                    let Some(&(id, _)) = self.outgoing_streams.get(&stream) else {
                        continue;
                    };
                    match self.duplexes.get_mut(&id) {
                        Some(duplex) => {
                            duplex.stop_reason.get_or_insert(reason);
                            duplex.send_delay = None;
                            self.ready.push(id);
                        }
                        None => _ = self.outgoing_streams.remove(&stream),
                    }
                }
            }
        }
    }

    /// Handles a one-way stream that the peer has opened with this label.
    fn handle_open(&mut self, stream: StreamId, label: &[u8]) {
        match Label::decode(label) {
            Some(Label::Open(_)) if !self.config.accepts || self.is_shut_down => {
                self.endpoint.stop(stream, refusal_reason::NOT_ALLOWED);
            }
            Some(Label::Open(target)) => {
                // `false`: the peer opened the stream.
                let id = self.new_duplex(target, false);
                let duplex = self
                    .duplexes
                    .get_mut(&id)
                    .expect("the stream was just created");
                duplex.incoming = Some(stream);
                // The counters of these rows count each frame that this stream receives.
                self.incoming_streams.insert(stream, (id, duplex.rows));
                self.unaccepted.push_back(id);
            }
            Some(Label::Answer(to)) => {
                // `DuplexId::MAX` is the id of no duplex stream.
                let id = self
                    .outgoing_streams
                    .get(&to)
                    .map_or(DuplexId::MAX, |(duplex, _)| *duplex);
                match self.duplexes.get_mut(&id) {
                    Some(duplex)
                        if duplex.opened_here
                            && duplex.incoming.is_none()
                            && duplex.incoming_end.is_none() =>
                    {
                        duplex.incoming = Some(stream);
                        self.incoming_streams.insert(stream, (id, duplex.rows));
                        self.ready.push(id);
                    }
                    // The duplex stream that the peer answers no longer exists here, or its user reads no more.
                    _ => self.endpoint.stop(stream, reason::CANCELLED),
                }
            }
            None => self.endpoint.stop(stream, refusal_reason::NOT_UNDERSTOOD),
        }
    }

    /// Called for streams with new acknowledgements or credit. Their writers can continue if the streams have credit.
    /// Writers that wait because all streams together reached the limit of unacknowledged bytes can continue too.
    pub(super) fn resume_writers(&mut self, progressed: Vec<StreamId>) {
        let has_progress = !progressed.is_empty();
        for stream in progressed {
            if let Some((id, _)) = self.outgoing_streams.get(&stream)
                && let Some(duplex) = self.duplexes.get_mut(id)
                && duplex.writer_waits
            {
                if self.endpoint.sender().writable_bytes(stream) > 0 {
                    self.ready.extend(duplex.resume_writer().then_some(*id));
                }
                // While the writer waits, its incomplete last chunk is held as long as frames of the stream are
                // unacknowledged. Perhaps no such frame is left now, so the next decision about the held bytes is
                // scheduled.
                self.send_decisions
                    .extend(duplex.schedule_decision().map(|due| (due, *id)));
            }
        }
        // Resumes one writer, and one more per `SHARE_BYTES` of free bytes. A writer that cannot write waits again.
        let unacked = self.endpoint.sender().unacked();
        let free = self.config.unacked_max.saturating_sub(unacked);
        if has_progress && free > 0 {
            let resumed = self.writers_at_limit.len().min(1 + free / SHARE_BYTES);
            for id in self.writers_at_limit.drain(..resumed) {
                if let Some(duplex) = self.duplexes.get_mut(&id) {
                    duplex.waits_at_limit = false;
                    self.ready.extend(duplex.resume_writer().then_some(id));
                    self.send_decisions
                        .extend(duplex.schedule_decision().map(|due| (due, id)));
                }
            }
        }
    }
}

/// The number of bytes that one resumed writer is expected to write.
const SHARE_BYTES: usize = 16 << 10;
