//! The work of a fetch's leader: it sends the request to the origin, and decides how the response is used.
//! [`destination`] chooses the key and the tiers that store the response. [`pump`] moves the body.

mod destination;
pub(super) mod fetch_state;
mod fill_head;
mod on_error;
pub(super) mod path_rule;
pub(in crate::path) mod post;
mod pump;
mod role;
mod slice;
mod versions;

use std::rc::Rc;
use std::sync::Arc;

use edgeward_semantics::{
    NotStoredReason, Storable, Validators, Vary, Verdict, answers_the_request, keep_links,
};
use http::header::TRAILER;
use http::response::Parts;
use http::{Method, StatusCode};
use http_body::Body as _;

use super::respond::NOT_ADMITTED;
use crate::cache::fill::{Encodable, Failure};
use crate::cache::stored::{self, Stored};
use crate::config::watch::RequestedObject;
use crate::origin::{Conditions, EarlyLinks, OriginBody, OriginError};
use crate::path::ask::ask;
use crate::path::peer;
use crate::path::question::{Question, Storing};
use crate::path::revalidate::{self, Validating, Validation};
use crate::path::stale::StaleCause;
use crate::path::{debug_faults, encoded, storability};
use destination::charge_of;
use fetch_state::{ArrivedResponse, BodyTransfer, Fetch, FetchResult, OpenFill};
use pump::Transfer;
use role::ObjectRole;
use versions::KeyVersions;

impl Fetch {
    /// Sends the request, which validates `stale` if given. Reports a result to the leader and to the followers.
    pub(super) async fn run(mut self, mut stale: Option<Arc<Stored>>) {
        let _open = OpenFill::new(&self.worker.counters);
        if self.part.is_some() && !peer::stores(&self.worker, &self.request) {
            return self.leave_range_to_owner();
        }
        loop {
            let mut versions = KeyVersions::read(&self.worker, &mut self.key);
            let validators = stale
                .as_ref()
                .map(|stored| stored.response())
                .filter(|response| response.policy.has_validator)
                .map(|response| Validators::from_headers(&response.headers()));
            let slice_bytes = self.worker.config().ranges.slice_bytes.bytes();
            let range = self.part.map(|part| part.range_value(slice_bytes));
            let conditions = match (&range, &validators) {
                (Some(range), stale) => Conditions::Part {
                    range,
                    if_range: None,
                    stale: stale.as_ref(),
                },
                (None, Some(validators)) => Conditions::Revalidate(validators),
                (None, None) => Conditions::Remove,
            };
            let question = Question {
                refreshes: stale.as_ref().map(|_| self.key.hash),
                ..Question::safe(&Method::GET, conditions)
            };
            let answered = ask(&self.worker, &self.request, question).await;
            let storing = answered.storing;
            if let Storing::Received(stated) | Storing::Copy { stamp: stated, .. } = storing {
                versions.receive(&self.worker.cache, stated);
            }
            if let Some(old) = &stale
                && let Some(cause) =
                    StaleCause::of_answer(&self.worker, &self.request, &answered.sent, old)
            {
                return self.finish_with_stored(Arc::clone(old), Some(cause), true);
            }
            let (parts, body) = match answered.sent {
                Ok(response) => response,
                Err(error) => return self.fail(error),
            };
            debug_faults::cause("fetch", &self.request.headers);
            if self.keeps_stored(parts.status, stale.as_ref()) {
                return self.give_error_to_leader(parts, body);
            }
            if let Some(old) = &stale
                && parts.status == StatusCode::NOT_MODIFIED
            {
                let validation = Validating {
                    worker: &self.worker,
                    request: &self.request,
                    stored: old,
                    response: &parts,
                    exchange: answered.exchange,
                    stamp: versions.stamp,
                };
                match validation.by_not_modified() {
                    Validation::Keep(stored) if self.keeps_rule(&stored) => {
                        if self.keeps(storing, &stored) {
                            let (worker, key) = (&self.worker, &self.key);
                            revalidate::replace(worker, key, old, &stored, versions.key);
                            worker.counters.fills_freshened.increment();
                        } else {
                            self.remove(versions.key);
                        }
                        // RFC 9111 §4: followers get only a response that each of them could reuse.
                        let shares = stored.response().policy.may_answer_followers();
                        if !shares {
                            self.do_not_collapse();
                        }
                        return self.finish_with_stored(stored, None, shares);
                    }
                    Validation::Keep(stored) | Validation::UseOnce(stored) => {
                        self.remove(versions.key);
                        return self.finish_with_stored(stored, None, false);
                    }
                    Validation::Mismatch => {
                        self.remove(versions.key);
                        stale = None;
                        continue;
                    }
                }
            }
            let is_part = parts.status == StatusCode::PARTIAL_CONTENT && self.part.is_some();
            let arrived = ArrivedResponse {
                parts,
                body,
                exchange: answered.exchange,
                fetch_time: answered.fetch_time,
                versions,
                has_stale: stale.is_some(),
                storing,
            };
            let rest = match is_part {
                true => self.receive_part(arrived),
                false => self.receive(arrived),
            };
            if let Some(rest) = rest {
                rest.await;
            }
            return;
        }
    }

