//! The open streams of a client's HTTP/2 connection, counted from the frames in both directions.
//!
//! hyper and h2 keep the state of a stream from its first frame until its last frame is written: also while a response
//! waits for a window or for the socket, when the request path has forgotten the request. Only the frames show this.

use std::collections::HashSet;
use std::rc::Rc;

use super::conn::{ConnState, Holding};

/// The charge for the streams of a client's connection, and for its large buffers.
#[derive(Debug)]
pub(crate) struct StreamCharge {
    pub(crate) streams: OpenStreams,
    conn: Rc<ConnState>,
    held: Holding,
}

impl StreamCharge {
    pub(crate) fn new(conn: &Rc<ConnState>) -> Self {
        Self {
            streams: OpenStreams::new(),
            conn: Rc::clone(conn),
            held: conn.holding(0),
        }
    }

    /// Charges the streams, and buffers that are larger than those of an idle connection.
    pub(crate) fn update(&mut self, buffer_bytes: usize) {
        let streams = self.streams.held_bytes(self.conn.content_read());
        let is_large = buffer_bytes > UNCHARGED_BYTES;
        let bytes = streams + if is_large { buffer_bytes as u64 } else { 0 };
        if bytes != self.held.bytes() {
            self.held.set(bytes);
        }
    }
}

/// The streams that are open.
#[derive(Debug, Default)]
pub(crate) struct OpenStreams {
    received: FrameWalk,
    sent: FrameWalk,
    open: HashSet<u32>,
    /// The most streams that were open at the same time: h2 keeps the memory of its tables.
    open_max: usize,
    /// The highest stream that the client has opened.
    last: u32,
    /// The bytes of content (DATA) that the client has sent.
    content: u64,
}

impl OpenStreams {
    /// Returns the streams of a connection whose first bytes are the client's preface.
    pub(crate) fn new() -> Self {
        Self {
            received: FrameWalk {
                skipped_bytes: PREFACE_BYTES,
                ..FrameWalk::default()
            },
            ..Self::default()
        }
    }

    /// Records bytes that hyper gets.
    pub(crate) fn record_received(&mut self, bytes: &[u8]) {
        let (open, last) = (&mut self.open, &mut self.last);
        let content = &mut self.content;
        self.received
            .walk(bytes, |kind, _, stream, length| match kind {
                DATA => *content += length as u64,
                // A second block of HEADERS has trailers.
                HEADERS if stream > *last => {
                    *last = stream;
                    open.insert(stream);
                }
                RST_STREAM => _ = open.remove(&stream),
                _ => {}
            });
        self.open_max = self.open_max.max(self.open.len());
    }

    /// Records bytes that hyper has written.
    pub(crate) fn record_sent(&mut self, bytes: &[u8]) {
        let open = &mut self.open;
        self.sent.walk(bytes, |kind, flags, stream, _| {
            let ends = matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
            if ends || kind == RST_STREAM {
                open.remove(&stream);
            }
        });
    }

    /// Returns the memory of the streams beyond that of the first one. `content_read` is the number of bytes of content
    /// that requests have read.
    pub(crate) fn held_bytes(&self, content_read: u64) -> u64 {
        let beyond_first = |streams: usize| streams.saturating_sub(1) as u64;
        // Content of refused requests is dropped unread, and does not count after the last stream has ended.
        let unread = match self.open.is_empty() {
            true => 0,
            false => self.content.saturating_sub(content_read),
        };
        beyond_first(self.open_max) * TABLE_BYTES
            + beyond_first(self.open.len()) * STREAM_BYTES
            + unread.min(CONNECTION_WINDOW_BYTES.into())
    }
}

/// Finds the headers of frames in bytes that arrive in pieces.
#[derive(Debug, Default)]
struct FrameWalk {
    /// The number of bytes until the next frame begins.
    skipped_bytes: usize,
    /// The start of a frame's header, and its length.
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
}

impl FrameWalk {
    /// Calls `visit` with kind, flags, stream and length of each frame whose header is complete.
    fn walk(&mut self, mut bytes: &[u8], mut visit: impl FnMut(u8, u8, u32, usize)) {
        loop {
            let skipped = self.skipped_bytes.min(bytes.len());
            self.skipped_bytes -= skipped;
            bytes = &bytes[skipped..];
            let taken = (HEAD_BYTES - self.head_bytes).min(bytes.len());
            if taken == 0 {
                return;
            }
            self.head[self.head_bytes..self.head_bytes + taken].copy_from_slice(&bytes[..taken]);
            self.head_bytes += taken;
            bytes = &bytes[taken..];
            if self.head_bytes == HEAD_BYTES {
                let [a, b, c, kind, flags, stream @ ..] = self.head;
                let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                self.skipped_bytes = length;
                self.head_bytes = 0;
                let stream = u32::from_be_bytes(stream) & (u32::MAX >> 1);
                visit(kind, flags, stream, length);
            }
        }
    }
}

