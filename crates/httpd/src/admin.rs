//! The admin pages: metrics, status and health.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;

use crate::server::Handler;

/// The pages of an admin server.
pub trait AdminPages: Clone + Send + Sync + 'static {
    /// Returns the metrics in the text format of Prometheus.
    fn metrics(&self) -> String;

    /// Returns the status as JSON.
    fn status(&self) -> String;

    /// Returns true if a request for `host` is meant for this server. `host` has no port and no brackets.
    /// The default accepts every host.
    fn is_own_host(&self, host: &str) -> bool {
        _ = host;
        true
    }
}

/// Answers `/metrics`, `/status`, `/healthz` and `/`.
#[derive(Clone, Debug)]
pub struct AdminRoutes<P>(pub P);

impl<P: AdminPages> Handler for AdminRoutes<P> {
    async fn handle(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let requested = host_of(&request);
        if let Some(host) = requested.filter(|host| !self.0.is_own_host(host)) {
            let text = format!(
                "`{host}` is not a name of this admin server; use its address or localhost, or list the name in admin.hosts\n"
            );
            return respond(StatusCode::MISDIRECTED_REQUEST, TEXT, text);
        }
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        let (code, media_type, text) = match request.uri().path() {
            "/metrics" | "/status" | "/healthz" | "/" if !reads => {
                let text = "GET and HEAD only\n".to_owned();
                (StatusCode::METHOD_NOT_ALLOWED, TEXT, text)
            }
            "/metrics" => (StatusCode::OK, METRICS, self.0.metrics()),
            "/status" => (StatusCode::OK, "application/json", self.0.status()),
            "/healthz" => (StatusCode::OK, TEXT, "ok\n".to_owned()),
            "/" => (
                StatusCode::OK,
                TEXT,
                "/metrics\n/status\n/healthz\n".to_owned(),
            ),
            path => {
                let text = format!("no {path} here; there are /metrics, /status and /healthz\n");
                (StatusCode::NOT_FOUND, TEXT, text)
            }
        };
        respond(code, media_type, text)
    }
}

/// Returns the host that the request names, without port and brackets.
fn host_of(request: &Request<Incoming>) -> Option<&str> {
    let text = match request.uri().authority() {
        Some(authority) => authority.as_str(),
        // A request without `Host` is accepted. Browsers always send `Host`, so this request does not come from
        // a browser and cannot be an attack by DNS rebinding.
        None => request.headers().get(HOST)?.to_str().unwrap_or("?"),
    };
    let host = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(host, _)| host),
        None => text.split_once(':').map_or(text, |(host, _)| host),
    };
    Some(host)
}

fn respond(code: StatusCode, media_type: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if code == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
