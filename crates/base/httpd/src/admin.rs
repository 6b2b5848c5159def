//! An admin server: a table of pages, and the checks of every request to one.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use edgeward_types::hidden::visible_json;
use http::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue, WWW_AUTHENTICATE,
};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};

use crate::access::{Access, Caller, Denied};
use crate::request_body::RequestBody;
use crate::route::{Call, Media, Route, Run};
use crate::server::{Handler, LocalClient};

/// The pages of an admin server.
pub trait AdminPages: Clone + Send + Sync + 'static {
    /// The pages, besides `/` and `/healthz`. A path has a row for each of its methods.
    const ROUTES: &'static [Route<Self>];

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

/// Answers requests for the pages of `P`, for `/healthz` and for the list of pages at `/`.
#[derive(Clone, Debug)]
pub struct AdminRoutes<P>(pub P);

impl<P: AdminPages> Handler for AdminRoutes<P> {
    async fn handle(&self, request: Request<RequestBody>) -> Response<Full<Bytes>> {
        let requested = requested_host(request.uri(), request.headers().get(HOST));
        if let Some(host) = requested.filter(|host| !self.0.is_own_host(host)) {
            let text = format!(
                "`{host}` is not a name of this admin server; use its address or localhost, or list the name in admin.hosts\n"
            );
            return respond(StatusCode::MISDIRECTED_REQUEST, Media::Text, text);
        }
        let path = request.uri().path();
        let authorization = request.headers().get(AUTHORIZATION);
        let access = Self::access(request.method(), path);
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
    ) -> Response<Full<Bytes>> {
        match run {
            Run::Show(media, show) => respond(StatusCode::OK, *media, show(&self.0)),
            Run::Compose(media, compose) => {
                respond(StatusCode::OK, *media, compose(self.0.clone()).await)
            }
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
fn refuse_method(methods: impl Iterator<Item = &'static str>) -> Response<Full<Bytes>> {
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
fn deny(denied: &Denied) -> Response<Full<Bytes>> {
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

fn respond(code: StatusCode, media: Media, text: String) -> Response<Full<Bytes>> {
    // Statuses and errors contain texts that clients chose.
    let visible = match visible_json(&text) {
        Cow::Owned(visible) if media != Media::Metrics => Some(visible),
        _ => None,
    };
    let text = visible.unwrap_or(text);
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media.name()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

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
