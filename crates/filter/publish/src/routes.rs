//! Routes requests and makes responses, as docs/reference/filter-protocol.md describes for each path.

mod guava;
mod ids;
mod manifest;

use std::sync::Arc;

use bytes::Bytes;
use edgeward_filter::Digest;
use edgeward_httpd::{Handler, RequestBody};
use edgeward_semantics::Validators;
use edgeward_semantics::conditional::{self, Evaluation};
use edgeward_semantics::range::{self, RangeAnswer};
use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_RANGE,
    CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, LAST_MODIFIED, ORIGIN, RETRY_AFTER, VARY,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use tokio::sync::{mpsc, watch};

use crate::config::PublishConfig;
use crate::content::{Coding, Content, FileKind};
use crate::counters::Counters;
use crate::guava::GuavaFile;
use crate::origins::AllowedOrigins;
use crate::writer::{Command, PublishedState};

/// The handler of all requests, and the state that it reads.
#[derive(Clone)]
pub(crate) struct Routes {
    pub(crate) config: Arc<PublishConfig>,
    pub(crate) published: watch::Receiver<Arc<PublishedState>>,
    /// The newest filter in Guava's format, if the publisher builds such filters and has built one.
    pub(crate) guava: watch::Receiver<Option<Arc<GuavaFile>>>,
    pub(crate) commands: mpsc::Sender<Command>,
    /// A permit for each posted list that may be processed at the same time.
    pub(crate) post_permits: Arc<tokio::sync::Semaphore>,
    pub(crate) counters: Arc<Counters>,
    /// True once the publisher stops. Long polls then end.
    pub(crate) stopping: watch::Receiver<bool>,
}

impl Handler for Routes {
    type Body = Full<Bytes>;

    async fn handle(&self, request: Request<RequestBody>) -> Response<Full<Bytes>> {
        self.counters.requests.increment();
        let head_only = request.method() == Method::HEAD;
        // Only responses to requests that read get CORS fields.
        let reads = head_only || matches!(*request.method(), Method::GET | Method::OPTIONS);
        let origin_field = reads.then(|| request.headers().get(ORIGIN).cloned());
        let mut response = self.route(request).await;
        if let Some(origin) = origin_field {
            let origins = &self.config.allowed_origins;
            origins.add_headers(origin.as_ref(), response.headers_mut());
        }
        // 204 is also the response to a client that has the newest manifest.
        if matches!(
            response.status(),
            StatusCode::NOT_MODIFIED | StatusCode::NO_CONTENT
        ) {
            self.counters.not_modified.increment();
        }
        if head_only {
            // For HEAD, hyper sends the length of this body, but not the body.
            return response;
        }
        let length = hyper::body::Body::size_hint(response.body_mut()).lower();
        self.counters.bytes.add(length);
        response
    }
}

impl Routes {
    async fn route(&self, request: Request<RequestBody>) -> Response<Full<Bytes>> {
        // Paths are compared segment by segment: `/sets/resANY` is not below `/sets/res`.
        let segments: Vec<&str> = request.uri().path().split('/').collect();
        let ["", "sets", set, parts @ ..] = &segments[..] else {
            return self.no_such_set();
        };
        if *set != self.config.set {
            return self.no_such_set();
        }
        if *request.method() == Method::OPTIONS
            && self.config.allowed_origins.is_preflight(request.headers())
        {
            let mut headers = HeaderMap::with_capacity(8);
            AllowedOrigins::add_preflight_headers(&mut headers);
            return full_response(StatusCode::NO_CONTENT, headers, Bytes::new());
        }
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        match parts {
            [] if reads => {
                self.manifest(request.method(), request.uri(), request.headers())
                    .await
            }
            ["snapshot", name] if reads => self.file(
                FileKind::Snapshot,
                name,
                request.method(),
                request.headers(),
            ),
            ["delta", name] if reads => {
                self.file(FileKind::Delta, name, request.method(), request.headers())
            }
            ["guava"] if reads => self.guava(request.method(), request.headers()),
            ["ids"] if request.method() == Method::POST => self.add(request).await,
            ["removed"] if request.method() == Method::POST => self.remove(request).await,
            ["ids" | "removed"] => method_not_allowed("POST"),
            [] | ["snapshot" | "delta", _] | ["guava"] => method_not_allowed("GET, HEAD"),
            _ => refuse(
                StatusCode::NOT_FOUND,
                "not found; the paths of this set are /snapshot/SHA256, /delta/SHA256, /guava, /ids and /removed",
            ),
        }
    }

