//! Updates a stored response after the origin has answered 304 (RFC 9111 §4.3.4).

use std::sync::Arc;

use edgeward_semantics::freshen::{self, Freshened};
use edgeward_semantics::{Exchange, Validators};
use http::response::Parts;

use crate::cache::stored::{Stored, StoredKind, StoredResponse};
use crate::exchange::Request;
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

/// Applies a 304 to a stored response, whose body stays. `exchange` has the times of the conditional request.
pub(super) fn not_modified(
    worker: &Worker,
    request: &Request,
    stored: &Arc<Stored>,
    not_modified: &Parts,
    exchange: Exchange,
) -> Validation {
    let old = stored.response();
    let head = old.headers();
    let validators = Validators::from_headers(&head);
    let freshened = freshen::by_not_modified(
        &worker.config().caching.rules,
        &request.headers,
        freshen::StoredResponse {
            status: old.status,
            head: &head,
            validators: &validators,
        },
        &not_modified.headers,
        exchange,
    );
    let renewed = |head, policy| {
        let response = StoredResponse::new(old.status, head, policy, old.body.clone());
        stored.renewed(StoredKind::Response(response))
    };
    match freshened {
        Freshened::Keep(storable) => Validation::Keep(renewed(&storable.head, storable.policy)),
        Freshened::UseOnce { head, .. } => {
            let mut policy = old.policy;
            policy.response_time = exchange.response_time;
            policy.initial_age_ms = 0;
            Validation::UseOnce(renewed(&head, policy))
        }
        Freshened::Mismatch => Validation::Mismatch,
    }
}
