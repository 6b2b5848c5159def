//! The origin: pages by path, and WebSocket connections that send all bytes back.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// An origin with a thread for each connection. The threads end with the test.
pub(crate) struct LoadOrigin {
    addr: SocketAddr,
}

impl LoadOrigin {
    /// Starts an origin. Each response has the field `x-origin: NAME`.
    pub(crate) fn start(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let addr = listener.local_addr().expect("the socket is bound");
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || serve(stream, name));
            }
        });
        Self { addr }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }
}

/// Serves a connection until its end.
fn serve(stream: TcpStream, name: &str) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut lines = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if lines.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let path = head.split(' ').nth(1)?.to_owned();
        if head
            .to_ascii_lowercase()
            .contains("\r\nupgrade: websocket\r\n")
        {
            let switched = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                upgrade: websocket\r\nsec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
            lines.get_mut().write_all(switched.as_bytes()).ok()?;
            let mut bytes = [0; 4096];
            loop {
                let read = lines.read(&mut bytes).ok().filter(|read| *read > 0)?;
                lines.get_mut().write_all(&bytes[..read]).ok()?;
            }
        }
        let body = super::body_of(&path);
        let lifetime = if path.starts_with("/pass") {
            "no-store"
        } else {
            "max-age=600"
        };
        let response = format!(
            "HTTP/1.1 200 OK\r\ncache-control: {lifetime}\r\nx-origin: {name}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        lines.get_mut().write_all(response.as_bytes()).ok()?;
    }
}
