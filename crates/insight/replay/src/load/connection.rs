//! One connection to the target. It sends one request at a time and verifies the response while the response arrives.
//!
//! The module uses hyper's connection-level client. The task that waits for the response also drives the connection,
//! so a request needs no switch to another task.

use std::error::Error as _;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::HOST;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Interval, MissedTickBehavior};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::cache_status::Class;
use super::plan::{ReplayPlan, Target};
use super::queue::Job;
use super::tally::{ErrorKind, Failure};
use crate::pattern::Pattern;

/// A connection to the target, opened and reopened as needed.
pub(super) struct Connection {
    target: Target,
    /// Opens TLS. `None` for a target without TLS.
    tls: Option<TlsConnector>,
    /// The current connection; `None` before the first request and after a failure.
    open_connection: Option<OpenConnection>,
    watchdog: Watchdog,
    /// The number of times that a connection was opened.
    pub(super) opened: u64,
}

/// A correct response.
#[derive(Debug)]
pub(super) struct CheckedResponse {
    /// How the cache handled the request, as the response's headers state.
    pub(super) class: Class,
    /// The time when the head was complete.
    pub(super) first_byte: Instant,
    /// The time when the last byte of the body had arrived.
    pub(super) end: Instant,
}

impl Connection {
    pub(super) fn new(plan: &ReplayPlan) -> Self {
        let timeout = plan.timeout;
        Self {
            target: plan.target.clone(),
            tls: plan.tls.clone().map(TlsConnector::from),
            open_connection: None,
            watchdog: Watchdog::new(timeout),
            opened: 0,
        }
    }

    /// Sends the request of a job and verifies the response.
    pub(super) async fn perform(&mut self, job: &Job) -> Result<CheckedResponse, Failure> {
        let id = job.key.to_string();
        let uri = format!("{}/o/{id}?size={}", self.target.prefix(), job.size);
        let uri = Uri::try_from(uri).expect("a prefix from a URL with letters and digits is a URI");
        self.watchdog.note_activity();
        let response = self.send(uri).await?;
        let first_byte = Instant::now();
        let class = Class::from_headers(response.headers());
        let (head, body) = response.into_parts();
        if head.status != StatusCode::OK {
            self.discard(body).await;
            return Err(failure(
                ErrorKind::Status,
                format!("status {}", head.status),
            ));
        }
        self.check(body, Pattern::for_id(&id), job.size).await?;
        Ok(CheckedResponse {
            class,
            first_byte,
            end: Instant::now(),
        })
    }

    /// Sends the request and returns the head of the response. The server may close a connection
    /// between two requests; this is not a failure, so the request is sent again on a new connection (RFC 9112, section
    /// 9.3.1).
    async fn send(&mut self, uri: Uri) -> Result<Response<Incoming>, Failure> {
        let is_usable = match &mut self.open_connection {
            Some(connection) => connection.ready(&mut self.watchdog).await.is_ok(),
            None => false,
        };
        if is_usable {
            match self.send_once(uri.clone()).await {
                Err(failure) if failure.kind == ErrorKind::Connection => {}
                result => return result,
            }
        }
        self.open_connection = None;
        self.open_connection = Some(self.connect().await?);
        self.send_once(uri).await
    }

    async fn connect(&mut self) -> Result<OpenConnection, Failure> {
        self.opened += 1;
        let addr = self.target.addr();
        let opening = async {
            let stream = TcpStream::connect(addr).await?;
            stream.set_nodelay(true)?;
            let stream = match (&self.tls, self.target.server_name()) {
                (Some(tls), Some(name)) => {
                    Stream::Tls(Box::new(tls.connect(name.clone(), stream).await?))
                }
                (None, Some(_)) => {
                    return Err(io::Error::other("the plan has no TLS configuration"));
                }
                (_, None) => Stream::Plain(stream),
            };
            let (sender, connection) = http1::handshake(TokioIo::new(stream))
                .await
                .map_err(io::Error::other)?;
            Ok::<_, io::Error>(OpenConnection {
                sender,
                driver: Some(Box::pin(connection)),
            })
        };
        let opened = match self.watchdog.guard(pin!(opening)).await {
            Ok(opened) => opened,
            Err(TimedOut) => return Err(timed_out(&self.watchdog, "while connecting")),
        };
        opened.map_err(|error| {
            failure(
                ErrorKind::Connection,
                format!("cannot connect to {addr}: {error}"),
            )
        })
    }

