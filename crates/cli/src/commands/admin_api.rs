//! Requests of commands to the admin server of a running edge.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use rustls_pki_types::ServerName;
use serde_json::Value;

use crate::diagnostic::Diagnostic;

/// The admin server of a running edge, and the token that it requires.
#[derive(Args, Debug)]
pub(crate) struct AdminApi {
    /// The edge's admin server: HOST:PORT, https://HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADDR")]
    admin: String,

    /// PEM file of the CA of the admin server [default: the system's]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    admin_ca: Option<PathBuf>,

    /// File with a token of the edge: of admin.token or purge.token_file
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
}

impl AdminApi {
    /// Sends a POST with a body in JSON and returns the response. `action` completes the message "ADDR did not …".
    pub(crate) fn post(&self, path: &str, body: &Value, action: &str) -> anyhow::Result<Value> {
        let token = std::fs::read_to_string(&self.token_file)
            .map_err(|error| Diagnostic::unreadable(&self.token_file, "cannot read", &error))?;
        self.send(path, token.trim(), &body.to_string())
            .map_err(|error| {
                let admin = &self.admin;
                Diagnostic::new(format!("{admin} did not {action}: {error:#}")).into()
            })
    }

    fn send(&self, path: &str, token: &str, body: &str) -> anyhow::Result<Value> {
        if let Some(socket) = self.admin.strip_prefix("unix:") {
            let unix = UnixStream::connect(socket)?;
            unix.set_read_timeout(Some(TIMEOUT))?;
            unix.set_write_timeout(Some(TIMEOUT))?;
            return exchange(unix, "localhost", path, token, body);
        }
        let addr = self.admin.trim_end_matches('/');
        let (host_port, has_tls) = match addr.strip_prefix("https://") {
            Some(addr) => (addr, true),
            None => (addr.trim_start_matches("http://"), false),
        };
        let tcp = TcpStream::connect(host_port)?;
        tcp.set_read_timeout(Some(TIMEOUT))?;
        tcp.set_write_timeout(Some(TIMEOUT))?;
        if !has_tls {
            return exchange(tcp, host_port, path, token, body);
        }
        let config = edgeward_filter_client::client_config(self.admin_ca.as_deref())?;
        let host = host_port
            .rsplit_once(':')
            .map_or(host_port, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned())?;
        let connection = rustls::ClientConnection::new(Arc::new(config), name)?;
        let tls = rustls::StreamOwned::new(connection, tcp);
        exchange(tls, host_port, path, token, body)
    }
}

/// Sends a request on a new connection, and reads the response.
fn exchange(
    mut stream: impl Read + Write,
    host: &str,
    path: &str,
    token: &str,
    body: &str,
) -> anyhow::Result<Value> {
    // A response over HTTP/1.0 is not chunked, and its body ends when the server closes the connection.
    write!(
        stream,
        "POST {path} HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut bytes = Vec::new();
    let read = stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut bytes);
    // A server that ends TLS without its closing message has still sent a whole response.
    read.or_else(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Ok(0),
        _ => Err(error),
    })?;
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
