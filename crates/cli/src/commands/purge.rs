//! `edgeward purge`: sends a request to the purge API of a running edge.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use serde_json::{Value, json};

use crate::diagnostic::Diagnostic;
use crate::output;

/// Remove responses from the cache of a running edge
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct PurgeArgs {
    /// URLs, with all their variants
    #[arg(value_name = "URL")]
    urls: Vec<String>,

    /// A member of Surrogate-Key, xkey, Cache-Tag or Cache-Groups; repeatable
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,

    /// All URLs of a host; repeatable
    #[arg(long = "host", value_name = "HOST[:PORT]")]
    hosts: Vec<String>,

    /// All URLs that start with HOST/PATH; repeatable
    #[arg(long = "prefix", value_name = "PREFIX")]
    prefixes: Vec<String>,

    /// All URLs that match; `*` stands for any text; repeatable
    #[arg(long = "pattern", value_name = "PATTERN")]
    patterns: Vec<String>,

    /// Serve the responses until they are revalidated in the background
    #[arg(long)]
    soft: bool,

    /// Only count the responses that the purge would cover
    #[arg(long)]
    dry_run: bool,

    /// The edge's admin address, HOST:PORT
    #[arg(long, value_name = "ADDR")]
    admin: String,

    /// File with the token of purge.token_file
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,

    /// Print the response as JSON
    #[arg(long)]
    json: bool,
}

/// Sends the request and prints the response.
pub(crate) fn run(args: &PurgeArgs) -> anyhow::Result<ExitCode> {
    let token = std::fs::read_to_string(&args.token_file)
        .map_err(|error| Diagnostic::unreadable(&args.token_file, "cannot read", &error))?;
    let scopes = [
        &args.urls,
        &args.tags,
        &args.hosts,
        &args.prefixes,
        &args.patterns,
    ];
    if scopes.iter().all(|scopes| scopes.is_empty()) {
        return Err(Diagnostic::new("the command does not say what to purge")
            .hint("give a URL, --tag, --host, --prefix or --pattern")
            .into());
    }
    let request = json!({
        "urls": args.urls,
        "tags": args.tags,
        "hosts": args.hosts,
        "prefixes": args.prefixes,
        "patterns": args.patterns,
        "soft": args.soft,
        "dry_run": args.dry_run,
    });
    let addr = args
        .admin
        .trim_start_matches("http://")
        .trim_end_matches('/');
    let answer = send(addr, token.trim(), &request.to_string())
        .map_err(|error| Diagnostic::new(format!("{addr} did not purge: {error:#}")))?;
    let mut out = output::stdout();
    if args.json {
        writeln!(out, "{answer}")?;
    } else if args.dry_run {
        writeln!(
            out,
            "the purge would cover {} responses in memory and {} on disk",
            answer["memory_objects"], answer["disk_objects"]
        )?;
    } else {
        writeln!(out, "purged")?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn send(addr: &str, token: &str, body: &str) -> anyhow::Result<Value> {
    let mut tcp = TcpStream::connect(addr)?;
    tcp.set_read_timeout(Some(TIMEOUT))?;
    tcp.set_write_timeout(Some(TIMEOUT))?;
    // A response over HTTP/1.0 is not chunked, and its body ends when the server closes the connection.
    write!(
        tcp,
        "POST /purge HTTP/1.0\r\nHost: {addr}\r\nAuthorization: Bearer {token}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut bytes = Vec::new();
    tcp.take(RESPONSE_BYTES_MAX).read_to_end(&mut bytes)?;
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.context("the response is not HTTP")?;
    let head = String::from_utf8_lossy(&bytes[..end]);
    let status_line = head.lines().next().unwrap_or_default();
    let answer: Value = serde_json::from_slice(&bytes[end + 4..])
        .with_context(|| format!("the server has no purge API: {status_line}"))?;
    if let Some(error) = answer["error"].as_str() {
        anyhow::bail!("{error}");
    }
    anyhow::ensure!(head.split(' ').nth(1) == Some("200"), "{status_line}");
    Ok(answer)
}

/// The longest wait for the edge. A dry run reads the heads of all responses on disk.
const TIMEOUT: Duration = Duration::from_secs(600);

const RESPONSE_BYTES_MAX: u64 = 1 << 20;

const EXAMPLES: &str = "\
Examples:
  edgeward purge --admin 127.0.0.1:9101 --token-file token https://shop.example/cart
  edgeward purge --admin 127.0.0.1:9101 --token-file token --tag product-17 --soft
  edgeward purge --admin 127.0.0.1:9101 --token-file token --pattern '*.example/*.css' --dry-run";
