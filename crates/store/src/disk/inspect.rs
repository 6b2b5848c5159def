//! What a store holds, told without opening it for use: nothing is written, no index is built.
//!
//! [`inspect`] reads the ends of segments, [`verify`] every record. Both need the store for themselves,
//! for a log that is being written has no state one could tell.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use edgeward_policy::log::SegmentId;

use super::device::{Device, FileDevice};
use super::error::OpenError;
use super::format::{
    Entry, Extent, FORMAT_VERSION, Kind, Superblock, SuperblockError, Unformatted,
};
use super::location::Location;
use super::recovery;
use super::scan::Scan;
use super::segment::SegmentTable;

/// What is in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The file or device.
    pub device: String,
    /// The format's version.
    pub format_version: u32,
    /// Tells the device from others.
    pub device_id: u64,
    /// Unix time of its formatting.
    pub created_secs: u64,
    /// Bytes of the whole.
    pub device_bytes: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Segments in all.
    pub segments: u64,
    /// Those that hold records that count, oldest first.
    pub in_use: Vec<SegmentInspection>,
    /// Segments whose ends could not be read.
    pub unreadable_segments: u64,
    /// Bytes of records read and checked; 0 if that was not asked for.
    pub verified_bytes: u64,
    /// Records that are not what was written.
    pub problems: u64,
    /// The first of them.
    pub problems_shown: Vec<String>,
}

/// What is in a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentInspection {
    /// Its place on the device.
    pub segment: u32,
    /// Its opening.
    pub epoch: u64,
    /// Unix time of its opening.
    pub opened_secs: u64,
    /// Whether it has a footer: it was filled, or closed in order.
    pub sealed: bool,
    /// Objects in one record.
    pub objects: u64,
    /// Pieces of objects.
    pub pieces: u64,
    /// Last records of objects in pieces.
    pub commits: u64,
    /// Purged keys.
    pub tombstones: u64,
    /// Bytes of records.
    pub record_bytes: u64,
}

impl Inspection {
    /// One figure of all segments in use together.
    pub fn total(&self, of: impl Fn(&SegmentInspection) -> u64) -> u64 {
        self.in_use.iter().map(of).sum()
    }
}

/// How far it has come: segments done, of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InspectionProgress {
    /// Segments looked at.
    pub segments_done: u64,
    /// Segments to look at.
    pub segments: u64,
}

/// Problems that are shown; more are counted.
const PROBLEMS_SHOWN_MAX: usize = 100;

/// What is in the store at `path`.
///
/// # Errors
///
/// If it is in use, cannot be read, or is not a store.
pub fn inspect(
    path: &Path,
    progress: impl FnMut(InspectionProgress),
) -> Result<Inspection, OpenError> {
    look(path, false, progress)
}

/// The same, and whether every record is what was written.
///
/// # Errors
///
/// As [`inspect`].
pub fn verify(
    path: &Path,
    progress: impl FnMut(InspectionProgress),
) -> Result<Inspection, OpenError> {
    look(path, true, progress)
}

fn look(
    path: &Path,
    check: bool,
    progress: impl FnMut(InspectionProgress),
) -> Result<Inspection, OpenError> {
    let device = FileDevice::open_to_read(path).map_err(|source| OpenError::Device {
        path: path.to_owned(),
        source,
    })?;
    look_at(&device, check, progress)
}

/// As [`inspect`] (or, if `check`, [`verify`]) for a device of the caller's.
///
/// # Errors
///
/// As [`inspect`].
pub fn look_at(
    device: &dyn Device,
    check: bool,
    mut progress: impl FnMut(InspectionProgress),
) -> Result<Inspection, OpenError> {
    let failed = |source| OpenError::Io {
        device: device.name(),
        source,
    };
    let refused = |problem| OpenError::Superblock {
        device: device.name(),
        problem,
    };
    let superblock = match recovery::read_superblock(device).map_err(failed)? {
        Ok(superblock) => superblock,
        Err(Unformatted::Blank) => return Err(refused(SuperblockError::Foreign)),
        Err(Unformatted::Broken(problem)) => return Err(refused(problem)),
    };
    let count = recovery::segments_on(device, &superblock, 0)?;
    let segments = SegmentTable::new(superblock.segments_at, superblock.segment_bytes, count);
    let mut inspector = Inspector {
        scan: Scan {
            device,
            segments: &segments,
            segment_bytes: superblock.segment_bytes,
            seed: superblock.checksum_seed,
        },
        report: begun(device, &superblock, count),
        sound_pieces: HashSet::new(),
        extents: Vec::new(),
    };
    let live = inspector.live();
    let total = live.len() as u64;
    for (done, (segment, epoch)) in (1..).zip(live) {
        inspector.segment(segment, epoch, check);
        progress(InspectionProgress {
            segments_done: done,
            segments: total,
        });
    }
    if check {
        inspector.check_extents();
    }
    Ok(inspector.report)
}

