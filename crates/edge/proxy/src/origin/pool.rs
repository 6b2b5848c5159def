//! The pool of a worker's connections to one server of an origin.
//!
//! Each worker has its own pools. A pool therefore needs no lock, and a response is read on the thread of its request.
//! Requests take the most recently used idle connection, so that surplus connections stay idle until their timeout.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use edgeward_types::ClientNet;
use http::response::Parts;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;
use tokio::time::error::Elapsed;

use super::body::{BodySource, OriginBody};
use super::connect::OriginStream;
use super::error::OriginError;
use super::lease::{AcceptedKind, Accepts, Lease, PoolState, PooledConnection};
use super::outbound::{Conditions, Outbound};
use super::servers::Server;
use super::upload::{Upload, UploadProgress};
use super::{h1, wait};
use crate::config::{LimitsConfig, OriginConfig, OriginProtocol};
use crate::exchange::Request as ClientRequest;
use crate::observe::site_counters::FetchClass;

/// The connections of a worker to one server of an origin. All servers of the origin share the slots.
pub(super) struct OriginPool {
    pub(super) config: Rc<OriginConfig>,
    pub(super) limits: Rc<LimitsConfig>,
    pub(super) server: Arc<Server>,
    /// The HTTP/2 connection, if the origin's protocol is HTTP/2.
    pub(super) h2: RefCell<Option<http2::SendRequest<Upload>>>,
    /// Locked by the request that opens the HTTP/2 connection.
    pub(super) h2_connecting: tokio::sync::Mutex<()>,
    pub(super) shared: Rc<PoolState>,
}

/// The properties and the progress of sending one request, including all retries.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// True if the request is idempotent (RFC 9110 §9.2.2) and has no body.
    pub(crate) repeatable: bool,
    /// The progress of the upload. The timeout of the response's head restarts at each progress, so that a long upload
    /// does not count as a slow response.
    pub(crate) upload: Option<Rc<UploadProgress>>,
    /// Becomes true when the request has a connection. From then on the origin may have received a part of the request.
    pub(crate) was_sent: Option<Rc<Cell<bool>>>,
}

impl Attempt {
    pub(crate) fn without_body(repeatable: bool) -> Self {
        Self {
            repeatable,
            upload: None,
            was_sent: None,
        }
    }

    /// Returns true if the origin may have received a part of the request.
    pub(crate) fn was_sent(&self) -> bool {
        self.was_sent
            .as_ref()
            .is_some_and(|was_sent| was_sent.get())
    }

    fn record_sent(&self) {
        if let Some(was_sent) = &self.was_sent {
            was_sent.set(true);
        }
    }
}

/// The head and the body of an origin's response. The body is boxed, because it is large and moved often.
pub(crate) type OriginResponse = (Box<Parts>, Box<OriginBody>);

impl OriginPool {
    pub(super) fn new(
        config: Rc<OriginConfig>,
        limits: Rc<LimitsConfig>,
        server: Arc<Server>,
        shared: Rc<PoolState>,
    ) -> Self {
        Self {
            config,
            limits,
            server,
            h2: RefCell::new(None),
            h2_connecting: tokio::sync::Mutex::new(()),
            shared,
        }
    }

    /// Sends a request and waits for the head of its response.
    ///
    /// After an error the request is sent again only if `attempt.repeatable`, or if hyper returned the unsent request.
    /// `upload` remains in place if the request got no connection.
    pub(super) async fn send(
        &self,
        attempt: &Attempt,
        outbound: &Outbound<'_>,
        upload: &mut Upload,
    ) -> Result<OriginResponse, OriginError> {
        self.shared.counters.origin_requests.increment();
        let result = match self.config.protocol {
            OriginProtocol::Http1 if attempt.upload.is_none() => {
                self.send_direct(attempt, outbound).await
            }
            OriginProtocol::Http1 | OriginProtocol::Http2 => {
                Box::pin(self.send_by_hyper(attempt, outbound, upload)).await
            }
        };
        if let Err(error) = &result {
            error.count(&self.shared.counters);
            if let OriginError::Tls { source } = error {
                let health = self.server.connector.health();
                health.log_tls_failure(&**source, std::time::Instant::now());
            }
        }
        result
    }

