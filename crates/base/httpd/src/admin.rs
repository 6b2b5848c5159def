//! An admin server: a table of pages, and the checks of every request to one.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use edgeward_types::hidden::visible_json;
use http::header::{
    ACCEPT, ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST,
    HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY, VARY, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Either, Full, Limited};

use crate::access::{Access, Caller, Denied};
use crate::events::EventStream;
use crate::request_body::RequestBody;
use crate::route::{Call, File, Media, Route, Run};
use crate::server::{Handler, LocalClient};

/// The pages of an admin server.
pub trait AdminPages: Clone + Send + Sync + 'static {
    /// The pages, besides `/` and `/healthz`. A path has a row for each of its methods.
    const ROUTES: &'static [Route<Self>];

    /// The page at `/` for browsers. All other clients get the list of pages. Default: browsers get it, too.
    const HOME: Option<File> = None;

    /// Returns true if a request for `host` is meant for this server. `host` has no port and no brackets.
    /// The default accepts every host.
    fn is_own_host(&self, host: &str) -> bool {
        _ = host;
        true
    }

    /// Decides if a client with this value of `Authorization` may send a request to a page. The body is read only after
    /// this decision. The default allows everything.
    fn authorize(
        &self,
        access: Access,
        authorization: Option<&HeaderValue>,
    ) -> Result<Caller, Denied> {
        _ = (access, authorization);
        Ok(Caller::Anyone)
    }
}

/// The body of a response of an admin server.
pub type AdminBody = Either<Full<Bytes>, EventStream>;

/// Answers requests for the pages of `P`, for `/healthz` and for the list of pages at `/`.
#[derive(Clone, Debug)]
pub struct AdminRoutes<P>(pub P);

impl<P: AdminPages> Handler for AdminRoutes<P> {
    type Body = AdminBody;

    async fn handle(&self, request: Request<RequestBody>) -> Response<AdminBody> {
        let requested = requested_host(request.uri(), request.headers().get(HOST));
        if let Some(host) = requested.filter(|host| !self.0.is_own_host(host)) {
            let text = format!(
                "`{host}` is not a name of this admin server; use its address or localhost, or list the name in admin.hosts\n"
            );
            return respond(StatusCode::MISDIRECTED_REQUEST, Media::Text, text);
        }
        let (method, path) = (request.method(), request.uri().path());
        let headers = request.headers();
        if is_foreign(method, path, headers) {
            let text = "a page of another server may not use this admin server\n".to_owned();
            return respond(StatusCode::FORBIDDEN, Media::Text, text);
        }
        if let Some(home) = P::HOME.filter(|_| path == "/" && accepts_html(headers))
            && matches!(*method, Method::GET | Method::HEAD)
        {
            let mut response = send(home);
            let vary = HeaderValue::from_static("accept");
            response.headers_mut().insert(VARY, vary);
            return response;
        }
        let authorization = headers.get(AUTHORIZATION);
        let mut access = Self::access(method, path);
        if *method == Method::PUT
            && headers.contains_key(SEC_FETCH_SITE)
            && let Access::IfRequired(role) = access
        {
            access = Access::Always(role);
        }
        let caller = match self.0.authorize(access, authorization) {
            Ok(caller) => caller,
            Err(denied) => return deny(&denied),
        };
        let of_path = || Self::available(&self.0).filter(|route| route.path == path);
        match of_path().find(|route| route.has(request.method())) {
            Some(route) => self.run(&route.run, request, caller).await,
            None if of_path().next().is_some() => {
                refuse_method(of_path().flat_map(Route::methods).copied())
            }
            None => {
                let paths = Self::paths(&self.0).join(", ");
                let text = format!("no {path} here; there are {paths}\n");
                respond(StatusCode::NOT_FOUND, Media::Text, text)
            }
        }
    }
}

