//! What a 304 makes of a stored response.

use std::sync::Arc;

use edgeward_semantics::freshen::{self, Freshened};
use edgeward_semantics::{Exchange, Validators};
use http::response::Parts;

use crate::cache::stored::{Stored, StoredKind, StoredResponse};
use crate::exchange::Request;
use crate::path::worker::Worker;

/// The stored response after a validation.
pub(super) enum Validated {
    /// With a fresh head, to be kept.
    Keep(Arc<Stored>),
    /// Good for this request, but not to be kept.
    UseOnce(Arc<Stored>),
    /// The 304 speaks of another representation: fetch anew.
    Mismatch,
}

/// Applies a 304. The body is shared with the old value, not copied.
pub(super) fn not_modified(
    worker: &Worker,
    request: &Request,
    stored: &Arc<Stored>,
    not_modified: &Parts,
    exchange: Exchange,
) -> Validated {
    let old = stored.response();
    let head = old.headers();
    let validators = Validators::of(&head);
    let freshened = freshen::by_not_modified(
        &worker.config().caching.rules,
        &request.headers,
        freshen::Stored {
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
        Freshened::Keep(storable) => Validated::Keep(renewed(&storable.head, storable.policy)),
        Freshened::UseOnce { head, .. } => {
            let mut policy = old.policy;
            policy.response_time = exchange.response_time;
            policy.initial_age_ms = 0;
            Validated::UseOnce(renewed(&head, policy))
        }
        Freshened::Mismatch => Validated::Mismatch,
    }
}
