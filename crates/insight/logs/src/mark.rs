//! Hashes of parts of a file, by which it is found again.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use edgeward_types::xxh3::xxh3_64;

/// A part of a file, up to [`MARK_BYTES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) bytes: u64,
    pub(crate) hash: u64,
}

impl Mark {
    pub(crate) fn new(part: &[u8]) -> Self {
        Self {
            bytes: part.len() as u64,
            hash: xxh3_64(part),
        }
    }

    /// Reads the first bytes of a file, as many as were read.
    pub(crate) fn first_of(file: &File, read: u64) -> io::Result<Self> {
        Self::read(file, 0, read)
    }

    /// Reads a part of a file. Has fewer bytes at the end of the file, or if `bytes` is more than [`MARK_BYTES`].
    pub(crate) fn read(file: &File, offset: u64, bytes: u64) -> io::Result<Self> {
        let length = usize::try_from(bytes).map_or(MARK_BYTES, |bytes| bytes.min(MARK_BYTES));
        let mut part = [0; MARK_BYTES];
        let count = read_at(file, &mut part[..length], offset)?;
        Ok(Self::new(&part[..count]))
    }

    /// Returns true if a file has these bytes at an offset.
    pub(crate) fn is_at(&self, file: &File, offset: u64) -> io::Result<bool> {
        Ok(self.bytes == 0 || Self::read(file, offset, self.bytes)? == *self)
    }

    /// Returns true if a file has these bytes before an offset.
    pub(crate) fn is_before(&self, file: &File, offset: u64) -> io::Result<bool> {
        self.is_at(file, offset.saturating_sub(self.bytes))
    }
}

/// Reads at an offset until the buffer is full or the file ends.
pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// The number of bytes that identify a file. A line of a log has a time, so two files differ in them.
pub(crate) const MARK_BYTES: usize = 256;
