//! An HTTP/2 client that writes and reads frames as bytes (RFC 9113 §4). Unlike a library, it can violate every
//! rule of the protocol.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::support::TIMEOUT;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
/// The flag of a PING or SETTINGS frame that acknowledges another one.
const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;

pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;
pub(crate) const CANCEL: u32 = 8;

/// A received frame.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// Returns a frame as bytes.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("the payload is short");
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Appends an HPACK string literal without Huffman coding (RFC 7541 §5.2).
fn string(bytes: &mut Vec<u8>, text: &str) {
    integer(bytes, 0, 7, text.len());
    bytes.extend_from_slice(text.as_bytes());
}

/// Appends an HPACK integer with a prefix of `prefix_bits` bits (RFC 7541 §5.1). `pattern` has the bits before
/// the prefix.
fn integer(bytes: &mut Vec<u8>, pattern: u8, prefix_bits: u8, value: usize) {
    let max = (1usize << prefix_bits) - 1;
    if value < max {
        bytes.push(pattern | u8::try_from(value).expect("below the prefix"));
        return;
    }
    bytes.push(pattern | u8::try_from(max).expect("a prefix has at most 7 bits"));
    let mut rest = value - max;
    while rest >= 128 {
        bytes.push(u8::try_from(rest % 128).expect("the value has 7 bits") | 128);
        rest /= 128;
    }
    bytes.push(u8::try_from(rest).expect("the value has 7 bits"));
}

/// Returns the header block of a request. Its fields are not added to the dynamic table.
pub(crate) fn request(method: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let pseudo = [
        (":method", method),
        (":scheme", "http"),
        (":path", path),
        (":authority", "test.example"),
    ];
    let mut block = Vec::new();
    for (name, value) in pseudo.iter().chain(fields) {
        literal(&mut block, 0, name, value);
    }
    block
}

/// Appends a field that is added to the dynamic table (RFC 7541 §6.2.1).
pub(crate) fn indexed_field(block: &mut Vec<u8>, name: &str, value: &str) {
    literal(block, 0x40, name, value);
}

/// Appends a literal field. `pattern` is 0x40 if the dynamic table gets it, otherwise 0 (RFC 7541 §6.2).
pub(crate) fn literal(block: &mut Vec<u8>, pattern: u8, name: &str, value: &str) {
    block.push(pattern);
    string(block, name);
    string(block, value);
}

/// The byte that repeats the field that was added to the dynamic table last (RFC 7541 §6.1). The static table has
/// 61 entries, so the newest field of the dynamic table has index 62.
pub(crate) const LAST_INDEXED: u8 = 0x80 | 62;

/// An HTTP/2 connection to the edge.
pub(crate) struct H2Client {
    stream: BufReader<TcpStream>,
    goaway: Option<u32>,
}