impl<P: AdminPages> AdminRoutes<P> {
    /// The pages that every admin server has.
    const OWN: &'static [Route<P>] = &[
        Route::show("/healthz", Media::Text, |_| "ok\n".to_owned()).open(),
        Route::show("/", Media::Text, |pages| {
            Self::paths(pages).join("\n") + "\n"
        })
        .open(),
    ];

    fn routes() -> impl Iterator<Item = &'static Route<P>> {
        P::ROUTES.iter().chain(Self::OWN)
    }

    /// Returns the rows of the pages that this server has.
    fn available(pages: &P) -> impl Iterator<Item = &'static Route<P>> {
        Self::routes().filter(|route| (route.is_available)(pages))
    }

    /// Returns the paths of the pages that this server has, without `/`.
    fn paths(pages: &P) -> Vec<&'static str> {
        let mut paths: Vec<_> = Self::available(pages).map(|route| route.path).collect();
        paths.dedup();
        paths.retain(|path| *path != "/");
        paths
    }

    /// Returns the token that a request needs. A method that the page does not have needs the token of the page's last
    /// row. An unknown page needs none.
    pub fn access(method: &Method, path: &str) -> Access {
        let of_path = || Self::routes().filter(|route| route.path == path);
        let route = of_path().find(|route| route.has(method));
        route
            .or_else(|| of_path().last())
            .map_or(Access::Open, |route| route.access)
    }

    async fn run(
        &self,
        run: &Run<P>,
        request: Request<RequestBody>,
        caller: Caller,
    ) -> Response<AdminBody> {
        match run {
            Run::Show(media, show) => respond(StatusCode::OK, *media, show(&self.0)),
            Run::Metrics(text, open_metrics) => {
                let is_open = accepts_open_metrics(request.headers());
                let open = is_open.then(|| open_metrics(&self.0)).flatten();
                let (media, text) = match open {
                    Some(text) => (Media::OpenMetrics, text),
                    None => (Media::Metrics, text(&self.0)),
                };
                let mut response = respond(StatusCode::OK, media, text);
                let vary = HeaderValue::from_static("accept");
                response.headers_mut().insert(VARY, vary);
                response
            }
            Run::Compose(media, compose) => {
                respond(StatusCode::OK, *media, compose(self.0.clone()).await)
            }
            Run::Send(file) => send(*file),
            Run::Follow(follow) => match follow(&self.0) {
                Some(stream) => with_headers(Media::Events, Either::Right(stream)),
                None => {
                    let text = "too many event streams are open\n".to_owned();
                    respond(StatusCode::SERVICE_UNAVAILABLE, Media::Text, text)
                }
            },
            Run::Post(post) => {
                let body = Limited::new(request.into_body(), POST_BYTES_MAX).collect();
                let (code, text) = match tokio::time::timeout(POST_TIMEOUT, body).await {
                    Ok(Ok(body)) => {
                        let body = body.to_bytes();
                        post(self.0.clone(), Call { caller, body }).await
                    }
                    Ok(Err(_)) => {
                        let text =
                            "{\"error\": \"the body is incomplete, or larger than 1 MiB\"}\n";
                        (StatusCode::PAYLOAD_TOO_LARGE, text.to_owned())
                    }
                    Err(_) => {
                        let text = "{\"error\": \"the body did not arrive in time\"}\n";
                        (StatusCode::REQUEST_TIMEOUT, text.to_owned())
                    }
                };
                respond(code, Media::Json, text)
            }
            Run::Change(change) => {
                let local = request.extensions().get::<LocalClient>();
                if !local.is_some_and(|local| local.0) {
                    let text = "only a client on this machine may change a setting\n".to_owned();
                    return respond(StatusCode::FORBIDDEN, Media::Text, text);
                }
                let body = Limited::new(request.into_body(), VALUE_BYTES_MAX).collect();
                let Ok(Ok(body)) = tokio::time::timeout(VALUE_TIMEOUT, body).await else {
                    let text = format!(
                        "the value is incomplete or has more than {VALUE_BYTES_MAX} bytes\n"
                    );
                    return respond(StatusCode::BAD_REQUEST, Media::Text, text);
                };
                let body = body.to_bytes();
                match change(self.0.clone(), Call { caller, body }).await {
                    Ok(text) => respond(StatusCode::OK, Media::Text, text),
                    Err(text) => respond(StatusCode::BAD_REQUEST, Media::Text, text),
                }
            }
        }
    }
}

/// Returns true if a client accepts version 1 of OpenMetrics. Prometheus lists it first, and other formats as
/// alternatives. A weight of 0 is not expected of a scraper, and counts as acceptance.
fn accepts_open_metrics(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT).into_iter();
    let mut ranges = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    ranges.any(|range| {
        let mut parts = range.split(';').map(str::trim);
        parts.next() == Some("application/openmetrics-text")
            && parts.any(|part| part == "version=1.0.0")
    })
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

