//! Spans of sampled requests, for tracing systems that receive OTLP.
//!
//! A worker decides at the start of a request whether it is sampled, and pushes the [`SampledRequest`] to its ring at
//! the end. A thread makes the spans and sends them ([`otlp`] has their format, `edge/span_export.rs` the thread). If
//! the ring is full, the request is dropped and counted, because a slow collector must not slow requests.
//!
//! A sampled request has up to three spans: the request, its lookup, and the request to the origin.

pub(crate) mod otlp;
mod sampled;

use std::cell::RefCell;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use edgeward_semantics::TraceParent;
use edgeward_types::SplitMix64;

use super::access_log::RequestText;
use crate::config::{SampledFlag, TracingConfig};
pub(crate) use sampled::{RequestEnd, SampledRequest};

/// Samples the requests of one worker.
pub(crate) struct Sampler {
    ring: RefCell<rtrb::Producer<Box<SampledRequest>>>,
    /// A request is sampled if a random number of 64 bits is below this.
    threshold: u128,
    sampled_flag: SampledFlag,
    random: RefCell<SplitMix64>,
}

impl Sampler {
    /// Returns the sampler of a worker, and the queue of its sampled requests.
    pub(crate) fn new(
        config: &TracingConfig,
        seed: u64,
    ) -> (Self, rtrb::Consumer<Box<SampledRequest>>) {
        let (ring, consumer) = rtrb::RingBuffer::new(config.queue_requests_max.get());
        let sampler = Self {
            ring: RefCell::new(ring),
            threshold: (config.sample.clamp(0.0, 1.0) * 2_f64.powi(64)) as u128,
            sampled_flag: config.sampled_flag,
            random: RefCell::new(SplitMix64(seed)),
        };
        (sampler, consumer)
    }

    /// Decides whether a request is sampled. `parent` returns its `traceparent`, and `text` its text.
    pub(crate) fn sample(
        &self,
        client_is_trusted: bool,
        started_at: Instant,
        parent: impl Fn() -> Option<TraceParent>,
        text: impl FnOnce() -> RequestText,
    ) -> Option<Box<SampledRequest>> {
        let follows = match self.sampled_flag {
            SampledFlag::Always => true,
            SampledFlag::Trusted => client_is_trusted,
            SampledFlag::Never => false,
        };
        let followed = if follows { parent() } else { None };
        let is_sampled = match &followed {
            Some(parent) => parent.is_sampled(),
            None => u128::from(self.next_random()) < self.threshold,
        };
        if !is_sampled {
            return None;
        }
        let parent = followed.or_else(parent);
        let id = self.next_random();
        let own = match parent {
            Some(parent) => parent.with_span(id, true),
            None => {
                let trace_id = u128::from(self.next_random()) << 64 | u128::from(id);
                TraceParent::new(trace_id, self.next_random(), true)
            }
        };
        let since_start = started_at.elapsed();
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Some(Box::new(SampledRequest {
            text: text(),
            parent,
            own,
            fetch_id: self.next_random(),
            lookup_id: self.next_random(),
            started_at,
            started_unix: now.saturating_sub(since_start),
            lookup: None,
            fetch: None,
            end: RequestEnd::default(),
        }))
    }

    /// Queues a request that has ended. Returns false if the queue is full.
    pub(crate) fn push(&self, request: Box<SampledRequest>) -> bool {
        self.ring.borrow_mut().push(request).is_ok()
    }

    /// Returns a random number. Ids have to be unique, not secret.
    fn next_random(&self) -> u64 {
        self.random.borrow_mut().draw()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use edgeward_semantics::TRACESTATE;
    use edgeward_types::Timestamp;
    use http::Version;
    use http::header::{HeaderMap, HeaderValue};

    use super::*;
    use crate::observe::access_log::RequestFacts;

    pub(crate) fn text() -> RequestText {
        let facts = RequestFacts {
            time: Timestamp::from_secs(951_827_696),
            peer: [192, 0, 2, 7].into(),
            is_tls: false,
            key_exchange: None,
            method: Some(b"GET"),
            host: b"example.com:8080",
            target: b"/a?b=\"c\"",
            version: Version::HTTP_11,
        };
        RequestText::new(&mut Vec::new(), &facts, [Some(&b"curl"[..])].into_iter())
    }

    fn sampler(sample: f64, sampled_flag: SampledFlag) -> Sampler {
        let endpoint = "http://127.0.0.1:4318".parse().expect("a URL");
        let mut config = TracingConfig::new(endpoint);
        (config.sample, config.sampled_flag) = (sample, sampled_flag);
        Sampler::new(&config, 7).0
    }

    fn is_sampled(sampler: &Sampler, trusted: bool, parent: Option<TraceParent>) -> bool {
        let sampled = sampler.sample(trusted, Instant::now(), || parent, text);
        sampled.is_some()
    }

    #[test]
    fn the_share_of_sampled_requests_is_the_setting() {
        for (share, expected) in [(0.0, 0..=0), (0.01, 700..=1300), (1.0, 100_000..=100_000)] {
            let sampler = sampler(share, SampledFlag::Trusted);
            let sampled = (0..100_000).filter(|_| is_sampled(&sampler, true, None));
            let count = sampled.count();
            assert!(expected.contains(&count), "{count} for {share}");
        }
    }

    /// All combinations of the setting, the client and the flag, for a sampler that would decide otherwise.
    #[test]
    fn the_flag_of_the_parent_decides_if_the_setting_trusts_it() {
        for is_set in [false, true] {
            let parent = Some(TraceParent::new(5, 6, is_set));
            let own_decision = !is_set;
            let share = if own_decision { 1.0 } else { 0.0 };
            for (flag, trusted, follows) in [
                (SampledFlag::Always, false, true),
                (SampledFlag::Always, true, true),
                (SampledFlag::Trusted, false, false),
                (SampledFlag::Trusted, true, true),
                (SampledFlag::Never, false, false),
                (SampledFlag::Never, true, false),
            ] {
                let sampler = sampler(share, flag);
                let expected = if follows { is_set } else { own_decision };
                assert_eq!(
                    is_sampled(&sampler, trusted, parent),
                    expected,
                    "{flag:?} {trusted}"
                );
            }
        }
    }

    /// A valid parent is continued even if its flag does not decide.
    #[test]
    fn the_origin_gets_the_trace_of_the_client_with_another_span() {
        let sampler = sampler(1.0, SampledFlag::Never);
        for parent in [None, Some(TraceParent::new(5, 6, false))] {
            let sampled = sampler.sample(false, Instant::now(), || parent, text);
            let sampled = sampled.expect("the share is 1");
            let mut headers = HeaderMap::new();
            headers.insert(&TRACESTATE, HeaderValue::from_static("a=b"));
            sampled.write_to(&mut headers);
            let sent = TraceParent::of(&headers).expect("valid");
            assert!(sent.is_sampled());
            assert_ne!(sent.span_id(), sampled.own.span_id());
            assert_eq!(headers.contains_key(&TRACESTATE), parent.is_some());
            match parent {
                Some(parent) => assert_eq!(sent.trace_id(), parent.trace_id()),
                None => assert_ne!(sent.trace_id(), 5),
            }
        }
    }
}
