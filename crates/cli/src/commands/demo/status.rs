//! Fetches `/status` from an origin or an edge on loopback.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;

/// Fetches the status of an origin or an edge.
pub(super) fn fetch(addr: SocketAddr) -> anyhow::Result<Value> {
    request(addr).with_context(|| format!("cannot read http://{addr}/status"))
}

fn request(addr: SocketAddr) -> anyhow::Result<Value> {
    let mut stream = TcpStream::connect_timeout(&addr, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    // A response over HTTP/1.0 is not chunked, and its body ends when the server closes the connection.
    write!(stream, "GET /status HTTP/1.0\r\nHost: {addr}\r\n\r\n")?;
    let mut response = Vec::new();
    stream.take(BYTES_MAX).read_to_end(&mut response)?;
    let head_end = response
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .context("the response has no complete head")?;
    anyhow::ensure!(
        response.starts_with(b"HTTP/1.") && response.get(9..12) == Some(b"200"),
        "the status of the response is not 200"
    );
    Ok(serde_json::from_slice(&response[head_end + 4..])?)
}

/// The longest time for the connection, and for each read and write.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The largest size of a response, head and body.
const BYTES_MAX: u64 = 1 << 20;
