//! Validations in the background.

use std::rc::Rc;
use std::sync::Arc;

use super::follow::find_new_fresh;
use super::lead::fetch_state::Fetch;
use super::part::part_to_fetch;
use crate::cache::CacheKey;
use crate::cache::stored::Stored;
use crate::exchange::Request;
use crate::path::worker::Worker;

/// Validates a stale response while `request` is answered with it (RFC 5861 §3), unless a fetch for the key is under
/// way or the origin has just failed. No client waits, so a request that needs the connection cancels the validation.
pub(in crate::path) fn revalidate_in_background(
    worker: &Rc<Worker>,
    request: &Rc<Request>,
    key: CacheKey,
    stale: &Arc<Stored>,
) {
    let cache = &worker.cache;
    if cache.failed_validations.contains(key.hash, worker.now()) {
        return;
    }
    let Some(mut leader) = cache.collapse.lead(key.hash, &key.bytes) else {
        return;
    };
    if let Some(stored) = find_new_fresh(worker, &key, Some(stale)) {
        leader.close();
        return leader.fill.finish_with_stored(stored);
    }
    worker.counters.background_revalidations.increment();
    let fetch = Fetch {
        part: part_to_fetch(worker, request, &key, Some(stale)),
        worker: Rc::clone(worker),
        request: Rc::clone(request),
        key,
        leader,
        result: None,
    };
    let fetch = fetch.run(Some(Arc::clone(stale)));
    let orphans = worker.origin(request).orphans();
    orphans.spawn(&worker.fetch_tasks, fetch, || false);
}
