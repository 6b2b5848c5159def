//! An origin that reads the head of one request from each connection, and then gives the socket to the test.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::{Deref, DerefMut};
use std::sync::mpsc::{Receiver, channel};

use super::accept_key::accept_of;
use super::support::{Client, TIMEOUT, TestBed, config_for};

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
    pub(crate) peer: Client,
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
                    let mut peer = Client::over(stream);
                    if let Ok(head) = peer.try_read_until("\r\n\r\n") {
                        _ = sender.send(SocketRequest { head, peer });
                    }
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

impl Deref for SocketRequest {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.peer
    }
}

impl DerefMut for SocketRequest {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.peer
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

    /// Answers the handshake of WebSocket.
    pub(crate) fn accept(&mut self) {
        let accept = accept_of(self.field("sec-websocket-key"));
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        self.peer.send(head);
    }

    /// Reads exactly this text.
    pub(crate) fn expect(&mut self, text: &str) {
        let read = self.peer.read_up_to(text.len());
        assert_eq!(String::from_utf8_lossy(&read), text);
    }
}
