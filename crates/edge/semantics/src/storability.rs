//! The decision to store a response (RFC 9111 §3), and the values that a later hit needs.

use std::time::Duration;

use edgeward_types::Timestamp;
use http::header::{
    AGE, AUTHORIZATION, DATE, EXPIRES, Entry, HeaderMap, HeaderName, LAST_MODIFIED, SET_COOKIE,
    TRAILER,
};
use http::{Method, StatusCode};

use crate::age::{self, Exchange};
use crate::cache_control::{FieldScope, ResponseDirectives};
use crate::date::{date_field, format_http_date, parse_http_date};
use crate::freshness::{Lifetime, LifetimeSource, is_heuristically_cacheable};
use crate::hop_by_hop;
use crate::media_type::media_type;
use crate::no_vary_search::NoVarySearch;
use crate::rules::{Rules, SetCookie};
use crate::stored_policy::StoredPolicy;
use crate::validators::Validators;
use crate::vary::Vary;

/// The decision about a response of the origin.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// Store the response when its body is complete.
    Store(Box<Storable>),
    /// Forward the response and do not store it.
    Refuse(NotStoredReason),
}

/// A storable response with all values that a hit needs.
#[derive(Clone, Debug)]
pub struct Storable {
    /// The times and flags by which a hit decides if the response may be reused.
    pub policy: StoredPolicy,
    /// The request fields that select the response.
    pub vary: Vary,
    /// The query parameters on which the response does not depend.
    pub no_vary_search: Option<NoVarySearch>,
    /// The validators of the response.
    pub validators: Validators,
    /// The head to store. It has a `Date`. It has no hop-by-hop fields, no `Age`, no `Trailer`, and no fields that
    /// `no-cache="…"`, `private="…"` or [`SetCookie::Strip`] exclude. If the operator stated the lifetime, its dates
    /// are those of a response that was generated when it arrived, see [`set_dates`](Self::set_dates).
    pub head: HeaderMap,
    /// The field or the estimate from which the freshness lifetime was computed.
    pub source: LifetimeSource,
}

impl Storable {
    /// Gives the head of the origin's response, which the first client gets, the dates of the stored head. Later
    /// clients get the stored head.
    pub fn set_dates(&self, head: &mut HeaderMap) {
        if !self.source.begins_at_arrival() {
            return;
        }
        head.remove(AGE);
        for name in [DATE, EXPIRES] {
            head.remove(&name);
            for value in self.head.get_all(&name) {
                head.append(&name, value.clone());
            }
        }
    }
}

/// Why a response is not stored, in the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotStoredReason {
    /// The request method was not GET.
    Method,
    /// The response is an interim response (1xx).
    Interim,
    /// The status is 206. Partial responses are not combined yet.
    Partial,
    /// The status is 304, which updates a stored response but is never stored itself.
    NotModified,
    /// The status concerns one request and not the target.
    Status,
    /// The response is an error that the request caused. The rules exclude these errors, or the error has no
    /// explicit lifetime.
    RequestError,
    /// The request has `no-store`, and the rules obey it.
    RequestNoStore,
    /// The rules of the operator exclude responses with this status.
    Rule,
    /// The response has `no-store`.
    NoStore,
    /// The response has `must-understand` and a status that this cache does not know.
    NotUnderstood,
    /// The response has `private`.
    Private,
    /// The request had `Authorization` and no directive allows sharing the response.
    Authorization,
    /// The response sets a cookie.
    SetCookie,
    /// The response has `Vary: *`.
    VaryAny,
    /// The response is a stream of events, which has no end and whose next reader needs other events.
    EventStream,
    /// The status requires an explicit lifetime, but the response has no such lifetime.
    NoExplicitFreshness,
    /// The response was stale on arrival, has no validator, and must not be served stale: the cache could never use it.
    NeverReusable,
    /// The media type contradicts the extension of the path, see [`contradicted_extension`](crate::contradicted_extension).
    Extension,
}

impl NotStoredReason {
    /// Returns true if the request is the reason: the response to another request for the target may be stored.
    pub fn is_of_request(self) -> bool {
        matches!(
            self,
            Self::Method | Self::RequestError | Self::RequestNoStore | Self::Authorization
        )
    }

