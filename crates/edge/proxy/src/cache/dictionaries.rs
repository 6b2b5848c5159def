//! The dictionaries that clients may have (RFC 9842): bodies of responses by their SHA-256.
//!
//! A body is copied when a client gets the response, so the dictionary stays when the response of the same URL is
//! replaced by its next version. All dictionaries together have a bound of memory, and the least recently used one is
//! dropped. A hash that a client invents takes no memory, because lookups insert nothing.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use edgeward_semantics::StoredPolicy;
use edgeward_semantics::dictionary::{DictionaryHash, DictionaryTerms};
use edgeward_types::{KeyHash, Timestamp};

use super::key_parts::{primary_of, url_of};
use super::stored::{Stored, StoredBody, StoredKind, StoredResponse};
use crate::rt::panics::lock;

/// A dictionary.
#[derive(Debug)]
pub(crate) struct Dictionary {
    pub(crate) hash: DictionaryHash,
    /// Scheme, host and port of its URL.
    pub(crate) origin: Box<str>,
    pub(crate) terms: DictionaryTerms,
    pub(crate) body: Bytes,
    /// Its response without the body, by which purges find it.
    pub(crate) response: Arc<Stored>,
    generation: NonZeroU64,
}

/// All dictionaries of the edge.
#[derive(Debug)]
pub(crate) struct Dictionaries {
    bytes_max: u64,
    state: Mutex<State>,
    /// The responses that were read as dictionaries, by generation and lifetime.
    noted: Marks,
    /// The deltas that were requested.
    requested: Marks,
}

/// The result of [`Dictionaries::request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeltaRequest {
    First,
    /// The delta is made now.
    Begin,
    /// The delta was begun before.
    Later,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<Id, Entry>,
    by_generation: HashMap<NonZeroU64, Id>,
    by_url: HashMap<Box<[u8]>, Vec<Id>>,
    /// The least recently used one first.
    by_use: BTreeMap<u64, Id>,
    uses: u64,
    bytes: u64,
}

/// The origin of a dictionary, and its hash. The same bytes at two origins are two dictionaries.
type Id = (Box<str>, DictionaryHash);

#[derive(Debug)]
struct Entry {
    dictionary: Arc<Dictionary>,
    /// The time until which a client may use its copy.
    usable_until: Timestamp,
    mark: u64,
    used: u64,
}

/// A table of fixed size that forgets an entry for another one.
#[derive(Debug)]
struct Marks(Box<[AtomicU64]>);

impl Dictionary {
    /// `stored` is the response whose body is the dictionary.
    pub(crate) fn new(
        stored: &Stored,
        generation: NonZeroU64,
        origin: Box<str>,
        terms: DictionaryTerms,
        hash: DictionaryHash,
        body: Bytes,
    ) -> Self {
        let response = StoredResponse {
            body: StoredBody::Memory(Bytes::new()),
            ..stored.response().clone()
        };
        Self {
            hash,
            origin,
            terms,
            body,
            response: stored.renewed(StoredKind::Response(response)),
            generation,
        }
    }

    /// The key of its response without the key of a variant.
    pub(crate) fn primary(&self) -> &[u8] {
        primary_of(self.response.key())
    }

    fn id(&self) -> Id {
        (self.origin.clone(), self.hash)
    }

    fn charge(&self) -> u64 {
        self.body.len() as u64 + self.response.charge_bytes() + ENTRY_BYTES
    }
}

