//! The lookup of a request in memory and on disk.
//!
//! [`lookup`] takes the primary key, and a [`Query`] for the other parts of the request. A lookup reads the key of the
//! target and, if its responses vary, the variant's. If the target's key is absent, the path may have a rule, as
//! `cache/key.rs` describes, and the same follows for the key under the rule. Each key is read from memory, then from
//! disk. If a variant is absent, the variants of other clients are tried (`path/other_variants.rs`).

use std::borrow::Cow;
use std::sync::Arc;

use edgeward_purge::Verdict;
use edgeward_semantics::{
    CacheStatus, Forward, PassReason, RequestDirectives, StoredPolicy, VaryFields,
};
use edgeward_sites::IdFilters;
use edgeward_store::disk::Candidate;
use edgeward_store::hot::{Commit, Offer};
use edgeward_store::versions::Version;
use edgeward_types::KeyHash;
use http::{HeaderMap, StatusCode};

use super::judge::{AbsentDecision, FoundDecision, judge_absent, judge_found, refuse_cut_off};
use super::other_variants::{answers_request, read_other_variant_next};
use super::worker::Worker;
use crate::cache::disk::DiskEntry;
use crate::cache::negative::{Advice, Negative};
use crate::cache::stored::{Selector, Stored, StoredKind, Variants};
use crate::cache::{Cache, CacheKey, DiskHit, PathRule, push_class, url_of};
use crate::exchange::{Request, RequestError};
use crate::observe::observation::Observation;
use crate::observe::outcome::RequestOutcome;
use crate::origin::as_origin_sees;

/// The result of a lookup: the way in which the request is answered.
pub(crate) enum Outcome {
    /// A stored response answers the request.
    Hit(Hit),
    /// A stored response may answer the request, but the origin has to validate it first.
    Revalidate {
        key: CacheKey,
        reason: Forward,
        stale: Arc<Stored>,
    },
    /// No stored response answers the request.
    Miss {
        key: CacheKey,
        reason: Forward,
        /// The index of the negative rule whose filter answered "maybe". The rule counts the status of the response.
        rule: Option<usize>,
    },
    /// The request is forwarded, and its response is not stored.
    Pass(PassReason),
    /// The edge answers with an error that it generates.
    Refuse(RequestError),
    /// The lookup has to wait for a read from disk.
    Wait(Box<PendingLookup>),
}

/// A stored response that answers a request.
pub(crate) struct Hit {
    pub(crate) key: CacheKey,
    pub(crate) found: FoundResponse,
    is_stale: bool,
    /// True if the response is validated at the origin while the client gets it, for example after a soft purge.
    pub(crate) revalidates: bool,
}

/// A stored response that a lookup found: in memory (`Stored`) or on disk.
pub(crate) enum FoundResponse {
    Stored(Arc<Stored>),
    Disk(Box<DiskHit>),
}

/// A lookup that waits for the disk.
pub(crate) struct PendingLookup {
    key: CacheKey,
    candidate: Candidate,
}

/// The parts of a request that a lookup reads in addition to the key.
pub(crate) trait Query {
    /// Returns the directives of the request that the cache follows.
    fn directives(&self) -> RequestDirectives;

    fn path(&self) -> &str;

    /// Returns the id filters that may answer the request.
    fn id_filters(&self) -> &IdFilters;

    /// Returns the request fields that select by `fields`, as the origin gets them.
    fn selecting_fields(&self, worker: &Worker, fields: &VaryFields) -> Cow<'_, HeaderMap>;
}

impl Query for Request {
    fn directives(&self) -> RequestDirectives {
        let rules = &self.settings().caching;
        if self.plain && !rules.check_authorization {
            return RequestDirectives::default();
        }
        rules.request_directives(&self.headers)
    }

    fn path(&self) -> &str {
        self.path()
    }

    fn id_filters(&self) -> &IdFilters {
        id_filters_of(self)
    }

    fn selecting_fields(&self, worker: &Worker, fields: &VaryFields) -> Cow<'_, HeaderMap> {
        as_origin_sees(worker.edge_info(self), self, fields)
    }
}

/// Returns the id filters that may answer a request by the rules of its site.
pub(super) fn id_filters_of(request: &Request) -> &IdFilters {
    let stated = request.settings().stated.id_filters.as_ref();
    stated.unwrap_or(&IdFilters::All)
}

/// Returns the primary key of a request. Panics if the request was refused.
pub(super) fn key_of(worker: &Worker, request: &Request) -> CacheKey {
    let target = request
        .target()
        .expect("a request that is not refused has a target");
    let cache = &worker.cache;
    cache.key(|bytes| {
        cache.write_target_key(target, bytes);
        push_class(&request.class, bytes);
    })
}

