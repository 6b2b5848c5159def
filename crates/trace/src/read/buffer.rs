//! The window of decoded bytes the parsers look through.

use std::io::{self, Read};

/// Bytes read and not yet consumed, contiguous, with their place in the stream.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Where in the decoded stream `bytes[start]` lies.
    offset: u64,
    ended: bool,
    /// A failure met while reading ahead. It is due once the bytes before it are used up.
    failure: Option<io::Error>,
}

impl Buffer {
    /// An empty window.
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

    /// What was read and not consumed.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Where in the stream [`Self::filled`] begins.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether nothing comes after [`Self::filled`].
    pub const fn ended(&self) -> bool {
        self.ended
    }

    /// Whether the stream broke off rather than came to its end.
    pub const fn failed(&self) -> bool {
        self.failure.is_some()
    }

    /// The failure that ended the stream, if one did.
    pub const fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    /// Lets the first `count` bytes go.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.end - self.start, "consumed past the end");
        self.start += count;
        self.offset += count as u64;
    }

    /// Reads more behind what is there; at the end or on a failure sets `ended` instead.
    /// Makes room by moving the rest to the front, then by doubling: the caller bounds how
    /// far by consuming.
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

/// Large enough that refilling is rare, small enough to stay in the second-level cache.
const INITIAL_BYTES: usize = 256 << 10;
