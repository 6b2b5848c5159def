//! Hot copies at a node: the rates of requests that the node states for its objects, and the decision about copies of
//! objects that other nodes own.
//!
//! The decisions are in `edgeward_balance`. This module has their state, which a reload keeps.

use std::sync::{Arc, Mutex};

use edgeward_balance::{CopyRule, KeyRates, MemoryUse, RequestRate, measured_share};
use edgeward_types::{KeyHash, Timestamp};

use crate::observe::counters::{Counters, sum};
use crate::observe::outcome::RequestOutcome;
use crate::rt::panics::lock;

/// The copies of a node.
#[derive(Debug)]
pub(crate) struct Copies {
    pub(crate) rule: CopyRule,
    /// The share of this node in the requests of all clients: each edge that does not drain has as many.
    share: f64,
    rates: Arc<Rates>,
}

/// The measured rates of a node. They take 512 KiB.
#[derive(Debug)]
struct Rates {
    /// The start of the measurement.
    begun: Timestamp,
    /// The requests for each object.
    requests: KeyRates,
    /// The hits in memory, and their number when the rate was computed last.
    hits: Mutex<(RequestRate, u64)>,
}

/// The memory of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryCounts {
    /// Hits in memory since the start.
    pub(crate) hits: u64,
    /// Charged bytes of the objects in memory, with those that were evicted and are still read.
    pub(crate) used_bytes: u64,
}

impl Copies {
    /// Returns the copies of one of `nodes` nodes. `before` are those of the node before a reload. `hits` are the hits
    /// in memory until now: those before a reload that enables copies do not count.
    pub(crate) fn new(
        peer_cost: f64,
        nodes: usize,
        now: Timestamp,
        hits: u64,
        before: Option<&Self>,
    ) -> Self {
        let rates = before.map_or_else(
            || {
                Arc::new(Rates {
                    begun: now,
                    requests: KeyRates::default(),
                    hits: Mutex::new((RequestRate::from(now), hits)),
                })
            },
            |before| Arc::clone(&before.rates),
        );
        Self {
            rule: CopyRule { peer_cost },
            share: 1.0 / nodes.max(1) as f64,
            rates,
        }
    }

    /// Counts a request of a client or of a node for an object.
    pub(crate) fn record(&self, primary: KeyHash, now: Timestamp) {
        self.rates.requests.record(primary, now);
    }

    /// Returns the requests for an object before the last one, per million seconds.
    pub(crate) fn rate(&self, primary: KeyHash, now: Timestamp) -> u64 {
        let per_second = self.rates.requests.per_second_before_last(primary, now);
        let per_second = per_second / self.measured_share(now);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast saturates, and a rate is not negative"
        )]
        let rate = (per_second * 1e6) as u64;
        rate
    }

    /// Returns true if this node keeps a copy of an object with this charge. `owner_rate` is the rate of requests that
    /// its owner states, per million seconds.
    pub(crate) fn keeps(
        &self,
        owner_rate: u64,
        charge_bytes: u64,
        now: Timestamp,
        memory: impl FnOnce() -> MemoryCounts,
    ) -> bool {
        if owner_rate == 0 {
            return false;
        }
        let MemoryCounts { hits, used_bytes } = memory();
        let (rate, counted) = &mut *lock(&self.rates.hits);
        // Another worker may have read the counters later and recorded them before.
        rate.record_since_last(hits.saturating_sub(*counted), now);
        *counted = hits.max(*counted);
        let memory = MemoryUse {
            hits_per_second: rate.per_second(now) / self.measured_share(now),
            used_bytes,
        };
        let owner_rate = owner_rate as f64 / 1e6;
        self.rule
            .keeps_copy(owner_rate, self.share, charge_bytes, memory)
    }

    fn measured_share(&self, now: Timestamp) -> f64 {
        measured_share(now.since(self.rates.begun))
    }
}

