//! Fetches of slices: the first one, whose response shows that the representation can be sliced, and all others.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use edgeward_semantics::slices::{
    self, FirstAnswer, SliceMismatch, Slicing, StrongValidator, Unusable,
};
use edgeward_semantics::{
    ContentRange, LifetimeSource, Storable, Validators, Vary, Verdict, conditional,
};
use edgeward_store::hot::Offer;
use http::header::{CONTENT_RANGE, HeaderMap, IF_RANGE};
use http::response::Parts;
use http::{Method, StatusCode};
use http_body::Body as _;

use super::destination::plan_of;
use super::destination::{Destination, charge_of};
use super::fetch_state::{ArrivedResponse, BodyTransfer, Fetch, FetchResult, OpenFill};
use super::pump::Transfer;
use super::role::ObjectRole;
use super::versions::KeyVersions;
use crate::cache::CacheKey;
use crate::cache::collapse::Role;
use crate::cache::disk::fill::{DiskFill, FillRefusal};
use crate::cache::disk::head;
use crate::cache::fill::{Failure, FillHead};
use crate::cache::slices::Slices;
use crate::cache::stored::DiskPlan;
use crate::cache::stored::{Stored, StoredBody, StoredKind, StoredResponse};
use crate::origin::{Conditions, OriginBody};
use crate::path::ask::ask;
use crate::path::fetch::part::range_mark;
use crate::path::question::Question;
use crate::path::sliced_body::SliceFetch;
use crate::path::storability;

/// A slice whose response has begun.
struct ArrivingSlice {
    content: ContentRange,
    fetch_time: Duration,
    versions: KeyVersions,
    /// The freshness of the entry, with which the slice is stored.
    policy: edgeward_semantics::StoredPolicy,
    /// True if the response may be stored and shared.
    is_storable: bool,
}

impl Fetch {
    /// Decides how a 206 to a request for a part is used. Returns the future that moves the body if the response turns
    /// out to be complete.
    pub(super) fn receive_part(mut self, mut arrived: ArrivedResponse) -> Option<BodyTransfer> {
        let worker = Rc::clone(&self.worker);
        let slice_bytes = worker.config().ranges.slice_bytes.bytes();
        let body_length = arrived.body.size_hint().exact();
        let headers = &arrived.parts.headers;
        let (content, index) = match slices::first_answer(headers, body_length, slice_bytes) {
            FirstAnswer::Complete => {
                let length = body_length.unwrap_or_default();
                arrived.parts.headers = slices::complete_head(headers, length);
                arrived.parts.status = StatusCode::OK;
                return self.receive(arrived);
            }
            FirstAnswer::Slice { index, content } => (content, Some(index)),
            FirstAnswer::Head(content) => (content, None),
            FirstAnswer::Unusable(reason) => {
                return self.release_unsliced(arrived.parts, arrived.body, reason.as_str());
            }
        };
        let ArrivedResponse {
            parts,
            body,
            exchange,
            fetch_time,
            mut versions,
            has_stale,
            storing,
        } = arrived;
        let verdict = storability::decide(
            &self.worker,
            &self.request,
            StatusCode::OK,
            &slices::complete_head(&parts.headers, content.complete_length),
            exchange,
        );
        let storable = match verdict {
            Verdict::Store(storable) => storable,
            Verdict::Refuse(reason) => {
                self.record_refusal(reason, StatusCode::OK, has_stale, versions);
                return self.release_unsliced(parts, body, reason.as_str());
            }
        };
        let Ok(path_marker) = self.apply_path_rule(&storable, &mut versions) else {
            worker.counters.dropped_insert.increment();
            return self.release_unsliced(parts, body, "outdated");
        };
        // No slices are copied.
        let role = self.role(storing, None);
        let Some(destination) =
            self.choose_destination(&storable, fetch_time, versions, path_marker, role)
        else {
            worker.counters.not_stored_admission.increment();
            return self.release_unsliced(parts, body, "admission");
        };
        let slicing = Slicing {
            complete_length: content.complete_length,
            slice_bytes,
        };
        let policy = storable.policy;
        let stored = self.new_entry(&destination, &storable, slicing);
        // The fetch of the slice begins first. Otherwise a request that finds the entry would fetch the slice again.
        let first = match index {
            Some(index) => {
                let arriving = ArrivingSlice {
                    content,
                    fetch_time,
                    versions,
                    policy,
                    is_storable: true,
                };
                Ok((index, self.begin_slice(&stored, index, arriving, body)))
            }
            None => Err(body),
        };
        self.store_entry(&destination, &stored);
        self.record_stored(destination.hash, &policy);
        worker.cache.hit_for_miss.clear(self.key.primary_hash());
        self.leader.close();
        // RFC 9111 §4: followers get only a response that each of them could reuse. Followers whose key turns out to be
        // another one look it up again.
        if policy.may_answer_followers() {
            self.leader.fill.finish_with_stored(Arc::clone(&stored));
        } else {
            self.leader.fill.release();
        }
        self.report(match first {
            Err(body) if self.requested_as_client() => FetchResult::Direct((parts, body), None),
            first => FetchResult::Sliced {
                stored,
                first: first.ok(),
            },
        });
        None
    }

