//! How long written bytes wait for more: for a chunk to end, for a batch to fill.
//!
//! Bytes that leave at once are on time, and bytes that wait a little can be named or compressed together. While frames of
//! the same body wait for the line there is nothing to decide: they are what it waits for. Otherwise
//! whoever flushes with little at hand (a question, a line of a terminal) is obeyed at once, whole chunks wait for
//! [`HOLD`], and the unfinished chunk at the end until nothing was written for as long. Where writing never pauses it
//! waits for [`HOLD_UNFINISHED`]: its beginning would be sent although most of such chunks turn out to be known. And where the
//! writer may write no more before the peer says something, which it will, it waits for that.

use std::time::{Duration, Instant};

/// How long whole chunks wait, and an unfinished one since something was last written.
pub(crate) const HOLD: Duration = Duration::from_micros(200);

/// How long an unfinished chunk waits while the writing goes on.
pub(crate) const HOLD_UNFINISHED: Duration = Duration::from_millis(2);

/// How long it waits to be said that something little arrived: most targets answer within it.
pub(crate) const HOLD_ANSWERS: Duration = Duration::from_millis(1);

/// Up to so much is sent as soon as it is flushed: a chunk of it would hardly be worth its name.
pub(crate) const SMALL_BYTES: usize = 2 << 10;

/// What waits of one body, and since when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    first: Instant,
    last: Instant,
    /// When the chunk that is unfinished was begun, as far as is known.
    unfinished: Instant,
    /// Up to where the body had left then.
    sealed: u64,
    /// The writer may go on, and is expected to.
    resumed: bool,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing, and ask again then.
    Wait(Instant),
    /// Whole chunks leave; ask again then.
    Whole(Instant),
    /// Everything leaves.
    All,
}

impl Hold {
    /// Something was written where nothing waited.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            first: now,
            last: now,
            unfinished: now,
            sealed: 0,
            resumed: false,
        }
    }

    /// More was written.
    pub(crate) fn wrote(&mut self, now: Instant) {
        self.last = now;
    }

    /// The writer, who could not go on, may.
    pub(crate) fn resume(&mut self) {
        self.resumed = true;
    }

    /// Up to where the body has left. If that is news, what waits came later than what did before.
    pub(crate) fn saw(&mut self, sealed: u64, now: Instant) {
        if std::mem::take(&mut self.resumed) {
            (self.last, self.unfinished) = (now, now);
        }
        if sealed > self.sealed {
            (self.sealed, self.unfinished) = (sealed, now);
        }
    }

    /// When to ask first.
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

    /// Nothing leaves before its time, all of it 200 µs after the last write, and 2 ms after the first in any case.
    #[test]
    fn bytes_leave_when_writing_pauses() {
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

    /// Where chunks end all the time, none is sent unfinished because of those before it.
    #[test]
    fn an_unfinished_chunk_waits_from_its_own_beginning() {
        let start = Instant::now();
        let at = |micros: u64| start + Duration::from_micros(micros);
        let mut hold = Hold::new(at(0));
        for round in 1..100_u64 {
            let now = round * 200;
            hold.wrote(at(now - 1));
            hold.saw(round * 9000, at(now));
            assert_eq!(hold.verdict(at(now)), Verdict::Whole(at(now + 199)));
        }
        // 19.8 ms, and no chunk ends any more.
        for now in [19_900, 20_000, 21_700] {
            hold.wrote(at(now));
            hold.saw(99 * 9000, at(now));
            assert!(matches!(hold.verdict(at(now)), Verdict::Whole(_)), "{now}");
        }
        assert_eq!(hold.verdict(at(21_800)), Verdict::All);
    }
}