    async fn send_once(&mut self, uri: Uri) -> Result<Response<Incoming>, Failure> {
        let connection = self
            .open_connection
            .as_mut()
            .expect("the connection is open");
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = uri;
        request
            .headers_mut()
            .insert(HOST, self.target.host().clone());
        let response = connection.sender.send_request(request);
        let response = connection.drive(response, &mut self.watchdog).await;
        let failure = match response {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(error)) => {
                let kind = if error.is_parse() {
                    ErrorKind::Protocol
                } else {
                    ErrorKind::Connection
                };
                failure(kind, error_with_source(&error))
            }
            Err(TimedOut) => timed_out(&self.watchdog, "before the head of the response"),
        };
        self.open_connection = None;
        Err(failure)
    }

    /// Reads the whole body and compares it with the object's bytes.
    async fn check(
        &mut self,
        mut body: Incoming,
        pattern: Pattern,
        size: u64,
    ) -> Result<(), Failure> {
        let mut received = 0;
        let mut wrong_offset = None;
        loop {
            let connection = self
                .open_connection
                .as_mut()
                .expect("the connection is open");
            let bytes = match connection.drive(body.frame(), &mut self.watchdog).await {
                Ok(None) => break,
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => bytes,
                    // The frame contains trailers.
                    Err(_) => continue,
                },
                Ok(Some(Err(error))) => {
                    self.open_connection = None;
                    let detail = format!(
                        "error after {received} of {size} bytes: {}",
                        error_with_source(&error)
                    );
                    return Err(failure(ErrorKind::ShortBody, detail));
                }
                Err(TimedOut) => {
                    let failure =
                        timed_out(&self.watchdog, &format!("after {received} of {size} bytes"));
                    self.open_connection = None;
                    return Err(failure);
                }
            };
            self.watchdog.note_activity();
            if wrong_offset.is_none() {
                wrong_offset = pattern.first_wrong(received, &bytes);
            }
            received += bytes.len() as u64;
            if received > size {
                // The rest of the response is not read.
                self.open_connection = None;
                break;
            }
        }
        // A body that is too long is reported as such, because its bytes beyond the end of the object are always wrong
        // bytes too.
        if received > size {
            let detail = format!("the body is longer than {size} bytes");
            return Err(failure(ErrorKind::LongBody, detail));
        }
        if let Some(offset) = wrong_offset {
            let detail = format!("byte {offset} of {size} is wrong");
            return Err(failure(ErrorKind::WrongBytes, detail));
        }
        if received < size {
            let detail = format!("the body ends after {received} of {size} bytes");
            return Err(failure(ErrorKind::ShortBody, detail));
        }
        Ok(())
    }

    /// Reads and drops the body of an error response, so that the connection can be used for the next request.
    /// Closes the connection if the body is longer than `DISCARDED_BYTES_MAX`.
    async fn discard(&mut self, mut body: Incoming) {
        let mut remaining = DISCARDED_BYTES_MAX;
        while let Some(connection) = &mut self.open_connection {
            match connection.drive(body.frame(), &mut self.watchdog).await {
                Ok(None) => return,
                Ok(Some(Ok(frame))) => {
                    let bytes = frame.data_ref().map_or(0, Bytes::len);
                    match remaining.checked_sub(bytes) {
                        Some(less) => remaining = less,
                        None => self.open_connection = None,
                    }
                }
                Ok(Some(Err(_))) | Err(TimedOut) => self.open_connection = None,
            }
        }
    }
}

type Driver = http1::Connection<TokioIo<Stream>, Empty<Bytes>>;

/// The bytes of a connection, with or without TLS.
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// An open connection: the two parts of hyper's client.
struct OpenConnection {
    sender: http1::SendRequest<Empty<Bytes>>,
    /// The future that reads and writes the socket; `None` after the connection has ended.
    driver: Option<Pin<Box<Driver>>>,
}

impl OpenConnection {
    /// Waits until the previous exchange is complete. Returns an error if the connection has ended.
    async fn ready(&mut self, watchdog: &mut Watchdog) -> Result<(), ()> {
        let Self { sender, driver } = self;
        let ready = drive(driver, pin!(sender.ready()), watchdog).await;
        match ready {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(TimedOut) => Err(()),
        }
    }

    async fn drive<F: Future>(
        &mut self,
        future: F,
        watchdog: &mut Watchdog,
    ) -> Result<F::Output, TimedOut> {
        drive(&mut self.driver, pin!(future), watchdog).await
    }
}

/// Waits for `future`, and polls `driver` meanwhile, because the future completes only if `driver` reads and writes.
async fn drive<F: Future>(
    driver: &mut Option<Pin<Box<Driver>>>,
    mut future: Pin<&mut F>,
    watchdog: &mut Watchdog,
) -> Result<F::Output, TimedOut> {
    watchdog
        .guard(pin!(std::future::poll_fn(move |cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(output);
            }
            let Some(running) = driver else {
                return Poll::Pending;
            };
            // If the connection has ended, the future reports the error with more detail.
            if running.as_mut().poll(cx).is_ready() {
                *driver = None;
            }
            future.as_mut().poll(cx)
        })))
        .await
}

/// Ends a wait if the connection had no activity for too long.
///
/// One timer serves all requests of the connection. Each tick checks for activity since the previous tick. A
/// guarded future therefore fails after one to two times the timeout, and a request that is not late needs no
/// timer of its own.
struct Watchdog {
    timeout: Duration,
    ticks: Interval,
    /// True if a request began or a part of a body arrived since the previous tick.
    was_active: bool,
}

/// The timeout has passed without activity.
#[derive(Debug)]
struct TimedOut;

impl Watchdog {
    fn new(timeout: Duration) -> Self {
        let mut ticks = tokio::time::interval(timeout);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            timeout,
            ticks,
            was_active: true,
        }
    }

    fn note_activity(&mut self) {
        self.was_active = true;
    }

    async fn guard<F: Future>(&mut self, mut future: Pin<&mut F>) -> Result<F::Output, TimedOut> {
        std::future::poll_fn(|cx: &mut Context<'_>| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            while self.ticks.poll_tick(cx).is_ready() {
                if !std::mem::take(&mut self.was_active) {
                    return Poll::Ready(Err(TimedOut));
                }
            }
            Poll::Pending
        })
        .await
    }
}

fn timed_out(watchdog: &Watchdog, moment: &str) -> Failure {
    let timeout = watchdog.timeout;
    failure(
        ErrorKind::Timeout,
        format!("no data for {timeout:?} {moment}"),
    )
}

fn failure(kind: ErrorKind, detail: String) -> Failure {
    Failure { kind, detail }
}

/// Formats hyper's error, which says what failed, with its source, which says why.
fn error_with_source(error: &hyper::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// The longest body of an error response that is read to keep the connection.
const DISCARDED_BYTES_MAX: usize = 1 << 20;
