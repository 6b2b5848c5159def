//! The admin pages: metrics, status, health, and settings that may change while the server runs.

use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue, WWW_AUTHENTICATE,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;

use crate::server::{Handler, LocalClient};

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

    /// Returns true if a client may send a POST to `path` with this value of `Authorization`, and `None` if there is no
    /// such page. The body is read only after this decision. The default has no pages for POST.
    fn may_post(&self, path: &str, authorization: Option<&HeaderValue>) -> Option<bool> {
        _ = (path, authorization);
        None
    }

    /// Carries out a POST that [`may_post`](Self::may_post) has allowed. Returns the status and a body in JSON.
    fn post(&self, path: &str, body: Bytes) -> impl Future<Output = (StatusCode, String)> + Send {
        _ = (path, body);
        std::future::ready((StatusCode::NOT_FOUND, "{}\n".to_owned()))
    }

    /// Returns the value of a setting that may change while the server runs, or `None` if `path` is not a setting.
    fn setting(&self, path: &str) -> Option<String> {
        _ = path;
        None
    }

    /// Changes a setting. Returns a message about the change, or the reason why the value is refused.
    fn change_setting(
        &self,
        path: &str,
        value: &str,
    ) -> impl Future<Output = Result<String, String>> + Send {
        let refused = format!("{path} cannot be changed to {value}\n");
        std::future::ready(Err(refused))
    }
}

/// Answers `/metrics`, `/status`, `/healthz`, `/` and the paths of settings.
///
/// GET returns a setting, and PUT changes it. The server has no authentication, so only a client on the same machine
/// may change a setting. A web page cannot: a browser asks the server before a cross-origin PUT (Fetch, "CORS-preflight
/// request"), and the server refuses this question.
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
        if request.method() == Method::POST {
            let authorization = request.headers().get(AUTHORIZATION);
            match self.0.may_post(request.uri().path(), authorization) {
                Some(true) => return self.post(request).await,
                Some(false) => {
                    let text = "{\"error\": \"the request needs `Authorization: Bearer` with the configured token\"}\n";
                    return respond(StatusCode::UNAUTHORIZED, JSON, text.to_owned());
                }
                None => {}
            }
        }
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        if let Some(value) = self.0.setting(request.uri().path()) {
            return match *request.method() {
                Method::GET | Method::HEAD => respond(StatusCode::OK, TEXT, format!("{value}\n")),
                Method::PUT => self.change_setting(request).await,
                _ => {
                    let text = "GET, HEAD and PUT only\n".to_owned();
                    let mut response = respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, text);
                    let allowed = HeaderValue::from_static("GET, HEAD, PUT");
                    response.headers_mut().insert(ALLOW, allowed);
                    response
                }
            };
        }
        let (code, media_type, text) = match request.uri().path() {
            "/metrics" | "/status" | "/healthz" | "/" if !reads => {
                let text = "GET and HEAD only\n".to_owned();
                (StatusCode::METHOD_NOT_ALLOWED, TEXT, text)
            }
            "/metrics" => (StatusCode::OK, METRICS, self.0.metrics()),
            "/status" => (StatusCode::OK, JSON, self.0.status()),
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

impl<P: AdminPages> AdminRoutes<P> {
    /// Reads the body of a POST within its limits, and carries the POST out.
    async fn post(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let body = Limited::new(body, POST_BYTES_MAX).collect();
        let (code, text) = match tokio::time::timeout(POST_TIMEOUT, body).await {
            Ok(Ok(body)) => self.0.post(head.uri.path(), body.to_bytes()).await,
            Ok(Err(_)) => {
                let text = "{\"error\": \"the body is incomplete, or larger than 1 MiB\"}\n";
                (StatusCode::PAYLOAD_TOO_LARGE, text.to_owned())
            }
            Err(_) => {
                let text = "{\"error\": \"the body did not arrive in time\"}\n";
                (StatusCode::REQUEST_TIMEOUT, text.to_owned())
            }
        };
        respond(code, JSON, text)
    }

    async fn change_setting(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let local = request.extensions().get::<LocalClient>();
        if !local.is_some_and(|local| local.0) {
            let text = "only a client on this machine may change a setting\n".to_owned();
            return respond(StatusCode::FORBIDDEN, TEXT, text);
        }
        let (head, body) = request.into_parts();
        let body = Limited::new(body, VALUE_BYTES_MAX).collect();
        let Ok(Ok(body)) = tokio::time::timeout(VALUE_TIMEOUT, body).await else {
            let text =
                format!("the value is incomplete or has more than {VALUE_BYTES_MAX} bytes\n");
            return respond(StatusCode::BAD_REQUEST, TEXT, text);
        };
        let body = body.to_bytes();
        let value = String::from_utf8_lossy(&body);
        match self.0.change_setting(head.uri.path(), value.trim()).await {
            Ok(text) => respond(StatusCode::OK, TEXT, text),
            Err(text) => respond(StatusCode::BAD_REQUEST, TEXT, text),
        }
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
    if code == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if code == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

/// The maximum length of the body of a POST.
const POST_BYTES_MAX: usize = 1 << 20;

/// The time in which the body of a POST must arrive.
const POST_TIMEOUT: Duration = Duration::from_secs(10);

const JSON: &str = "application/json";
/// The maximum length of a setting's value.
const VALUE_BYTES_MAX: usize = 1024;

/// The time in which a setting's value must arrive.
const VALUE_TIMEOUT: Duration = Duration::from_secs(5);

const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
