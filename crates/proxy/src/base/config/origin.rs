//! The origin: where it is, what is spoken with it, how patiently, and how it is believed.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::base::dial::Dial;

/// Where misses go, and how patiently.
#[derive(Clone, Debug)]
pub struct OriginConfig {
    /// Scheme, host and port.
    pub url: OriginUrl,
    /// Default HTTP/1.1, which every origin speaks.
    pub protocol: OriginProtocol,
    /// From the first packet to a usable connection, TLS included. Default 5 s: three lost SYNs
    /// (1 + 2 s of waiting) and a slow handshake still fit.
    pub connect_timeout: Duration,
    /// From the request sent to the response's head. Default 60 s, as in nginx and Varnish: slow
    /// pages exist, and a shorter limit would break them.
    pub first_byte_timeout: Duration,
    /// How long the body of a request with `Expect: 100-continue` waits for the origin's `100 Continue`. Default 1 s: an
    /// origin that refuses by the head does so in less, and an origin that ignores the field costs an upload no more.
    pub expect_timeout: Duration,
    /// Longest silence within a response's body. Default 60 s.
    pub read_idle_timeout: Duration,
    /// Connections under way and idle, per worker. Default 512. Requests beyond wait for one.
    /// Lowered at the start to what the limit of open files leaves.
    pub connections_per_worker_max: NonZeroUsize,
    /// The share of a worker's connections, in percent, that one client address (IPv6: one /64) may have in use
    /// while no other address has any. Default 80: an address that holds all it may leaves a fifth for others, and one
    /// benchmark client or load balancer loses little. The more addresses hold connections, the less each may have;
    /// see `origin::queue`. 100 is no bound.
    pub client_share_percent: u32,
    /// The share of a worker's connections, in percent, that requests may hold whose body has not arrived: bodies of
    /// unknown length that stay incomplete for `limits.upload_buffer_wait`, and bodies announced with
    /// `Expect: 100-continue`. Default 50: other requests keep half of the connections. Beyond it such a body is buffered
    /// like a body of known length.
    pub unfinished_uploads_percent: u32,
    /// Requests of a worker that may wait for a connection. Default 1024, two for each connection. Beyond it the
    /// address with the most waiting requests gets a 503.
    pub queue_max: usize,
    /// Longest wait for a connection; then 503 with `Retry-After`. Default 5 s: longer, and clients have given up.
    pub queue_timeout: Duration,
    /// Idle connections kept, per worker. Default 256: enough for the misses of one core, few enough
    /// that an origin with a few hundred slots survives many edges.
    pub idle_per_worker_max: usize,
    /// How long an idle connection is trusted. Default 15 s: under the keep-alive of usual origins
    /// (nginx 75 s, Node 5 s is the exception, and its resets are retried).
    pub idle_timeout: Duration,
    /// Further tries after a pooled connection turned out dead, for requests that may be repeated
    /// (RFC 9110 §9.2.2). Default 2; the last is always on a new connection.
    pub retries_max: u32,
    /// How an `https` origin is believed.
    pub tls: OriginTls,
    /// The `Host` an origin sees. Default: none, which is [`HostPolicy::default_for`] the URL.
    pub host: Option<HostPolicy>,
    /// Who makes connections, where they are no TCP to the URL's host. Default: nobody.
    pub dial: Option<Arc<dyn Dial>>,
}

impl OriginConfig {
    /// Everything by default but the address.
    pub fn new(url: OriginUrl) -> Self {
        Self {
            url,
            protocol: OriginProtocol::Http1,
            connect_timeout: Duration::from_secs(5),
            first_byte_timeout: Duration::from_secs(60),
            expect_timeout: Duration::from_secs(1),
            read_idle_timeout: Duration::from_secs(60),
            connections_per_worker_max: NonZeroUsize::new(512).expect("512 is not zero"),
            client_share_percent: 80,
            unfinished_uploads_percent: 50,
            queue_max: 1024,
            queue_timeout: Duration::from_secs(5),
            idle_per_worker_max: 256,
            idle_timeout: Duration::from_secs(15),
            retries_max: 2,
            tls: OriginTls::default(),
            host: None,
            dial: None,
        }
    }

    /// The `Host` an origin sees.
    pub fn host_policy(&self) -> &HostPolicy {
        match &self.host {
            Some(policy) => policy,
            None => HostPolicy::default_for(&self.url),
        }
    }
}

/// What is spoken to the origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OriginProtocol {
    /// One request a connection at a time, connections kept.
    #[default]
    Http1,
    /// One connection a worker with many streams: by ALPN over TLS, by prior knowledge without.
    Http2,
}

