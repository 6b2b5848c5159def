//! Updates a stored response after the origin has answered 304, or 200 to a HEAD (RFC 9111 §4.3.4, §4.3.5).

use std::sync::Arc;

use edgeward_purge::Stamp;
use edgeward_semantics::freshen::{self, Freshened};
use edgeward_semantics::{Exchange, Rules, Validators};
use edgeward_store::versions::Version;
use http::header::HeaderMap;
use http::response::Parts;

use crate::cache::CacheKey;
use crate::cache::stored::{Stored, StoredBody, StoredKind, StoredResponse};
use crate::exchange::Request;
use crate::path::encoded;
use crate::path::worker::Worker;

/// The result of a validation.
pub(super) enum Validation {
    /// The stored response with an updated head, which replaces the stored one.
    Keep(Arc<Stored>),
    /// The stored response with an updated head. It answers this request only, because it must no longer be stored.
    UseOnce(Arc<Stored>),
    /// The 304 is about another representation, so the response has to be fetched.
    Mismatch,
}

/// A stored response, and the head that updates it. The body stays.
pub(super) struct Validating<'a> {
    pub(super) worker: &'a Worker,
    pub(super) request: &'a Request,
    pub(super) stored: &'a Arc<Stored>,
    /// The head of the response to the conditional request or to the HEAD.
    pub(super) response: &'a Parts,
    /// The times of this request.
    pub(super) exchange: Exchange,
    /// The newest purge before this request.
    pub(super) stamp: Stamp,
}

impl Validating<'_> {
    /// Applies a 304.
    pub(super) fn by_not_modified(self) -> Validation {
        apply(freshen::by_not_modified, self)
    }

    /// Applies the 200 to a HEAD.
    pub(super) fn by_head(self) -> Validation {
        apply(freshen::by_head, self)
    }
}

/// A function of `freshen` that updates a stored head by the head of a response.
type Update =
    fn(&Rules, &HeaderMap, freshen::StoredResponse<'_>, &HeaderMap, Exchange) -> Freshened;

fn apply(update: Update, validating: Validating<'_>) -> Validation {
    let Validating {
        worker,
        request,
        stored,
        response,
        exchange,
        stamp,
    } = validating;
    let old = stored.response();
    let head = old.headers();
    let validators = Validators::from_headers(&head);
    let freshened = update(
        &request.settings().caching,
        &request.headers,
        freshen::StoredResponse {
            status: old.status,
            head: &head,
            validators: &validators,
        },
        &response.headers,
        exchange,
    );
    let renewed = |head, policy, generation| {
        let response = StoredResponse {
            generation,
            disk_plan: old.disk_plan,
            ..StoredResponse::new(old.status, head, policy, old.body.clone())
        };
        Stored::new(stored.key(), StoredKind::Response(response), stamp)
    };
    match freshened {
        Freshened::Keep(mut storable) => {
            let generation = match old.body {
                StoredBody::Slices(_) => None,
                StoredBody::Memory(_) | StoredBody::Disk(_) => {
                    let length = Some(old.body.len());
                    let (status, old) = (old.status, old.generation);
                    encoded::mark_encodable(worker, request, status, &mut storable, length, old)
                }
            };
            Validation::Keep(renewed(&storable.head, storable.policy, generation))
        }
        Freshened::UseOnce { head, .. } => {
            let mut policy = old.policy;
            policy.response_time = exchange.response_time;
            policy.initial_age_ms = 0;
            Validation::UseOnce(renewed(&head, policy, None))
        }
        Freshened::Mismatch => Validation::Mismatch,
    }
}

/// Replaces a stored response by its updated copy, in each tier that has it, unless the key has changed.
pub(super) fn replace(
    worker: &Worker,
    key: &CacheKey,
    old: &Arc<Stored>,
    updated: &Arc<Stored>,
    version: Version,
) {
    let cache = &worker.cache;
    let _changing = cache.changing(version.key());
    match cache.hot.refresh(version, old, Arc::clone(updated)) {
        Some(true) => cache.record(version.key(), updated.charge_bytes(), true),
        Some(false) => {}
        None => return worker.counters.dropped_refresh.increment(),
    }
    if let Some(disk) = cache.disk() {
        let key = &key.bytes;
        match &updated.response().body {
            StoredBody::Memory(_) | StoredBody::Slices(_) => {
                disk.freshen_copy(version.key(), key, old, updated);
            }
            StoredBody::Disk(object) => disk.freshen(object, key, updated),
        }
    }
}