fn begun(device: &dyn Device, superblock: &Superblock, segments: u32) -> Inspection {
    Inspection {
        device: device.name(),
        format_version: FORMAT_VERSION,
        device_id: superblock.device_id,
        created_secs: superblock.created_secs,
        device_bytes: device.len(),
        segment_bytes: superblock.segment_bytes,
        segments: u64::from(segments),
        ..Inspection::default()
    }
}

struct Inspector<'a> {
    scan: Scan<'a>,
    report: Inspection,
    /// Where pieces begin that are what was written.
    sound_pieces: HashSet<u64>,
    /// Of every last record: where it is, and a piece it names.
    extents: Vec<(Location, Extent)>,
}

impl Inspector<'_> {
    fn live(&mut self) -> Vec<(SegmentId, u64)> {
        let mut unreadable = 0;
        let live = recovery::live_segments(&self.scan, &mut unreadable);
        self.report.unreadable_segments = u64::from(unreadable);
        let live = live.iter();
        live.map(|header| (SegmentId(header.segment), header.epoch))
            .collect()
    }

    fn segment(&mut self, segment: SegmentId, epoch: u64, check: bool) {
        let mut of = SegmentInspection {
            segment: segment.0,
            epoch,
            ..SegmentInspection::default()
        };
        if let Ok(Some(header)) = self.scan.header(segment) {
            of.opened_secs = header.opened_secs;
        }
        let result = match self.scan.footer(segment, epoch) {
            Ok(Some(entries)) => {
                of.sealed = true;
                entries.iter().for_each(|entry| of.count(entry));
                if check {
                    self.check_entries(segment, epoch, &entries)
                } else {
                    Ok(())
                }
            }
            Ok(None) => self.search(segment, epoch, check, &mut of),
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            self.problem(format!("segment {} cannot be read: {error}", segment.0));
        }
        self.report.in_use.push(of);
    }

    /// Everything a footer lists has to be there.
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
            // The purges of one record have a line each.
            if !found.contains(&u64::from(entry.offset)) && missing != Some(entry.offset) {
                missing = Some(entry.offset);
                let at = self
                    .scan
                    .segments
                    .location(segment, u64::from(entry.offset));
                self.problem(format!("record at {at} is not what was written"));
            }
        }
        Ok(())
    }

    /// Shows every record of a segment that is what was written to `visit`, and remembers pieces.
    fn visit(
        &mut self,
        segment: SegmentId,
        epoch: u64,
        visit: &mut dyn FnMut(u64),
    ) -> io::Result<()> {
        let scan = self.scan;
        scan.search(segment, epoch, true, |found| {
            self.report.verified_bytes += found.header.record_bytes();
            if !found.body_is_sound {
                return;
            }
            let at = scan.segments.location(segment, found.offset);
            match found.header.kind {
                Kind::Piece => _ = self.sound_pieces.insert(at.offset()),
                Kind::Commit => self
                    .extents
                    .extend(found.extents().map(|extent| (at, extent))),
                Kind::Object | Kind::Tombstones => {}
            }
            visit(found.offset);
        })
    }

    /// A segment without a footer was being written when the process ended: what is torn was never
    /// promised, so it is no problem.
    fn search(
        &mut self,
        segment: SegmentId,
        epoch: u64,
        check: bool,
        of: &mut SegmentInspection,
    ) -> io::Result<()> {
        let scan = self.scan;
        scan.search(segment, epoch, check, |found| {
            if found.body_is_sound {
                found.entries().iter().for_each(|entry| of.count(entry));
            }
        })?;
        if check {
            self.visit(segment, epoch, &mut |_| {})?;
        }
        Ok(())
    }

    /// The pieces of an object must be there, unless their segment was reclaimed.
    fn check_extents(&mut self) {
        let live: HashSet<(u32, u64)> = {
            let in_use = self.report.in_use.iter();
            in_use.map(|of| (of.segment, of.epoch)).collect()
        };
        let mut broken: Option<Location> = None;
        for (commit, extent) in std::mem::take(&mut self.extents) {
            let segment = self.scan.segments.segment_at(extent.at);
            let counts = segment.is_some_and(|segment| live.contains(&(segment.0, extent.epoch)));
            if counts && !self.sound_pieces.contains(&extent.at) && broken != Some(commit) {
                broken = Some(commit);
                let at = extent.at;
                self.problem(format!("object at {commit} lacks its piece at {at:#x}"));
            }
        }
    }

    fn problem(&mut self, what: String) {
        self.report.problems += 1;
        if self.report.problems_shown.len() < PROBLEMS_SHOWN_MAX {
            self.report.problems_shown.push(what);
        }
    }
}

impl SegmentInspection {
    fn count(&mut self, entry: &Entry) {
        let counter = match entry.kind {
            Kind::Object => &mut self.objects,
            Kind::Piece => &mut self.pieces,
            Kind::Commit => &mut self.commits,
            Kind::Tombstones => &mut self.tombstones,
        };
        *counter += 1;
        if entry.kind != Kind::Tombstones {
            self.record_bytes += u64::from(entry.record_bytes);
        }
    }
}