    /// Ends the fetch of a part whose slices another node stores. The client's request is passed to that node.
    fn leave_range_to_owner(mut self) {
        self.leader.close();
        self.leader.fill.release();
        self.report(FetchResult::Unsliced("fleet"));
    }

    /// Ends the fetch with an error.
    fn fail(mut self, error: OriginError) {
        self.leader.close();
        self.worker.counters.fills_failed.increment();
        self.leader.fill.fail(Failure {
            status: error.status(),
            detail: error.detail(),
            mismatch: None,
        });
        self.report(FetchResult::Failed(error));
    }

    /// Decides how a response is used if the fetch does not end with a stored response. Returns the future that moves
    /// the body into the fill, or `None` if the leader alone gets the response.
    fn receive(self, mut arrived: ArrivedResponse) -> Option<BodyTransfer> {
        let parts = &mut arrived.parts;
        let verdict = storability::decide(
            &self.worker,
            &self.request,
            parts.status,
            &parts.headers,
            arrived.exchange,
        );
        let mut storable = match verdict {
            Verdict::Store(storable) => storable,
            Verdict::Refuse(refusal) => {
                self.record_refusal(refusal, parts.status, arrived.has_stale, arrived.versions);
                let detail = Some(refusal.as_str());
                return self.release_to_leader(arrived.parts, arrived.body, detail);
            }
        };
        if parts.status.is_server_error() && storable.vary == Vary::None {
            self.keep_variants(&mut storable);
        }
        storable.set_dates(&mut parts.headers);
        self.store(arrived, storable)
    }

