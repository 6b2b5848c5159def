//! The URLs with the most requests, bytes and misses, and the share of one-hit wonders, in bounded memory.
//!
//! [`Top`] has a sketch for each of the three measures. A sketch (SpaceSaving) has a fixed number of counters. A new
//! URL takes over the smallest counter with its count. Therefore a counter is never below the true count of its URL,
//! and above it by at most the count that the URL took over. The counts decay, so that the list follows the traffic.
//!
//! [`OneHitWonders`] counts the requests of a sample of keys that shrinks as keys are found, so that its number is
//! bounded while each key of the sample is counted completely.
//!
//! Paper: Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams", ICDT
//! 2005.

use std::collections::HashMap;
use std::time::Duration;

use edgeward_policy::KeySample;
use edgeward_types::xxh3::xxh3_64_with_seed;
use edgeward_types::{KeyHash, Timestamp};

/// A URL with its estimated counts among the observed requests.
#[derive(Clone, Debug, PartialEq)]
pub struct TopUrl {
    /// The URL, cut after [`URL_BYTES_MAX`] bytes.
    pub url: String,
    /// Requests.
    pub requests: f64,
    /// Body bytes.
    pub bytes: f64,
    /// Requests that the cache did not answer.
    pub misses: f64,
}

/// The sketches of the three measures.
#[derive(Debug)]
pub struct Top {
    requests: Sketch,
    bytes: Sketch,
    misses: Sketch,
    observed: u64,
    /// The time of the last halving.
    halved_at: Option<Timestamp>,
}

impl Top {
    /// Returns sketches that take at most about `memory_max_bytes`, and have at least 16 counters each. `seed` is the
    /// secret seed of the hashes of URLs.
    pub fn new(memory_max_bytes: u64, seed: u64) -> Self {
        let counters = memory_max_bytes / 3 / COUNTER_BYTES;
        let counters = counters.clamp(16, COUNTERS_MAX) as usize;
        Self {
            requests: Sketch::new(counters, seed),
            bytes: Sketch::new(counters, seed),
            misses: Sketch::new(counters, seed),
            observed: 0,
            halved_at: None,
        }
    }

    /// Counts a request that ended at `at` and stands for `weight` requests.
    pub fn observe(&mut self, at: Timestamp, url: &str, bytes: u64, is_miss: bool, weight: u32) {
        let halved_at = *self.halved_at.get_or_insert(at);
        let halvings = at.since(halved_at).as_secs() / HALF_LIFE.as_secs();
        if halvings > 0 {
            let factor = 0.5_f64.powi(i32::try_from(halvings).unwrap_or(i32::MAX));
            for sketch in [&mut self.requests, &mut self.bytes, &mut self.misses] {
                sketch.scale(factor);
            }
            self.halved_at = Some(at);
        }
        self.observed += 1;
        let url = cut(url);
        let weight = f64::from(weight);
        let bytes = bytes as f64 * weight;
        let seen = [weight, bytes, if is_miss { weight } else { 0.0 }];
        self.requests.add(url, weight, seen);
        if bytes > 0.0 {
            self.bytes.add(url, bytes, seen);
        }
        if is_miss {
            self.misses.add(url, weight, seen);
        }
    }

    /// Returns the number of observed requests since the start.
    pub const fn observed(&self) -> u64 {
        self.observed
    }

    /// Returns the URLs with the most requests, with the most bytes and with the most misses, at most `count` each.
    ///
    /// If many URLs have one miss each, they take over all counters of misses. The counters of requests then still know
    /// the misses of frequent URLs.
    pub fn lists(&self, count: usize) -> [Vec<TopUrl>; 3] {
        let of_requests = self.requests.known();
        let of_misses = self.misses.known();
        let is_new = |one: &&Counter| of_misses.iter().all(|known| known.hash != one.hash);
        let missed = of_requests.iter().copied().filter(is_new);
        let missed = missed.filter(|one| one.seen[2] > 0.0);
        let misses = of_misses.iter().copied().chain(missed).collect();
        [
            largest(of_requests, 0, count),
            largest(self.bytes.known(), 1, count),
            largest(misses, 2, count),
        ]
    }

