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
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

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
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let place = Arc::clone(&places).acquire_owned().await;
        let tcp = match listener.accept().await {
            Ok((tcp, _)) => tcp,
            Err(error) => {
                tracing::warn!(%error, "an admin connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let report = Arc::clone(&report);
        connections.spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let response = answer(&request, &report);
                async { Ok::<_, Infallible>(response) }
            });
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(tcp), service)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "an admin connection ended");
            }
            drop(place);
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

/// Scrapers and people; anyone beyond waits.
const CONNECTIONS_MAX: usize = 32;

const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
