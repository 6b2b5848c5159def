//! HTTP caching for a shared cache as pure functions over heads and times.
//!
//! This crate reads no clock and no socket. A response head is parsed once, when the response arrives. A hit
//! then calls [`StoredPolicy::reuse`], which compares integers.
//!
//! A cache calls the functions in this order:
//!
//! 1. [`route()`] decides if the cache looks up a response for the request, or passes the request to the
//!    origin.
//! 2. [`RequestTarget`] validates the target of the request and returns its canonical path and query;
//!    [`hop_by_hop`] removes the fields of the connection. Scheme, [`Authority`], path and query form a
//!    [`Target`]. [`Target::write_key`] makes the primary key; [`VaryFields::write_key`] adds the secondary key
//!    if the resource varies. [`request_fields`] normalises the field values of this key and of the forwarded
//!    request.
//! 3. [`StoredPolicy::reuse`] decides if the stored response is [`Reuse::Fresh`], must be revalidated, or must
//!    be fetched again. A [`Cause`] states why the response is not fresh enough for this request.
//! 4. A hit: [`conditional::evaluate`] decides between 304 and the full response, and [`range::decide`] selects
//!    the bytes. The first is called only for requests with a condition (`If-…`), the second only for
//!    requests with `Range`.
//!    [`content_coding`] selects the representation if the cache compresses the response itself.
//! 5. No hit: the request is forwarded to the origin. If a stored response must be revalidated,
//!    [`conditional::revalidation_request`] makes the forwarded request conditional. [`hop_by_hop`] removes the
//!    fields of the connection from the origin's response.
//! 6. The response: [`on_response`] gets the times of the fetch in an [`Exchange`]. It returns
//!    [`Verdict::Store`] with the values that a later hit needs, or [`Verdict::Refuse`] with the reason. A 304
//!    goes to [`freshen::by_not_modified`]. [`StoredPolicy::may_answer_followers`] decides if followers may
//!    share the response. After a refusal, [`answers_the_request`] states if the status concerns only this
//!    request, not its target. Such a response does not show that a stored response is outdated.
//! 7. An unsafe method succeeded: [`invalidation::targets`] lists the keys to remove. [`on_post_response`] decides if
//!    the response to a POST answers later GETs.
//! 8. [`CacheStatus`] tells the client what the cache did (RFC 9211).
//!
//! `docs/reference/http-caching.md` lists the rules of the RFCs that are followed, and each MUST that is not
//! followed.
#![forbid(unsafe_code)]

mod age;
mod authority;
mod cache_control;
mod cache_key;
mod cache_status;
pub mod conditional;
pub mod content_coding;
mod content_range;
mod date;
pub mod dictionary;
mod early_hints;
mod extension;
mod forwarded;
pub mod freshen;
mod freshness;
pub mod hop_by_hop;
pub mod invalidation;
mod list;
mod media_type;
pub mod multipart;
pub mod negotiation;
mod no_vary_search;
mod post;
pub mod range;
pub mod request_fields;
mod request_target;
mod route;
mod rules;
mod sections;
pub mod slices;
mod storability;
mod stored_policy;
#[cfg(test)]
mod testing;
mod trace_context;
pub mod upgrade;
mod validators;
mod vary;

pub use age::Exchange;
pub use authority::{Authority, InvalidTarget};
pub use cache_control::{
    DELTA_SECONDS_MAX, FieldScope, MaxStale, RequestDirectives, ResponseDirectives,
    TARGETED_FIELDS, targeted_field,
};
pub use cache_key::Target;
pub use cache_status::{CacheStatus, Forward, Outcome};
pub use content_range::ContentRange;
pub use date::{format_http_date, parse_http_date};
pub use early_hints::keep_links;
pub use extension::contradicted_extension;
pub use forwarded::ForwardedClient;
pub use freshness::{Lifetime, LifetimeSource, is_heuristically_cacheable};
pub use no_vary_search::{IgnoredParameters, InvalidParameterName, NO_VARY_SEARCH, NoVarySearch};
pub use post::on_post_response;
pub use request_target::{InvalidRequestTarget, RequestTarget, encode_delimiters, has_delimiters};
pub use route::{PassReason, Route, route};
pub use rules::{ClientDirectives, Heuristic, Lifetimes, Rules, SetCookie, StatusLifetimes};
pub use storability::{NotStoredReason, Storable, Verdict, answers_the_request, on_response};
pub use stored_policy::{Cause, Reuse, StoredPolicy};
pub use trace_context::{TRACEPARENT, TRACESTATE, TraceParent};
pub use validators::{EntityTag, Validators};
pub use vary::{Vary, VaryFields};
