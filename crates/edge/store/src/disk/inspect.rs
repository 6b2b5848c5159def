//! Describes the content of a store without opening it for use: an inspection does not write to the device and
//! builds no index.
//!
//! [`inspect`] reads the headers and footers of segments, [`verify`] every record. Both need exclusive access
//! to the store, because a log that is being written has no stable state.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use edgeward_policy::log::SegmentId;

use super::device::{Device, FileDevice};
use super::error::OpenError;
use super::format::{
    Entry, Extent, FORMAT_VERSION, NoValidSuperblock, RecordKind, Superblock, SuperblockError,
};
use super::location::Location;
use super::recovery;
use super::scan::Scan;
use super::segment::SegmentTable;

/// The content of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The path of the file or device.
    pub device: String,
    /// The version of the format, see docs/reference/disk-format.md.
    pub format_version: u32,
    /// The random number that the device got when it was formatted.
    pub device_id: u64,
    /// The Unix time at which the device was formatted.
    pub created_secs: u64,
    /// The bytes of the whole device.
    pub device_bytes: u64,
    /// The bytes of a segment.
    pub segment_bytes: u64,
    /// The number of segments.
    pub segments: u64,
    /// The segments in use, oldest first: segments with a readable header that were not reclaimed.
    pub in_use: Vec<SegmentInspection>,
    /// Segments whose header could not be read because the device returned an error.
    pub unreadable_segments: u64,
    /// Bytes of records that were read and verified; 0 if verification was not requested.
    pub verified_bytes: u64,
    /// Records that do not match their checksum, objects with a missing piece, and segments in use whose records or
    /// footer cannot be read.
    pub problems: u64,
    /// Descriptions of the first 100 problems.
    pub problems_shown: Vec<String>,
}

/// The content of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentInspection {
    /// The number of the segment on the device.
    pub segment: u32,
    /// The epoch of the segment: the number of times that any segment of the device was opened, up to the opening
    /// of this segment. A newer segment has a greater epoch.
    pub epoch: u64,
    /// The Unix time at which the segment was opened.
    pub opened_secs: u64,
    /// True if the segment has a footer, because the segment was filled or the store was closed cleanly.
    pub sealed: bool,
    /// The number of objects in a single record.
    pub objects: u64,
    /// The number of pieces of objects.
    pub pieces: u64,
    /// The number of commit records, which complete objects in pieces.
    pub commits: u64,
    /// The number of tombstones, one per purged key.
    pub tombstones: u64,
    /// The bytes of all records except tombstones.
    pub record_bytes: u64,
}

impl Inspection {
    /// Returns the sum of one field over all segments in use.
    pub fn total(&self, field: impl Fn(&SegmentInspection) -> u64) -> u64 {
        self.in_use.iter().map(field).sum()
    }
}

/// The progress of an inspection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InspectionProgress {
    /// The segments inspected so far.
    pub segments_done: u64,
    /// The segments to inspect.
    pub segments: u64,
}

/// The largest number of problems that are described. Further problems are only counted.
const PROBLEMS_SHOWN_MAX: usize = 100;

/// Describes the store at `path`.
///
/// # Errors
///
/// Fails if the store is in use, cannot be read, or `path` is not a store.
pub fn inspect(
    path: &Path,
    progress: impl FnMut(InspectionProgress),
) -> Result<Inspection, OpenError> {
    inspect_path(path, false, progress)
}

/// Like [`inspect`], and verifies the checksum of every record.
///
/// # Errors
///
/// Like [`inspect`].
pub fn verify(
    path: &Path,
    progress: impl FnMut(InspectionProgress),
) -> Result<Inspection, OpenError> {
    inspect_path(path, true, progress)
}

fn inspect_path(
    path: &Path,
    verify_bodies: bool,
    progress: impl FnMut(InspectionProgress),
) -> Result<Inspection, OpenError> {
    let device = FileDevice::open_to_read(path).map_err(|source| OpenError::Device {
        path: path.to_owned(),
        source,
    })?;
    inspect_device(&device, verify_bodies, progress)
}

