//! Builds the responses to clients: from stored responses, from bodies that are arriving, and error responses.
//!
//! No response of the edge's own takes memory in proportion to its body without a charge. An error page is one
//! allocation that all responses share. The echo of a TRACE is charged to its client. The other texts are short.

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use edgeward_purge::Stamp;
use edgeward_semantics::conditional::{self, Evaluation};
use edgeward_semantics::range::RangeAnswer;
use edgeward_semantics::{CacheStatus, Validators};
use edgeward_sites::Page;
use http::header::{
    ACCEPT_RANGES, AGE, ALLOW, AUTHORIZATION, CACHE_CONTROL, CACHE_STATUS, CONNECTION,
    CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, COOKIE, ETAG,
    HeaderMap, HeaderName, HeaderValue, LAST_MODIFIED, LOCATION, RETRY_AFTER, TRAILER,
};
use http::{Method, Response, StatusCode, Version};
use http_body::Body as _;

use super::body::{EdgeBody, Source};
use super::coding_choice::{self, compression};
use super::open_observation::OpenObservation;
use super::parts::RangeSource;
use super::rules::RuleAnswer;
use super::sliced_body::SlicedBody;
use super::worker::Worker;
use super::{bucket, peer, range_reply};
use crate::cache::disk_body::DiskBody;
use crate::cache::key_parts::coding_of_key;
use crate::cache::stored::{Stored, StoredBody, StoredResponse};
use crate::config::OriginId;
use crate::config::watch::RequestedObject;
use crate::exchange::field_bytes::push_field;
use crate::exchange::hop::OBJECT;
use crate::exchange::pieces::PieceMemory;
use crate::exchange::request_settings::RequestSettings;
use crate::exchange::{Client, FieldEdit, Handling, InFlight, Request, RequestError};
use crate::observe::outcome::RequestOutcome;

/// The state needed to respond to one request. It is not part of [`Request`], because a fetch shares the request.
pub(crate) struct Reply {
    pub(crate) worker: Rc<Worker>,
    pub(crate) in_flight: InFlight,
    pub(super) observation: OpenObservation,
    /// The origin of the request.
    origin: OriginId,
    /// The settings of the request's site, if it is known.
    settings: Option<Rc<RequestSettings>>,
    /// The changes of the response's fields that rules demand.
    response_fields: Option<Rc<[(HeaderName, FieldEdit)]>>,
    /// True if the response has no body, because its request is a HEAD.
    is_head: bool,
    /// The newest purge when the response was fetched that the edge has stored or offers to its tiers. `None` for
    /// another response.
    pub(super) stamp: Option<Stamp>,
}

impl Reply {
    pub(super) fn new(worker: &Rc<Worker>, client: &Client, request: &Request) -> Self {
        Self {
            worker: Rc::clone(worker),
            in_flight: client.conn.begin_request(),
            observation: OpenObservation::begin(worker, request),
            origin: request.origin,
            settings: request.settings.clone(),
            response_fields: request.response_fields.clone(),
            is_head: request.method == Method::HEAD,
            stamp: None,
        }
    }

    /// Counts the outcome of the request, unless an outcome was counted.
    pub(super) fn count(&mut self, outcome: RequestOutcome) {
        self.observation.count(outcome, &self.worker.counters);
    }

    /// Responds with a stored response, or with the 304, 206 or 416 that the request's conditions and range select.
    /// If `cache_status` is `None`, `Cache-Status` reports a hit.
    pub(super) fn stored(
        self,
        request: &Request,
        stored: &Arc<Stored>,
        cache_status: Option<CacheStatus>,
    ) -> Response<EdgeBody> {
        self.stored_with(request, stored, cache_status, None)
    }

