//! Answers requests in a coding that the edge applies: finds the [encoding](crate::cache::encodings) of a stored
//! response, or makes it.
//!
//! A request waits for the encoding that it prefers, so that also the first client gets few bytes. It gets the response
//! without a coding if the body is long (`compression.wait_bytes_max`), if too much is being compressed
//! (`compression.pending_bytes_max`), or if the coding saves too little.

use std::future::{Future, poll_fn};
use std::num::NonZeroU64;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use edgeward_semantics::content_coding::{
    Coding, CodingOrder, add_vary, matching_coding, may_encode, wants_plain_range,
};
use edgeward_semantics::dictionary::USE_AS_DICTIONARY;
use edgeward_semantics::{CacheStatus, Storable, Validators};
use http::header::{AGE, CONTENT_LENGTH, HeaderMap, IF_NONE_MATCH, RANGE, VARY};
use http::{Response, StatusCode};
use tokio::sync::watch;

use super::body::EdgeBody;
use super::coding_choice::{accepted_codings, compression};
use super::deliver::{Reply, is_not_modified};
use super::dictionary::{self, Delta};
use super::worker::Worker;
use crate::cache::CacheKey;
use crate::cache::dictionaries::Dictionary;
use crate::cache::disk::DiskEntry;
use crate::cache::encode::Levels;
use crate::cache::encoders::{Encoding, Job, JobRole, Output, PendingJob, PlainBody, Recipe};
use crate::cache::encodings::{NewEncoding, encoded};
use crate::cache::fill::{FillEnd, FillHead, FillReader};
use crate::cache::stored::{Stored, StoredBody, StoredKind, StoredResponse};
use crate::config::CompressionConfig;
use crate::exchange::Request;
use crate::exchange::field_bytes::push_field;
use crate::exchange::request_settings::Placement;
use crate::observe::causes::OfferResult;
use crate::rt::budget::MemoryShare;

/// The representation with which a request is answered.
pub(super) enum Choice {
    /// The response without a coding.
    Plain,
    Encoded(Arc<Stored>),
    /// The encoding is being made or read. `None` stands for [`Plain`](Self::Plain).
    Later(Pin<Box<dyn Future<Output = Option<Arc<Stored>>>>>),
}

/// Returns the generation of a response that is about to be stored, if the edge may encode it, and adds
/// `Vary: Accept-Encoding` to its head, and the fields of dictionaries. `old` is the generation of the response if it
/// was validated.
pub(super) fn mark_encodable(
    worker: &Worker,
    request: &Request,
    status: StatusCode,
    storable: &mut Storable,
    length: Option<u64>,
    old: Option<NonZeroU64>,
) -> Option<NonZeroU64> {
    let config = compression(request);
    if !config.enabled {
        return None;
    }
    let (head, vary) = (&storable.head, &storable.vary);
    may_encode(&config.rules, &request.headers, status, head, vary, length).ok()?;
    add_vary(&mut storable.head);
    dictionary::mark(request, &mut storable.head);
    old.or_else(|| NonZeroU64::new(worker.cache.next_marker_generation()))
}

/// Copies the fields that [`mark_encodable`] adds to the head of a stored response to the head that the leader of its
/// fetch gets.
pub(super) fn copy_marks(stored: &HeaderMap, leader: &mut HeaderMap) {
    for name in [&VARY, &USE_AS_DICTIONARY] {
        leader.remove(name);
        for value in stored.get_all(name) {
            leader.append(name, value.clone());
        }
    }
}

/// Responds with a stored response, in a coding if the request accepts one.
pub(super) async fn respond(
    reply: Reply,
    request: &Request,
    stored: &Arc<Stored>,
    cache_status: Option<CacheStatus>,
) -> Response<EdgeBody> {
    let encoded = choose(&reply.worker, request, stored, true)
        .encoding()
        .await;
    reply.stored(request, encoded.as_ref().unwrap_or(stored), cache_status)
}

impl Choice {
    /// Waits for the encoding. Returns `None` if the response is sent without a coding.
    pub(super) async fn encoding(self) -> Option<Arc<Stored>> {
        match self {
            Self::Plain => None,
            Self::Encoded(encoded) => Some(encoded),
            Self::Later(encoded) => encoded.await,
        }
    }
}

