//! Applies the rules of a request's site before the request is looked up.
//!
//! [`prepare`] finds the site and the settings, and changes the request as the rules demand. The cache key, the `Vary`
//! key and the forwarded request are made afterwards, so all of them are of the changed request.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use edgeward_semantics::dictionary::{AVAILABLE_DICTIONARY, DICTIONARY_ID, DictionaryOffer};
use edgeward_semantics::{PassReason, Route};
use edgeward_sites::{Admission, FixedAnswer, RateLimit, RequestParts, RequestView, Stated};
use http::header::{HOST, HeaderMap, HeaderValue};
use http::response::Parts;
use http::{Method, StatusCode};

use super::worker::Worker;
use super::{bucket, replace};
use crate::config::OriginAccepts;
use crate::exchange::canonical::{
    Canonicaliser, NotForwarded, RawHead, ask_for_identity, canonical, declared_length,
};
use crate::exchange::hop::INVALIDATE;
use crate::exchange::request_settings::{RequestSettings, SettingsCache};
use crate::exchange::{Client, ClientFacts, FieldEdit, Request, RequestError, keep_only};
use crate::origin::OriginBody;
use crate::rt::panics::lock;

/// A response by which a rule answers a request.
pub(crate) enum RuleAnswer {
    /// The rule denies the request with this status.
    Denied(StatusCode),
    /// The rule redirects the client.
    Redirect(StatusCode, HeaderValue),
    /// The rule answers with this response.
    Fixed(Arc<FixedAnswer>),
    /// The client has exceeded its rate and may send its next request after this time.
    RateLimited(Duration),
    /// The issuer of a certificate validates a name by HTTP-01, and gets this body.
    Challenge(Box<str>),
}

/// The reason why a request is neither looked up nor forwarded.
pub(crate) enum NotServed {
    Refused(RequestError),
    /// `Max-Forwards` was 0.
    FinalRecipient,
    Answered(RuleAnswer),
}

/// Makes the canonical request, applies the rules of its site, and counts the request against its rate limit.
pub(crate) fn prepare(
    worker: &Worker,
    client: &Client,
    head: RawHead,
) -> (Rc<Request>, Result<(), NotServed>) {
    let canonicaliser = &worker.shared.canonicaliser;
    if let Some(answer) = challenge_answer(worker, &head) {
        let (request, _) = canonical(canonicaliser, &client.facts(), head);
        let answer = RuleAnswer::Challenge(answer);
        return (request, Err(NotServed::Answered(answer)));
    }
    let (request, settled) =
        canonical_and_settled(canonicaliser, &worker.settings(), &client.facts(), head);
    count_node_request(worker, client, &settled);
    let limit = request
        .settings
        .as_ref()
        .and_then(|settings| settings.stated.rate_limit.value())
        // The node that has received the request from the client has counted it.
        .filter(|_| request.hop.is_none());
    let counters = &worker.counters;
    if let Err(NotServed::Refused(error)) = &settled
        && error.status == StatusCode::PAYLOAD_TOO_LARGE
    {
        counters.bodies_declared_too_large.increment();
    }
    let result = match (settled, limit) {
        (settled @ Err(NotServed::Answered(RuleAnswer::Denied(_))), _) => {
            counters.denied.increment();
            settled
        }
        (Ok(()) | Err(NotServed::Answered(_)), Some(limit))
            if let Admission::Refuse { wait } = rate(worker, &request, limit) =>
        {
            counters.rate_limited.increment();
            Err(NotServed::Answered(RuleAnswer::RateLimited(wait)))
        }
        (settled, _) => {
            match &settled {
                Err(NotServed::Answered(RuleAnswer::Fixed(_))) => counters.answered.increment(),
                Err(NotServed::Answered(_)) => counters.redirected.increment(),
                _ => {}
            }
            settled
        }
    };
    (request, result)
}

/// Counts a request to the listener for the other nodes of the fleet.
fn count_node_request(worker: &Worker, client: &Client, settled: &Result<(), NotServed>) {
    if !client.is_node {
        return;
    }
    let counters = &worker.counters;
    match settled {
        Err(NotServed::Refused(error)) if error.status == StatusCode::FORBIDDEN => {
            counters.fleet_unsigned.increment();
        }
        Err(NotServed::Refused(error)) if error.status == StatusCode::LOOP_DETECTED => {
            counters.fleet_loops.increment();
        }
        _ => counters.fleet_received.increment(),
    }
}