    /// Like [`stored`](Self::stored). `sliced` is the body if the response is in slices, and has exactly the
    /// [`needed_bytes`].
    pub(super) fn stored_with(
        mut self,
        request: &Request,
        stored: &Arc<Stored>,
        cache_status: Option<CacheStatus>,
        mut sliced: Option<Box<SlicedBody>>,
    ) -> Response<EdgeBody> {
        self.stamp = Some(stored.stamp());
        let response = stored.response();
        let now = self.worker.now();
        let mut headers = response.headers();
        headers.insert(AGE, HeaderValue::from(response.policy.age_secs(now)));
        let mut cache_status =
            cache_status.unwrap_or_else(|| CacheStatus::hit(response.policy.ttl_secs(now)));
        if stored.is_on_disk() && cache_status.detail.is_none() {
            // RFC 9211 §2.8: the detail names the tier.
            cache_status.detail = Some(Cow::Borrowed("disk"));
        }
        let name = &self.worker.config().name;
        headers.append(CACHE_STATUS, cache_status.to_header_value(name));
        let hash = self.worker.cache.hash(stored.key());
        self.set_object(|| stored.seen_object(hash));
        let memory = PieceMemory::Cached {
            key: hash, // the object whose body unsent pieces keep in memory
            body_bytes: response.body.len(),
        };
        let coding = coding_of_key(stored.key());
        if let Some(coding) = coding {
            self.worker.counters.encoded[coding].increment();
        }
        let config = compression(request);
        let ignores_range = coding.is_some()
            || (response.generation.is_some()
                && coding_choice::ignores_range(config, request, &headers));
        if let Some((status, headers, body)) = apply_conditions(
            request,
            response,
            &mut headers,
            memory,
            &mut sliced,
            ignores_range,
        ) {
            self.count_partial_hit(stored);
            return self.respond(request, status, headers, body, &cache_status);
        }
        let body = match &response.body {
            StoredBody::Memory(body) => Source::Whole(body.clone(), memory),
            StoredBody::Disk(_) if request.method == Method::HEAD => {
                self.count_partial_hit(stored);
                Source::Empty
            }
            StoredBody::Disk(object) => {
                let promotes = request.settings().placement.memory;
                let body = DiskBody::all(&self.worker.cache, hash, stored, object, promotes);
                Source::Disk(Box::new(body))
            }
            StoredBody::Slices(_) if request.method == Method::HEAD => Source::Empty,
            StoredBody::Slices(_) => Source::Slices(opened(sliced)),
        };
        self.respond(request, response.status, headers, body, &cache_status)
    }

    /// Sets the object of the request for the watcher, unless it is set. The response to a HEAD never shows how long a
    /// body of unknown length is.
    pub(super) fn set_object(&mut self, object: impl FnOnce() -> Option<RequestedObject>) {
        if self.worker.watch.is_some() && self.observation.object.is_none() {
            let is_head = self.is_head;
            self.observation.object = object().filter(|it| !(is_head && it.lacks_length()));
        }
    }

    /// Counts a hit on disk that does not read the whole body. Such a hit does not promote the body to memory.
    fn count_partial_hit(&self, stored: &Stored) {
        if stored.is_on_disk() {
            let cache = &self.worker.cache;
            let (hash, length) = (cache.hash(stored.key()), stored.response().body.len());
            cache.count_partial_hit(hash, length, stored.charge_bytes());
        }
    }

    /// Responds with a head and a body. The response to a HEAD has no body.
    pub(super) fn respond(
        mut self,
        request: &Request,
        status: StatusCode,
        mut headers: HeaderMap,
        source: Source,
        cache_status: &CacheStatus,
    ) -> Response<EdgeBody> {
        self.observation.set_response(status, Some(cache_status));
        if request.hop.is_some() {
            if let Some(fleet) = &self.worker.shared.fleet {
                let stamp = self.stamp;
                let stamp = stamp.map(|stamp| self.worker.cache.stated_stamp(stamp));
                let rate = peer::rate(&self.worker, request);
                headers.insert(OBJECT, fleet.note(request, cache_status, stamp, rate));
            }
            return self.finish(status, headers, source);
        }
        let (headers, source) = match self.error_page(status) {
            Some(page) => page_response(page, headers),
            None => (headers, source),
        };
        let mut response = self.finish(status, headers, source);
        if request.version == Version::HTTP_10 && response.body().size_hint().exact().is_none() {
            // RFC 9112 §9.3: HTTP/1.0 has no chunked coding, so the end of the connection ends this body. With HTTP/1.1
            // as the response's version, hyper would send keep-alive beside `Connection: close`.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
            *response.version_mut() = Version::HTTP_10;
        }
        response
    }

