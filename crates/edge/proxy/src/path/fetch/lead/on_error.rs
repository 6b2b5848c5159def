//! An error of the origin beside a stored response: which of both the client gets, and which stays stored.
//!
//! A 5xx does not replace a body that may still be used, by its lifetime or a time of RFC 5861, even if the 5xx itself
//! may be stored. `caching.errors_replace_stale` changes this.

use std::sync::Arc;

use edgeward_semantics::{Storable, Vary};
use http::StatusCode;
use http::response::Parts;

use super::fetch_state::Fetch;
use crate::cache::stored::{Selector, Stored, StoredKind};
use crate::origin::OriginBody;

impl Fetch {
    /// Returns true if the response to a validation is an error, and the stored response stays.
    pub(super) fn keeps_stored(&self, status: StatusCode, stale: Option<&Arc<Stored>>) -> bool {
        status.is_server_error()
            && !self.worker.config().caching.errors_replace_stale
            && stale.is_some_and(|old| old.response().policy.is_usable(self.worker.now()))
    }

    /// Gives an error to the leader alone. Its client did not accept the stored response, which others may still get.
    pub(super) fn give_error_to_leader(self, parts: Box<Parts>, body: Box<OriginBody>) {
        self.worker.counters.not_stored_semantics.increment();
        self.release_to_leader(parts, body, Some(KEEPS_STORED));
    }

    /// Stores an error without `Vary` for the variant of this request alone, if variants of the target are known. Under
    /// the target's own key the error would replace their marker, so no variant would be found any longer.
    pub(super) fn keep_variants(&self, storable: &mut Storable) {
        if self.worker.config().caching.errors_replace_stale {
            return;
        }
        if let Some(marker) = &self.key.marker
            && let StoredKind::Varies(variants) = &marker.kind
            && let Selector::Fields(fields) = &variants.selector
        {
            storable.vary = Vary::Fields(fields.clone());
        }
    }
}

/// The detail of `Cache-Status` for a 5xx that does not replace a stored response which may still be used.
const KEEPS_STORED: &str = "keeps-stored";