/// Returns the answer to an HTTP-01 challenge (RFC 8555 §8.3). Requests for it precede all rules: redirects to HTTPS,
/// denials, rate limits and hosts without a site. The issuer follows redirects, but may not get past them.
fn challenge_answer(worker: &Worker, head: &RawHead) -> Option<Box<str>> {
    let source = worker.config().certificates.as_ref()?;
    let token = head.uri.path().strip_prefix(CHALLENGE_PATH)?;
    match head.method {
        Method::GET | Method::HEAD => source.http_answer(token),
        _ => None,
    }
}

/// Makes the canonical request and applies the rules of its site, without any effect on other requests.
pub(crate) fn canonical_and_settled(
    canonicaliser: &Canonicaliser,
    settings: &SettingsCache,
    client: &ClientFacts<'_>,
    head: RawHead,
) -> (Rc<Request>, Result<(), NotServed>) {
    let (mut shared, checked) = canonical(canonicaliser, client, head);
    let request = Rc::get_mut(&mut shared).expect("the only reference");
    let result = match checked {
        Ok(()) => settle(settings, request).and_then(|()| check_length(request)),
        Err(NotForwarded::Refused(error)) => Err(NotServed::Refused(error)),
        Err(NotForwarded::FinalRecipient) => {
            // The site's rules for responses apply to this answer too.
            _ = settle(settings, request);
            Err(NotServed::FinalRecipient)
        }
    };
    (shared, result)
}

/// Refuses a request whose body is declared longer than its limit. [`Upload`](crate::origin::Upload) has the limit of
/// bodies without a declared length.
fn check_length(request: &Request) -> Result<(), NotServed> {
    match request.settings().request_body_bytes_max {
        Some(max) if declared_length(request).is_some_and(|length| length > max) => {
            Err(NotServed::Refused(RequestError::too_large()))
        }
        _ => Ok(()),
    }
}

/// Finds the settings of a request and changes the request as they demand. With an error, the request is answered at
/// once.
fn settle(cache: &SettingsCache, request: &mut Request) -> Result<(), NotServed> {
    let Some(site) = cache.site(request.authority().unwrap_or_default()) else {
        return Err(NotServed::Refused(RequestError::misdirected()));
    };
    if let Some(settings) = cache.of_site_without_rules(site)
        && settings.is_plain
        && settings.changes_no_request
    {
        request.origin = settings.origin;
        request.settings = Some(Rc::clone(settings));
        choose_coding(request, settings);
        return Ok(());
    }
    let settings = with_view(request, |view| cache.of_request(site, view));
    request.settings = Some(Rc::clone(&settings));
    choose_coding(request, &settings);
    let stated = &settings.stated;
    request.origin = settings.origin;
    if request.hop.is_some() && request.method == INVALIDATE {
        return Ok(()); // The node that sends it has applied the rules to the unsafe request of its client.
    }
    // The node that asks applies the changes that clients see.
    if !stated.response.is_empty() && request.hop.is_none() {
        request.response_fields = Some(with_view(request, |view| {
            let changes = stated.response.iter();
            changes
                .map(|(name, change)| (name.clone(), FieldEdit::of(change, view)))
                .collect()
        }));
    }
    if let Stated::On(status) = stated.deny {
        return Err(NotServed::Answered(RuleAnswer::Denied(status)));
    }
    if let Stated::On(redirect) = &stated.redirect {
        let location = with_view(request, |view| redirect.location.url(view));
        // The bytes of a URL are encoded, so the text is a value.
        let location = HeaderValue::try_from(location).unwrap_or(HeaderValue::from_static("/"));
        return Err(NotServed::Answered(RuleAnswer::Redirect(
            redirect.status,
            location,
        )));
    }
    if let Stated::On(answer) = &stated.answer {
        return Err(NotServed::Answered(RuleAnswer::Fixed(Arc::clone(answer))));
    }
    if let Stated::On(rewrite) = &stated.rewrite {
        let target = with_view(request, |view| rewrite.url(view));
        match http::uri::PathAndQuery::try_from(&*target) {
            Ok(_) if target.starts_with('/') => request.forwarded_target = Some(target.into()),
            // The text of the template is checked when the configuration is read, but not each variable.
            _ => return Err(NotServed::Refused(RequestError::bad_rewrite())),
        }
    }
    if stated.pass == Some(true) && request.route == Route::Lookup {
        request.route = Route::Pass(PassReason::Rule);
    }
    match settings.class(&request.headers) {
        Ok(class) => request.class = class,
        Err(_) if request.route == Route::Lookup => {
            request.route = Route::Pass(PassReason::Rule);
        }
        Err(_) => {}
    }
    shape_query(request, &settings);
    if let Some(bucket) = &settings.bucket {
        bucket::prepare(request, bucket, &settings).map_err(NotServed::Refused)?;
    }
    change_fields(request, &settings);
    replace::prepare(request, &settings);
    Ok(())
}

