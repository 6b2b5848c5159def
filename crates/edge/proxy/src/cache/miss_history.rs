//! The last event of each key that was requested and not found: it tells why the cache lacks an object.
//!
//! The table is read and written at misses, at insertions and at removals, and not at hits. It has a fixed size. A
//! bucket is half a cache line and forgets its oldest key first. Workers write it without a lock: a lost write or two
//! keys with one fingerprint (one lookup of a new key in a thousand) change a counter only.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use edgeward_types::{ByteSize, KeyHash, Timestamp};

use crate::observe::causes::MissCause;

/// The last events of keys. An entry has, from its highest bits: a fingerprint, an [`Event`], and the tick at which the
/// stored response is no longer fresh. An empty entry is 0.
#[derive(Debug)]
pub(crate) struct MissHistory {
    buckets: Box<[[AtomicU32; BUCKET_KEYS]]>,
}

/// The last event of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// A request did not find the key, and its response was not stored since.
    Requested = 1,
    Stored = 2,
    /// The stored response was removed, and was not evicted.
    Removed = 3,
    /// The response is stored by another node.
    OtherNode = 4,
}

impl MissHistory {
    /// Returns an empty table of this size, at least one bucket.
    pub(crate) fn new(size: ByteSize) -> Self {
        let buckets = (size.bytes() / BUCKET_BYTES).max(1);
        let bucket = || [const { AtomicU32::new(0) }; BUCKET_KEYS];
        Self {
            buckets: (0..buckets).map(|_| bucket()).collect(),
        }
    }

    /// Returns the size of the table for a cache with this capacity of memory.
    pub(crate) fn size_for(hot: ByteSize) -> ByteSize {
        ByteSize(hot.bytes() / CAPACITY_SHARE).clamp(SIZE_MIN, SIZE_MAX)
    }

    /// Records a request that did not find the key, and returns the cause.
    pub(crate) fn request(&self, key: KeyHash, now: Timestamp) -> MissCause {
        let entry = self.replace(key, Event::Requested, NO_END);
        match Event::of(entry) {
            None => MissCause::New,
            Some(Event::Requested) => MissCause::Refused,
            Some(Event::Stored) if has_ended(entry as u16, now) => MissCause::Expired,
            Some(Event::Stored) => MissCause::Evicted,
            Some(Event::Removed) => MissCause::Purged,
            Some(Event::OtherNode) => MissCause::OtherNode,
        }
    }

    /// Records that the response is stored, and fresh until `fresh_until`.
    pub(crate) fn store(&self, key: KeyHash, fresh_until: Timestamp, now: Timestamp) {
        self.replace(key, Event::Stored, end_tick(fresh_until, now));
    }

    /// Records that the response is removed, if it was stored. A removal adds no key to the table.
    pub(crate) fn remove(&self, key: KeyHash) {
        let bucket = self.bucket(key);
        if let Some((slot, entry)) = find(bucket, key)
            && Event::of(entry) == Some(Event::Stored)
        {
            bucket[slot].store(entry_of(key, Event::Removed, NO_END), Relaxed);
        }
    }

    /// Records that another node stores the response.
    pub(crate) fn leave_to_other_node(&self, key: KeyHash) {
        self.replace(key, Event::OtherNode, NO_END);
    }

    /// Replaces the entry of a key, and returns the old one, or 0.
    fn replace(&self, key: KeyHash, event: Event, end: u16) -> u32 {
        let bucket = self.bucket(key);
        let entry = entry_of(key, event, end);
        if let Some((slot, old)) = find(bucket, key) {
            bucket[slot].store(entry, Relaxed);
            return old;
        }
        for slot in (1..BUCKET_KEYS).rev() {
            bucket[slot].store(bucket[slot - 1].load(Relaxed), Relaxed);
        }
        bucket[0].store(entry, Relaxed);
        0
    }