/// Like [`inspect`], or like [`verify`] if `verify_bodies` is true, for a device that the caller opened.
///
/// # Errors
///
/// Like [`inspect`].
pub fn inspect_device(
    device: &dyn Device,
    verify_bodies: bool,
    mut progress: impl FnMut(InspectionProgress),
) -> Result<Inspection, OpenError> {
    let failed = |source| OpenError::Io {
        device: device.name(),
        source,
    };
    let rejected = |problem| OpenError::Superblock {
        device: device.name(),
        problem,
    };
    let superblock = match recovery::read_superblock(device).map_err(failed)? {
        Ok(superblock) => superblock,
        Err(NoValidSuperblock::Blank) => return Err(rejected(SuperblockError::Foreign)),
        Err(NoValidSuperblock::Invalid(problem)) => return Err(rejected(problem)),
    };
    // 0: an inspection needs no reserve of free segments.
    let count = recovery::segments_on(device, &superblock, 0)?;
    let segments = SegmentTable::new(superblock.segments_offset, superblock.segment_bytes, count);
    let mut inspector = Inspector {
        scan: Scan {
            device,
            segments: &segments,
            segment_bytes: superblock.segment_bytes,
            seed: superblock.checksum_seed,
        },
        report: new_report(device, &superblock, count),
        valid_pieces: HashSet::new(),
        extents: Vec::new(),
    };
    let live = inspector.live_segments();
    let total = live.len() as u64;
    for (done, (segment, epoch)) in (1..).zip(live) {
        inspector.inspect_segment(segment, epoch, verify_bodies);
        progress(InspectionProgress {
            segments_done: done,
            segments: total,
        });
    }
    if verify_bodies {
        inspector.check_extents();
    }
    Ok(inspector.report)
}

fn new_report(device: &dyn Device, superblock: &Superblock, segments: u32) -> Inspection {
    Inspection {
        device: device.name(),
        format_version: FORMAT_VERSION,
        device_id: superblock.device_id,
        created_secs: superblock.created_unix_secs,
        device_bytes: device.len(),
        segment_bytes: superblock.segment_bytes,
        segments: u64::from(segments),
        ..Inspection::default()
    }
}

struct Inspector<'a> {
    scan: Scan<'a>,
    report: Inspection,
    /// The offsets of pieces that match their checksum.
    valid_pieces: HashSet<u64>,
    /// For every piece that a commit record lists: the location of the commit record, and the extent of the piece (its
    /// offset on the device and the epoch of its segment).
    extents: Vec<(Location, Extent)>,
}

