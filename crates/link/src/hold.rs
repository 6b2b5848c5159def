//! How long written bytes are held back until a chunk or a batch is complete.
//!
//! Bytes that are sent at once arrive early; bytes that are held back can be deduplicated or compressed together.
//! While frames of the same body wait for the connection, no decision is needed. Otherwise:
//!
//! - A flush of few bytes, such as a request or a line of a terminal, sends them at once.
//! - Whole chunks are held for [`HOLD`].
//! - The incomplete last chunk is held until no byte was written for [`HOLD`]. If writing does not pause, it is
//!   held for [`HOLD_UNFINISHED`]: most of these chunks turn out to be known, and sending the beginning of one
//!   wastes bytes.
//! - A writer that has used up its credit continues as soon as the peer grants more, so the incomplete chunk is
//!   held until then.

use std::time::{Duration, Instant};

/// How long whole chunks are held, and an incomplete chunk after the last write.
pub(crate) const HOLD: Duration = Duration::from_micros(200);

/// How long an incomplete chunk is held while writing continues.
pub(crate) const HOLD_UNFINISHED: Duration = Duration::from_millis(2);

/// How long the acknowledgement of few bytes is held: most targets answer within it.
pub(crate) const HOLD_ACKS: Duration = Duration::from_millis(1);

/// Up to this many bytes are sent as soon as they are flushed: a reference would save little.
pub(crate) const SMALL_BYTES: usize = 2 << 10;

/// The held bytes of one body, and since when they are held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    first: Instant,
    last: Instant,
    /// When the incomplete chunk began, as far as it is known.
    unfinished: Instant,
    /// The sealed offset of the body at that time.
    sealed: u64,
    /// True if the writer was woken after waiting for room, and more writes are expected.
    resumed: bool,
}

/// The action to take now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing; ask again at this time.
    Wait(Instant),
    /// Send the whole chunks; ask again at this time.
    Whole(Instant),
    /// Send everything.
    All,
}

impl Hold {
    /// Begins the hold at the first write.
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

    /// Records that a writer that had waited for room can continue.
    pub(crate) fn resume(&mut self) {
        self.resumed = true;
    }

    /// Records the offset up to which the body is sealed into frames. If it has grown, the held bytes are newer
    /// than that.
    pub(crate) fn sealed_up_to(&mut self, sealed: u64, now: Instant) {
        if std::mem::take(&mut self.resumed) {
            (self.last, self.unfinished) = (now, now);
        }
        if sealed > self.sealed {
            (self.sealed, self.unfinished) = (sealed, now);
        }
    }

    /// Returns when to ask for the first verdict.
    pub(crate) fn due(&self) -> Instant {
        self.first + HOLD
    }

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

    /// No byte is sent before 200 µs. All bytes are sent 200 µs after the last write, and 2 ms after the first in
    /// any case.
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

    /// If chunks end continually, no chunk is sent incomplete because of the chunks before it.
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