    /// Returns a new entry of a response in slices.
    fn new_entry(
        &self,
        destination: &Destination,
        storable: &Storable,
        slicing: Slicing,
    ) -> Arc<Stored> {
        let cache = &self.worker.cache;
        let slices = Slices::new(slicing, cache.next_marker_generation());
        let body = StoredBody::Slices(Arc::new(slices));
        let response = StoredResponse::new(StatusCode::OK, &storable.head, storable.policy, body);
        let kind = StoredKind::Response(response);
        Stored::new(&destination.key, kind, destination.versions.stamp)
    }

    /// Stores the entry of a response in slices, in memory or else on disk.
    fn store_entry(&self, destination: &Destination, stored: &Arc<Stored>) {
        let (cache, counters) = (&self.worker.cache, &self.worker.counters);
        let versions = destination.versions;
        if !destination.is_findable || !cache.hot.is_current(versions.primary) {
            counters.dropped_insert.increment();
            return;
        }
        let hash = destination.hash;
        let offer = cache.offer_to_ram(hash, stored.charge_bytes(), None, counters);
        if let Offer::Admit(mut reservation) = offer {
            stored.attach_charge(reservation.take_charge());
            let ram = Some((reservation, Arc::clone(stored)));
            if cache
                .insert(versions.key, &destination.key, ram, None)
                .is_none()
            {
                counters.dropped_insert.increment();
            }
        } else if let Some(disk) = cache.disk()
            && let Some(version) = cache.remove(versions.key, &destination.key)
            && let Some(slices) = stored.slices()
            && disk.put_sliced(hash, stored, slices, version)
        {
            cache.write_markers_of(stored.key());
        }
    }

    /// Returns true if the origin got the client's own range, and the client has no conditions.
    fn requested_as_client(&self) -> bool {
        let headers = &self.request.headers;
        self.part.is_some_and(|part| part.is_range_of(headers))
            && !headers.contains_key(IF_RANGE)
            && !conditional::is_conditional(headers)
    }

    /// Gives up slices for this fetch. The leader gets the response if it is the answer to its request. Otherwise it
    /// passes its request to the origin, as the followers do, and later requests for a range for some time.
    fn release_unsliced(
        mut self,
        parts: Box<Parts>,
        body: Box<OriginBody>,
        reason: &'static str,
    ) -> Option<BodyTransfer> {
        let worker = &self.worker;
        worker.counters.ranges_passed_unusable.increment();
        let mark = range_mark(self.key.primary_hash());
        worker.cache.hit_for_miss.mark(mark, worker.now());
        worker.counters.fills_released.increment();
        self.leader.close();
        self.leader.fill.release();
        self.report(if self.requested_as_client() {
            FetchResult::Direct((parts, body), Some(reason))
        } else {
            FetchResult::Unsliced(reason)
        });
        None
    }