/// Looks a request up by its primary key.
pub(crate) fn lookup(worker: &Worker, mut key: CacheKey, query: &impl Query) -> Outcome {
    let progress = find(worker, &mut key, query);
    decide(worker, key, progress, query)
}

/// Looks a request up again after a fetch has stored a marker. Returns its key, and the stored response if fresh.
pub(super) async fn lookup_again(
    worker: &Worker,
    request: &Request,
) -> (CacheKey, Option<Arc<Stored>>) {
    let mut key = key_of(worker, request);
    let progress = find(worker, &mut key, request);
    let progress = wait_for_disk(worker, &mut key, progress, request).await;
    let now = worker.now();
    let fresh = match progress {
        Progress::Found(mut found) => {
            let is_usable =
                found.policy().is_fresh(now) && found.verdict(worker, &key) != Verdict::Hard;
            is_usable.then(|| found.into_stored(&key))
        }
        _ => None,
    };
    (key, fresh)
}

impl PendingLookup {
    /// Waits for the disk and returns the outcome.
    pub(super) async fn outcome(self, worker: &Worker, query: &impl Query) -> Outcome {
        let Self { mut key, candidate } = self;
        let progress = wait_for_disk(worker, &mut key, Progress::Pending(candidate), query).await;
        decide(worker, key, progress, query)
    }
}

impl Hit {
    /// Returns the response if its body is in slices.
    pub(super) fn sliced(&self) -> Option<&Arc<Stored>> {
        match &self.found {
            FoundResponse::Stored(stored) => stored.slices().map(|_| stored),
            FoundResponse::Disk(_) => None,
        }
    }

    /// Records the hit in the cache, and counts it as the outcome of the request.
    pub(crate) fn count(&self, worker: &Worker, observation: &mut Observation) {
        let counters = &worker.counters;
        let outcome = match self.is_stale {
            true => RequestOutcome::HitStale,
            false => RequestOutcome::Hit,
        };
        observation.count(outcome, counters);
        let is_watched = worker.watch.is_some();
        observation.object = match &self.found {
            FoundResponse::Stored(stored) => {
                worker.record_hit_rate(&self.key, stored);
                let charge_bytes = stored.charge_bytes();
                worker.cache.record(self.key.hash, charge_bytes, true);
                let object = is_watched.then(|| stored.seen_object(self.key.hash));
                object.flatten()
            }
            FoundResponse::Disk(hit) => {
                worker.record_request_rate(&self.key);
                counters.disk_hit.increment();
                is_watched.then(|| hit.seen_object(&self.key))
            }
        };
    }
}

impl FoundResponse {
    fn policy(&self) -> &StoredPolicy {
        match self {
            Self::Stored(stored) => &stored.response().policy,
            Self::Disk(hit) => &hit.policy,
        }
    }

    /// Returns the verdict of the purges on the response.
    #[inline]
    fn verdict(&mut self, worker: &Worker, key: &CacheKey) -> Verdict {
        let cache = &worker.cache;
        match self {
            Self::Stored(stored) => cache.verdict(key.primary(), stored),
            Self::Disk(hit) if hit.stamp == cache.purges.latest() => Verdict::Current,
            Self::Disk(hit) => {
                let (verdict, checked) =
                    cache
                        .purges
                        .verdict(url_of(key.primary()), &hit.fields, hit.stamp);
                if verdict == Verdict::Current {
                    hit.stamp = checked;
                }
                verdict
            }
        }
    }

    /// Returns the response in the form of the memory tier. `key` is the key under which it was found.
    pub(super) fn into_stored(self, key: &CacheKey) -> Arc<Stored> {
        match self {
            Self::Stored(stored) => stored,
            Self::Disk(hit) => hit.stored(key),
        }
    }
}

/// The progress of a lookup, after all reads that need not wait for the disk.
enum Progress {
    Found(FoundResponse),
    Absent,
    Pending(Candidate),
}

/// Finds the entry of a key. If the entry is a marker, changes `key` to the key that the marker selects, and returns
/// the entry of that key.
fn find(worker: &Worker, key: &mut CacheKey, query: &impl Query) -> Progress {
    loop {
        let progress = read_entry(worker, key, query);
        if let Some(progress) = progress.and_then(|progress| check(worker, key, progress)) {
            return progress;
        }
    }
}

