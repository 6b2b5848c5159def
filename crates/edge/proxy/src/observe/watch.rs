//! A worker's samples of its finished requests, and their ring. [`config::watch`](crate::config::watch) has the border.
//!
//! A request outside both samples costs two comparisons and two additions.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use edgeward_policy::KeySample;
use edgeward_types::{SplitMix64, Timestamp};

use super::counter::Counter;
use super::labels::Label as _;
use super::outcome::RequestOutcome;
use super::site_counters::OutcomeClass;
use crate::config::watch::{FinishedRequest, RequestedObject, SampledText, Samples, Tally};

/// The state of the samples that all workers share.
#[derive(Debug, Default)]
pub(crate) struct SampleSwitch {
    keys_below: AtomicU64,
    large_log2: AtomicU32,
    texts_one_in: AtomicU32,
}

impl SampleSwitch {
    pub(crate) fn set(&self, samples: Samples) {
        self.keys_below.store(samples.keys.below, Relaxed);
        self.large_log2.store(samples.keys.large_log2, Relaxed);
        self.texts_one_in.store(samples.texts_one_in, Relaxed);
    }

    /// Returns the sample of keys. During a change it may have one part of the old sample.
    #[inline]
    fn keys(&self) -> KeySample {
        KeySample {
            below: self.keys_below.load(Relaxed),
            large_log2: self.large_log2.load(Relaxed),
        }
    }
}

/// The counts of one worker, which the draining thread reads.
#[derive(Debug, Default)]
pub(crate) struct WatchCounters {
    of_objects: TallyCounters,
    others: TallyCounters,
    lost: Counter,
}

/// The counters of a [`Tally`].
#[derive(Debug, Default)]
pub(crate) struct TallyCounters {
    /// Indexed by 1 for hits and 0 for all other requests.
    requests: [Counter; 2],
    bytes: [Counter; 2],
}

impl TallyCounters {
    fn count(&self, is_hit: bool, body_bytes: u64) {
        self.requests[usize::from(is_hit)].increment();
        self.bytes[usize::from(is_hit)].add(body_bytes);
    }

    fn tally(&self) -> Tally {
        let [misses, hits] = self.requests.each_ref().map(Counter::value);
        let [miss_bytes, hit_bytes] = self.bytes.each_ref().map(Counter::value);
        Tally {
            requests: misses + hits,
            hits,
            bytes: miss_bytes + hit_bytes,
            hit_bytes,
        }
    }
}

impl WatchCounters {
    /// Returns the counts of the requests whose object is known.
    pub(crate) fn of_objects(&self) -> Tally {
        self.of_objects.tally()
    }

    /// Returns the counts of all other requests.
    pub(crate) fn others(&self) -> Tally {
        self.others.tally()
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost.value()
    }
}

/// A worker's end of its ring.
pub(crate) struct WatchQueue {
    ring: RefCell<rtrb::Producer<FinishedRequest>>,
    switch: Arc<SampleSwitch>,
    counters: Arc<WatchCounters>,
    /// Requests until the next one of the sample of texts.
    until_text: Cell<u32>,
    /// The state of the generator of gaps.
    random: Cell<u64>,
}

/// The end of a request.
pub(crate) struct SeenEnd {
    pub(crate) outcome: RequestOutcome,
    pub(crate) class: OutcomeClass,
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    /// True if the response was not sent completely.
    pub(crate) is_aborted: bool,
    pub(crate) duration: Duration,
}

impl WatchQueue {
    /// Returns the queue of a worker, and the end that the draining thread reads.
    pub(crate) fn new(switch: &Arc<SampleSwitch>, seed: u64) -> (Self, WatchRing) {
        let (ring, consumer) = rtrb::RingBuffer::new(RING_SAMPLES);
        let counters = Arc::new(WatchCounters::default());
        let queue = Self {
            ring: RefCell::new(ring),
            switch: Arc::clone(switch),
            counters: Arc::clone(&counters),
            until_text: Cell::new(1),
            random: Cell::new(seed),
        };
        (queue, WatchRing { consumer, counters })
    }