    /// Returns the page that replaces the body of an error response.
    fn error_page(&self, status: StatusCode) -> Option<&Arc<Page>> {
        let is_error = status.is_client_error() || status.is_server_error();
        let settings = self.settings.as_ref().filter(|_| is_error)?;
        settings.stated.error_pages.get(status)
    }

    /// Responds by a rule of the site.
    pub(super) fn answer(mut self, answer: RuleAnswer) -> Response<EdgeBody> {
        self.count(RequestOutcome::Rule);
        let mut headers = HeaderMap::with_capacity(8);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let own_text = |status: StatusCode| format!("{status}\n");
        let (status, detail, text) = match answer {
            RuleAnswer::Fixed(answer) => {
                let (headers, source) = match answer.status {
                    // RFC 9110 §8.6: this response has neither a body nor a length.
                    StatusCode::NO_CONTENT => (headers, Source::Empty),
                    _ => page_response(&answer.page, headers),
                };
                let handling = Handling::Refused("answer");
                return self.respond_own(answer.status, headers, source, &handling);
            }
            RuleAnswer::Denied(status) => (status, "deny", own_text(status)),
            RuleAnswer::Redirect(status, location) => {
                headers.insert(LOCATION, location);
                (status, "redirect", own_text(status))
            }
            RuleAnswer::Challenge(text) => (StatusCode::OK, "acme", text.into()),
            RuleAnswer::RateLimited(wait) => {
                // RFC 6585 §4. Seconds are rounded up, so that the next request is within the limit.
                let seconds = wait.as_millis().div_ceil(1000).max(1);
                let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
                headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
                let status = StatusCode::TOO_MANY_REQUESTS;
                (status, "rate-limit", own_text(status))
            }
        };
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        headers.insert(CONTENT_TYPE, plain);
        headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
        let handling = Handling::Refused(detail);
        self.respond_own(status, headers, short(text), &handling)
    }

