//! May a response be stored, and what will a hit need of it (RFC 9111 §3)?

use edgeward_types::Timestamp;
use http::header::{AGE, AUTHORIZATION, DATE, HeaderMap, HeaderName, SET_COOKIE};
use http::{Method, StatusCode};

use crate::age::{self, Exchange};
use crate::cache_control::{FieldScope, ResponseDirectives};
use crate::date::format_http_date;
use crate::freshness::{Lifetime, LifetimeSource, is_heuristically_cacheable};
use crate::hop_by_hop;
use crate::rules::{Rules, SetCookie};
use crate::stored_policy::StoredPolicy;
use crate::validators::Validators;
use crate::vary::Vary;

/// What to do with a response that came from the origin.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// Keep it, once its body is complete.
    Store(Box<Storable>),
    /// Pass it on and forget it.
    Refuse(Refusal),
}

/// A response that may be stored, and everything a hit needs, worked out once.
#[derive(Clone, Debug)]
pub struct Storable {
    /// The freshness as integers.
    pub policy: StoredPolicy,
    /// Which request fields select it.
    pub vary: Vary,
    /// What it can be validated with.
    pub validators: Validators,
    /// The head to keep: without hop-by-hop fields, `Age`, and the fields that
    /// `no-cache="…"`, `private="…"` or [`SetCookie::Strip`] take out; with a `Date`.
    pub head: HeaderMap,
    /// What the lifetime was taken from.
    pub source: LifetimeSource,
}

/// Why a response is not stored. The order is the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The request was not a GET.
    Method,
    /// An interim response (1xx).
    Interim,
    /// 206: parts are not combined yet.
    Partial,
    /// 304: it updates what is stored and is never stored itself.
    NotModified,
    /// A status that speaks about one request rather than about the target.
    Status,
    /// An error that the request caused, where the rules or a missing lifetime keep it out.
    RequestError,
    /// The request's `no-store`, where the rules obey it.
    RequestNoStore,
    /// `no-store`.
    NoStore,
    /// `must-understand` with a status whose rules are not known here.
    NotUnderstood,
    /// `private`.
    Private,
    /// The request had `Authorization` and nothing allows sharing the answer.
    Authorization,
    /// It sets a cookie.
    SetCookie,
    /// `Vary: *`.
    VaryAny,
    /// A status that needs explicit freshness, without any.
    NoExplicitFreshness,
    /// Stale on arrival and without a validator: it could answer nothing.
    NeverReusable,
}

impl Refusal {
    /// Every reason, in the order of the checks.
    pub const ALL: [Self; 15] = [
        Self::Method,
        Self::Interim,
        Self::Partial,
        Self::NotModified,
        Self::Status,
        Self::RequestError,
        Self::RequestNoStore,
        Self::NoStore,
        Self::NotUnderstood,
        Self::Private,
        Self::Authorization,
        Self::SetCookie,
        Self::VaryAny,
        Self::NoExplicitFreshness,
        Self::NeverReusable,
    ];

    /// The reason as logs and `Cache-Status` details write it. A token.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::Interim => "interim",
            Self::Partial => "partial",
            Self::NotModified => "not-modified",
            Self::Status => "status",
            Self::RequestError => "request-error",
            Self::RequestNoStore => "request-no-store",
            Self::NoStore => "no-store",
            Self::NotUnderstood => "not-understood",
            Self::Private => "private",
            Self::Authorization => "authorization",
            Self::SetCookie => "set-cookie",
            Self::VaryAny => "vary-any",
            Self::NoExplicitFreshness => "no-explicit-freshness",
            Self::NeverReusable => "never-reusable",
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Decides about a response by the heads of both sides.
///
/// `request` is the request as the client sent it: its `Authorization` counts.
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
        Err(refusal) => Verdict::Refuse(refusal),
    }
}

/// [`on_response`] with `?`.
pub(crate) fn decide(
    rules: &Rules,
    method: &Method,
    request: &HeaderMap,
    status: StatusCode,
    response: &HeaderMap,
    exchange: Exchange,
) -> Result<Storable, Refusal> {
    let directives = &ResponseDirectives::of(response);
    let asked = rules.request_directives(request);
    // §3: "the request method is understood". A HEAD response has no body to store; it
    // may freshen a stored GET, see `freshen::by_head`.
    if method != Method::GET {
        return Err(Refusal::Method);
    }
    match status.as_u16() {
        100..200 => return Err(Refusal::Interim),
        206 => return Err(Refusal::Partial),
        304 => return Err(Refusal::NotModified),
        code if speaks_of_one_request(code) => return Err(Refusal::Status),
        code if is_request_error(code) && !rules.store_request_errors => {
            return Err(Refusal::RequestError);
        }
        _ => {}
    }
    if asked.no_store {
        return Err(Refusal::RequestNoStore);
    }
    if directives.must_understand {
        // §5.2.2.3: the origin sends `no-store` beside it for caches that do not know the
        // directive; one that knows it and the status ignores that `no-store`.
        if !is_understood(status) {
            return Err(Refusal::NotUnderstood);
        }
    } else if directives.no_store {
        return Err(Refusal::NoStore);
    }
    if directives.private == FieldScope::Whole {
        return Err(Refusal::Private);
    }
    // §3.5: one of these three says that the answer is not for this user alone.
    if request.contains_key(AUTHORIZATION)
        && !(directives.public || directives.s_maxage.is_some() || directives.must_revalidate)
    {
        return Err(Refusal::Authorization);
    }
    let taken_out = fields_taken_out(rules, directives);
    if response.contains_key(SET_COOKIE)
        && rules.set_cookie == SetCookie::Refuse
        && !taken_out.contains(&SET_COOKIE)
    {
        return Err(Refusal::SetCookie);
    }
    let vary = Vary::of(response);
    if vary == Vary::Any {
        return Err(Refusal::VaryAny);
    }
    let lifetime = Lifetime::of(rules, status, directives, response, exchange.response_time);
    // The setting allows what the origin means to be shared, and only a stated lifetime says that.
    if is_request_error(status.as_u16()) && !lifetime.source.is_explicit() {
        return Err(Refusal::RequestError);
    }
    // §3, last item: `public`, something explicit, or a heuristically cacheable status.
    if !(directives.public || lifetime.source.is_explicit() || is_heuristically_cacheable(status)) {
        return Err(Refusal::NoExplicitFreshness);
    }
    let head = stored_head(response, &taken_out, exchange.response_time);
    // Of the head that is kept: a validator taken out of it must not be used.
    let validators = Validators::of(&head);
    let policy = policy_of(response, directives, lifetime, &validators, exchange);
    if !policy.has_validator && !policy.is_fresh(exchange.response_time) {
        return Err(Refusal::NeverReusable);
    }
    Ok(Storable {
        policy,
        vary,
        validators,
        head,
        source: lifetime.source,
    })
}

