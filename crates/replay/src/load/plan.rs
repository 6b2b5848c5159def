//! What a replay is to do, checked and with every default filled in.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::{NonZeroU64, NonZeroUsize};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::header::HeaderValue;

use super::live::LiveCounts;
use super::stop::Stop;

/// A replay.
#[derive(Clone, Debug)]
pub struct ReplayPlan {
    /// What the report calls the trace.
    pub trace: String,

    /// Where the requests go.
    pub target: Target,

    /// Connections kept open, each with one request at a time. 32 by default.
    pub connections: NonZeroUsize,

    /// Threads the connections are spread over; never more than connections. One by
    /// default: it drives about 50 000 small requests a second, and the target needs cores, too.
    pub workers: NonZeroUsize,

    /// When requests are sent.
    pub pacing: Pacing,

    /// Ends after so many requests, if the trace has as many.
    pub requests_max: Option<NonZeroU64>,

    /// Leaves out requests for larger objects.
    pub size_bytes_max: Option<u64>,

    /// The first so many requests are sent but not counted: they fill the cache.
    pub warmup_requests: u64,

    /// Gives an object that changes its size within the trace the size it came with first,
    /// as simulations do. On by default: the size is part of the URL, so another size would
    /// be another object.
    pub settle_sizes: bool,

    /// How far away the client is: each request waits so long before it is sent, and its latency
    /// holds that. Nothing by default. A round trip a request, as on a connection that is kept;
    /// what a long body would wait for on a narrow line is not emulated.
    pub round_trip: Duration,

    /// A request during which nothing arrives for so long has failed. 30 seconds by default.
    pub timeout: Duration,

    /// Stops after so many requests in a row failed. 1000 by default.
    pub failures_in_a_row_max: NonZeroU64,

    /// The process to watch.
    pub pid: Option<u32>,

    /// A page of the target to fetch with every sample, such as its `/status`.
    pub status: Option<Target>,

    /// Time between two samples. One second by default.
    pub sample_interval: Duration,

    /// Counts up while the replay runs, for whoever shows progress.
    pub live: Arc<LiveCounts>,

    /// Ends the replay early when asked to.
    pub stop: Stop,
}

impl ReplayPlan {
    /// A closed loop of 32 connections from one worker.
    pub fn new(trace: impl Into<String>, target: Target) -> Self {
        Self {
            trace: trace.into(),
            target,
            connections: NonZeroUsize::new(32).expect("not zero"),
            workers: NonZeroUsize::MIN,
            pacing: Pacing::Closed,
            requests_max: None,
            size_bytes_max: None,
            warmup_requests: 0,
            settle_sizes: true,
            round_trip: Duration::ZERO,
            timeout: Duration::from_secs(30),
            failures_in_a_row_max: NonZeroU64::new(1000).expect("not zero"),
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

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pacing {
    /// A connection sends its next request once it has the answer to the last.
    Closed,
    /// So many requests a second, evenly spaced.
    Rate(f64),
    /// At the trace's own times, so many times as fast.
    TraceTime {
        /// How many seconds of the trace pass in one of ours.
        speedup: f64,
    },
}

/// Where requests go: `http://HOST[:PORT][/PREFIX]`, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    text: String,
    addr: SocketAddr,
    host: HeaderValue,
    prefix: String,
}

/// Why a text is not a target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// It is no URL, or one of another kind.
    #[error("`{text}` is not a target: write http://HOST:PORT")]
    NotHttp {
        /// What was given.
        text: String,
    },
    /// The name has no address.
    #[error("`{host}` has no address")]
    Unresolved {
        /// The name and port.
        host: String,
        /// Why.
        source: std::io::Error,
    },
}

impl Target {
    /// The address behind the name: the first one the resolver gave.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The `Host` to send.
    pub(crate) fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// The path, without a slash at the end.
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
            .filter(|_| uri.scheme_str() == Some("http"))
            .filter(|authority| !authority.as_str().contains('@'))
            .ok_or_else(not_http)?;
        if uri.query().is_some() {
            return Err(not_http());
        }
        let host = authority.host().trim_matches(['[', ']']);
        let resolved = (host, authority.port_u16().unwrap_or(80)).to_socket_addrs();
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
    fn a_target_is_a_plain_http_url() {
        let target: Target = "http://127.0.0.1:8080".parse().expect("a target");
        assert_eq!(target.addr(), SocketAddr::from(([127, 0, 0, 1], 8080)));
        assert_eq!(target.host(), "127.0.0.1:8080");
        assert_eq!(target.prefix(), "");
        let target: Target = "http://[::1]/a/b/".parse().expect("a target");
        assert_eq!(target.addr().to_string(), "[::1]:80");
        assert_eq!(target.host(), "[::1]");
        assert_eq!(target.prefix(), "/a/b");
    }

    #[test]
    fn what_is_not_plain_http_is_refused_with_the_way_out() {
        for text in [
            "",
            "127.0.0.1:8080",
            "https://127.0.0.1",
            "/o/1",
            "http://u@127.0.0.1",
            "http://127.0.0.1/?x=1",
        ] {
            let error = Target::from_str(text).expect_err(text).to_string();
            assert!(error.contains("http://HOST:PORT"), "{error}");
        }
    }
}
