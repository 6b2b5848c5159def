//! Where things go in a log of segments, and which segment makes room.
//!
//! A disk likes large writes one after another. So its space is cut into segments of equal size that
//! are filled from front to back, one at a time, and emptied whole: the oldest first. What was hit
//! since it was written may be written again at the front ([`Reinsertion`] says what); the rest is
//! gone.
//!
//! The victim is always the oldest, by intent. Of two records for one key the later counts, and a
//! purge is itself a record. As long as segments die in the order they were born, an old record can
//! never outlive the newer one, or the purge, that put it out of force, so nothing that was purged comes back
//! when the log is read after a crash. All choice between objects lies in what is written again.
//!
//! [`SegmentLog`] holds the places and no objects: the server drives it with real records.
//! [`LogTier`] adds a table of objects and is a whole disk tier without bytes: the simulator drives
//! that.

mod reinsertion;
mod tier;

use std::collections::VecDeque;

pub use reinsertion::{Aged, HITS_MAX, ParseReinsertionError, Reinsertion};
pub use tier::{LogCounters, LogTier, LogTierConfig};

/// One segment of a log, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u32);

/// What a log's records look like from outside: sizes alone.
///
/// The defaults are those of the disk format, version 1; a test in `store` holds the two together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogShape {
    /// Bytes of a segment. A power of two is usual and not needed.
    pub segment_bytes: u64,
    /// Taken at the front of every segment.
    pub segment_header_bytes: u64,
    /// Taken at the end of every segment, whatever it holds.
    pub footer_bytes: u64,
    /// Taken at the end of a segment for each of its records.
    pub footer_entry_bytes: u64,
    /// The footer as a whole is rounded up to this.
    pub footer_align_bytes: u64,
    /// Records begin at multiples of this.
    pub record_align_bytes: u64,
    /// A record's own header, the key and the head not counted.
    pub record_header_bytes: u64,
    /// Bytes of body under one checksum.
    pub block_bytes: u64,
    /// A checksum.
    pub checksum_bytes: u64,
    /// Bodies longer than this are cut into pieces of this length.
    pub piece_bytes: u64,
    /// What an object's last record says of each of its pieces.
    pub extent_bytes: u64,
}

impl LogShape {
    /// The disk format's sizes, with segments of `segment_bytes`.
    pub const fn new(segment_bytes: u64) -> Self {
        let block_bytes = 64 << 10;
        // Pieces of 1 MiB; in a small segment at most a quarter of it, in whole blocks.
        let quarter = segment_bytes / 4 / block_bytes;
        let blocks = if quarter == 0 {
            1
        } else if quarter > 16 {
            16
        } else {
            quarter
        };
        Self {
            segment_bytes,
            segment_header_bytes: 4096,
            footer_bytes: 64,
            footer_entry_bytes: 32,
            footer_align_bytes: 4096,
            record_align_bytes: 512,
            record_header_bytes: 72,
            block_bytes,
            checksum_bytes: 8,
            piece_bytes: blocks * block_bytes,
            extent_bytes: 24,
        }
    }

    /// The usual size of a segment on a device of `device_bytes`: 64 MiB, less where there would be
    /// fewer than [`SEGMENTS_FEW`], for then reclaiming one forgets much at once.
    pub const fn segment_bytes_for(device_bytes: u64) -> u64 {
        let mut segment_bytes = 64 << 20;
        while device_bytes / segment_bytes < SEGMENTS_FEW && segment_bytes > 4 << 20 {
            segment_bytes /= 2;
        }
        segment_bytes
    }

    /// Bytes of a record that holds `body_bytes` of body and `named_bytes` of key and head.
    pub const fn record_bytes(&self, named_bytes: u64, body_bytes: u64) -> u64 {
        let blocks = body_bytes.div_ceil(self.block_bytes);
        self.record_header_bytes + named_bytes + blocks * self.checksum_bytes + body_bytes
    }

    /// Bytes of the record that makes `pieces` pieces an object.
    pub const fn commit_bytes(&self, named_bytes: u64, pieces: u64) -> u64 {
        self.record_header_bytes + named_bytes + pieces * self.extent_bytes
    }

