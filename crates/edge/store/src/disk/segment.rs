//! The state of segments that readers need: the epoch of each segment, and its readers.
//!
//! A segment gets an epoch each time it is opened for writing: the number of such openings of all segments so far. A
//! segment is free after its space was reclaimed, although reads of its objects may continue. The writer overwrites
//! free segments. A segment has two protections. A [`Pin`] exists while an object in the segment is read. A pinned
//! segment is overwritten only if all free segments are pinned. A pin is therefore no guarantee: the segment
//! may be overwritten during a read. The reader notices this when it verifies the checksum of the bytes that it
//! copied. An [`OverwriteGuard`] prevents the overwrite during a system call that sends bytes, because sent
//! bytes cannot be verified.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use edgeward_policy::log::SegmentId;

use super::location::Location;

/// The positions of the segments on a device, and the state of each that readers need.
#[derive(Debug)]
pub(crate) struct SegmentTable {
    /// The start of the first segment, in bytes from the device's start.
    segments_offset: u64,
    segment_bytes: u64,
    slots: Box<[Slot]>,
}

#[derive(Debug, Default)]
struct Slot {
    /// The epoch of the content, 0 if the segment has no valid content. Set before the segment is overwritten.
    epoch: AtomicU64,
    /// The number of objects that are being read and have a part in this segment.
    pins: AtomicU32,
    /// The number of system calls that are sending bytes of this segment.
    guards: AtomicU32,
    /// True if pages were passed to a socket and may still be in its buffer.
    pages_in_sockets: AtomicBool,
}

impl SegmentTable {
    pub(crate) fn new(segments_offset: u64, segment_bytes: u64, segments: u32) -> Self {
        Self {
            segments_offset,
            segment_bytes,
            slots: (0..segments).map(|_| Slot::default()).collect(),
        }
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.slots.len()).expect("the table was made for a number of 32 bits")
    }

    /// Returns the start of a segment, in bytes from the device's start.
    pub(crate) fn start(&self, segment: SegmentId) -> u64 {
        self.segments_offset + u64::from(segment.0) * self.segment_bytes
    }

    /// Returns the end of a segment, in bytes from the device's start.
    pub(crate) fn end(&self, segment: SegmentId) -> u64 {
        self.start(segment) + self.segment_bytes
    }

    pub(crate) fn location(&self, segment: SegmentId, offset: u64) -> Location {
        Location::from_offset(self.start(segment) + offset)
    }

    /// Returns the segment that contains a byte of the device, or `None` if the byte is in no segment.
    pub(crate) fn segment_at(&self, offset: u64) -> Option<SegmentId> {
        let number = offset.checked_sub(self.segments_offset)? / self.segment_bytes;
        let number = u32::try_from(number).ok()?;
        (number < self.count()).then_some(SegmentId(number))
    }

    pub(crate) fn epoch(&self, segment: SegmentId) -> u64 {
        self.slots[segment.0 as usize].epoch.load(Ordering::Acquire)
    }

    pub(crate) fn set_epoch(&self, segment: SegmentId, epoch: u64) {
        self.slots[segment.0 as usize]
            .epoch
            .store(epoch, Ordering::SeqCst);
    }

    /// Prevents a segment from being overwritten until the returned guard is dropped. Returns `None` if the
    /// segment has another epoch. Drop the guard within microseconds, because the writer waits until no guard exists.
    pub(crate) fn block_overwrite(
        &self,
        segment: SegmentId,
        epoch: u64,
    ) -> Option<OverwriteGuard<'_>> {
        let slot = &self.slots[segment.0 as usize];
        // The reader first counts its guard and then reads the epoch. The writer first sets the epoch and then
        // reads the count. All threads see these operations in one order (`SeqCst`). Therefore the writer sees
        // the guard, or the reader sees the new epoch.
        slot.guards.fetch_add(1, Ordering::SeqCst);
        let guard = OverwriteGuard { slot };
        (slot.epoch.load(Ordering::SeqCst) == epoch).then_some(guard)
    }

    /// Returns true if pages of a segment may be in socket buffers, and clears this flag, because the caller then
    /// replaces the pages.
    pub(crate) fn take_pages_in_sockets(&self, segment: SegmentId) -> bool {
        self.slots[segment.0 as usize]
            .pages_in_sockets
            .swap(false, Ordering::SeqCst)
    }

    /// Records that pages of a segment may be in socket buffers.
    pub(crate) fn set_pages_in_sockets(&self, segment: SegmentId) {
        self.slots[segment.0 as usize]
            .pages_in_sockets
            .store(true, Ordering::SeqCst);
    }

    /// Waits until no system call sends bytes of the segment. Call this function after the epoch was changed,
    /// so that no further send begins.
    pub(crate) fn wait_for_guards(&self, segment: SegmentId) {
        let guards = &self.slots[segment.0 as usize].guards;
        let mut attempts = 0_u32;
        while guards.load(Ordering::SeqCst) > 0 {
            attempts = attempts.saturating_add(1);
            if attempts < YIELDS {
                thread::yield_now();
            } else {
                // The system call takes long, so its page was probably evicted from the page cache and is being
                // read from the device.
                thread::sleep(Duration::from_micros(50));
            }
        }
    }

    pub(crate) fn is_pinned(&self, segment: SegmentId) -> bool {
        self.slots[segment.0 as usize].pins.load(Ordering::Relaxed) > 0
    }

    /// Requests that the segment is not overwritten until the pin is dropped. If all free segments are pinned, one
    /// of them is overwritten nevertheless, and its readers find wrong checksums.
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

/// The number of times that the writer yields its core before it sleeps. Most system calls end within microseconds.
const YIELDS: u32 = 100;

/// Prevents a segment from being overwritten while its bytes are being sent.
#[derive(Debug)]
pub(crate) struct OverwriteGuard<'a> {
    slot: &'a Slot,
}

impl Drop for OverwriteGuard<'_> {
    fn drop(&mut self) {
        // The release order ensures that the send is complete before the writer reads the lower count and
        // overwrites the segment.
        self.slot.guards.fetch_sub(1, Ordering::Release);
    }
}

/// Marks a segment as being read.
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