    /// Stores a response, unless its key has changed since `versions` or no tier admits it. Returns like
    /// [`receive`](Self::receive).
    fn store(
        mut self,
        arrived: ArrivedResponse,
        mut storable: Box<Storable>,
    ) -> Option<BodyTransfer> {
        let ArrivedResponse {
            mut parts,
            body,
            exchange,
            fetch_time,
            mut versions,
            has_stale: _,
            storing,
        } = arrived;
        let worker = Rc::clone(&self.worker);
        let counters = &worker.counters;
        if !worker.cache.hot.is_current(versions.primary) {
            counters.dropped_insert.increment();
            return self.release_to_leader(parts, body, Some(CHANGED));
        }
        if let Some(EarlyLinks(links)) = parts.extensions.remove() {
            let bytes_max = worker.config().caching.early_links_bytes_max.bytes();
            match keep_links(&mut storable.head, &parts.headers, &links, bytes_max) {
                true => counters.early_links_kept.increment(),
                false => counters.early_links_cut.increment(),
            }
        }
        peer::clear_refusal(&worker, self.key.primary_hash());
        if storable.policy.may_answer_followers() {
            worker.cache.hit_for_miss.clear(self.key.primary_hash());
        } else {
            self.do_not_collapse();
        }
        let Ok(path_marker) = self.apply_path_rule(&storable, &mut versions) else {
            counters.dropped_insert.increment();
            return self.release_to_leader(parts, body, Some(CHANGED));
        };
        let length = body.size_hint().exact();
        let (request, status) = (&self.request, parts.status);
        let generation =
            encoded::mark_encodable(&worker, request, status, &mut storable, length, None);
        if generation.is_some() {
            encoded::copy_marks(&storable.head, &mut parts.headers);
        }
        // If the response varies, its marker changes the entry of the primary key. The guard marks the key as changing.
        let varies = matches!(storable.vary, Vary::Fields(_));
        let changing = varies.then(|| worker.cache.changing(versions.primary.key()));
        let head_bytes = |length| stored::head_block_bytes(status, &storable.head, length);
        let charge = length
            .map(|length| stored::charge_bytes(self.key.bytes.len(), head_bytes(length), length));
        let role = self.role(storing, charge);
        if role == ObjectRole::Other {
            worker.cache.miss_history.leave_to_other_node(self.key.hash);
        }
        let Some(mut destination) =
            self.choose_destination(&storable, fetch_time, versions, path_marker, role)
        else {
            counters.not_stored_admission.increment();
            return self.release_to_leader(parts, body, Some(NOT_ADMITTED));
        };
        destination.generation = generation;
        let charge = charge_of(&destination, &storable, status, length.unwrap_or(0));
        let object = worker
            .watch
            .as_ref()
            .map(|_| RequestedObject::new(destination.hash, charge, length, &storable.policy));
        let disk = self.fill_disk(&mut destination, &storable, parts.status, length);
        drop(changing);
        if disk.is_none() && worker.cache.is_settled_on_disk(destination.hash) {
            // The disk refused this response. The older response on disk is removed, because lookups would find it.
            let version = destination.versions.key;
            destination.set_removed(worker.cache.remove(version, &destination.key));
        }
        // Lookups would not find this variant: memory lacks its marker, and the disk does not write the marker.
        if disk.is_none() && !destination.is_findable {
            counters.not_stored_admission.increment();
            return self.release_object(parts, body, object);
        }
        let object_max = worker.config().limits.object_bytes_max.bytes();
        let mut share_max = worker.config().caching.collapse_bytes_max.bytes();
        if !self.leader.fill.has_followers() {
            share_max = share_max.min(LONE_SHARE_BYTES_MAX);
        }
        // A body of unknown length is offered to memory at its end. Until then it is charged to the budget of fills.
        let capacity_bytes = worker.config().hot.capacity.bytes();
        let mut buffer_max = object_max.min(capacity_bytes).max(share_max);
        if self.request.method == Method::HEAD {
            let head_max = worker.config().caching.head_fetch_bytes_max.bytes();
            buffer_max = buffer_max.min(head_max);
        }
        if let Some(length) = length {
            destination.offer(&worker, charge, length);
            buffer_max = length;
            if destination.reservation.is_none() && length > share_max {
                if disk.is_none() {
                    // A response within `collapse_bytes_max` is shared as soon as followers wait for it.
                    if length > worker.config().caching.collapse_bytes_max.bytes() {
                        self.do_not_collapse();
                    }
                    return self.release_object(parts, body, object);
                }
                // The body is too large for memory. Only a window of it is kept for the disk and the joined readers.
                buffer_max = 0;
            }
        }
        let may_window = disk.is_some(); // The disk can store the body through a window.
        let mut transfer = Transfer {
            body,
            destination,
            disk,
            storable,
            status,
            length,
            buffer_max,
        };
        let Some(memory) = transfer.reserve(&worker, may_window) else {
            counters.not_stored_fill_memory.increment();
            return self.release_object(parts, transfer.body, object);
        };
        let response_time = exchange.response_time;
        let mut head = self.build_head(&transfer.storable, status, length, response_time);
        head.encodable = generation.map(|generation| Encodable {
            generation,
            key: transfer.destination.key.as_slice().into(),
            policy: transfer.storable.policy,
        });
        head.object = object;
        let head = self.publish(&transfer, head, memory);
        // The fill has no trailers, so the leader gets none.
        parts.headers.remove(TRAILER);
        let headers = parts.headers;
        let shared = FetchResult::Shared { head, headers };
        // A small body arrives together with its head. The leader gets the result when the pump waits for the first
        // time, so that a small body is then complete and is sent in one piece.
        let pump = self.pump(shared, transfer);
        // The future is boxed, because it is the largest part of a fetch, and many responses do not need it.
        Some(Box::pin(pump))
    }

    /// Gives a response that no tier stores to the leader. The watcher gets its object.
    fn release_object(
        self,
        mut parts: Box<Parts>,
        body: Box<OriginBody>,
        object: Option<RequestedObject>,
    ) -> Option<BodyTransfer> {
        if let Some(object) = object {
            parts.extensions.insert(object);
        }
        self.release_to_leader(parts, body, Some(NOT_ADMITTED))
    }

    /// Records that a response may not be stored, so that requests for its target do not wait for each other.
    fn record_refusal(
        &self,
        reason: NotStoredReason,
        status: StatusCode,
        has_stale: bool,
        versions: KeyVersions,
    ) {
        let worker = &self.worker;
        worker.counters.not_stored_semantics.increment();
        let site = &self.request.settings().counters;
        site.record_not_storable(reason);
        // A server error is temporary, and an error that this request caused does not apply to other requests.
        let is_checked = self.request.settings().caching.check_authorization;
        let concerns_client = is_checked && status.is_client_error();
        if status.is_server_error() || answers_the_request(status) || concerns_client {
            return;
        }
        self.do_not_collapse();
        if !reason.is_of_request() {
            peer::mark_refusal(worker, self.key.primary_hash());
        }
        // The origin no longer gives the stored response, so the stored response is outdated.
        if has_stale {
            self.remove(versions.key);
        }
    }
}

/// The detail of `Cache-Status` if the stored response was invalidated or replaced during the fetch.
const CHANGED: &str = "changed";

/// The largest response that is buffered for later followers if admission does not store it and no follower waits.
const LONE_SHARE_BYTES_MAX: u64 = 8 << 20;
