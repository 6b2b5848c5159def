//! Metrics, status and health of an end, on an address of their own.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::places::Places;
use crate::status::EndStatus;
use crate::{SetupError, metrics};

/// Where the figures come from, each time they are asked for.
pub type Report = Arc<dyn Fn() -> EndStatus + Send + Sync>;

/// The listener for operators and their programs; dropping it ends it.
pub struct Admin {
    addr: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Admin {
    /// Listens from now on, on the runtime this is called in.
    pub async fn bind(addr: SocketAddr, report: Report) -> Result<Self, SetupError> {
        let listen = |source| SetupError::Listen { addr, source };
        let listener = TcpListener::bind(addr).await.map_err(listen)?;
        let addr = listener.local_addr().map_err(listen)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, report));
        Ok(Self {
            addr,
            _tasks: tasks,
        })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").field("addr", &self.addr).finish()
    }
}

async fn accept(listener: TcpListener, report: Report) {
    let places = Places::new(CONNECTIONS_MAX);
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let (tcp, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "an admin connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let mut place = places.enter(from.ip());
        let report = Arc::clone(&report);
        connections.spawn(async move {
            let requests = Notify::new();
            let service = service_fn(|request: Request<Incoming>| {
                requests.notify_one();
                let response = answer(&request, &report);
                async { Ok::<_, Infallible>(response) }
            });
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(tcp), service);
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

fn answer(request: &Request<Incoming>, report: &Report) -> Response<Full<Bytes>> {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let (status, media_type, text) = match (reads, request.uri().path()) {
        (false, _) => (
            StatusCode::METHOD_NOT_ALLOWED,
            TEXT,
            "GET and HEAD only\n".to_owned(),
        ),
        (_, "/metrics") => (StatusCode::OK, METRICS, metrics::render(&report())),
        (_, "/status") => (
            StatusCode::OK,
            "application/json",
            format!("{:#}\n", report().to_json()),
        ),
        (_, "/healthz") => (StatusCode::OK, TEXT, "ok\n".to_owned()),
        _ => (
            StatusCode::NOT_FOUND,
            TEXT,
            "there are /metrics, /status and /healthz\n".to_owned(),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Scrapers and people. One more replaces the connection that has waited longest.
const CONNECTIONS_MAX: usize = 32;

/// A scraper sends its request at once.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// From one request of a connection to the next or to its end. A client that sends requests and takes no responses
/// fills the socket, after which no request is read.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);
