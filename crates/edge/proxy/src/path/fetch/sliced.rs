//! Answers requests from stored responses in slices. Slices that the cache lacks are fetched, each by one request that
//! others share.

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use edgeward_semantics::slices::{SliceMismatch, Slicing};
use edgeward_semantics::{CacheStatus, Forward};
use edgeward_store::versions::Version;
use edgeward_types::KeyHash;
use http::{Response, StatusCode};

use super::background::revalidate_in_background;
use super::follow::wait_for_head;
use super::lead::fetch_state::Fetch;
use super::part::range_mark;
use crate::cache::collapse::{FetchLeader, Role};
use crate::cache::disk::DiskEntry;
use crate::cache::disk_body::DiskBody;
use crate::cache::fill::{FillReader, FollowResult};
use crate::cache::slices::{Slices, part_of_slice};
use crate::cache::stored::{Stored, StoredBody, StoredKind};
use crate::cache::{CacheKey, DiskHit};
use crate::exchange::pieces::PieceMemory;
use crate::exchange::{Request, RequestError};
use crate::observe::causes::MissCause;
use crate::observe::outcome::RequestOutcome;
use crate::path::body::EdgeBody;
use crate::path::deliver::{Reply, needed_bytes};
use crate::path::encoded;
use crate::path::lookup::{Hit, Query, refuse_only_if_cached};
use crate::path::sliced_body::{
    OpenSlice, OpeningSlice, SliceError, SliceFetch, SliceOpener, SlicedBody,
};
use crate::path::stale::StaleCause;
use crate::path::worker::Worker;

/// The response to a request, or the request if it has to begin again.
pub(super) type Answered = Result<Response<EdgeBody>, Box<OutdatedSlices>>;

/// A request for a representation in slices that has changed at the origin. It begins again without a stored response.
pub(super) struct OutdatedSlices {
    pub(super) reply: Reply,
    pub(super) request: Rc<Request>,
    pub(super) key: CacheKey,
    pub(super) reason: Forward,
}

/// The future is boxed, because few responses are in slices, and the state of the others is kept small.
pub(super) type Answering = Pin<Box<dyn Future<Output = Answered>>>;

/// Answers a hit whose body is in slices. `stored` is its response.
pub(super) async fn answer(
    mut reply: Reply,
    request: Rc<Request>,
    hit: Hit,
    stored: Arc<Stored>,
) -> Answered {
    let worker = Rc::clone(&reply.worker);
    let key = hit.key.clone();
    if hit.revalidates {
        revalidate_in_background(&worker, &request, hit.key.clone(), &stored);
    }
    let needed = needed_bytes(&request, stored.response());
    let is_partial = needed.is_some_and(|needed| {
        let opener = Opener::new(&worker, &request, &stored);
        !opener.has_all(&needed)
    });
    if !is_partial {
        hit.count(&worker, &mut reply.observation);
        return respond(reply, request, key, stored, None, None).await;
    }
    if request.directives().only_if_cached {
        return Ok(reply.refuse(&refuse_only_if_cached()));
    }
    reply.count(RequestOutcome::Partial);
    reply.observation.miss_cause = MissCause::Range;
    let status = CacheStatus::forward(Forward::Partial).with_detail("slices");
    respond(reply, request, key, stored, Some(status), None).await
}

/// Answers a request with a stored response, which may be in slices. `first` is a slice whose fetch is under way. If
/// the representation has changed at the origin, the request has to begin again.
pub(super) fn respond(
    reply: Reply,
    request: Rc<Request>,
    key: CacheKey,
    stored: Arc<Stored>,
    cache_status: Option<CacheStatus>,
    first: Option<(u64, SliceFetch)>,
) -> Answering {
    Box::pin(async move {
        let worker = Rc::clone(&reply.worker);
        let needed = stored
            .slices()
            .and_then(|_| needed_bytes(&request, stored.response()));
        let Some(needed) = needed else {
            return Ok(encoded::respond(reply, &request, &stored, cache_status).await);
        };
        let opener = Opener::new(&worker, &request, &stored);
        let slicing = opener.slicing();
        let ahead_max = worker.config().ranges.read_ahead_slices;
        let mut body = SlicedBody::new(Box::new(opener), slicing, needed, ahead_max.into());
        if let Some((index, fetch)) = first {
            body.begin_with(index, fetch);
        }
        let error = match poll_fn(|cx| body.poll_open(cx)).await {
            Ok(()) => {
                let mut status = cache_status;
                if status.is_none() && body.reads_disk() {
                    let ttl = stored.response().policy.ttl_secs(worker.now());
                    status = Some(CacheStatus::hit(ttl).with_detail("disk"));
                }
                return Ok(reply.stored_with(&request, &stored, status, Some(Box::new(body))));
            }
            Err(error) => error,
        };
        drop(body);
        let reason = Forward::Partial;
        match error {
            SliceError::Changed | SliceError::Ignored => {
                worker.counters.slices_changed_restarted.increment();
                Err(Box::new(OutdatedSlices {
                    reply,
                    request,
                    key,
                    reason,
                }))
            }
            SliceError::Failed(failure) => {
                let status = CacheStatus::forward(reason).with_detail(failure.detail);
                let text = "the request to the origin for a part failed";
                Ok(reply.refuse(&RequestError::after_lookup(failure.status, status, text)))
            }
            SliceError::Incomplete => {
                let status = CacheStatus::forward(reason).with_detail("http_response_incomplete");
                let text = "the origin's response ended early";
                let code = StatusCode::BAD_GATEWAY;
                Ok(reply.refuse(&RequestError::after_lookup(code, status, text)))
            }
        }
    })
}