    /// Responds to an OPTIONS or TRACE whose `Max-Forwards` is 0.
    pub(super) fn final_recipient(self, request: &Request) -> Response<EdgeBody> {
        let mut headers = HeaderMap::with_capacity(8);
        let body = if request.method == Method::TRACE {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("message/http"));
            echo(request)
        } else {
            headers.insert(ALLOW, HeaderValue::from_static(METHODS_ALLOWED));
            Bytes::new()
        };
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        let handling = Handling::Refused("max-forwards");
        // The echo is as long as the request's head.
        let source = Source::Whole(body, PieceMemory::Private);
        self.respond_own(StatusCode::OK, headers, source, &handling)
    }

    /// Responds to a request that the edge has carried out itself. `detail` is the detail of `Cache-Status`.
    pub(super) fn confirm(self, detail: &'static str, text: String) -> Response<EdgeBody> {
        let mut headers = HeaderMap::with_capacity(8);
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        headers.insert(CONTENT_TYPE, plain);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
        let handling = Handling::Refused(detail);
        self.respond_own(StatusCode::OK, headers, short(text), &handling)
    }

    /// Responds with an error that the edge generates.
    pub(super) fn refuse(mut self, error: &RequestError) -> Response<EdgeBody> {
        self.worker.counters.count_refusal(error.status);
        // A request that was forwarded before keeps the outcome that was counted then.
        self.count(error.outcome);
        let text = format!("{}: {}\n", error.status, error.text);
        let mut headers = HeaderMap::with_capacity(8);
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("text/plain; charset=utf-8"),
        );
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
        if error.status == StatusCode::METHOD_NOT_ALLOWED {
            let allowed = match error.handling {
                Handling::Refused(bucket::READ_ONLY) => bucket::METHODS_ALLOWED,
                _ => METHODS_ALLOWED,
            };
            headers.insert(ALLOW, HeaderValue::from_static(allowed));
        }
        if error.status == StatusCode::SERVICE_UNAVAILABLE {
            // RFC 9110 §10.2.3: within this time, each request that now waits for this origin is sent or refused.
            let origins = &self.worker.config().origins;
            let origin = origins.get(self.origin.index());
            let queue_timeout = origin.map(|origin| origin.queue_timeout);
            let wait = error.retry_after.or(queue_timeout).unwrap_or_default();
            let seconds = wait.as_millis().div_ceil(1000).max(1);
            let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if error.close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
            self.in_flight.conn().set_lingers();
        }
        self.respond_own(error.status, headers, short(text), &error.handling)
    }

    /// Responds with a head and a body that the edge generates. RFC 9211 §2 advises against `Cache-Status` on these
    /// responses. The edge sends it, so that an operator sees for each response where it comes from and why.
    fn respond_own(
        mut self,
        status: StatusCode,
        mut headers: HeaderMap,
        source: Source,
        handling: &Handling,
    ) -> Response<EdgeBody> {
        let name = &self.worker.config().name;
        let (value, cache_status) = match handling {
            Handling::Cache(status) => (status.to_header_value(name), Some(status)),
            // Without `hit` and `fwd`, because the cache had no part in the response.
            Handling::Refused(detail) => (generated(name, detail), None),
        };
        headers.insert(CACHE_STATUS, value);
        self.observation.set_response(status, cache_status);
        let (headers, source) = match self.error_page(status) {
            Some(page) => page_response(page, headers),
            None => (headers, source),
        };
        self.finish(status, headers, source)
    }

    /// Makes every response of the request path, for all protocols. The response to a HEAD has no body (RFC 9110
    /// §9.3.2). With a body, its DATA frames would be an error of HTTP/2.
    fn finish(
        self,
        status: StatusCode,
        mut headers: HeaderMap,
        source: Source,
    ) -> Response<EdgeBody> {
        let source = if self.is_head { Source::Empty } else { source };
        for (name, edit) in self.response_fields.iter().flat_map(|edits| edits.iter()) {
            edit.apply(name, &mut headers);
        }
        self.in_flight.conn().end_interims();
        let mut observation = self.observation.into_inner();
        if let Some(text) = &mut observation.seen_text {
            text.set_response(&headers);
        }
        let body = EdgeBody::new(source, self.worker, self.in_flight, observation);
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }
}

/// Returns the body of a text of the edge's own, which is short.
fn short(text: String) -> Source {
    Source::Whole(Bytes::from(text), PieceMemory::Uncounted)
}

/// Returns the fields and the body of an error page. `headers` are those of the response that the page replaces; the
/// fields that describe its body are removed.
fn page_response(page: &Page, mut headers: HeaderMap) -> (HeaderMap, Source) {
    for name in [
        CONTENT_ENCODING,
        CONTENT_LANGUAGE,
        CONTENT_RANGE,
        ETAG,
        LAST_MODIFIED,
        ACCEPT_RANGES,
        TRAILER,
    ] {
        headers.remove(name);
    }
    if let Ok(content_type) = HeaderValue::try_from(&*page.content_type) {
        headers.insert(CONTENT_TYPE, content_type);
    }
    headers.insert(CONTENT_LENGTH, HeaderValue::from(page.body.len()));
    // The configuration owns the page, so a response takes no memory for it.
    let source = Source::Whole(page.body.clone(), PieceMemory::Uncounted);
    (headers, source)
}