/// Chooses the representation of a stored response for a request. `is_cached` is false for a response that no tier has,
/// whose encodings are not stored either.
pub(super) fn choose(
    worker: &Rc<Worker>,
    request: &Request,
    stored: &Arc<Stored>,
    is_cached: bool,
) -> Choice {
    let response = stored.response();
    let Some(generation) = response.generation else {
        return Choice::Plain;
    };
    if is_cached {
        dictionary::learn(worker, request, stored);
    }
    let order = accepted_codings(compression(request), request);
    let seed = worker.cache.hash_seed;
    let key = |coding| CacheKey::of_encoding(stored.key(), generation, coding, seed);
    if !request.plain
        && let Some(selected) = select_by_fields(request, response, &order)
    {
        return match selected {
            // The answer is a 304, which needs no body.
            Some(coding) => {
                let body = StoredBody::Memory(Bytes::new());
                Choice::Encoded(encoded(stored, &key(coding).bytes, coding, body))
            }
            None => Choice::Plain,
        };
    }
    if is_cached && let Some(delta) = choose_delta(worker, request, stored) {
        return Choice::Encoded(delta);
    }
    let Some(first) = order.first() else {
        return Choice::Plain;
    };
    let preferred = key(first);
    match find(worker, &preferred, first, stored) {
        Lookup::Encoded(encoded) => return Choice::Encoded(encoded),
        Lookup::NoGain => return Choice::Plain,
        Lookup::Pending(encoded) => return Choice::Later(encoded),
        Lookup::Absent => {}
    }
    let job = Making {
        worker: Rc::clone(worker),
        plain: Arc::clone(stored),
        key: preferred,
        coding: first,
        dictionary: None,
        is_cached,
        placement: request.settings().placement,
    };
    if let Some(result) = job.begin(compression(request))
        && response.body.len() <= compression(request).wait_bytes_max.bytes()
    {
        return Choice::Later(Box::pin(job.outcome(result)));
    }
    for coding in order.iter().skip(1) {
        if let Lookup::Encoded(encoded) = find(worker, &key(coding), coding, stored) {
            return Choice::Encoded(encoded);
        }
    }
    Choice::Plain
}

/// Returns the delta for the dictionary that a request offers, if it is stored. Otherwise begins to make it, if this is
/// not the first request for it.
fn choose_delta(
    worker: &Rc<Worker>,
    request: &Request,
    stored: &Arc<Stored>,
) -> Option<Arc<Stored>> {
    let Delta {
        key,
        coding,
        dictionary,
    } = dictionary::delta_for(worker, request, stored)?;
    let cache = &worker.cache;
    let found = cache.encoding_in_memory(key.hash, &key.bytes, coding, stored);
    match found.map(Lookup::from) {
        Some(Lookup::Encoded(delta)) => {
            dictionary::count(worker, OfferResult::Used);
            let saved = stored.response().body.len() - delta.response().body.len();
            worker.counters.dictionary_saved_bytes.add(saved);
            return Some(delta);
        }
        Some(_) => dictionary::count(worker, OfferResult::NoGain),
        None if dictionary::is_to_be_made(worker, &key) => {
            let job = Making {
                worker: Rc::clone(worker),
                plain: Arc::clone(stored),
                key,
                coding,
                dictionary: Some(dictionary),
                is_cached: true,
                placement: Placement {
                    memory: request.settings().placement.memory,
                    ..Placement::NOWHERE
                },
            };
            // The next request gets the delta.
            _ = job.begin(compression(request));
        }
        None => {}
    }
    None
}

/// Returns the representation that conditions or a range of a request select: a coding, or none.
pub(super) fn select_by_fields(
    request: &Request,
    response: &StoredResponse,
    order: &CodingOrder,
) -> Option<Option<Coding>> {
    let (method, fields) = (&request.method, &request.headers);
    let has_tags = fields.contains_key(IF_NONE_MATCH);
    if !has_tags && !fields.contains_key(RANGE) {
        return None;
    }
    let headers = response.headers();
    let validators = Validators::from_headers(&headers);
    // A client that has the response in any form that it accepts gets a 304 for this form (RFC 9111 §4.3.2).
    let coding = matching_coding(method, fields, response.status, &validators, order);
    if coding.is_some() {
        return Some(coding);
    }
    let is_plain = (has_tags && is_not_modified(request, response.status, &headers))
        || wants_plain_range(method, fields, &validators);
    is_plain.then_some(None)
}

/// The result of a lookup of an encoding.
enum Lookup {
    Encoded(Arc<Stored>),
    NoGain,
    Pending(Pin<Box<dyn Future<Output = Option<Arc<Stored>>>>>),
    Absent,
}

