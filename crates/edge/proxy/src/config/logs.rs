//! The access log and the export of traces.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use super::log_template::LogTemplate;
use super::origin_url::OriginUrl;

/// The access log.
#[derive(Clone, Debug)]
pub struct AccessLogConfig {
    /// A file that is appended to, standard output, or a daemon.
    pub destination: LogDestination,
    /// One JSON object per line, NCSA combined, or a format string.
    pub format: LogFormat,
    /// Lines per worker that may wait to be written. Default 8192: the lines of a third of a second at full speed.
    /// Further lines are dropped and counted, because a slow disk must not slow requests.
    pub queue_lines_max: NonZeroUsize,
}

impl AccessLogConfig {
    /// Returns a log with the default length of the queue.
    pub fn new(destination: LogDestination, format: LogFormat) -> Self {
        Self {
            destination,
            format,
            queue_lines_max: NonZeroUsize::new(8192).expect("8192 is not zero"),
        }
    }
}

/// The export of traces by OTLP over HTTP.
#[derive(Clone, Debug)]
pub struct TracingConfig {
    /// The collector, which gets spans at the path `/v1/traces`.
    pub endpoint: OriginUrl,
    /// The share of requests that is sampled. Default 0.01: enough to see where time is spent, and few enough that a
    /// collector gets 2000 requests per second from an edge that serves 200 000.
    pub sample: f64,
    /// The clients whose sampled flag in `traceparent` decides.
    pub sampled_flag: SampledFlag,
    /// Sampled requests per worker that may wait for the export. Default 2048, about 1 MB: one percent of 200 000
    /// requests per second, for a second. Further requests are dropped and counted.
    pub queue_requests_max: NonZeroUsize,
}

impl TracingConfig {
    /// Returns the default settings for a collector.
    pub fn new(endpoint: OriginUrl) -> Self {
        Self {
            endpoint,
            sample: 0.01,
            sampled_flag: SampledFlag::default(),
            queue_requests_max: NonZeroUsize::new(2048).expect("2048 is not zero"),
        }
    }
}

/// The clients whose sampled flag decides whether a request is sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SampledFlag {
    /// `forwarding.trusted_proxies`. The default, because any other client could have all its requests sampled.
    #[default]
    Trusted,
    /// All clients, for an edge that only own services reach.
    Always,
    /// No client.
    Never,
}

/// The destination of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogDestination {
    /// Standard output, `-` on the command line.
    Stdout,
    /// A file, created if it does not exist.
    File(PathBuf),
    /// A syslog server, which gets messages of RFC 5424.
    Syslog(SyslogServer),
    /// The socket of systemd's journal, usually [`JOURNALD_SOCKET`].
    Journald(PathBuf),
}

/// The socket of systemd's journal (systemd.io/JOURNAL_NATIVE_PROTOCOL).
pub const JOURNALD_SOCKET: &str = "/run/systemd/journal/socket";

/// The address of a syslog server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyslogServer {
    /// A unix datagram socket, usually `/dev/log`.
    Unix(PathBuf),
    /// An address that receives UDP datagrams (RFC 5426), usually with port 514.
    Udp(SocketAddr),
}

impl std::str::FromStr for SyslogServer {
    type Err = InvalidSyslogServer;

    fn from_str(text: &str) -> Result<Self, InvalidSyslogServer> {
        match text.split_once(':') {
            Some(("unix", path)) if path.starts_with('/') => Ok(Self::Unix(path.into())),
            Some(("udp", addr)) => addr.parse().map(Self::Udp).map_err(|_| InvalidSyslogServer),
            _ => Err(InvalidSyslogServer),
        }
    }
}

impl std::fmt::Display for SyslogServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Udp(addr) => write!(f, "udp:{addr}"),
        }
    }
}

/// The error for a text that is not the address of a syslog server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not the address of a syslog server; write \"unix:/dev/log\" or \"udp:192.0.2.1:514\"")]
pub struct InvalidSyslogServer;

/// The format of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// A JSON object with a member for each field.
    #[default]
    Json,
    /// NCSA combined, which log analysers read.
    Combined,
    /// NCSA combined, followed by the outcome of the cache: the value of the member `cache` in the JSON format.
    CombinedCache,
    /// A format string with the variables of nginx.
    Template(LogTemplate),
}
