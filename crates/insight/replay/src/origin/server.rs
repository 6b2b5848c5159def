//! The listeners and connections of the synthetic origin, and the handling of its requests.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::body::OriginBody;
use super::config::OriginConfig;
use super::request::{OriginRequest, OriginRequestError};
use super::response::response_for;
use super::stats::OriginStats;
use crate::pattern::Pattern;

/// The synthetic origin: a server that generates an object from the id and the size in the URL of a request.
#[derive(Debug)]
pub struct SyntheticOrigin;

/// A running origin. Dropping this value stops the origin, like [`shutdown`](Self::shutdown).
#[derive(Debug)]
pub struct RunningOrigin {
    addr: SocketAddr,
    stats: Arc<OriginStats>,
    stop: watch::Sender<bool>,
    workers: Vec<thread::JoinHandle<()>>,
}

/// Why the origin did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Listening on the address failed.
    #[error("cannot listen on {addr}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// A thread or a runtime could not be created.
    #[error("cannot start a worker")]
    Worker {
        /// The cause.
        source: io::Error,
    },
}

impl SyntheticOrigin {
    /// Starts an origin, which listens and serves on its own threads. Returns when the port is open.
    pub fn start(config: OriginConfig) -> Result<RunningOrigin, StartError> {
        if config.listen.port() != 0 {
            // With `SO_REUSEPORT`, a second origin on this port would take half of the connections without an
            // error. The port is therefore first opened without this option, which fails if another origin
            // listens.
            drop(listen(config.listen, false)?);
        }
        let config = Arc::new(config);
        let stats = Arc::new(OriginStats::default());
        let (stop, stopped) = watch::channel(false);
        let permits = Arc::new(Semaphore::new(
            config.connections_max.get().min(Semaphore::MAX_PERMITS),
        ));
        let mut running = RunningOrigin {
            addr: config.listen,
            stats,
            stop,
            workers: Vec::new(),
        };
        for number in 0..config.workers.get() {
            // Runtimes and listeners are created here, so that the caller gets the error.
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|source| StartError::Worker { source })?;
            let listener = {
                let _entered = runtime.enter();
                // The first worker selects a port if port 0 was given; the others share it.
                TcpListener::from_std(listen(running.addr, true)?)
                    .map_err(|source| StartError::Worker { source })?
            };
            running.addr = listener.local_addr().unwrap_or(running.addr);
            let worker = Worker {
                config: Arc::clone(&config),
                stats: Arc::clone(&running.stats),
                permits: Arc::clone(&permits),
                stopped: stopped.clone(),
            };
            let thread = thread::Builder::new()
                .name(format!("origin-{number}"))
                .spawn(move || runtime.block_on(worker.serve(listener)))
                .map_err(|source| StartError::Worker { source })?;
            running.workers.push(thread);
        }
        Ok(running)
    }
}

impl RunningOrigin {
    /// Returns the address on which the origin listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the counters. They remain readable after the origin has stopped.
    pub fn stats(&self) -> Arc<OriginStats> {
        Arc::clone(&self.stats)
    }

