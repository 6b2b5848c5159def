//! The disk tier: objects of any size in append-only segments, found by a compact index.
//!
//! A device is cut into segments that are filled one after another by a thread of its own and
//! emptied whole, oldest first. In RAM there is only the index, some eight bytes an object; the full
//! key lies beside the object and is compared when it is read. Whatever goes wrong on the device is a
//! miss: nothing is served that a checksum does not prove.
//!
//! ```
//! # use edgeward_store::disk::{DiskCache, DiskSettings};
//! # use edgeward_types::{ByteSize, KeyHash};
//! # let folder = tempfile::tempdir()?;
//! let settings = DiskSettings::new(folder.path(), ByteSize::mib(64));
//! let (cache, _report) = DiskCache::open(settings)?;
//!
//! // In: pushed as it comes, never waiting for the device.
//! let (hash, key) = (KeyHash(7), b"http://example.com/a");
//! let mut write = cache.begin(hash, key, "head".into(), Some(6))?;
//! write.push("a b".into())?;
//! write.push("ody".into())?;
//! write.finish()?;
//! cache.sync()?;
//!
//! // Out: what the index knows, then the device.
//! let candidate = cache.lookup(hash).ok_or("it was written")?;
//! let object = cache.read_head(&candidate, key)?;
//! assert_eq!((&object.head()[..], object.length()), (&b"head"[..], 6));
//! assert_eq!(&object.read(2..6)?[..], b"body");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Where things are: `cache` is the way in. `device` is what the log lies on and `format` what
//! it looks like there; `writer` with `reclaimer` is the thread that writes, `write` what callers hold
//! of it, `queue` what lies between and `unwritten` what the thread still gathers; `reader` reads, and what `verified` knows to be sound goes from the page
//! cache to a socket by `mapping` or, where `renewal` can, by sendfile; `blank`, `scan` and `recovery` find out what is there.
//! Where the next record goes and which segment leaves is decided by `edgeward_policy::log`.

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
mod queue;
mod reader;
mod reclaimer;
mod recovery;
mod renewal;
mod scan;
mod segment;
mod settings;
mod unwritten;
mod verified;
mod volume;
mod write;
mod writer;

pub use cache::{Candidate, DiskCache};
pub use counters::{DeviceCounters, DeviceState, DiskCounters};
pub use device::{Device, FILE_NAME, FileDevice, WRITE_ALIGN};
pub use error::{DamagedDevice, Dropped, Miss, Now, OpenError, Refused, SyncError};
pub use format::{FORMAT_VERSION, SuperblockError};
pub use index::{Index, IndexConfig, IndexCounts, Inserted, LoadError, Part, Saved};
pub use inspect::{Inspection, InspectionProgress, SegmentInspection, inspect, look_at, verify};
pub use location::Location;
pub use mapping::Mapping;
pub use reader::{DiskObject, Piece, Span, Unsent};
pub use recovery::{DeviceRecovery, RecoveryReport};
pub use settings::{DeviceSettings, DirectWrites, DiskEvent, DiskSettings, EventSink};
pub use write::DiskWrite;

#[cfg(test)]
mod tests;
