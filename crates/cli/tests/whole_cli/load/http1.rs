//! A client of HTTP/1.1 that sends one request after the other on one connection.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::{Counts, body_of, path};

pub(super) fn run(addr: SocketAddr, number: u64, counts: &Counts) {
    let mut connection = None;
    let mut n = number;
    while !counts.is_over() {
        n += 1;
        let path = path(n);
        match exchange(addr, &mut connection, &path) {
            Ok(()) => {
                counts.http1.fetch_add(1, Relaxed);
            }
            Err(error) => {
                counts.fail(format!("HTTP/1.1 GET {path}: {error}"));
                connection = None;
            }
        }
    }
}

/// Sends a request on the connection, or on a new one if the last response has ended the old one.
fn exchange(
    addr: SocketAddr,
    connection: &mut Option<BufReader<TcpStream>>,
    path: &str,
) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let stream = match connection {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect(addr).map_err(|error| format!("connect: {error}"))?;
            stream.set_nodelay(true).map_err(text)?;
            let timeout = Some(Duration::from_secs(20));
            stream.set_read_timeout(timeout).map_err(text)?;
            connection.insert(BufReader::new(stream))
        }
    };
    let request = format!("GET {path} HTTP/1.1\r\nhost: load.example\r\n\r\n");
    let sent = stream.get_mut().write_all(request.as_bytes());
    sent.map_err(|error| format!("write: {error}"))?;
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        let read = stream.read_line(&mut head).map_err(text)?;
        if read == 0 {
            return Err(format!("the connection was closed after {head:?}"));
        }
    }
    let value = |name: &str| {
        let mut lines = head.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.map(str::to_owned)
    };
    let length = value("content-length").and_then(|length| length.parse().ok());
    let mut body = vec![0; length.ok_or_else(|| format!("no length in {head}"))?];
    stream.read_exact(&mut body).map_err(text)?;
    if !head.starts_with("HTTP/1.1 200 ") || body != body_of(path).as_bytes() {
        return Err(format!("{head}{}", String::from_utf8_lossy(&body)));
    }
    if value("connection").is_some_and(|value| value == "close") {
        *connection = None;
    }
    Ok(())
}