    /// All reasons, in the order of the checks.
    pub const ALL: [Self; 18] = [
        Self::Method,
        Self::Interim,
        Self::Partial,
        Self::NotModified,
        Self::Status,
        Self::RequestError,
        Self::RequestNoStore,
        Self::Rule,
        Self::NoStore,
        Self::NotUnderstood,
        Self::Private,
        Self::Authorization,
        Self::SetCookie,
        Self::VaryAny,
        Self::EventStream,
        Self::NoExplicitFreshness,
        Self::NeverReusable,
        Self::Extension,
    ];

    /// Returns the reason as a token for logs and `Cache-Status` details.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::Interim => "interim",
            Self::Partial => "partial",
            Self::NotModified => "not-modified",
            Self::Status => "status",
            Self::RequestError => "request-error",
            Self::RequestNoStore => "request-no-store",
            Self::Rule => "rule",
            Self::NoStore => "no-store",
            Self::NotUnderstood => "not-understood",
            Self::Private => "private",
            Self::Authorization => "authorization",
            Self::SetCookie => "set-cookie",
            Self::VaryAny => "vary-any",
            Self::EventStream => "event-stream",
            Self::NoExplicitFreshness => "no-explicit-freshness",
            Self::NeverReusable => "never-reusable",
            Self::Extension => "extension",
        }
    }
}

impl std::fmt::Display for NotStoredReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Decides from both heads if a response is stored.
///
/// `request` is the request as received from the client, because its `Authorization` counts. `exchange` has the times
/// at which the cache sent the request head and received the response head.
pub fn on_response(
    rules: &Rules,
    method: &Method,
    request: &HeaderMap,
    status: StatusCode,
    response: &HeaderMap,
    exchange: Exchange,
) -> Verdict {
    match decide(rules, method, request, status, response, exchange) {
        Ok(storable) => Verdict::Store(Box::new(storable)),
        Err(reason) => Verdict::Refuse(reason),
    }
}

/// Does the work of [`on_response`]. It returns a `Result`, so that it can use the `?` operator.
pub(crate) fn decide(
    rules: &Rules,
    method: &Method,
    request: &HeaderMap,
    status: StatusCode,
    response: &HeaderMap,
    exchange: Exchange,
) -> Result<Storable, NotStoredReason> {
    let directives = &rules.response_directives(status, response);
    let requested = rules.request_directives(request);
    // §3: "the request method is understood". A HEAD response has no body to store. It may freshen a stored GET
    // response, see `freshen::by_head`.
    if method != Method::GET {
        return Err(NotStoredReason::Method);
    }
    match status.as_u16() {
        100..200 => return Err(NotStoredReason::Interim),
        206 => return Err(NotStoredReason::Partial),
        304 => return Err(NotStoredReason::NotModified),
        code if concerns_one_request(code) => return Err(NotStoredReason::Status),
        // The origin may answer 404 in place of 403. It then concerns this client.
        400..500 if rules.check_authorization => return Err(NotStoredReason::Authorization),
        code if is_caused_by_request(code) && !rules.store_request_errors => {
            return Err(NotStoredReason::RequestError);
        }
        _ => {}
    }
    if requested.no_store {
        return Err(NotStoredReason::RequestNoStore);
    }
    if rules.excludes(status) {
        return Err(NotStoredReason::Rule);
    }
    if directives.must_understand {
        // §5.2.2.3: the origin adds `no-store` for caches that do not know `must-understand`. A cache that
        // knows the directive and the status ignores this `no-store`.
        if !is_understood(status) {
            return Err(NotStoredReason::NotUnderstood);
        }
    } else if directives.no_store {
        return Err(NotStoredReason::NoStore);
    }
    if directives.private == FieldScope::Whole {
        return Err(NotStoredReason::Private);
    }
    // §3.5: with one of these directives, the response is not for this user alone.
    let is_shared = rules.share_authorized
        || rules.check_authorization
        || directives.public
        || directives.s_maxage.is_some()
        || directives.must_revalidate;
    if request.contains_key(AUTHORIZATION) && !is_shared {
        return Err(NotStoredReason::Authorization);
    }
    let excluded = excluded_fields(rules, directives);
    if response.contains_key(SET_COOKIE)
        && rules.set_cookie == SetCookie::Refuse
        && !excluded.contains(&SET_COOKIE)
    {
        return Err(NotStoredReason::SetCookie);
    }
    let vary = Vary::from_headers(response);
    if vary == Vary::Any {
        return Err(NotStoredReason::VaryAny);
    }
    if is_event_stream(response) {
        return Err(NotStoredReason::EventStream);
    }
    let lifetime = Lifetime::compute(rules, status, directives, response, exchange.response_date);
    if !lifetime.source.is_explicit() && rules.excludes_unstated(status) {
        return Err(NotStoredReason::Rule);
    }
    // `store_request_errors` applies only to errors that the origin intends to be stored. An explicit lifetime
    // shows this intention.
    if is_caused_by_request(status.as_u16()) && !lifetime.source.is_explicit() {
        return Err(NotStoredReason::RequestError);
    }
    // §3, last item: `public`, an explicit lifetime, or a heuristically cacheable status.
    if !(directives.public || lifetime.source.is_explicit() || is_heuristically_cacheable(status)) {
        return Err(NotStoredReason::NoExplicitFreshness);
    }
    let head = stored_head(response, &excluded, lifetime.source, exchange.response_date);
    // Validators are read from the stored head, so that a removed validator is not used.
    let validators = Validators::from_headers(&head);
    let policy = policy_of(rules, response, directives, lifetime, &validators, exchange);
    let usable_until = policy
        .fresh_until
        .max(policy.stale_while_revalidate_until)
        .max(policy.stale_if_error_until);
    if !policy.has_validator && exchange.response_time >= usable_until {
        return Err(NotStoredReason::NeverReusable);
    }
    Ok(Storable {
        policy,
        vary,
        no_vary_search: NoVarySearch::from_headers(response),
        validators,
        head,
        source: lifetime.source,
    })
}

