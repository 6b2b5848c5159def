//! One lookup for every request: what is stored under its key, and what follows from it.
//!
//! [`lookup`] is called with the key and a [`Query`], which is the rest of the request as far as a lookup reads it. It returns an
//! [`Outcome`], which the request path carries out. At most two keys are looked up, that of the target and that of the
//! variant, each in memory and then on disk.

use std::borrow::Cow;
use std::sync::Arc;

use edgeward_semantics::{CacheStatus, Forward, RequestDirectives, Reuse, StoredPolicy};
use edgeward_store::disk::Candidate;
use edgeward_store::hot::{Commit, Offer};
use edgeward_types::KeyHash;
use http::{HeaderMap, StatusCode};

use super::worker::Worker;
use crate::cache::disk::head::{self, DiskHead};
use crate::cache::disk::{DiskEntry, DiskTier};
use crate::cache::negative::{Advice, Negative};
use crate::cache::stored::{Stored, StoredKind, Variants};
use crate::cache::{CacheKey, DiskHit};
use crate::exchange::{Refusal, Request};
use crate::origin::as_origin_sees;

/// What becomes of a request.
pub(crate) enum Outcome {
    /// A stored response answers it.
    Hit(Hit),
    /// A stored response answers it if the origin says so.
    Revalidate {
        key: CacheKey,
        why: Forward,
        stale: Arc<Stored>,
    },
    /// Nothing that is stored answers it.
    Miss {
        key: CacheKey,
        why: Forward,
        /// The number of the id filter's rule that let it pass, if one did.
        rule: Option<usize>,
    },
    /// It goes to the origin without the cache.
    Pass(Forward),
    /// It is not served.
    Refuse(Refusal),
    /// The disk has to be read first: see [`Waiting::outcome`].
    Wait(Box<Waiting>),
}

/// A stored response that answers a request.
pub(crate) struct Hit {
    pub(crate) key: CacheKey,
    pub(crate) found: Found,
    is_stale: bool,
}

/// A stored response that a lookup found.
pub(crate) enum Found {
    /// One in memory, or one whose head was read from disk by another thread.
    Stored(Arc<Stored>),
    /// One on disk whose head took no waiting.
    Disk(Box<DiskHit>),
}

/// A lookup that waits for the disk.
pub(crate) struct Waiting {
    key: CacheKey,
    candidate: Candidate,
}

/// The rest of a request, as far as a lookup reads it.
pub(crate) trait Query {
    /// The directives of the request that the cache follows.
    fn directives(&self, worker: &Worker) -> RequestDirectives;

    /// The path of the target.
    fn path(&self) -> &str;

    /// The fields that decide between `variants`, as the origin sees them.
    fn selecting_fields(&self, worker: &Worker, variants: &Variants) -> Cow<'_, HeaderMap>;
}

impl Query for Request {
    fn directives(&self, worker: &Worker) -> RequestDirectives {
        if self.plain {
            return RequestDirectives::default();
        }
        let rules = &worker.config().caching.rules;
        rules.request_directives(&self.headers)
    }

    fn path(&self) -> &str {
        self.path()
    }

    fn selecting_fields(&self, worker: &Worker, variants: &Variants) -> Cow<'_, HeaderMap> {
        as_origin_sees(worker.hop(), self, &variants.fields)
    }
}

/// The primary key of a request that is not refused.
pub(super) fn key_of(worker: &Worker, request: &Request) -> CacheKey {
    let target = request
        .target()
        .expect("a request that is not refused has a target");
    worker.cache.key(|bytes| target.write_key(bytes))
}

/// Looks a request up by its primary key.
pub(crate) fn lookup(worker: &Worker, mut key: CacheKey, query: &impl Query) -> Outcome {
    let step = find(worker, &mut key, query);
    outcome(worker, key, step, query)
}

/// Looks a request up once more: what is fresh under its key, and the key.
pub(super) async fn lookup_again(
    worker: &Worker,
    request: &Request,
) -> (CacheKey, Option<Arc<Stored>>) {
    let mut key = key_of(worker, request);
    let mut step = find(worker, &mut key, request);
    while let Step::Waits(candidate) = step {
        step = wait(worker, &mut key, candidate, request).await;
    }
    let now = worker.now();
    let fresh = match step {
        Step::Found(found) if found.policy().is_fresh(now) => Some(found.into_stored(&key)),
        _ => None,
    };
    (key, fresh)
}