/// Returns the progress after an entry was read, or `None` if another entry is read next. `key` is then its key.
fn check(worker: &Worker, key: &mut CacheKey, progress: Progress) -> Option<Progress> {
    let cache = &worker.cache;
    match progress {
        Progress::Found(found) if key.own_variant().is_some() => {
            let is_answered = match &found {
                FoundResponse::Stored(stored) => answers_request(key, stored),
                FoundResponse::Disk(hit) => answers_request(key, &hit.stored(key)),
            };
            if is_answered {
                worker.counters.variants_shared.increment();
                return Some(Progress::Found(found));
            }
        }
        Progress::Absent => {}
        progress => return Some(progress),
    }
    let reads_next = read_path_rule_next(cache, key) || read_other_variant_next(cache, key);
    (!reads_next).then_some(Progress::Absent)
}

/// Changes the absent key of a target to the key of its path's marker, and returns true. Returns false if no key is
/// left to read. If the marker's key was absent, restores the target's key.
pub(super) fn read_path_rule_next(cache: &Cache, key: &mut CacheKey) -> bool {
    match &key.path_rule {
        PathRule::Unread if key.marker.is_none() && cache.may_have_path_rules() => {
            key.read_path_rule(cache.hash_seed);
            true
        }
        PathRule::Reading(_) => {
            key.end_without_rule(cache.hash_seed);
            false
        }
        _ => false,
    }
}

/// Waits for reads from disk until the lookup is no longer pending.
async fn wait_for_disk(
    worker: &Worker,
    key: &mut CacheKey,
    mut progress: Progress,
    query: &impl Query,
) -> Progress {
    while let Progress::Pending(candidate) = progress {
        let Some(disk) = worker.cache.disk() else {
            return Progress::Absent;
        };
        let read = disk
            .wait(candidate, key.hash, &key.bytes, &worker.counters)
            .await;
        let read = follow(worker, key, read, query);
        progress = match read.and_then(|progress| check(worker, key, progress)) {
            Some(progress) => progress,
            None => find(worker, key, query),
        };
    }
    progress
}

/// Reads the entry of a key from memory, otherwise from disk. If the entry is a marker, changes `key` to the key that
/// the marker selects, and returns `None`.
fn read_entry(worker: &Worker, key: &mut CacheKey, query: &impl Query) -> Option<Progress> {
    if let Some(stored) = worker.cache.hot.lookup(key.hash) {
        if stored.has_key(&key.bytes) {
            return match &stored.kind {
                StoredKind::Response(_) => Some(Progress::Found(FoundResponse::Stored(stored))),
                StoredKind::Varies(variants) => select(worker, key, &stored, variants, query),
            };
        }
        worker.counters.key_collisions.increment();
    }
    let Some(disk) = worker.cache.disk() else {
        return Some(Progress::Absent);
    };
    if matches!(key.path_rule, PathRule::Reading(_)) && !disk.contains(key.hash) {
        return Some(Progress::Absent); // most paths have no rule, so this is not counted as a lookup
    }
    let entry = disk.lookup(key.hash, &key.bytes, &worker.counters);
    follow(worker, key, entry, query)
}

/// Returns the progress after an entry on disk was read. If the entry is a marker, changes `key` to the key that the
/// marker selects, and returns `None`.
fn follow(
    worker: &Worker,
    key: &mut CacheKey,
    entry: DiskEntry,
    query: &impl Query,
) -> Option<Progress> {
    match entry {
        DiskEntry::Response(hit) => Some(Progress::Found(FoundResponse::Disk(hit))),
        DiskEntry::Pending(candidate) => Some(Progress::Pending(candidate)),
        DiskEntry::Absent => Some(Progress::Absent),
        DiskEntry::Marker(marker) => {
            let StoredKind::Varies(variants) = &marker.kind else {
                return Some(Progress::Absent);
            };
            insert_marker(worker, key.hash, &marker, variants.version);
            select(worker, key, &marker, variants, query)
        }
        DiskEntry::Sliced(entry) => {
            let version = entry.slices().and_then(|slices| slices.version);
            insert_marker(worker, key.hash, &entry, version);
            Some(Progress::Found(FoundResponse::Stored(entry)))
        }
    }
}

