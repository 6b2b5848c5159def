//! Requests of commands to the admin server of a running edge.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use edgeward_proxy::REPLACED;
use rustls_pki_types::ServerName;
use serde_json::Value;

use crate::diagnostic::Diagnostic;

/// The admin server of a running edge, and the token that it requires.
#[derive(Args, Debug)]
pub(crate) struct AdminApi {
    #[command(flatten)]
    server: AdminServer,

    /// File with a token of the edge: of admin.token or purge.token_file
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
}

/// The admin server of a running edge.
#[derive(Args, Debug)]
pub(crate) struct AdminServer {
    /// The edge's admin server: HOST:PORT, https://HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADDR")]
    admin: String,

    /// PEM file of the CA of the admin server [default: the system's]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    admin_ca: Option<PathBuf>,
}

impl AdminApi {
    /// Sends a POST with a body in JSON and returns the response. `action` completes the message "ADDR did not …".
    pub(crate) fn post(&self, path: &str, body: &Value, action: &str) -> anyhow::Result<Value> {
        let token = read_token(&self.token_file)?;
        let body = body.to_string();
        let target = format!("POST {path}");
        let send = || {
            let response = self.server.send(&target, Some(&token), &body)?;
            response.json()
        };
        let is_replaced = |error: &anyhow::Error| error.to_string().contains(REPLACED);
        let mut answer = send();
        for _ in 0..REPLACED_RETRIES {
            if !answer.as_ref().is_err_and(is_replaced) {
                break;
            }
            std::thread::sleep(REPLACED_PAUSE);
            answer = send();
        }
        answer.map_err(|error| self.server.failed(action, &error))
    }
}

/// Reads the file of a token.
pub(crate) fn read_token(file: &Path) -> anyhow::Result<String> {
    let token = std::fs::read_to_string(file)
        .map_err(|error| Diagnostic::unreadable(file, "cannot read", &error))?;
    Ok(token.trim().to_owned())
}

impl AdminServer {
    pub(crate) const fn new(admin: String, admin_ca: Option<PathBuf>) -> Self {
        Self { admin, admin_ca }
    }

    /// Returns the text of a page. The token is needed only if the edge has `admin.require_token`.
    pub(crate) fn get(&self, path: &str, token: Option<&str>) -> anyhow::Result<String> {
        let page = self
            .send(&format!("GET {path}"), token, "")
            .and_then(|response| response.ok_text());
        page.map_err(|error| self.failed(&format!("answer {path}"), &error))
    }

    fn failed(&self, action: &str, error: &anyhow::Error) -> anyhow::Error {
        let admin = &self.admin;
        Diagnostic::new(format!("{admin} did not {action}: {error:#}")).into()
    }

    /// Sends a request with this method and path.
    fn send(&self, target: &str, token: Option<&str>, body: &str) -> anyhow::Result<Response> {
        let token = token.map_or_else(String::new, |token| {
            format!("Authorization: Bearer {token}\r\n")
        });
        if let Some(socket) = self.admin.strip_prefix("unix:") {
            let unix = UnixStream::connect(socket)?;
            unix.set_read_timeout(Some(TIMEOUT))?;
            unix.set_write_timeout(Some(TIMEOUT))?;
            return exchange(unix, "localhost", target, &token, body);
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
            return exchange(tcp, host_port, target, &token, body);
        }
        let config = edgeward_filter_client::client_config(self.admin_ca.as_deref())?;
        let host = host_port
            .rsplit_once(':')
            .map_or(host_port, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned())?;
        let connection = rustls::ClientConnection::new(Arc::new(config), name)?;
        let tls = rustls::StreamOwned::new(connection, tcp);
        exchange(tls, host_port, target, &token, body)
    }
}

/// Sends a request on a new connection, and reads the response.
fn exchange(
    mut stream: impl Read + Write,
    host: &str,
    target: &str,
    token: &str,
    body: &str,
) -> anyhow::Result<Response> {
    // A response over HTTP/1.0 is not chunked, and its body ends when the server closes the connection.
    write!(
        stream,
        "{target} HTTP/1.0\r\nHost: {host}\r\n{token}Content-Length: {}\r\n\r\n{body}",
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
    Ok(Response {
        status_line: head.lines().next().unwrap_or_default().to_owned(),
        body: bytes.split_off(end + 4),
    })
}

/// A response of the admin server.
struct Response {
    status_line: String,
    body: Vec<u8>,
}

impl Response {
    /// Returns the body as JSON, or its error.
    fn json(&self) -> anyhow::Result<Value> {
        let status_line = &self.status_line;
        let answer: Value = serde_json::from_slice(&self.body)
            .with_context(|| format!("the server has no such API: {status_line}"))?;
        if let Some(error) = answer["error"].as_str() {
            anyhow::bail!("{error}");
        }
        self.check_status()?;
        Ok(answer)
    }

    fn ok_text(&self) -> anyhow::Result<String> {
        self.check_status()?;
        Ok(String::from_utf8_lossy(&self.body).into_owned())
    }

    fn check_status(&self) -> anyhow::Result<()> {
        let status_line = &self.status_line;
        anyhow::ensure!(
            status_line.split(' ').nth(1) == Some("200"),
            "{status_line}"
        );
        Ok(())
    }
}

/// The longest wait for the edge. Some requests read the heads of all responses on disk.
const TIMEOUT: Duration = Duration::from_secs(600);

/// How often a request is sent again that reached a process which another one has just replaced. That process closes
/// its admin server within seconds.
const REPLACED_RETRIES: u32 = 50;

const REPLACED_PAUSE: Duration = Duration::from_millis(100);

/// The largest response. A list of variants may be long.
const RESPONSE_BYTES_MAX: u64 = 64 << 20;
