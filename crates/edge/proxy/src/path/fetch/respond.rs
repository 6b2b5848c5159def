//! Responses from fetches that other requests may share.

use edgeward_semantics::{CacheStatus, conditional};
use http::header::HeaderMap;
use http::{Response, StatusCode};

use crate::cache::fill::{FillHead, FillReader};
use crate::exchange::Request;
use crate::path::body::{EdgeBody, Source};
use crate::path::coding_choice::{self, compression};
use crate::path::deliver::{self, Reply};
use crate::path::encoded;
use crate::path::parts::RangeSource;
use crate::path::range_reply;

/// Responds with the response of a fetch that other requests may share. If the request gets it in a coding, waits for
/// the end of the body.
pub(super) async fn respond_fill(
    reply: Reply,
    request: &Request,
    head: &FillHead,
    headers: HeaderMap,
    reader: FillReader,
    mut cache_status: CacheStatus,
) -> Response<EdgeBody> {
    let complete = match &head.encodable {
        Some(_) => encoded::complete_fill(&reply.worker, request, head, &headers, &reader).await,
        None => None,
    };
    let Some(complete) = complete else {
        return respond_shared(reply, request, head, headers, reader, cache_status);
    };
    drop(reader);
    cache_status.stored = head.stored;
    reply.stored(request, &complete, Some(cache_status))
}

/// Responds with the response of a fetch that other requests may share.
pub(super) fn respond_shared(
    mut reply: Reply,
    request: &Request,
    head: &FillHead,
    mut headers: HeaderMap,
    reader: FillReader,
    mut cache_status: CacheStatus,
) -> Response<EdgeBody> {
    report_stored(&mut cache_status, head);
    reply.stamp = Some(head.stamp);
    reply.set_object(|| head.object);
    cache_status.append_to(&mut headers, &reply.worker.config().name);
    let is_conditional = !request.plain && conditional::is_conditional(&request.headers);
    if is_conditional && deliver::is_not_modified(request, head.status, &headers) {
        let headers = conditional::not_modified_head(&headers);
        let code = StatusCode::NOT_MODIFIED;
        return reply.respond(request, code, headers, Source::Empty, &cache_status);
    }
    let ignores_range = head.encodable.is_some()
        && coding_choice::ignores_range(compression(request), request, &headers);
    let mut reader = Some(reader);
    let source = || RangeSource::Fill(reader.take().expect("called once"));
    if let Some(length) = head.length.filter(|_| !ignores_range)
        && let Some((status, headers, body)) =
            range_reply::select(request, head.status, &mut headers, length, true, source)
    {
        return reply.respond(request, status, headers, body, &cache_status);
    }
    let source = Source::Fill(reader.expect("no range was taken"), head.length);
    reply.respond(request, head.status, headers, source, &cache_status)
}

/// Reports whether a tier stores the response of a fetch. A body of unknown length is offered to memory at its end.
pub(super) fn report_stored(cache_status: &mut CacheStatus, head: &FillHead) {
    cache_status.stored = head.stored;
    if !head.stored {
        cache_status.detail = Some(match head.length {
            _ if !head.is_own => OTHER_OWNER.into(),
            Some(_) => NOT_ADMITTED.into(),
            None => "unknown-length".into(),
        });
    }
}

/// The detail of `Cache-Status` if another node of the fleet stores the response.
const OTHER_OWNER: &str = "other-owner";

/// The detail of `Cache-Status` if no tier stores the response: by the policy, its size, or because memory is used.
pub(super) const NOT_ADMITTED: &str = "not-admitted";