/// Changes a key to the key that the marker selects for the request, and returns `None`. If the key is a variant's
/// already, the marker is not followed, and the lookup finds no response.
fn select(
    worker: &Worker,
    key: &mut CacheKey,
    marker: &Arc<Stored>,
    variants: &Variants,
    query: &impl Query,
) -> Option<Progress> {
    if key.marker.is_some() {
        return Some(Progress::Absent);
    }
    let seed = worker.cache.hash_seed;
    match &variants.selector {
        Selector::Fields(fields) => {
            let request = query.selecting_fields(worker, fields);
            key.select(marker, variants, fields, &request, seed);
        }
        Selector::Query(rule) => {
            worker.counters.path_rule_lookups.increment();
            key.apply_path_rule(marker, rule, variants.generation, seed);
        }
    }
    None
}

/// Inserts a marker or the entry of a sliced response that was read from disk into memory, because each request for the
/// target needs it. `version` is the version of its key at which it was current.
fn insert_marker(worker: &Worker, hash: KeyHash, stored: &Arc<Stored>, version: Option<Version>) {
    let cache = &worker.cache;
    let Some(version) = version.filter(|_| cache.hot.peek(hash).is_none()) else {
        return;
    };
    if let Offer::Admit(mut reservation) =
        cache.offer_to_ram(hash, stored.charge_bytes(), None, &worker.counters)
    {
        stored.attach_charge(reservation.take_charge());
        if reservation.promote(Arc::clone(stored), version) == Commit::Outdated {
            worker.counters.dropped_promotion.increment();
        }
    }
}

fn decide(worker: &Worker, key: CacheKey, progress: Progress, query: &impl Query) -> Outcome {
    match progress {
        Progress::Found(found) => decide_found(worker, key, found, query),
        Progress::Absent => decide_absent(worker, key, query),
        Progress::Pending(candidate) => Outcome::Wait(Box::new(PendingLookup { key, candidate })),
    }
}

fn decide_found(
    worker: &Worker,
    key: CacheKey,
    mut found: FoundResponse,
    query: &impl Query,
) -> Outcome {
    let verdict = found.verdict(worker, &key);
    let reuse = || {
        let directives = query.directives();
        found.policy().reuse(worker.now(), &directives)
    };
    match judge_found(verdict, worker.cache.fleet.as_ref(), reuse) {
        FoundDecision::Purged => {
            worker.counters.purged_hard.increment();
            worker.cache.miss_history.remove(key.hash);
            decide_absent(worker, key, query)
        }
        FoundDecision::Serve {
            is_stale,
            revalidates,
        } => {
            if verdict == Verdict::Soft {
                worker.counters.purged_soft.increment();
            }
            Outcome::Hit(Hit {
                key,
                found,
                is_stale,
                revalidates,
            })
        }
        FoundDecision::Validate { reason } => {
            if matches!(found, FoundResponse::Disk(_)) {
                worker.counters.disk_stale.increment();
            }
            let stale = found.into_stored(&key);
            Outcome::Revalidate { key, reason, stale }
        }
        FoundDecision::OnlyIfCached => Outcome::Refuse(refuse_only_if_cached()),
        FoundDecision::CutOff => Outcome::Refuse(refuse_cut_off()),
    }
}

/// Returns the outcome of a lookup that found no response.
pub(crate) fn decide_absent(worker: &Worker, key: CacheKey, query: &impl Query) -> Outcome {
    let mut rule = None;
    let negative = &worker.shared.negative;
    let is_unknown_id = || {
        negative.has_rules()
            && match negative.advise(query.path(), query.id_filters()) {
                Advice::Absent => true,
                Advice::Watch(number) => {
                    rule = Some(number);
                    false
                }
                Advice::Forward => false,
            }
    };
    match judge_absent(key.marker.is_some(), &query.directives(), is_unknown_id) {
        AbsentDecision::UnknownId => Outcome::Refuse(refuse_unknown_id()),
        AbsentDecision::OnlyIfCached => Outcome::Refuse(refuse_only_if_cached()),
        AbsentDecision::Forward(reason) => Outcome::Miss { key, reason, rule },
    }
}

fn refuse_unknown_id() -> RequestError {
    let status = Negative::cache_status();
    RequestError {
        outcome: RequestOutcome::IdFilter,
        ..RequestError::after_lookup(StatusCode::NOT_FOUND, status, "there is no such id")
    }
}

/// Returns the error for `only-if-cached` if no stored response can be used (RFC 9111 §5.2.1.7).
pub(super) fn refuse_only_if_cached() -> RequestError {
    let status = CacheStatus::forward(Forward::Miss).with_detail("only-if-cached");
    let text = "the request has only-if-cached, but no stored response can be used";
    RequestError {
        outcome: RequestOutcome::OnlyIfCached,
        ..RequestError::after_lookup(StatusCode::GATEWAY_TIMEOUT, status, text)
    }
}
