//! The space management of a log of segments: where records are written, and which segment is reclaimed.
//!
//! Disks are fast at large sequential writes. The space is divided into segments of equal size. One segment at
//! a time is filled from front to back. Segments are reclaimed as a whole, the oldest first. Objects of the
//! oldest segment may be written again ([`Reinsertion`] selects them); the others are evicted.
//!
//! The victim (the segment to reclaim) is always the oldest. A key may have two records; the later one counts. A purge
//! is a record too. Because segments are reclaimed in the order in which they were opened, an old record never
//! outlives the newer record or the purge that replaced it. A purged object therefore never reappears when the
//! log is read after a crash. Popular objects are kept by reinsertion, not by the choice of the victim.
//!
//! [`SegmentLog`] manages space and no objects; the server uses it with real records. [`LogTier`] adds a table
//! of objects and is a complete disk tier without bytes; the simulator uses it.

mod reinsertion;
mod segments;
mod shape;
#[cfg(test)]
mod tests;
mod tier;

pub use reinsertion::{HITS_MAX, ParseReinsertionError, ReclaimCandidate, Reinsertion};
pub use segments::{OpenedSegment, RecordLocation, SegmentId, SegmentLog};
pub use shape::{LogShape, SEGMENTS_FEW};
pub use tier::{LogCounters, LogTier, LogTierConfig};
