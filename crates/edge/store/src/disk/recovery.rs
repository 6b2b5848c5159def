//! Opens a device: determines its content, formats a blank device, and recovers the index of a store.
//!
//! Segments are processed in the order in which they were opened. The footer of a sealed segment lists its records.
//! The few segments without a footer are searched record by record, and every body is verified, because after a crash
//! any part of the unsynced data may be missing. The records are applied to the index in the order in which they were
//! written: a later record of a key replaces an earlier one, and a tombstone removes the entry.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use edgeward_policy::log::{LogShape, SegmentId, SegmentLog};
use edgeward_types::{ByteSize, KeyHash, Timestamp};

use super::blank::{self, ForeignData};
use super::checkpoint;
use super::device::Device;
use super::error::{DamagedDevice, OpenError};
use super::format::{
    ChecksumSeed, Entry, Extent, NoValidSuperblock, RecordKind, SEGMENT_HEADER_BYTES,
    SUPERBLOCK_BYTES, SegmentHeader, Superblock, SuperblockError, looks_like_segment_header,
};
use super::index::{Index, IndexConfig};
use super::location::Location;
use super::page_replacement::FOLIO_BYTES_MAX;
use super::scan::Scan;
use super::segment::SegmentTable;
use super::settings::DiskSettings;
use super::volume::{Volume, VolumeParts};

/// The report of opening a cache.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// The devices in use, in the order of the settings.
    pub devices: Vec<DeviceRecovery>,
    /// The devices that are not used, because they are damaged stores.
    pub damaged: Vec<DamagedDevice>,
}

/// The report of opening a device.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DeviceRecovery {
    /// The name of the device in messages.
    pub device: String,
    /// True if the file was missing and was created.
    pub created: bool,
    /// The length of the device in bytes.
    pub bytes: u64,
    /// True if the device was blank and is a store now.
    pub formatted: bool,
    /// The objects that lookups can find.
    pub objects: u64,
    /// The segments with records.
    pub segments: u32,
    /// The segments whose footer was read.
    pub footers: u32,
    /// The segments without a footer, which were searched record by record.
    pub searched: u32,
    /// The segments that could not be read. Their records are lost.
    pub unreadable: u32,
    /// True if a checkpoint was used, so that only the footers of later segments were read.
    pub checkpoint: bool,
    /// The time that the recovery took.
    pub elapsed: Duration,
}

/// The content of a device.
#[derive(Debug)]
pub(super) enum Content {
    /// A store of this format.
    Store(Superblock),
    /// No data.
    Blank,
    /// A store whose superblock is destroyed.
    Damaged(DamagedDevice),
}

/// Returns the content of a device.
///
/// # Errors
///
/// Fails if the device cannot be read, or has data that is not a store of this format.
pub(super) fn content_of(device: &dyn Device) -> Result<Content, OpenError> {
    let failed = |source| OpenError::Io {
        device: device.name(),
        source,
    };
    let rejected = |problem| {
        Err(OpenError::Superblock {
            device: device.name(),
            problem,
        })
    };
    let problem = match read_superblock(device).map_err(failed)? {
        Ok(superblock) => return Ok(Content::Store(superblock)),
        Err(NoValidSuperblock::Invalid(SuperblockError::Foreign)) => Some(SuperblockError::Foreign),
        Err(NoValidSuperblock::Invalid(SuperblockError::Corrupt)) => {
            return Ok(Content::Damaged(damaged(device)));
        }
        Err(NoValidSuperblock::Invalid(problem)) => return rejected(problem),
        Err(NoValidSuperblock::Blank) => None,
    };
    let foreign = blank::foreign_data(device).map_err(failed)?;
    // Data with a known signature was written by another program. The device then belongs to the other program,
    // even if a store was on it before, and does not count as a damaged store.
    if let Some(ForeignData {
        at,
        kind: kind @ Some(_),
    }) = foreign
    {
        return rejected(SuperblockError::ForeignData { at, kind });
    }
    if was_store(device).map_err(failed)? {
        return Ok(Content::Damaged(damaged(device)));
    }
    match (problem, foreign) {
        (Some(problem), _) => rejected(problem),
        (None, Some(ForeignData { at, kind })) => {
            rejected(SuperblockError::ForeignData { at, kind })
        }
        (None, None) => Ok(Content::Blank),
    }
}