/// Returns true for server-sent events (HTML Standard, section 9.2). Most of these streams never end. A stored one
/// would repeat old events, and requests that share one would wait for each other.
fn is_event_stream(response: &HeaderMap) -> bool {
    media_type(response)
        .is_some_and(|media_type| media_type.eq_ignore_ascii_case(b"text/event-stream"))
}

/// Computes the freshness values of a response.
fn policy_of(
    rules: &Rules,
    response: &HeaderMap,
    directives: &ResponseDirectives,
    lifetime: Lifetime,
    validators: &Validators,
    exchange: Exchange,
) -> StoredPolicy {
    let initial_age_ms = match lifetime.source.begins_at_arrival() {
        true => 0,
        false => age::corrected_initial_age_ms(response, exchange),
    };
    let no_cache = directives.no_cache == FieldScope::Whole;
    // §4.2: fresh while lifetime > age. A response whose lifetime was over on arrival is never fresh, even if
    // the clock steps back before `response_time`.
    let until = |lifetime_ms: u64| match lifetime_ms.checked_sub(initial_age_ms) {
        Some(remaining_ms) if remaining_ms > 0 && !no_cache => Timestamp::from_millis(
            exchange
                .response_time
                .as_millis()
                .saturating_add(remaining_ms),
        ),
        _ => Timestamp::ZERO,
    };
    // The origin's directives precede the times of the operator. A response that was stale on arrival by the origin's
    // lifetime may be personal (see `StoredPolicy::may_answer_followers`), so the operator's times do not apply to it.
    let operator = rules
        .lifetimes
        .as_deref()
        .filter(|_| lifetime.source.begins_at_arrival() || lifetime.millis > initial_age_ms);
    let stale_while_revalidate = directives
        .stale_while_revalidate
        .or_else(|| operator?.stale_while_revalidate_secs);
    let stale_if_error = directives
        .stale_if_error
        .or_else(|| operator?.stale_if_error_secs);
    // The times of RFC 5861 §3 and §4 begin when the freshness ends. §4.2.4: a directive may forbid stale use.
    let until_stale = |extra_secs: Option<u32>| match extra_secs {
        Some(secs) if !directives.forbids_stale() => {
            until(lifetime.millis.saturating_add(u64::from(secs) * 1000))
        }
        _ => until(lifetime.millis),
    };
    StoredPolicy {
        response_time: exchange.response_time,
        initial_age_ms,
        lifetime_ms: lifetime.millis,
        fresh_until: until(lifetime.millis),
        stale_while_revalidate_until: until_stale(stale_while_revalidate),
        stale_if_error_until: match until_stale(stale_if_error) {
            // The explicit 0 also forbids stale use if the origin cannot be reached.
            until if stale_if_error == Some(0) => {
                Timestamp::from_millis(until.as_millis().saturating_sub(1))
            }
            until => until,
        },
        no_cache,
        forbids_stale: directives.forbids_stale(),
        has_validator: validators.can_validate(),
        stale_if_error_of_operator: directives.stale_if_error.is_none()
            && stale_if_error.is_some_and(|secs| secs > 0),
    }
}

