//! Connections to the origin: one worker's own, bounded in number, kept while idle.
//!
//! Being a worker's own they need no lock, and a response is read on the thread that asked for it.
//! The most recently used idle connection is taken first, so that the surplus grows old and goes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use edgeward_types::Timestamp;
use http::response::Parts;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::body::OriginBody;
use super::connect::Connector;
use super::error::OriginError;
use crate::clock::Clock;
use crate::config::{LimitsConfig, OriginConfig, OriginProtocol};
use crate::counters::Counters;
use crate::request::{Upload, UploadProgress};
use crate::tasks::{LocalExecutor, TaskSet};

/// All of a worker's connections to the origin.
pub(crate) struct OriginPool {
    config: OriginConfig,
    limits: LimitsConfig,
    connector: Connector,
    h2: RefCell<Option<http2::SendRequest<Upload>>>,
    h2_connecting: tokio::sync::Mutex<()>,
    shared: Rc<Shared>,
}

/// What the bodies of responses need of the pool.
pub(super) struct Shared {
    idle: RefCell<Vec<Idle>>,
    idle_max: usize,
    open: Cell<usize>,
    /// Signalled when a connection came back or was closed.
    freed: Notify,
    pub(super) counters: Arc<Counters>,
    clock: Arc<Clock>,
    tasks: TaskSet,
}

struct Idle {
    sender: http1::SendRequest<Upload>,
    since: Timestamp,
}

/// Whether a request may be sent twice, and when its upload last moved.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// Idempotent (RFC 9110 §9.2.2) and without a body.
    pub(crate) repeatable: bool,
    /// The time the origin has for its head counts from here, so that a long upload is not
    /// mistaken for a slow answer.
    pub(crate) upload: Option<Rc<UploadProgress>>,
}

impl OriginPool {
    pub(crate) fn new(
        config: OriginConfig,
        limits: LimitsConfig,
        connector: Connector,
        counters: Arc<Counters>,
        clock: Arc<Clock>,
    ) -> Self {
        let shared = Rc::new(Shared {
            idle: RefCell::new(Vec::new()),
            idle_max: config.idle_per_worker_max,
            open: Cell::new(0),
            freed: Notify::new(),
            counters,
            clock,
            tasks: TaskSet::default(),
        });
        Self {
            config,
            limits,
            connector,
            h2: RefCell::new(None),
            h2_connecting: tokio::sync::Mutex::new(()),
            shared,
        }
    }

    pub(crate) fn config(&self) -> &OriginConfig {
        &self.config
    }

    /// Sends a request and waits for the head of its response.
    ///
    /// `build` is called once a try: more than once only if `attempt.repeatable`, or if hyper
    /// never took the request over.
    pub(crate) async fn send(
        &self,
        attempt: &Attempt,
        mut build: impl FnMut() -> Request<Upload>,
    ) -> Result<(Parts, OriginBody), OriginError> {
        self.shared.counters.origin_requests.one();
        let result = match self.config.protocol {
            OriginProtocol::Http1 => self.send_h1(attempt, &mut build).await,
            OriginProtocol::Http2 => Box::pin(self.send_h2(attempt, &mut build)).await,
        };
        if let Err(error) = &result
            && let Some(counter) = error.counter(&self.shared.counters)
        {
            counter.one();
        }
        result
    }

    async fn send_h1(
        &self,
        attempt: &Attempt,
        build: &mut impl FnMut() -> Request<Upload>,
    ) -> Result<(Parts, OriginBody), OriginError> {
        let mut tries_left = self.config.retries_max;
        let mut unsent = None;
        loop {
            // The last try is on a new connection: the whole pool may be dead.
            let (mut sender, reused, lease) = self.checkout(tries_left > 0).await?;
            let request = unsent.take().unwrap_or_else(&mut *build);
            let error = match self
                .head_in_time(attempt, sender.try_send_request(request))
                .await?
            {
                Ok(response) => {
                    return Ok(
                        self.received(response, Some(lease.with(sender, attempt.upload.clone())))
                    );
                }
                Err(error) => error,
            };
            drop(lease);
            let (error, returned) = split(error);
            let died_idle = reused && !error.is_parse() && !error.is_user();
            if tries_left == 0 || !(died_idle && (returned.is_some() || attempt.repeatable)) {
                return Err(OriginError::from_hyper(error));
            }
            unsent = returned;
            tries_left -= 1;
            self.shared.counters.origin_retries.one();
        }
    }

