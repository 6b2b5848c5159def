//! The border between the edge and a watcher of its requests, which the program provides.
//!
//! Each worker pushes a [`FinishedRequest`] for a sample of its requests into its own bounded ring. A thread drains the
//! rings and passes the samples to the [`Watcher`]. If a ring is full, the sample is dropped and counted, so that no
//! request waits for the watcher.
//!
//! There are two samples. The sample of keys has all requests for a part of the objects, so that a simulated cache of
//! these objects sees every request for each of them. The sample of texts has a part of the requests, with their hosts
//! and paths.

use std::borrow::Cow;
use std::fmt::{self, Debug};
use std::hash::Hasher as _;
use std::iter::Sum;
use std::time::Duration;

use edgeward_policy::KeySample;
use edgeward_semantics::StoredPolicy;
use edgeward_types::xxh3::Xxh3;
use edgeward_types::{KeyHash, Timestamp};
use http::header::{self, HeaderMap, HeaderName};

/// Follows the requests of an edge. A thread of the edge calls [`observe`](Self::observe) several times a second, and
/// the admin server calls the other methods, so all of them may lock what they share.
pub trait Watcher: Send + Sync + Debug {
    /// Receives the samples since the last call, roughly in the order of their ends. The edge reuses the buffer.
    fn observe(&self, batch: &mut Vec<FinishedRequest>, progress: &Progress);

    /// Returns the samples that the watcher needs from now on. The edge asks after each call of
    /// [`observe`](Self::observe).
    fn samples(&self) -> Samples;

    /// Returns what the watcher knows, as an object whose members become members of `/status.json`. Its `what_if` is a
    /// member of `/status`, too.
    fn report(&self) -> serde_json::Value;

    /// Returns the values of the metrics of the watcher.
    fn facts(&self) -> WatcherFacts;
}

/// A finished request of a sample.
#[derive(Debug)]
pub struct FinishedRequest {
    /// The time of the end of the request, by the clock of the edge for durations.
    pub at: Timestamp,
    /// The object of the request, if the cache could store it. Responses in slices and responses that may not be stored
    /// have none.
    pub object: Option<RequestedObject>,
    /// True if the request is in the sample of keys. The others have a text.
    pub is_key_sample: bool,
    /// The label of `edgeward_requests_total`.
    pub outcome: &'static str,
    /// The label `outcome` of durations and bytes: how the request was answered.
    pub class: &'static str,
    /// The status of the response, 499 if the client left before it began.
    pub status: u16,
    /// The number of body bytes that the client got.
    pub body_bytes: u64,
    /// The time from the complete head of the request to the last byte of the response.
    pub duration: Duration,
    /// The text, if the request is in the sample of texts.
    pub text: Option<Box<SampledText>>,
}

/// The object of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestedObject {
    /// The hash of the key under which the response is stored.
    pub key: KeyHash,
    /// The bytes that memory charges for the object: body, head, key and structures.
    pub charge_bytes: u64,
    /// The length of the body.
    pub length: u64,
    /// The time for which the response is fresh when it arrives from the origin.
    pub lifetime: Duration,
    /// The time after that for which it may be used while it is validated.
    pub stale_while_revalidate: Duration,
    /// True if the origin can confirm the response without its body.
    pub has_validator: bool,
}

impl RequestedObject {
    pub(crate) fn new(
        key: KeyHash,
        charge_bytes: u64,
        length: Option<u64>,
        policy: &StoredPolicy,
    ) -> Self {
        let lifetime_ms = policy.lifetime_ms.saturating_sub(policy.initial_age_ms);
        let stale_ms = policy.stale_while_revalidate_until.as_millis();
        let stale_ms = stale_ms.saturating_sub(policy.fresh_until.as_millis());
        Self {
            key,
            charge_bytes,
            length: length.unwrap_or(UNKNOWN),
            lifetime: Duration::from_millis(if policy.no_cache { 0 } else { lifetime_ms }),
            stale_while_revalidate: Duration::from_millis(stale_ms),
            has_validator: policy.has_validator,
        }
    }

    /// Returns true if the head of the response does not state the length, and the body has not ended.
    pub(crate) fn lacks_length(&self) -> bool {
        self.length == UNKNOWN
    }

