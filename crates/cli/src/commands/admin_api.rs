//! Requests of commands to the admin server of a running edge.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use serde_json::Value;

use crate::diagnostic::Diagnostic;

/// The admin server of a running edge, and the token that it requires.
#[derive(Args, Debug)]
pub(crate) struct AdminApi {
    /// The edge's admin address, HOST:PORT
    #[arg(long, value_name = "ADDR")]
    admin: String,

    /// File with a token of the edge: of admin.token or purge.token_file
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
}

impl AdminApi {
    /// Sends a POST with a body in JSON and returns the response. `action` completes the message "ADDR did not …".
    pub(crate) fn post(&self, path: &str, body: &Value, action: &str) -> anyhow::Result<Value> {
        let token = std::fs::read_to_string(&self.token_file)
            .map_err(|error| Diagnostic::unreadable(&self.token_file, "cannot read", &error))?;
        let addr = self
            .admin
            .trim_start_matches("http://")
            .trim_end_matches('/');
        send(addr, path, token.trim(), &body.to_string())
            .map_err(|error| Diagnostic::new(format!("{addr} did not {action}: {error:#}")).into())
    }
}

fn send(addr: &str, path: &str, token: &str, body: &str) -> anyhow::Result<Value> {
    let mut tcp = TcpStream::connect(addr)?;
    tcp.set_read_timeout(Some(TIMEOUT))?;
    tcp.set_write_timeout(Some(TIMEOUT))?;
    // A response over HTTP/1.0 is not chunked, and its body ends when the server closes the connection.
    write!(
        tcp,
        "POST {path} HTTP/1.0\r\nHost: {addr}\r\nAuthorization: Bearer {token}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut bytes = Vec::new();
    tcp.take(RESPONSE_BYTES_MAX).read_to_end(&mut bytes)?;
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.context("the response is not HTTP")?;
    let head = String::from_utf8_lossy(&bytes[..end]);
    let status_line = head.lines().next().unwrap_or_default();
    let answer: Value = serde_json::from_slice(&bytes[end + 4..])
        .with_context(|| format!("the server has no such API: {status_line}"))?;
    if let Some(error) = answer["error"].as_str() {
        anyhow::bail!("{error}");
    }
    anyhow::ensure!(head.split(' ').nth(1) == Some("200"), "{status_line}");
    Ok(answer)
}

/// The longest wait for the edge. Some requests read the heads of all responses on disk.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The largest response. A list of variants may be long.
const RESPONSE_BYTES_MAX: u64 = 64 << 20;