    async fn send_h2(
        &self,
        attempt: &Attempt,
        build: &mut impl FnMut() -> Request<Upload>,
    ) -> Result<(Parts, OriginBody), OriginError> {
        let mut tries_left = self.config.retries_max;
        let mut unsent = None;
        loop {
            let mut sender = self.h2_sender().await?;
            let request = unsent.take().unwrap_or_else(&mut *build);
            let error = match self
                .head_in_time(attempt, sender.try_send_request(request))
                .await?
            {
                Ok(response) => return Ok(self.received(response, None)),
                Err(error) => error,
            };
            let (error, returned) = split(error);
            // A connection that says GOAWAY, or died, takes the request down with it.
            let died = sender.is_closed();
            if tries_left == 0 || !(died && (returned.is_some() || attempt.repeatable)) {
                return Err(OriginError::from_hyper(error));
            }
            unsent = returned;
            tries_left -= 1;
            self.shared.counters.origin_retries.one();
        }
    }

    fn received(&self, response: Response<Incoming>, lease: Option<Lease>) -> (Parts, OriginBody) {
        let (parts, incoming) = response.into_parts();
        let body = OriginBody::new(
            incoming,
            lease,
            self.config.read_idle_timeout,
            Arc::clone(&self.shared.counters),
        );
        (parts, body)
    }

    /// Waits for a head, as long as `first_byte_timeout` from the end of the upload.
    async fn head_in_time<T>(
        &self,
        attempt: &Attempt,
        head: impl Future<Output = T>,
    ) -> Result<T, OriginError> {
        let timeout = self.config.first_byte_timeout;
        let mut head = std::pin::pin!(head);
        let mut deadline = Instant::now() + timeout;
        loop {
            if let Ok(head) = tokio::time::timeout_at(deadline, &mut head).await {
                return Ok(head);
            }
            let moved = attempt.upload.as_ref().map(|upload| upload.moved());
            match moved.map(|moved| moved + timeout) {
                Some(later) if later > deadline => deadline = later,
                _ => return Err(OriginError::FirstByteTimeout),
            }
        }
    }

    /// An idle connection, or a new one, or the first to come free within `connect_timeout`.
    async fn checkout(
        &self,
        reuse: bool,
    ) -> Result<(http1::SendRequest<Upload>, bool, Lease), OriginError> {
        let deadline = Instant::now() + self.config.connect_timeout;
        loop {
            while reuse && let Some(mut sender) = self.shared.pop_idle(self.config.idle_timeout) {
                let lease = Lease::counted(&self.shared);
                if sender.ready().await.is_ok() {
                    return Ok((sender, true, lease));
                }
            }
            if self.shared.open.get() < self.config.connections_per_worker_max.get() {
                let lease = Lease::open(&self.shared);
                // Boxed: seldom needed, and large enough to weigh on every miss.
                let sender = Box::pin(self.connect_h1(deadline)).await?;
                return Ok((sender, false, lease));
            }
            // Without reuse an idle connection would hold a place forever: let the oldest go.
            if !reuse && self.shared.close_oldest() {
                continue;
            }
            if tokio::time::timeout_at(deadline, self.shared.freed.notified())
                .await
                .is_err()
            {
                return Err(OriginError::Busy);
            }
        }
    }

    async fn connect_h1(
        &self,
        deadline: Instant,
    ) -> Result<http1::SendRequest<Upload>, OriginError> {
        let stream = self.connect(deadline).await?;
        let mut builder = http1::Builder::new();
        let head_bytes_max = crate::connection::head_bytes_max(&self.limits);
        builder.max_header_size(head_bytes_max);
        if self.limits.headers_max.get() != crate::connection::HEADERS_ON_STACK {
            builder.max_headers(self.limits.headers_max.get());
        }
        let (sender, connection) = builder
            .handshake(TokioIo::new(stream))
            .await
            .map_err(OriginError::from_hyper)?;
        // Its errors reach whoever waits for the response.
        self.shared.tasks.spawn(|member| async move {
            _ = connection.await;
            drop(member);
        });
        Ok(sender)
    }

    /// The one HTTP/2 connection, opened by the first who needs it.
    async fn h2_sender(&self) -> Result<http2::SendRequest<Upload>, OriginError> {
        let usable = || {
            self.h2
                .borrow()
                .clone()
                .filter(|sender| !sender.is_closed())
        };
        if let Some(sender) = usable() {
            return Ok(sender);
        }
        let _first = self.h2_connecting.lock().await;
        if let Some(sender) = usable() {
            return Ok(sender);
        }
        let lease = Lease::open(&self.shared);
        let deadline = Instant::now() + self.config.connect_timeout;
        let stream = self.connect(deadline).await?;
        let executor = LocalExecutor(self.shared.tasks.clone());
        let mut builder = http2::Builder::new(executor);
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(H2_STREAM_WINDOW_BYTES)
            .initial_connection_window_size(H2_CONNECTION_WINDOW_BYTES)
            .max_header_list_size(
                u32::try_from(self.limits.head_bytes_max.bytes()).unwrap_or(u32::MAX),
            );
        let handshake = builder.handshake(TokioIo::new(stream));
        let (sender, connection) = tokio::time::timeout_at(deadline, handshake)
            .await
            .map_err(|_| self.connect_timeout())?
            .map_err(OriginError::from_hyper)?;
        self.shared.tasks.spawn(|member| async move {
            _ = connection.await;
            drop((lease, member));
        });
        *self.h2.borrow_mut() = Some(sender.clone());
        Ok(sender)
    }

