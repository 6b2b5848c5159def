//! The configuration of a filter client.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use edgeward_filter::client::ClockFn;
use edgeward_filter::{IdForm, Trust};
use http::Uri;

use crate::clock::system_clock;

/// The configuration of a [`FilterClient`](crate::FilterClient): the set to follow, the trusted keys, and limits.
#[derive(Clone)]
pub struct FilterConfig {
    /// The URL of the set's manifest.
    pub url: PublisherUrl,
    /// Decides which manifests and proofs of freshness the client accepts: those signed with given keys, or all.
    pub trust: Trust,
    /// The client never answers `Absent` for an id that was committed longer ago than this.
    pub max_staleness: Duration,
    /// The expected form of the ids: text, UUIDs or integers. A filter of another form is not used.
    /// Default: any form.
    pub form: Option<IdForm>,
    /// The largest difference between this machine's wall clock and the publisher's, if the operator guarantees
    /// one.
    ///
    /// If set, the client relies on the date of a manifest, and any cache may serve the manifest. If `None`, each
    /// request for the manifest has a challenge that only the publisher can answer.
    pub clock_error: Option<Duration>,
    /// A PEM file of root certificates for an `https` publisher. Default: the root certificates of the system.
    pub roots: Option<PathBuf>,
    /// A folder that keeps the newest snapshot over restarts. Default: no folder; the client fetches the snapshot
    /// after each start.
    pub snapshot_folder: Option<PathBuf>,
    /// Larger snapshots are refused before they are fetched. Default 1 GiB.
    pub snapshot_bytes_max: u64,
    /// The largest number of ids in the overlay: the ids that were added after the snapshot. Default 2²⁰.
    pub overlay_ids_max: usize,
    /// The timeout for connecting, including TLS. Default 5 s.
    pub connect_timeout: Duration,
    /// The timeout for the head of a response and for each further part of its body. Default 10 s.
    pub silence_max: Duration,
    /// Reads the clocks.
    pub clock: ClockFn,
}

impl FilterConfig {
    /// Returns a configuration for the set at `url`. The fields that are not parameters get their defaults.
    pub fn new(url: PublisherUrl, trust: Trust, max_staleness: Duration) -> Self {
        Self {
            url,
            trust,
            max_staleness,
            form: None,
            clock_error: None,
            roots: None,
            snapshot_folder: None,
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

/// The URL of a published set, such as `https://ids.example/sets/resource`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublisherUrl {
    pub(crate) tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The value of the `Host` field.
    pub(crate) authority: String,
    /// The path without a trailing slash.
    pub(crate) path: String,
}

impl PublisherUrl {
    /// The set's name: the last part of the path.
    pub fn set(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// Returns true if the connection is protected by TLS.
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

/// The text is not the URL of a published set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a publisher's URL; write http://HOST:PORT/sets/NAME or https://HOST/sets/NAME")]
pub struct ParseUrlError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_contains_the_name_of_a_set() {
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
