//! Decides how long written bytes are held back before they are sent.
//!
//! Bytes that are sent at once arrive earlier. Bytes that are held back until their chunk is complete can be
//! replaced by a reference, and several chunks can be compressed together. While earlier frames of a body are
//! still queued, its held bytes must wait for them and no decision is needed. Otherwise:
//!
//! - If the writer flushes few bytes, such as a request or a line of a terminal, they are sent at once.
//! - Complete chunks are held for [`HOLD`].
//! - The incomplete last chunk is held until no byte was written for [`HOLD`]. If the writer does not pause,
//!   the chunk is held for [`HOLD_UNFINISHED`]. Most chunks that begin in this way are known to the peer, so
//!   sending their beginning would waste bytes.
//! - While a writer waits for credit, the incomplete chunk is held: the writer completes it when the peer
//!   grants more.

use std::time::{Duration, Instant};

/// The time for which complete chunks are held, and for which an incomplete chunk is held after the last write.
pub(crate) const HOLD: Duration = Duration::from_micros(200);

/// The time for which an incomplete chunk is held while the writer continues to write.
pub(crate) const HOLD_UNFINISHED: Duration = Duration::from_millis(2);

/// The time for which the acknowledgement of few bytes is held, so that it can be sent with the response. Most
/// targets answer within this time.
pub(crate) const HOLD_ACKS: Duration = Duration::from_millis(1);

/// Up to this many bytes are sent as soon as the writer flushes them, because a reference would save little.
pub(crate) const SMALL_BYTES: usize = 2 << 10;

/// The times that determine when the held bytes of one body are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    /// The times of the first and the last write of the held bytes.
    first: Instant,
    last: Instant,
    /// The start of the holding time of the incomplete chunk: the first write, or the last decision at which
    /// `sealed` had grown.
    unfinished: Instant,
    /// The offset up to which the body was divided into frames at the time `unfinished`.
    sealed: u64,
    /// True if the writer was woken after a wait for credit, so that more writes are expected.
    resumed: bool,
}

/// The decision about held bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Send no bytes, and decide again at this time.
    Wait(Instant),
    /// Send the complete chunks, and decide again at this time.
    Whole(Instant),
    /// Send all held bytes.
    All,
}

impl Hold {
    /// Starts the holding time at the first write.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            first: now,
            last: now,
            unfinished: now,
            sealed: 0,
            resumed: false,
        }
    }

    /// Records another write.
    pub(crate) fn wrote(&mut self, now: Instant) {
        self.last = now;
    }

    /// Records that a writer that waited for credit can continue.
    pub(crate) fn resume(&mut self) {
        self.resumed = true;
    }

    /// Records the offset up to which the body has been divided into frames. If the offset has grown, the incomplete
    /// chunk was begun after the last call, and its holding time starts at `now`.
    pub(crate) fn sealed_up_to(&mut self, sealed: u64, now: Instant) {
        if std::mem::take(&mut self.resumed) {
            (self.last, self.unfinished) = (now, now);
        }
        if sealed > self.sealed {
            (self.sealed, self.unfinished) = (sealed, now);
        }
    }

    /// Returns the time of the first decision.
    pub(crate) fn due(&self) -> Instant {
        self.first + HOLD
    }

    /// Returns the decision at the time `now`.
    pub(crate) fn verdict(&self, now: Instant) -> Verdict {
        if now < self.due() {
            return Verdict::Wait(self.due());
        }
        let pause = self.last + HOLD;
        let end = self.unfinished + HOLD_UNFINISHED;
        if now >= pause || now >= end {
            Verdict::All
        } else {
            Verdict::Whole(pause.min(end))
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
        let mut hold = Hold::new(at(0));
        assert_eq!(hold.verdict(at(199)), Verdict::Wait(at(200)));
        assert_eq!(hold.verdict(at(200)), Verdict::All);
        hold.wrote(at(150));
        assert_eq!(hold.verdict(at(199)), Verdict::Wait(at(200)));
        assert_eq!(hold.verdict(at(200)), Verdict::Whole(at(350)));
        assert_eq!(hold.verdict(at(350)), Verdict::All);
        hold.wrote(at(1900));
        assert_eq!(hold.verdict(at(1999)), Verdict::Whole(at(2000)));
        assert_eq!(hold.verdict(at(2000)), Verdict::All);
    }

    /// The holding time of an incomplete chunk starts when the chunk before it is complete. A body whose chunks are
    /// completed every 200 µs is never sent with an incomplete chunk.
    #[test]
    fn an_unfinished_chunk_waits_from_its_own_beginning() {
        let start = Instant::now();
        let at = |micros: u64| start + Duration::from_micros(micros);
        let mut hold = Hold::new(at(0));
        for round in 1..100_u64 {
            let now = round * 200;
            hold.wrote(at(now - 1));
            hold.sealed_up_to(round * 9000, at(now));
            assert_eq!(hold.verdict(at(now)), Verdict::Whole(at(now + 199)));
        }
        // After 19.8 ms no chunk ends any more.
        for now in [19_900, 20_000, 21_700] {
            hold.wrote(at(now));
            hold.sealed_up_to(99 * 9000, at(now));
            assert!(matches!(hold.verdict(at(now)), Verdict::Whole(_)), "{now}");
        }
        assert_eq!(hold.verdict(at(21_800)), Verdict::All);
    }
}