    /// Whether a body of this length is cut into pieces.
    pub const fn is_cut(&self, body_bytes: u64) -> bool {
        body_bytes > self.piece_bytes
    }

    /// The largest record a segment can hold.
    pub const fn record_bytes_max(&self) -> u64 {
        let footer = self.footer_bytes_for(1);
        let rest = self
            .segment_bytes
            .saturating_sub(self.segment_header_bytes + footer);
        rest - rest % self.record_align_bytes
    }

    const fn footer_bytes_for(&self, entries: u64) -> u64 {
        (self.footer_bytes + entries * self.footer_entry_bytes)
            .next_multiple_of(self.footer_align_bytes)
    }
}

/// A reserve of two is an eighth of sixteen.
pub const SEGMENTS_FEW: u64 = 16;

/// A record's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The segment, the one that is open.
    pub segment: SegmentId,
    /// Bytes from the segment's start.
    pub offset: u64,
}

/// A segment that was taken into use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Which.
    pub segment: SegmentId,
    /// Counts openings: no two have the same, later ones are greater.
    pub epoch: u64,
}

/// The places of a log: what is free, what is open, what is sealed and in which order.
#[derive(Clone, Debug)]
pub struct SegmentLog {
    shape: LogShape,
    /// Reclaiming begins when fewer segments than this are free.
    reserve: u32,
    epoch_next: u64,
    open: Option<Open>,
    /// The oldest first.
    sealed: VecDeque<(SegmentId, u64)>,
    free: VecDeque<SegmentId>,
}

#[derive(Clone, Debug)]
struct Open {
    opened: Opened,
    cursor: u64,
    entries: u64,
}

impl SegmentLog {
    /// A log of `segments` empty segments that keeps `reserve` of them free.
    ///
    /// # Panics
    ///
    /// If there are fewer than [`Self::segments_min`] segments, or if none could hold a record.
    pub fn new(shape: LogShape, segments: u32, reserve: u32) -> Self {
        let all = (0..segments).map(|n| (SegmentId(n), None));
        Self::restored(shape, reserve, all)
    }

    /// The log that a reader of segments found: each with the epoch of what it holds, if anything.
    ///
    /// # Panics
    ///
    /// As [`new`](Self::new).
    pub fn restored(
        shape: LogShape,
        reserve: u32,
        found: impl IntoIterator<Item = (SegmentId, Option<u64>)>,
    ) -> Self {
        let mut sealed = Vec::new();
        let mut free = VecDeque::new();
        for (segment, epoch) in found {
            match epoch {
                Some(epoch) => sealed.push((segment, epoch)),
                None => free.push_back(segment),
            }
        }
        sealed.sort_unstable_by_key(|&(_, epoch)| epoch);
        let segments = sealed.len() + free.len();
        assert!(
            segments as u64 >= u64::from(Self::segments_min(reserve)),
            "a log of {segments} segments cannot keep {reserve} free"
        );
        assert!(shape.record_bytes_max() > 0, "a segment holds a record");
        Self {
            shape,
            reserve,
            epoch_next: sealed.last().map_or(1, |&(_, epoch)| epoch + 1),
            open: None,
            sealed: sealed.into(),
            free,
        }
    }

    /// Segments without which `reserve` cannot be kept free: one is open, one can be the victim.
    pub const fn segments_min(reserve: u32) -> u32 {
        reserve + 2
    }

    /// The shape it was made with.
    pub fn shape(&self) -> &LogShape {
        &self.shape
    }

    /// A place for `record_bytes` in the open segment that leaves room for `entries` more lines of
    /// the footer; none if it does not fit, or nothing is open.
    pub fn place(&mut self, record_bytes: u64, entries: u64) -> Option<Place> {
        let open = self.open.as_mut()?;
        let offset = open.cursor.next_multiple_of(self.shape.record_align_bytes);
        let entries = open.entries + entries;
        let end = offset.checked_add(record_bytes)?;
        if end.checked_add(self.shape.footer_bytes_for(entries))? > self.shape.segment_bytes {
            return None;
        }
        open.cursor = end;
        open.entries = entries;
        Some(Place {
            segment: open.opened.segment,
            offset,
        })
    }