impl H2Client {
    /// Connects, and sends the preface, empty SETTINGS, and a WINDOW_UPDATE of 1 GiB for the connection.
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        Self::over(
            TcpStream::connect(addr).expect("the edge listens"),
            &frame(SETTINGS, 0, 0, &[]),
        )
    }

    /// Like [`connect`](Self::connect), on this connection and with this frame of SETTINGS.
    pub(crate) fn over(stream: TcpStream, settings: &[u8]) -> Self {
        stream
            .set_read_timeout(Some(TIMEOUT))
            .expect("the timeout can be set");
        stream
            .set_write_timeout(Some(TIMEOUT))
            .expect("the timeout can be set");
        stream.set_nodelay(true).expect("TCP_NODELAY can be set");
        let mut client = Self {
            stream: BufReader::new(stream),
            goaway: None,
        };
        client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        client.send(settings);
        client.send(&frame(WINDOW_UPDATE, 0, 0, &(1u32 << 30).to_be_bytes()));
        client
    }

    /// Returns the server's end of a connection, after the preface of the client. Sends empty SETTINGS.
    pub(crate) fn accept(stream: TcpStream) -> Self {
        let mut server = Self {
            stream: BufReader::new(stream),
            goaway: None,
        };
        server.send(&frame(SETTINGS, 0, 0, &[]));
        let mut preface = [0; 24];
        server
            .stream
            .read_exact(&mut preface)
            .expect("the preface arrives");
        server
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        assert!(self.try_send(bytes), "the edge reads");
    }

    /// Sends bytes. Returns false if the edge has closed the connection.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.get_mut().write_all(bytes).is_ok()
    }

    /// Sends a GET as one HEADERS frame.
    pub(crate) fn get(&mut self, stream: u32, path: &str, fields: &[(&str, &str)]) {
        let block = request("GET", path, fields);
        self.send(&frame(HEADERS, END_STREAM | END_HEADERS, stream, &block));
    }

    /// Reads the next frame. Returns `None` if the edge has closed the connection.
    pub(crate) fn frame(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).expect("a length has 24 bits")];
        self.stream.read_exact(&mut payload).ok()?;
        if head[3] == GOAWAY
            && let Some(code) = payload.get(4..8)
        {
            self.goaway = Some(u32::from_be_bytes(code.try_into().expect("four bytes")));
        }
        Some(Frame {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            payload,
        })
    }

    /// Sends a PING and waits for its acknowledgement. The edge has then read all bytes sent before the PING.
    pub(crate) fn ping(&mut self) {
        assert!(self.try_ping(), "the edge answers a PING");
    }

    /// Like [`ping`](Self::ping), but returns false if the edge closes the connection.
    pub(crate) fn try_ping(&mut self) -> bool {
        if !self.try_send(&frame(PING, 0, 0, b"question")) {
            return false;
        }
        while let Some(frame) = self.frame() {
            if frame.kind == PING && frame.flags == ACK && frame.payload == b"question" {
                return true;
            }
        }
        false
    }

    /// Sends a PING, and returns the kinds of the frames that arrive before its acknowledgement.
    pub(crate) fn kinds_until_ping(&mut self) -> Vec<u8> {
        self.send(&frame(PING, 0, 0, b"question"));
        let mut kinds = Vec::new();
        loop {
            let frame = self.frame().expect("the edge answers a PING");
            if frame.kind == PING && frame.flags == ACK {
                return kinds;
            }
            kinds.push(frame.kind);
        }
    }

    /// Reads until the edge closes the connection. Returns the error code of the last GOAWAY, if the edge has
    /// sent one.
    pub(crate) fn read_to_goaway(&mut self) -> Option<u32> {
        while self.frame().is_some() {}
        self.goaway
    }

    /// Waits for RST_STREAM on `stream` and returns its error code.
    pub(crate) fn reset_code(&mut self, stream: u32) -> u32 {
        loop {
            let frame = self.frame().expect("a reset arrives");
            assert_ne!(frame.kind, GOAWAY, "{frame:?}");
            if frame.stream == stream {
                assert_eq!(frame.kind, RST_STREAM, "{frame:?}");
                return u32::from_be_bytes(frame.payload.try_into().expect("four bytes"));
            }
        }
    }

    /// Waits for the head of a response on `stream` and returns its status.
    pub(crate) fn status(&mut self, stream: u32) -> u16 {
        loop {
            let frame = self.frame().expect("a response arrives");
            assert_ne!(frame.kind, GOAWAY, "{frame:?}");
            if frame.stream == stream {
                assert_ne!(frame.kind, RST_STREAM, "{frame:?}");
                if frame.kind == HEADERS {
                    return status_of(&frame.payload);
                }
            }
        }
    }
}

/// Decodes `:status` at the beginning of a header block. It is either an entry of the static table, or a
/// literal whose name is in the static table.
pub(crate) fn status_of(block: &[u8]) -> u16 {
    // The block may begin with a change of the size of the dynamic table (RFC 7541 §4.2).
    let start = block.iter().position(|byte| byte & 0xe0 != 0x20);
    let block = &block[start.expect("the block has a field")..];
    match block[0] {
        0x88 => 200,
        0x89 => 204,
        0x8a => 206,
        0x8b => 304,
        0x8c => 400,
        0x8d => 404,
        0x8e => 500,
        0x48 | 0x08 | 0x18 => {
            let huffman = block[1] & 0x80 != 0;
            let text = &block[2..2 + usize::from(block[1] & 0x7f)];
            let digits: String = if huffman {
                huffman_digits(text)
            } else {
                String::from_utf8_lossy(text).into_owned()
            };
            digits.parse().expect("the status is valid")
        }
        other => panic!("no status at the front: {other:#x}"),
    }
}

/// Decodes three digits in the Huffman code (RFC 7541 appendix B). The codes of 0 to 2 have five bits, the
/// codes of 3 to 9 six.
fn huffman_digits(bytes: &[u8]) -> String {
    let bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
    let mut rest = bits.as_str();
    let mut digits = String::new();
    'next: while digits.len() < 3 {
        for digit in 0..10u8 {
            let code = match digit {
                0..=2 => format!("{digit:05b}"),
                _ => format!("{:06b}", 0b01_1001 + digit - 3),
            };
            if let Some(after) = rest.strip_prefix(&code) {
                digits.push(char::from(b'0' + digit));
                rest = after;
                continue 'next;
            }
        }
        panic!("not digits: {bits}");
    }
    digits
}
