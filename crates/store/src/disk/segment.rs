//! What readers know of segments: which opening each is in, and that somebody still reads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use edgeward_policy::log::SegmentId;

use super::location::Location;

/// Where the segments of a device lie, and the state of each that readers need.
#[derive(Debug)]
pub(crate) struct SegmentTable {
    segments_at: u64,
    segment_bytes: u64,
    slots: Box<[Slot]>,
}

#[derive(Debug, Default)]
struct Slot {
    /// Of what it holds; 0 if that is nothing anybody wrote. Set before the segment is overwritten.
    epoch: AtomicU64,
    /// Objects being read of which it holds a part.
    pins: AtomicU32,
}

impl SegmentTable {
    pub(crate) fn new(segments_at: u64, segment_bytes: u64, segments: u32) -> Self {
        Self {
            segments_at,
            segment_bytes,
            slots: (0..segments).map(|_| Slot::default()).collect(),
        }
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.slots.len()).expect("made from 32 bits")
    }

    /// Where a segment begins, in bytes from the device's start.
    pub(crate) fn start(&self, segment: SegmentId) -> u64 {
        self.segments_at + u64::from(segment.0) * self.segment_bytes
    }

    /// Where it ends.
    pub(crate) fn end(&self, segment: SegmentId) -> u64 {
        self.start(segment) + self.segment_bytes
    }

    pub(crate) fn location(&self, segment: SegmentId, offset: u64) -> Location {
        Location::from_offset(self.start(segment) + offset)
    }

    /// The segment a byte of the device lies in, if any.
    pub(crate) fn segment_at(&self, offset: u64) -> Option<SegmentId> {
        let number = offset.checked_sub(self.segments_at)? / self.segment_bytes;
        let number = u32::try_from(number).ok()?;
        (number < self.count()).then_some(SegmentId(number))
    }

    pub(crate) fn epoch(&self, segment: SegmentId) -> u64 {
        self.slots[segment.0 as usize].epoch.load(Ordering::Acquire)
    }

    pub(crate) fn set_epoch(&self, segment: SegmentId, epoch: u64) {
        self.slots[segment.0 as usize]
            .epoch
            .store(epoch, Ordering::Release);
    }

    pub(crate) fn is_pinned(&self, segment: SegmentId) -> bool {
        self.slots[segment.0 as usize].pins.load(Ordering::Relaxed) > 0
    }

    /// Asks that the segment not be overwritten while the pin lives. A wish: if all free segments are
    /// pinned one is overwritten all the same, and its readers find out by the epoch.
    pub(crate) fn pin(self: &Arc<Self>, segment: SegmentId) -> Pin {
        self.slots[segment.0 as usize]
            .pins
            .fetch_add(1, Ordering::Relaxed);
        Pin {
            table: Arc::clone(self),
            segment,
        }
    }
}

/// Somebody reads a segment.
#[derive(Debug)]
pub(crate) struct Pin {
    table: Arc<SegmentTable>,
    segment: SegmentId,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.table.slots[self.segment.0 as usize]
            .pins
            .fetch_sub(1, Ordering::Relaxed);
    }
}