impl From<Arc<Stored>> for Lookup {
    fn from(encoded: Arc<Stored>) -> Self {
        match encoded.response().body.len() {
            0 => Self::NoGain,
            _ => Self::Encoded(encoded),
        }
    }
}

/// Looks an encoding up in memory, then on disk.
fn find(worker: &Rc<Worker>, key: &CacheKey, coding: Coding, plain: &Arc<Stored>) -> Lookup {
    let cache = &worker.cache;
    if let Some(encoded) = cache.encoding_in_memory(key.hash, &key.bytes, coding, plain) {
        return encoded.into();
    }
    let Some(disk) = cache.disk().filter(|disk| disk.contains(key.hash)) else {
        return Lookup::Absent;
    };
    let from_disk = move |entry, key: &CacheKey, plain: &Arc<Stored>| match entry {
        DiskEntry::Response(hit) => {
            let body = StoredBody::Disk(hit.object.clone());
            Some(encoded(plain, &key.bytes, coding, body))
        }
        _ => None,
    };
    match disk.lookup(key.hash, &key.bytes, &worker.counters) {
        DiskEntry::Pending(candidate) => {
            let (worker, key, plain) = (Rc::clone(worker), key.clone(), Arc::clone(plain));
            let disk = Arc::clone(disk);
            Lookup::Pending(Box::pin(async move {
                let counters = &worker.counters;
                let entry = disk.wait(candidate, key.hash, &key.bytes, counters).await;
                let encoded = from_disk(entry, &key, &plain)?;
                (encoded.response().body.len() > 0).then_some(encoded)
            }))
        }
        entry => from_disk(entry, key, plain).map_or(Lookup::Absent, Lookup::from),
    }
}

/// An encoding that is being made.
#[derive(Clone)]
struct Making {
    worker: Rc<Worker>,
    /// The response without a coding.
    plain: Arc<Stored>,
    /// The key of the encoding.
    key: CacheKey,
    coding: Coding,
    dictionary: Option<Arc<Dictionary>>,
    is_cached: bool,
    /// The tiers that may store the encoding.
    placement: Placement,
}

impl Making {
    /// Begins to make the encoding, or joins a request that has begun. Returns `None` if the body has a wrong length or
    /// too much is being compressed.
    fn begin(&self, config: &CompressionConfig) -> Option<watch::Receiver<Option<Encoding>>> {
        let worker = &self.worker;
        let body = match &self.plain.response().body {
            StoredBody::Memory(body) => PlainBody::Memory(body.clone()),
            StoredBody::Disk(object) => PlainBody::Disk(object.clone()),
            StoredBody::Slices(_) => return None,
        };
        // The length was unknown if the response was chunked.
        let length = self.plain.response().body.len();
        if !(config.rules.length_min..=config.rules.length_max).contains(&length) {
            return None;
        }
        let encoders = &worker.shared.encoders;
        let recipe = Recipe {
            coding: self.coding,
            levels: Levels::of(config),
            dictionary: self.dictionary.clone(),
        };
        let stored = || self.in_memory();
        match encoders.join(self.key.hash, recipe, body, length, stored) {
            JobRole::Leader(job, pending) => {
                let result = job.subscribe();
                let making = self.clone();
                worker.fetch_tasks.spawn(|member| async move {
                    making.finish(job, pending).await;
                    drop(member);
                });
                Some(result)
            }
            JobRole::Follower(result) => Some(result),
            JobRole::Busy => {
                worker.counters.encodings_busy.increment();
                None
            }
        }
    }

    fn in_memory(&self) -> Option<Encoding> {
        let (key, cache) = (&self.key, &self.worker.cache);
        let found = cache.encoding_in_memory(key.hash, &key.bytes, self.coding, &self.plain)?;
        match &found.response().body {
            StoredBody::Memory(body) if body.is_empty() => Some(Encoding::NoGain),
            StoredBody::Memory(body) => Some(Encoding::Body(body.clone())),
            StoredBody::Disk(_) | StoredBody::Slices(_) => None,
        }
    }