/// How an `https` origin is believed.
#[derive(Clone, Debug)]
pub struct OriginTls {
    /// Default true. False takes any certificate, which leaves only protection from listeners that
    /// do not touch the traffic.
    pub verify: bool,
    /// PEM file of the roots to trust. Default: the system's.
    pub roots: Option<PathBuf>,
    /// The name to ask for and to check. Default: the host in the URL.
    pub server_name: Option<String>,
}

impl Default for OriginTls {
    fn default() -> Self {
        Self {
            verify: true,
            roots: None,
            server_name: None,
        }
    }
}

/// The `Host` an origin sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPolicy {
    /// What the client asked for. Origins that serve several names need it, and redirects built from `Host` stay on
    /// the edge.
    Forward,
    /// Host and port of the origin's URL.
    Origin,
    /// Always this.
    Fixed(String),
}

impl HostPolicy {
    /// The default for an origin at `url`.
    ///
    /// An `https` origin by name is a server that finds its site by `Host` and refuses names that its certificate does not
    /// have (421), so it gets its own name. An `http` origin, or one by address, is a server of the operator's own, which
    /// serves the names that clients ask for.
    pub fn default_for(url: &OriginUrl) -> &'static Self {
        if url.tls && url.host.parse::<IpAddr>().is_err() {
            &Self::Origin
        } else {
            &Self::Forward
        }
    }
}

/// Scheme, host and port of an origin, from a URL such as `http://10.0.0.7:9000`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginUrl {
    /// `https` rather than `http`.
    pub tls: bool,
    /// A name or an address; IPv6 without its brackets.
    pub host: String,
    /// As written, or 80 or 443.
    pub port: u16,
}

impl OriginUrl {
    /// Host and port as `Host` carries them: without the port where it is the scheme's own.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        if self.port == self.default_port() {
            host
        } else {
            format!("{host}:{}", self.port)
        }
    }

    const fn default_port(&self) -> u16 {
        if self.tls { 443 } else { 80 }
    }
}

impl std::fmt::Display for OriginUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

impl FromStr for OriginUrl {
    type Err = ParseOriginUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |problem| ParseOriginUrlError {
            text: text.to_owned(),
            problem,
        };
        let uri: http::Uri = text.parse().map_err(|_| error(UrlProblem::Syntax))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(error(UrlProblem::Scheme)),
        };
        let authority = uri.authority().ok_or_else(|| error(UrlProblem::Syntax))?;
        if authority.as_str().contains('@') {
            return Err(error(UrlProblem::User));
        }
        if uri.path() != "/" || uri.query().is_some() {
            return Err(error(UrlProblem::Path));
        }
        let port = match authority.port() {
            Some(port) if port.as_u16() == 0 => return Err(error(UrlProblem::Syntax)),
            Some(port) => port.as_u16(),
            None if tls => 443,
            None => 80,
        };
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(error(UrlProblem::Syntax));
        }
        Ok(Self { tls, host, port })
    }
}

/// Why a text is not an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseOriginUrlError {
    text: String,
    problem: UrlProblem,
}

impl std::fmt::Display for ParseOriginUrlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = &self.text;
        match self.problem {
            UrlProblem::Syntax => {
                write!(f, "`{text}` is not a URL; write http://HOST:PORT")
            }
            UrlProblem::Scheme => {
                write!(
                    f,
                    "`{text}` has no known scheme; start with http:// or https://"
                )
            }
            UrlProblem::User => write!(
                f,
                "`{text}` carries a user name; an edge adds no credentials, so leave out what is before the @"
            ),
            UrlProblem::Path => write!(
                f,
                "`{text}` has a path; requests keep their own, so end after the host and port"
            ),
        }
    }
}

impl std::error::Error for ParseOriginUrlError {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UrlProblem {
    Syntax,
    Scheme,
    User,
    Path,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_scheme_a_host_and_a_port() {
        for (text, shown, port) in [
            ("http://127.0.0.1:9000", "http://127.0.0.1:9000", 9000),
            ("http://example.com", "http://example.com", 80),
            ("https://example.com/", "https://example.com", 443),
            ("http://[::1]:8080", "http://[::1]:8080", 8080),
        ] {
            let url: OriginUrl = text.parse().expect(text);
            assert_eq!((url.to_string().as_str(), url.port), (shown, port));
        }
    }

    #[test]
    fn what_is_no_origin_is_refused_with_the_way_out() {
        for (text, hint) in [
            ("example.com:80", "http://"),
            ("ftp://example.com", "scheme"),
            ("http://user@example.com", "@"),
            ("http://example.com/site", "path"),
            ("http://example.com/?a", "path"),
            ("", "http://"),
        ] {
            let message = text.parse::<OriginUrl>().expect_err(text).to_string();
            assert!(message.contains(hint), "{text}: {message}");
        }
    }
}