/// Returns the fields that a shared cache does not store: the fields listed by `no-cache="…"` (§5.2.2.4) and
/// `private="…"` (§5.2.2.7), and cookies if they are stripped.
fn excluded_fields(rules: &Rules, directives: &ResponseDirectives) -> Vec<HeaderName> {
    let qualified = directives
        .no_cache
        .fields()
        .iter()
        .chain(directives.private.fields());
    let mut fields: Vec<HeaderName> = qualified.cloned().collect();
    if rules.set_cookie == SetCookie::Strip {
        fields.push(SET_COOKIE);
    }
    fields
}

/// Returns the head to store (§3.1).
fn stored_head(
    response: &HeaderMap,
    excluded: &[HeaderName],
    source: LifetimeSource,
    response_date: Timestamp,
) -> HeaderMap {
    let mut head = response.clone();
    hop_by_hop::strip_response(&mut head);
    // `initial_age_ms` already contains the `Age` of the origin, and each hit writes the current `Age`.
    head.remove(AGE);
    // RFC 9110 §6.6.2: the field announces trailers, which are not stored.
    head.remove(TRAILER);
    for name in excluded {
        head.remove(name);
    }
    // RFC 9110 §6.6.1: a recipient with a clock adds a missing `Date` to a cached message.
    if !head.contains_key(DATE) {
        head.insert(DATE, format_http_date(response_date));
    }
    if source.begins_at_arrival() {
        date_at_arrival(&mut head, response_date);
    }
    head
}

/// Changes a head, which has a `Date`, into the head of a response that was generated when it arrived.
///
/// A client computes the age from `Age` and `Date` (§4.2.3). With the old `Date`, `max-age=300` of a response that has
/// spent 400 s in another cache would make it stale at once for every client, for the whole lifetime that the operator
/// stated. `Expires` moves with `Date`, because the lifetime is the difference of both (§4.2.1).
///
/// A `Date` that is not later than `Last-Modified` stays. It shows that `Last-Modified` is a weak validator (RFC 9110
/// §8.8.2.2).
fn date_at_arrival(head: &mut HeaderMap, arrival: Timestamp) {
    if let Some(date) = date_field(head, &DATE) {
        let modified = date_field(head, &LAST_MODIFIED);
        let passed = Duration::from_secs(arrival.as_secs().saturating_sub(date.as_secs()));
        if passed.is_zero() || modified.is_some_and(|time| time.as_secs() >= date.as_secs()) {
            return;
        }
        if let Entry::Occupied(mut lines) = head.entry(EXPIRES) {
            for line in lines.iter_mut() {
                if let Some(expires) = parse_http_date(line.as_bytes()) {
                    *line = format_http_date(expires.after(passed));
                }
            }
        }
    }
    head.insert(DATE, format_http_date(arrival));
}

/// Returns true if this cache knows the caching rules of the status, for `must-understand`.
const fn is_understood(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200 | 203 | 204 | 300 | 301 | 302 | 303 | 307 | 308 | 404 | 405 | 410 | 414 | 451 | 501
    )
}

/// Returns true for statuses that concern this request's fields, connection or rate. They would be wrong for
/// the next request, even with an explicit lifetime.
///
/// 428, 429, 431 and 511 "MUST NOT be stored by a cache" (RFC 6585 §3 to §6). RFC 9111 §3.1 excludes the fields
/// of a 407. 408, 421, 425 and 426 concern the connection. 412, 416 and 417 are results of `If-…`, `Range` and
/// `Expect`, which are not in the key.
const fn concerns_one_request(code: u16) -> bool {
    matches!(
        code,
        407 | 408 | 412 | 416 | 417 | 421 | 425 | 426 | 428 | 429 | 431 | 511
    )
}

/// Returns true if a status concerns the request rather than its target. The next request for this target may
/// succeed.
///
/// These responses never show that a stored response is out of date.
pub const fn answers_the_request(status: StatusCode) -> bool {
    let code = status.as_u16();
    concerns_one_request(code) || is_caused_by_request(code)
}

/// Returns true for errors caused by request fields that are not in the cache key: a malformed field, a head,
/// target or body that is too large, a method or coding unknown to the origin. If they were stored, one client
/// could replace the page of all others. 431 is not in this list, because RFC 6585 §5 always forbids storing
/// it.
const fn is_caused_by_request(code: u16) -> bool {
    matches!(code, 400 | 413 | 414 | 501)
}
