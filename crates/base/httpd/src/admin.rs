//! The admin pages: metrics, status, health, and settings that may change while the server runs.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use edgeward_types::hidden::visible_json;
use http::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue, WWW_AUTHENTICATE,
};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};

use crate::access::{Caller, Denied};
use crate::request_body::RequestBody;
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

    /// Decides if a client with this value of `Authorization` may send the request. The body is read only after this
    /// decision. The default allows everything.
    fn authorize(
        &self,
        method: &Method,
        path: &str,
        authorization: Option<&HeaderValue>,
    ) -> Result<Caller, Denied> {
        _ = (method, path, authorization);
        Ok(Caller::Anyone)
    }

    /// Returns true if `path` accepts POST. The default has no such pages.
    fn accepts_post(&self, path: &str) -> bool {
        _ = path;
        false
    }

    /// Carries out a POST that [`authorize`](Self::authorize) has allowed. Returns the status and a body in JSON.
    fn post(
        &self,
        path: &str,
        caller: &Caller,
        body: Bytes,
    ) -> impl Future<Output = (StatusCode, String)> + Send {
        _ = (path, caller, body);
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
        caller: &Caller,
        value: &str,
    ) -> impl Future<Output = Result<String, String>> + Send {
        _ = caller;
        let refused = format!("{path} cannot be changed to {value}\n");
        std::future::ready(Err(refused))
    }
}

/// Answers `/metrics`, `/status`, `/healthz`, `/` and the paths of settings.
///
/// GET returns a setting, and PUT changes it. The server may have no tokens, so only a client on the same machine may
/// change a setting. A web page cannot: a browser asks the server before a cross-origin PUT (Fetch, "CORS-preflight
/// request"), and the server refuses this question.
#[derive(Clone, Debug)]
pub struct AdminRoutes<P>(pub P);

impl<P: AdminPages> Handler for AdminRoutes<P> {
    async fn handle(&self, request: Request<RequestBody>) -> Response<Full<Bytes>> {
        let requested = requested_host(request.uri(), request.headers().get(HOST));
        if let Some(host) = requested.filter(|host| !self.0.is_own_host(host)) {
            let text = format!(
                "`{host}` is not a name of this admin server; use its address or localhost, or list the name in admin.hosts\n"
            );
            return respond(StatusCode::MISDIRECTED_REQUEST, TEXT, text);
        }
        let path = request.uri().path();
        let authorization = request.headers().get(AUTHORIZATION);
        let caller = match self.0.authorize(request.method(), path, authorization) {
            Ok(caller) => caller,
            Err(denied) => return deny(&denied),
        };
        if self.0.accepts_post(path) {
            return match *request.method() {
                Method::POST => self.post(request, &caller).await,
                _ => {
                    let text = "POST only\n".to_owned();
                    let mut response = respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, text);
                    let headers = response.headers_mut();
                    headers.insert(ALLOW, HeaderValue::from_static("POST"));
                    response
                }
            };
        }
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        if let Some(value) = self.0.setting(request.uri().path()) {
            return match *request.method() {
                Method::GET | Method::HEAD => respond(StatusCode::OK, TEXT, format!("{value}\n")),
                Method::PUT => self.change_setting(request, &caller).await,
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
    async fn post(&self, request: Request<RequestBody>, caller: &Caller) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let body = Limited::new(body, POST_BYTES_MAX).collect();
        let (code, text) = match tokio::time::timeout(POST_TIMEOUT, body).await {
            Ok(Ok(body)) => self.0.post(head.uri.path(), caller, body.to_bytes()).await,
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

    async fn change_setting(
        &self,
        request: Request<RequestBody>,
        caller: &Caller,
    ) -> Response<Full<Bytes>> {
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
        let changed = self.0.change_setting(head.uri.path(), caller, value.trim());
        match changed.await {
            Ok(text) => respond(StatusCode::OK, TEXT, text),
            Err(text) => respond(StatusCode::BAD_REQUEST, TEXT, text),
        }
    }
}

/// Returns the host that a request names, without port and brackets.
pub fn requested_host<'a>(target: &'a Uri, host: Option<&'a HeaderValue>) -> Option<&'a str> {
    let text = match target.authority() {
        Some(authority) => authority.as_str(),
        // A request without `Host` is accepted. Browsers always send `Host`, so this request does not come from
        // a browser and cannot be an attack by DNS rebinding.
        None => host?.to_str().unwrap_or("?"),
    };
    let host = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(host, _)| host),
        None => text.split_once(':').map_or(text, |(host, _)| host),
    };
    Some(host)
}

/// Returns the response to a request that is not allowed (RFC 6750 §3).
fn deny(denied: &Denied) -> Response<Full<Bytes>> {
    let (code, challenge) = match denied {
        Denied::NoToken => (StatusCode::UNAUTHORIZED, "Bearer"),
        Denied::UnknownToken => (StatusCode::UNAUTHORIZED, "Bearer error=\"invalid_token\""),
        Denied::MissingRole { .. } => {
            (StatusCode::FORBIDDEN, "Bearer error=\"insufficient_scope\"")
        }
    };
    // The text has no characters that JSON escapes: a name has letters, digits, `-`, `_` and `.`.
    let mut response = respond(code, JSON, format!("{{\"error\": \"{denied}\"}}\n"));
    let headers = response.headers_mut();
    headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    response
}

fn respond(code: StatusCode, media_type: &'static str, text: String) -> Response<Full<Bytes>> {
    // Statuses and errors contain texts that clients chose.
    let visible = match visible_json(&text) {
        Cow::Owned(visible) if media_type != METRICS => Some(visible),
        _ => None,
    };
    let text = visible.unwrap_or(text);
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
