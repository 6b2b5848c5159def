//! The segments of a log: which are free, which one is written, which one is reclaimed next.

use std::collections::VecDeque;

use super::shape::LogShape;

/// The number of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u32);

/// The location of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLocation {
    /// The segment with the record.
    pub segment: SegmentId,
    /// Bytes from the start of the segment.
    pub offset: u64,
}

/// A segment that was opened for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedSegment {
    /// The segment.
    pub segment: SegmentId,
    /// The sequence number of the opening. Each opening gets a higher number than all earlier ones.
    pub epoch: u64,
}

/// The state of a log's segments: free, open, or sealed in order.
#[derive(Clone, Debug)]
pub struct SegmentLog {
    shape: LogShape,
    /// A reclaim is due when fewer segments than this are free.
    reserve: u32,
    epoch_next: u64,
    open: Option<OpenSegment>,
    /// The sealed segments with their epochs, the oldest first.
    sealed: VecDeque<(SegmentId, u64)>,
    free: VecDeque<SegmentId>,
}

#[derive(Clone, Debug)]
struct OpenSegment {
    opened: OpenedSegment,
    /// Bytes from the start of the segment to the space that is not allocated yet.
    cursor: u64,
    /// Footer entries of the allocated records.
    entries: u64,
}

impl SegmentLog {
    /// Makes a log of `segments` empty segments that keeps `reserve` of them free.
    ///
    /// # Panics
    ///
    /// If the number of segments is below [`Self::segments_min`], or if no record fits into a segment.
    pub fn new(shape: LogShape, segments: u32, reserve: u32) -> Self {
        let all = (0..segments).map(|n| (SegmentId(n), None));
        Self::restored(shape, reserve, all)
    }

    /// Restores a log. Each segment has the epoch of its content, or `None` if it is empty.
    ///
    /// # Panics
    ///
    /// Panics like [`new`](Self::new).
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
        assert!(
            shape.record_bytes_max() > 0,
            "a segment has space for at least one record"
        );
        Self {
            shape,
            reserve,
            epoch_next: sealed.last().map_or(1, |&(_, epoch)| epoch + 1),
            open: None,
            sealed: sealed.into(),
            free,
        }
    }

    /// The minimum number of segments: the reserve, one open segment and one victim.
    pub const fn segments_min(reserve: u32) -> u32 {
        reserve + 2
    }

    /// The sizes of the record format.
    pub fn shape(&self) -> &LogShape {
        &self.shape
    }

    /// Allocates `record_bytes` in the open segment and leaves room for `entries` more footer entries. Returns
    /// `None` if the record does not fit, or no segment is open.
    pub fn allocate(&mut self, record_bytes: u64, entries: u64) -> Option<RecordLocation> {
        let open = self.open.as_mut()?;
        let offset = open.cursor.next_multiple_of(self.shape.record_align_bytes);
        let entries = open.entries + entries;
        let end = offset.checked_add(record_bytes)?;
        if end.checked_add(self.shape.footer_bytes_for(entries))? > self.shape.segment_bytes {
            return None;
        }
        open.cursor = end;
        open.entries = entries;
        Some(RecordLocation {
            segment: open.opened.segment,
            offset,
        })
    }

    /// Moves the next location up to a multiple of `align_bytes`. The caller has written all allocated records, and
    /// the next write must begin at such a multiple.
    pub fn align_to(&mut self, align_bytes: u64) {
        if let Some(open) = &mut self.open {
            open.cursor = open.cursor.next_multiple_of(align_bytes);
        }
    }

    /// Seals the open segment, if any.
    pub fn seal(&mut self) -> Option<SegmentId> {
        let open = self.open.take()?;
        let OpenedSegment { segment, epoch } = open.opened;
        self.sealed.push_back((segment, epoch));
        Some(segment)
    }

    /// Seals the open segment and opens a free one. Returns `None` and seals nothing if no segment is free.
    ///
    /// `avoid` returns true for a free segment that is still being read. If all free segments are being read,
    /// the first is opened.
    pub fn open_next(&mut self, mut avoid: impl FnMut(SegmentId) -> bool) -> Option<OpenedSegment> {
        let chosen = self.free.iter().position(|&id| !avoid(id)).unwrap_or(0);
        let segment = self.free.remove(chosen)?;
        self.seal();
        let opened = OpenedSegment {
            segment,
            epoch: self.epoch_next,
        };
        self.epoch_next += 1;
        self.open = Some(OpenSegment {
            opened,
            cursor: self.shape.segment_header_bytes,
            entries: 0,
        });
        Some(opened)
    }

    /// Undoes the last opening, because the segment could not be written. The segment is free again.
    pub fn close_unused(&mut self) {
        if let Some(open) = self.open.take() {
            self.free.push_front(open.opened.segment);
        }
    }

    /// The open segment.
    pub fn open(&self) -> Option<OpenedSegment> {
        self.open.as_ref().map(|open| open.opened)
    }

    /// Returns the segment to reclaim now: the oldest, if too few segments are free.
    pub fn victim(&self) -> Option<SegmentId> {
        if self.free.len() as u64 >= u64::from(self.reserve) {
            return None;
        }
        self.oldest()
    }

    /// Returns the segment that will be reclaimed next.
    pub fn oldest(&self) -> Option<SegmentId> {
        self.sealed.front().map(|&(segment, _)| segment)
    }

    /// Frees the victim after its objects were evicted or written again.
    ///
    /// # Panics
    ///
    /// If the segment is not the oldest.
    pub fn reclaimed(&mut self, segment: SegmentId) {
        let oldest = self.sealed.pop_front().map(|(segment, _)| segment);
        assert_eq!(
            oldest,
            Some(segment),
            "segments are reclaimed in the order in which they were opened"
        );
        self.free.push_back(segment);
    }

    /// Returns the lowest valid epoch. Segments with lower epochs are free, regardless of their content.
    pub fn tail_epoch(&self) -> u64 {
        self.sealed
            .front()
            .map(|&(_, epoch)| epoch)
            .or_else(|| self.open().map(|open| open.epoch))
            .unwrap_or(self.epoch_next)
    }

    /// Returns the longest body that may be stored: half of the space without the reserve and the open segment. A
    /// longer body could be reclaimed before it is complete, by its own writes and by reinsertions.
    pub fn object_bytes_max(&self) -> u64 {
        let shape = &self.shape;
        let usable_segments = (self.segments() as u64).saturating_sub(u64::from(self.reserve) + 1);
        let piece = shape.record_bytes(0, shape.piece_bytes);
        let pieces_a_segment = shape.record_bytes_max() / piece;
        // The last record lists each piece, and about half of a segment may hold this list. If memory is scarce,
        // pieces may have a quarter of the usual length.
        let extents_max = shape
            .record_bytes_max()
            .saturating_sub(shape.segment_bytes / 2)
            / shape.extent_bytes
            / 4;
        (usable_segments * pieces_a_segment / 2).min(extents_max) * shape.piece_bytes
    }

    /// The epoch of the next opening.
    pub fn epoch_next(&self) -> u64 {
        self.epoch_next
    }

    /// The number of free segments.
    pub fn free_segments(&self) -> usize {
        self.free.len()
    }

    /// The number of all segments.
    pub fn segments(&self) -> usize {
        self.free.len() + self.sealed.len() + usize::from(self.open.is_some())
    }
}