/// The memory of a stream's entries in the tables of h2, which never shrink, and that of an open stream in addition:
/// its task with the head and the body of the response. The future of a request that is not a hit is charged by the
/// request path. Measured: see `docs/explanation/memory.md`.
const TABLE_BYTES: u64 = 1792;
const STREAM_BYTES: u64 = 512;

/// The receive window of the connection: bytes that a client may send ahead of the requests that read them.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;

/// The bytes of buffers that are part of each connection's charge.
const UNCHARGED_BYTES: usize = 4 << 10;

const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 0x1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame((kind, flags, stream, length): (u8, u8, u32, usize)) -> Vec<u8> {
        let mut bytes = (length as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(vec![0xff; length]);
        bytes
    }

    fn received(frames: &[(u8, u8, u32, usize)]) -> Vec<u8> {
        let mut bytes = vec![b'P'; PREFACE_BYTES];
        bytes.extend(frames.iter().copied().flat_map(frame));
        bytes
    }

    #[test]
    fn a_stream_is_open_from_its_request_to_the_end_of_its_response_or_a_reset() {
        let mut streams = OpenStreams::new();
        streams.record_received(&received(&[
            (4, 0, 0, 6),
            (HEADERS, 4, 1, 3),
            (HEADERS, 5, 3, 3),
            (HEADERS, 5, 5, 0),
            (DATA, 1, 1, 40),
            (HEADERS, 5, 1, 2), // trailers
        ]));
        assert_eq!(streams.open.len(), 3);
        let sent = |streams: &mut OpenStreams, frames: &[(u8, u8, u32, usize)]| {
            for bytes in frames.iter().copied().map(frame) {
                streams.record_sent(&bytes);
            }
            streams.open.len()
        };
        assert_eq!(
            sent(&mut streams, &[(HEADERS, 4, 1, 9), (DATA, 0, 1, 10)]),
            3
        );
        assert_eq!(sent(&mut streams, &[(DATA, 1, 1, 0)]), 2);
        assert_eq!(
            sent(&mut streams, &[(HEADERS, 5, 3, 1), (DATA, 1, 1, 0)]),
            1
        );
        streams.record_received(&frame((RST_STREAM, 0, 5, 4)));
        assert_eq!(sent(&mut streams, &[(RST_STREAM, 0, 5, 4)]), 0);
        streams.record_received(&frame((HEADERS, 5, 5, 4)));
        assert_eq!(streams.open.len(), 0, "a number is used once");
        let tables = streams.held_bytes(0);
        assert_eq!(tables, 2 * TABLE_BYTES, "the tables stay as large");
    }

    #[test]
    fn content_is_held_until_it_is_read_or_no_stream_is_open() {
        let mut streams = OpenStreams::new();
        let sent = 40 << 10;
        streams.record_received(&received(&[(HEADERS, 4, 1, 3), (DATA, 0, 1, sent)]));
        assert_eq!(streams.held_bytes(0), sent as u64);
        assert_eq!(streams.held_bytes(40_000), sent as u64 - 40_000);
        for _ in 0..40 {
            streams.record_received(&frame((DATA, 0, 1, sent)));
        }
        assert_eq!(streams.held_bytes(0), u64::from(CONNECTION_WINDOW_BYTES));
        streams.record_sent(&frame((RST_STREAM, 0, 1, 4)));
        assert_eq!(streams.held_bytes(0), 0);
    }

    proptest! {
        /// The result does not depend on how the bytes are split.
        #[test]
        fn frames_are_found_in_any_pieces(
            frames in prop::collection::vec((0..5u8, 0..6u8, 0..9u32, 0..30usize), 0..20),
            pieces in prop::collection::vec(1..20usize, 1..20),
        ) {
            let bytes = received(&frames);
            let mut whole = OpenStreams::new();
            whole.record_received(&bytes);
            let mut split = OpenStreams::new();
            let (mut rest, mut lengths) = (&bytes[..], pieces.iter().cycle());
            while !rest.is_empty() {
                let n = lengths.next().map_or(1, |n| *n).min(rest.len());
                split.record_received(&rest[..n]);
                rest = &rest[n..];
            }
            prop_assert_eq!(split.open, whole.open);
        }
    }
}