/// Answers a request with a stale response in place of an error. `reason` is why the request was to be forwarded.
pub(super) fn respond_stale(
    mut reply: Reply,
    request: Rc<Request>,
    key: CacheKey,
    stale: Arc<Stored>,
    cause: StaleCause,
    reason: Forward,
) -> Answering {
    let status = cause.record(&mut reply, &stale, reason);
    respond(reply, request, key, stale, Some(status), None)
}

/// The most slices that are looked up to decide if a response is a hit.
pub(in crate::path) const LOOKED_UP_MAX: u64 = 4096;

/// Opens the slices of one stored response for one request.
#[derive(Clone)]
struct Opener {
    worker: Rc<Worker>,
    request: Rc<Request>,
    /// The entry of the response.
    stored: Arc<Stored>,
    slices: Arc<Slices>,
    /// The version of the entry's key before the first slice was requested.
    version: Version,
}

impl Opener {
    /// Panics if the response is not in slices.
    fn new(worker: &Rc<Worker>, request: &Rc<Request>, stored: &Arc<Stored>) -> Self {
        let slices = stored.slices().expect("the response is in slices");
        let hash = worker.cache.hash(stored.key());
        Self {
            version: worker.cache.hot.version(hash),
            worker: Rc::clone(worker),
            request: Rc::clone(request),
            stored: Arc::clone(stored),
            slices: Arc::clone(slices),
        }
    }

    fn slicing(&self) -> Slicing {
        self.slices.slicing
    }

    fn key(&self, index: u64) -> CacheKey {
        let seed = self.worker.cache.hash_seed;
        CacheKey::of_slice(self.stored.key(), self.slices.generation, index, seed)
    }

    /// Returns true if the cache has all slices of a range, or as many of the first slices as are looked up.
    fn has_all(&self, range: &Range<u64>) -> bool {
        let indexes = self.slicing().indexes_of(range);
        let last = indexes.end.min(indexes.start.saturating_add(LOOKED_UP_MAX));
        (indexes.start..last).all(|index| {
            let (key, slice) = (self.key(index), self.slicing().bytes_of(index));
            let needed = range.start.max(slice.start)..range.end.min(slice.end);
            match self.worker.cache.hot.peek(key.hash) {
                Some(stored) if stored.has_key(&key.bytes) => self.has_bytes(&stored, &needed),
                _ => self.worker.cache.tier_of_slice(&key).is_some(),
            }
        })
    }

    /// Returns true if a slice in memory, which may be shorter than the others, has these bytes.
    fn has_bytes(&self, slice: &Stored, bytes: &Range<u64>) -> bool {
        matches!(&slice.kind, StoredKind::Response(response)
            if self.within(&response.head, bytes).is_some())
    }

    /// Returns the bytes of a slice in memory, if the slice has them.
    fn open_stored(
        &self,
        hash: KeyHash,
        slice: &Arc<Stored>,
        bytes: &Range<u64>,
    ) -> Option<OpenSlice> {
        let StoredKind::Response(response) = &slice.kind else {
            return None;
        };
        let StoredBody::Memory(body) = &response.body else {
            return None;
        };
        let within = self.within(&response.head, bytes)?;
        let in_memory = |at: u64| usize::try_from(at).expect("a slice is in memory");
        self.worker.counters.slices_from_memory.increment();
        let charge_bytes = slice.charge_bytes();
        self.worker.cache.record(hash, charge_bytes, true);
        Some(OpenSlice::Memory {
            bytes: body.slice(in_memory(within.start)..in_memory(within.end)),
            memory: PieceMemory::Cached {
                key: hash,
                body_bytes: body.len() as u64,
            },
        })
    }