    /// Begins to move the body of a first part into the fill of its slice.
    fn begin_slice(
        &self,
        stored: &Arc<Stored>,
        index: u64,
        mut arriving: ArrivingSlice,
        body: Box<OriginBody>,
    ) -> SliceFetch {
        let cache = &self.worker.cache;
        let generation = stored.slices().map_or(0, |slices| slices.generation);
        let key = CacheKey::of_slice(stored.key(), generation, index, cache.hash_seed);
        let slicing = stored.slices().map(|slices| slices.slicing);
        let is_whole = slicing.is_some_and(|slicing| {
            let part = arriving.content.part;
            slicing.bytes_of(index) == (part.first..part.last + 1)
        });
        // The generation is new, so there is no other fetch of the slice. A part that is shorter than the slice answers
        // only the leader: requests for other bytes share a fetch of the whole slice.
        let role = is_whole.then(|| cache.collapse.join(key.hash, &key.bytes));
        let (leader, reader) = match role {
            Some(Role::Leader(leader, reader) | Role::FurtherLeader(leader, reader)) => {
                (leader, reader)
            }
            None | Some(Role::Follower(_) | Role::Uncollapsed | Role::Overdue) => {
                cache.collapse.lead_uncollapsed()
            }
        };
        let version = cache.hot.version(key.hash);
        (arriving.versions.key, arriving.versions.primary) = (version, version);
        let fetch = Self {
            worker: Rc::clone(&self.worker),
            request: Rc::clone(&self.request),
            key,
            leader,
            part: None,
            result: None,
        };
        let fill = Arc::clone(reader.fill());
        let moves = async move {
            let _open = OpenFill::new(&fetch.worker.counters);
            fetch.fill_slice(arriving, body).await;
        };
        let orphans = self.worker.origin(&self.request).orphans();
        orphans.spawn(&self.worker.fetch_tasks, moves, move || fill.has_readers());
        SliceFetch {
            reader,
            leads: true,
        }
    }

    /// Fetches one slice of the response whose entry is `entry`.
    pub(in crate::path::fetch) async fn run_slice(
        self,
        entry: Arc<Stored>,
        slicing: Slicing,
        index: u64,
    ) {
        let worker = Rc::clone(&self.worker);
        let _open = OpenFill::new(&worker.counters);
        let stamp = worker.cache.purges.latest();
        let response = entry.response();
        let validators = Validators::from_headers(&response.headers());
        let Some(validator) = StrongValidator::of(&validators) else {
            let detail = Unusable::Validator.as_str();
            return self.fail_slice(detail, Some(SliceMismatch::Ignored));
        };
        let range = slicing.range_value(index);
        let conditions = Conditions::Part {
            range: &range,
            if_range: Some(validator.if_range()),
            stale: None,
        };
        let question = Question {
            may_ask_peer: false,
            ..Question::safe(&Method::GET, conditions)
        };
        let answered = ask(&worker, &self.request, question).await;
        let (parts, body) = match answered.sent {
            Ok(response) => response,
            Err(error) => {
                worker.counters.slices_failed.increment();
                let mut this = self;
                this.leader.close();
                worker.counters.fills_failed.increment();
                this.leader.fill.fail(Failure {
                    status: error.status(),
                    detail: error.detail(),
                    mismatch: None,
                });
                return;
            }
        };
        // The version is read after the head has arrived, because a part that is shorter than the slice may have been
        // stored meanwhile. A changed entry has another generation, so this slice would not be found.
        let version = worker.cache.hot.version(self.key.hash);
        let versions = KeyVersions {
            key: version,
            primary: version, // the entry's key changes when a 304 freshens the entry, but its slices stay
            target: version,
            path: version,
            stamp,
        };
        let body_length = body.size_hint().exact();
        let answer = slices::slice_answer(
            slicing,
            index,
            &validator,
            parts.status,
            &parts.headers,
            body_length,
        );
        let part = match answer {
            Ok(part) => part,
            Err(mismatch) => {
                let (counter, detail) = match mismatch {
                    SliceMismatch::Changed => (&worker.counters.slices_changed, "changed"),
                    SliceMismatch::Ignored => (&worker.counters.slices_ignored, "range-ignored"),
                    SliceMismatch::Error => (&worker.counters.slices_failed, "origin-error"),
                };
                counter.increment();
                return self.fail_slice(detail, Some(mismatch));
            }
        };
        let verdict = storability::decide(
            &self.worker,
            &self.request,
            StatusCode::OK,
            &slices::complete_head(&parts.headers, slicing.complete_length),
            answered.exchange,
        );
        let arriving = ArrivingSlice {
            content: ContentRange {
                part,
                complete_length: slicing.complete_length,
            },
            fetch_time: answered.fetch_time,
            versions,
            policy: response.policy,
            is_storable: matches!(verdict, Verdict::Store(_)),
        };
        self.fill_slice(arriving, body).await;
    }

