//! The buffer of decompressed bytes that the parsers read.

use std::io::{self, Read};

/// Bytes that were read and not yet consumed, contiguous, with their offset in the stream.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// The offset of `bytes[start]` in the decompressed stream.
    offset: u64,
    ended: bool,
    /// An error of the input. It is reported after the bytes before it are consumed.
    failure: Option<io::Error>,
}

impl Buffer {
    /// Creates an empty buffer.
    pub fn new() -> Self {
        Self {
            bytes: vec![0; INITIAL_BYTES],
            start: 0,
            end: 0,
            offset: 0,
            ended: false,
            failure: None,
        }
    }

    /// The bytes that were read and not consumed.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The offset of [`Self::filled`] in the stream.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns true if [`Self::fill`] has reached the end of the stream or an error. No bytes then follow
    /// [`Self::filled`].
    pub const fn ended(&self) -> bool {
        self.ended
    }

    /// Returns true if the stream ended with an error that was not taken yet.
    pub const fn failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Takes the error that ended the stream.
    pub const fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    /// Consumes the first `count` bytes.
    ///
    /// # Panics
    ///
    /// Panics if the buffer has fewer bytes.
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.end - self.start, "consumed past the end");
        self.start += count;
        self.offset += count as u64;
    }

    /// Appends more bytes of the input. Sets `ended` at the end of the input and after an error. Moves
    /// unconsumed bytes to the front, and then doubles the buffer if it is full. The caller limits the size of
    /// the buffer by consuming bytes.
    pub fn fill(&mut self, input: &mut impl Read) {
        if self.ended {
            return;
        }
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.bytes.len() {
            self.bytes.resize(self.bytes.len() * 2, 0);
        }
        loop {
            match input.read(&mut self.bytes[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.ended = true;
                    self.failure = Some(error);
                }
            }
            return;
        }
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Self::new()
    }
}

/// The initial size of the buffer. It is large enough that reads are rare, and small enough for the
/// second-level cache of the processor.
const INITIAL_BYTES: usize = 256 << 10;
