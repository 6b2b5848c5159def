//! The receive buffers of a connection: they collect bytes until a complete frame has been received.
//!
//! One read fills a shared buffer with many short frames, which are decoded there. An incomplete long frame gets its
//! own buffer as soon as its header is received. The rest of the frame is read directly into this buffer, and its
//! payload is delivered without a copy.

use bytes::Bytes;

use edgeward_dedup::buffer::{Buffer, Pool};
use edgeward_dedup::wire::{WireError, frame_length};

use crate::lent_buffers::{lend, take_back};

/// The bytes that are received and not decoded yet.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// The buffer of short frames, which is lent while it has bytes. Empty if it is not lent. The bytes from `start` to
    /// `end` are received and not decoded yet.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// The long frame that is being received, and its length in bytes.
    long: Option<(Buffer, usize)>,
    pool: Pool,
}

/// The bytes of one complete frame.
#[derive(Debug)]
pub(crate) enum Framed<'a> {
    Short(&'a [u8]),
    Long(Bytes),
}

impl Inbox {
    /// Creates an inbox without bytes. The buffers of long frames are taken from the pool.
    pub(crate) fn new(pool: Pool) -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            end: 0,
            long: None,
            pool,
        }
    }

    /// Returns the free part of a buffer, into which the next bytes are read. It is never empty if
    /// [`frame`](Self::frame) has returned all complete frames before.
    pub(crate) fn free_bytes(&mut self) -> &mut [u8] {
        if let Some((buffer, length)) = &mut self.long {
            let missing = *length - buffer.len();
            return &mut buffer.spare()[..missing];
        }
        if self.bytes.is_empty() {
            self.bytes = lend(READ_BYTES);
        }
        // The received bytes are the beginning of a short frame. They move to the front of the buffer, so that the
        // rest of the frame fits behind them.
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        &mut self.bytes[self.end..]
    }

    /// Returns the buffer of short frames, unless it has bytes. Called if no more bytes can be received now.
    pub(crate) fn return_buffer(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            take_back(std::mem::take(&mut self.bytes));
        }
    }

    /// Records that this many bytes were read into the buffer.
    pub(crate) fn record_read(&mut self, bytes: usize) {
        match &mut self.long {
            Some((buffer, _)) => buffer.fill(bytes),
            None => self.end += bytes,
        }
        debug_assert!(self.end <= self.bytes.len());
    }

    /// Returns the next complete frame, or `None` if more bytes are needed.
    pub(crate) fn frame(&mut self) -> Result<Option<Framed<'_>>, WireError> {
        if let Some((buffer, length)) = self
            .long
            .take_if(|(buffer, length)| buffer.len() == *length)
        {
            return Ok(Some(Framed::Long(buffer.freeze(0..length))));
        }
        let received = &self.bytes[self.start..self.end];
        let Some(length) = frame_length(received)?.filter(|_| self.long.is_none()) else {
            return Ok(None);
        };
        if length <= received.len() {
            let frame = self.start..self.start + length;
            self.start = frame.end;
            return Ok(Some(Framed::Short(&self.bytes[frame])));
        }
        if length > SHORT_BYTES_MAX {
            let mut buffer = self.pool.buffer(length);
            buffer.put(received);
            self.long = Some((buffer, length));
            (self.start, self.end) = (0, 0);
        }
        Ok(None)
    }
}

/// The size of the buffer of short frames. At most this many bytes of a long frame are copied.
const READ_BYTES: usize = 16 << 10;

/// An incomplete frame that is longer than this gets its own buffer. A complete frame in the buffer of short frames is
/// decoded there, even if it is longer.
const SHORT_BYTES_MAX: usize = READ_BYTES / 2;

#[cfg(test)]
mod tests {
    use super::*;

    use edgeward_dedup::codec::Method;
    use edgeward_dedup::wire::{Frame, Span, StreamId, decode};

    /// Frames of all lengths are decoded as they were encoded. The lengths of the reads do not matter.
    #[test]
    fn frames_are_decoded_whatever_the_lengths_of_reads() {
        let payloads = [1, 100, 524_288, 3, 300_000, 524_288, 524_288, 7, 9000];
        let mut wire = Vec::new();
        for (nth, bytes) in payloads.into_iter().enumerate() {
            let payload = vec![nth as u8; bytes];
            let span = Span {
                stream: StreamId(nth as u64),
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
        for read_bytes_max in [7, 1000, 65_536, 1 << 20] {
            let (mut inbox, mut rest, mut decoded) =
                (Inbox::new(Pool::default()), &wire[..], Vec::new());
            while !rest.is_empty() {
                let free = inbox.free_bytes();
                let bytes = rest.len().min(free.len()).min(read_bytes_max);
                assert!(bytes > 0, "the free part of the buffer is never empty");
                free[..bytes].copy_from_slice(&rest[..bytes]);
                rest = &rest[bytes..];
                inbox.record_read(bytes);
                inbox.return_buffer();
                while let Some(frame) = inbox.frame().expect("the frames are valid") {
                    let frame = match &frame {
                        Framed::Short(bytes) => decode(bytes),
                        Framed::Long(bytes) => decode(bytes),
                    };
                    match frame.expect("the frame is valid") {
                        Frame::Plain { payload, .. } => decoded.push(payload.to_vec()),
                        other => panic!("{other:?}"),
                    }
                }
            }
            let expected = payloads.iter().enumerate();
            let expected = expected.map(|(nth, &bytes)| vec![nth as u8; bytes]);
            assert!(
                decoded.into_iter().eq(expected),
                "reads of {read_bytes_max} bytes"
            );
        }
    }

    #[test]
    fn a_frame_that_is_too_long_is_refused_by_its_header() {
        let mut inbox = Inbox::new(Pool::default());
        let mut header = [0; 16];
        header[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        header[4] = 3;
        inbox.free_bytes()[..16].copy_from_slice(&header);
        inbox.record_read(16);
        assert_eq!(
            inbox.frame().expect_err("the frame is too long"),
            WireError::TooLong(u32::MAX)
        );
    }
}