/// Returns the member of `Cache-Status` in a response that neither the cache nor the origin has made.
fn generated(name: &str, detail: &str) -> HeaderValue {
    HeaderValue::try_from(format!("{name}; detail={detail}"))
        .expect("the name was checked to be a token, and the detail is one")
}

/// Returns the body of the response to a TRACE: the request without fields that hold credentials (RFC 9110 §9.3.8).
fn echo(request: &Request) -> Bytes {
    let mut text = format!(
        "{} {} HTTP/1.1\r\n",
        request.method,
        request.path_and_query()
    )
    .into_bytes();
    for (name, value) in &request.headers {
        if *name != COOKIE && *name != AUTHORIZATION {
            push_field(&mut text, name, value.as_bytes());
        }
    }
    text.extend_from_slice(b"\r\n");
    Bytes::from(text)
}

/// The value of `Allow`: the standard methods that the edge forwards. TRACE is omitted even if the edge forwards it,
/// because attackers can use it to read the fields of requests.
const METHODS_ALLOWED: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// Returns the 304, 206 or 416 that answers the request's conditions and range. `None` if the whole response is sent.
fn apply_conditions(
    request: &Request,
    response: &StoredResponse,
    headers: &mut HeaderMap,
    memory: PieceMemory,
    sliced: &mut Option<Box<SlicedBody>>,
    ignores_range: bool,
) -> Option<(StatusCode, HeaderMap, Source)> {
    let conditional = conditional::is_conditional(&request.headers);
    if conditional && is_not_modified(request, response.status, headers) {
        let head = conditional::not_modified_head(headers);
        return Some((StatusCode::NOT_MODIFIED, head, Source::Empty));
    }
    if ignores_range {
        return None;
    }
    let (status, length) = (response.status, response.body.len());
    if sliced.is_some() && is_multipart(request, response, headers) {
        return None;
    }
    range_reply::select(
        request,
        status,
        headers,
        length,
        false,
        || match &response.body {
            StoredBody::Memory(body) => RangeSource::Memory(body.clone(), memory),
            StoredBody::Disk(object) => RangeSource::Disk(object.clone()),
            StoredBody::Slices(_) => RangeSource::Slices(opened(sliced.take())),
        },
    )
}

/// Returns the bytes of a stored body that answer the request, or `None` if the response needs no byte: for a HEAD, a
/// 304 and a 416.
pub(super) fn needed_bytes(request: &Request, response: &StoredResponse) -> Option<Range<u64>> {
    if request.method == Method::HEAD {
        return None;
    }
    let (status, length) = (response.status, response.body.len());
    let headers = response.headers();
    if conditional::is_conditional(&request.headers) && is_not_modified(request, status, &headers) {
        return None;
    }
    match range_reply::decide(request, status, &headers, length, false) {
        // Several ranges of a response in slices are answered with the whole.
        RangeAnswer::Full | RangeAnswer::Several(_) => Some(0..length),
        RangeAnswer::Partial(part) => Some(part.first..part.last + 1),
        RangeAnswer::Unsatisfiable => None,
    }
}

/// Returns true if the request is for several ranges of the response.
fn is_multipart(request: &Request, response: &StoredResponse, headers: &HeaderMap) -> bool {
    let (status, length) = (response.status, response.body.len());
    let answer = range_reply::decide(request, status, headers, length, false);
    matches!(answer, RangeAnswer::Several(_))
}

fn opened(sliced: Option<Box<SlicedBody>>) -> Box<SlicedBody> {
    sliced.expect("the caller has opened the slices that the response needs")
}

/// Returns true if the request's conditions require a 304 in place of a response with this status and these fields.
pub(super) fn is_not_modified(request: &Request, status: StatusCode, headers: &HeaderMap) -> bool {
    let validators = Validators::from_headers(headers);
    conditional::evaluate(&request.method, &request.headers, status, &validators)
        == Evaluation::NotModified
}
