//! The part of a response to request from the origin.

use std::sync::Arc;

use edgeward_semantics::slices::FirstPart;
use edgeward_types::KeyHash;
use http::Method;
use http::header::RANGE;

use crate::cache::CacheKey;
use crate::cache::stored::Stored;
use crate::exchange::Request;
use crate::path::worker::Worker;

/// Returns the part to request for a request with a range, or for a stale response in slices. Returns `None` to request
/// the complete response, or to pass the request.
pub(super) fn part_to_fetch(
    worker: &Worker,
    request: &Request,
    key: &CacheKey,
    stale: Option<&Arc<Stored>>,
) -> Option<FirstPart> {
    let wants_range = has_range(request);
    let slice_bytes = worker.config().ranges.slice_bytes.bytes();
    if let Some(stale) = stale {
        // A new version of a response in slices is fetched in slices too, because it is large.
        let is_sliced = slice_bytes > 0 && stale.slices().is_some();
        let first = || FirstPart::of_request(&request.headers, slice_bytes);
        return is_sliced.then(|| first().unwrap_or(FirstPart::Slice { index: 0 }));
    }
    if !wants_range {
        return None;
    }
    let is_checked = request.settings().caching.check_authorization;
    let part = (slice_bytes > 0 && request.method == Method::GET && !is_checked)
        .then(|| FirstPart::of_first_request(&request.headers, slice_bytes))
        .flatten();
    if part.is_none() {
        worker.counters.ranges_passed_form.increment();
        return None;
    }
    let (now, hit_for_miss) = (worker.now(), &worker.cache.hit_for_miss);
    let is_marked = hit_for_miss.contains(range_mark(key.primary_hash()), now)
        || hit_for_miss.contains(key.primary_hash(), now);
    if is_marked {
        worker.counters.ranges_passed_marked.increment();
        return None;
    }
    part
}

/// Returns the hash by which a target is marked whose ranges cannot be sliced.
pub(super) fn range_mark(primary: KeyHash) -> KeyHash {
    KeyHash(!primary.0)
}

pub(super) fn has_range(request: &Request) -> bool {
    !request.plain && request.headers.contains_key(RANGE)
}