impl Inspector<'_> {
    fn live_segments(&mut self) -> Vec<(SegmentId, u64)> {
        let mut unreadable = 0;
        let live = recovery::live_segments(&self.scan, &mut unreadable);
        self.report.unreadable_segments = u64::from(unreadable);
        let live = live.iter();
        live.map(|header| (SegmentId(header.segment), header.epoch))
            .collect()
    }

    fn inspect_segment(&mut self, segment: SegmentId, epoch: u64, verify_bodies: bool) {
        let mut inspection = SegmentInspection {
            segment: segment.0,
            epoch,
            ..SegmentInspection::default()
        };
        if let Ok(Some(header)) = self.scan.header(segment) {
            inspection.opened_secs = header.opened_unix_secs;
        }
        let result = match self.scan.footer(segment, epoch) {
            Ok(Some(entries)) => {
                inspection.sealed = true;
                entries.iter().for_each(|entry| inspection.count(entry));
                if verify_bodies {
                    self.check_entries(segment, epoch, &entries)
                } else {
                    Ok(())
                }
            }
            Ok(None) => self.search(segment, epoch, verify_bodies, &mut inspection),
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            self.report_problem(format!("segment {} cannot be read: {error}", segment.0));
        }
        self.report.in_use.push(inspection);
    }

    /// Checks that the segment has every record that its footer lists.
    fn check_entries(
        &mut self,
        segment: SegmentId,
        epoch: u64,
        entries: &[Entry],
    ) -> io::Result<()> {
        let mut found = HashSet::new();
        self.visit(segment, epoch, &mut |offset| _ = found.insert(offset))?;
        let mut missing = None;
        for entry in entries {
            // A record with several tombstones has an entry for each tombstone, but is reported only once.
            if !found.contains(&u64::from(entry.offset)) && missing != Some(entry.offset) {
                missing = Some(entry.offset);
                let at = self
                    .scan
                    .segments
                    .location(segment, u64::from(entry.offset));
                self.report_problem(format!("record at {at} does not match its checksum"));
            }
        }
        Ok(())
    }

    /// Calls `visit` with the offset of every record of a segment that matches its checksum. Collects the
    /// pieces, and the extents of commit records, for `check_extents`.
    fn visit(
        &mut self,
        segment: SegmentId,
        epoch: u64,
        visit: &mut dyn FnMut(u64),
    ) -> io::Result<()> {
        let scan = self.scan;
        scan.search(segment, epoch, true, |found| {
            self.report.verified_bytes += found.header.record_bytes();
            if !found.has_valid_body {
                return;
            }
            let at = scan.segments.location(segment, found.offset);
            match found.header.kind {
                RecordKind::Piece => _ = self.valid_pieces.insert(at.offset()),
                RecordKind::Commit => self
                    .extents
                    .extend(found.extents().map(|extent| (at, extent))),
                RecordKind::Object | RecordKind::Tombstones => {}
            }
            visit(found.offset);
        })
    }

    /// Reads a segment without a footer. The segment was being written when the process ended. A torn record in
    /// this segment was never durable, so it is not reported as a problem.
    fn search(
        &mut self,
        segment: SegmentId,
        epoch: u64,
        verify_bodies: bool,
        inspection: &mut SegmentInspection,
    ) -> io::Result<()> {
        let scan = self.scan;
        scan.search(segment, epoch, verify_bodies, |found| {
            if found.has_valid_body {
                found
                    .entries()
                    .iter()
                    .for_each(|entry| inspection.count(entry));
            }
        })?;
        if verify_bodies {
            self.visit(segment, epoch, &mut |_| {})?;
        }
        Ok(())
    }

    /// Checks that the pieces of each object are stored, unless their segment was reclaimed.
    fn check_extents(&mut self) {
        let live: HashSet<(u32, u64)> = {
            let in_use = self.report.in_use.iter();
            in_use
                .map(|inspection| (inspection.segment, inspection.epoch))
                .collect()
        };
        let mut broken: Option<Location> = None;
        for (commit, extent) in std::mem::take(&mut self.extents) {
            let segment = self.scan.segments.segment_at(extent.offset);
            let is_live = segment.is_some_and(|segment| live.contains(&(segment.0, extent.epoch)));
            if is_live && !self.valid_pieces.contains(&extent.offset) && broken != Some(commit) {
                broken = Some(commit);
                let at = extent.offset;
                self.report_problem(format!(
                    "object at {commit}: its piece at {at:#x} is missing"
                ));
            }
        }
    }

    fn report_problem(&mut self, description: String) {
        self.report.problems += 1;
        if self.report.problems_shown.len() < PROBLEMS_SHOWN_MAX {
            self.report.problems_shown.push(description);
        }
    }
}

impl SegmentInspection {
    fn count(&mut self, entry: &Entry) {
        let counter = match entry.kind {
            RecordKind::Object => &mut self.objects,
            RecordKind::Piece => &mut self.pieces,
            RecordKind::Commit => &mut self.commits,
            RecordKind::Tombstones => &mut self.tombstones,
        };
        *counter += 1;
        if entry.kind != RecordKind::Tombstones {
            self.record_bytes += u64::from(entry.record_bytes);
        }
    }
}
