//! Bounds of the freshness lifetime of a URL at one cache, and the comparison of two caches.
//!
//! No single answer shows that two lifetimes differ: the two caches fetched the response at different times, so one of
//! them may have to fetch it again while the other one still has a hit. Each cache therefore has two bounds by its own
//! clock: the longest age at which it still had a fresh hit, and the shortest age at which the response had expired.
//! Two lifetimes differ if the lower bound of one exceeds the upper bound of the other.

use std::time::Duration;

use crate::answer::Verdict;

/// The knowledge about the lifetime of one URL at one cache.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lifetime {
    /// The time of the last fetch, if it is known.
    fetched_at: Option<Duration>,
    /// True if the last fetch was followed by a hit. Requests that arrive during one fetch may each say that the
    /// response had expired; no hit is between them.
    was_hit: bool,
    /// The longest age of a fresh hit.
    at_least: Duration,
    /// The shortest age at which the response had expired.
    at_most: Option<Duration>,
    /// Misses whose cause the cache does not state, and their shortest and longest age.
    misses: u32,
    shortest_miss: Duration,
    longest_miss: Duration,
    /// True if the answers are those of several variants, or if the response was evicted. The last fetch may then be
    /// that of another variant, so an age is at least as long as it seems, and an expiry shows nothing.
    is_mixed: bool,
}

/// The answers from which bounds follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// All answers of the cache for the URL, and the cache states if a response had expired.
    Complete,
    /// All answers of the cache for the URL. A miss may follow an expiry or an eviction.
    WithoutExpiry,
    /// Some answers of the cache. Fetches between them are unknown, so an age is at most as long as it seems, and a hit
    /// shows nothing.
    Partial,
}

impl Lifetime {
    /// Adds an answer. `ttl_seconds` is the remaining lifetime that the cache states.
    pub(crate) fn observe(
        &mut self,
        verdict: Verdict,
        at: Duration,
        ttl_seconds: Option<i64>,
        evidence: Evidence,
    ) {
        let age = self.fetched_at.map(|fetched| at.saturating_sub(fetched));
        let was_hit = self.was_hit;
        if verdict != Verdict::Pass {
            self.was_hit = verdict == Verdict::Hit;
        }
        match verdict {
            Verdict::Hit => {
                let ttl = ttl_seconds.and_then(|ttl| u64::try_from(ttl).ok());
                let ttl = ttl.map(Duration::from_secs);
                match (ttl, age) {
                    (Some(ttl), Some(age)) if !self.is_mixed => {
                        self.at_least = self.at_least.max(age + ttl);
                        self.expired_at(age + ttl);
                    }
                    (Some(ttl), _) => self.at_least = self.at_least.max(ttl),
                    (None, Some(age)) if evidence != Evidence::Partial => {
                        self.at_least = self.at_least.max(age);
                    }
                    (None, _) => {}
                }
            }
            // The response may be newer than the last fetch that an answer has shown.
            Verdict::StaleHit => self.fetched_at = None,
            Verdict::Expired | Verdict::Revalidated => {
                if let (Some(age), true, false) = (age, was_hit, self.is_mixed) {
                    self.expired_at(age);
                }
                self.fetched_at = Some(at);
            }
            Verdict::Miss => {
                if age.is_some() && evidence == Evidence::Complete {
                    self.is_mixed = true;
                    self.at_most = None;
                }
                if let (Some(age), Evidence::WithoutExpiry) = (age, evidence) {
                    self.shortest_miss = match self.misses {
                        0 => age,
                        _ => self.shortest_miss.min(age),
                    };
                    self.longest_miss = self.longest_miss.max(age);
                    self.misses += 1;
                    // Evictions happen at any age. Misses at one age are expiries.
                    if self.misses >= MISSES_MIN
                        && self.longest_miss <= self.shortest_miss * 5 / 4 + SLACK
                    {
                        self.expired_at(self.longest_miss);
                    }
                }
                self.fetched_at = Some(at);
            }
            Verdict::Pass => {}
        }
    }

