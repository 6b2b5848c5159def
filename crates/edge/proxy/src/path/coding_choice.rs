//! The codings that a request accepts, under the settings of its site.

use edgeward_semantics::Validators;
use edgeward_semantics::content_coding::{AcceptedCodings, Coding, CodingOrder, wants_plain_range};
use http::header::{CACHE_CONTROL, HeaderMap, RANGE};

use crate::config::CompressionConfig;
use crate::exchange::Request;
use crate::exchange::field_bytes::members;

/// Returns the settings of compression for a request.
pub(crate) fn compression(request: &Request) -> &CompressionConfig {
    &request.settings().compression
}

/// Returns the codings that the edge may apply for a request, the preferred one first.
pub(super) fn accepted_codings(config: &CompressionConfig, request: &Request) -> CodingOrder {
    accepted(config, request, &config.codings)
}

fn accepted(config: &CompressionConfig, request: &Request, codings: &[Coding]) -> CodingOrder {
    let is_no_transform = |member: &[u8]| member.eq_ignore_ascii_case(b"no-transform");
    // RFC 9111 §5.2.1.6. A plain request has no `Cache-Control`.
    let forbids = !request.plain && members(&request.headers, CACHE_CONTROL).any(is_no_transform);
    if !config.enabled || forbids {
        return CodingOrder::default();
    }
    let accepted = match &request.client_codings {
        Some(accepted) => *accepted,
        None => AcceptedCodings::from_headers(&request.headers),
    };
    accepted.order(codings)
}

/// Returns the codings with a dictionary that the edge may apply for a request: those of the codings that it applies
/// without one.
pub(super) fn accepted_dictionary_codings(request: &Request) -> CodingOrder {
    let config = compression(request);
    if !request.settings().makes_dictionaries {
        return CodingOrder::default();
    }
    let is_applied = |coding: &Coding| config.codings.contains(&coding.without_dictionary());
    let codings = Coding::WITH_DICTIONARY.into_iter().filter(is_applied);
    accepted(config, request, &codings.collect::<Vec<_>>())
}

/// Returns true if the range of a request is not applied to a response, because the client may have a part of the
/// response in a coding. `headers` is the head without a coding.
pub(super) fn ignores_range(
    config: &CompressionConfig,
    request: &Request,
    headers: &HeaderMap,
) -> bool {
    !request.plain
        && request.headers.contains_key(RANGE)
        && !accepted_codings(config, request).is_empty()
        && !wants_plain_range(
            &request.method,
            &request.headers,
            &Validators::from_headers(headers),
        )
}
