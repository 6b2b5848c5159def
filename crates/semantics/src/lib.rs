//! HTTP caching for a shared cache as pure functions over heads and times.
//!
//! Nothing here reads a clock, a socket or a header twice. All the parsing is done
//! when a response arrives; what is left for a hit is [`StoredPolicy::reuse`], which
//! compares integers.
//!
//! The life of a request, in the order a driver calls it:
//!
//! 1. [`route()`]: may the cache look at this request at all, or must it pass?
//! 2. [`Authority`] and [`RequestTarget`] give the request its one canonical form, and [`hop_by_hop`] removes what was
//!    meant for the connection. [`Target::write_key`]: the primary key; [`VaryFields::write_key`] adds the
//!    secondary one if the resource varies.
//! 3. [`StoredPolicy::reuse`]: is the stored response [`Reuse::Fresh`], must it be
//!    revalidated, or must the request go to the origin?
//! 4. A hit: [`conditional::evaluate`] (304 or the whole?) and [`range::decide`]
//!    (which slice?), each only if the request carries such a field.
//! 5. A miss: [`hop_by_hop`] strips both heads, [`conditional::revalidation_request`]
//!    turns a request into a conditional one.
//! 6. The response: [`on_response`] says [`Verdict::Store`] with all a later hit needs,
//!    or [`Verdict::Refuse`] with the reason; a 304 goes to [`freshen::by_not_modified`].
//!    [`StoredPolicy::may_answer_waiting`]: may those who waited for it share it?
//! 7. An unsafe method went through: [`invalidation::targets`] lists what is no longer true.
//! 8. [`CacheStatus`] tells the client what happened (RFC 9211).
//!
//! What of the RFCs is followed, and each MUST that is not yet, is in
//! `docs/reference/http-caching.md`.
#![forbid(unsafe_code)]

mod age;
mod authority;
mod cache_control;
mod cache_key;
mod cache_status;
pub mod conditional;
mod date;
pub mod freshen;
mod freshness;
pub mod hop_by_hop;
pub mod invalidation;
mod list;
pub mod range;
pub mod request_fields;
mod request_target;
mod route;
mod rules;
mod storability;
mod stored_policy;
#[cfg(test)]
mod testing;
mod validators;
mod vary;

pub use age::Exchange;
pub use authority::{Authority, InvalidTarget};
pub use cache_control::{
    DELTA_SECONDS_MAX, FieldScope, MaxStale, RequestDirectives, ResponseDirectives,
};
pub use cache_key::Target;
pub use cache_status::{CacheStatus, Forward, Outcome};
pub use date::{format_http_date, parse_http_date};
pub use freshness::{Lifetime, LifetimeSource, is_heuristically_cacheable};
pub use request_target::{InvalidRequestTarget, RequestTarget};
pub use route::{PassReason, Route, route};
pub use rules::{ClientDirectives, Heuristic, Rules, SetCookie};
pub use storability::{Refusal, Storable, Verdict, answers_the_request, on_response};
pub use stored_policy::{Cause, Reuse, StoredPolicy};
pub use validators::{EntityTag, Validators};
pub use vary::{Vary, VaryFields};
