//! From a target to what is stored for it.

use std::sync::Arc;

use edgeward_semantics::{Forward, RequestDirectives, Reuse, Target};
use edgeward_types::{KeyHash, Timestamp};
use http::HeaderMap;

use crate::stored::{Stored, StoredKind, StoredResponse};
use crate::worker::Worker;

/// What a lookup found.
pub(super) enum Found {
    /// A response, fresh or not.
    Response {
        hash: KeyHash,
        primary_len: usize,
        stored: Arc<Stored>,
    },
    /// Nothing that answers this request.
    Nothing { key: MissKey, why: Forward },
}

/// Under which key a missing response belongs.
#[derive(Clone, Debug)]
pub(super) struct MissKey {
    pub(super) hash: KeyHash,
    /// The primary key, and behind it the secondary one if the URI is known to vary.
    pub(super) bytes: Box<[u8]>,
    pub(super) primary_len: usize,
}

impl MissKey {
    pub(super) fn primary(&self) -> &[u8] {
        &self.bytes[..self.primary_len]
    }
}

/// Two lookups at most: one for the URI, one for the variant if it varies.
pub(super) fn find(worker: &Worker, target: &Target<'_>, headers: &HeaderMap) -> Found {
    let mut key = worker.scratch.borrow_mut();
    key.clear();
    target.write_key(&mut key);
    let primary_len = key.len();
    let mut why = Forward::UriMiss;
    let mut hash = worker.shared.hash(&key);
    let mut stored = lookup(worker, hash, &key);
    if let Some(marker) = &stored
        && let StoredKind::Varies(variants) = &marker.kind
    {
        why = Forward::VaryMiss;
        variants.write_key(headers, &mut key);
        hash = worker.shared.hash(&key);
        stored = lookup(worker, hash, &key);
    }
    match stored {
        Some(stored) if matches!(stored.kind, StoredKind::Response(_)) => Found::Response {
            hash,
            primary_len,
            stored,
        },
        _ => Found::Nothing {
            key: MissKey {
                hash,
                bytes: key.as_slice().into(),
                primary_len,
            },
            why,
        },
    }
}

/// Answers a request that asks for nothing but the whole response, if a fresh one is stored.
///
/// Does what [`serve`](super::serve) does for such a request, without a map of its fields.
pub(crate) fn plain_hit(
    worker: &Worker,
    target: &Target<'_>,
    now: Timestamp,
    deliver: impl FnOnce(&StoredResponse),
) -> bool {
    let mut key = worker.scratch.borrow_mut();
    key.clear();
    target.write_key(&mut key);
    let hash = worker.shared.hash(&key);
    let Some(stored) = lookup(worker, hash, &key) else {
        return false;
    };
    let StoredKind::Response(response) = &stored.kind else {
        return false;
    };
    let asked = RequestDirectives::default();
    if !matches!(response.policy.reuse(now, &asked), Reuse::Fresh { .. }) {
        return false;
    }
    worker.counters.hit.one();
    worker.record(hash, stored.charge_bytes(), true);
    deliver(response);
    true
}

/// The key of a response that [`find`] has just found and that cannot be used as it is.
pub(super) fn key_of(worker: &Worker, hash: KeyHash, primary_len: usize) -> MissKey {
    MissKey {
        hash,
        // `find` left the key where it put it together.
        bytes: worker.scratch.borrow().as_slice().into(),
        primary_len,
    }
}

/// What is under a hash, if it is under this very key.
pub(super) fn lookup(worker: &Worker, hash: KeyHash, key: &[u8]) -> Option<Arc<Stored>> {
    let stored = worker.shared.hot.lookup(hash)?;
    if stored.is_of(key) {
        return Some(stored);
    }
    worker.counters.key_collisions.one();
    None
}

/// The response in what [`find`] found.
pub(super) fn response(stored: &Stored) -> &StoredResponse {
    match &stored.kind {
        StoredKind::Response(response) => response,
        StoredKind::Varies(_) => unreachable!("only responses are handed on"),
    }
}