    /// Returns the text of a request that has just begun, if the request is in the sample of texts.
    #[inline]
    pub(crate) fn text(&self, text: impl FnOnce() -> Box<SampledText>) -> Option<Box<SampledText>> {
        let left = self.until_text.get().saturating_sub(1);
        self.until_text.set(left);
        if left > 0 || !self.begin_gap() {
            return None;
        }
        Some(text())
    }

    /// Draws the number of requests until the next text. Returns false if no request has one.
    #[cold]
    fn begin_gap(&self) -> bool {
        let one_in = self.switch.texts_one_in.load(Relaxed);
        if one_in == 0 {
            self.until_text.set(OFF_GAP);
            return false;
        }
        // A uniform gap of this mean. A constant one would follow the pattern of periodic requests.
        let mut random = SplitMix64(self.random.get());
        let gap = 1 + random.draw() % (2 * u64::from(one_in) - 1);
        self.random.set(random.0);
        self.until_text.set(u32::try_from(gap).unwrap_or(u32::MAX));
        true
    }

    /// Counts a finished request, and queues it if it is in a sample.
    #[inline]
    pub(crate) fn finish(
        &self,
        object: Option<RequestedObject>,
        text: Option<Box<SampledText>>,
        now: impl FnOnce() -> Timestamp,
        end: SeenEnd,
    ) {
        // A 304, 206 or error page has another length than the object.
        let is_whole = end.status == 200 && !end.is_aborted;
        let object =
            object.and_then(|object| object.with_length(is_whole.then_some(end.body_bytes)));
        let is_hit = matches!(end.outcome, RequestOutcome::Hit | RequestOutcome::HitStale);
        let tally = match object {
            Some(_) => &self.counters.of_objects,
            None => &self.counters.others,
        };
        tally.count(is_hit, end.body_bytes);
        let is_key_sample =
            object.is_some_and(|object| self.switch.keys().takes(object.key, object.charge_bytes));
        if is_key_sample || text.is_some() {
            self.push(object, text, is_key_sample, now(), end);
        }
    }

    #[cold]
    fn push(
        &self,
        object: Option<RequestedObject>,
        text: Option<Box<SampledText>>,
        is_key_sample: bool,
        at: Timestamp,
        end: SeenEnd,
    ) {
        let seen = FinishedRequest {
            at,
            object,
            is_key_sample,
            outcome: end.outcome.as_str(),
            class: end.class.as_str(),
            status: end.status,
            body_bytes: end.body_bytes,
            duration: end.duration,
            text,
        };
        if self.ring.borrow_mut().push(seen).is_err() {
            self.counters.lost.increment();
        }
    }
}

/// The end of a worker's ring that the draining thread reads.
pub(crate) struct WatchRing {
    consumer: rtrb::Consumer<FinishedRequest>,
    pub(crate) counters: Arc<WatchCounters>,
}

impl WatchRing {
    /// Moves the samples that are in the ring now to `batch`. A busy worker does not delay the other rings.
    pub(crate) fn drain(&mut self, batch: &mut Vec<FinishedRequest>) {
        for _ in 0..self.consumer.slots() {
            match self.consumer.pop() {
                Ok(seen) => batch.push(seen),
                Err(_) => return,
            }
        }
    }
}

/// The capacity of a ring. The rings are drained ten times a second, so a worker may sample 20 thousand requests per
/// second. A ring takes [`RING_MEMORY`](crate::config::InsightConfig::RING_MEMORY).
const RING_SAMPLES: usize = 2048;

/// The number of requests after which a worker looks again if texts are wanted.
const OFF_GAP: u32 = 1000;

#[cfg(test)]
mod tests {
    use edgeward_types::KeyHash;

