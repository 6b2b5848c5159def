//! Why something was not read, written or opened.

use std::io;
use std::path::PathBuf;

use super::format::SuperblockError;

/// Why there is no object. To a request all are the same; they are kept apart because an operator
/// does something different about each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Miss {
    /// The record belongs to another key. Normal, and rare.
    #[error("the record belongs to another key")]
    Stranger,
    /// The segment was taken back after the lookup. Normal.
    #[error("its segment was reclaimed")]
    Reclaimed,
    /// The bytes are not what was written: a torn write or a bad sector.
    #[error("its checksum disagrees with its bytes")]
    Corrupt,
    /// The device refused the read.
    #[error("the device refused the read: {0}")]
    Device(io::ErrorKind),
    /// The device is out of service.
    #[error("the device is out of service")]
    OutOfService,
}

/// The answer to a read that must not wait.
#[derive(Clone, Debug)]
pub enum Now<T> {
    /// Here it is.
    Ready(T),
    /// The device would have to be waited for: ask again with the blocking call, on a thread that may.
    WouldBlock,
    /// There is nothing.
    Miss(Miss),
}

/// Why a write cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Larger than the largest object.
    #[error("the object is too large for the disk cache")]
    TooLarge,
    /// Key or head are longer than a record allows.
    #[error("key or head are too long for the disk cache")]
    NamesTooLong,
    /// Too much is on its way already.
    #[error("the queue to the device is full")]
    QueueFull,
    /// The device cannot be written at the moment.
    #[error("the device cannot be written")]
    NotWritable,
    /// The cache was closed.
    #[error("the disk cache is closed")]
    Closed,
}

/// Why a write under way was given up. Nothing of it will be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Dropped {
    /// The device is slower than what comes in, and nobody waits for it.
    #[error("the queue to the device is full")]
    QueueFull,
    /// More bytes than announced, or than the largest object has.
    #[error("the object is longer than announced or allowed")]
    TooLong,
    /// Fewer bytes than announced.
    #[error("the object is shorter than announced")]
    TooShort,
    /// The key was purged while the object was on its way.
    #[error("the key was purged meanwhile")]
    Purged,
    /// The device cannot be written.
    #[error("the device cannot be written")]
    NotWritable,
    /// The object whose head was to change is no longer there.
    #[error("the object is no longer there")]
    Gone,
    /// Key or head are longer than a record allows.
    #[error("key or head are too long for the disk cache")]
    NamesTooLong,
    /// The cache was closed.
    #[error("the disk cache is closed")]
    Closed,
}

/// Why it is not certain that something is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// The device cannot be written. A purge holds while this process lives; a later sync may succeed.
    #[error("the device cannot be written")]
    NotWritable,
    /// The cache was closed.
    #[error("the disk cache is closed")]
    Closed,
}

/// Why a disk cache could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No device was named.
    #[error("a disk cache needs a device")]
    NoDevice,
    /// The device could not be opened.
    #[error("cannot open {}", path.display())]
    Device {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The device could not be read or written while it was looked through.
    #[error("cannot use {device}")]
    Io {
        /// Which.
        device: String,
        /// What the system said.
        source: io::Error,
    },
    /// There is something on the device that must not be overwritten silently.
    #[error(
        "{device} is not used, since {problem}; to give it to the cache, delete it (a block device: zero its first and its last MiB)"
    )]
    Superblock {
        /// Which.
        device: String,
        /// What is there.
        problem: SuperblockError,
    },
    /// Every device was a store once and has lost its superblock. Nothing was changed.
    #[error("{}", list(devices))]
    Damaged {
        /// Each of them.
        devices: Vec<DamagedDevice>,
    },
    /// Not even a few segments fit.
    #[error("{device} has {bytes} bytes, too few for the {needed} that {segments} segments take")]
    TooSmall {
        /// Which.
        device: String,
        /// What it has.
        bytes: u64,
        /// What it takes.
        needed: u64,
        /// The fewest segments.
        segments: u32,
    },
    /// The device is shorter than it was, so segments that counted are missing.
    #[error(
        "{device} has shrunk: it holds {bytes} bytes and its log reaches {needed}; a store may grow but not shrink: delete it to begin anew"
    )]
    Shrunk {
        /// Which.
        device: String,
        /// What it has.
        bytes: u64,
        /// Where its log ends.
        needed: u64,
    },
    /// The devices were not formatted as one cache.
    #[error(
        "{device} belongs to another cache than {first}: their keys are hashed with different seeds"
    )]
    Stranger {
        /// Which.
        device: String,
        /// The device it was compared with.
        first: String,
    },
    /// The same device twice.
    #[error("{device} is the same device as {first}")]
    Twice {
        /// Which.
        device: String,
        /// The device it was compared with.
        first: String,
    },
    /// A setting that cannot be.
    #[error("{0}")]
    Settings(&'static str),
    /// The writer's thread could not be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// A device that was a store and cannot be read as one, because its superblock is destroyed. It is left as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{device} is a damaged edgeward store: both copies of its superblock are destroyed; it is left as it is and not used; \
     to begin anew, delete it (a block device: zero its first {erase_mib} MiB and its last MiB)"
)]
pub struct DamagedDevice {
    /// What messages call it.
    pub device: String,
    /// Bytes at its front by which a damaged store is recognised, in MiB.
    pub erase_mib: u64,
}

fn list(devices: &[DamagedDevice]) -> String {
    let texts: Vec<_> = devices.iter().map(ToString::to_string).collect();
    texts.join("; ")
}
