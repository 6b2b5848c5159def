//! Partitions of rows: each has a buffer in memory, and full buffers are written to one temporary file.
//!
//! The file consists of chunks of equal size. Each chunk belongs to one partition. The positions of the chunks
//! are in memory, 8 bytes per chunk. The file has no name, so even a killed process leaves no file behind.

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::row::{Key as _, Row};

/// The number of partitions: one for each value of the top byte of `Key::first`, a 64-bit hash of the URL.
pub(crate) const PARTITIONS: usize = 256;

/// Why rows could not be stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpillError {
    /// The temporary file has reached its maximum size.
    #[error("the temporary file reached its limit of {bytes_max} bytes")]
    Limit {
        /// The maximum size in bytes.
        bytes_max: u64,
    },
    /// The temporary file cannot be created.
    #[error("no temporary file can be created in {}", .folder.display())]
    Create {
        /// The folder of the temporary file.
        folder: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The temporary file cannot be written, usually because the disk is full.
    #[error("the temporary file in {} cannot be written", .folder.display())]
    Write {
        /// The folder of the temporary file.
        folder: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The temporary file cannot be read.
    #[error("the temporary file in {} cannot be read", .folder.display())]
    Read {
        /// The folder of the temporary file.
        folder: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// The temporary file that all threads share.
#[derive(Debug)]
pub(crate) struct Spill {
    folder: PathBuf,
    bytes_max: u64,
    /// The largest size of a chunk. [`Partitions::new`] rounds it down to whole rows.
    pub(crate) chunk_bytes: usize,
    /// The file, created at the first write. If all rows fit into memory, it is not created.
    file: OnceLock<File>,
    /// The position at which the next chunk is written.
    end: AtomicU64,
    /// True after a failed write. All threads then stop.
    failed: AtomicBool,
}

impl Spill {
    pub(crate) fn new(folder: &Path, bytes_max: u64, chunk_bytes: usize) -> Self {
        Self {
            folder: folder.into(),
            bytes_max,
            chunk_bytes,
            file: OnceLock::new(),
            end: AtomicU64::new(0),
            failed: AtomicBool::new(false),
        }
    }

    /// Returns true if a chunk could not be written.
    pub(crate) fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes written to the file. A write beyond the limit fails, but still advances `end`.
    pub(crate) fn bytes(&self) -> u64 {
        self.end.load(Ordering::Relaxed).min(self.bytes_max)
    }

    fn write(&self, chunk: &[u8]) -> Result<u64, SpillError> {
        let result = self.try_write(chunk);
        if result.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        result
    }

    fn try_write(&self, chunk: &[u8]) -> Result<u64, SpillError> {
        let length = chunk.len() as u64;
        let at = self.end.fetch_add(length, Ordering::Relaxed);
        if at.saturating_add(length) > self.bytes_max {
            return Err(SpillError::Limit {
                bytes_max: self.bytes_max,
            });
        }
        let file = match self.file.get() {
            Some(file) => file,
            None => {
                let file =
                    tempfile::tempfile_in(&self.folder).map_err(|source| SpillError::Create {
                        folder: self.folder.clone(),
                        source,
                    })?;
                // If two threads create a file at the same time, one of the files is dropped unused.
                self.file.get_or_init(|| file)
            }
        };
        file.write_all_at(chunk, at)
            .map_err(|source| SpillError::Write {
                folder: self.folder.clone(),
                source,
            })?;
        Ok(at)
    }

    fn read(&self, at: u64, chunk: &mut [u8]) -> Result<(), SpillError> {
        let file = self.file.get().expect("a chunk was written");
        file.read_exact_at(chunk, at)
            .map_err(|source| SpillError::Read {
                folder: self.folder.clone(),
                source,
            })
    }
}

/// The rows of one thread, divided into partitions.
#[derive(Debug)]
pub(crate) struct Partitions<R> {
    /// The size of each buffer and chunk: a multiple of the size of a row.
    chunk_bytes: usize,
    /// The buffers of all partitions, one after the other. Buffers fill at about the same rate. Without a cache
    /// line between two buffers, their write positions would fall into few sets of the CPU cache.
    buffers: Vec<u8>,
    /// The number of filled bytes of each buffer.
    filled: Box<[u32; PARTITIONS]>,
    /// For each partition, the positions of its chunks in the file.
    chunks: Vec<Vec<u64>>,
    row: PhantomData<R>,
}

impl<R: Row> Partitions<R> {
    pub(crate) fn new(chunk_bytes: usize) -> Self {
        let chunk_bytes = chunk_bytes / R::BYTES * R::BYTES;
        Self {
            chunk_bytes,
            // The system allocates the zeroed memory only when it is first written.
            buffers: vec![0; (chunk_bytes + BUFFER_GAP_BYTES) * PARTITIONS],
            filled: Box::new([0; PARTITIONS]),
            chunks: vec![Vec::new(); PARTITIONS],
            row: PhantomData,
        }
    }

    /// Stores a row. If this fails, the row is not stored, and all earlier rows remain.
    #[inline]
    pub(crate) fn push(&mut self, row: R, spill: &Spill) -> Result<(), SpillError> {
        let partition = (row.key().first() >> 56) as usize;
        if self.filled[partition] as usize >= self.chunk_bytes {
            self.flush(partition, spill)?;
        }
        let at = self.buffer_start(partition) + self.filled[partition] as usize;
        row.write(&mut self.buffers[at..at + R::BYTES]);
        self.filled[partition] += R::BYTES as u32;
        Ok(())
    }

    #[cold]
    fn flush(&mut self, partition: usize, spill: &Spill) -> Result<(), SpillError> {
        let at = spill.write(self.buffer(partition))?;
        self.chunks[partition].push(at);
        self.filled[partition] = 0;
        Ok(())
    }

    const fn buffer_start(&self, partition: usize) -> usize {
        partition * (self.chunk_bytes + BUFFER_GAP_BYTES)
    }

    /// Returns the rows of a partition that are in its buffer.
    fn buffer(&self, partition: usize) -> &[u8] {
        &self.buffers[self.buffer_start(partition)..][..self.filled[partition] as usize]
    }

    /// Returns the number of rows in a partition.
    pub(crate) fn rows(&self, partition: usize) -> u64 {
        let written = self.chunks[partition].len() * self.chunk_bytes;
        ((written + self.filled[partition] as usize) / R::BYTES) as u64
    }

    /// Calls `each` with every row of a partition until `each` returns false. Returns false in this case.
    /// `scratch` is a reusable buffer for chunks.
    pub(crate) fn for_each(
        &self,
        partition: usize,
        spill: &Spill,
        scratch: &mut Vec<u8>,
        mut each: impl FnMut(R) -> bool,
    ) -> Result<bool, SpillError> {
        scratch.resize(self.chunk_bytes, 0);
        for at in &self.chunks[partition] {
            spill.read(*at, scratch)?;
            for row in scratch.chunks_exact(R::BYTES) {
                if !each(R::read(row)) {
                    return Ok(false);
                }
            }
        }
        for row in self.buffer(partition).chunks_exact(R::BYTES) {
            if !each(R::read(row)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The gap between two buffers in bytes: one cache line.
const BUFFER_GAP_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use crate::row::UrlRow;

    use super::*;

    fn read_all(partitions: &Partitions<UrlRow<u64>>, spill: &Spill) -> Vec<u64> {
        let mut all = Vec::new();
        for partition in 0..PARTITIONS {
            let before = all.len();
            let each = |row: UrlRow<u64>| {
                assert_eq!(row.0 >> 56, partition as u64);
                all.push(row.0);
                true
            };
            let mut scratch = Vec::new();
            partitions
                .for_each(partition, spill, &mut scratch, each)
                .expect("the temporary file can be read");
            assert_eq!(partitions.rows(partition), (all.len() - before) as u64);
        }
        all
    }

    /// Returns 5,000 rows. The multiplication distributes them over the partitions.
    fn rows() -> impl Iterator<Item = u64> {
        (0..5000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    #[test]
    fn every_row_is_read_back_from_memory_and_disk() {
        let folder = tempfile::tempdir().expect("the folder can be created");
        let spill = Spill::new(folder.path(), u64::MAX, 64);
        let mut partitions = Partitions::new(64);
        for row in rows() {
            partitions
                .push(UrlRow(row), &spill)
                .expect("the disk has space");
        }
        assert!(spill.bytes() > 0, "some rows were written to disk");
        let mut expected: Vec<u64> = rows().collect();
        expected.sort_unstable();
        let mut all = read_all(&partitions, &spill);
        all.sort_unstable();
        assert_eq!(all, expected);
        let names = folder
            .path()
            .read_dir()
            .expect("the folder can be read")
            .count();
        assert_eq!(names, 0, "the file has no name, so a crash leaves no file");
    }

    #[test]
    fn at_the_size_limit_of_the_file_all_stored_rows_remain() {
        let folder = tempfile::tempdir().expect("the folder can be created");
        let spill = Spill::new(folder.path(), 640, 64);
        let mut partitions = Partitions::new(64);
        let taken: Vec<u64> = rows()
            .take_while(|row| partitions.push(UrlRow(*row), &spill).is_ok())
            .collect();
        assert!(spill.failed() && taken.len() < 5000);
        let mut all = read_all(&partitions, &spill);
        all.sort_unstable();
        let mut expected = taken;
        expected.sort_unstable();
        assert_eq!(all, expected);
    }

    #[test]
    fn a_missing_folder_is_named_in_the_error() {
        let spill = Spill::new(Path::new("/nonexistent/folder"), u64::MAX, 8);
        let mut partitions = Partitions::new(8);
        partitions
            .push(UrlRow(1u64), &spill)
            .expect("the row fits in the buffer");
        let error = partitions
            .push(UrlRow(1u64), &spill)
            .expect_err("the folder does not exist");
        assert!(error.to_string().contains("/nonexistent/folder"), "{error}");
    }
}
