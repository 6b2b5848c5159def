//! Metrics, status and health, on an address and a thread of their own.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};

use crate::config::EdgeConfig;
use crate::places::Places;
use crate::worker::Shared;
use crate::{metrics, status};

/// The admin listener at work; dropping it stops it and joins its thread.
pub(crate) struct Admin {
    addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Takes the address, so that an edge whose admin address is taken does not start.
pub(crate) fn bind(addr: SocketAddr) -> io::Result<StdListener> {
    let listener = StdListener::bind(addr)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

impl Admin {
    pub(crate) fn start(listener: StdListener, shared: Arc<Shared>) -> io::Result<Self> {
        let addr = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::Builder::new()
            .name("edgeward-admin".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        _ = stopped => {}
                        () = accept(listener, shared) => {}
                    }
                });
            })?;
        Ok(Self {
            addr,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    pub(crate) const fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

async fn accept(listener: StdListener, shared: Arc<Shared>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "the admin listener cannot be watched");
            return;
        }
    };
    let places = Places::new(CONNECTIONS_MAX);
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "an admin connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let mut place = places.enter(from.ip());
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let requests = Notify::new();
            let service = service_fn(|request: Request<Incoming>| {
                requests.notify_one();
                let response = answer(&request, &shared);
                async { Ok::<_, Infallible>(response) }
            });
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            let mut served = std::pin::pin!(served);
            loop {
                tokio::select! {
                    served = served.as_mut() => {
                        if let Err(error) = served {
                            tracing::debug!(%from, %error, "an admin connection ended");
                        }
                        break;
                    }
                    () = requests.notified() => {}
                    () = tokio::time::sleep(RESPONSE_TIMEOUT) => {
                        tracing::debug!(%from, "an admin client took no response");
                        break;
                    }
                    () = place.displaced() => {
                        tracing::debug!(%from, "an admin connection made room for another");
                        break;
                    }
                }
            }
        });
    }
}

fn answer(request: &Request<Incoming>, shared: &Shared) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let asked_for = host_of(request);
    if let Some(host) = asked_for.filter(|host| !is_our_name(host, &shared.config)) {
        let text = format!(
            "`{host}` is not a name of this admin server; ask by its address or localhost, or list the name in admin.hosts\n"
        );
        return plain(StatusCode::MISDIRECTED_REQUEST, TEXT, text);
    }
    let found = match path {
        "/metrics" => Some((metrics::CONTENT_TYPE, metrics::render(shared))),
        "/status" => Some((
            "application/json",
            format!("{:#}\n", status::render(shared)),
        )),
        "/healthz" => Some((TEXT, "ok\n".to_owned())),
        "/" => Some((TEXT, "/metrics\n/status\n/healthz\n".to_owned())),
        _ => None,
    };
    let (code, media_type, text) = match found {
        None => {
            let text = format!("no {path} here; there are /metrics, /status and /healthz\n");
            (StatusCode::NOT_FOUND, TEXT, text)
        }
        Some(_) if !matches!(*request.method(), Method::GET | Method::HEAD) => {
            let text = "GET and HEAD only\n".to_owned();
            (StatusCode::METHOD_NOT_ALLOWED, TEXT, text)
        }
        Some((media_type, text)) => (StatusCode::OK, media_type, text),
    };
    plain(code, media_type, text)
}

/// The name in the request, without a port; an address loses its brackets.
fn host_of(request: &Request<Incoming>) -> Option<&str> {
    let text = match request.uri().authority() {
        Some(authority) => authority.as_str(),
        // Only programs leave it out, or write what is not text.
        None => request.headers().get(HOST)?.to_str().unwrap_or("?"),
    };
    let host = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(host, _)| host),
        None => text.split_once(':').map_or(text, |(host, _)| host),
    };
    Some(host)
}

/// Whether a request for `host` was meant for this server.
///
/// A web page can have its own name resolved to this address and then read what it is not meant to (DNS rebinding). Its
/// requests bear that name; addresses and `localhost` are not the page's to give.
fn is_our_name(host: &str, config: &EdgeConfig) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    host.parse::<IpAddr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || host.eq_ignore_ascii_case(&config.name)
        || config
            .admin_hosts
            .iter()
            .any(|name| host.eq_ignore_ascii_case(name))
}

fn plain(code: StatusCode, media_type: &'static str, text: String) -> Response<Full<Bytes>> {
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

/// Scrapers and people. One more replaces the connection that has waited longest.
const CONNECTIONS_MAX: usize = 32;

/// A scraper sends its request at once.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// From one request of a connection to the next or to its end. A client that sends requests and takes no responses
/// fills the socket, after which no request is read.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);
