//! A TCP connection to the edge, without TLS and without an HTTP library: the test sends and receives bytes.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::support::{TIMEOUT, TestBed};

/// A connection to the edge.
pub(crate) struct Wire(pub(crate) TcpStream);

impl Wire {
    pub(crate) fn connect(bed: &TestBed) -> Self {
        let stream = TcpStream::connect(bed.addr()).expect("the edge listens");
        stream
            .set_read_timeout(Some(TIMEOUT))
            .expect("the timeout can be set");
        Self(stream)
    }

    pub(crate) fn send(&mut self, bytes: &str) {
        self.0.write_all(bytes.as_bytes()).expect("the edge reads");
    }

    /// Reads until the bytes read so far end with `end`.
    pub(crate) fn read_until(&mut self, end: &str) -> String {
        let mut received = Vec::new();
        while !received.ends_with(end.as_bytes()) {
            let mut byte = [0];
            let read = self.0.read(&mut byte);
            let so_far = String::from_utf8_lossy(&received);
            assert!(matches!(read, Ok(1)), "{read:?} after {so_far:?}");
            received.push(byte[0]);
        }
        String::from_utf8(received).expect("the text is UTF-8")
    }

    /// Reads until the connection ends.
    pub(crate) fn read_to_end(&mut self) -> String {
        let mut received = Vec::new();
        self.0
            .read_to_end(&mut received)
            .expect("the edge closes the connection in time");
        String::from_utf8(received).expect("the text is UTF-8")
    }
}