    /// Returns the object with the length that is known when its body has ended. `whole_bytes` is the number of body
    /// bytes that the client got, if these were the whole body. `None` if the length stays unknown.
    pub(crate) fn with_length(mut self, whole_bytes: Option<u64>) -> Option<Self> {
        if self.lacks_length() {
            self.length = whole_bytes?;
            self.charge_bytes = self.charge_bytes.saturating_add(self.length);
        }
        Some(self)
    }
}

/// The length of a body that has not ended, if its head does not state it.
const UNKNOWN: u64 = u64::MAX;

/// The texts of a request in the sample of texts.
#[derive(Debug)]
pub struct SampledText {
    /// The host, in canonical form.
    pub host: Box<str>,
    /// Path and query, in canonical form.
    pub target: Box<str>,
    /// The index of the site in the configuration.
    pub site: Option<usize>,
    /// True if the method is GET.
    pub is_get: bool,
    /// Those of [`REQUEST_FIELDS`] that the request has.
    pub request: SeenFields,
    /// Those of [`RESPONSE_FIELDS`] that the response has. `None` without a response, and for a hit on disk that the
    /// fast path has answered.
    pub response: Option<SeenFields>,
    /// The detail of `Cache-Status`, such as the reason why the response was not stored.
    pub detail: Option<Cow<'static, str>>,
    /// The hash of the body, if the client got the whole body, which has at most [`HASHED_BYTES_MAX`] bytes. `None` for
    /// hits of the fast path.
    pub body_hash: Option<u64>,
    /// The hash of the body that is under way.
    pub(crate) digest: BodyDigest,
}

/// The hash of the part of a body that was sent.
#[derive(Default)]
pub(crate) struct BodyDigest {
    hash: Option<Box<Xxh3>>,
    bytes: u64,
}

impl Debug for BodyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BodyDigest of {} bytes", self.bytes)
    }
}

impl BodyDigest {
    /// Adds the next bytes of the body. The hash of a long body is given up.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if self.bytes > HASHED_BYTES_MAX {
            self.hash = None;
            return;
        }
        self.hash.get_or_insert_default().write(bytes);
    }

    /// Returns the hash of a body of so many bytes, if all of them were added.
    fn hash_of(&self, bytes: u64) -> Option<u64> {
        let hash = self.hash.as_ref().filter(|_| self.bytes == bytes)?;
        Some(hash.finish())
    }
}

/// Names of fields with the first [`FIELD_BYTES_MAX`] bytes of their values.
pub type SeenFields = Vec<(HeaderName, Box<[u8]>)>;

/// The request fields that a [`SampledText`] has. Values of credentials are left out.
pub const REQUEST_FIELDS: [HeaderName; 6] = [
    header::ACCEPT_ENCODING,
    header::AUTHORIZATION,
    header::COOKIE,
    header::RANGE,
    header::CACHE_CONTROL,
    header::PRAGMA,
];

/// The response fields that a [`SampledText`] has. Values of `Set-Cookie` are left out.
pub const RESPONSE_FIELDS: [HeaderName; 11] = [
    header::CACHE_CONTROL,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::ETAG,
    header::EXPIRES,
    header::LAST_MODIFIED,
    header::PRAGMA,
    header::SET_COOKIE,
    header::VARY,
    header::ACCEPT_RANGES,
];

/// The most bytes of a value in [`SeenFields`], so that a sample takes a few kilobytes at most.
pub const FIELD_BYTES_MAX: usize = 256;

/// The longest body that is hashed, so that a sample takes about 20 µs at most.
pub const HASHED_BYTES_MAX: u64 = 256 << 10;

/// The most bytes of a host or target in a [`SampledText`].
pub const TEXT_BYTES_MAX: usize = 1024;

impl SampledText {
    /// Returns the text of a GET whose fields and response are not known yet.
    pub fn new(host: &str, target: &str, site: Option<usize>) -> Box<Self> {
        let start = |text: &str| Box::from(&text[..text.floor_char_boundary(TEXT_BYTES_MAX)]);
        Box::new(Self {
            host: start(host),
            target: start(target),
            site,
            is_get: true,
            request: Vec::new(),
            response: None,
            detail: None,
            body_hash: None,
            digest: BodyDigest::default(),
        })
    }