    fn bucket(&self, key: KeyHash) -> &[AtomicU32; BUCKET_KEYS] {
        let index = key.0 % self.buckets.len() as u64;
        &self.buckets[usize::try_from(index).expect("below the number of buckets")]
    }
}

impl Event {
    /// Returns the event of an entry; `None` for an empty one.
    fn of(entry: u32) -> Option<Self> {
        let events = [
            Self::Requested,
            Self::Stored,
            Self::Removed,
            Self::OtherNode,
        ];
        let event = entry >> EVENT_SHIFT & EVENT_MASK;
        events.into_iter().find(|known| *known as u32 == event)
    }
}

/// Returns the slot of a key in its bucket, and its entry.
fn find(bucket: &[AtomicU32; BUCKET_KEYS], key: KeyHash) -> Option<(usize, u32)> {
    let fingerprint = fingerprint(key);
    let entries = bucket.iter().map(|entry| entry.load(Relaxed));
    let is_of_key = |entry: u32| entry != 0 && entry >> FINGERPRINT_SHIFT == fingerprint;
    entries.enumerate().find(|(_, entry)| is_of_key(*entry))
}

fn entry_of(key: KeyHash, event: Event, end: u16) -> u32 {
    fingerprint(key) << FINGERPRINT_SHIFT | (event as u32) << EVENT_SHIFT | u32::from(end)
}

/// Returns the upper bits of the hash. The lower bits select the bucket.
fn fingerprint(key: KeyHash) -> u32 {
    (key.0 >> (32 + FINGERPRINT_SHIFT)) as u32
}

/// Returns the tick in which a lifetime ends. [`NO_END`] if the end is too far to be compared.
fn end_tick(end: Timestamp, now: Timestamp) -> u16 {
    let (end, now) = (end.max(now).as_secs(), now.as_secs());
    if end - now > LIFETIME_SECONDS_MAX {
        return NO_END;
    }
    match (end / TICK_SECONDS) as u16 {
        NO_END => NO_END - 1,
        tick => tick,
    }
}

/// Returns true if a lifetime has ended, or ends within this tick. Ticks wrap, so a lifetime that ended longer ago than
/// [`LIFETIME_SECONDS_MAX`] may count as one that has not.
fn has_ended(end: u16, now: Timestamp) -> bool {
    let now = (now.as_secs() / TICK_SECONDS) as u16;
    end != NO_END && now.wrapping_sub(end) < 1 << 15
}

/// Keys of a bucket. Each has 4 bytes.
const BUCKET_KEYS: usize = 8;
const BUCKET_BYTES: u64 = 4 * BUCKET_KEYS as u64;

/// 13 bits of fingerprint: of a thousand new keys, one matches one of the eight keys of its bucket.
const FINGERPRINT_SHIFT: u32 = 19;
const EVENT_SHIFT: u32 = 16;
const EVENT_MASK: u32 = 0b111;

/// The unit of ends of lifetimes. 16 bits of ticks wrap after 3 days.
const TICK_SECONDS: u64 = 4;

/// Half of the ticks, 36 hours: of two ticks it is known which one is later.
const LIFETIME_SECONDS_MAX: u64 = TICK_SECONDS * ((1 << 15) - 2);

/// The tick of a lifetime that does not end.
const NO_END: u16 = u16::MAX;

/// The table has this part of the capacity of memory, 0.4 %. With objects of 32 KiB it then remembers 32 times as many
/// keys as memory has objects.
const CAPACITY_SHARE: u64 = 256;

/// The least size: 16 thousand keys.
const SIZE_MIN: ByteSize = ByteSize::kib(64);