    async fn connect(
        &self,
        deadline: Instant,
    ) -> Result<Box<dyn super::connect::OriginStream>, OriginError> {
        self.shared.counters.origin_connects.one();
        tokio::time::timeout_at(deadline, self.connector.connect())
            .await
            .map_err(|_| self.connect_timeout())?
            .map_err(|source| OriginError::Connect {
                origin: self.config.url.to_string(),
                source,
            })
    }

    fn connect_timeout(&self) -> OriginError {
        OriginError::ConnectTimeout {
            origin: self.config.url.to_string(),
        }
    }

    /// Closes what was idle for too long.
    pub(crate) fn sweep(&self, now: Timestamp) {
        let timeout = self.config.idle_timeout;
        let stale: Vec<Idle> = {
            let mut idle = self.shared.idle.borrow_mut();
            let (keep, stale) = idle
                .drain(..)
                .partition(|i| now.since(i.since) <= timeout && !i.sender.is_closed());
            *idle = keep;
            stale
        };
        for idle in stale {
            self.shared.closed(idle);
        }
    }

    /// Closes every idle connection and waits for all tasks, at most as long as given.
    pub(crate) async fn shut_down(&self, within: Duration) {
        self.h2.borrow_mut().take();
        let idle = std::mem::take(&mut *self.shared.idle.borrow_mut());
        for idle in idle {
            self.shared.closed(idle);
        }
        _ = tokio::time::timeout(within, self.shared.tasks.idle()).await;
    }
}

impl Shared {
    fn pop_idle(&self, timeout: Duration) -> Option<http1::SendRequest<Upload>> {
        loop {
            let idle = self.idle.borrow_mut().pop()?;
            if idle.sender.is_closed() || self.clock.now().since(idle.since) > timeout {
                self.closed(idle);
                continue;
            }
            return Some(idle.sender);
        }
    }

    fn close_oldest(&self) -> bool {
        let oldest = {
            let mut idle = self.idle.borrow_mut();
            (!idle.is_empty()).then(|| idle.remove(0))
        };
        oldest.map(|idle| self.closed(idle)).is_some()
    }

    fn closed(&self, idle: Idle) {
        drop(idle);
        self.count(-1);
        self.freed.notify_one();
    }

    fn count(&self, change: isize) {
        let open = self.open.get().checked_add_signed(change);
        self.open
            .set(open.expect("a connection closes once, after it was opened"));
        match change {
            1 => self.counters.origin_connections.one(),
            _ => self.counters.origin_connections.less_one(),
        }
    }
}

/// A place among the pool's connections, given back when dropped: with a connection that can be
/// used again, or without one.
pub(super) struct Lease {
    pool: Rc<Shared>,
    sender: Option<http1::SendRequest<Upload>>,
    upload: Option<Rc<UploadProgress>>,
}

impl Lease {
    fn open(pool: &Rc<Shared>) -> Self {
        pool.count(1);
        Self::counted(pool)
    }

    fn counted(pool: &Rc<Shared>) -> Self {
        Self {
            pool: Rc::clone(pool),
            sender: None,
            upload: None,
        }
    }

    fn with(
        mut self,
        sender: http1::SendRequest<Upload>,
        upload: Option<Rc<UploadProgress>>,
    ) -> Self {
        self.sender = Some(sender);
        self.upload = upload;
        self
    }

    /// The response was read whole; the connection may serve another request.
    pub(super) fn give_back(mut self) {
        let Some(sender) = self.sender.take() else {
            return;
        };
        // An origin may answer before it has read the request. Whoever got this connection next would
        // wait for somebody else's upload.
        if self.upload.take().is_some_and(|upload| !upload.has_ended()) {
            return;
        }
        if sender.is_closed() || self.pool.idle.borrow().len() >= self.pool.idle_max {
            return;
        }
        // The place stays taken, now by an idle connection.
        self.pool.idle.borrow_mut().push(Idle {
            sender,
            since: self.pool.clock.now(),
        });
        self.pool.count(1);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.count(-1);
        self.pool.freed.notify_one();
    }
}

fn split(mut error: TrySendError<Request<Upload>>) -> (hyper::Error, Option<Request<Upload>>) {
    let message = error.take_message();
    (error.into_error(), message)
}

/// What an origin may send ahead in one stream: at 100 ms of round trip, 10 MB a second.
const H2_STREAM_WINDOW_BYTES: u32 = 1 << 20;

/// And in one connection, which carries all of a worker's misses.
const H2_CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