    fn fail_slice(mut self, detail: &'static str, mismatch: Option<SliceMismatch>) {
        self.leader.close();
        self.worker.counters.fills_failed.increment();
        self.leader.fill.fail(Failure {
            status: StatusCode::BAD_GATEWAY,
            detail,
            mismatch,
        });
    }

    /// Moves the body of a slice into its fill and into the tiers that store it.
    async fn fill_slice(self, arriving: ArrivingSlice, body: Box<OriginBody>) {
        let worker = Rc::clone(&self.worker);
        worker.counters.slices_fetched.increment();
        let ArrivingSlice {
            content, versions, ..
        } = arriving;
        let length = content.part.length();
        let mut headers = HeaderMap::with_capacity(1);
        let part = content.part.content_range(content.complete_length);
        headers.insert(CONTENT_RANGE, part);
        let status = StatusCode::PARTIAL_CONTENT;
        let storable = Box::new(Storable {
            policy: arriving.policy,
            vary: Vary::None,
            no_vary_search: None,
            validators: Validators::default(),
            head: headers.clone(),
            source: LifetimeSource::Nothing,
        });
        let placement = self.request.settings().placement;
        let mut destination = Destination {
            hash: self.key.hash,
            key: self.key.bytes.clone(),
            marker: None,
            path_marker: None,
            versions,
            is_findable: true,
            reservation: None,
            fetch_time: arriving.fetch_time,
            generation: None,
            disk_plan: plan_of(placement, ObjectRole::Owner),
            placement,
            role: ObjectRole::Owner,
        };
        let mut disk = None;
        if arriving.is_storable {
            disk = self.slice_to_disk(&mut destination, &storable, length);
            let charge = charge_of(&destination, &storable, status, length);
            destination.offer(&worker, charge, length);
        }
        let mut transfer = Transfer {
            body,
            destination,
            disk,
            storable,
            status,
            length: Some(length),
            buffer_max: length,
        };
        let Some(memory) = transfer.reserve(&worker, true) else {
            worker.counters.not_stored_fill_memory.increment();
            return self.fail_slice("fill-memory", None);
        };
        let head = FillHead {
            status,
            headers,
            variant: None,
            coverage: None,
            length: Some(length),
            shareable: arriving.is_storable,
            ignores_ranges: false,
            stored: false,
            stamp: versions.stamp,
            encodable: None,
            is_own: true,
            object: None,
        };
        let head = self.publish(&transfer, head, memory);
        self.leader.fill.announce();
        let headers = HeaderMap::new(); // The fetch of a slice has no leader that waits.
        self.pump(FetchResult::Shared { head, headers }, transfer)
            .await;
    }

    /// Begins to write a slice to disk, if the disk admits it. The disk then also gets the entry of the response.
    fn slice_to_disk(
        &self,
        destination: &mut Destination,
        storable: &Storable,
        length: u64,
    ) -> Option<DiskFill> {
        let cache = &self.worker.cache;
        let tier = cache.disk()?;
        let counters = &self.worker.counters;
        let (hash, key) = (destination.hash, &destination.key);
        let placement = destination.placement.disk;
        if !tier.admits(placement, hash, key, Some(length), counters) {
            return None;
        }
        cache.write_entry_of_slice(key);
        let stamp = destination.versions.stamp;
        let status = StatusCode::PARTIAL_CONTENT;
        let head = head::write_response(status, &storable.policy, stamp, &storable.head, None);
        let begun = DiskFill::begin(tier, counters, hash, key, head, Some(length));
        if matches!(begun, Err(FillRefusal::QueueFull)) {
            destination.disk_plan = DiskPlan::Queued;
        }
        begun.ok()
    }
}
