//! The rates of requests for the keys of a node, in a fixed amount of memory.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use edgeward_types::{KeyHash, Timestamp};

use super::hot_copy::{DECAY_PER_SECOND, decay};

/// The rates of requests, by key. The keys with the most requests are kept.
///
/// The table has sets of four entries. A request for a key without an entry takes one event from the smallest entry of
/// its set, and replaces an entry that has no event left (Misra, Gries, 1982). A key with more than a fifth of the
/// requests of its set therefore has an entry. No rate is overestimated, except for two keys of a set with one tag: one
/// of 4,096 pairs. Threads use the table without locks; two requests at one time may count as one.
#[derive(Debug)]
pub struct KeyRates {
    sets: Box<[Set]>,
}

/// The entries of a set are on one cache line. An entry is 0, or an [`Entry`] in 64 bits.
#[derive(Debug, Default)]
#[repr(align(32))]
struct Set([AtomicU64; WAYS]);

/// The rate of a key, as [`RequestRate`](crate::RequestRate) with less precision.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Bits of the hash. They distinguish the keys of a set.
    tag: u64,
    /// The second of the last request.
    second: u64,
    /// Events, decayed until that second. Above 16 million, which is 56 thousand per second, they grow no further.
    events: f32,
}

impl Default for KeyRates {
    fn default() -> Self {
        Self {
            sets: (0..SETS).map(|_| Set::default()).collect(),
        }
    }
}

impl KeyRates {
    /// Counts a request.
    pub fn record(&self, key: KeyHash, now: Timestamp) {
        let (set, tag) = self.set(key);
        let mut smallest: Option<(&AtomicU64, Entry)> = None;
        for slot in set {
            let mut entry = Entry::read(slot, now);
            if entry.tag == tag && entry.events > 0.0 {
                entry.events += 1.0;
                return entry.write(slot);
            }
            if smallest.is_none_or(|(_, least)| entry.events < least.events) {
                smallest = Some((slot, entry));
            }
        }
        let (slot, mut entry) = smallest.expect("a set has entries");
        if entry.events < 1.0 {
            (entry.tag, entry.events) = (tag, 1.0);
        } else {
            entry.events -= 1.0;
        }
        entry.write(slot);
    }

    /// Returns the rate per second of the requests for a key before the last one: an object with a single request has
    /// the rate 0.
    pub fn per_second_before_last(&self, key: KeyHash, now: Timestamp) -> f64 {
        self.before_last(key, now) * DECAY_PER_SECOND
    }

    /// Returns the number of requests for a key before the last one, each decayed since its time.
    pub(crate) fn before_last(&self, key: KeyHash, now: Timestamp) -> f64 {
        let (set, tag) = self.set(key);
        let mut entries = set.iter().map(|slot| Entry::read(slot, now));
        let events = entries
            .find(|entry| entry.tag == tag)
            .map_or(0.0, |entry| f64::from(entry.events));
        (events - 1.0).max(0.0)
    }

    fn set(&self, key: KeyHash) -> (&[AtomicU64; WAYS], u64) {
        let index = key.0 % SETS as u64;
        let set = &self.sets[usize::try_from(index).expect("below the number of sets")];
        (&set.0, key.0 >> (64 - TAG_BITS))
    }
}

impl Entry {
    /// Reads an entry and decays it.
    fn read(slot: &AtomicU64, now: Timestamp) -> Self {
        let bits = slot.load(Relaxed);
        let (last, second) = ((bits >> 32) & SECOND_MASK, now.as_secs() & SECOND_MASK);
        let past = second.wrapping_sub(last) & SECOND_MASK;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the lower half of the bits"
        )]
        let events = f32::from_bits(bits as u32);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the factor is between 0 and 1"
        )]
        let events = match past {
            0 => events,
            // The clock has stepped back.
            past if past > SECOND_MASK - STEP_SECONDS_MAX => events,
            past => events * decay(past as f64) as f32,
        };
        Self {
            tag: bits >> (64 - TAG_BITS),
            second,
            events,
        }
    }

    fn write(self, slot: &AtomicU64) {
        let bits = self.tag << (64 - TAG_BITS) | self.second << 32;
        slot.store(bits | u64::from(self.events.to_bits()), Relaxed);
    }
}