    fn no_such_set(&self) -> Response<Full<Bytes>> {
        let text = format!("not found; this publisher serves /sets/{}", self.config.set);
        refuse(StatusCode::NOT_FOUND, &text)
    }

    /// Returns a snapshot or delta by its digest.
    fn file(
        &self,
        kind: FileKind,
        name: &str,
        method: &Method,
        headers: &HeaderMap,
    ) -> Response<Full<Bytes>> {
        let file = name.parse::<Digest>().ok().and_then(|digest| {
            let published = self.published.borrow();
            published.files.get(&digest).cloned()
        });
        let Some(file) = file.filter(|file| file.kind == kind) else {
            // This response is not cacheable, because the file may be published a moment later.
            return refuse(
                StatusCode::NOT_FOUND,
                "no such file, or superseded; the manifest lists the current files",
            );
        };
        match kind {
            FileKind::Snapshot => self.counters.snapshots.increment(),
            FileKind::Delta => self.counters.deltas.increment(),
        }
        content_response(
            &file.content,
            method,
            headers,
            ContentHeaders::immutable(OCTETS),
        )
    }
}

/// The header fields that describe a content.
struct ContentHeaders {
    media_type: HeaderValue,
    cache_control: HeaderValue,
    modified: Option<HeaderValue>,
}

impl ContentHeaders {
    fn immutable(media_type: HeaderValue) -> Self {
        Self {
            media_type,
            cache_control: IMMUTABLE,
            modified: None,
        }
    }
}

/// Returns the response for a content, in a content coding that the client accepts. The response is 304, 206 or 416 if
/// the client's conditions or range require this.
fn content_response(
    content: &Content,
    method: &Method,
    request: &HeaderMap,
    content_headers: ContentHeaders,
) -> Response<Full<Bytes>> {
    let accepted = request
        .get(ACCEPT_ENCODING)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let (coding, bytes) = content.select(accepted);
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(ETAG, content.etag(coding));
    headers.insert(CACHE_CONTROL, content_headers.cache_control);
    headers.insert(CONTENT_TYPE, content_headers.media_type);
    if let Some(modified) = content_headers.modified {
        headers.insert(LAST_MODIFIED, modified);
    }
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if content.varies() {
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    }
    if let (Some(name), true) = (coding.name(), coding != Coding::Identity) {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(name));
    }
    let validators = Validators::from_headers(&headers);
    if conditional::is_conditional(request)
        && conditional::evaluate(method, request, StatusCode::OK, &validators)
            == Evaluation::NotModified
    {
        return full_response(
            StatusCode::NOT_MODIFIED,
            conditional::not_modified_head(&headers),
            Bytes::new(),
        );
    }
    let length = bytes.len() as u64;
    match range::decide(method, request, StatusCode::OK, &validators, length) {
        // Clients of a filter request one range. RFC 9110 §14.2 lets a server ignore several ranges.
        RangeAnswer::Full | RangeAnswer::Several(_) => {
            full_response(StatusCode::OK, headers, bytes)
        }
        RangeAnswer::Partial(part) => {
            headers.insert(CONTENT_RANGE, part.content_range(length));
            let index =
                |offset: u64| usize::try_from(offset).expect("a range lies within its body");
            let bytes = bytes.slice(index(part.first)..=index(part.last));
            full_response(StatusCode::PARTIAL_CONTENT, headers, bytes)
        }
        RangeAnswer::Unsatisfiable => {
            headers.insert(CONTENT_RANGE, range::unsatisfied_content_range(length));
            full_response(StatusCode::RANGE_NOT_SATISFIABLE, headers, Bytes::new())
        }
    }
}

fn full_response(status: StatusCode, headers: HeaderMap, bytes: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(bytes));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Returns an error response with an explanation.
fn refuse(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut headers = HeaderMap::with_capacity(4);
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(CACHE_CONTROL, NO_STORE);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    full_response(status, headers, Bytes::from(format!("{text}\n")))
}

fn method_not_allowed(methods: &'static str) -> Response<Full<Bytes>> {
    let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, &format!("{methods} only"));
    let headers = response.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static(methods));
    response
}

const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");
/// Fresh for one year. `immutable` states that a client need not revalidate during this time (RFC 8246).
const IMMUTABLE: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
