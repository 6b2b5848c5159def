//! The plan of a replay, validated and with all defaults filled in.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::{NonZeroU64, NonZeroUsize};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::header::HeaderValue;
use rustls_pki_types::ServerName;

use super::live::LiveCounts;
use super::stop::Stop;

/// The plan of a replay.
#[derive(Clone, Debug)]
pub struct ReplayPlan {
    /// The name of the trace in the report.
    pub trace: String,

    /// The URL of the target.
    pub target: Target,

    /// The TLS configuration for a target with https. Its roots decide which certificates are accepted.
    pub tls: Option<Arc<rustls::ClientConfig>>,

    /// Open connections, each with one request at a time. Default: 32.
    pub connections: NonZeroUsize,

    /// Threads over which the connections are spread; never more than connections. The default is one: one
    /// thread sends about 50,000 small requests per second, and the target needs the other cores.
    pub workers: NonZeroUsize,

    /// The times at which requests are sent.
    pub pacing: Pacing,

    /// The number of requests after which the replay ends; `None` replays the whole trace.
    pub requests_max: Option<NonZeroU64>,

    /// The maximum size of an object. Requests for larger objects are skipped.
    pub size_bytes_max: Option<u64>,

    /// The number of requests at the start of the trace that fill the cache and are not counted.
    pub warmup_requests: u64,

    /// True if every request for an object uses the first size of the object in the trace, as in simulations.
    /// Default: true. The size is part of the URL, so another size would be another object.
    pub settle_sizes: bool,

    /// The emulated round-trip time between client and target. Each request waits this long before it is sent,
    /// and its latency includes the wait. Default: none. This emulates one round trip per request on a
    /// persistent connection, but not a limited bandwidth.
    pub round_trip: Duration,

    /// A request fails if no byte arrives for this long. Default: 30 seconds.
    pub timeout: Duration,

    /// Stops the replay after this many consecutive failures. Default: 1000.
    pub failures_in_a_row_max: NonZeroU64,

    /// The id of the target's process, which is monitored if it runs on this machine.
    pub pid: Option<u32>,

    /// A page of the target, such as its `/status`, that is recorded with every sample.
    pub status: Option<Target>,

    /// The interval between two samples of the counters and of the target's resources. Default: one second.
    pub sample_interval: Duration,

    /// The live counters, for progress displays.
    pub live: Arc<LiveCounts>,

    /// Ends the replay early on request.
    pub stop: Stop,
}

impl ReplayPlan {
    /// Returns a plan for a closed loop of 32 connections on one worker.
    pub fn new(trace: impl Into<String>, target: Target) -> Self {
        Self {
            trace: trace.into(),
            target,
            tls: None,
            connections: NonZeroUsize::new(32).expect("the number is not zero"),
            workers: NonZeroUsize::MIN,
            pacing: Pacing::Closed,
            requests_max: None,
            size_bytes_max: None,
            warmup_requests: 0,
            settle_sizes: true,
            round_trip: Duration::ZERO,
            timeout: Duration::from_secs(30),
            failures_in_a_row_max: NonZeroU64::new(1000).expect("the number is not zero"),
            pid: None,
            status: None,
            sample_interval: Duration::from_secs(1),
            live: Arc::default(),
            stop: Stop::default(),
        }
    }

    pub(crate) fn worker_count(&self) -> usize {
        self.workers.min(self.connections).get()
    }
}

/// The times at which requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pacing {
    /// Closed loop: a connection sends its next request when it has received the response.
    Closed,
    /// A constant number of requests per second.
    Rate(f64),
    /// Each request is sent at its time in the trace, divided by `speedup`.
    TraceTime {
        /// Seconds of the trace per second of the replay.
        speedup: f64,
    },
}

/// The target: `http://HOST[:PORT][/PREFIX]` or the same with `https`, with its resolved address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    text: String,
    /// The name that the server's certificate must have. `None` without TLS.
    server_name: Option<ServerName<'static>>,
    addr: SocketAddr,
    host: HeaderValue,
    prefix: String,
}

/// Why a text is not a target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The text is not an http or https URL.
    #[error("`{text}` is not a target: write http://HOST:PORT or https://HOST:PORT")]
    NotHttp {
        /// The text.
        text: String,
    },
    /// The host name has no address.
    #[error("`{host}` has no address")]
    Unresolved {
        /// The host name and port.
        host: String,
        /// The cause.
        source: std::io::Error,
    },
}

impl Target {
    /// Returns the first address that the resolver returned for the host.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns true if the connections use TLS.
    pub fn has_tls(&self) -> bool {
        self.server_name.is_some()
    }

    /// Returns the name that the server's certificate must have, if the connections use TLS.
    pub(crate) fn server_name(&self) -> Option<&ServerName<'static>> {
        self.server_name.as_ref()
    }

    /// Returns host and port as the URL has them.
    pub fn authority(&self) -> &str {
        self.host.to_str().unwrap_or_default()
    }

    /// Returns the value of the `Host` header.
    pub(crate) fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// Returns the path prefix, without a trailing slash.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let not_http = || TargetError::NotHttp {
            text: text.to_owned(),
        };
        let uri: Uri = text.parse().map_err(|_| not_http())?;
        let authority = uri
            .authority()
            .filter(|_| matches!(uri.scheme_str(), Some("http" | "https")))
            .filter(|authority| !authority.as_str().contains('@'))
            .ok_or_else(not_http)?;
        if uri.query().is_some() {
            return Err(not_http());
        }
        let host = authority.host().trim_matches(['[', ']']);
        let (port, server_name) = match uri.scheme_str() {
            Some("https") => {
                let name = ServerName::try_from(host.to_owned());
                (443, Some(name.map_err(|_| not_http())?))
            }
            _ => (80, None),
        };
        let resolved = (host, authority.port_u16().unwrap_or(port)).to_socket_addrs();
        let unresolved = |source| TargetError::Unresolved {
            host: authority.to_string(),
            source,
        };
        let addr = resolved
            .map_err(unresolved)?
            .next()
            .ok_or_else(|| unresolved(std::io::ErrorKind::NotFound.into()))?;
        Ok(Self {
            text: text.to_owned(),
            server_name,
            addr,
            host: HeaderValue::from_str(authority.as_str()).map_err(|_| not_http())?,
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_an_http_url() {
        let target: Target = "http://127.0.0.1:8080"
            .parse()
            .expect("the target is valid");
        assert_eq!(target.addr(), SocketAddr::from(([127, 0, 0, 1], 8080)));
        assert_eq!(target.host(), "127.0.0.1:8080");
        assert_eq!(target.prefix(), "");
        let target: Target = "http://[::1]/a/b/".parse().expect("the target is valid");
        assert_eq!(target.addr().to_string(), "[::1]:80");
        assert_eq!(target.host(), "[::1]");
        assert_eq!(target.prefix(), "/a/b");
        assert!(!target.has_tls());
        let target: Target = "https://127.0.0.1".parse().expect("the target is valid");
        assert_eq!(target.addr().port(), 443);
        assert!(target.has_tls());
    }

    #[test]
    fn other_urls_are_rejected_with_a_hint() {
        for text in [
            "",
            "127.0.0.1:8080",
            "ftp://127.0.0.1",
            "/o/1",
            "http://u@127.0.0.1",
            "http://127.0.0.1/?x=1",
        ] {
            let error = Target::from_str(text).expect_err(text).to_string();
            assert!(error.contains("http://HOST:PORT"), "{error}");
        }
    }
}
