//! An origin that reads the head of one request from each connection, and then gives the socket to the test.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use super::accept_key::accept_of;
use super::support::{TIMEOUT, TestBed, config_for};

use edgeward_proxy::EdgeConfig;

/// An edge in front of a [`SocketOrigin`].
pub(crate) struct SocketBed {
    pub(crate) bed: TestBed,
    pub(crate) origin: SocketOrigin,
}

impl SocketBed {
    /// Starts an edge with one worker.
    pub(crate) fn start() -> Self {
        Self::with_config(|_| {})
    }

    pub(crate) fn with_config(change: impl FnOnce(&mut EdgeConfig)) -> Self {
        let origin = SocketOrigin::start();
        let bed = TestBed::with_config(|config| {
            config.origins = config_for(origin.addr).origins;
            config.workers = std::num::NonZeroUsize::MIN;
            change(config);
        });
        Self { bed, origin }
    }
}

/// The connections that the edge opens to an address.
pub(crate) struct SocketOrigin {
    pub(crate) addr: SocketAddr,
    requests: Receiver<SocketRequest>,
}

/// A connection whose first request has arrived.
pub(crate) struct SocketRequest {
    /// The request line and the fields, with the empty line.
    pub(crate) head: String,
    pub(crate) stream: TcpStream,
}

impl SocketOrigin {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let addr = listener.local_addr().expect("the socket is bound");
        let (sender, requests) = channel();
        // The thread ends with the test's process.
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let sender = sender.clone();
                std::thread::spawn(move || {
                    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
                    stream.set_write_timeout(Some(TIMEOUT)).expect("a timeout");
                    stream.set_nodelay(true).expect("the option is known");
                    let mut request = SocketRequest {
                        head: String::new(),
                        stream,
                    };
                    request.head = request.read_until("\r\n\r\n");
                    _ = sender.send(request);
                });
            }
        });
        Self { addr, requests }
    }

    /// Waits for the next request.
    pub(crate) fn request(&self) -> SocketRequest {
        self.requests
            .recv_timeout(TIMEOUT)
            .expect("a request arrives in time")
    }
}

impl SocketRequest {
    /// Returns the value of a field of the head, or an empty text.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.head
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(field, _)| field.eq_ignore_ascii_case(name))
            .map_or("", |(_, value)| value.trim())
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the edge reads");
    }

    /// Answers the handshake of WebSocket.
    pub(crate) fn accept(&mut self) {
        let accept = accept_of(self.field("sec-websocket-key"));
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        self.send(head.as_bytes());
    }

    /// Reads exactly this text.
    pub(crate) fn expect(&mut self, text: &str) {
        let mut read = vec![0; text.len()];
        self.stream.read_exact(&mut read).expect("the bytes arrive");
        assert_eq!(String::from_utf8_lossy(&read), text);
    }

    /// Reads until the bytes end with `end`, or until the edge closes the connection.
    pub(crate) fn read_until(&mut self, end: &str) -> String {
        let mut read = Vec::new();
        let mut byte = [0];
        while !read.ends_with(end.as_bytes()) {
            match self.stream.read(&mut byte) {
                Ok(1) => read.push(byte[0]),
                _ => break,
            }
        }
        String::from_utf8_lossy(&read).into_owned()
    }

    /// Reads until the edge closes the connection. Returns the bytes.
    pub(crate) fn read_to_end(&mut self) -> String {
        let mut read = Vec::new();
        self.stream.read_to_end(&mut read).expect("the edge closes");
        String::from_utf8_lossy(&read).into_owned()
    }

    /// Returns true if the edge closes the connection, with a FIN or a reset.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(n) => n == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}