/// Returns the response to a method that a page does not have.
fn refuse_method(methods: impl Iterator<Item = &'static str>) -> Response<AdminBody> {
    let methods: Vec<_> = methods.collect();
    let text = match &methods[..] {
        [all @ .., last] if !all.is_empty() => format!("{} and {last} only\n", all.join(", ")),
        _ => format!("{} only\n", methods.join(", ")),
    };
    let mut response = respond(StatusCode::METHOD_NOT_ALLOWED, Media::Text, text);
    let allowed = HeaderValue::from_str(&methods.join(", ")).expect("methods are tokens");
    response.headers_mut().insert(ALLOW, allowed);
    response
}

/// Returns the response to a request that is not allowed (RFC 6750 §3).
fn deny(denied: &Denied) -> Response<AdminBody> {
    let (code, challenge) = match denied {
        Denied::NoToken => (StatusCode::UNAUTHORIZED, "Bearer"),
        Denied::UnknownToken => (StatusCode::UNAUTHORIZED, "Bearer error=\"invalid_token\""),
        Denied::MissingRole { .. } => {
            (StatusCode::FORBIDDEN, "Bearer error=\"insufficient_scope\"")
        }
    };
    // The text has no characters that JSON escapes: a name has letters, digits, `-`, `_` and `.`.
    let mut response = respond(code, Media::Json, format!("{{\"error\": \"{denied}\"}}\n"));
    let headers = response.headers_mut();
    headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    response
}

fn respond(code: StatusCode, media: Media, text: String) -> Response<AdminBody> {
    // Statuses and errors contain texts that clients chose.
    let visible = match visible_json(&text) {
        Cow::Owned(visible) if !matches!(media, Media::Metrics | Media::OpenMetrics) => {
            Some(visible)
        }
        _ => None,
    };
    let text = visible.unwrap_or(text);
    let body = Either::Left(Full::new(Bytes::from(text)));
    let mut response = with_headers(media, body);
    *response.status_mut() = code;
    response
}

fn send(file: File) -> Response<AdminBody> {
    let body = Full::new(Bytes::from_static(file.bytes));
    with_headers(file.media, Either::Left(body))
}

/// Returns a response with the fields that all responses have. Browsers run no script of a response, except those of
/// the page at `/`, and show no response in a frame.
fn with_headers(media: Media, body: AdminBody) -> Response<AdminBody> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, media.name()),
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CROSS_ORIGIN_RESOURCE_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Returns true for a request that a page of another origin sends (Fetch Metadata Request Headers, §2.3), unless a user
/// follows a link to the page. Programs other than browsers do not send the fields.
fn is_foreign(method: &Method, path: &str, headers: &HeaderMap) -> bool {
    let site = headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes);
    let mode = headers.get(SEC_FETCH_MODE).map(HeaderValue::as_bytes);
    let follows_link = *method == Method::GET && path == "/" && mode == Some(b"navigate");
    !follows_link && !matches!(site, None | Some(b"same-origin" | b"none"))
}

/// Returns true for the request of a browser that opens a page.
fn accepts_html(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter();
    accepted
        .filter_map(|field| field.to_str().ok())
        .any(|field| field.contains("text/html"))
}

/// Scripts, styles and connections of the server itself only, and no script in a page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-resource-policy");

/// The maximum length of the body of a POST.
const POST_BYTES_MAX: usize = 1 << 20;

/// The time in which the body of a POST must arrive.
const POST_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum length of a setting's value.
const VALUE_BYTES_MAX: usize = 1024;

/// The time in which a setting's value must arrive.
const VALUE_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    /// Has `/extra` if the value is true.
    #[derive(Clone)]
    struct Pages(bool);

    impl AdminPages for Pages {
        const ROUTES: &'static [Route<Self>] = &[
            Route::show("/status", Media::Json, |_| "{}".to_owned()),
            Route::show("/extra", Media::Text, |_| String::new()).only_if(|pages| pages.0),
        ];
    }

    #[test]
    fn a_server_lists_the_pages_that_it_has() {
        let listed = |has_extra| AdminRoutes::paths(&Pages(has_extra));
        assert_eq!(listed(true), ["/status", "/extra", "/healthz"]);
        assert_eq!(listed(false), ["/status", "/healthz"]);
    }
}
