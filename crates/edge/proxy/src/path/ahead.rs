//! The rate at which a worker reads bodies from the origin ahead of their clients.
//!
//! A body is read as fast as its clients read it. The edge also reads a body whose clients read slowly or not at all:
//! the body may be stored, and its connection to the origin becomes free. Reading ahead must not delay other requests,
//! so all bodies of a worker that are ahead of their clients share one rate. Each is read in chunks of [`CHUNK_BYTES`].
//! [`AheadRate::reserve`] returns when a chunk may begin (the generic cell rate algorithm of ITU-T I.371).
//!
//! Sending a body of 1 MiB in chunks costs a third more CPU time than sending it in one piece. A limited number of
//! bodies may therefore be [`EXEMPT_BYTES`] ahead of their clients without waiting ([`RateExemption`]).

use std::cell::Cell;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::observe::counters::Counters;

/// Bytes of a body that are read before the task yields: about 0.1 ms of work.
pub(crate) const CHUNK_BYTES: usize = 128 << 10;

/// The limit of the rate at which one worker reads ahead.
#[derive(Debug)]
pub(crate) struct AheadRate {
    /// Zero disables the limit.
    bytes_per_second: u64,
    /// The time at which the next chunk may begin.
    next_start: Cell<Option<Instant>>,
    counters: Arc<Counters>,
    /// The number of further bodies that may get a [`RateExemption`].
    exemptions_left: Cell<usize>,
}

/// Lets one body be [`EXEMPT_BYTES`] ahead of its client without waiting, until dropped.
#[derive(Debug)]
pub(crate) struct RateExemption(Rc<AheadRate>);

impl Drop for RateExemption {
    fn drop(&mut self) {
        self.0.exemptions_left.set(self.0.exemptions_left.get() + 1);
    }
}

impl AheadRate {
    pub(crate) fn new(bytes_per_second: u64, counters: Arc<Counters>) -> Self {
        Self {
            bytes_per_second,
            next_start: Cell::new(None),
            counters,
            exemptions_left: Cell::new(EXEMPTIONS_MAX),
        }
    }

    /// Returns an exemption for one body, or `None` while [`EXEMPTIONS_MAX`] bodies have one.
    pub(crate) fn exemption(self: &Rc<Self>) -> Option<RateExemption> {
        let left = self.exemptions_left.get().checked_sub(1)?;
        self.exemptions_left.set(left);
        Some(RateExemption(Rc::clone(self)))
    }

    /// Reserves the next chunk. Returns the time at which it may begin, or `None` if it may begin now.
    fn reserve(&self, now: Instant) -> Option<Instant> {
        if self.bytes_per_second == 0 {
            return None;
        }
        let length = Duration::from_secs_f64(CHUNK_BYTES as f64 / self.bytes_per_second as f64);
        let earliest = now.checked_sub(LATE_MAX).unwrap_or(now);
        let start = self.next_start.get().unwrap_or(now).max(earliest);
        self.next_start.set(Some(start + length));
        (start > now).then_some(start)
    }

    /// Waits until the next chunk may begin, or until `is_wanted` is ready because a client has nearly caught up.
    pub(crate) async fn wait(&self, mut is_wanted: impl FnMut(&mut Context<'_>) -> Poll<()>) {
        if poll_fn(|cx| Poll::Ready(is_wanted(cx))).await.is_ready() {
            return;
        }
        let Some(start) = self.reserve(Instant::now()) else {
            return;
        };
        self.counters.read_ahead_waits.increment();
        let mut time = pin!(tokio::time::sleep_until(start.into()));
        poll_fn(|cx| {
            if is_wanted(cx).is_ready() {
                return Poll::Ready(());
            }
            time.as_mut().poll(cx)
        })
        .await;
    }
}

/// The number of bytes that a body with a [`RateExemption`] may be ahead of its client.
pub(crate) const EXEMPT_BYTES: usize = 1 << 20;

/// The most bodies with a [`RateExemption`] at one time: one for each of the 64 connections of a benchmark's client. If
/// clients that read no bytes use up all exemptions, other large bodies cost a third more CPU time.
const EXEMPTIONS_MAX: usize = 64;

/// A chunk that begins late by up to this time does not lower the rate. Timers have a resolution of 1 ms, and a busy
/// worker handles an expired timer later.
const LATE_MAX: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn rate_of(bytes_per_second: u64) -> AheadRate {
        AheadRate::new(bytes_per_second, Arc::default())
    }

    /// Returns the number of bytes of the chunks that begin within the first second. Each chunk begins `delay` after
    /// the time that was reserved for the chunk.
    fn first_second(rate: &AheadRate, delay: Duration) -> usize {
        let first = Instant::now();
        let mut now = first;
        let mut bytes = 0;
        loop {
            if let Some(start) = rate.reserve(now) {
                now = start + delay;
            }
            if now >= first + Duration::from_secs(1) {
                return bytes;
            }
            bytes += CHUNK_BYTES;
        }
    }

    #[test]
    fn chunks_begin_at_the_rate_even_if_timers_are_late() {
        for delay_millis in [0, 1, 5] {
            let rate = rate_of(64 << 20);
            let bytes = first_second(&rate, Duration::from_millis(delay_millis));
            assert!((63 << 20..66 << 20).contains(&bytes), "{bytes} bytes");
        }
    }

    #[test]
    fn idle_time_does_not_accumulate() {
        let rate = rate_of(64 << 20);
        let now = Instant::now();
        _ = rate.reserve(now);
        let later = now + Duration::from_secs(60);
        let immediate = (0..1000).take_while(|_| rate.reserve(later).is_none());
        // The rate allows one chunk in 2 ms. Five chunks make up for `LATE_MAX`, 10 ms, and one more begins now.
        assert!((5..=7).contains(&immediate.count()));
    }

    #[test]
    fn an_exemption_is_available_again_when_its_body_ends() {
        let rate = Rc::new(rate_of(1));
        let mut exemptions: Vec<_> = std::iter::from_fn(|| rate.exemption()).collect();
        assert_eq!(exemptions.len(), EXEMPTIONS_MAX);
        exemptions.pop();
        assert!(rate.exemption().is_some());
    }

    #[test]
    fn a_rate_of_zero_disables_the_limit() {
        let rate = rate_of(0);
        let now = Instant::now();
        assert!((0..1000).all(|_| rate.reserve(now).is_none()));
    }
}