/// Returns the number of requests that memory has answered since the start.
pub(crate) fn hits_in_memory(workers: &[Arc<Counters>]) -> u64 {
    sum(workers, |counters| {
        let of = |outcome| counters.requests[outcome].value();
        let hits = of(RequestOutcome::Hit) + of(RequestOutcome::HitStale);
        // A sliced response is one hit, whichever of its slices are read from disk.
        let of_slices = counters.slices_from_disk.value();
        hits.saturating_sub(counters.disk_hit.value().saturating_sub(of_slices))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Method: a memory of 1 MB has 100 hits per second, and an object of 1,000 bytes is requested once per second at
    /// its owner, one of four nodes. A copy of it saves 1/4 of a peer fetch per second, an average object 1/10 of a
    /// fetch from the origin. Both nodes have run for an hour, or one of them or both have begun.
    #[test]
    fn a_copy_is_kept_from_the_cost_on_that_the_rule_states() {
        const HOUR: u64 = 3600;
        for (owner_seconds, seconds) in [(60, 60), (HOUR, 60), (60, HOUR), (HOUR, HOUR)] {
            for (peer_cost, expected) in [(0.3, false), (0.5, true)] {
                let at = |second: u64| Timestamp::from_secs(1_700_000_000 + second);
                let start = |seconds| Copies::new(peer_cost, 4, at(HOUR - seconds), 0, None);
                let (owner, copies, key) = (start(owner_seconds), start(seconds), KeyHash(7));
                let memory = |second| MemoryCounts {
                    hits: 100 * (second + seconds - HOUR),
                    used_bytes: 1_000_000,
                };
                let mut kept = false;
                for second in 1..=HOUR {
                    if second > HOUR - owner_seconds {
                        owner.record(key, at(second));
                    }
                    if second > HOUR - seconds {
                        let rate = owner.rate(key, at(second));
                        kept = copies.keeps(rate, 1000, at(second), || memory(second));
                    }
                }
                assert_eq!(
                    kept, expected,
                    "{owner_seconds} s, {seconds} s, {peer_cost}"
                );
                // A reload keeps the rates, and another number of nodes changes the share.
                let now = at(HOUR);
                let memory = || memory(HOUR);
                let more = Copies::new(1.0, 40, now, 0, Some(&copies));
                assert!(!more.keeps(owner.rate(key, now), 1000, now, memory));
                let fewer = Copies::new(1.0, 1, now, 0, Some(&copies));
                assert!(fewer.keeps(owner.rate(key, now), 1000, now, memory));
            }
        }
    }

    #[test]
    fn hits_before_the_copies_were_enabled_do_not_count() {
        let at = |second: u64| Timestamp::from_secs(1_700_000_000 + second);
        let copies = Copies::new(1.0, 1, at(0), 100_000_000, None);
        let memory = |hits| {
            move || MemoryCounts {
                hits,
                used_bytes: 1_000_000,
            }
        };
        assert!(copies.keeps(1_000_000, 1000, at(1), memory(100_000_000)));
        assert!(copies.keeps(1_000_000, 1000, at(2), memory(100_000_100)));
    }

    /// Method: of six hits, one was sent from a body on disk, and one from three slices, two of them on disk. The other
    /// worker has one hit.
    #[test]
    fn slices_from_disk_do_not_count_against_the_hits_in_memory() {
        let workers = [Arc::new(Counters::default()), Arc::new(Counters::default())];
        let hit = |worker: usize, outcome| workers[worker].requests[outcome].increment();
        (0..5).for_each(|_| hit(0, RequestOutcome::Hit));
        hit(0, RequestOutcome::HitStale);
        hit(1, RequestOutcome::Hit);
        workers[0].disk_hit.add(3);
        workers[0].slices_from_disk.add(2);
        assert_eq!(hits_in_memory(&workers), 6);
    }

    #[test]
    fn an_object_without_a_rate_is_not_copied_whatever_the_memory_does() {
        let copies = Copies::new(1.0, 2, Timestamp::ZERO, 0, None);
        let memory = || MemoryCounts {
            hits: 0,
            used_bytes: 1,
        };
        assert!(!copies.keeps(0, 1, Timestamp::ZERO, memory));
        assert!(copies.keeps(1, 1, Timestamp::ZERO, memory));
    }
}
