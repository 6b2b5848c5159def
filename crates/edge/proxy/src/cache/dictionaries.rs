//! The dictionaries that clients may have (RFC 9842): bodies of responses by their SHA-256.
//!
//! A body is copied when a client gets the response, so the dictionary stays when the response of the same URL is
//! replaced by its next version, or expires: the client may keep it for longer than the edge. All dictionaries together
//! have a bound of memory. One that was not used within the last minute is dropped for another one; without such a one,
//! no body is copied, so that more bodies than the memory holds cost at most one copy of this memory each minute. A
//! hash that a client invents takes no memory, because lookups insert nothing.

mod dictionary;
mod marks;

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};

use edgeward_semantics::dictionary::DictionaryHash;
use edgeward_types::{KeyHash, Timestamp};

pub(crate) use self::dictionary::Dictionary;
use self::dictionary::{ENTRY_BYTES, Id};
use self::marks::Marks;
use super::key_parts::url_of;
use crate::rt::panics::lock;

/// All dictionaries of the edge.
#[derive(Debug)]
pub(crate) struct Dictionaries {
    bytes_max: u64,
    state: Mutex<State>,
    /// The responses that clients got, by generation and minute.
    noted: Marks,
    /// The deltas that were requested.
    requested: Marks,
}

/// The permission to insert the body of a response: the removals of its URL before it was copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket(u64);

/// The result of [`Dictionaries::request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeltaRequest {
    First,
    /// The delta is made now.
    Begin,
    /// The delta was begun before.
    Later,
}

#[derive(Debug)]
struct State {
    entries: HashMap<Id, Entry>,
    by_generation: HashMap<NonZeroU64, Id>,
    by_url: HashMap<Box<[u8]>, Vec<Id>>,
    /// The least recently used one first.
    by_use: BTreeMap<Use, Id>,
    uses: u64,
    bytes: u64,
    /// Counts the purges of URLs, by a hash of the URL: a body that is copied meanwhile is not inserted.
    removals: [u64; 256],
}

/// The minute in which a dictionary was used, and the number of the use.
type Use = (u64, u64);

#[derive(Debug)]
struct Entry {
    dictionary: Arc<Dictionary>,
    used: Use,
}