const WAYS: usize = 4;

/// With four entries of 8 bytes in each set, the table takes 512 KiB.
const SETS: usize = 1 << 14;

const TAG_BITS: u32 = 12;

/// A clock steps back by less than this.
const STEP_SECONDS_MAX: u64 = 600;

/// 20 bits count the seconds of 12 days. An entry that was not used for exactly as long seems to be new.
const SECOND_MASK: u64 = (1 << (32 - TAG_BITS)) - 1;

#[cfg(test)]
mod tests {
    use edgeward_types::{SplitMix64, mix64};

    use super::*;
    use crate::RequestRate;

    /// Method: keys with rates of their own, for half an hour, beside an exact rate of each key.
    #[test]
    fn rates_are_those_of_the_exact_measurement() {
        let rates = KeyRates::default();
        let mut exact = vec![RequestRate::default(); 200];
        let mut random = SplitMix64(1);
        let key = |n: usize| KeyHash(mix64(n as u64));
        let mut now = Timestamp::ZERO;
        for millis in 0..1_800_000_u64 {
            now = Timestamp::from_millis(1_700_000_000_000 + millis);
            let n = random.below(200).min(random.below(200)) as usize;
            rates.record(key(n), now);
            _ = exact[n].record(now);
        }
        for (n, exact) in exact.iter().enumerate() {
            let (measured, exact) = (
                rates.per_second_before_last(key(n), now),
                exact.per_second(now) - DECAY_PER_SECOND,
            );
            assert!(
                (measured - exact).abs() < 0.01 * exact + 0.01,
                "{n}: {measured}, {exact}"
            );
        }
    }

    #[test]
    fn a_key_with_one_request_has_no_rate_and_rates_decay() {
        let rates = KeyRates::default();
        let (key, now) = (KeyHash(u64::MAX), Timestamp::from_secs(1_700_000_000));
        assert_eq!(rates.per_second_before_last(key, now), 0.0);
        rates.record(key, now);
        assert_eq!(rates.per_second_before_last(key, now), 0.0);
        (0..3000).for_each(|_| rates.record(key, now));
        let rate = |seconds| rates.per_second_before_last(key, now.after(seconds));
        let of_secs = std::time::Duration::from_secs;
        assert!((rate(of_secs(0)) - 10.0).abs() < 1e-6);
        assert!((rate(of_secs(300)) - 10.0 / std::f64::consts::E).abs() < 0.01);
        for idle in [100_000, 7 * 86_400, 12 * 86_400] {
            assert_eq!(rate(of_secs(idle)), 0.0, "{idle}");
        }
        // A clock that steps back does not decay.
        let before = Timestamp::from_secs(1_699_999_990);
        assert!((rates.per_second_before_last(key, before) - 10.0).abs() < 1e-6);
    }

    /// Method: the hot key and a flood of keys with one request each have one set.
    #[test]
    fn a_flood_of_other_keys_removes_no_key_with_more_than_a_fifth_of_the_requests() {
        let rates = KeyRates::default();
        let now = Timestamp::from_secs(1);
        let of_set = |n: u64| KeyHash(n << (64 - TAG_BITS) | 7);
        for n in 0..4000_u64 {
            rates.record(of_set(1 + n % 4000), now);
            if n % 3 == 0 {
                rates.record(of_set(0), now);
            }
        }
        assert!(rates.per_second_before_last(of_set(0), now) > 1.0);
        let cold = (1..4000).filter(|n| rates.per_second_before_last(of_set(*n), now) > 0.1);
        assert_eq!(cold.count(), 0);
    }
}
