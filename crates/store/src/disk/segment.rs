//! What readers know of segments: which opening each is in, and that somebody still reads it.
//!
//! Two ways to keep a segment. A [`Pin`] asks that it be overwritten last, for as long as an object is read; whoever copies
//! what he reads finds out afterwards whether it was overwritten under him. A [`Hold`] keeps it from being overwritten, for
//! the time of one system call, where the bytes go out without being looked at again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

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
    /// Calls under way that send bytes of it.
    holds: AtomicU32,
    /// Pages of it were handed to a socket and may still be on their way.
    lent_pages: AtomicBool,
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
            .store(epoch, Ordering::SeqCst);
    }

    /// Keeps a segment from being overwritten, if it is still in this epoch. To be dropped within microseconds: the writer waits.
    pub(crate) fn hold(&self, segment: SegmentId, epoch: u64) -> Option<Hold<'_>> {
        let slot = &self.slots[segment.0 as usize];
        // First held and then looked at, as the writer first changes the epoch and then looks for holds: in the one order of
        // all such operations either it sees the hold or the epoch is seen to have changed.
        slot.holds.fetch_add(1, Ordering::SeqCst);
        let hold = Hold { slot };
        (slot.epoch.load(Ordering::SeqCst) == epoch).then_some(hold)
    }

    /// Whether pages of a segment may be on their way, which is then forgotten: the caller gives it new ones.
    pub(crate) fn take_lent_pages(&self, segment: SegmentId) -> bool {
        self.slots[segment.0 as usize]
            .lent_pages
            .swap(false, Ordering::SeqCst)
    }

    /// Pages of a segment may be on their way.
    pub(crate) fn set_lent_pages(&self, segment: SegmentId) {
        self.slots[segment.0 as usize]
            .lent_pages
            .store(true, Ordering::SeqCst);
    }

    /// Returns when nobody sends bytes of what a segment held before its epoch was set.
    pub(crate) fn wait_for_holds(&self, segment: SegmentId) {
        let holds = &self.slots[segment.0 as usize].holds;
        let mut turns = 0_u32;
        while holds.load(Ordering::SeqCst) > 0 {
            turns = turns.saturating_add(1);
            if turns < YIELDS {
                thread::yield_now();
            } else {
                // Its page was taken back and is being read from the device, which this thread would have to wait for as well.
                thread::sleep(Duration::from_micros(50));
            }
        }
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

/// How often the writer lets others go first before it sleeps: a call takes microseconds.
const YIELDS: u32 = 100;

/// Bytes of a segment are being sent.
#[derive(Debug)]
pub(crate) struct Hold<'a> {
    slot: &'a Slot,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        // What was sent was sent before whoever sees this overwrites it.
        self.slot.holds.fetch_sub(1, Ordering::Release);
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
