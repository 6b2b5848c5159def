//! One connection to a server. It sends one request at a time, without a body.
//!
//! The module uses hyper's connection-level client. The task that waits for the response also drives the connection,
//! so a request needs no switch to another task.

use std::error::Error as _;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Interval, MissedTickBehavior};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::load::Target;
use crate::load::tally::{ErrorKind, Failure};

/// A connection to a server, opened and reopened as needed.
pub(crate) struct Client {
    target: Target,
    /// Opens TLS. `None` for a target without TLS.
    tls: Option<TlsConnector>,
    /// The current connection; `None` before the first request and after a failure.
    open_connection: Option<OpenConnection>,
    watchdog: Watchdog,
    /// The number of times that a connection was opened.
    pub(crate) opened: u64,
}

impl Client {
    pub(crate) fn new(
        target: Target,
        tls: Option<Arc<rustls::ClientConfig>>,
        timeout: Duration,
    ) -> Self {
        Self {
            target,
            tls: tls.map(TlsConnector::from),
            open_connection: None,
            watchdog: Watchdog::new(timeout),
            opened: 0,
        }
    }

    pub(crate) const fn target(&self) -> &Target {
        &self.target
    }

    /// Returns true if the connection is open.
    pub(crate) const fn is_open(&self) -> bool {
        self.open_connection.is_some()
    }

    /// Closes the connection, because a part of a response was not read.
    pub(crate) fn close(&mut self) {
        self.open_connection = None;
    }

    /// Restarts the timeout, because a part of a response arrived.
    pub(crate) const fn note_activity(&mut self) {
        self.watchdog.was_active = true;
    }

    /// Waits for a part of the response.
    ///
    /// # Panics
    ///
    /// Panics if the connection is closed.
    pub(crate) async fn drive<F: Future>(&mut self, future: F) -> Result<F::Output, TimedOut> {
        let connection = self.open_connection.as_mut();
        let connection = connection.expect("the connection is open");
        connection.drive(future, &mut self.watchdog).await
    }

    /// Sends the request and returns the head of the response. The server may close a connection
    /// between two requests; this is not a failure, so the request is sent again on a new connection (RFC 9112, section
    /// 9.3.1).
    pub(crate) async fn send(
        &mut self,
        request: impl Fn() -> Request<Empty<Bytes>>,
    ) -> Result<Response<Incoming>, Failure> {
        self.note_activity();
        let is_usable = match &mut self.open_connection {
            Some(connection) => connection.ready(&mut self.watchdog).await.is_ok(),
            None => false,
        };
        if is_usable {
            match self.send_once(request()).await {
                Err(failure) if failure.kind == ErrorKind::Connection => {}
                result => return result,
            }
        }
        self.open_connection = None;
        self.open_connection = Some(self.connect().await?);
        self.send_once(request()).await
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
            Err(TimedOut) => return Err(self.timed_out("while connecting")),
        };
        opened.map_err(|error| {
            failure(
                ErrorKind::Connection,
                format!("cannot connect to {addr}: {error}"),
            )
        })
    }

    async fn send_once(
        &mut self,
        request: Request<Empty<Bytes>>,
    ) -> Result<Response<Incoming>, Failure> {
        let connection = self
            .open_connection
            .as_mut()
            .expect("the connection is open");
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
            Err(TimedOut) => self.timed_out("before the head of the response"),
        };
        self.open_connection = None;
        Err(failure)
    }

    /// Returns the failure of a request whose response stopped at this moment.
    pub(crate) fn timed_out(&self, moment: &str) -> Failure {
        let timeout = self.watchdog.timeout;
        failure(
            ErrorKind::Timeout,
            format!("no data for {timeout:?} {moment}"),
        )
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
pub(crate) struct TimedOut;

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

pub(crate) fn failure(kind: ErrorKind, detail: String) -> Failure {
    Failure { kind, detail }
}

/// Formats hyper's error, which says what failed, with its source, which says why.
pub(crate) fn error_with_source(error: &hyper::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