impl Dictionaries {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            state: Mutex::default(),
            noted: Marks::new(),
            requested: Marks::new(),
        }
    }

    /// Returns true if a response of this length may be a dictionary.
    pub(crate) fn accepts(&self, body_bytes: u64) -> bool {
        body_bytes > 0 && body_bytes.saturating_add(ENTRY_BYTES) <= self.bytes_max
    }

    /// Returns true if it was recorded lately that a client got a response. Costs no lock.
    pub(crate) fn is_noted(&self, generation: NonZeroU64, policy: &StoredPolicy) -> bool {
        let mark = mark_of(generation, policy);
        self.noted.slot(mark).load(Relaxed) == mark
    }

    /// Records that a client got a response. Returns true if its body should be inserted.
    pub(crate) fn note(&self, generation: NonZeroU64, policy: &StoredPolicy) -> bool {
        if self.is_noted(generation, policy) {
            return false;
        }
        let mark = mark_of(generation, policy);
        self.noted.slot(mark).store(mark, Relaxed);
        let mut state = lock(&self.state);
        let Some(id) = state.by_generation.get(&generation).cloned() else {
            return true;
        };
        // A validated response has a new lifetime.
        let entry = state.entries.get_mut(&id).expect("each id has an entry");
        entry.usable_until = usable_until(policy);
        entry.mark = mark;
        state.touch(&id);
        false
    }

    /// Reverts [`note`](Self::note), so that the next request tries again.
    pub(crate) fn forget(&self, generation: NonZeroU64, policy: &StoredPolicy) {
        self.noted.clear(mark_of(generation, policy));
    }

    /// Inserts a dictionary, and drops those that were not used for the longest time to make space.
    pub(crate) fn insert(&self, dictionary: Dictionary, policy: &StoredPolicy) {
        let (id, charge) = (dictionary.id(), dictionary.charge());
        if charge > self.bytes_max {
            return;
        }
        let mut state = lock(&self.state);
        state.remove(&id);
        while state.bytes + charge > self.bytes_max {
            let Some((_, oldest)) = state.by_use.first_key_value() else {
                break;
            };
            let oldest = oldest.clone();
            if let Some(entry) = state.remove(&oldest) {
                // The next client that gets its response makes it a dictionary again.
                self.noted.clear(entry.mark);
            }
        }
        state.bytes += charge;
        state
            .by_generation
            .insert(dictionary.generation, id.clone());
        let url = url_of(dictionary.primary()).into();
        state.by_url.entry(url).or_default().push(id.clone());
        let entry = Entry {
            usable_until: usable_until(policy),
            mark: mark_of(dictionary.generation, policy),
            dictionary: Arc::new(dictionary),
            used: 0,
        };
        state.entries.insert(id.clone(), entry);
        state.touch(&id);
    }

    /// Returns the dictionary of an origin with a hash, unless no client may still use it.
    pub(crate) fn find(
        &self,
        origin: &str,
        hash: &DictionaryHash,
        now: Timestamp,
    ) -> Option<Arc<Dictionary>> {
        let id = (origin.into(), *hash);
        let mut state = lock(&self.state);
        let entry = state.entries.get(&id)?;
        if entry.usable_until <= now {
            state.remove(&id);
            return None;
        }
        let dictionary = Arc::clone(&entry.dictionary);
        state.touch(&id);
        Some(dictionary)
    }

    /// Drops a dictionary, because its response was purged.
    pub(crate) fn remove(&self, dictionary: &Dictionary) {
        lock(&self.state).remove(&dictionary.id());
    }

    /// Drops the dictionaries of a URL, because this URL was purged.
    pub(crate) fn remove_url(&self, primary: &[u8]) {
        let mut state = lock(&self.state);
        if state.entries.is_empty() {
            return;
        }
        let ids = state.by_url.get(url_of(primary)).cloned();
        for id in ids.into_iter().flatten() {
            state.remove(&id);
        }
    }

    /// Records a request for a delta that is not stored. `key` is the hash of the delta's key.
    pub(crate) fn request(&self, key: KeyHash) -> DeltaRequest {
        match self.requested.count(key.0) {
            0 => DeltaRequest::First,
            1 => DeltaRequest::Begin,
            // The delta was made and not stored, or evicted: it is not made for each request.
            count if count % RETRY_REQUESTS == 1 => DeltaRequest::Begin,
            _ => DeltaRequest::Later,
        }
    }

    pub(crate) fn count(&self) -> u64 {
        lock(&self.state).entries.len() as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        lock(&self.state).bytes
    }
}

impl State {
    fn touch(&mut self, id: &Id) {
        self.uses += 1;
        let entry = self.entries.get_mut(id).expect("each id has an entry");
        self.by_use.remove(&entry.used);
        entry.used = self.uses;
        self.by_use.insert(self.uses, id.clone());
    }

    fn remove(&mut self, id: &Id) -> Option<Entry> {
        let entry = self.entries.remove(id)?;
        let dictionary = &entry.dictionary;
        self.by_use.remove(&entry.used);
        self.by_generation.remove(&dictionary.generation);
        let url = url_of(dictionary.primary());
        if let Some(ids) = self.by_url.get_mut(url) {
            ids.retain(|other| other != id);
            if ids.is_empty() {
                self.by_url.remove(url);
            }
        }
        self.bytes -= dictionary.charge();
        Some(entry)
    }
}

