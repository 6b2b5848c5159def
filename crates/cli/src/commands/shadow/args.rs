//! The arguments of `shadow`, and the checked choices.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use edgeward_analysis::Field;
use edgeward_replay::load::{Stop, Target};
use edgeward_replay::shadow::ShadowPlan;
use edgeward_shadow::Settings;
use edgeward_types::ByteSize;

use crate::commands::analyze::json_field;
use crate::commands::flag_values::{address, duration};

/// Compare an edge with the cache that serves the clients
///
/// Reads the requests of the incumbent from its growing log, or receives them from nginx's mirror, sends them to the
/// edge under test and groups the differences by cause. No answer of the edge reaches a client. Only GET and HEAD are
/// sent. With --incumbent, the incumbent is asked, too, and heads and bodies are compared.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ShadowArgs {
    /// The log of the incumbent as it grows, or - for stdin
    #[arg(value_name = "LOG", required_unless_present = "mirror")]
    pub(super) source: Option<PathBuf>,

    /// The edge under test
    #[arg(long, value_name = "URL")]
    pub(super) edge: String,

    /// The incumbent, to compare heads and bodies
    #[arg(long, value_name = "URL")]
    pub(super) incumbent: Option<String>,

    /// Receive mirrored requests here; a log then shows hits
    ///
    /// nginx's `mirror` sends the requests with all fields. The lines of a log beside it are not sent again: they show
    /// the hits and the lifetimes of the incumbent.
    #[arg(long, value_name = "ADDR", value_parser = address, requires = "incumbent")]
    pub(super) mirror: Option<SocketAddr>,

    /// Format of the log if it is not detected
    ///
    /// A name or a format string, as for `edgeward analyze`: nginx's log_format, Apache's LogFormat or varnishncsa's
    /// -F.
    #[arg(long, value_name = "FORMAT")]
    pub(super) format: Option<String>,

    /// Names of custom JSON fields, as in url=req.path,status=code
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = json_field, hide_short_help = true)]
    pub(super) fields: Vec<(Field, String)>,

    /// The host of a log without hosts [default: that of --edge]
    #[arg(long, value_name = "HOST", hide_short_help = true)]
    pub(super) host: Option<String>,

    /// Begin at the first line of the log, not at its end
    #[arg(long, hide_short_help = true)]
    pub(super) from_start: bool,

    /// Stop at the end of the log instead of waiting for more
    #[arg(long, hide_short_help = true)]
    pub(super) until_end: bool,

    /// Keep the position in the log in this file, so that the next run continues
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(super) position: Option<PathBuf>,

    /// Stop after this time, as 10min or 1h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) duration: Option<Duration>,

    /// Share of the URLs, as 10%
    #[arg(long, value_name = "SHARE", default_value = "100%", value_parser = share)]
    pub(super) sample: f64,

    /// Requests per second of the edge to the origin, or none
    ///
    /// The edge states in Cache-Status if it asked the origin. Each request takes a place in the budget before it is
    /// sent, and a fresh hit gives it back. Without a free place, the requests of a log wait, and mirrored requests are
    /// dropped and counted.
    #[arg(long, value_name = "N", default_value = "50", value_parser = rate)]
    pub(super) origin_budget: Rate,

    /// Bytes per second of the edge from the origin [default: no limit]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    pub(super) origin_bytes: Option<ByteSize>,

    /// Requests per second to the incumbent, or none
    #[arg(long, value_name = "N", default_value = "20", value_parser = rate, hide_short_help = true)]
    pub(super) incumbent_rate: Rate,

    /// Send cookies and Authorization, too
    #[arg(long)]
    pub(super) with_credentials: bool,

    /// Fields of answers that are not compared, as in link,etag
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        hide_short_help = true
    )]
    pub(super) ignore: Vec<String>,

    /// Connections to each cache, each with one request at a time
    #[arg(long, value_name = "N", default_value = "8", hide_short_help = true)]
    pub(super) connections: NonZeroUsize,

    /// Requests that may wait for a connection
    #[arg(long, value_name = "N", default_value = "1024", hide_short_help = true)]
    pub(super) queue: NonZeroUsize,

    /// A request fails if no byte arrives for this long
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration, hide_short_help = true)]
    pub(super) timeout: Duration,

    /// PEM file of the CA of https URLs [default: the system's]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(super) ca: Option<PathBuf>,

    /// Write an HTML page
    #[arg(long, value_name = "FILE.html")]
    pub(super) report: Option<PathBuf>,

    /// Print one JSON document at the end
    #[arg(long)]
    pub(super) json: bool,
}