    pub(crate) fn set_request<'v>(
        &mut self,
        is_get: bool,
        value: impl Fn(&HeaderName) -> Option<&'v [u8]>,
    ) {
        self.is_get = is_get;
        let value = |name: &HeaderName| value(name).map(Cow::Borrowed);
        self.request = fields_of(&REQUEST_FIELDS, value);
    }

    pub(crate) fn set_response(&mut self, headers: &HeaderMap) {
        // A second line may say `private`.
        let value = |name: &HeaderName| {
            let mut lines = headers.get_all(name).iter().map(|line| line.as_bytes());
            let mut value = Cow::Borrowed(lines.next()?);
            lines.for_each(|line| value.to_mut().extend([b", ", line].concat()));
            Some(value)
        };
        self.response = Some(fields_of(&RESPONSE_FIELDS, value));
    }

    /// Records the end of the response, with the detail of its `Cache-Status` and the number of body bytes that the
    /// client got.
    pub(crate) fn end(
        &mut self,
        detail: Option<&Cow<'static, str>>,
        body_bytes: u64,
        is_aborted: bool,
    ) {
        self.detail = detail.cloned();
        let hash = self.digest.hash_of(body_bytes);
        self.body_hash = hash.filter(|_| !is_aborted);
        self.digest = BodyDigest::default();
    }
}

fn fields_of<'v>(
    names: &[HeaderName],
    value: impl Fn(&HeaderName) -> Option<Cow<'v, [u8]>>,
) -> SeenFields {
    let present = names.iter().filter_map(|name| {
        let value = value(name)?;
        let kept = match *name {
            header::AUTHORIZATION | header::COOKIE | header::SET_COOKIE => &[][..],
            _ => &value[..value.len().min(FIELD_BYTES_MAX)],
        };
        Some((name.clone(), kept.into()))
    });
    present.collect()
}

/// The state of the edge when its rings were drained.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// The time, by the clock of the edge for durations.
    pub at: Timestamp,
    /// Requests since the start that have ended and whose object is known, in the sample of keys and outside it.
    pub of_objects: Tally,
    /// All other requests since the start that have ended.
    pub others: Tally,
    /// Samples that were dropped since the start because a ring was full.
    pub lost: u64,
    /// The policy of memory.
    pub policy: String,
    /// The capacity of memory.
    pub hot_capacity_bytes: u64,
}

/// Counts of requests, and of the body bytes that clients got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests.
    pub requests: u64,
    /// Requests that the cache answered without the origin.
    pub hits: u64,
    /// Bytes of all responses.
    pub bytes: u64,
    /// Bytes of the hits.
    pub hit_bytes: u64,
}

impl Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), |sum, tally| Self {
            requests: sum.requests + tally.requests,
            hits: sum.hits + tally.hits,
            bytes: sum.bytes + tally.bytes,
            hit_bytes: sum.hit_bytes + tally.hit_bytes,
        })
    }
}

/// The values of the metrics of a watcher.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatcherFacts {
    /// Requests of the sample of keys that were simulated.
    pub samples: u64,
    /// The part of all small objects that is in the sample of keys.
    pub sampled_share: f64,
    /// Samples that were dropped because a ring was full.
    pub lost: u64,
    /// The memory of the watcher in bytes.
    pub memory_bytes: u64,
    /// The bound of this memory.
    pub memory_max_bytes: u64,
    /// The probability that a caching fault is withheld although nothing excludes its rule.
    pub faults_withheld_ratio: f64,
    /// The predictions.
    pub points: Vec<WhatIfPoint>,
}

/// The prediction for one policy and size of memory, or one size of disk.
#[derive(Clone, Debug, PartialEq)]
pub struct WhatIfPoint {
    /// The tier that has the size: `memory` or `disk`.
    pub tier: &'static str,
    /// The policy of memory, or `disk:` and the admission rule of the disk.
    pub policy: String,
    /// The size as a multiple of the present one, such as `0.5` or `8`.
    pub size: &'static str,
    /// Hits per request.
    pub hit_ratio: f64,
    /// Bytes of hits per byte of all responses.
    pub byte_hit_ratio: f64,
}

/// The samples that a watcher needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Samples {
    /// The sample of keys.
    pub keys: KeySample,
    /// One of so many requests is in the sample of texts. 0: none.
    pub texts_one_in: u32,
}