/// The largest size: 16 million keys.
const SIZE_MAX: ByteSize = ByteSize::mib(64);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use edgeward_types::SplitMix64;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

    fn later(seconds: u64) -> Timestamp {
        NOW.after(Duration::from_secs(seconds))
    }

    fn key(n: u64) -> KeyHash {
        KeyHash(SplitMix64(n).draw())
    }

    #[test]
    fn the_last_event_of_a_key_is_the_cause_of_its_next_miss() {
        let history = MissHistory::new(ByteSize::kib(64));
        let store = |history: &MissHistory| history.store(key(1), later(600), NOW);
        assert_eq!(history.request(key(1), NOW), MissCause::New);
        assert_eq!(history.request(key(1), NOW), MissCause::Refused);
        store(&history);
        assert_eq!(history.request(key(1), NOW), MissCause::Evicted);
        assert_eq!(history.request(key(1), NOW), MissCause::Refused);
        store(&history);
        history.remove(key(1));
        assert_eq!(history.request(key(1), NOW), MissCause::Purged);
        history.remove(key(1)); // not stored, so nothing is removed
        assert_eq!(history.request(key(1), NOW), MissCause::Refused);
        history.leave_to_other_node(key(1));
        assert_eq!(history.request(key(1), NOW), MissCause::OtherNode);
        history.remove(key(2));
        assert_eq!(history.request(key(2), NOW), MissCause::New);
    }

    /// Method: both sides of the end, with lifetimes up to and above the longest one whose end is known, at times
    /// around the wrap of ticks.
    #[test]
    fn an_object_that_was_evicted_is_expired_from_the_end_of_its_lifetime_on() {
        let wrap = TICK_SECONDS << 16;
        for shift in (0..wrap).step_by(7919).chain(wrap - 20..wrap + 20) {
            let at = |seconds| later(shift + seconds);
            for lifetime in [
                0,
                4,
                60,
                3600,
                LIFETIME_SECONDS_MAX,
                LIFETIME_SECONDS_MAX + 1,
            ] {
                let after = |seconds| {
                    let history = MissHistory::new(ByteSize(0));
                    history.store(key(1), at(lifetime), at(0));
                    history.request(key(1), at(seconds))
                };
                let is_known = lifetime <= LIFETIME_SECONDS_MAX;
                let ended = match is_known {
                    true => MissCause::Expired,
                    false => MissCause::Evicted,
                };
                if let Some(before) = lifetime.checked_sub(2 * TICK_SECONDS) {
                    assert_eq!(after(before), MissCause::Evicted, "{shift} {lifetime}");
                }
                assert_eq!(after(lifetime), ended, "{shift} {lifetime}");
            }
        }
    }

    #[test]
    fn a_response_that_must_be_validated_has_no_lifetime() {
        let history = MissHistory::new(ByteSize(0));
        history.store(key(1), Timestamp::ZERO, NOW);
        assert_eq!(history.request(key(1), NOW), MissCause::Expired);
    }

    /// Method: request keys once, then again. Also counts keys that are wrongly taken for others.
    #[test]
    fn a_full_table_remembers_the_newest_keys_and_takes_few_new_keys_for_others() {
        let history = MissHistory::new(ByteSize::kib(64));
        let capacity = 64 * 1024 / 4;
        for n in 0..10 * capacity {
            history.request(key(n), NOW);
        }
        let cause = |n| history.request(key(n), NOW);
        let newest = (10 * capacity - capacity / 4)..10 * capacity;
        let remembered = newest.filter(|n| cause(*n) == MissCause::Refused).count();
        assert!(remembered as u64 > capacity / 4 * 95 / 100, "{remembered}");
        let oldest = (0..capacity)
            .filter(|n| cause(*n) != MissCause::New)
            .count();
        assert!((oldest as u64) < capacity / 500, "{oldest}");
    }

    #[test]
    fn the_table_has_at_most_half_a_percent_of_a_large_memory() {
        for (hot, expected) in [
            (ByteSize(1), SIZE_MIN),
            (ByteSize::gib(1), ByteSize::mib(4)),
            (ByteSize::gib(1000), SIZE_MAX),
        ] {
            assert_eq!(MissHistory::size_for(hot), expected);
        }
    }
}