fn damaged(device: &dyn Device) -> DamagedDevice {
    DamagedDevice {
        device: device.name(),
        erase_mib: (first_segment_offset_max(device) + SUPERBLOCK_BYTES as u64).div_ceil(1 << 20),
    }
}

/// Returns true if a segment header is found at an offset at which the first segment of a store may begin. The exact
/// offset is lost with the superblock, and depends on the size of the device when it was formatted. The function
/// therefore reads one block in each 64 KiB of the possible offsets, which are about a thousandth of the device.
fn was_store(device: &dyn Device) -> io::Result<bool> {
    let mut block = [0; SEGMENT_HEADER_BYTES];
    let Some(last) = device.len().checked_sub(block.len() as u64) else {
        return Ok(false);
    };
    let end = first_segment_offset_max(device).min(last);
    for at in (0..=end).step_by(SEGMENTS_ALIGN_MIN) {
        device.read_at(&mut block, at)?;
        if looks_like_segment_header(&block) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the last offset at which the first segment of a store on this device may begin.
fn first_segment_offset_max(device: &dyn Device) -> u64 {
    let bytes = device.len().min(Location::DEVICE_BYTES_MAX);
    let (checkpoint_offset, checkpoint_bytes) = checkpoints_on(bytes);
    (checkpoint_offset + 2 * checkpoint_bytes).next_multiple_of(FOLIO_BYTES_MAX)
}

/// Returns the offset of the first checkpoint area of a store of this size, and the length of each area.
fn checkpoints_on(bytes: u64) -> (u64, u64) {
    let config = IndexConfig::for_device(ByteSize(bytes));
    let checkpoint_bytes = (Index::checkpoint_bytes_max(config) + CHECKPOINT_FRAME_BYTES)
        .next_multiple_of(SUPERBLOCK_BYTES as u64);
    (2 * SUPERBLOCK_BYTES as u64, checkpoint_bytes)
}

/// Formats a blank device as a store.
pub(super) fn format_blank(
    device: &dyn Device,
    settings: &DiskSettings,
    key_seed: u64,
) -> Result<Superblock, OpenError> {
    let superblock = new_superblock(device, settings, key_seed)?;
    format(device, &superblock).map_err(|source| OpenError::Io {
        device: device.name(),
        source,
    })?;
    Ok(superblock)
}

/// Reads the superblock. One valid copy is sufficient. A device may be blank only if both copies are blank.
pub(super) fn read_superblock(
    device: &dyn Device,
) -> io::Result<Result<Superblock, NoValidSuperblock>> {
    if device.len() < 2 * SUPERBLOCK_BYTES as u64 {
        return Ok(Err(if device.is_empty() {
            NoValidSuperblock::Blank
        } else {
            NoValidSuperblock::Invalid(SuperblockError::Foreign)
        }));
    }
    let mut bytes = [0; SUPERBLOCK_BYTES];
    let mut copy = |at| {
        device.read_at(&mut bytes, at)?;
        Ok::<_, io::Error>(Superblock::parse(&bytes))
    };
    let first = copy(0)?;
    let second = copy(SUPERBLOCK_BYTES as u64)?;
    Ok(match (first, second) {
        (Ok(superblock), _) | (_, Ok(superblock)) => Ok(superblock),
        // The device is new, or a crash interrupted its formatting before an object was stored.
        (Err(NoValidSuperblock::Blank), Err(NoValidSuperblock::Blank)) => {
            Err(NoValidSuperblock::Blank)
        }
        (Err(NoValidSuperblock::Invalid(first)), Err(NoValidSuperblock::Invalid(second))) => {
            // An unknown version is the more helpful error: another version of the program wrote the store.
            let is_version = matches!(second, SuperblockError::Version { .. });
            Err(NoValidSuperblock::Invalid(if is_version {
                second
            } else {
                first
            }))
        }
        (Err(NoValidSuperblock::Invalid(problem)), _)
        | (_, Err(NoValidSuperblock::Invalid(problem))) => Err(NoValidSuperblock::Invalid(problem)),
    })
}

/// Returns the superblock of a new store on a blank device: the layout and the seeds of the store.
fn new_superblock(
    device: &dyn Device,
    settings: &DiskSettings,
    key_seed: u64,
) -> Result<Superblock, OpenError> {
    let bytes = device.len().min(Location::DEVICE_BYTES_MAX);
    let segment_bytes = match settings.segment_bytes {
        Some(size) => size.bytes(),
        None => LogShape::segment_bytes_for(bytes),
    };
    let (checkpoint_offset, checkpoint_bytes) = checkpoints_on(bytes);
    let superblock = Superblock {
        device_id: random(),
        key_seed,
        checksum_seed: ChecksumSeed(random()),
        segment_bytes,
        segments_offset: (checkpoint_offset + 2 * checkpoint_bytes)
            .next_multiple_of(segments_align(segment_bytes)),
        checkpoint_offset,
        checkpoint_bytes,
        created_unix_secs: Timestamp::from(SystemTime::now()).as_secs(),
    };
    segments_on(device, &superblock, settings.reserve_segments)?;
    Ok(superblock)
}

/// Bytes of a checkpoint area in addition to the serialised index: two blocks of 4096 bytes, for the header and
/// for padding.
const CHECKPOINT_FRAME_BYTES: u64 = 2 * SUPERBLOCK_BYTES as u64;

/// Returns the alignment of the first segment. The erase units of flash memory and the cache units of disks are
/// larger than a block, and a segment should not begin within a unit. Large segments are also aligned to the largest
/// folios of the page cache, so that all of their bytes can be sent with `sendfile`
/// ([`page_replacement`](super::page_replacement)). The space lost by this alignment is small compared with a
/// large segment.
const fn segments_align(segment_bytes: u64) -> u64 {
    if segment_bytes >= 8 * FOLIO_BYTES_MAX {
        FOLIO_BYTES_MAX
    } else {
        SEGMENTS_ALIGN_MIN as u64
    }
}

/// The first segment of every store begins at a multiple of this number of bytes.
const SEGMENTS_ALIGN_MIN: usize = 64 << 10;

/// Writes both copies of the superblock.
fn format(device: &dyn Device, superblock: &Superblock) -> io::Result<()> {
    let bytes = superblock.to_bytes();
    // The copy at offset 4096 is durable before the copy at offset 0 is written.
    for at in [SUPERBLOCK_BYTES as u64, 0] {
        device.write_at(&bytes, at)?;
        device.sync()?;
    }
    Ok(())
}

/// Returns the number of segments on the device.
pub(super) fn segments_on(
    device: &dyn Device,
    superblock: &Superblock,
    reserve: u32,
) -> Result<u32, OpenError> {
    let bytes = device.len().min(Location::DEVICE_BYTES_MAX);
    let segments = bytes.saturating_sub(superblock.segments_offset) / superblock.segment_bytes;
    let segments = u32::try_from(segments).unwrap_or(u32::MAX);
    let segments_min = SegmentLog::segments_min(reserve);
    if segments < segments_min {
        return Err(OpenError::TooSmall {
            device: device.name(),
            bytes: device.len(),
            needed: superblock.segments_offset + u64::from(segments_min) * superblock.segment_bytes,
            segments: segments_min,
        });
    }
    Ok(segments)
}

/// Recovers a device and returns its volume and its log.
pub(super) fn recover(
    device: Arc<dyn Device>,
    superblock: Superblock,
    settings: DiskSettings,
    formatted: bool,
) -> Result<(Volume, SegmentLog, DeviceRecovery), OpenError> {
    let started = Instant::now();
    let count = segments_on(&*device, &superblock, settings.reserve_segments)?;
    let segments = SegmentTable::new(superblock.segments_offset, superblock.segment_bytes, count);
    let scan = Scan {
        device: &*device,
        segments: &segments,
        segment_bytes: superblock.segment_bytes,
        seed: superblock.checksum_seed,
    };
    let mut report = DeviceRecovery {
        device: device.name(),
        bytes: device.len(),
        formatted,
        ..DeviceRecovery::default()
    };
    let found = if formatted {
        Vec::new()
    } else {
        live_segments(&scan, &mut report.unreadable)
    };
    // A shrunk device is rejected: a missing segment could contain the tombstone of an object that is still stored.
    let segments_before = found
        .iter()
        .map(|header| header.segments)
        .max()
        .unwrap_or(0);
    if segments_before > count {
        return Err(OpenError::Shrunk {
            device: device.name(),
            bytes: device.len(),
            needed: superblock.segments_offset
                + u64::from(segments_before) * superblock.segment_bytes,
        });
    }
    let live: Vec<_> = found
        .iter()
        .map(|header| (SegmentId(header.segment), header.epoch))
        .collect();
    let bytes = device.len().min(Location::DEVICE_BYTES_MAX);
    let config = IndexConfig::for_device(ByteSize(bytes));
    let checkpoint = checkpoint::read(&*device, &superblock, config, &segments, &live);
    report.checkpoint = checkpoint.is_some();
    let (index, epoch) = checkpoint.unwrap_or_else(|| (Index::new(config), 0));
    Replay {
        scan,
        index: &index,
        begin_epoch: epoch,
        live: &live,
        searched: HashSet::new(),
        valid_pieces: HashSet::new(),
    }
    .run(&mut report);
    for &(segment, epoch) in &live {
        segments.set_epoch(segment, epoch);
    }
    let mut epochs = vec![None; count as usize];
    for &(segment, epoch) in &live {
        epochs[segment.0 as usize] = Some(epoch);
    }
    let found = (0..count).map(SegmentId).zip(epochs);
    let shape = LogShape::new(superblock.segment_bytes);
    let log = SegmentLog::restored(shape, settings.reserve_segments, found);
    report.objects = index.len();
    report.segments =
        u32::try_from(live.len()).expect("the count is at most the number of segments");
    report.elapsed = started.elapsed();
    let volume = Volume::new(VolumeParts {
        has_unreadable_segments: report.unreadable > 0,
        epoch_next: live.last().map_or(1, |&(_, epoch)| epoch + 1),
        device: Arc::clone(&device),
        superblock,
        shape,
        settings,
        index,
        segments,
    });
    Ok((volume, log, report))
}

/// Returns the headers of the segments in use, oldest first. Each header has the epoch of the oldest segment that was
/// in use when its own segment was opened. Segments with an epoch below the highest of these are free.
pub(super) fn live_segments(scan: &Scan<'_>, unreadable: &mut u32) -> Vec<SegmentHeader> {
    let mut live = Vec::new();
    let mut oldest_used_epoch = 0;
    for number in 0..scan.segments.count() {
        match scan.header(SegmentId(number)) {
            Ok(Some(header)) => {
                oldest_used_epoch = oldest_used_epoch.max(header.oldest_used_epoch);
                live.push(header);
            }
            Ok(None) => {}
            Err(_) => *unreadable += 1,
        }
    }
    live.retain(|header| header.epoch >= oldest_used_epoch);
    live.sort_unstable_by_key(|header| header.epoch);
    live
}

/// Replays the log into the index.
struct Replay<'a> {
    scan: Scan<'a>,
    index: &'a Index,
    /// The segments in use with their epochs, the lowest epoch first.
    live: &'a [(SegmentId, u64)],
    /// The first epoch to replay. The index already has the records of segments with a lower epoch.
    begin_epoch: u64,
    /// The segments without a footer that were searched so far.
    searched: HashSet<SegmentId>,
    /// The offsets of pieces (parts of an object's body) with valid bytes in the searched segments.
    valid_pieces: HashSet<u64>,
}

impl Replay<'_> {
    fn run(&mut self, report: &mut DeviceRecovery) {
        let covered = self
            .live
            .partition_point(|&(_, epoch)| epoch < self.begin_epoch);
        let live = self.live;
        for &(segment, epoch) in &live[covered..] {
            let result = match self.scan.footer(segment, epoch) {
                Ok(Some(entries)) => {
                    report.footers += 1;
                    entries.iter().for_each(|entry| self.apply(segment, entry));
                    Ok(())
                }
                Ok(None) => {
                    report.searched += 1;
                    self.search(segment, epoch)
                }
                Err(error) => Err(error),
            };
            report.unreadable += u32::from(result.is_err());
        }
    }

    /// Applies a record to the index.
    fn apply(&self, segment: SegmentId, entry: &Entry) {
        let hash = KeyHash(entry.hash);
        match entry.kind {
            RecordKind::Object | RecordKind::Commit => {
                let at = self
                    .scan
                    .segments
                    .location(segment, u64::from(entry.offset));
                // The result is not needed. If the insertion replaces an entry of the same key, the replaced
                // entry is older. If the index is full and removes the entry of another key, it also did so
                // before the restart.
                _ = self.index.insert(hash, at);
            }
            RecordKind::Tombstones => _ = self.index.purge(hash),
            RecordKind::Piece => {}
        }
    }

    /// Searches a segment without a footer, and applies its records with valid bodies to the index. The commit record
    /// of an object in pieces is applied only if all pieces are stored.
    fn search(&mut self, segment: SegmentId, epoch: u64) -> io::Result<()> {
        self.searched.insert(segment);
        let scan = self.scan;
        // `true`: compare each body with its checksums.
        scan.search(segment, epoch, true, |found| {
            if !found.has_valid_body {
                return;
            }
            if found.header.kind == RecordKind::Piece {
                self.valid_pieces
                    .insert(scan.segments.start(segment) + found.offset);
            }
            if found.header.kind == RecordKind::Commit
                && !found.extents().all(|extent| self.is_piece_stored(&extent))
            {
                return;
            }
            found
                .entries()
                .iter()
                .for_each(|entry| self.apply(segment, entry));
        })
    }

    /// Returns true if the piece at `extent` is stored: its segment is in use and, if searched, the body is valid.
    fn is_piece_stored(&self, extent: &Extent) -> bool {
        let Some(segment) = self.scan.segments.segment_at(extent.offset) else {
            return false;
        };
        let is_in_use = self
            .live
            .binary_search_by_key(&extent.epoch, |&(_, epoch)| epoch)
            .is_ok_and(|at| self.live[at].0 == segment);
        is_in_use
            && (!self.searched.contains(&segment) || self.valid_pieces.contains(&extent.offset))
    }
}

impl Volume {
    /// Returns the entries of a segment's records, from its footer or by a search. If the segment becomes
    /// unreadable during the search, returns the entries found until then.
    pub(super) fn entries_of(&self, segment: SegmentId) -> Vec<Entry> {
        let scan = Scan {
            device: &*self.device,
            segments: &self.segments,
            segment_bytes: self.shape.segment_bytes,
            seed: self.superblock.checksum_seed,
        };
        let epoch = self.segments.epoch(segment);
        if let Ok(Some(entries)) = scan.footer(segment, epoch) {
            return entries;
        }
        let mut entries = Vec::new();
        _ = scan.search(segment, epoch, false, |found| {
            entries.extend(found.entries());
        });
        entries
    }
}

pub(super) fn random() -> u64 {
    let mut bytes = [0; 8];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    assert_eq!(filled, Ok(8), "the system has random numbers");
    u64::from_le_bytes(bytes)
}