/// Freshness worked out from a head.
fn policy_of(
    response: &HeaderMap,
    directives: &ResponseDirectives,
    lifetime: Lifetime,
    validators: &Validators,
    exchange: Exchange,
) -> StoredPolicy {
    let initial_age_ms = age::corrected_initial_age_ms(response, exchange);
    let no_cache = directives.no_cache == FieldScope::Whole;
    // §4.2: fresh while lifetime > age. What came with its lifetime used up is not fresh
    // at any time, not even before `response_time` on a clock that stepped back.
    let until = |lifetime_ms: u64| match lifetime_ms.checked_sub(initial_age_ms) {
        Some(remaining_ms) if remaining_ms > 0 && !no_cache => Timestamp::from_millis(
            exchange
                .response_time
                .as_millis()
                .saturating_add(remaining_ms),
        ),
        _ => Timestamp::ZERO,
    };
    // RFC 5861 §3 and §4 count from the end of freshness. §4.2.4: not where staleness is forbidden.
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
        stale_while_revalidate_until: until_stale(directives.stale_while_revalidate),
        stale_if_error_until: until_stale(directives.stale_if_error),
        no_cache,
        forbids_stale: directives.forbids_stale(),
        has_validator: validators.can_validate(),
    }
}

/// Fields a shared cache keeps out of its copy so that it may reuse the rest: those named
/// by `no-cache="…"` (§5.2.2.4) and `private="…"` (§5.2.2.7), and cookies to be stripped.
fn fields_taken_out(rules: &Rules, directives: &ResponseDirectives) -> Vec<HeaderName> {
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

/// The head as it is kept (§3.1).
fn stored_head(
    response: &HeaderMap,
    taken_out: &[HeaderName],
    response_time: Timestamp,
) -> HeaderMap {
    let mut head = response.clone();
    hop_by_hop::strip_response(&mut head);
    // Worked into `initial_age_ms`; a hit writes its own.
    head.remove(AGE);
    for name in taken_out {
        head.remove(name);
    }
    // RFC 9110 §6.6.1: a recipient with a clock adds the missing `Date` to what it caches.
    if !head.contains_key(DATE) {
        head.insert(DATE, format_http_date(response_time));
    }
    head
}

/// Whether the caching rules of a status are known here, for `must-understand`.
const fn is_understood(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200 | 203 | 204 | 300 | 301 | 302 | 303 | 307 | 308 | 404 | 405 | 410 | 414 | 451 | 501
    )
}

/// Statuses that answer this request's own fields, connection or rate, and that would
/// therefore be wrong for the next request however fresh they claim to be.
///
/// 428, 429, 431 and 511: RFC 6585 §3 to §6, "MUST NOT be stored by a cache". 407:
/// RFC 9111 §3.1 keeps its fields out. 408, 421, 425, 426 concern the connection. 412, 416,
/// 417 answer `If-…`, `Range`, `Expect`, which are not in the key.
const fn speaks_of_one_request(code: u16) -> bool {
    matches!(
        code,
        407 | 408 | 412 | 416 | 417 | 421 | 425 | 426 | 428 | 429 | 431 | 511
    )
}

/// Whether a status answers the request rather than its target: the next request for the same target may succeed.
///
/// Such a response is never evidence that a stored response is out of date.
pub const fn answers_the_request(status: StatusCode) -> bool {
    let code = status.as_u16();
    speaks_of_one_request(code) || is_request_error(code)
}

/// Errors that a request causes by fields that are not in the cache key: a malformed field, a head, target or body that is too
/// large, a method or coding that the origin does not know. If they were stored, one client's request would replace the
/// page of all other clients. 431 is not in this list because RFC 6585 §5 forbids to store it in any case.
const fn is_request_error(code: u16) -> bool {
    matches!(code, 400 | 413 | 414 | 501)
}
