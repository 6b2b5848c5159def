//! Responses that the fetches of other requests give or have stored.

use std::future::poll_fn;
use std::sync::Arc;

use edgeward_purge::Verdict;

use crate::cache::CacheKey;
use crate::cache::fill::{FillReader, FollowResult};
use crate::cache::stored::{Stored, StoredKind};
use crate::path::worker::Worker;

/// Waits for the head of a shared fetch, or for its end without one. Returns `None` at the deadline of the fetch.
pub(super) async fn wait_for_head(reader: &FillReader) -> Option<FollowResult> {
    let deadline = reader.fill().head_deadline().into();
    let head = poll_fn(|cx| reader.poll_head(cx));
    tokio::time::timeout_at(deadline, head).await.ok()
}

/// Returns true if a purge forbids to use a stored response.
pub(super) fn is_purged(worker: &Worker, key: &CacheKey, stored: &Stored) -> bool {
    worker.cache.verdict(key.primary(), stored) == Verdict::Hard
}

/// Returns the response that memory has for the key, if this response is fresh and is not `stale`.
pub(super) fn find_new_fresh(
    worker: &Worker,
    key: &CacheKey,
    stale: Option<&Arc<Stored>>,
) -> Option<Arc<Stored>> {
    let stored = worker.cache.hot.peek(key.hash)?;
    let is_new = stale.is_none_or(|stale| !Arc::ptr_eq(stale, &stored));
    let usable = is_new
        && stored.has_key(&key.bytes)
        && matches!(&stored.kind, StoredKind::Response(r) if r.policy.is_fresh(worker.now()))
        && worker.cache.verdict(key.primary(), &stored) == Verdict::Current;
    usable.then_some(stored)
}

/// The most fetches that a request follows. Then it gets its own fetch, or the error of the last fetch.
pub(super) const FOLLOWS_MAX: u32 = 3;