    /// Sends a request without a body over HTTP/1.1.
    async fn send_direct(
        &self,
        attempt: &Attempt,
        outbound: &Outbound<'_>,
    ) -> Result<OriginResponse, OriginError> {
        let mut tries_left = self.repeats_max();
        let limits = h1::HeadLimits::of(&self.limits, &self.config);
        loop {
            // The last try is on a new connection, because the origin may have closed all idle ones.
            let reuse = tries_left > 0;
            let (connection, reused, lease) = self.checkout_direct(outbound.request, reuse).await?;
            attempt.record_sent();
            // The head is built after the wait for a connection, so that waiting requests take less memory.
            let head = outbound.head();
            let timeout = self.config.first_byte_timeout;
            let sent_at = Instant::now();
            let failed = match connection
                .exchange(&head, outbound.method, limits, timeout, outbound.interims())
                .await
            {
                Ok((parts, body)) => {
                    self.record_first_byte(outbound, parts.status, sent_at);
                    return Ok(self.response(parts, BodySource::Direct(body), Some(lease)));
                }
                Err(failed) => failed,
            };
            drop(lease);
            // An origin may close an idle connection at the moment when a request is sent on it.
            let closed_while_idle = reused
                && !failed.response_began
                && matches!(failed.error, h1::H1Error::Closed | h1::H1Error::Io(_));
            if tries_left == 0 || !(closed_while_idle && attempt.repeatable) {
                return Err(OriginError::from_h1(failed.error));
            }
            tries_left -= 1;
            self.shared.counters.origin_retries.increment();
        }
    }