    /// Moves the next place up to a multiple of `align_bytes`: what lies before is being written.
    pub fn align_to(&mut self, align_bytes: u64) {
        if let Some(open) = &mut self.open {
            open.cursor = open.cursor.next_multiple_of(align_bytes);
        }
    }

    /// Seals the open segment, if there is one.
    pub fn seal(&mut self) -> Option<SegmentId> {
        let open = self.open.take()?;
        let Opened { segment, epoch } = open.opened;
        self.sealed.push_back((segment, epoch));
        Some(segment)
    }

    /// Seals what is open and takes a free segment into use; none (and nothing sealed) if none is free.
    ///
    /// `avoid` says of a free segment that it would better wait, since somebody still reads it. If
    /// that is true of all of them the first is taken all the same.
    pub fn open_next(&mut self, mut avoid: impl FnMut(SegmentId) -> bool) -> Option<Opened> {
        let chosen = self.free.iter().position(|&id| !avoid(id)).unwrap_or(0);
        let segment = self.free.remove(chosen)?;
        self.seal();
        let opened = Opened {
            segment,
            epoch: self.epoch_next,
        };
        self.epoch_next += 1;
        self.open = Some(Open {
            opened,
            cursor: self.shape.segment_header_bytes,
            entries: 0,
        });
        Some(opened)
    }

    /// Takes back the opening: nothing could be written to the segment, and it is free as before.
    pub fn close_unused(&mut self) {
        if let Some(open) = self.open.take() {
            self.free.push_front(open.opened.segment);
        }
    }

    /// What is open.
    pub fn open(&self) -> Option<Opened> {
        self.open.as_ref().map(|open| open.opened)
    }

    /// The segment that must make room now: the oldest, if too few are free.
    pub fn victim(&self) -> Option<SegmentId> {
        if self.free.len() as u64 >= u64::from(self.reserve) {
            return None;
        }
        self.oldest()
    }

    /// The segment that will make room next.
    pub fn oldest(&self) -> Option<SegmentId> {
        self.sealed.front().map(|&(segment, _)| segment)
    }

    /// Takes back the victim, whose objects have been forgotten or written again.
    ///
    /// # Panics
    ///
    /// If it is not the oldest.
    pub fn reclaimed(&mut self, segment: SegmentId) {
        let oldest = self.sealed.pop_front().map(|(segment, _)| segment);
        assert_eq!(oldest, Some(segment), "segments die in the order of birth");
        self.free.push_back(segment);
    }

    /// The lowest epoch whose records still count. Everything older is free, whatever it holds.
    pub fn tail_epoch(&self) -> u64 {
        self.sealed
            .front()
            .map(|&(_, epoch)| epoch)
            .or_else(|| self.open().map(|open| open.epoch))
            .unwrap_or(self.epoch_next)
    }

    /// The longest body that may enter: half of what the log holds beside its reserve. A longer one
    /// could be pushed out by itself, and by what is reinserted on the way, before it is whole.
    pub fn object_bytes_max(&self) -> u64 {
        let shape = &self.shape;
        let kept = (self.segments() as u64).saturating_sub(u64::from(self.reserve) + 1);
        let piece = shape.record_bytes(0, shape.piece_bytes);
        let pieces_a_segment = shape.record_bytes_max() / piece;
        // Pieces may be as short as a quarter of the usual where memory is scarce, and the last record names each.
        let extents_max = shape
            .record_bytes_max()
            .saturating_sub(shape.segment_bytes / 2)
            / shape.extent_bytes
            / 4;
        (kept * pieces_a_segment / 2).min(extents_max) * shape.piece_bytes
    }

    /// What the next opening will have.
    pub fn epoch_next(&self) -> u64 {
        self.epoch_next
    }

    /// Segments that are free.
    pub fn free_segments(&self) -> usize {
        self.free.len()
    }

    /// All its segments.
    pub fn segments(&self) -> usize {
        self.free.len() + self.sealed.len() + usize::from(self.open.is_some())
    }
}

#[cfg(test)]
mod tests;