    /// Returns a reader of the bytes of a slice on disk, if the slice has them.
    fn open_on_disk(&self, key: &CacheKey, hit: &DiskHit, bytes: &Range<u64>) -> Option<OpenSlice> {
        let within = self.within(&hit.fields, bytes)?;
        let cache = &self.worker.cache;
        self.worker.counters.disk_hit.increment();
        self.worker.counters.slices_from_disk.increment();
        let body = if within == (0..hit.length()) {
            DiskBody::of_hit(cache, key, hit, self.request.settings().placement.memory)
        } else {
            cache.count_partial_hit(key.hash, hit.length(), hit.charge_bytes(key.bytes.len()));
            DiskBody::part(hit.object.clone(), within)
        };
        Some(OpenSlice::Disk(Box::new(body)))
    }

    /// Returns the bytes as offsets in the body of a slice with this head, if the slice has all of them.
    fn within(&self, head: &[u8], bytes: &Range<u64>) -> Option<Range<u64>> {
        let content = part_of_slice(head)?;
        let part = content.part;
        let is_covered = content.complete_length == self.slicing().complete_length
            && part.first <= bytes.start
            && bytes.end <= part.last + 1;
        is_covered.then(|| bytes.start - part.first..bytes.end - part.first)
    }

    /// Joins the fetch of a slice, or begins it. Returns the slice if another fetch has just stored it in memory.
    fn join(&self, key: CacheKey, index: u64) -> Result<SliceFetch, Arc<Stored>> {
        match self.worker.cache.collapse.join(key.hash, &key.bytes) {
            Role::Follower(reader) => Ok(follow(reader)),
            Role::Leader(mut leader, reader) | Role::FurtherLeader(mut leader, reader) => {
                let stored = self.worker.cache.hot.peek(key.hash);
                let whole = self.slicing().bytes_of(index);
                let is_whole = |slice: &Arc<Stored>| {
                    slice.has_key(&key.bytes) && self.has_bytes(slice, &whole)
                };
                if let Some(slice) = stored.filter(is_whole) {
                    leader.close();
                    leader.fill.finish_with_stored(Arc::clone(&slice));
                    return Err(slice);
                }
                Ok(self.lead(key, index, leader, reader))
            }
            Role::Uncollapsed | Role::Overdue => Ok(self.lead_alone(key, index)),
        }
    }

    fn lead_alone(&self, key: CacheKey, index: u64) -> SliceFetch {
        let (leader, reader) = self.worker.cache.collapse.lead_uncollapsed();
        self.lead(key, index, leader, reader)
    }

    /// Begins the fetch of a slice in a task of its own, which continues if the client leaves.
    fn lead(
        &self,
        key: CacheKey,
        index: u64,
        leader: FetchLeader,
        reader: FillReader,
    ) -> SliceFetch {
        let fetch = Fetch {
            worker: Rc::clone(&self.worker),
            request: Rc::clone(&self.request),
            key,
            leader,
            part: None,
            result: None,
        };
        let fill = Arc::clone(reader.fill());
        let run = fetch.run_slice(Arc::clone(&self.stored), self.slicing(), index);
        let orphans = self.worker.origin(&self.request).orphans();
        orphans.spawn(&self.worker.fetch_tasks, run, move || fill.has_readers());
        SliceFetch {
            reader,
            leads: true,
        }
    }

    /// Removes the entry, because the origin has another version of the representation or does not send slices of it.
    fn remove_entry(&self, mismatch: SliceMismatch) {
        let cache = &self.worker.cache;
        if mismatch == SliceMismatch::Ignored {
            let primary = self.key(0).primary_hash();
            let now = self.worker.now();
            cache.hit_for_miss.mark(range_mark(primary), now);
        }
        if cache.remove(self.version, self.stored.key()).is_none() {
            self.worker.counters.dropped_removal.increment();
        }
    }