impl Marks {
    fn new() -> Self {
        Self((0..MARKS).map(|_| AtomicU64::new(0)).collect())
    }

    fn slot(&self, mark: u64) -> &AtomicU64 {
        // The upper bits of a product depend on all bits of the mark.
        let index = mark.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - MARKS.trailing_zeros());
        &self.0[usize::try_from(index).expect("less than the length")]
    }

    fn clear(&self, mark: u64) {
        _ = self.slot(mark).compare_exchange(mark, 0, Relaxed, Relaxed);
    }

    /// Returns how often a mark was counted before. Its lower bits do not count.
    fn count(&self, mark: u64) -> u64 {
        let mark = mark & !COUNT_MASK;
        let slot = self.slot(mark);
        let old = slot.load(Relaxed);
        let count = match old & !COUNT_MASK == mark {
            true => (old & COUNT_MASK) + 1,
            false => 0,
        };
        // The counts of the upper half repeat.
        let kept = if count > COUNT_MASK {
            count / 2 + 1
        } else {
            count
        };
        slot.store(mark | kept, Relaxed);
        kept
    }
}

fn usable_until(policy: &StoredPolicy) -> Timestamp {
    policy
        .fresh_until
        .max(policy.stale_while_revalidate_until)
        .max(policy.stale_if_error_until)
}

/// Returns a number for a response with one lifetime. It is not 0, which is an empty slot. Generations that follow each
/// other have different numbers.
fn mark_of(generation: NonZeroU64, policy: &StoredPolicy) -> u64 {
    let until = usable_until(policy).as_millis();
    (generation.get() ^ until.rotate_left(32)).max(1)
}

/// The memory of a dictionary beside its body and its response: entries of four tables, and its terms.
const ENTRY_BYTES: u64 = 2048;

/// The slots of each table of marks, a power of two: 32 KiB.
const MARKS: usize = 4096;

const COUNT_MASK: u64 = 31;

/// A delta that is not found after it was made is made again after this many requests.
const RETRY_REQUESTS: u64 = 16;

#[cfg(test)]
mod tests {
    use edgeward_purge::Stamp;
    use edgeward_semantics::dictionary::MatchPattern;
    use http::{HeaderMap, StatusCode};

    use super::*;

    fn policy(fresh_until_secs: u64) -> StoredPolicy {
        let zero = Timestamp::from_millis(0);
        StoredPolicy {
            response_time: zero,
            initial_age_ms: 0,
            lifetime_ms: 0,
            fresh_until: Timestamp::from_secs(fresh_until_secs),
            stale_while_revalidate_until: zero,
            stale_if_error_until: zero,
            no_cache: false,
            forbids_stale: false,
            has_validator: false,
            stale_if_error_of_operator: false,
        }
    }

    fn dictionary(number: u8, url: &str, bytes: usize) -> Dictionary {
        let body = StoredBody::Memory(Bytes::new());
        let response = StoredResponse::new(StatusCode::OK, &HeaderMap::new(), policy(10), body);
        let kind = StoredKind::Response(response);
        let stored = Stored::new(url.as_bytes(), kind, Stamp(0));
        let terms = DictionaryTerms {
            pattern: MatchPattern::parse("/*", "", "/").expect("a pattern"),
            destinations: Box::default(),
            id: "".into(),
        };
        let generation = NonZeroU64::new(u64::from(number) + 1).expect("not zero");
        let body = Bytes::from(vec![number; bytes]);
        Dictionary::new(
            &stored,
            generation,
            "https://a".into(),
            terms,
            [number; 32],
            body,
        )
    }

    fn now() -> Timestamp {
        Timestamp::from_secs(1)
    }

    fn has(dictionaries: &Dictionaries, number: u8) -> bool {
        let found = dictionaries.find("https://a", &[number; 32], now());
        found.is_some_and(|found| found.body[0] == number)
    }

