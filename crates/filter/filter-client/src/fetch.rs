//! Requests to the publisher over one persistent connection. Every response is bounded in size and in idle
//! time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CONTENT_LENGTH, CONTENT_RANGE, HOST, HeaderMap, HeaderName, HeaderValue, RANGE,
};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::config::FilterConfig;
use crate::counters::Counters;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("cannot connect to {authority}: {source}")]
    Connect {
        authority: String,
        source: io::Error,
    },
    #[error("connection to the publisher failed: {0}")]
    Connection(#[from] hyper::Error),
    #[error("timeout: no data for {} s", .0.as_secs_f64())]
    Timeout(Duration),
    #[error("the response is larger than {0} bytes")]
    TooLarge(u64),
    #[error("the response ended after {found} of {expected_bytes} bytes")]
    Truncated { found: u64, expected_bytes: u64 },
    #[error("the publisher returned {0}")]
    Status(StatusCode),
}

/// Sends requests to the publisher over one connection.
pub(crate) struct Fetcher {
    config: Arc<FilterConfig>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    counters: Arc<Counters>,
    connection: Option<OpenConnection>,
}

/// A connection and the task that drives it, which ends with the connection.
struct OpenConnection {
    sender: SendRequest<Empty<Bytes>>,
    task: JoinHandle<()>,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fetcher {
    pub(crate) fn new(
        config: Arc<FilterConfig>,
        tls: Option<(TlsConnector, ServerName<'static>)>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            config,
            tls,
            counters,
            connection: None,
        }
    }

    /// Returns a fetcher with its own connection, for concurrent requests.
    pub(crate) fn with_new_connection(&self) -> Self {
        Self::new(
            Arc::clone(&self.config),
            self.tls.clone(),
            Arc::clone(&self.counters),
        )
    }

    /// Sends a GET for a path below the set's path and waits for the response head. `extra_wait` is the time for
    /// which the request lets the publisher delay its response. It is added to the timeout `silence_max`. If a
    /// reused connection fails, the request is sent again on a new connection. After a timeout it is not sent again.
    async fn send(
        &mut self,
        subpath: &str,
        fields: &[(HeaderName, HeaderValue)],
        extra_wait: Duration,
    ) -> Result<Response<Incoming>, FetchError> {
        loop {
            let is_reused = self
                .connection
                .as_ref()
                .is_some_and(|c| c.sender.is_ready());
            if !is_reused {
                self.connection = Some(self.connect().await?);
            }
            let connection = self
                .connection
                .as_mut()
                .expect("the connection was just opened");
            let mut request = Request::new(Empty::new());
            let target = format!("{}{subpath}", self.config.url.path);
            *request.uri_mut() = target
                .parse()
                .expect("paths are checked and digests are hex");
            let headers = request.headers_mut();
            let host = HeaderValue::try_from(&self.config.url.authority);
            headers.insert(HOST, host.expect("an authority is visible ASCII"));
            for (name, value) in fields {
                headers.insert(name, value.clone());
            }
            let silence = self.config.silence_max + extra_wait;
            match tokio::time::timeout(silence, connection.sender.send_request(request)).await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(error)) => {
                    self.connection = None;
                    if !is_reused {
                        return Err(error.into());
                    }
                }
                Err(_) => {
                    self.connection = None;
                    return Err(FetchError::Timeout(silence));
                }
            }
        }
    }

    /// Fetches a small response as a whole, with any status. `fields` are header fields of the request. A body of more
    /// than `bytes_max` bytes is an error. For `extra_wait` see `send`.
    pub(crate) async fn get(
        &mut self,
        subpath: &str,
        fields: &[(HeaderName, HeaderValue)],
        bytes_max: u64,
        extra_wait: Duration,
    ) -> Result<(StatusCode, HeaderMap, Vec<u8>), FetchError> {
        let response = self.send(subpath, fields, extra_wait).await?;
        let (parts, mut body) = response.into_parts();
        let mut bytes = Vec::new();
        let read = self
            .read(&parts.headers, &mut body, bytes_max, &mut bytes)
            .await;
        if read.is_err() {
            self.connection = None;
        }
        read?;
        Ok((parts.status, parts.headers, bytes))
    }

    /// Fetches a file of known size with at most `attempts` requests. After an attempt that received some bytes, the
    /// next attempt requests the rest. A publisher without range requests then sends the whole file again.
    pub(crate) async fn file(
        &mut self,
        subpath: &str,
        expected_bytes: u64,
        attempts: u32,
    ) -> Result<Vec<u8>, FetchError> {
        let mut bytes: Vec<u8> = Vec::new();
        let mut last = FetchError::Truncated {
            found: 0,
            expected_bytes,
        };
        for _ in 0..attempts {
            let from = bytes.len() as u64;
            let range = HeaderValue::try_from(format!("bytes={from}-")).expect("digits");
            let fields = (from > 0).then_some((RANGE, range));
            let response = self
                .send(subpath, fields.as_slice(), Duration::ZERO)
                .await?;
            let (parts, mut body) = response.into_parts();
            let continuation = format!("bytes {from}-");
            let continued = parts.headers.get(CONTENT_RANGE).map(HeaderValue::as_bytes);
            match parts.status {
                StatusCode::OK => bytes.clear(),
                StatusCode::PARTIAL_CONTENT
                    if continued
                        .is_some_and(|range| range.starts_with(continuation.as_bytes())) => {}
                status => {
                    self.connection = None;
                    return Err(FetchError::Status(status));
                }
            }
            let before = bytes.len();
            let read = self
                .read(&parts.headers, &mut body, expected_bytes, &mut bytes)
                .await;
            match read {
                Ok(()) if bytes.len() as u64 == expected_bytes => return Ok(bytes),
                Ok(()) => {
                    last = FetchError::Truncated {
                        found: bytes.len() as u64,
                        expected_bytes,
                    }
                }
                Err(error @ FetchError::TooLarge(_)) => {
                    self.connection = None;
                    return Err(error);
                }
                Err(error) => last = error,
            }
            self.connection = None;
            if bytes.len() == before {
                // No progress: an immediate retry would fail too.
                break;
            }
        }
        Err(last)
    }

    /// Appends a body to `bytes`, which never grows beyond `bytes_max`.
    async fn read(
        &self,
        headers: &HeaderMap,
        body: &mut Incoming,
        bytes_max: u64,
        bytes: &mut Vec<u8>,
    ) -> Result<(), FetchError> {
        let stated_length = headers.get(CONTENT_LENGTH);
        let stated_length =
            stated_length.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if stated_length.is_some_and(|stated_length| {
            stated_length.saturating_add(bytes.len() as u64) > bytes_max
        }) {
            return Err(FetchError::TooLarge(bytes_max));
        }
        let silence = self.config.silence_max;
        loop {
            let frame = tokio::time::timeout(silence, body.frame()).await;
            let Some(frame) = frame.map_err(|_| FetchError::Timeout(silence))? else {
                return Ok(());
            };
            // Trailers are ignored.
            let Ok(piece) = frame?.into_data() else {
                continue;
            };
            if bytes.len() as u64 + piece.len() as u64 > bytes_max {
                return Err(FetchError::TooLarge(bytes_max));
            }
            if bytes.is_empty() {
                // The stated length fits. If no length is stated, the buffer grows as data arrives.
                let stated_length = usize::try_from(stated_length.unwrap_or(0)).unwrap_or(0);
                bytes.reserve_exact(stated_length);
            }
            self.counters
                .bytes
                .fetch_add(piece.len() as u64, Ordering::Relaxed);
            bytes.extend_from_slice(&piece);
        }
    }

    async fn connect(&self) -> Result<OpenConnection, FetchError> {
        let time = self.config.connect_timeout;
        let connected = tokio::time::timeout(time, self.dial()).await;
        let failed = |source| FetchError::Connect {
            authority: self.config.url.authority.clone(),
            source,
        };
        connected
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(failed)
    }

    /// Connects to the host's addresses in order and uses the first that accepts.
    async fn dial(&self) -> io::Result<OpenConnection> {
        let url = &self.config.url;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
        for addr in tokio::net::lookup_host((url.host.as_str(), url.port)).await? {
            let tcp = match TcpStream::connect(addr).await {
                Ok(tcp) => tcp,
                Err(error) => {
                    last = error;
                    continue;
                }
            };
            tcp.set_nodelay(true)?;
            return match &self.tls {
                None => handshake(tcp).await,
                Some((connector, name)) => {
                    handshake(connector.connect(name.clone(), tcp).await?).await
                }
            };
        }
        Err(last)
    }
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> io::Result<OpenConnection> {
    let mut builder = http1::Builder::new();
    // 64 KiB suffice for a response head: the field `Edgeward-Proof` and a dozen other fields. hyper's default is
    // 400 KiB.
    builder.max_buf_size(64 << 10);
    let handshake = builder.handshake(TokioIo::new(stream)).await;
    let (sender, connection) = handshake.map_err(io::Error::other)?;
    let task = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection to the publisher closed");
        }
    });
    Ok(OpenConnection { sender, task })
}
