//! `edgeward origin`: runs a synthetic origin until a signal stops it.

use std::io::Write as _;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde_json::json;

use edgeward_replay::origin::{OBJECT_BYTES_MAX, OriginConfig, OriginCounts, SyntheticOrigin};
use edgeward_types::{ByteSize, Seed};

use super::flag_values::{address, duration};
use crate::output;

/// Serve synthetic objects of any size: /o/ID?size=BYTES
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct OriginArgs {
    /// Address to listen on; port 0 selects a free port
    #[arg(long, default_value = "127.0.0.1:9000", value_parser = address, value_name = "ADDR")]
    listen: SocketAddr,

    /// Time before each response, such as 20ms
    #[arg(long, default_value = "0ms", value_parser = duration, value_name = "TIME")]
    latency: Duration,

    /// Maximum random deviation from the latency
    #[arg(long, default_value = "0ms", value_parser = duration, value_name = "TIME")]
    jitter: Duration,

    /// Fraction of requests that get an error
    #[arg(long, default_value_t = 0.0, value_parser = share, value_name = "SHARE")]
    error_rate: f64,

    /// Status code of errors
    #[arg(
        long,
        default_value_t = 503,
        value_parser = clap::value_parser!(u16).range(400..=599),
        value_name = "STATUS",
        hide_short_help = true
    )]
    error_status: u16,

    /// Cache-Control of every object; omitted if empty
    #[arg(long, default_value = "max-age=86400", value_name = "VALUE")]
    cache_control: String,

    /// Send an ETag and answer conditional requests
    #[arg(long)]
    etag: bool,

    /// Send Last-Modified and answer conditional requests
    #[arg(long)]
    last_modified: bool,

    /// Additional header field, as "Name: value"; repeatable
    #[arg(long = "header", value_parser = header, value_name = "LINE")]
    headers: Vec<(http::HeaderName, http::HeaderValue)>,

    /// Threads, each with its own listener
    #[arg(long, default_value = "1", value_name = "N")]
    workers: NonZeroUsize,

    /// Largest size that a request may name
    #[arg(long, default_value_t = ByteSize(OBJECT_BYTES_MAX), value_name = "SIZE", hide_short_help = true)]
    max_size: ByteSize,

    /// Maximum of open connections; further ones wait
    #[arg(
        long,
        default_value = "16384",
        value_name = "N",
        hide_short_help = true
    )]
    max_connections: NonZeroUsize,

    /// Seed of the random jitter and errors
    #[arg(long, default_value_t = 1, hide_short_help = true)]
    seed: u64,

    /// Print the address and the final counts as lines of JSON
    #[arg(long)]
    json: bool,
}

/// Serves until SIGINT or SIGTERM arrives, then prints the counts of requests and responses.
pub(crate) fn run(args: OriginArgs) -> anyhow::Result<ExitCode> {
    let json = args.json;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // The signals are handled before the address is printed, because its reader may send a signal immediately.
    let stopped = {
        let _entered = runtime.enter();
        stop_signal()?
    };
    let origin = SyntheticOrigin::start(args.config()?)?;
    let addr = origin.addr();
    if json {
        output::print_json_line(&json!({ "listen": addr }))?;
    } else {
        eprintln!("objects at http://{addr}/o/ID?size=BYTES, counts at http://{addr}/status");
    }
    runtime.block_on(stopped);
    let stats = origin.stats();
    origin.shutdown();
    let counts = stats.counts();
    if json {
        output::print_json_line(&counts)?;
    } else {
        print(&counts)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl OriginArgs {
    fn config(self) -> anyhow::Result<OriginConfig> {
        let cache_control = match self.cache_control.as_str() {
            "" => None,
            text => Some(
                text.parse()
                    .with_context(|| format!("--cache-control {text:?} is not a header value"))?,
            ),
        };
        Ok(OriginConfig {
            listen: self.listen,
            workers: self.workers,
            latency: self.latency,
            jitter: self.jitter,
            error_rate: self.error_rate,
            error_status: self.error_status.try_into()?,
            cache_control,
            etag: self.etag,
            last_modified: self.last_modified,
            headers: self.headers,
            size_bytes_max: self.max_size.bytes().min(OBJECT_BYTES_MAX),
            connections_max: self.max_connections,
            seed: Seed(self.seed),
        })
    }
}

/// Returns a future that completes at SIGINT or SIGTERM.
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

fn print(counts: &OriginCounts) -> anyhow::Result<()> {
    let mut out = output::stdout();
    writeln!(
        out,
        "{} requests on {} connections, {} of bodies sent, {} partial responses, {} not modified, \
         {} random errors, {} rejected requests",
        output::count(counts.requests),
        output::count(counts.connections),
        ByteSize(counts.body_bytes),
        output::count(counts.partial),
        output::count(counts.not_modified),
        output::count(counts.errors),
        output::count(counts.refused),
    )?;
    out.flush()?;
    Ok(())
}

/// Parses a fraction such as `0.01` or `1%`.
fn share(text: &str) -> Result<f64, String> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse().map(|percent: f64| percent / 100.0),
        None => text.parse(),
    };
    number
        .ok()
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("`{text}` is not a fraction; write 0.01 or 1%"))
}

fn header(text: &str) -> Result<(http::HeaderName, http::HeaderValue), String> {
    let invalid = || format!("`{text}` is not a header line; write \"Name: value\"");
    let (name, value) = text.split_once(':').ok_or_else(invalid)?;
    let name: http::HeaderName = name.trim().parse().map_err(|_| invalid())?;
    // Spaces and tabs around a value are not part of the value (RFC 9110 §5.5).
    let value = value
        .trim_matches([' ', '\t'])
        .parse()
        .map_err(|_| invalid())?;
    if ["content-length", "transfer-encoding", "connection"].contains(&name.as_str()) {
        return Err(format!("{name} is set by the origin itself"));
    }
    Ok((name, value))
}

const EXAMPLES: &str = "\
Examples:
  edgeward origin
  edgeward origin --listen 127.0.0.1:9000 --latency 20ms --jitter 5ms --error-rate 1%
  curl -r 0-99 'http://127.0.0.1:9000/o/42?size=1000000'

Each byte is a function of the object's id and the byte's offset.
Parameters of the query change the response:
  cc=VALUE        another Cache-Control (percent-encoded; empty for none)
  ct=TYPE         Content-Type
  vary=FIELDS     Vary
  h=Name:value    any header, up to sixteen times
  status=CODE     another status
  chunked=1       no Content-Length
  delay=MS        milliseconds before the response, at most 600000";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_may_be_percentages() {
        for (text, expected) in [("0", 0.0), ("0.01", 0.01), ("1%", 0.01), ("100 %", 1.0)] {
            assert_eq!(share(text), Ok(expected), "{text}");
        }
        for text in ["", "2", "-1%", "101%", "nan"] {
            assert!(share(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_header_line_is_a_name_and_a_value() {
        let (name, value) = header("X-Site: a:b ").expect("a header line");
        assert_eq!((name.as_str(), value.as_bytes()), ("x-site", &b"a:b"[..]));
        for text in ["", "X-Site", "a b: c", "X: \n", "Content-Length: 5"] {
            assert!(header(text).is_err(), "{text:?}");
        }
    }
}