    #[test]
    fn the_least_recently_used_dictionaries_are_dropped_at_the_bound() {
        let dictionaries = Dictionaries::new(3 * (1000 + ENTRY_BYTES));
        for number in 0..3 {
            dictionaries.insert(dictionary(number, "https://a/x", 1000), &policy(10));
        }
        assert!(has(&dictionaries, 0));
        dictionaries.insert(dictionary(3, "https://a/y", 1000), &policy(10));
        let present: Vec<_> = (0..4).map(|number| has(&dictionaries, number)).collect();
        assert_eq!(present, [true, false, true, true]);
        assert_eq!(dictionaries.bytes(), 3 * (1000 + ENTRY_BYTES));
        dictionaries.insert(dictionary(4, "https://a/y", 4 * 4096), &policy(10));
        assert_eq!(
            dictionaries.count(),
            3,
            "one that is too large is not inserted"
        );
    }

    #[test]
    fn random_hashes_take_no_memory() {
        let dictionaries = Dictionaries::new(1 << 20);
        dictionaries.insert(dictionary(0, "https://a/x", 1000), &policy(10));
        let before = dictionaries.bytes();
        for number in 0..1_000_000_u64 {
            let mut hash = [7; 32];
            hash[..8].copy_from_slice(&number.to_le_bytes());
            assert!(dictionaries.find("https://a", &hash, now()).is_none());
            dictionaries.request(KeyHash(number << 8));
        }
        let state = lock(&dictionaries.state);
        assert_eq!(
            (state.entries.len(), state.by_use.len(), state.bytes),
            (1, 1, before)
        );
        assert_eq!(dictionaries.requested.0.len(), MARKS);
    }

    #[test]
    fn a_dictionary_is_found_for_its_origin_until_it_expires() {
        let dictionaries = Dictionaries::new(1 << 20);
        dictionaries.insert(dictionary(0, "https://a/x", 1000), &policy(10));
        let find = |origin, secs| {
            let now = Timestamp::from_secs(secs);
            dictionaries.find(origin, &[0; 32], now).is_some()
        };
        assert!(!find("https://b", 1));
        assert!(find("https://a", 9));
        let generation = NonZeroU64::new(1).expect("not zero");
        assert!(
            !dictionaries.note(generation, &policy(20)),
            "it is validated"
        );
        assert!(find("https://a", 19));
        assert!(!find("https://a", 20));
        assert_eq!(dictionaries.count(), 0);
    }

    #[test]
    fn a_purge_of_a_url_drops_its_dictionaries_only() {
        let dictionaries = Dictionaries::new(1 << 20);
        for (number, url) in [
            (0, "https://a/x"),
            (1, "https://a/x\nv"),
            (2, "https://a/xy"),
        ] {
            dictionaries.insert(dictionary(number, url, 10), &policy(10));
        }
        dictionaries.remove_url(b"https://a/x");
        let present: Vec<_> = (0..3).map(|number| has(&dictionaries, number)).collect();
        assert_eq!(present, [false, false, true]);
        let state = lock(&dictionaries.state);
        assert_eq!((state.by_url.len(), state.by_generation.len()), (1, 1));
    }

    #[test]
    fn a_body_is_copied_once_for_each_lifetime_and_again_after_it_was_dropped() {
        let dictionaries = Dictionaries::new(1000 + ENTRY_BYTES);
        let generation = NonZeroU64::new(1).expect("not zero");
        assert!(dictionaries.note(generation, &policy(10)));
        assert!(!dictionaries.note(generation, &policy(10)));
        dictionaries.forget(generation, &policy(10));
        assert!(dictionaries.note(generation, &policy(10)));
        dictionaries.insert(dictionary(0, "https://a/x", 1000), &policy(10));
        dictionaries.insert(dictionary(1, "https://a/x", 1000), &policy(10));
        assert!(dictionaries.note(generation, &policy(10)));
    }

    #[test]
    fn a_delta_is_made_at_the_second_request_and_not_at_each_later_one() {
        let dictionaries = Dictionaries::new(1 << 20);
        let results: Vec<_> = (0..200)
            .map(|_| dictionaries.request(KeyHash(1 << 20)))
            .collect();
        assert_eq!(results[0], DeltaRequest::First);
        assert_eq!(results[1], DeltaRequest::Begin);
        let begun = results
            .iter()
            .filter(|it| **it == DeltaRequest::Begin)
            .count();
        assert!((2..=1 + 200 / 15).contains(&begun), "{begun}");
    }
}