    /// Finds a slice in the cache, or fetches it.
    async fn open_slice(
        self,
        index: u64,
        bytes: Range<u64>,
        ahead: Option<SliceFetch>,
    ) -> Result<OpenSlice, SliceError> {
        let key = self.key(index);
        let mut next = match ahead {
            Some(fetch) => fetch,
            None => {
                if let Some(disk) = self.worker.cache.disk() {
                    let counters = &self.worker.counters;
                    let mut entry = disk.lookup(key.hash, &key.bytes, counters);
                    if let DiskEntry::Pending(candidate) = entry {
                        entry = disk.wait(candidate, key.hash, &key.bytes, counters).await;
                    }
                    if let DiskEntry::Response(hit) = entry
                        && let Some(open) = self.open_on_disk(&key, &hit, &bytes)
                    {
                        return Ok(open);
                    }
                }
                match self.join(key.clone(), index) {
                    Ok(fetch) => fetch,
                    Err(slice) => {
                        let open = self.open_stored(key.hash, &slice, &bytes);
                        match open {
                            Some(open) => return Ok(open),
                            None => self.lead_alone(key.clone(), index),
                        }
                    }
                }
            }
        };
        let mut retries_left = RETRIES_MAX;
        loop {
            let SliceFetch { reader, leads } = next;
            let followed = if leads {
                poll_fn(|cx| reader.poll_head(cx)).await
            } else {
                match wait_for_head(&reader).await {
                    Some(followed) => followed,
                    None => {
                        self.worker.counters.collapse_timeouts.increment();
                        next = self.lead_alone(key.clone(), index);
                        continue;
                    }
                }
            };
            match followed {
                FollowResult::Head(_) => {}
                FollowResult::Released if leads => {} // The response is for the leader.
                FollowResult::Stored(slice) => {
                    if let Some(open) = self.open_stored(key.hash, &slice, &bytes) {
                        return Ok(open);
                    }
                    next = self.lead_alone(key.clone(), index);
                    continue;
                }
                FollowResult::Released => {
                    next = self.lead_alone(key.clone(), index);
                    continue;
                }
                FollowResult::Failed(failure) => {
                    match failure.mismatch {
                        Some(mismatch @ SliceMismatch::Changed) => {
                            self.remove_entry(mismatch);
                            return Err(SliceError::Changed);
                        }
                        Some(mismatch @ SliceMismatch::Ignored) => {
                            self.remove_entry(mismatch);
                            return Err(SliceError::Ignored);
                        }
                        Some(SliceMismatch::Error) | None => {}
                    }
                    if leads || retries_left == 0 {
                        return Err(SliceError::Failed(failure));
                    }
                    retries_left -= 1;
                    // All requests that waited share one further fetch.
                    let collapse = &self.worker.cache.collapse;
                    next = match collapse.join_after(&reader, key.hash, &key.bytes) {
                        Role::Follower(reader) => follow(reader),
                        Role::Leader(leader, reader) | Role::FurtherLeader(leader, reader) => {
                            self.lead(key.clone(), index, leader, reader)
                        }
                        Role::Uncollapsed | Role::Overdue => self.lead_alone(key.clone(), index),
                    };
                    continue;
                }
            }
            let head = reader.head().ok_or(SliceError::Incomplete)?;
            let mut lines = Vec::new();
            crate::cache::stored::push_fields(&head.headers, &mut lines);
            let Some(within) = self.within(&lines, &bytes) else {
                // A shorter part that does not have the bytes is of no use.
                self.remove_entry(SliceMismatch::Ignored);
                return Err(SliceError::Ignored);
            };
            reader.set_range(within);
            if !leads {
                self.worker.counters.collapsed.increment();
            }
            self.worker.counters.slices_from_origin.increment();
            return Ok(OpenSlice::Fill(reader));
        }
    }
}

fn follow(reader: FillReader) -> SliceFetch {
    SliceFetch {
        reader,
        leads: false,
    }
}

/// The further fetches for which a request waits after a shared fetch of a slice has failed.
const RETRIES_MAX: u32 = 2;

impl SliceOpener for Opener {
    fn open_now(&self, index: u64, bytes: &Range<u64>) -> Option<OpenSlice> {
        let key = self.key(index);
        let slice = self.worker.cache.hot.lookup(key.hash)?;
        if !slice.has_key(&key.bytes) {
            return None;
        }
        self.open_stored(key.hash, &slice, bytes)
    }

    fn open(&self, index: u64, bytes: Range<u64>, ahead: Option<SliceFetch>) -> OpeningSlice {
        Box::pin(self.clone().open_slice(index, bytes, ahead))
    }

    fn fetch_ahead(&self, index: u64) -> Option<SliceFetch> {
        let key = self.key(index);
        if self.worker.cache.tier_of_slice(&key).is_some() {
            return None;
        }
        self.join(key, index).ok()
    }
}