    fn expired_at(&mut self, age: Duration) {
        self.at_most = Some(self.at_most.map_or(age, |known| known.min(age)));
    }

    /// Returns true if the lifetime differs from fetch to fetch, for example because the origin sends the end of a day.
    fn varies(&self) -> bool {
        self.at_most
            .is_some_and(|most| self.at_least > most + SLACK)
    }

    /// Returns true if this lifetime is certainly longer than another one.
    pub(crate) fn is_longer_than(&self, other: &Self) -> bool {
        !self.varies()
            && !other.varies()
            && other
                .at_most
                .is_some_and(|most| self.at_least > most + SLACK)
    }

    /// Returns the bounds for messages, such as `at least 60 s`.
    pub(crate) fn describe(&self) -> String {
        let least = self.at_least.as_secs();
        match self.at_most.map(|most| most.as_secs()) {
            Some(most) if least == 0 => format!("at most {most} s"),
            Some(most) if most.abs_diff(least) <= SLACK.as_secs() => format!("{least} s"),
            Some(most) => format!("{least} to {most} s"),
            None => format!("at least {least} s"),
        }
    }
}

/// Logs and caches count whole seconds: each end of an age may be a second away.
const SLACK: Duration = Duration::from_secs(2);

/// The number of misses from which a lifetime is estimated if the cache does not state that a response had expired.
const MISSES_MIN: u32 = 3;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn lifetime(evidence: Evidence, answers: &[(Verdict, u64)]) -> Lifetime {
        let mut lifetime = Lifetime::default();
        for (verdict, at) in answers {
            lifetime.observe(*verdict, seconds(*at), None, evidence);
        }
        lifetime
    }

    #[test]
    fn a_hit_beyond_the_expiry_of_the_other_cache_is_a_longer_lifetime() {
        use Verdict::{Expired, Hit, Miss};
        let short = lifetime(Evidence::Complete, &[(Miss, 0), (Hit, 59), (Expired, 61)]);
        for (age, expected) in [(61, false), (63, false), (64, true)] {
            let long = lifetime(Evidence::Complete, &[(Miss, 100), (Hit, 100 + age)]);
            assert_eq!(long.is_longer_than(&short), expected, "{age}");
            assert!(!short.is_longer_than(&long));
        }
    }

    #[test]
    fn the_end_of_a_lifetime_that_the_cache_states_needs_no_waiting() {
        let mut stated = Lifetime::default();
        stated.observe(Verdict::Miss, seconds(5), None, Evidence::Complete);
        stated.observe(Verdict::Hit, seconds(6), Some(3599), Evidence::Complete);
        assert_eq!(stated.describe(), "3600 s");
        let short = lifetime(
            Evidence::Complete,
            &[(Verdict::Miss, 0), (Verdict::Hit, 0), (Verdict::Expired, 2)],
        );
        assert!(stated.is_longer_than(&short));
        assert_eq!(short.describe(), "at most 2 s");
    }

    #[test]
    fn a_refresh_in_the_background_hides_the_age() {
        use Verdict::{Hit, Miss, StaleHit};
        let refreshed = lifetime(
            Evidence::Complete,
            &[(Miss, 0), (Hit, 9), (StaleHit, 11), (Hit, 500)],
        );
        assert_eq!(refreshed.at_least, seconds(9));
        let of_partial = lifetime(Evidence::Partial, &[(Miss, 0), (Hit, 500)]);
        assert_eq!(of_partial.at_least, Duration::ZERO);
    }

    #[test]
    fn misses_are_expiries_only_if_their_ages_agree() {
        use Verdict::Miss;
        let expiring = [(Miss, 0), (Miss, 60), (Miss, 121), (Miss, 181)];
        let evicted = [(Miss, 0), (Miss, 60), (Miss, 200), (Miss, 210)];
        let bound = |evidence, answers: &[_]| lifetime(evidence, answers).at_most;
        assert_eq!(bound(Evidence::WithoutExpiry, &expiring), Some(seconds(61)));
        assert_eq!(bound(Evidence::WithoutExpiry, &expiring[..3]), None);
        assert_eq!(bound(Evidence::WithoutExpiry, &evicted), None);
        assert_eq!(bound(Evidence::Complete, &expiring), None);
    }

    #[test]
    fn a_lifetime_that_varies_is_not_compared() {
        use Verdict::{Expired, Hit, Miss};
        let varying = [
            (Miss, 0),
            (Hit, 900),
            (Expired, 1000),
            (Hit, 1005),
            (Expired, 1010),
        ];
        let varying = lifetime(Evidence::Complete, &varying);
        let other = lifetime(Evidence::Complete, &[(Miss, 0), (Hit, 500)]);
        assert!(!other.is_longer_than(&varying));
    }

    /// nginx without a lock answers each request during a fetch by a fetch of its own.
    #[test]
    fn requests_during_one_fetch_show_no_expiry() {
        use Verdict::{Expired, Hit, Miss};
        let busy = [
            (Miss, 0),
            (Hit, 59),
            (Expired, 61),
            (Expired, 61),
            (Expired, 62),
        ];
        let busy = lifetime(Evidence::Complete, &busy);
        let other = lifetime(Evidence::Complete, &[(Miss, 0), (Hit, 59)]);
        assert!(!other.is_longer_than(&busy) && !busy.is_longer_than(&other));
        assert_eq!(busy.at_most, Some(seconds(61)));
    }

    #[test]
    fn variants_behind_one_url_show_no_expiry() {
        use Verdict::{Expired, Hit, Miss};
        // Two variants with a lifetime of 100 s each.
        let mixed = [(Miss, 0), (Miss, 90), (Hit, 91), (Expired, 100)];
        let mixed = lifetime(Evidence::Complete, &mixed);
        let other = lifetime(Evidence::Complete, &[(Miss, 0), (Hit, 99)]);
        assert!(!other.is_longer_than(&mixed));
    }

    /// A cache with a fixed lifetime: it answers each request as it must, with the clock cut to whole seconds.
    fn answers(lifetime_ms: u64, start_ms: u64, requests_ms: &[u64]) -> Lifetime {
        let (mut bounds, mut fetched) = (Lifetime::default(), None::<u64>);
        for at in requests_ms.iter().map(|at| at + start_ms) {
            let verdict = match fetched {
                None => Verdict::Miss,
                Some(fetched) if at - fetched >= lifetime_ms => Verdict::Expired,
                Some(_) => Verdict::Hit,
            };
            if verdict != Verdict::Hit {
                fetched = Some(at);
            }
            bounds.observe(verdict, seconds(at / 1000), None, Evidence::Complete);
        }
        bounds
    }

    proptest! {
        /// Two caches with one lifetime never seem to differ, whatever the times of their requests and starts are.
        #[test]
        fn equal_lifetimes_never_seem_to_differ(
            lifetime_ms in 1_u64..100_000,
            start_ms in 0_u64..1_000_000,
            gaps in proptest::collection::vec(0_u64..30_000, 1..60),
            skipped in 0_usize..20,
        ) {
            let mut now = 0;
            let requests: Vec<u64> = gaps.iter().map(|gap| { now += gap; now }).collect();
            let incumbent = answers(lifetime_ms, start_ms, &requests);
            // The edge started later, so it has fetched at other times.
            let edge = answers(lifetime_ms, 0, &requests[skipped.min(requests.len() - 1)..]);
            prop_assert!(!incumbent.is_longer_than(&edge), "{incumbent:?} {edge:?}");
            prop_assert!(!edge.is_longer_than(&incumbent), "{incumbent:?} {edge:?}");
        }
    }
}