impl Waiting {
    /// The outcome once the disk was read.
    pub(super) async fn outcome(self, worker: &Worker, query: &impl Query) -> Outcome {
        let Self { mut key, candidate } = self;
        let mut step = Step::Waits(candidate);
        while let Step::Waits(candidate) = step {
            step = wait(worker, &mut key, candidate, query).await;
        }
        outcome(worker, key, step, query)
    }
}

impl Hit {
    /// Counts the request as a hit.
    pub(crate) fn count(&self, worker: &Worker) {
        let counters = &worker.counters;
        if self.is_stale {
            counters.hit_stale.increment();
        } else {
            counters.hit.increment();
        }
        match &self.found {
            Found::Stored(stored) if !stored.is_on_disk() => {
                worker
                    .cache
                    .record(self.key.hash, stored.charge_bytes(), true);
            }
            Found::Stored(_) | Found::Disk(_) => counters.disk_hit.increment(),
        }
    }
}

impl Found {
    fn policy(&self) -> &StoredPolicy {
        match self {
            Self::Stored(stored) => &stored.response().policy,
            Self::Disk(hit) => &hit.policy,
        }
    }

    fn is_on_disk(&self) -> bool {
        match self {
            Self::Stored(stored) => stored.is_on_disk(),
            Self::Disk(_) => true,
        }
    }

    /// The response as memory has it, under the key it was found by.
    pub(super) fn into_stored(self, key: &CacheKey) -> Arc<Stored> {
        match self {
            Self::Stored(stored) => stored,
            Self::Disk(hit) => hit.stored(key),
        }
    }
}

/// How far a lookup got.
enum Step {
    Found(Found),
    Absent,
    Waits(Candidate),
}

/// What lies under one key.
enum Entry {
    Response(Found),
    /// The target's responses differ by request fields, and each lies under a secondary key.
    Marker(Arc<Stored>),
    Absent,
    Waits(Candidate),
}

impl Entry {
    fn of(stored: Arc<Stored>) -> Self {
        match &stored.kind {
            StoredKind::Response(_) => Self::Response(Found::Stored(stored)),
            StoredKind::Varies(_) => Self::Marker(stored),
        }
    }
}

/// Finds what is stored under a key. A marker there leads on to the request's variant, whose secondary key is appended to `key`.
fn find(worker: &Worker, key: &mut CacheKey, query: &impl Query) -> Step {
    loop {
        let entry = entry_at(worker, key);
        match follow(worker, key, entry, query) {
            Some(step) => return step,
            None => continue,
        }
    }
}

/// As [`find`], for a candidate on disk that has to be waited for.
async fn wait(
    worker: &Worker,
    key: &mut CacheKey,
    candidate: Candidate,
    query: &impl Query,
) -> Step {
    let Some(disk) = &worker.cache.disk else {
        return Step::Absent;
    };
    let read = disk
        .wait(candidate, key.hash, &key.bytes, &worker.counters)
        .await;
    let entry = match read {
        Some(stored) => {
            keep_marker(worker, key.hash, &stored);
            Entry::of(stored)
        }
        None => Entry::Absent,
    };
    match follow(worker, key, entry, query) {
        Some(step) => step,
        None => find(worker, key, query),
    }
}

/// The step that an entry ends a lookup with, or `None` after `key` was extended to that of a variant.
fn follow(worker: &Worker, key: &mut CacheKey, entry: Entry, query: &impl Query) -> Option<Step> {
    match entry {
        Entry::Response(found) => Some(Step::Found(found)),
        Entry::Waits(candidate) => Some(Step::Waits(candidate)),
        Entry::Marker(marker) if key.marker.is_none() => {
            let StoredKind::Varies(variants) = &marker.kind else {
                return Some(Step::Absent);
            };
            let fields = query.selecting_fields(worker, variants);
            key.select(&marker, variants, &fields, worker.cache.hash_seed);
            None
        }
        Entry::Marker(_) | Entry::Absent => Some(Step::Absent),
    }
}

/// What memory or the disk has under a key.
fn entry_at(worker: &Worker, key: &CacheKey) -> Entry {
    if let Some(stored) = worker.cache.hot.lookup(key.hash) {
        if stored.is_of(&key.bytes) {
            return Entry::of(stored);
        }
        worker.counters.key_collisions.increment();
    }
    match &worker.cache.disk {
        Some(disk) => on_disk(worker, disk, key),
        None => Entry::Absent,
    }
}