/// Asks the origin for a response without a coding, if the edge compresses the response and `origin_accepts` says so.
/// The settings of the request count, because a site may enable the compression.
fn choose_coding(request: &mut Request, settings: &RequestSettings) {
    let compression = &settings.compression;
    if compression.enabled
        && compression.origin_accepts == OriginAccepts::Identity
        && request.route == Route::Lookup
    {
        ask_for_identity(request);
    }
    if settings.makes_dictionaries {
        take_offer(request);
    }
}

/// Takes the offer of a dictionary out of the request. The origin does not get it, because otherwise it could answer
/// with a delta of its own, for this dictionary only.
fn take_offer(request: &mut Request) {
    let fields = &mut request.headers;
    if let Some(offer) = DictionaryOffer::from_headers(fields) {
        fields.remove(&AVAILABLE_DICTIONARY);
        fields.remove(&DICTIONARY_ID);
        request.dictionary = Some(Box::new(offer));
    }
}

/// Removes and sorts query parameters, for the key and the origin alike.
fn shape_query(request: &mut Request, settings: &RequestSettings) {
    if settings.query.is_neutral() {
        return;
    }
    let shaped = settings.query.apply(request.path_and_query());
    if *shaped != *request.path_and_query() {
        request.canonical_target = Some(shaped.into_owned().into());
    }
}

/// Changes the fields that the origin gets.
fn change_fields(request: &mut Request, settings: &RequestSettings) {
    let stated = &settings.stated;
    if !stated.changes_request_fields() {
        return;
    }
    let values: Vec<_> = with_view(request, |view| {
        let values = stated
            .request
            .iter()
            .map(|(name, change)| (name.clone(), FieldEdit::of(change, view)));
        values.collect()
    });
    // The node that asks has made all changes but that of the host.
    let is_of_node = request.hop.is_some();
    if let Stated::On(patterns) = &stated.request_only
        && !is_of_node
    {
        keep_only(patterns, &mut request.headers);
    }
    for (name, change) in &values {
        if *name == HOST {
            if let FieldEdit::Set(value) = change {
                request.forwarded_host = Some(value.clone());
            }
        } else if !is_of_node {
            change.apply(name, &mut request.headers);
        }
    }
    request.plain = false; // the fast path has checked the fields as received
}

/// Changes the origin's response as the rules demand, before the edge decides about storing it.
pub(crate) fn change_origin_response(
    request: &Request,
    (parts, body): (&mut Parts, &mut OriginBody),
    worker: &Worker,
) {
    change_origin_head(request, &mut parts.headers);
    let stated = &request.settings().stated;
    if let Some(replacements) = stated.replacements() {
        let replacer = with_view(request, |view| replacements.replacer(view));
        replace::change_response(stated, replacer, parts, body, worker);
    }
}

/// Changes the fields of an origin's response that has no body.
pub(crate) fn change_origin_head(request: &Request, headers: &mut HeaderMap) {
    let changes = &request.settings().stated.origin_response;
    if changes.is_empty() {
        return;
    }
    with_view(request, |view| {
        for (name, change) in changes.iter() {
            FieldEdit::of(change, view).apply(name, headers);
        }
    });
}

/// Calls a function with the parts of the request that rules compare.
pub(super) fn with_view<T>(request: &Request, call: impl FnOnce(&RequestView<'_>) -> T) -> T {
    let parts = RequestParts {
        method: &request.method,
        scheme: request.scheme,
        host: request.authority().unwrap_or_default(),
        target: request.path_and_query(),
        fields: &request.headers,
        client: request.client,
    };
    parts.view(call)
}

fn rate(worker: &Worker, request: &Request, limit: &RateLimit) -> Admission {
    let shared = &worker.shared;
    let bucket = limit.bucket(request.client, &request.headers, shared.cache.hash_seed);
    let keys = worker.config().limits.rate_limit_keys_per_address.get();
    let of_address = limit.of_address(request.client, keys, shared.cache.hash_seed);
    let has_key = limit.by.is_stated(&request.headers);
    let mut limiter = lock(&shared.rate_limiter);
    let by_limit = limiter.admit(limit, bucket, worker.now());
    match of_address {
        // A client can invent keys, so all keys of an address share a limit, too.
        Some((limit, bucket)) if has_key && by_limit == Admission::Admit => {
            limiter.admit(&limit, bucket, worker.now())
        }
        _ => by_limit,
    }
}

const CHALLENGE_PATH: &str = "/.well-known/acme-challenge/";
