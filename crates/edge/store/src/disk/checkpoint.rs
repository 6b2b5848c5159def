//! Saves the index, so that a restart need not read the footer of every segment. A footer lists the records of its
//! segment.
//!
//! A device has two checkpoint areas. They are written alternately, so that one area has a complete checkpoint
//! while the other is written. A checkpoint contains the epoch of the segment that was open when the save began.
//! The checkpoint covers the segments of lower epochs. After a restart, the records of this segment and of segments
//! with higher epochs are replayed from the log. A separate thread saves the index, because saving a large index
//! takes seconds.

use std::io::{self, Read, Write};
use std::sync::Arc;

use edgeward_policy::log::SegmentId;

use super::device::{Device, WRITE_ALIGN};
use super::format::{CHECKPOINT_HEADER_BYTES, CheckpointHeader, Superblock};
use super::index::{Index, IndexConfig};
use super::segment::SegmentTable;
use super::volume::Volume;

/// Writes a checkpoint of the index. `epoch` is the first epoch whose records the checkpoint may lack.
pub(super) fn write(volume: &Arc<Volume>, epoch: u64) -> io::Result<()> {
    let device = &*volume.device;
    let superblock = &volume.superblock;
    let newest = headers(device, superblock)
        .into_iter()
        .flatten()
        .max_by_key(|found| found.1.sequence);
    let (area, sequence) = newest.map_or((0, 1), |(area, header)| (1 - area, header.sequence + 1));
    let at = area_at(superblock, area);
    // Zeros make the area invalid until its new header is written.
    device.write_at(&[0; CHECKPOINT_HEADER_BYTES], at)?;
    device.sync()?;
    let mut out = AreaWriter {
        device,
        at: at + CHECKPOINT_HEADER_BYTES as u64,
        end: at + superblock.checkpoint_bytes,
        buffer: Vec::with_capacity(CHUNK_BYTES),
        written: 0,
    };
    let saved = volume.index.save(epoch, &mut out)?;
    out.flush()?;
    device.sync()?;
    let header = CheckpointHeader {
        sequence,
        epoch,
        bytes: saved.bytes,
    };
    device.write_at(&header.to_bytes(superblock.checksum_seed), at)?;
    device.sync()?;
    let counters = &volume.counters;
    counters.checkpoints.increment();
    counters
        .written_bytes
        .add(out.written + 2 * CHECKPOINT_HEADER_BYTES as u64);
    counters
        .write_ops
        .add(2 + out.written.div_ceil(CHUNK_BYTES as u64));
    counters.syncs.add(3);
    Ok(())
}

/// Returns the index from the newest readable checkpoint, and the first epoch whose records this index may
/// lack. `live` lists the segments that may contain records, with their epochs. Entries that point into another
/// segment, or into a segment of the returned or a later epoch, are removed.
pub(super) fn read(
    device: &dyn Device,
    superblock: &Superblock,
    config: IndexConfig,
    segments: &SegmentTable,
    live: &[(SegmentId, u64)],
) -> Option<(Index, u64)> {
    let mut found: Vec<_> = headers(device, superblock).into_iter().flatten().collect();
    found.sort_unstable_by_key(|(_, header)| std::cmp::Reverse(header.sequence));
    let (index, epoch) = found.into_iter().find_map(|(area, header)| {
        let at = area_at(superblock, area) + CHECKPOINT_HEADER_BYTES as u64;
        let mut input = AreaReader {
            device,
            at,
            end: at + header.bytes,
            buffer: Vec::new(),
            buffer_position: 0,
        };
        let (index, epoch) = Index::load(config, &mut input).ok()?;
        (epoch == header.epoch).then_some((index, epoch))
    })?;
    let mut is_covered = vec![false; segments.count() as usize];
    for &(segment, opened) in live {
        is_covered[segment.0 as usize] = opened < epoch;
    }
    index.retain(|at| {
        let segment = segments.segment_at(at.offset());
        segment.is_some_and(|segment| is_covered[segment.0 as usize])
    });
    Some((index, epoch))
}

fn area_at(superblock: &Superblock, area: u64) -> u64 {
    superblock.checkpoint_offset + area * superblock.checkpoint_bytes
}

/// Returns the headers of both areas, if they are valid.
fn headers(device: &dyn Device, superblock: &Superblock) -> [Option<(u64, CheckpointHeader)>; 2] {
    [0, 1].map(|area| {
        let mut bytes = [0; CHECKPOINT_HEADER_BYTES];
        device.read_at(&mut bytes, area_at(superblock, area)).ok()?;
        let header = CheckpointHeader::parse(&bytes, superblock.checksum_seed)?;
        let index_bytes_max = superblock.checkpoint_bytes - CHECKPOINT_HEADER_BYTES as u64;
        (header.bytes <= index_bytes_max).then_some((area, header))
    })
}

/// The size of one write to the device or one read from it, in bytes.
const CHUNK_BYTES: usize = 1 << 20;

/// Writes bytes to the device in large, aligned blocks.
struct AreaWriter<'a> {
    device: &'a dyn Device,
    /// The offset on the device at which the buffer will be written.
    at: u64,
    /// The end of the checkpoint area on the device.
    end: u64,
    buffer: Vec<u8>,
    /// The number of bytes written so far, with padding.
    written: u64,
}

impl Write for AreaWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let accepted = bytes.len().min(CHUNK_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..accepted]);
        if self.buffer.len() == CHUNK_BYTES {
            self.flush()?;
        }
        Ok(accepted)
    }

    /// Writes the buffer, with padding to a whole block. Only the last write may need padding: padding in the middle
    /// would change the checkpoint.
    fn flush(&mut self) -> io::Result<()> {
        let aligned = self.buffer.len().next_multiple_of(WRITE_ALIGN as usize);
        self.buffer.resize(aligned, 0);
        if self.at + aligned as u64 > self.end {
            // The device has grown since it was formatted, and the index has outgrown its area. Recovery then uses
            // the footers.
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.device.write_at(&self.buffer, self.at)?;
        self.at += aligned as u64;
        self.written += aligned as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// Reads bytes from the device in large blocks.
struct AreaReader<'a> {
    device: &'a dyn Device,
    /// The offset on the device of the next read.
    at: u64,
    /// The end of the checkpoint on the device.
    end: u64,
    buffer: Vec<u8>,
    /// The position in the buffer of the next byte to return.
    buffer_position: usize,
}

impl Read for AreaReader<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.buffer_position == self.buffer.len() {
            let bytes_left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
            self.buffer.resize(bytes_left.min(CHUNK_BYTES), 0);
            self.device.read_at(&mut self.buffer, self.at)?;
            self.at += self.buffer.len() as u64;
            self.buffer_position = 0;
        }
        let more = bytes.len().min(self.buffer.len() - self.buffer_position);
        bytes[..more].copy_from_slice(&self.buffer[self.buffer_position..][..more]);
        self.buffer_position += more;
        Ok(more)
    }
}
