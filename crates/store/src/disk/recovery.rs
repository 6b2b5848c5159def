//! Opening a device: what it is, how it is divided, and what it holds.
//!
//! Segments are taken in the order in which they were opened. One that was sealed says in its footer
//! what it holds; the few that were not are searched record by record, every body checked, for of
//! what was not synced anything may be missing. Later records win over earlier ones and purges over
//! both, as when they were written.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use edgeward_policy::log::{LogShape, SegmentId, SegmentLog};
use edgeward_types::{ByteSize, KeyHash};

use super::blank::{self, Occupied};
use super::checkpoint;
use super::device::Device;
use super::error::{DamagedDevice, OpenError};
use super::format::{
    ChecksumSeed, Entry, Extent, Kind, SEGMENT_HEADER_BYTES, SUPERBLOCK_BYTES, SegmentHeader,
    Superblock, SuperblockError, Unformatted, looks_like_segment_header,
};
use super::index::{Index, IndexConfig};
use super::location::Location;
use super::renewal::FOLIO_BYTES_MAX;
use super::scan::Scan;
use super::segment::SegmentTable;
use super::settings::DiskSettings;
use super::volume::{Volume, VolumeParts};
use super::writer::unix_secs;

/// What was found when a cache was opened.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// One a device that is used, in the order of the settings.
    pub devices: Vec<DeviceRecovery>,
    /// Devices that are not used, because they are damaged stores.
    pub damaged: Vec<DamagedDevice>,
}

/// What was found on a device.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DeviceRecovery {
    /// What messages call it.
    pub device: String,
    /// The file was missing and was created.
    pub created: bool,
    /// Bytes of it that are used.
    pub bytes: u64,
    /// It was blank, and is a store now.
    pub formatted: bool,
    /// Objects that can be found.
    pub objects: u64,
    /// Segments that hold something.
    pub segments: u32,
    /// Those whose footer said what.
    pub footers: u32,
    /// Those that were searched.
    pub searched: u32,
    /// Those that could not be read; what they hold is lost.
    pub unreadable: u32,
    /// Whether a checkpoint spared the footers written before it.
    pub checkpoint: bool,
    /// How long it took.
    pub elapsed: Duration,
}

/// What a device holds. Nothing is written to find out.
#[derive(Debug)]
pub(super) enum Content {
    /// A store of this format.
    Store(Superblock),
    /// Nothing.
    Blank,
    /// A store whose superblock is destroyed.
    Damaged(DamagedDevice),
}

/// What a device holds.
///
/// # Errors
///
/// If it cannot be read, or holds what is not a store of this format.
pub(super) fn content_of(device: &dyn Device) -> Result<Content, OpenError> {
    let failed = |source| OpenError::Io {
        device: device.name(),
        source,
    };
    let refused = |problem| {
        Err(OpenError::Superblock {
            device: device.name(),
            problem,
        })
    };
    let problem = match read_superblock(device).map_err(failed)? {
        Ok(superblock) => return Ok(Content::Store(superblock)),
        Err(Unformatted::Broken(SuperblockError::Foreign)) => Some(SuperblockError::Foreign),
        Err(Unformatted::Broken(SuperblockError::Corrupt)) => {
            return Ok(Content::Damaged(damaged(device)));
        }
        Err(Unformatted::Broken(problem)) => return refused(problem),
        Err(Unformatted::Blank) => None,
    };
    let occupied = blank::occupied(device).map_err(failed)?;
    // What has a name was made after the store.
    if let Some(Occupied {
        at,
        what: what @ Some(_),
    }) = occupied
    {
        return refused(SuperblockError::Occupied { at, what });
    }
    if was_store(device).map_err(failed)? {
        return Ok(Content::Damaged(damaged(device)));
    }
    match (problem, occupied) {
        (Some(problem), _) => refused(problem),
        (None, Some(Occupied { at, what })) => refused(SuperblockError::Occupied { at, what }),
        (None, None) => Ok(Content::Blank),
    }
}

fn damaged(device: &dyn Device) -> DamagedDevice {
    DamagedDevice {
        device: device.name(),
        erase_mib: (segment_headers_end(device) + SUPERBLOCK_BYTES as u64).div_ceil(1 << 20),
    }
}

