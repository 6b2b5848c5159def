//! The minimum rate at which a client must read its response and send its request.
//!
//! Only time in which the edge waits for the client counts. During a stream of events, a long poll or an upload that
//! the origin does not read, the edge waits for the origin, so this time does not count. A [`Pace`] is a token bucket
//! of waiting time. It starts full. Waiting takes time out, and each byte puts `1 / rate` seconds back. A client that
//! moves at least `rate` bytes per second is never closed. A client that stops is closed once the bucket is empty.

use std::cell::Cell;
use std::time::Duration;

use edgeward_types::Timestamp;

/// A minimum rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MinRate {
    /// Zero disables the limit.
    pub(crate) bytes_per_second: u64,
    /// The size of the bucket: the longest time for which a client may neither send nor read a byte.
    pub(crate) window: Duration,
}

impl MinRate {
    fn bucket_size(&self) -> u64 {
        millis(self.window).saturating_mul(self.bytes_per_second)
    }
}

/// The token bucket of one client and one body.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// The start of the wait under way.
    waits_since: Cell<Option<Timestamp>>,
    /// The duration of waits that ended since the last charge.
    ended_waits: Cell<Duration>,
    /// The time of the last charge.
    charged_at: Cell<Timestamp>,
    /// Tokens missing from the bucket, in milliseconds times bytes per second. One byte earns 1000 of them.
    spent: Cell<u64>,
}

impl Pace {
    /// Records that the edge waits for the client.
    pub(crate) fn begin_wait(&self, now: Timestamp) {
        if self.waits_since.get().is_none() {
            self.waits_since.set(Some(now));
        }
    }

    /// Records that the edge no longer waits for the client.
    pub(crate) fn end_wait(&self, now: Timestamp) {
        if let Some(since) = self.waits_since.take() {
            let wait = now.since(since.max(self.charged_at.get()));
            self.ended_waits.set(self.ended_waits.get() + wait);
        }
    }

    /// Returns the start of the wait under way.
    pub(crate) fn waiting_since(&self) -> Option<Timestamp> {
        self.waits_since.get()
    }

    /// Adds tokens for bytes that the client read or sent.
    pub(crate) fn earn(&self, bytes: u64) {
        let earned = bytes.saturating_mul(1000);
        self.spent.set(self.spent.get().saturating_sub(earned));
    }

    /// Discards the waits since the last charge, so that they cost no tokens.
    pub(crate) fn discard_waits(&self, now: Timestamp) {
        self.ended_waits.take();
        self.charged_at.set(now);
    }

    /// Takes tokens for the waits since the last charge. Returns true if the client is too slow.
    pub(crate) fn charge(&self, now: Timestamp, rate: MinRate) -> bool {
        let mut wait = self.ended_waits.take();
        if let Some(since) = self.waits_since.get() {
            wait += now.since(since.max(self.charged_at.get()));
        }
        self.charged_at.set(now);
        self.spend(wait, rate)
    }

    fn spend(&self, wait: Duration, rate: MinRate) -> bool {
        let cost = millis(wait).saturating_mul(rate.bytes_per_second);
        let spent = self.spent.get().saturating_add(cost);
        self.spent.set(spent);
        rate.bytes_per_second > 0 && spent > rate.bucket_size()
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: MinRate = MinRate {
        bytes_per_second: 256,
        window: Duration::from_secs(30),
    };
    const STEP: Duration = Duration::from_millis(250);

    /// Simulates an hour of a client that moves `bytes` every `period` seconds. Returns the second when it is closed.
    fn closed_after(bytes: u64, period: u64) -> Option<u64> {
        let pace = Pace::default();
        (1..=3600 * 4).find_map(|step: u64| {
            if step.is_multiple_of(period * 4) {
                pace.earn(bytes);
            }
            pace.spend(STEP, RATE).then_some(step / 4)
        })
    }

    #[test]
    fn a_client_that_stops_is_closed_after_the_window() {
        assert_eq!(closed_after(0, 1), Some(30));
    }

    #[test]
    fn rare_bytes_earn_nearly_no_time() {
        assert_eq!(closed_after(1, 15), Some(30));
        assert_eq!(closed_after(1, 1), Some(30));
        assert!(closed_after(200, 1).is_some_and(|seconds| seconds < 180));
    }

    #[test]
    fn a_client_at_the_rate_is_never_closed() {
        for period in [1, 5, 20, 29] {
            assert_eq!(closed_after(256 * period, period), None, "every {period} s");
        }
    }

    #[test]
    fn earlier_bytes_earn_no_time_beyond_the_window() {
        let pace = Pace::default();
        pace.earn(1 << 40);
        let steps = (1..).find(|_| pace.spend(STEP, RATE));
        assert_eq!(steps, Some(30 * 4 + 1));
    }

    #[test]
    fn a_rate_of_zero_disables_the_limit() {
        let pace = Pace::default();
        let none = MinRate {
            bytes_per_second: 0,
            ..RATE
        };
        assert!(!pace.spend(Duration::from_secs(1 << 40), none));
    }

    #[test]
    fn many_short_waits_count_as_much_as_a_long_one() {
        let at = Timestamp::from_millis;
        let pace = Pace::default();
        let mut now = 1_000_000;
        let mut waited = 0;
        let ended = (1..10_000).find(|step| {
            pace.begin_wait(at(now));
            now += 90;
            waited += 90;
            pace.end_wait(at(now));
            now += 10;
            step % 3 == 0 && pace.charge(at(now), RATE)
        });
        assert!(ended.is_some());
        assert!((30_000..30_300).contains(&waited), "{waited} ms");
    }

    #[test]
    fn a_wait_that_spans_several_charges_is_charged_once() {
        let at = Timestamp::from_secs;
        let pace = Pace::default();
        pace.begin_wait(at(100));
        let ended = (101..200).find(|&second| pace.charge(at(second), RATE));
        assert_eq!(ended, Some(131));
        let pace = Pace::default();
        pace.begin_wait(at(100));
        assert!(!pace.charge(at(120), RATE));
        pace.end_wait(at(125));
        assert!(!pace.charge(at(300), RATE));
        assert_eq!(pace.spent.get(), 25 * 1000 * 256);
        pace.discard_waits(at(400));
        pace.begin_wait(at(390));
        assert!(!pace.charge(at(404), RATE));
    }
}
