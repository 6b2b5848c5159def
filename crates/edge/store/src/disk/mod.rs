//! The disk tier: objects of any size in append-only segments, found by a compact index.
//!
//! A device is divided into segments, which form a log. A thread per device fills one segment after another and
//! reclaims segments as a whole, oldest first. Each time a segment is opened for writing, it gets an *epoch*: a
//! number that increases with every opening of a segment on the device. An object is stored in one record, or *in
//! pieces*: a record for each part of its body, and a commit record that lists these parts.
//!
//! The index is in RAM and takes about eight bytes per object. The full key is stored beside the object and is
//! compared when the object is read. Every byte is verified by a checksum before it is served. If the device
//! fails, its objects are misses.
//!
//! ```
//! # use edgeward_store::disk::{DiskCache, DiskSettings};
//! # use edgeward_types::{ByteSize, KeyHash};
//! # let folder = tempfile::tempdir()?;
//! let settings = DiskSettings::new(folder.path(), ByteSize::mib(64));
//! let (cache, _report) = DiskCache::open(settings)?;
//!
//! // Write: the body is pushed as it arrives. A push never waits for the device.
//! let (hash, key) = (KeyHash(7), b"http://example.com/a");
//! let mut write = cache.begin(hash, key, "head".into(), Some(6))?;
//! write.push("a b".into())?;
//! write.push("ody".into())?;
//! write.finish()?;
//! cache.sync()?;
//!
//! // Read: first the index, then the device.
//! let candidate = cache.lookup(hash).ok_or("it was written")?;
//! let object = cache.read_head(&candidate, key)?;
//! assert_eq!((&object.head()[..], object.length()), (&b"head"[..], 6));
//! assert_eq!(&object.read(2..6)?[..], b"body");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The modules:
//!
//! - `cache`: the entry point.
//! - `device`: the file or block device under the log; `format`: the layout of the log.
//! - `writer` and `reclaimer`: the thread that writes. `write`: the caller's handle of a write; `write_state`: what
//!   this handle, the thread and purges share. `message` and `queue`: the messages from callers to the thread.
//!   `unwritten`: records in the thread's write buffer.
//! - `reader`: reads objects. `verified`: the blocks that were compared with their checksums; these blocks are
//!   sent from the page cache to a socket, by `mapping`, or with `sendfile` if `page_replacement` permits this.
//!   `heads`: a cache of records' metadata.
//! - `index`: finds the location of an object. `checkpoint`: saves the index to the device.
//! - `blank`, `scan` and `recovery`: determine the content of a device when it is opened. `inspect`: describes
//!   this content without opening the device for use.
//! - `volume`: the state of a device that all threads share. `segment`: the epoch and the readers of each segment.
//!
//! `edgeward_policy::log` decides where the next record is written and which segment is reclaimed.

mod blank;
mod cache;
mod checkpoint;
mod counters;
mod device;
mod error;
mod format;
mod heads;
mod index;
mod inspect;
mod location;
mod mapping;
mod message;
mod page_replacement;
mod queue;
mod reader;
mod reclaimer;
mod recovery;
mod scan;
mod segment;
mod settings;
mod space;
mod unwritten;
mod verified;
mod volume;
mod write;
mod write_state;
mod writer;

pub use cache::{Candidate, DiskCache};
pub use counters::{DeviceCounters, DeviceState, DiskCounters};
pub use device::{Device, FileDevice, WRITE_ALIGN};
pub use error::{
    BeginError, DamagedDevice, Miss, NonBlockingRead, OpenError, SyncError, WriteError,
};
pub use format::{FORMAT_VERSION, SuperblockError};
pub use index::{
    CheckpointPart, Index, IndexConfig, IndexCounts, InsertOutcome, LoadError, SaveSummary,
};
pub use inspect::{
    Inspection, InspectionProgress, SegmentInspection, inspect, inspect_device, verify,
};
pub use location::Location;
pub use mapping::Mapping;
pub use reader::{DiskObject, Piece, SendError, Span};
pub use recovery::{DeviceRecovery, RecoveryReport};
pub use settings::{DeviceSettings, DirectWrites, DiskEvent, DiskSettings, EventSink, FILE_NAME};
pub use space::{TooLittleSpace, check_space};
pub use write::DiskWrite;

#[cfg(test)]
mod tests;