    /// Sends a request by hyper's client, over HTTP/1.1 or HTTP/2.
    async fn send_by_hyper(
        &self,
        attempt: &Attempt,
        outbound: &Outbound<'_>,
        upload: &mut Upload,
    ) -> Result<OriginResponse, OriginError> {
        let mut tries_left = self.repeats_max();
        let mut unsent = None;
        loop {
            let mut sender = match self.config.protocol {
                // The last try is on a new connection, because the origin may have closed all idle ones.
                OriginProtocol::Http1 => self.checkout(outbound.request, tries_left > 0).await?,
                OriginProtocol::Http2 => Sender::Http2(self.h2_sender().await?),
            };
            attempt.record_sent();
            let request = match unsent.take() {
                Some(mut request) => {
                    outbound.sign(&mut request);
                    request
                }
                None => outbound.request(std::mem::replace(upload, Upload::Empty)),
            };
            let sent_at = Instant::now();
            let head = sender.try_send(request);
            let mut error = match self.head_in_time(attempt, outbound, head).await? {
                // This request asked for no other protocol.
                Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                    return Err(OriginError::UpgradeFailed {
                        reason: "the request asked for no other protocol",
                    });
                }
                Ok(response) => {
                    let (parts, incoming) = response.into_parts();
                    self.record_first_byte(outbound, parts.status, sent_at);
                    let lease = sender.into_lease(attempt.upload.clone());
                    return Ok(self.response(parts.into(), BodySource::Hyper(incoming), lease));
                }
                Err(error) => error,
            };
            let returned = error.take_message();
            let error = error.into_error();
            let may_retry = sender.was_closed(&error) && (returned.is_some() || attempt.repeatable);
            drop(sender);
            if tries_left == 0 || !may_retry {
                return Err(OriginError::from_hyper(error));
            }
            unsent = returned;
            tries_left -= 1;
            self.shared.counters.origin_retries.increment();
        }
    }

    /// Returns how often a request may be sent again because its reused connection was closed before any byte of a
    /// response: `retries_max`, but once at least. The origin has closed the idle connection and has not failed, so one
    /// repetition on a new connection is not a retry. Without it, `retries_max = 0` would allow no reuse.
    fn repeats_max(&self) -> u32 {
        self.config.retries_max.max(1)
    }

    /// Counts the time from sending a request to the head of its response.
    fn record_first_byte(&self, outbound: &Outbound<'_>, status: StatusCode, sent_at: Instant) {
        let fetch = match outbound.conditions {
            Conditions::Keep => FetchClass::Pass,
            _ if status == StatusCode::NOT_MODIFIED => FetchClass::Revalidated,
            _ => FetchClass::Miss,
        };
        self.shared
            .record_first_byte(outbound, fetch, status, sent_at.elapsed());
    }

    fn response(
        &self,
        parts: Box<Parts>,
        body: BodySource,
        lease: Option<Lease>,
    ) -> OriginResponse {
        let counters = Arc::clone(&self.shared.counters);
        let body = OriginBody::new(body, lease, self.config.read_idle_timeout, counters);
        (parts, Box::new(body))
    }

    /// Waits for the head of a response until `first_byte_timeout` after the last progress of the upload.
    async fn head_in_time<T>(
        &self,
        attempt: &Attempt,
        outbound: &Outbound<'_>,
        head: impl Future<Output = T>,
    ) -> Result<T, OriginError> {
        let timeout = self.config.first_byte_timeout;
        let mut head = std::pin::pin!(head);
        let mut head = poll_fn(|cx| {
            let polled = head.as_mut().poll(cx);
            if let (Some(upload), Some(interims)) = (&attempt.upload, outbound.interims()) {
                upload.interims().forward(interims, cx);
            }
            polled
        });
        let mut deadline = Instant::now() + timeout;
        loop {
            if let Ok(head) = tokio::time::timeout_at(deadline, &mut head).await {
                if let Some(upload) = &attempt.upload {
                    upload.record_answer();
                }
                return Ok(head);
            }
            let progress = attempt.upload.as_ref().map(|upload| upload.last_progress());
            match progress.map(|progress| progress + timeout) {
                Some(extended) if extended > deadline => deadline = extended,
                _ => return Err(OriginError::FirstByteTimeout),
            }
        }
    }

    fn accepts(&self, kind: AcceptedKind) -> Accepts {
        Accepts {
            server: self.server.id,
            kind,
        }
    }

    async fn checkout(&self, of: &ClientRequest, reuse: bool) -> Result<Sender, OriginError> {
        let client = ClientNet::from(of.peer.ip());
        let hyper = self.accepts(AcceptedKind::Hyper);
        let accepts = match self.shared.has_idle(hyper) {
            true => hyper,
            false => self.accepts(AcceptedKind::Any),
        };
        let timeout = self.config.queue_timeout;
        let (idle, lease) = wait::checkout(&self.shared, client, reuse, accepts, timeout).await?;
        let idle_sender = match idle {
            Some(PooledConnection::Hyper(mut sender)) => {
                sender.ready().await.is_ok().then_some(sender)
            }
            Some(PooledConnection::Direct(connection)) => {
                // From now on hyper owns the connection, also while the connection is idle.
                Some(Box::pin(self.hand_to_hyper(connection.into_stream())).await?)
            }
            None => None,
        };
        let reused = idle_sender.is_some();
        let sender = match idle_sender {
            Some(sender) => sender,
            // The future is boxed, because it is large and rarely needed.
            None => {
                let connecting = async {
                    let stream = self.connect(Some(of.client_addr())).await?;
                    self.hand_to_hyper(stream).await
                };
                Box::pin(connecting).await?
            }
        };
        Ok(Sender::Http1 {
            sender,
            reused,
            lease,
        })
    }

    async fn checkout_direct(
        &self,
        of: &ClientRequest,
        reuse: bool,
    ) -> Result<(Box<h1::Connection>, bool, Lease), OriginError> {
        let client = ClientNet::from(of.peer.ip());
        let accepts = self.accepts(AcceptedKind::Direct);
        let (idle, lease) = match wait::checkout_now(&self.shared, client, reuse, accepts) {
            Some(checkout) => checkout,
            None => {
                let timeout = self.config.queue_timeout;
                let waiting = wait::checkout(&self.shared, client, reuse, accepts, timeout);
                Box::pin(waiting).await?
            }
        };
        if let Some(PooledConnection::Direct(connection)) = idle {
            return Ok((connection, true, lease));
        }
        let stream = Box::pin(self.connect(Some(of.client_addr()))).await?;
        Ok((h1::Connection::new(stream), false, lease))
    }

    async fn hand_to_hyper(
        &self,
        stream: Box<dyn OriginStream>,
    ) -> Result<http1::SendRequest<Upload>, OriginError> {
        let mut builder = http1::Builder::new();
        builder
            .max_header_size(self.limits.head_len_max())
            .allow_spaces_after_header_name_in_responses(true); // as `h1::head` does
        if self.limits.headers_max.get() != crate::config::HEADERS_ON_STACK {
            builder.max_headers(self.limits.headers_max.get());
        }
        let (sender, connection) = builder
            .handshake(TokioIo::new(stream))
            .await
            .map_err(OriginError::from_hyper)?;
        // An error of the connection is returned by the request's future, so it is ignored here.
        self.shared.tasks.spawn(|member| async move {
            _ = connection.await;
            drop(member);
        });
        Ok(sender)
    }

    /// Opens a connection for requests of a client, or of several clients.
    pub(super) async fn connect(
        &self,
        client: Option<SocketAddr>,
    ) -> Result<Box<dyn OriginStream>, OriginError> {
        self.shared.counters.origin_connects.increment();
        let timeout = self.config.connect_timeout;
        let connected = tokio::time::timeout(timeout, self.server.connector.connect(client)).await;
        let connected = self.result_of(connected);
        let now = std::time::Instant::now();
        match &connected {
            Ok(_) => self.server.connector.health().record_connection(now),
            Err(error) => self.server.connector.health().record_failure(error, now),
        }
        connected
    }

    /// Opens a connection for a request with `Upgrade`. A failure tells nothing about the health of the server if the
    /// origin's protocol is HTTP/2: the server may know no other.
    pub(super) async fn connect_for_upgrade(
        &self,
        client: SocketAddr,
    ) -> Result<Box<dyn OriginStream>, OriginError> {
        if self.config.protocol == OriginProtocol::Http1 {
            return self.connect(Some(client)).await;
        }
        self.shared.counters.origin_connects.increment();
        let connecting = self.server.connector.connect_for_upgrade(client);
        self.result_of(tokio::time::timeout(self.config.connect_timeout, connecting).await)
    }

    fn result_of(
        &self,
        connected: Result<io::Result<Box<dyn OriginStream>>, Elapsed>,
    ) -> Result<Box<dyn OriginStream>, OriginError> {
        let tried = connected.map_err(|_| OriginError::ConnectTimeout)?;
        let stream = tried.map_err(|source| OriginError::Connect { source })?;
        if let Some(key_exchange) = stream.key_exchange() {
            self.shared.counters.origin_key_exchanges[key_exchange].increment();
        }
        Ok(stream)
    }

    /// Closes the HTTP/2 connection after its requests have ended.
    pub(super) fn close(&self) {
        self.h2.borrow_mut().take();
    }
}

/// A connection of hyper's client.
enum Sender {
    Http1 {
        sender: http1::SendRequest<Upload>,
        reused: bool,
        lease: Lease,
    },
    Http2(http2::SendRequest<Upload>),
}

impl Sender {
    async fn try_send(
        &mut self,
        request: Request<Upload>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Upload>>> {
        match self {
            Self::Http1 { sender, .. } => sender.try_send_request(request).await,
            Self::Http2(sender) => sender.try_send_request(request).await,
        }
    }

    /// Returns true if the request failed because the connection was closed while it was idle, or ended by GOAWAY.
    fn was_closed(&self, error: &hyper::Error) -> bool {
        match self {
            Self::Http1 { reused, .. } => *reused && !error.is_parse() && !error.is_user(),
            Self::Http2(sender) => sender.is_closed(),
        }
    }

    /// Returns the lease that keeps the connection for the body of the response.
    fn into_lease(self, upload: Option<Rc<UploadProgress>>) -> Option<Lease> {
        match self {
            Self::Http1 { sender, lease, .. } => Some(lease.with_sender(sender, upload)),
            Self::Http2(_) => None,
        }
    }
}
