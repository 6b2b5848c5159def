//! Variants that were fetched for other values of `Accept` and `Accept-Encoding`, and that answer the request as well
//! (`edgeward_semantics::negotiation`). A lookup tries them if the variant of the request's own values is absent.

use edgeward_semantics::negotiation::{
    Representation, answers, negotiated_lines, with_negotiated_lines,
};

use crate::cache::stored::Stored;
use crate::cache::{Cache, CacheKey, split_variant_key};

/// Changes the key of an absent variant to the key of the next stored one that may answer the request, and returns
/// true. Returns false if there is no further one. The key is then the request's own again.
pub(super) fn read_other_variant_next(cache: &Cache, key: &mut CacheKey) -> bool {
    if key.marker.is_none() {
        return false;
    }
    if key.other_variants.is_none() {
        let others = stored_others(cache, &key.bytes);
        key.begin_other_variants(others);
    }
    key.read_other_variant(cache.hash_seed)
}

/// Returns true if a response answers the request, which may have been found under the key of another variant.
pub(super) fn answers_request(key: &CacheKey, stored: &Stored) -> bool {
    let Some(own) = key.own_variant() else {
        return true;
    };
    if stored.slices().is_some() {
        return false; // the slices belong to the request fields of their key
    }
    let response = stored.response();
    let Some(representation) = Representation::from_response(response.status, &response.headers())
    else {
        return false;
    };
    match (split_variant_key(&key.bytes), split_variant_key(own)) {
        (Some((_, stored)), Some((_, request))) => answers(representation, stored, request),
        _ => false,
    }
}

/// Returns the keys of stored variants that differ from `own` in negotiated fields only, the most frequent values last.
fn stored_others(cache: &Cache, own: &[u8]) -> Vec<Vec<u8>> {
    let mut others = Vec::new();
    let Some((prefix, secondary)) = split_variant_key(own) else {
        return others;
    };
    let Some(own_lines) = negotiated_lines(secondary) else {
        return others;
    };
    cache.offers.visit_others(&own_lines, |lines| {
        let Some(secondary) = with_negotiated_lines(secondary, lines) else {
            return;
        };
        let key = [prefix, &secondary].concat();
        let hash = cache.hash(&key);
        let in_memory = cache.hot.peek(hash);
        let is_stored = in_memory.is_some_and(|stored| stored.has_key(&key))
            || cache.disk().is_some_and(|disk| disk.contains(hash));
        if is_stored {
            others.push(key);
        }
    });
    others.reverse();
    others
}