    /// Stops accepting, waits up to two seconds for pending responses, and joins all threads.
    pub fn shutdown(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        self.stop.send_replace(true);
        for worker in self.workers.drain(..) {
            if let Err(panic) = worker.join()
                && !thread::panicking()
            {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl Drop for RunningOrigin {
    fn drop(&mut self) {
        self.stop();
    }
}

fn listen(addr: SocketAddr, shares_port: bool) -> Result<std::net::TcpListener, StartError> {
    let listen = || {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(shares_port)?;
        socket.set_nonblocking(true)?;
        socket.bind(&addr.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    listen().map_err(|source| StartError::Listen { addr, source })
}

#[derive(Clone)]
struct Worker {
    config: Arc<OriginConfig>,
    stats: Arc<OriginStats>,
    permits: Arc<Semaphore>,
    stopped: watch::Receiver<bool>,
}

impl Worker {
    async fn serve(self, listener: TcpListener) {
        let mut stopped = self.stopped.clone();
        let mut connections = JoinSet::new();
        loop {
            let permits = Arc::clone(&self.permits);
            let next = async {
                let permit = permits
                    .acquire_owned()
                    .await
                    .expect("the semaphore is never closed");
                (permit, listener.accept().await)
            };
            tokio::select! {
                (permit, accepted) = next => match accepted {
                    Ok((stream, _)) => {
                        let worker = self.clone();
                        connections.spawn(async move {
                            worker.serve_connection(stream).await;
                            drop(permit);
                        });
                    }
                    Err(error) => {
                        // The process has probably run out of descriptors. The pause lets open connections end.
                        tracing::warn!(%error, "the origin could not accept a connection");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = connections.join_next() => {}
                _ = stopped.wait_for(|&stopped| stopped) => break,
            }
        }
        drop(listener);
        let drained = async { while connections.join_next().await.is_some() {} };
        // When the set is dropped, it aborts the connections that are still open.
        _ = tokio::time::timeout(DRAIN_TIME, drained).await;
    }

    async fn serve_connection(mut self, stream: TcpStream) {
        _ = stream.set_nodelay(true);
        self.stats.connection_opened();
        let worker = self.clone();
        let service = service_fn(move |request| {
            let worker = worker.clone();
            async move { Ok::<_, Infallible>(worker.respond(request).await) }
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        // An error means that the client has closed or broken the connection, which the client may do.
        let ended = tokio::select! {
            _ = connection.as_mut() => true,
            _ = self.stopped.wait_for(|&stopped| stopped) => false,
        };
        if !ended {
            connection.as_mut().graceful_shutdown();
            _ = connection.await;
        }
        self.stats.connection_closed();
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<OriginBody> {
        // The delay and the error that the configuration injects into this request.
        let injection = self.config.injection(self.stats.next_request());
        let (head, mut upload) = request.into_parts();
        if head.uri.path() == "/status" {
            let counts =
                serde_json::to_vec(&self.stats.counts()).expect("the counters can be serialised");
            let mut response = Response::new(OriginBody::Text(counts.into()));
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
            return response;
        }
        wait(injection.latency).await;
        if injection.fails {
            self.stats.count_error();
            return status(self.config.error_status);
        }
        let (path, query) = (head.uri.path(), head.uri.query());
        let request = match OriginRequest::read(path, query, self.config.size_bytes_max) {
            Ok(request) => request,
            Err(error) => return self.reject(&error),
        };
        let delay = request.delay;
        match head.method {
            Method::GET | Method::HEAD => wait(delay).await,
            Method::POST | Method::PUT | Method::PATCH | Method::DELETE => {
                // Reads and drops the body: objects cannot be changed.
                while let Some(Ok(_)) = upload.frame().await {}
                wait(delay).await;
                return status(StatusCode::NO_CONTENT);
            }
            _ => {
                let mut response = status(StatusCode::METHOD_NOT_ALLOWED);
                let allowed = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");
                response.headers_mut().insert(ALLOW, allowed);
                return response;
            }
        }
        let (pattern, chunked) = (Pattern::for_id(request.id), request.chunked);
        let origin_response =
            response_for(request, pattern, &head.method, &head.headers, &self.config);
        self.stats.count_status(origin_response.status.as_u16());
        if origin_response.status == StatusCode::RANGE_NOT_SATISFIABLE {
            self.stats.count_refused();
        }
        let body = if head.method == Method::HEAD || origin_response.bytes.is_empty() {
            OriginBody::Empty
        } else {
            OriginBody::Object {
                pattern,
                at: origin_response.bytes.start,
                end: origin_response.bytes.end,
                declares_size: !chunked,
                stats: Arc::clone(&self.stats),
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = origin_response.status;
        *response.headers_mut() = origin_response.headers;
        response
    }

    fn reject(&self, error: &OriginRequestError) -> Response<OriginBody> {
        self.stats.count_refused();
        let text = Bytes::from(format!("{error}\n"));
        let mut response = Response::new(OriginBody::Text(text));
        *response.status_mut() = match error {
            OriginRequestError::NoObject => StatusCode::NOT_FOUND,
            _ => StatusCode::BAD_REQUEST,
        };
        response
    }
}

async fn wait(duration: Duration) {
    if !duration.is_zero() {
        tokio::time::sleep(duration).await;
    }
}

fn status(status: StatusCode) -> Response<OriginBody> {
    let mut response = Response::new(OriginBody::Empty);
    *response.status_mut() = status;
    response
}

const BACKLOG: i32 = 4096;
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const DRAIN_TIME: Duration = Duration::from_secs(2);
