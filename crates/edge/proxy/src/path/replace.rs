//! Replaces strings in the origin's responses as the rules of a site demand (`replace`), before they are stored.
//!
//! The edge requests complete bodies without a coding for this purpose. A body that arrives with a coding, or as a
//! part, stays as it is. A changed body has another length and other digests, so these fields are removed. Its entity
//! tag becomes weak: it is no longer that of the bytes, but a revalidation at the origin still works, because
//! `If-None-Match` compares weakly (RFC 9110 §13.1.2).
//!
//! A replacement may be much longer than its string. The output is therefore made in pieces of 128 KiB while the client
//! or the fill takes them, and the piece of the origin's body that waits meanwhile is charged to the cache.

use std::sync::Arc;

use edgeward_sites::{Replacer, Settings};
use http::StatusCode;
use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap,
    HeaderName, HeaderValue, IF_RANGE, RANGE,
};
use http::response::Parts;

use super::worker::Worker;
use crate::exchange::Request;
use crate::exchange::canonical::ask_for_identity;
use crate::exchange::request_settings::RequestSettings;
use crate::origin::OriginBody;

/// Changes a request so that the origin answers with a complete body without a coding.
pub(super) fn prepare(request: &mut Request, settings: &RequestSettings) {
    if !settings.stated.replaces_bodies() {
        return;
    }
    ask_for_identity(request);
    // RFC 9110 §14.2: a server may ignore `Range`.
    for name in [RANGE, IF_RANGE] {
        request.headers.remove(name);
    }
}

/// Replaces the strings in a response of the origin, in the fields and types that the settings state.
pub(super) fn change_response(
    stated: &Settings,
    replacer: Replacer,
    parts: &mut Parts,
    body: &mut OriginBody,
    worker: &Worker,
) {
    let counters = &worker.counters;
    // The fields of one response grow by at most this number of bytes.
    let mut space = FIELD_BYTES_MAX;
    for name in stated.replace_fields.iter().flat_map(|names| names.iter()) {
        replace_values(name, &mut parts.headers, |value| {
            let changed = replacer.replace_all(value, value.len() + space)?;
            space -= changed.len().saturating_sub(value.len());
            Some(changed)
        });
    }
    let content_type = parts.headers.get(CONTENT_TYPE);
    let is_replaced_type = match content_type {
        // A 304 seldom has the type of the stored response.
        None if parts.status == StatusCode::NOT_MODIFIED => stated.replaces_bodies(),
        _ => stated.replaces_type(content_type.map_or(b"", HeaderValue::as_bytes)),
    };
    if !is_replaced_type {
        return;
    }
    let has_coding = parts
        .headers
        .get(CONTENT_ENCODING)
        .is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"));
    if has_coding {
        return counters.bodies_kept_coded.increment();
    }
    if parts.status == StatusCode::PARTIAL_CONTENT || parts.headers.contains_key(CONTENT_RANGE) {
        return counters.bodies_kept_partial.increment();
    }
    for name in BODY_FIELDS {
        parts.headers.remove(name);
    }
    replace_values(&ETAG, &mut parts.headers, |tag| {
        let prefix: &[u8] = if tag.starts_with(b"W/") { b"" } else { b"W/" };
        Some([prefix, tag].concat())
    });
    if !http_body::Body::is_end_stream(body) {
        let hot = Arc::clone(&worker.cache.hot);
        body.set_replacer(replacer, move |bytes| hot.charge(bytes));
        counters.bodies_replaced.increment();
    }
}

/// Changes each line of a field. A line whose new value is invalid or too long stays.
fn replace_values(
    name: &HeaderName,
    headers: &mut HeaderMap,
    mut change: impl FnMut(&[u8]) -> Option<Vec<u8>>,
) {
    let http::header::Entry::Occupied(mut lines) = headers.entry(name) else {
        return;
    };
    for line in lines.iter_mut() {
        let changed = change(line.as_bytes()).map(|value| HeaderValue::from_bytes(&value));
        if let Some(Ok(value)) = changed {
            *line = value;
        }
    }
}

/// The most bytes by which the fields of one response grow: about as many as the fields of a long head have.
const FIELD_BYTES_MAX: usize = 64 << 10;

/// Fields that describe the bytes of a body: its length, its digests (RFC 9530), and its ranges.
const BODY_FIELDS: [HeaderName; 6] = [
    CONTENT_LENGTH,
    ACCEPT_RANGES,
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
];
