//! A client of WebSocket that sends a message and waits for its echo, on one connection as long as the edge keeps it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::Counts;

pub(super) fn run(addr: SocketAddr, counts: &Counts) {
    while !counts.is_over() {
        let mut stream = match open(addr) {
            Ok(stream) => stream,
            Err(error) => {
                counts.fail(format!("WebSocket: {error}"));
                continue;
            }
        };
        let mut n = 0_u64;
        while !counts.is_over() {
            n += 1;
            let mut echo = [0; 8];
            let echoed = stream
                .write_all(&n.to_be_bytes())
                .and_then(|()| stream.read_exact(&mut echo));
            if echoed.is_err() {
                // The caller decides whether the edge may close connections now.
                counts.websockets_closed.fetch_add(1, Relaxed);
                break;
            }
            if echo != n.to_be_bytes() {
                counts.fail(format!("WebSocket: message {n} became {echo:?}"));
                break;
            }
            counts.websocket.fetch_add(1, Relaxed);
            std::thread::sleep(Duration::from_millis(1)); // the rate of messages
        }
    }
}

fn open(addr: SocketAddr) -> Result<TcpStream, String> {
    let text = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(addr).map_err(text)?;
    let timeout = Some(Duration::from_secs(20));
    stream.set_read_timeout(timeout).map_err(text)?;
    let request = "GET /socket HTTP/1.1\r\nhost: load.example\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
        sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n";
    stream.write_all(request.as_bytes()).map_err(text)?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).map_err(text)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head);
    match head.starts_with("HTTP/1.1 101 ") {
        true => Ok(stream),
        false => Err(head.into_owned()),
    }
}
