//! What a client is told, with every default filled in.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use edgeward_filter::client::ClockFn;
use edgeward_filter::{IdForm, Trust};
use http::Uri;

use crate::clock::system_clock;

/// Which set to follow, whom to believe, and how old an answer may be.
#[derive(Clone)]
pub struct FilterConfig {
    /// The set's manifest.
    pub url: PublisherUrl,
    /// Whom manifests and proofs are believed of.
    pub trust: Trust,
    /// An id that was committed longer ago than this is never skipped.
    pub max_staleness: Duration,
    /// What the ids have to be; a filter of others is not asked. Default: whatever it says.
    pub form: Option<IdForm>,
    /// How far this machine's wall clock and the publisher's can be apart, if somebody answers for that.
    ///
    /// Then manifests are believed by their date and fetched as any file, out of whatever cache is
    /// nearest. Without it each is asked for with a challenge that only the publisher can answer.
    pub clock_error: Option<Duration>,
    /// PEM file of the roots to trust with an `https` publisher. Default: the system's.
    pub roots: Option<PathBuf>,
    /// A folder in which the newest snapshot is kept over restarts. Default: none, and it is fetched
    /// again.
    pub keep: Option<PathBuf>,
    /// Snapshots above this size are refused before they are fetched. Default 1 GiB.
    pub snapshot_bytes_max: u64,
    /// Added ids kept beside the snapshot. Default 2²⁰.
    pub overlay_ids_max: usize,
    /// For a connection, TLS included. Default 5 s.
    pub connect_timeout: Duration,
    /// For an answer to begin, and between two of its pieces. Default 10 s.
    pub silence_max: Duration,
    /// Tells the time.
    pub clock: ClockFn,
}

impl FilterConfig {
    /// Follows the set at `url`, all else by default.
    pub fn new(url: PublisherUrl, trust: Trust, max_staleness: Duration) -> Self {
        Self {
            url,
            trust,
            max_staleness,
            form: None,
            clock_error: None,
            roots: None,
            keep: None,
            snapshot_bytes_max: 1 << 30,
            overlay_ids_max: 1 << 20,
            connect_timeout: Duration::from_secs(5),
            silence_max: Duration::from_secs(10),
            clock: system_clock(),
        }
    }
}

impl fmt::Debug for FilterConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilterConfig")
            .field("url", &self.url)
            .field("max_staleness", &self.max_staleness)
            .finish_non_exhaustive()
    }
}

/// Where a set is published, such as `https://ids.example/sets/resource`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublisherUrl {
    pub(crate) tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// As `Host` has it.
    pub(crate) authority: String,
    /// Without a slash at its end.
    pub(crate) path: String,
}

impl PublisherUrl {
    /// The set's name: the last part of the path.
    pub fn set(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// Whether what comes is protected by TLS.
    pub fn is_https(&self) -> bool {
        self.tls
    }
}

impl fmt::Display for PublisherUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.path)
    }
}

impl FromStr for PublisherUrl {
    type Err = ParseUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let uri: Uri = text.parse().map_err(|_| ParseUrlError)?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(ParseUrlError),
        };
        let authority = uri.authority().ok_or(ParseUrlError)?;
        let path = uri.path().trim_end_matches('/');
        let bare = uri.query().is_none() && !authority.as_str().contains('@');
        if !bare || path.is_empty() || authority.host().is_empty() {
            return Err(ParseUrlError);
        }
        Ok(Self {
            tls,
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            authority: authority.as_str().to_owned(),
            path: path.to_owned(),
        })
    }
}

/// The text is no publisher's URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write http://HOST:PORT/sets/NAME or https://HOST/sets/NAME")]
pub struct ParseUrlError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_set() {
        let url: PublisherUrl = "https://ids.example/cdn/sets/resource/"
            .parse()
            .expect("a URL");
        assert_eq!((url.set(), url.port, url.tls), ("resource", 443, true));
        assert_eq!(url.to_string(), "https://ids.example/cdn/sets/resource");
        let url: PublisherUrl = "http://[::1]:8090/sets/a".parse().expect("a URL");
        assert_eq!((url.host.as_str(), url.port), ("::1", 8090));
        for wrong in [
            "",
            "resource.ids",
            "ftp://a/b",
            "http://a",
            "http://a/",
            "http://a/b?c",
            "http://u@a/b",
        ] {
            assert!(wrong.parse::<PublisherUrl>().is_err(), "{wrong}");
        }
    }
}
