//! Decides how long written bytes are held back before they are sent.
//!
//! Bytes that are sent at once arrive earlier. Bytes that are held back until their chunk is complete can be
//! replaced by a reference, and several chunks can be compressed together. While earlier frames of a body are
//! still queued, its held bytes must wait for them and no decision is needed. If no frame of the body is
//! queued:
//!
//! - If the writer flushes few bytes, such as a request or a line of a terminal, they are sent at once.
//! - Complete chunks are held for [`SEND_DELAY`].
//! - The incomplete last chunk is held until no byte was written for [`SEND_DELAY`]. If the writer does not pause,
//!   the chunk is held for [`SEND_DELAY_MAX`]. If the peer has the chunk, this saves bytes: a complete chunk can be
//!   sent as a reference, but the beginning of a chunk cannot.
//! - While a writer waits for credit (the number of bytes that the peer permits), the incomplete chunk is held: the
//!   writer completes it when the peer grants more.

use std::time::{Duration, Instant};

/// The time for which complete chunks are held, and for which an incomplete chunk is held after the last write.
pub(crate) const SEND_DELAY: Duration = Duration::from_micros(200);

/// The time for which an incomplete chunk is held while the writer continues to write.
pub(crate) const SEND_DELAY_MAX: Duration = Duration::from_millis(2);

/// The time for which the acknowledgement of few bytes is held, so that it can be sent with the response. Most
/// targets (the servers to which a gateway connects) answer within this time.
pub(crate) const ACK_DELAY: Duration = Duration::from_millis(1);

/// Up to this many bytes are sent as soon as the writer flushes them, because a reference would save little.
pub(crate) const SMALL_BYTES: usize = 2 << 10;

/// The times that determine when the held bytes of one body are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendDelay {
    /// The times of the first and the last write of the held bytes.
    first_write: Instant,
    last_write: Instant,
    /// The start of the holding time of the incomplete chunk: the first write, the last decision at which
    /// `framed_offset` had grown, or the first decision after a wait for credit.
    chunk_start: Instant,
    /// The offset up to which the body was divided into frames at the last decision.
    framed_offset: u64,
    /// True if the writer was woken after a wait for credit, so that more writes are expected.
    was_resumed: bool,
}

/// The decision about held bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendAction {
    /// Send no bytes, and decide again at this time.
    Wait(Instant),
    /// Send the complete chunks, and decide again at this time.
    SendCompleteChunks(Instant),
    /// Send all held bytes.
    SendAll,
}

impl SendDelay {
    /// Starts the holding time at the first write.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            first_write: now,
            last_write: now,
            chunk_start: now,
            framed_offset: 0,
            was_resumed: false,
        }
    }

    /// Records another write.
    pub(crate) fn record_write(&mut self, now: Instant) {
        self.last_write = now;
    }

    /// Records that a writer that waited for credit can continue.
    pub(crate) fn record_resume(&mut self) {
        self.was_resumed = true;
    }

    /// Records the offset up to which the body has been divided into frames. If the offset has grown, the incomplete
    /// chunk was begun after the last call, and its holding time starts at `now`. The holding time also starts at `now`
    /// if the writer was resumed since the last call.
    pub(crate) fn set_framed_offset(&mut self, framed_offset: u64, now: Instant) {
        if std::mem::take(&mut self.was_resumed) {
            (self.last_write, self.chunk_start) = (now, now);
        }
        if framed_offset > self.framed_offset {
            (self.framed_offset, self.chunk_start) = (framed_offset, now);
        }
    }

    /// Returns the time of the first decision.
    pub(crate) fn first_decision(&self) -> Instant {
        self.first_write + SEND_DELAY
    }

    /// Returns the decision at the time `now`.
    pub(crate) fn action(&self, now: Instant) -> SendAction {
        if now < self.first_decision() {
            return SendAction::Wait(self.first_decision());
        }
        let pause_end = self.last_write + SEND_DELAY;
        let latest = self.chunk_start + SEND_DELAY_MAX;
        if now >= pause_end || now >= latest {
            SendAction::SendAll
        } else {
            SendAction::SendCompleteChunks(pause_end.min(latest))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No byte is sent within 200 µs after the first write. All bytes are sent when the writer has paused for 200 µs,
    /// and at the latest 2 ms after the first write.
    #[test]
    fn bytes_are_sent_when_writing_pauses() {
        let start = Instant::now();
        let at = |micros: u64| start + Duration::from_micros(micros);
        let mut send_delay = SendDelay::new(at(0));
        assert_eq!(send_delay.action(at(199)), SendAction::Wait(at(200)));
        assert_eq!(send_delay.action(at(200)), SendAction::SendAll);
        send_delay.record_write(at(150));
        assert_eq!(send_delay.action(at(199)), SendAction::Wait(at(200)));
        assert_eq!(
            send_delay.action(at(200)),
            SendAction::SendCompleteChunks(at(350))
        );
        assert_eq!(send_delay.action(at(350)), SendAction::SendAll);
        send_delay.record_write(at(1900));
        assert_eq!(
            send_delay.action(at(1999)),
            SendAction::SendCompleteChunks(at(2000))
        );
        assert_eq!(send_delay.action(at(2000)), SendAction::SendAll);
    }

    /// The holding time of an incomplete chunk starts when the chunk before it is complete. A body whose chunks are
    /// completed every 200 µs is never sent with an incomplete chunk.
    #[test]
    fn an_unfinished_chunk_waits_from_its_own_beginning() {
        let start = Instant::now();
        let at = |micros: u64| start + Duration::from_micros(micros);
        let mut send_delay = SendDelay::new(at(0));
        for round in 1..100_u64 {
            let now = round * 200;
            send_delay.record_write(at(now - 1));
            send_delay.set_framed_offset(round * 9000, at(now));
            assert_eq!(
                send_delay.action(at(now)),
                SendAction::SendCompleteChunks(at(now + 199))
            );
        }
        // After 19.8 ms no chunk ends any more.
        for now in [19_900, 20_000, 21_700] {
            send_delay.record_write(at(now));
            send_delay.set_framed_offset(99 * 9000, at(now));
            assert!(
                matches!(
                    send_delay.action(at(now)),
                    SendAction::SendCompleteChunks(_)
                ),
                "{now}"
            );
        }
        assert_eq!(send_delay.action(at(21_800)), SendAction::SendAll);
    }
}