impl Dictionaries {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            state: Mutex::new(State::new()),
            noted: Marks::new(),
            requested: Marks::new(),
        }
    }

    /// Returns true if it was recorded in this minute that a client got a response. Costs no lock.
    pub(crate) fn is_noted(&self, generation: NonZeroU64, now: Timestamp) -> bool {
        self.noted.has(mark_of(generation, minute_of(now)))
    }

    /// Records that a client got a response, which uses its dictionary. Returns a ticket if the body, of `length`
    /// bytes, is to be copied.
    pub(crate) fn note(
        &self,
        generation: NonZeroU64,
        primary: &[u8],
        length: u64,
        now: Timestamp,
    ) -> Option<Ticket> {
        if self.is_noted(generation, now) {
            return None;
        }
        let minute = minute_of(now);
        self.noted.set(mark_of(generation, minute));
        let mut state = lock(&self.state);
        if let Some(id) = state.by_generation.get(&generation).cloned() {
            state.touch(&id, minute);
            return None;
        }
        let charge = length.saturating_add(ENTRY_BYTES);
        let is_possible = length > 0 && state.has_space(charge, self.bytes_max, minute);
        is_possible.then(|| Ticket(*state.removals(primary)))
    }

    /// Inserts a dictionary, and drops those that were not used for the longest time to make space. Inserts nothing if
    /// they all were used in this minute, or if the URL was purged since the ticket was given.
    pub(crate) fn insert(&self, dictionary: Dictionary, ticket: Ticket, now: Timestamp) {
        let (id, charge) = (dictionary.id(), dictionary.charge());
        let minute = minute_of(now);
        let mut state = lock(&self.state);
        if *state.removals(dictionary.primary()) != ticket.0
            || !state.has_space(charge, self.bytes_max, minute)
        {
            return;
        }
        state.remove(&id);
        while state.bytes + charge > self.bytes_max {
            let Some(oldest) = state.by_use.values().next().cloned() else {
                return;
            };
            state.remove(&oldest);
        }
        state.bytes += charge;
        state
            .by_generation
            .insert(dictionary.generation, id.clone());
        let url = url_of(dictionary.primary()).into();
        state.by_url.entry(url).or_default().push(id.clone());
        let entry = Entry {
            dictionary: Arc::new(dictionary),
            used: (0, 0),
        };
        state.entries.insert(id.clone(), entry);
        state.touch(&id, minute);
    }

    /// Returns the dictionary of an origin with a hash.
    pub(crate) fn find(
        &self,
        origin: &str,
        hash: &DictionaryHash,
        now: Timestamp,
    ) -> Option<Arc<Dictionary>> {
        let id = (origin.into(), *hash);
        let mut state = lock(&self.state);
        let dictionary = Arc::clone(&state.entries.get(&id)?.dictionary);
        state.touch(&id, minute_of(now));
        Some(dictionary)
    }

    /// Drops a dictionary, because its response was purged.
    pub(crate) fn remove(&self, dictionary: &Dictionary) {
        lock(&self.state).remove(&dictionary.id());
    }

    /// Drops the dictionaries of a URL, because this URL was purged.
    pub(crate) fn remove_url(&self, primary: &[u8]) {
        let mut state = lock(&self.state);
        *state.removals(primary) += 1;
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
    fn new() -> Self {
        Self {
            entries: HashMap::new(),
            by_generation: HashMap::new(),
            by_url: HashMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            bytes: 0,
            removals: [0; 256],
        }
    }

    fn touch(&mut self, id: &Id, minute: u64) {
        self.uses += 1;
        let entry = self.entries.get_mut(id).expect("each id has an entry");
        self.by_use.remove(&entry.used);
        entry.used = (minute, self.uses);
        self.by_use.insert(entry.used, id.clone());
    }

    /// Returns true if there is space for `charge` bytes without the dictionaries that were not used in this minute.
    /// Takes time for each of these that would be dropped.
    fn has_space(&self, charge: u64, bytes_max: u64, minute: u64) -> bool {
        if charge > bytes_max {
            return false;
        }
        let mut kept = self.bytes;
        let mut idle = self.by_use.range(..(minute, 0));
        while kept.saturating_add(charge) > bytes_max {
            let Some((_, id)) = idle.next() else {
                return false;
            };
            kept -= self.entries[id].dictionary.charge();
        }
        true
    }

    /// Returns the count of purges of a URL, and of others with the same hash.
    fn removals(&mut self, primary: &[u8]) -> &mut u64 {
        let mut hasher = DefaultHasher::new();
        url_of(primary).hash(&mut hasher);
        let index = usize::try_from(hasher.finish() % 256).expect("less than 256");
        &mut self.removals[index]
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

fn minute_of(now: Timestamp) -> u64 {
    now.as_millis() / 60_000
}

/// Returns a number for a response in a minute. It is not 0, which is an empty slot. Generations that follow each other
/// have different numbers.
fn mark_of(generation: NonZeroU64, minute: u64) -> u64 {
    (generation.get() ^ minute.rotate_left(32)).max(1)
}

/// A delta that is not found after it was made is made again after this many requests.
const RETRY_REQUESTS: u64 = 16;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use edgeward_purge::Stamp;
    use edgeward_semantics::StoredPolicy;
    use edgeward_semantics::dictionary::{DictionaryTerms, MatchPattern};
    use http::{HeaderMap, StatusCode};

    use super::*;
    use crate::cache::stored::{Stored, StoredBody, StoredKind, StoredResponse};

    fn dictionary(number: u8, url: &str, bytes: usize) -> Dictionary {
        let zero = Timestamp::from_millis(0);
        let policy = StoredPolicy {
            response_time: zero,
            initial_age_ms: 0,
            lifetime_ms: 0,
            fresh_until: zero,
            stale_while_revalidate_until: zero,
            stale_if_error_until: zero,
            no_cache: false,
            forbids_stale: false,
            has_validator: false,
            stale_if_error_of_operator: false,
        };
        let body = StoredBody::Memory(Bytes::new());
        let response = StoredResponse::new(StatusCode::OK, &HeaderMap::new(), policy, body);
        let kind = StoredKind::Response(response);
        let stored = Stored::new(url.as_bytes(), kind, Stamp(0));
        let terms = DictionaryTerms {
            pattern: MatchPattern::parse("/*", "", "/").expect("a pattern"),
            destinations: Box::default(),
            id: "".into(),
        };
        let body = Bytes::from(vec![number; bytes]);
        let hash = [number; 32];
        Dictionary::new(
            &stored,
            generation(number),
            "https://a".into(),
            terms,
            hash,
            body,
        )
    }

    fn generation(number: u8) -> NonZeroU64 {
        NonZeroU64::new(u64::from(number) + 1).expect("not zero")
    }

    fn minute(minute: u64) -> Timestamp {
        Timestamp::from_secs(60 * minute)
    }

    /// A client gets a response in a minute. Returns true if its body is copied.
    fn learn(dictionaries: &Dictionaries, number: u8, url: &str, bytes: usize, at: u64) -> bool {
        let (length, now) = (bytes as u64, minute(at));
        let ticket = dictionaries.note(generation(number), url.as_bytes(), length, now);
        if let Some(ticket) = ticket {
            dictionaries.insert(dictionary(number, url, bytes), ticket, now);
        }
        ticket.is_some()
    }

    fn has(dictionaries: &Dictionaries, number: u8, at: u64) -> bool {
        let found = dictionaries.find("https://a", &[number; 32], minute(at));
        found.is_some_and(|found| found.body[0] == number)
    }

    fn numbers(dictionaries: &Dictionaries) -> Vec<u8> {
        let state = lock(&dictionaries.state);
        let mut numbers: Vec<_> = state.entries.keys().map(|(_, hash)| hash[0]).collect();
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn the_least_recently_used_dictionaries_are_dropped_at_the_bound() {
        let charge = dictionary(0, "https://a/x", 1000).charge();
        let dictionaries = Dictionaries::new(3 * charge);
        for number in 0..3 {
            assert!(learn(&dictionaries, number, "https://a/x", 1000, 0));
        }
        assert!(has(&dictionaries, 0, 1), "a client offers one");
        assert!(
            !learn(&dictionaries, 1, "https://a/x", 1000, 2),
            "and gets another"
        );
        assert!(learn(&dictionaries, 3, "https://a/y", 1000, 3));
        assert_eq!(numbers(&dictionaries), [0, 1, 3]);
        assert_eq!(dictionaries.bytes(), 3 * charge);
        assert!(
            !learn(&dictionaries, 4, "https://a/y", 4 * 4096, 4),
            "too large"
        );
        assert_eq!(dictionaries.count(), 3);
    }

    #[test]
    fn more_bodies_than_the_memory_holds_are_not_copied_at_each_hit() {
        let charge = dictionary(0, "https://a/x", 1000).charge();
        let dictionaries = Dictionaries::new(3 * charge);
        let copies = |at| {
            let hits = (0..20).flat_map(|_| 0..10);
            hits.filter(|&number| learn(&dictionaries, number, "https://a/x", 1000, at))
                .count()
        };
        let (first, second) = (copies(0), copies(1));
        assert_eq!(first, 3);
        assert!(second <= 3, "{second}");
    }

    #[test]
    fn a_body_for_which_too_few_are_idle_drops_none() {
        let charge = dictionary(0, "https://a/x", 1000).charge();
        let dictionaries = Dictionaries::new(3 * charge);
        for number in 0..3 {
            learn(&dictionaries, number, "https://a/x", 1000, 0);
        }
        assert!(has(&dictionaries, 0, 1) && has(&dictionaries, 1, 1));
        let large = 2 * usize::try_from(charge).expect("a small number");
        assert!(
            !learn(&dictionaries, 3, "https://a/y", large, 1),
            "it is not copied"
        );
        assert_eq!(numbers(&dictionaries), [0, 1, 2]);
    }

    #[test]
    fn random_hashes_take_no_memory() {
        let dictionaries = Dictionaries::new(1 << 20);
        learn(&dictionaries, 0, "https://a/x", 1000, 0);
        let before = dictionaries.bytes();
        for number in 0..1_000_000_u64 {
            let mut hash = [7; 32];
            hash[..8].copy_from_slice(&number.to_le_bytes());
            assert!(dictionaries.find("https://a", &hash, minute(0)).is_none());
            dictionaries.request(KeyHash(number << 8));
        }
        let state = lock(&dictionaries.state);
        assert_eq!(
            (state.entries.len(), state.by_use.len(), state.bytes),
            (1, 1, before)
        );
    }

    #[test]
    fn a_dictionary_is_found_for_its_origin_only() {
        let dictionaries = Dictionaries::new(1 << 20);
        learn(&dictionaries, 0, "https://a/x", 1000, 0);
        assert!(
            dictionaries
                .find("https://b", &[0; 32], minute(1))
                .is_none()
        );
        assert!(has(&dictionaries, 0, 1));
    }

    #[test]
    fn a_purge_of_a_url_drops_its_dictionaries_only() {
        let dictionaries = Dictionaries::new(1 << 20);
        for (number, url) in [
            (0, "https://a/x"),
            (1, "https://a/x\nv"),
            (2, "https://a/xy"),
        ] {
            learn(&dictionaries, number, url, 10, 0);
        }
        dictionaries.remove_url(b"https://a/x");
        assert_eq!(numbers(&dictionaries), [2]);
        let state = lock(&dictionaries.state);
        assert_eq!((state.by_url.len(), state.by_generation.len()), (1, 1));
    }

    #[test]
    fn a_body_whose_url_is_purged_while_it_is_copied_is_not_inserted() {
        let dictionaries = Dictionaries::new(1 << 20);
        for (purged, expected) in [("https://a/x", 0), ("https://a/other", 1)] {
            let url = "https://a/x";
            let ticket = dictionaries.note(generation(expected), url.as_bytes(), 10, minute(0));
            dictionaries.remove_url(purged.as_bytes());
            let copied = dictionary(expected, url, 10);
            dictionaries.insert(copied, ticket.expect("a ticket"), minute(0));
            assert_eq!(dictionaries.count(), u64::from(expected), "{purged}");
        }
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