    /// Returns the memory of the sketches.
    pub fn memory_bytes(&self) -> u64 {
        let sketches = [&self.requests, &self.bytes, &self.misses];
        sketches.iter().map(|sketch| sketch.memory_bytes()).sum()
    }
}

/// One measure: counters in a heap with the smallest first.
#[derive(Debug)]
struct Sketch {
    counters_max: usize,
    seed: u64,
    heap: Vec<Counter>,
    /// The position of each URL in `heap`, by the hash of the URL.
    positions: HashMap<u64, usize>,
}

#[derive(Debug)]
struct Counter {
    hash: u64,
    url: String,
    count: f64,
    /// The count that this counter took over from another URL.
    error: f64,
    /// Requests, bytes and misses since the URL has this counter.
    seen: [f64; 3],
}

impl Sketch {
    fn new(counters_max: usize, seed: u64) -> Self {
        Self {
            counters_max,
            seed,
            heap: Vec::with_capacity(counters_max),
            positions: HashMap::with_capacity(counters_max),
        }
    }

    fn add(&mut self, url: &str, weight: f64, seen: [f64; 3]) {
        let hash = xxh3_64_with_seed(url.as_bytes(), self.seed);
        let at = match self.positions.get(&hash) {
            Some(at) => *at,
            None if self.heap.len() < self.counters_max => {
                self.heap.push(Counter {
                    hash,
                    url: url.to_owned(),
                    count: 0.0,
                    error: 0.0,
                    seen: [0.0; 3],
                });
                let last = self.heap.len() - 1;
                self.positions.insert(hash, last);
                self.sift_up(last)
            }
            None => {
                let smallest = &mut self.heap[0];
                self.positions.remove(&smallest.hash);
                smallest.hash = hash;
                smallest.url.clear();
                smallest.url.push_str(url);
                smallest.error = smallest.count;
                smallest.seen = [0.0; 3];
                self.positions.insert(hash, 0);
                0
            }
        };
        let counter = &mut self.heap[at];
        counter.count += weight;
        for (sum, value) in counter.seen.iter_mut().zip(seen) {
            *sum += value;
        }
        self.sift_down(at);
    }

    fn scale(&mut self, factor: f64) {
        for counter in &mut self.heap {
            counter.count *= factor;
            counter.error *= factor;
            counter.seen = counter.seen.map(|value| value * factor);
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.positions.insert(self.heap[a].hash, a);
        self.positions.insert(self.heap[b].hash, b);
    }

    fn sift_up(&mut self, mut at: usize) -> usize {
        while at > 0 && self.heap[at].count < self.heap[(at - 1) / 2].count {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        at
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let children = (2 * at + 1..2 * at + 3).take_while(|child| *child < self.heap.len());
            let smallest =
                children.min_by(|a, b| self.heap[*a].count.total_cmp(&self.heap[*b].count));
            match smallest {
                Some(child) if self.heap[child].count < self.heap[at].count => {
                    self.swap(at, child);
                    at = child;
                }
                _ => return,
            }
        }
    }

    /// Returns the counters that have taken over at most half of their count. The others say little about their URLs.
    fn known(&self) -> Vec<&Counter> {
        let counters = self.heap.iter();
        counters
            .filter(|one| one.error <= one.count / 2.0)
            .collect()
    }

    fn memory_bytes(&self) -> u64 {
        let urls: usize = self.heap.iter().map(|counter| counter.url.capacity()).sum();
        let counters = self.heap.capacity() * size_of::<Counter>();
        let positions = self.positions.capacity() * (size_of::<(u64, usize)>() + 2);
        (urls + counters + positions) as u64
    }
}

/// Returns the URLs of the counters that have the most of a measure.
fn largest(mut counters: Vec<&Counter>, measure: usize, count: usize) -> Vec<TopUrl> {
    counters.sort_by(|a, b| b.seen[measure].total_cmp(&a.seen[measure]));
    let counters = counters.into_iter().take(count);
    counters
        .map(|counter| {
            let [requests, bytes, misses] = counter.seen;
            TopUrl {
                url: counter.url.clone(),
                requests,
                bytes,
                misses,
            }
        })
        .collect()
}

/// The share of keys with exactly one request, since the start.
#[derive(Debug)]
pub struct OneHitWonders {
    sample: KeySample,
    /// The requests of each key of the sample.
    requests: HashMap<KeyHash, u32>,
    keys_max: usize,
}

impl OneHitWonders {
    /// Returns a counter that follows at most `keys_max` keys.
    pub fn new(keys_max: usize) -> Self {
        Self {
            sample: KeySample {
                below: u64::MAX,
                large_log2: KeySample::NONE.large_log2,
            },
            requests: HashMap::new(),
            keys_max,
        }
    }