/// A rate per second; `None` for no limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate(Option<f64>);

impl ShadowArgs {
    /// Returns true if the lines come from stdin.
    pub(super) fn is_stdin(&self) -> bool {
        self.source
            .as_ref()
            .is_some_and(|path| path.as_os_str() == "-")
    }

    /// Returns the checked choices.
    pub(super) fn plan(&self, stop: Stop) -> anyhow::Result<ShadowPlan> {
        let target = |flag: &str, url: &str| -> anyhow::Result<Target> {
            url.parse().with_context(|| format!("{flag} {url}"))
        };
        let edge = target("--edge", &self.edge)?;
        let incumbent = self.incumbent.as_deref();
        let incumbent = incumbent
            .map(|url| target("--incumbent", url))
            .transpose()?;
        let has_tls = |target: &Target| target.has_tls();
        let tls = match has_tls(&edge) || incumbent.as_ref().is_some_and(has_tls) {
            true => {
                let tls = edgeward_filter_client::client_config(self.ca.as_deref());
                Some(Arc::new(tls.context("--ca")?))
            }
            false => None,
        };
        Ok(ShadowPlan {
            edge_tls: tls.clone().filter(|_| has_tls(&edge)),
            incumbent_tls: tls.filter(|_| incumbent.as_ref().is_some_and(has_tls)),
            edge,
            incumbent,
            incumbent_per_second: self.incumbent_rate.0,
            connections: self.connections,
            queue_max: self.queue,
            origin_per_second: self.origin_budget.0,
            origin_bytes_per_second: self.origin_bytes.map(|size| size.bytes() as f64),
            sample: self.sample,
            has_credentials: self.with_credentials,
            timeout: self.timeout.max(Duration::from_millis(1)),
            settings: Settings {
                ignored_fields: self
                    .ignore
                    .iter()
                    .map(|name| name.to_ascii_lowercase())
                    .collect(),
                has_log: self.source.is_some(),
            },
            stop,
        })
    }

    /// Returns the host of requests whose line has none.
    pub(super) fn default_host(&self, plan: &ShadowPlan) -> String {
        self.host
            .clone()
            .unwrap_or_else(|| plan.edge.authority().to_owned())
    }
}

/// Parses a rate such as `50` or `0.5`, or `none`.
fn rate(text: &str) -> Result<Rate, String> {
    if text == "none" {
        return Ok(Rate(None));
    }
    let number = text.parse().ok();
    let number = number.filter(|number: &f64| number.is_finite() && *number > 0.0);
    number
        .map(|number| Rate(Some(number)))
        .ok_or_else(|| format!("`{text}` is not a positive number or `none`"))
}

/// Parses a share such as `10%` or `0.1`.
fn share(text: &str) -> Result<f64, String> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse().map(|percent: f64| percent / 100.0),
        None => text.parse(),
    };
    number
        .ok()
        .filter(|share| *share > 0.0 && *share <= 1.0)
        .ok_or_else(|| format!("`{text}` is not a share above 0; write 10% or 0.1"))
}

const EXAMPLES: &str = "\
Exit codes: 0 no difference, 1 differences, 2 the comparison could not run.

Examples:
  edgeward shadow /var/log/nginx/access.log --edge http://127.0.0.1:8080 --duration 1h
  edgeward shadow /var/log/nginx/access.log --edge http://127.0.0.1:8080 \\
    --incumbent http://127.0.0.1:80 --position shadow.json --report shadow.html
  edgeward shadow --mirror 127.0.0.1:9999 --edge http://127.0.0.1:8080 --incumbent http://127.0.0.1:80
  varnishncsa -F '%h %l %u %t \"%r\" %s %b \"-\" \"%{User-agent}i\" %{Host}i %{Varnish:hitmiss}x' |
    edgeward shadow - --edge http://127.0.0.1:8080 \\
    --format '%h %l %u %t \"%r\" %s %b \"-\" \"%{User-agent}i\" %{Host}i %{Varnish:hitmiss}x'";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_positive_or_none() {
        assert!(matches!(rate("0.5"), Ok(Rate(Some(0.5)))));
        assert!(matches!(rate("none"), Ok(Rate(None))));
        for text in ["0", "-1", "inf", "nan", ""] {
            assert!(rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_share_is_above_zero_and_at_most_all() {
        assert_eq!(share("10%"), Ok(0.1));
        assert_eq!(share("1"), Ok(1.0));
        for text in ["0", "101%", "", "x"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
