//! Dictionaries (RFC 9842): makes responses dictionaries, and answers requests with deltas by them.
//!
//! A response becomes a dictionary when a client gets it. The client that offers the dictionary later gets a delta if
//! one is stored. The first request for a delta is answered as if it had no offer, and so are the requests while the
//! delta is being made: a pair of versions that one client has costs nothing, and no request waits.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use edgeward_purge::Verdict;
use edgeward_semantics::content_coding::Coding;
use edgeward_semantics::dictionary::{
    self, DICTIONARY_BYTES_MAX, DictionaryTerms, USE_AS_DICTIONARY, automatic_pattern, terms_value,
};
use edgeward_sites::DictionaryScope;
use http::header::HeaderMap;

use super::coding_choice::accepted_dictionary_codings;
use super::worker::Worker;
use crate::cache::CacheKey;
use crate::cache::dictionaries::{DeltaRequest, Dictionary};
use crate::cache::encoders::{Digested, PlainBody};
use crate::cache::key_parts::primary_of;
use crate::cache::stored::{Stored, StoredBody};
use crate::exchange::Request;
use crate::observe::causes::OfferResult;

/// A delta that answers a request, if it is stored.
pub(super) struct Delta {
    pub(super) key: CacheKey,
    pub(super) coding: Coding,
    pub(super) dictionary: Arc<Dictionary>,
}

/// Adds the fields of dictionaries to a response that is about to be stored and that the edge may encode, also if the
/// client's request came by another node. A `Use-As-Dictionary` of the origin stays.
pub(super) fn mark(request: &Request, head: &mut HeaderMap) {
    let settings = request.settings();
    let Some(scope) = settings.stated.dictionary.value() else {
        return;
    };
    if !settings.makes_dictionaries || request.scheme != "https" {
        return;
    }
    dictionary::add_vary(head);
    if head.contains_key(&USE_AS_DICTIONARY) {
        return;
    }
    let pattern = match scope {
        DictionaryScope::Versions => automatic_pattern(request.path()).map(Cow::Owned),
        DictionaryScope::Pattern(pattern) => Some(Cow::Borrowed(&**pattern)),
    };
    if let Some(terms) = pattern.and_then(|pattern| terms_value(&pattern)) {
        head.insert(&USE_AS_DICTIONARY, terms);
    }
}

/// Clients use dictionaries over TLS only (§9.1): elsewhere the length of a delta would tell an observer about the
/// content of both.
fn is_secure(request: &Request) -> bool {
    request.scheme == "https" && request.hop.is_none()
}

fn origin_of(request: &Request) -> Box<str> {
    format!("https://{}", request.authority().unwrap_or_default()).into()
}

/// Makes a stored response that a client gets a dictionary, if it is marked as one. The body is copied by a thread that
/// compresses.
pub(super) fn learn(worker: &Rc<Worker>, request: &Request, stored: &Arc<Stored>) {
    if !request.settings().makes_dictionaries || !is_secure(request) {
        return;
    }
    let dictionaries = &worker.cache.dictionaries;
    let response = stored.response();
    let Some(generation) = response.generation else {
        return;
    };
    let length = response.body.len();
    if length > DICTIONARY_BYTES_MAX {
        return;
    }
    let now = worker.now();
    let Some(ticket) = dictionaries.note(generation, primary_of(stored.key()), length, now) else {
        return;
    };
    let origin = origin_of(request);
    let target = request.path_and_query();
    let terms = DictionaryTerms::from_headers(&response.headers(), &origin, target);
    let Some(terms) = terms else {
        return;
    };
    let body = match &response.body {
        StoredBody::Memory(body) => PlainBody::Memory(body.clone()),
        StoredBody::Disk(object) => PlainBody::Disk(object.clone()),
        StoredBody::Slices(_) => return,
    };
    // If too much is being compressed, a client that gets the response in another minute makes it a dictionary.
    let Some(pending) = worker.shared.encoders.digest(body, length) else {
        return;
    };
    let (worker, stored) = (Rc::clone(worker), Arc::clone(stored));
    let tasks = worker.fetch_tasks.clone();
    tasks.spawn(|member| async move {
        if let Ok(Some(Digested { hash, body, share })) = pending.await {
            let dictionary = Dictionary::new(&stored, generation, origin, terms, hash, body);
            let dictionaries = &worker.cache.dictionaries;
            dictionaries.insert(dictionary, ticket, worker.now());
            drop(share);
        }
        drop(member);
    });
}

/// Returns the delta by which a request may be answered. Counts the requests whose offer is not used.
pub(super) fn delta_for(worker: &Worker, request: &Request, stored: &Stored) -> Option<Delta> {
    let offer = request.dictionary.as_ref()?;
    let coding = accepted_dictionary_codings(request).first()?;
    let found = match &**offer {
        _ if !is_secure(request) => Err(OfferResult::Cleartext),
        Err(_) => Err(OfferResult::Malformed),
        Ok(offer) => {
            let dictionary = find(worker, request, &offer.hash).ok_or(OfferResult::Unknown);
            dictionary.and_then(|dictionary| {
                let head = sent_head(request, stored);
                offer.check(&dictionary.terms, request.path_and_query(), &head)?;
                Ok(dictionary::varies_by_dictionary(&head).then_some(dictionary))
            })
        }
    };
    match found {
        // The response was stored before its site made dictionaries: a cache between the edge and the client would give
        // the delta to clients with other dictionaries.
        Ok(None) => None,
        Ok(Some(dictionary)) => Some(Delta {
            key: CacheKey::of_delta(
                stored.key(),
                stored.response().generation?,
                coding,
                &dictionary.hash,
                worker.cache.hash_seed,
            ),
            coding,
            dictionary,
        }),
        Err(result) => {
            count(worker, result);
            None
        }
    }
}

/// Returns the head that the client gets, whose rules may change the origins that CORS allows.
fn sent_head(request: &Request, stored: &Stored) -> HeaderMap {
    let mut head = stored.response().headers();
    for (name, edit) in request
        .response_fields
        .iter()
        .flat_map(|edits| edits.iter())
    {
        edit.apply(name, &mut head);
    }
    head
}

/// Finds a dictionary of the request's origin that was not purged.
fn find(worker: &Worker, request: &Request, hash: &[u8; 32]) -> Option<Arc<Dictionary>> {
    let dictionaries = &worker.cache.dictionaries;
    let found = dictionaries.find(&origin_of(request), hash, worker.now())?;
    if worker.cache.verdict(found.primary(), &found.response) == Verdict::Hard {
        dictionaries.remove(&found);
        return None;
    }
    Some(found)
}

/// Returns true if the delta with this key, which is not stored, is to be made now.
pub(super) fn is_to_be_made(worker: &Worker, key: &CacheKey) -> bool {
    let request = worker.cache.dictionaries.request(key.hash);
    count(
        worker,
        match request {
            DeltaRequest::First => OfferResult::First,
            DeltaRequest::Begin | DeltaRequest::Later => OfferResult::Pending,
        },
    );
    request == DeltaRequest::Begin
}

pub(super) fn count(worker: &Worker, result: OfferResult) {
    worker.counters.dictionary_offers[result].increment();
}
