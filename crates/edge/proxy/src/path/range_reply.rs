//! Answers requests for ranges (RFC 9110 §14) from a complete stored body, or from a body that is arriving.

use std::hash::{BuildHasher as _, RandomState};

use edgeward_semantics::Validators;
use edgeward_semantics::conditional;
use edgeward_semantics::multipart::{self, Boundary};
use edgeward_semantics::range::{self, ByteRange, RangeAnswer};
use http::StatusCode;
use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderMap, HeaderValue, RANGE,
};

use super::body::Source;
use super::parts::{Parts, RangeSource, slice};
use crate::cache::disk_body::DiskBody;
use crate::exchange::Request;

/// Returns the 206 or 416 that answers the request, or `None` if the whole response is sent. `headers` are the fields
/// of the whole response, whose body has `length` bytes, and `is_arriving` is true for the body of a fill. `source` is
/// called for a 206 only.
pub(super) fn select(
    request: &Request,
    status: StatusCode,
    headers: &mut HeaderMap,
    length: u64,
    is_arriving: bool,
    source: impl FnOnce() -> RangeSource,
) -> Option<(StatusCode, HeaderMap, Source)> {
    match decide(request, status, headers, length, is_arriving) {
        RangeAnswer::Full => None,
        RangeAnswer::Partial(part) => {
            let mut head = std::mem::take(headers);
            head.insert(CONTENT_RANGE, part.content_range(length));
            head.insert(CONTENT_LENGTH, HeaderValue::from(part.length()));
            let body = part_of(source(), part);
            Some((StatusCode::PARTIAL_CONTENT, head, body))
        }
        RangeAnswer::Several(parts) => {
            let mut head = std::mem::take(headers);
            let boundary = random_boundary();
            let of_whole = head.insert(CONTENT_TYPE, multipart::content_type(boundary));
            let mut body = Parts::new(source());
            for (at, &part) in parts.iter().enumerate() {
                let of_whole = of_whole.as_ref();
                let part_head = multipart::part_head(boundary, at == 0, of_whole, part, length);
                body.push_text(part_head);
                body.push_range(part);
            }
            body.push_text(multipart::end(boundary));
            head.insert(CONTENT_LENGTH, HeaderValue::from(body.remaining_bytes()));
            let body = Source::Parts(Box::new(body));
            Some((StatusCode::PARTIAL_CONTENT, head, body))
        }
        RangeAnswer::Unsatisfiable => {
            let mut head = conditional::not_modified_head(headers);
            head.insert(CONTENT_RANGE, range::unsatisfied_content_range(length));
            head.insert(CONTENT_LENGTH, HeaderValue::from(0));
            Some((StatusCode::RANGE_NOT_SATISFIABLE, head, Source::Empty))
        }
    }
}

/// Decides which ranges of a response answer the request. If the body is arriving, several ranges must ascend, because
/// a fill may release bytes.
pub(super) fn decide(
    request: &Request,
    status: StatusCode,
    headers: &HeaderMap,
    length: u64,
    is_arriving: bool,
) -> RangeAnswer {
    if request.plain || !request.headers.contains_key(RANGE) {
        return RangeAnswer::Full;
    }
    let validators = Validators::from_headers(headers);
    let (method, fields) = (&request.method, &request.headers);
    match range::decide(method, fields, status, &validators, length) {
        // A client might decode the whole multipart body, although only the bytes of the parts are encoded.
        RangeAnswer::Several(_) if headers.contains_key(CONTENT_ENCODING) => RangeAnswer::Full,
        RangeAnswer::Several(parts)
            if is_arriving && !parts.is_sorted_by_key(|part| part.first) =>
        {
            RangeAnswer::Full
        }
        answer => answer,
    }
}

/// Returns the body that has only this range.
fn part_of(source: RangeSource, part: ByteRange) -> Source {
    match source {
        RangeSource::Memory(body, memory) => Source::Whole(slice(&body, part), memory),
        // The body was opened for exactly this range.
        RangeSource::Slices(body) => Source::Slices(body),
        RangeSource::Disk(object) => {
            let range = part.first..part.last + 1;
            Source::Disk(Box::new(DiskBody::part(object, range)))
        }
        RangeSource::Fill(reader) => {
            reader.set_range(part.first..part.last + 1);
            Source::Fill(reader, Some(part.length()))
        }
    }
}

/// Returns a boundary that the author of a body cannot predict. Each `RandomState` has other keys.
fn random_boundary() -> Boundary {
    let half = |number: u8| u128::from(RandomState::new().hash_one(number));
    Boundary(half(0) << 64 | half(1))
}
