//! Bytes as they come from a connection, until they are frames.

use std::ops::Range;

use edgeward_dedup::wire::{HEADER_BYTES, PAYLOAD_BYTES_MAX, WireError, frame_length};

/// A buffer that holds the longest frame there is, and what comes with it.
#[derive(Debug)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Inbox {
    /// Empty.
    pub(crate) fn new() -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            end: 0,
        }
    }

    /// Where to read into: never empty, as long as frames are taken out before.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        // A frame that began near the end moves to the front, so that the rest of it fits.
        if self.start > 0 && self.bytes.len() - self.end < READ_BYTES {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        // Not before it is needed: a connection for short frames never does.
        let wanted = (self.end + READ_BYTES).min(INBOX_BYTES);
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted, 0);
        }
        let end = self.bytes.len().min(self.end + READ_BYTES);
        &mut self.bytes[self.end..end]
    }

    /// So many bytes were read into the room.
    pub(crate) fn filled(&mut self, bytes: usize) {
        self.end += bytes;
        debug_assert!(self.end <= self.bytes.len());
    }

    /// The next whole frame.
    pub(crate) fn frame(&mut self) -> Result<Option<Range<usize>>, WireError> {
        let Some(length) = frame_length(&self.bytes[self.start..self.end])? else {
            return Ok(None);
        };
        if length > self.end - self.start {
            return Ok(None);
        }
        let frame = self.start..self.start + length;
        self.start = frame.end;
        Ok(Some(frame))
    }

    /// What lies there.
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }
}

/// What is read at once: as much as a second-level cache holds.
const READ_BYTES: usize = 256 << 10;

/// A frame, and room to read while it is not whole.
const INBOX_BYTES: usize = HEADER_BYTES + PAYLOAD_BYTES_MAX + READ_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    use edgeward_dedup::codec::Method;
    use edgeward_dedup::wire::{Frame, Span, StreamId, decode};

    /// Frames of all lengths come out as they went in, however the bytes arrive.
    #[test]
    fn frames_come_out_however_bytes_come_in() {
        let payloads = [1, 100, 524_288, 3, 300_000, 524_288, 524_288, 7, 9000];
        let mut wire = Vec::new();
        for (nth, bytes) in payloads.into_iter().enumerate() {
            let payload = vec![nth as u8; bytes];
            let span = Span {
                stream: StreamId(nth as u32),
                offset: 0,
                length: bytes as u32,
            };
            Frame::Plain {
                span,
                method: Method::None,
                payload: &payload,
            }
            .encode(&mut wire);
        }
        for most in [1000, 65_536, 1 << 20] {
            let (mut inbox, mut rest, mut found) = (Inbox::new(), &wire[..], Vec::new());
            while !rest.is_empty() {
                let room = inbox.room();
                let bytes = rest.len().min(room.len()).min(most);
                assert!(bytes > 0, "there is always room");
                room[..bytes].copy_from_slice(&rest[..bytes]);
                rest = &rest[bytes..];
                inbox.filled(bytes);
                while let Some(frame) = inbox.frame().expect("frames") {
                    match decode(inbox.bytes(frame)).expect("a frame") {
                        Frame::Plain { payload, .. } => found.push(payload.len()),
                        other => panic!("{other:?}"),
                    }
                }
            }
            assert_eq!(found, payloads);
        }
    }

    #[test]
    fn what_is_too_long_is_refused_by_its_header() {
        let mut inbox = Inbox::new();
        let mut header = [0; 16];
        header[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        header[4] = 3;
        inbox.room()[..16].copy_from_slice(&header);
        inbox.filled(16);
        assert_eq!(inbox.frame(), Err(WireError::TooLong(u32::MAX)));
    }
}
