//! Events of the state machines, and the tasks that they wake.

use edgeward_dedup::endpoint::Event;
use edgeward_dedup::reason;
use edgeward_dedup::receiver::ReceiverEvent;
use edgeward_dedup::sender::SenderEvent;
use edgeward_dedup::wire::StreamId;

use super::{Core, TalkId};
use crate::label::{Label, refusal};

impl Core {
    /// Handles all events of the sender and the receiver.
    pub(super) fn events(&mut self) {
        while let Some(event) = self.endpoint.event() {
            match event {
                Event::Received(ReceiverEvent::Opened { stream, label }) => {
                    self.opened(stream, &label);
                }
                Event::Received(ReceiverEvent::Ready(stream)) => {
                    if let Some((talk, _)) = self.by_in.get(&stream) {
                        let talk = self.talks.get_mut(talk);
                        self.wake.extend(talk.and_then(|talk| talk.reader.take()));
                    }
                }
                Event::Sent(SenderEvent::Complete(stream)) => {
                    let talk = self.by_out.get(&stream);
                    match talk.and_then(|(talk, _)| self.talks.get_mut(talk)) {
                        Some(talk) => talk.out_complete = true,
                        None => _ = self.by_out.remove(&stream),
                    }
                }
                Event::Sent(SenderEvent::Stopped { stream, reason }) => {
                    let talk = self.by_out.get(&stream);
                    let talk = talk.and_then(|(talk, _)| self.talks.get_mut(talk));
                    if talk.is_none() {
                        self.by_out.remove(&stream);
                    }
                    if let Some(talk) = talk {
                        talk.out_stopped.get_or_insert(reason);
                        talk.hold = None;
                        self.wake.extend(talk.writer.take());
                        self.wake.extend(talk.reader.take());
                    }
                }
            }
        }
        // Nearly every event leaves an acknowledgement to send.
        self.kick();
    }

    fn opened(&mut self, stream: StreamId, label: &[u8]) {
        match Label::decode(label) {
            Some(Label::Begin(_)) if !self.config.accepts || self.closed => {
                self.endpoint.stop(stream, refusal::NOT_ALLOWED);
            }
            Some(Label::Begin(target)) => {
                let id = self.new_talk(target, false);
                let talk = self.talks.get_mut(&id).expect("it was just made");
                talk.incoming = Some(stream);
                self.by_in.insert(stream, (id, talk.host));
                self.begun.push_back(id);
                self.wake.extend(self.begun_waker.take());
            }
            Some(Label::Answer(to)) => {
                let id = self.by_out.get(&to).map_or(TalkId::MAX, |(talk, _)| *talk);
                match self.talks.get_mut(&id) {
                    Some(talk) if talk.ours && talk.incoming.is_none() => {
                        talk.incoming = Some(stream);
                        self.wake.extend(talk.reader.take());
                        self.by_in.insert(stream, (id, talk.host));
                    }
                    // The stream of this answer no longer exists.
                    _ => self.endpoint.stop(stream, reason::GIVEN_UP),
                }
            }
            None => self.endpoint.stop(stream, refusal::NOT_UNDERSTOOD),
        }
    }

    /// Wakes the writers of these streams if the peer grants them room, and writers that wait for the shared limit.
    pub(super) fn wake_writers(&mut self, news: Vec<StreamId>) {
        let heard = !news.is_empty();
        for stream in news {
            if let Some((id, _)) = self.by_out.get(&stream)
                && let Some(talk) = self.talks.get_mut(id)
                && talk.writer.is_some()
            {
                if self.endpoint.sender().room(stream) > 0 {
                    self.wake.extend(talk.wake_writer());
                }
                // The held bytes are checked again, because the sender may have no frame under way any more.
                self.due.extend(talk.ask_again().map(|due| (due, *id)));
            }
        }
        // Wakes as many writers as there may be room for. A writer that finds no room waits again.
        let unacked = self.endpoint.sender().unacked();
        let free = self.config.unacked_max.saturating_sub(unacked);
        if heard && free > 0 {
            let crowd = self.crowded.len().min(1 + free / SHARE_BYTES);
            for id in self.crowded.drain(..crowd) {
                if let Some(talk) = self.talks.get_mut(&id) {
                    self.wake.extend(talk.wake_writer());
                    self.due.extend(talk.ask_again().map(|due| (due, id)));
                }
            }
        }
    }
}

/// The number of bytes that a woken writer is expected to write at once.
const SHARE_BYTES: usize = 16 << 10;