fn on_disk(worker: &Worker, disk: &DiskTier, key: &CacheKey) -> Entry {
    let object = match disk.lookup(key.hash, &key.bytes, &worker.counters) {
        DiskEntry::Found(object) => object,
        DiskEntry::Absent => return Entry::Absent,
        DiskEntry::Waits(candidate) => return Entry::Waits(candidate),
    };
    if let Ok(DiskHead::Response {
        status,
        policy,
        fields,
    }) = head::parse(object.head())
    {
        return Entry::Response(Found::Disk(Box::new(DiskHit {
            object,
            status,
            policy,
            fields,
        })));
    }
    match disk.parse(key.hash, &key.bytes, object, &worker.counters) {
        Some(stored) => {
            keep_marker(worker, key.hash, &stored);
            Entry::of(stored)
        }
        None => Entry::Absent,
    }
}

/// Puts a marker that came from disk into memory, where every request for the target will look for it.
fn keep_marker(worker: &Worker, hash: KeyHash, stored: &Arc<Stored>) {
    let cache = &worker.cache;
    let StoredKind::Varies(variants) = &stored.kind else {
        return;
    };
    let Some(seen) = variants.seen.filter(|_| cache.hot.peek(hash).is_none()) else {
        return;
    };
    if let Offer::Admit(mut reservation) =
        cache.offer_to_ram(hash, stored.charge_bytes(), &worker.counters)
    {
        stored.keep_hold(reservation.take_hold());
        if reservation.promote(Arc::clone(stored), seen) == Commit::Outdated {
            worker.counters.dropped_promotion.increment();
        }
    }
}

/// What follows from how far a lookup got.
fn outcome(worker: &Worker, key: CacheKey, step: Step, query: &impl Query) -> Outcome {
    match step {
        Step::Found(found) => outcome_of(worker, key, found, query),
        Step::Absent => absence(worker, key, query),
        Step::Waits(candidate) => Outcome::Wait(Box::new(Waiting { key, candidate })),
    }
}

fn outcome_of(worker: &Worker, key: CacheKey, found: Found, query: &impl Query) -> Outcome {
    let directives = query.directives(worker);
    let reuse = found.policy().reuse(worker.now(), &directives);
    match reuse {
        Reuse::Fresh { .. } | Reuse::StaleAllowed { .. } => Outcome::Hit(Hit {
            key,
            found,
            is_stale: matches!(reuse, Reuse::StaleAllowed { .. }),
        }),
        Reuse::Revalidate { cause } | Reuse::MustForward { cause } => {
            if found.is_on_disk() {
                worker.counters.disk_stale.increment();
            }
            let stale = found.into_stored(&key);
            let why = cause.forward();
            Outcome::Revalidate { key, why, stale }
        }
        Reuse::GatewayTimeout => Outcome::Refuse(only_if_cached(worker)),
    }
}

/// The outcome of a lookup that found nothing.
pub(crate) fn absence(worker: &Worker, key: CacheKey, query: &impl Query) -> Outcome {
    let directives = query.directives(worker);
    let mut rule = None;
    // Another variant of the target shows that its id exists.
    let is_unknown = key.marker.is_none();
    let negative = &worker.cache.negative;
    if is_unknown && !directives.no_cache && negative.has_rules() {
        match negative.advise(query.path()) {
            Advice::Absent => return Outcome::Refuse(no_such_id(worker)),
            Advice::Watch(number) => rule = Some(number),
            Advice::Forward => {}
        }
    }
    if directives.only_if_cached {
        return Outcome::Refuse(only_if_cached(worker));
    }
    let why = if is_unknown {
        Forward::UriMiss
    } else {
        Forward::VaryMiss
    };
    Outcome::Miss { key, why, rule }
}

fn no_such_id(worker: &Worker) -> Refusal {
    worker.counters.id_filter.increment();
    Refusal {
        status: StatusCode::NOT_FOUND,
        cache_status: Some(Negative::cache_status()),
        text: "there is no such id".into(),
        close: false,
    }
}

/// RFC 9111 §5.2.1.7.
fn only_if_cached(worker: &Worker) -> Refusal {
    worker.counters.only_if_cached.increment();
    Refusal {
        status: StatusCode::GATEWAY_TIMEOUT,
        cache_status: Some(CacheStatus::forward(Forward::Miss).with_detail("only-if-cached")),
        text: "only a stored response was asked for, and none can be used".into(),
        close: false,
    }
}