    /// Waits for the thread that encodes, and stores the encoding.
    async fn finish(self, job: Job, pending: PendingJob) {
        let cache = &self.worker.cache;
        let counters = &self.worker.counters;
        let version = cache.hot.version(self.key.hash);
        let Ok((output, share)) = pending.await else {
            return; // the edge is stopping
        };
        let encoding = NewEncoding {
            plain: &self.plain,
            key: &self.key,
            coding: self.coding,
            version,
            placement: self.placement,
        };
        let store = |body: Vec<u8>, share: MemoryShare| match self.is_cached {
            true => cache.store_encoding(&encoding, body, share),
            false => share.charge(body),
        };
        job.publish(match output {
            // An encoding that is counted can be found.
            Output::Body(body) => {
                let body = store(body, share);
                counters.encodings_made.increment();
                let plain_bytes = self.plain.response().body.len();
                counters.encoding_input_bytes.add(plain_bytes);
                counters.encoding_output_bytes.add(body.len() as u64);
                Encoding::Body(body)
            }
            Output::NoGain => {
                store(Vec::new(), share);
                counters.encodings_no_gain.increment();
                Encoding::NoGain
            }
            Output::Failed => {
                counters.encodings_failed.increment();
                Encoding::Failed
            }
        });
    }

    /// Waits for the encoding. Returns `None` if the response is sent without a coding.
    async fn outcome(self, mut result: watch::Receiver<Option<Encoding>>) -> Option<Arc<Stored>> {
        let encoding = result.wait_for(Option::is_some).await.ok()?.clone();
        match encoding {
            Some(Encoding::Body(body)) => {
                let body = StoredBody::Memory(body);
                Some(encoded(&self.plain, &self.key.bytes, self.coding, body))
            }
            Some(Encoding::NoGain | Encoding::Failed) | None => None,
        }
    }
}

/// Waits for the end of a body that is arriving, if the request is to get it in a coding. Returns the response, or
/// `None` if the body is sent while it arrives. `headers` are the fields for this request: the leader may get more
/// than others.
pub(super) async fn complete_fill(
    worker: &Rc<Worker>,
    request: &Request,
    head: &FillHead,
    headers: &HeaderMap,
    reader: &FillReader,
) -> Option<Arc<Stored>> {
    let encodable = head.encodable.as_ref()?;
    let config = compression(request);
    if accepted_codings(config, request).is_empty() || request.headers.contains_key(RANGE) {
        return None;
    }
    let wait_max = config.wait_bytes_max.bytes();
    let end = match head.length {
        Some(length) if length <= wait_max => poll_fn(|cx| reader.poll_end(cx)).await,
        _ => match poll_fn(|cx| Poll::Ready(reader.poll_end(cx))).await {
            Poll::Ready(end) => end,
            Poll::Pending => return None,
        },
    };
    let body = match end {
        FillEnd::Body(body) => body,
        FillEnd::Pieces(length) if length <= wait_max => {
            let share = worker.shared.encoders.reserve(length)?;
            let mut body = Vec::with_capacity(usize::try_from(length).ok()?);
            let hot = &worker.cache.hot;
            // All bytes have arrived, so the reader does not wait.
            while let Some(piece) = poll_fn(|cx| reader.poll_bytes(hot, cx)).await {
                body.extend_from_slice(&piece.ok()?.0);
            }
            share.charge(body)
        }
        FillEnd::Pieces(_) | FillEnd::Unavailable => return None,
    };
    let body = StoredBody::Memory(body);
    let response = StoredResponse {
        generation: Some(encodable.generation),
        ..StoredResponse::new(head.status, &head.headers, encodable.policy, body)
    };
    let kind = StoredKind::Response(response);
    let plain = Stored::new(&encodable.key, kind, head.stamp);
    let encoded = choose(worker, request, &plain, head.stored)
        .encoding()
        .await;
    let chosen = encoded.unwrap_or(plain);
    Some(with_further_fields(chosen, &head.headers, headers))
}

/// Adds the fields of `own` that `shared`, the fields of all requests, does not have.
fn with_further_fields(stored: Arc<Stored>, shared: &HeaderMap, own: &HeaderMap) -> Arc<Stored> {
    let mut lines = Vec::new();
    for (name, value) in own {
        // `Age` is computed from the policy of the response.
        if !shared.contains_key(name) && *name != AGE && *name != CONTENT_LENGTH {
            push_field(&mut lines, name, value.as_bytes());
        }
    }
    if lines.is_empty() {
        return stored;
    }
    let response = stored.response();
    let head = [&response.head[..], &lines].concat();
    stored.renewed(StoredKind::Response(StoredResponse {
        head: head.into(),
        ..response.clone()
    }))
}