    /// Forgets the keys outside another sample of small objects, because not all their requests will be observed.
    pub fn limit(&mut self, other: KeySample) {
        if other.below < self.sample.below {
            self.sample.below = other.below;
            let sample = self.sample;
            self.requests.retain(|key, _| sample.takes(*key, 0));
        }
    }

    /// Counts a request for a key. All requests for the keys of the sample must be observed.
    pub fn observe(&mut self, key: KeyHash) {
        // Each key counts as small: the sample of the caches has more of the large objects.
        if !self.sample.takes(key, 0) {
            return;
        }
        let requests = self.requests.entry(key).or_default();
        *requests = requests.saturating_add(1);
        while self.requests.len() > self.keys_max {
            self.limit(self.sample.half());
        }
    }

    /// Returns the share of keys with one request, and the share of requests for these keys. `None` without requests.
    pub fn ratios(&self) -> Option<(f64, f64)> {
        if self.requests.is_empty() {
            return None;
        }
        let once = self.requests.values().filter(|count| **count == 1).count() as f64;
        let all: u64 = self.requests.values().map(|count| u64::from(*count)).sum();
        Some((once / self.requests.len() as f64, once / all as f64))
    }

    /// Returns the number of keys in the sample.
    pub fn keys(&self) -> usize {
        self.requests.len()
    }

    /// Returns the memory of the counts.
    pub fn memory_bytes(&self) -> u64 {
        (self.requests.capacity() * (size_of::<(KeyHash, u32)>() + 2)) as u64
    }
}

/// Returns the beginning of a URL.
fn cut(url: &str) -> &str {
    let mut end = url.len().min(URL_BYTES_MAX);
    while !url.is_char_boundary(end) {
        end -= 1;
    }
    &url[..end]
}

/// The most bytes of a URL that are kept.
pub const URL_BYTES_MAX: usize = 256;

/// The time after which a request counts half.
const HALF_LIFE: Duration = Duration::from_secs(600);

/// The most counters of a sketch: the list of a page has tens of URLs, and a URL with 1 % of the requests is found with
/// 100 counters.
const COUNTERS_MAX: u64 = 512;

/// The memory of a counter with the longest URL. A string that grows may take twice its length.
const COUNTER_BYTES: u64 = (2 * URL_BYTES_MAX + size_of::<Counter>() + 2 * 18) as u64;

#[cfg(test)]
mod tests {
    use edgeward_types::SplitMix64;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO.after(Duration::from_secs(seconds))
    }

    /// Method: a URL of rank r is drawn with probability proportional to 1/r among 100,000, and exact counts.
    #[test]
    fn the_top_urls_of_skewed_traffic_are_found_with_their_counts() {
        let mut top = Top::new(1 << 20, 7);
        let mut random = SplitMix64(7);
        let mut exact: HashMap<u64, u64> = HashMap::new();
        for _ in 0..200_000 {
            let uniform = (random.draw() >> 11) as f64 / (1u64 << 53) as f64;
            let rank = 100_000_f64.powf(uniform) as u64;
            *exact.entry(rank).or_default() += 1;
            top.observe(
                at(0),
                &format!("http://a/{rank}"),
                10 * rank,
                rank.is_multiple_of(2),
                1,
            );
        }
        let [requests, bytes, misses] = top.lists(10);
        let mut ranks: Vec<_> = exact.into_iter().collect();
        ranks.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        for (found, (rank, count)) in requests.iter().zip(&ranks) {
            assert_eq!(found.url, format!("http://a/{rank}"));
            let count = *count as f64;
            assert!(
                (found.requests - count).abs() <= 0.02 * count,
                "{found:?} {count}"
            );
            assert_eq!(found.bytes, found.requests * 10.0 * *rank as f64);
        }
        assert_eq!(requests.len(), 10);
        assert!(bytes.len() <= 10);
        let is_even = |url: &TopUrl| {
            url.url
                .as_bytes()
                .last()
                .is_some_and(|digit| digit % 2 == 0)
        };
        assert!(
            misses.len() == 10 && misses.iter().all(is_even),
            "{misses:?}"
        );
    }