/// Whether a segment's header lies where the first segments of a store may begin. Where exactly they began is lost with the
/// superblock, and a store may have been smaller when it was formatted. Reads a block for each 64 KiB of that
/// range, which is about a thousandth of the device.
fn was_store(device: &dyn Device) -> io::Result<bool> {
    let mut block = [0; SEGMENT_HEADER_BYTES];
    let Some(last) = device.len().checked_sub(block.len() as u64) else {
        return Ok(false);
    };
    let end = segment_headers_end(device).min(last);
    for at in (0..=end).step_by(SEGMENTS_ALIGN_MIN) {
        device.read_at(&mut block, at)?;
        if looks_like_segment_header(&block) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The last place where the first segment of a store on this device may begin.
fn segment_headers_end(device: &dyn Device) -> u64 {
    let bytes = device.len().min(Location::DEVICE_BYTES_MAX);
    let (checkpoint_at, checkpoint_bytes) = checkpoints_on(bytes);
    (checkpoint_at + 2 * checkpoint_bytes).next_multiple_of(FOLIO_BYTES_MAX)
}

/// Where the first checkpoint area of a store on so many bytes begins, and the length of each.
fn checkpoints_on(bytes: u64) -> (u64, u64) {
    let config = IndexConfig::for_device(ByteSize(bytes));
    let checkpoint_bytes = (Index::checkpoint_bytes_max(config) + CHECKPOINT_FRAME_BYTES)
        .next_multiple_of(SUPERBLOCK_BYTES as u64);
    (2 * SUPERBLOCK_BYTES as u64, checkpoint_bytes)
}

/// Makes a blank device a store.
pub(super) fn format_blank(
    device: &dyn Device,
    settings: &DiskSettings,
    key_seed: u64,
) -> Result<Superblock, OpenError> {
    let superblock = divide(device, settings, key_seed)?;
    format(device, &superblock).map_err(|source| OpenError::Io {
        device: device.name(),
        source,
    })?;
    Ok(superblock)
}

/// Either copy will do. A device may be blank only if both are.
pub(super) fn read_superblock(device: &dyn Device) -> io::Result<Result<Superblock, Unformatted>> {
    if device.len() < 2 * SUPERBLOCK_BYTES as u64 {
        return Ok(Err(if device.is_empty() {
            Unformatted::Blank
        } else {
            Unformatted::Broken(SuperblockError::Foreign)
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
        // What a crash while formatting leaves: nothing was stored yet.
        (Err(Unformatted::Blank), Err(Unformatted::Blank)) => Err(Unformatted::Blank),
        (Err(Unformatted::Broken(first)), Err(Unformatted::Broken(second))) => {
            // A version says most: another program wrote it, whatever became of the other copy.
            let is_version = matches!(second, SuperblockError::Version { .. });
            Err(Unformatted::Broken(if is_version { second } else { first }))
        }
        (Err(Unformatted::Broken(problem)), _) | (_, Err(Unformatted::Broken(problem))) => {
            Err(Unformatted::Broken(problem))
        }
    })
}

/// How a blank device is divided.
fn divide(
    device: &dyn Device,
    settings: &DiskSettings,
    key_seed: u64,
) -> Result<Superblock, OpenError> {
    let bytes = device.len().min(Location::DEVICE_BYTES_MAX);
    let segment_bytes = match settings.segment_bytes {
        Some(size) => size.bytes(),
        None => LogShape::segment_bytes_for(bytes),
    };
    let (checkpoint_at, checkpoint_bytes) = checkpoints_on(bytes);
    let superblock = Superblock {
        device_id: random(),
        key_seed,
        checksum_seed: ChecksumSeed(random()),
        segment_bytes,
        segments_at: (checkpoint_at + 2 * checkpoint_bytes)
            .next_multiple_of(segments_align(segment_bytes)),
        checkpoint_at,
        checkpoint_bytes,
        created_secs: unix_secs(),
    };
    segments_on(device, &superblock, settings.reserve_segments)?;
    Ok(superblock)
}

/// Bytes of a checkpoint beside the index itself: two blocks, and the list of segments.
const CHECKPOINT_FRAME_BYTES: u64 = 2 * SUPERBLOCK_BYTES as u64;

/// Flash erases and disks cache in larger units than blocks; a segment should not straddle them. Nor the largest pages of the
/// page cache, where the room that costs does not count: then all of a segment can be sent ([`renewal`](super::renewal)).
const fn segments_align(segment_bytes: u64) -> u64 {
    if segment_bytes >= 8 * FOLIO_BYTES_MAX {
        FOLIO_BYTES_MAX
    } else {
        SEGMENTS_ALIGN_MIN as u64
    }
}

/// The first segment of every store begins at a multiple of this.
const SEGMENTS_ALIGN_MIN: usize = 64 << 10;

fn format(device: &dyn Device, superblock: &Superblock) -> io::Result<()> {
    let bytes = superblock.to_bytes();
    // One whole copy is there before the other begins.
    for at in [SUPERBLOCK_BYTES as u64, 0] {
        device.write_at(&bytes, at)?;
        device.sync()?;
    }
    Ok(())
}

/// How many segments there are.
pub(super) fn segments_on(
    device: &dyn Device,
    superblock: &Superblock,
    reserve: u32,
) -> Result<u32, OpenError> {
    let bytes = device.len().min(Location::DEVICE_BYTES_MAX);
    let segments = bytes.saturating_sub(superblock.segments_at) / superblock.segment_bytes;
    let segments = u32::try_from(segments).unwrap_or(u32::MAX);
    let segments_min = SegmentLog::segments_min(reserve);
    if segments < segments_min {
        return Err(OpenError::TooSmall {
            device: device.name(),
            bytes: device.len(),
            needed: superblock.segments_at + u64::from(segments_min) * superblock.segment_bytes,
            segments: segments_min,
        });
    }
    Ok(segments)
}

/// Reads a device and makes it a volume and its log.
pub(super) fn recover(
    device: Arc<dyn Device>,
    superblock: Superblock,
    settings: DiskSettings,
    formatted: bool,
) -> Result<(Volume, SegmentLog, DeviceRecovery), OpenError> {
    let begun = Instant::now();
    let count = segments_on(&*device, &superblock, settings.reserve_segments)?;
    let segments = SegmentTable::new(superblock.segments_at, superblock.segment_bytes, count);
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
    // Among the missing ones may be the purge of what is still here.
    let had = found
        .iter()
        .map(|header| header.segments)
        .max()
        .unwrap_or(0);
    if had > count {
        return Err(OpenError::Shrunk {
            device: device.name(),
            bytes: device.len(),
            needed: superblock.segments_at + u64::from(had) * superblock.segment_bytes,
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
        sound_pieces: HashSet::new(),
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
    report.segments = u32::try_from(live.len()).expect("no more than there are");
    report.elapsed = begun.elapsed();
    let volume = Volume::new(VolumeParts {
        hides_records: report.unreadable > 0,
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

/// The segments that count, oldest first.
pub(super) fn live_segments(scan: &Scan<'_>, unreadable: &mut u32) -> Vec<SegmentHeader> {
    let mut live = Vec::new();
    let mut tail_epoch = 0;
    for number in 0..scan.segments.count() {
        match scan.header(SegmentId(number)) {
            Ok(Some(header)) => {
                tail_epoch = tail_epoch.max(header.tail_epoch);
                live.push(header);
            }
            Ok(None) => {}
            Err(_) => *unreadable += 1,
        }
    }
    live.retain(|header| header.epoch >= tail_epoch);
    live.sort_unstable_by_key(|header| header.epoch);
    live
}

/// Brings the index to where it was.
struct Replay<'a> {
    scan: Scan<'a>,
    index: &'a Index,
    live: &'a [(SegmentId, u64)],
    /// What lies in older segments the index knows.
    begin_epoch: u64,
    /// Segments without a footer.
    searched: HashSet<SegmentId>,
    /// Where pieces of sound bodies begin in those.
    sound_pieces: HashSet<u64>,
}

impl Replay<'_> {
    fn run(&mut self, report: &mut DeviceRecovery) {
        let known = self
            .live
            .partition_point(|&(_, epoch)| epoch < self.begin_epoch);
        let live = self.live;
        for &(segment, epoch) in &live[known..] {
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

    fn apply(&self, segment: SegmentId, entry: &Entry) {
        let hash = KeyHash(entry.hash);
        match entry.kind {
            Kind::Object | Kind::Commit => {
                let at = self
                    .scan
                    .segments
                    .location(segment, u64::from(entry.offset));
                // Whatever it takes the place of is older, or gives way as it did before the restart.
                _ = self.index.insert(hash, at);
            }
            Kind::Tombstones => _ = self.index.purge(hash),
            Kind::Piece => {}
        }
    }

    fn search(&mut self, segment: SegmentId, epoch: u64) -> io::Result<()> {
        self.searched.insert(segment);
        let scan = self.scan;
        scan.search(segment, epoch, true, |found| {
            if !found.body_is_sound {
                return;
            }
            if found.header.kind == Kind::Piece {
                self.sound_pieces
                    .insert(scan.segments.start(segment) + found.offset);
            }
            if found.header.kind == Kind::Commit
                && !found.extents().all(|extent| self.is_sound(&extent))
            {
                return;
            }
            found
                .entries()
                .iter()
                .for_each(|entry| self.apply(segment, entry));
        })
    }

    /// Whether a piece is there: its segment counts and, if that had to be searched, so is its body.
    fn is_sound(&self, extent: &Extent) -> bool {
        let Some(segment) = self.scan.segments.segment_at(extent.at) else {
            return false;
        };
        let counts = self
            .live
            .binary_search_by_key(&extent.epoch, |&(_, epoch)| epoch)
            .is_ok_and(|at| self.live[at].0 == segment);
        counts && (!self.searched.contains(&segment) || self.sound_pieces.contains(&extent.at))
    }
}

impl Volume {
    /// What a segment holds. Of one that cannot be read, nothing.
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
        // What was found before an error is something.
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