    use super::*;
    use crate::config::InsightConfig;

    fn queue(samples: Samples) -> (WatchQueue, WatchRing) {
        let switch = Arc::new(SampleSwitch::default());
        switch.set(samples);
        WatchQueue::new(&switch, 7)
    }

    fn keys(below: u64) -> KeySample {
        KeySample {
            below,
            ..KeySample::NONE
        }
    }

    fn finish(queue: &WatchQueue, key: u64, text: Option<Box<SampledText>>) {
        let object = RequestedObject {
            key: KeyHash(key),
            charge_bytes: 500,
            length: 100,
            lifetime: Duration::ZERO,
            stale_while_revalidate: Duration::ZERO,
            has_validator: true,
        };
        let end = SeenEnd {
            outcome: RequestOutcome::Hit,
            class: OutcomeClass::Hit,
            status: 200,
            body_bytes: 100,
            is_aborted: false,
            duration: Duration::ZERO,
        };
        queue.finish(Some(object), text, || Timestamp::ZERO, end);
    }

    /// Each request is counted, also one outside the sample and one for which the ring has no room.
    #[test]
    fn a_full_ring_drops_and_counts_samples_and_counts_all_requests() {
        let (queue, mut ring) = queue(Samples {
            keys: keys(u64::MAX),
            texts_one_in: 0,
        });
        let requests = RING_SAMPLES as u64 + 10;
        (0..requests).for_each(|key| finish(&queue, key, None));
        let mut batch = Vec::new();
        ring.drain(&mut batch);
        assert_eq!((batch.len(), ring.counters.lost()), (RING_SAMPLES, 10));
        let tally = ring.counters.of_objects();
        assert_eq!((tally.requests, tally.hits), (requests, requests));
        assert_eq!(tally.hit_bytes, 100 * requests);
        finish(&queue, 1, None);
        ring.drain(&mut batch);
        assert_eq!((batch.len(), ring.counters.lost()), (RING_SAMPLES + 1, 10));
    }

    /// Method: keys with few distinct bits, as a weak hash would give.
    #[test]
    fn the_sample_of_keys_has_its_share_of_the_keys_and_always_the_same() {
        let sampled = |below| {
            let (queue, mut ring) = queue(Samples {
                keys: keys(below),
                texts_one_in: 0,
            });
            let mut keys = Vec::new();
            for key in 0..100_000 {
                finish(&queue, key << 3, None);
                let mut batch = Vec::new();
                ring.drain(&mut batch);
                keys.extend(batch.iter().filter_map(|seen| Some(seen.object?.key.0)));
            }
            keys
        };
        let (none, few, more) = (sampled(0), sampled(u64::MAX / 64), sampled(u64::MAX / 32));
        assert!(none.is_empty());
        assert!((1400..1700).contains(&few.len()), "{}", few.len());
        assert!((2900..3400).contains(&more.len()), "{}", more.len());
        assert!(few.iter().all(|key| more.contains(key)));
    }

    #[test]
    fn a_ring_takes_the_memory_that_is_planned_for_it() {
        let bytes = (RING_SAMPLES * size_of::<FinishedRequest>()) as u64;
        let planned = InsightConfig::RING_MEMORY.bytes();
        assert!((planned / 10 * 9..=planned).contains(&bytes), "{bytes}");
    }

    #[test]
    fn the_sample_of_texts_has_its_share_of_the_requests() {
        for (one_in, expected) in [(0, 0..=0), (1, 60_000..=60_000), (30, 1_800..=2_200)] {
            let (queue, _ring) = queue(Samples {
                keys: KeySample::NONE,
                texts_one_in: one_in,
            });
            let texts = (0..60_000).filter_map(|_| queue.text(|| SampledText::new("a", "/", None)));
            let texts = texts.count();
            assert!(expected.contains(&texts), "{texts} of one in {one_in}");
        }
    }
}