    /// Method: distinct URLs of the largest length, with hosts of their own; the heap stays a heap with one counter for
    /// each URL.
    #[test]
    fn many_distinct_urls_stay_within_the_memory() {
        for memory_max in [1 << 16, 1 << 20] {
            let mut top = Top::new(memory_max, 7);
            for n in 0..100_000u64 {
                let url = format!("http://host-{n}/{}", "x".repeat(300));
                top.observe(at(n / 100), &url, n, true, 1);
            }
            assert!(top.memory_bytes() <= memory_max, "{}", top.memory_bytes());
            let sketch = &top.requests;
            assert_eq!(sketch.positions.len(), sketch.heap.len());
            for (position, counter) in sketch.heap.iter().enumerate() {
                assert_eq!(sketch.positions.get(&counter.hash), Some(&position));
                assert!(sketch.heap[position.saturating_sub(1) / 2].count <= counter.count);
            }
            let [requests, ..] = top.lists(10);
            assert!(requests.len() <= 10);
        }
    }

    /// Method: 40 URLs with a miss in each sixteenth of their requests, among URLs with one miss each.
    #[test]
    fn frequent_urls_have_their_misses_listed_among_many_urls_with_one_miss() {
        let mut top = Top::new(400 << 10, 7);
        for n in 0..40_000_u64 {
            let frequent = format!("shop.example/p/{}", n % 40);
            top.observe(at(0), &frequent, 100, n / 40 % 16 == 0, 1);
            if n % 2 == 0 {
                top.observe(at(0), &format!("shop.example/once/{n}"), 100, true, 1);
            }
        }
        let [requests, _, misses] = top.lists(15);
        assert_eq!((requests.len(), misses.len()), (15, 15));
        let is_frequent =
            |url: &TopUrl| url.url.starts_with("shop.example/p/") && url.misses > 30.0;
        assert!(misses.iter().all(is_frequent), "{misses:#?}");
    }

    #[test]
    fn a_url_that_was_popular_yesterday_gives_way() {
        let mut top = Top::new(1 << 20, 7);
        (0..1000).for_each(|_| top.observe(at(0), "/old", 1, false, 1));
        (0..100).for_each(|_| top.observe(at(86_400), "/new", 1, false, 1));
        let [requests, ..] = top.lists(2);
        assert_eq!(requests[0].url, "/new");
        assert!(requests[1].requests < 0.01, "{requests:?}");
    }

    #[test]
    fn a_long_url_is_cut_at_a_character() {
        let mut top = Top::new(1 << 20, 7);
        top.observe(at(0), &"ä".repeat(200), 1, false, 3);
        let [requests, ..] = top.lists(1);
        assert_eq!(requests[0].url, "ä".repeat(128));
        assert_eq!(requests[0].requests, 3.0);
    }

    /// Method: 200,000 keys. Every second key has two requests, and the others have one.
    #[test]
    fn the_share_of_one_hit_wonders_is_estimated_from_a_bounded_sample() {
        let mut wonders = OneHitWonders::new(1000);
        let hash = |key: u64| KeyHash(SplitMix64(key).draw());
        for key in 0..200_000 {
            wonders.observe(hash(key));
            if key % 2 == 0 {
                wonders.observe(hash(key));
            }
            assert!(wonders.keys() <= 1000);
            assert!(
                wonders.memory_bytes() < 64 << 10,
                "{}",
                wonders.memory_bytes()
            );
        }
        let (of_keys, of_requests) = wonders.ratios().expect("there are requests");
        assert!((of_keys - 0.5).abs() < 0.08, "{of_keys}");
        assert!((of_requests - 1.0 / 3.0).abs() < 0.08, "{of_requests}");
        assert_eq!(OneHitWonders::new(10).ratios(), None);
    }
}
