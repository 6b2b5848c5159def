//! The errors of reading, writing and opening a disk cache.

use std::io;
use std::path::PathBuf;

use super::format::SuperblockError;

/// Why an object could not be read. A request treats every cause as a miss. The causes are distinguished because
/// an operator reacts differently to each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Miss {
    /// The record belongs to another key. This is normal and rare.
    #[error("the record belongs to another key")]
    KeyMismatch,
    /// The segment was reclaimed after the lookup. This is normal.
    #[error("the segment of the record was reclaimed")]
    Reclaimed,
    /// The bytes do not match the checksum: a torn write or a bad sector.
    #[error("the checksum of the record does not match its bytes")]
    Corrupt,
    /// The device returned an error for the read.
    #[error("the device could not be read: {0}")]
    Device(io::ErrorKind),
    /// The device is out of service.
    #[error("the device is out of service")]
    OutOfService,
}

/// The result of a read that must not wait for the device.
#[derive(Clone, Debug)]
pub enum NonBlockingRead<T> {
    /// The value that was read.
    Ready(T),
    /// The read has to wait for the device: repeat it with the blocking call, on a thread that may block.
    WouldBlock,
    /// The object could not be read.
    Miss(Miss),
}

/// Why a write cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BeginError {
    /// The object is larger than the largest that the cache accepts.
    #[error("the object is too large for the disk cache")]
    TooLarge,
    /// The key or the head is longer than a record allows.
    #[error("the key or the head is too long for the disk cache")]
    KeyOrHeadTooLong,
    /// Too many bytes are queued already.
    #[error("the queue to the device is full")]
    QueueFull,
    /// The device is not writable now.
    #[error("the device is not writable")]
    NotWritable,
    /// The cache is closed.
    #[error("the disk cache is closed")]
    Closed,
}

/// Why a write in progress was dropped. Lookups find no part of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The device is slower than the callers, and callers never wait for it.
    #[error("the queue to the device is full")]
    QueueFull,
    /// The body has more bytes than announced, or than the largest object.
    #[error("the object is longer than announced or allowed")]
    TooLong,
    /// The body has fewer bytes than announced.
    #[error("the object is shorter than announced")]
    TooShort,
    /// The key was purged during the write.
    #[error("the key was purged during the write")]
    Purged,
    /// The device is not writable.
    #[error("the device is not writable")]
    NotWritable,
    /// The object whose head was to be replaced is no longer stored.
    #[error("the object is no longer stored")]
    Gone,
    /// The key or the head is longer than a record allows.
    #[error("the key or the head is too long for the disk cache")]
    KeyOrHeadTooLong,
    /// The cache is closed.
    #[error("the disk cache is closed")]
    Closed,
}

/// Why it is not certain that earlier writes and purges are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// The device is not writable. A purge has taken effect, but a crash may undo it. A later sync may succeed.
    #[error("the device is not writable")]
    NotWritable,
    /// The cache is closed.
    #[error("the disk cache is closed")]
    Closed,
}

/// Why a disk cache could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No device was configured.
    #[error("a disk cache needs a device")]
    NoDevice,
    /// The device could not be opened.
    #[error("cannot open {}", path.display())]
    Device {
        /// The path of the device.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The device could not be read or written during recovery.
    #[error("cannot use {device}")]
    Io {
        /// The name of the device.
        device: String,
        /// The system's error.
        source: io::Error,
    },
    /// The device has data that is not a store of this format. The data is not overwritten.
    #[error(
        "{device} is not used: {problem}; to use it for the cache, delete it (block device: zero its first and its last MiB)"
    )]
    Superblock {
        /// The name of the device.
        device: String,
        /// The reason why it is not a store.
        problem: SuperblockError,
    },
    /// Every device was a store once and has lost its superblock. No device was changed.
    #[error("{}", list(devices))]
    Damaged {
        /// The damaged devices.
        devices: Vec<DamagedDevice>,
    },
    /// The device has no space for the smallest number of segments.
    #[error(
        "{device} has {bytes} bytes, too few for {segments} segments, which need {needed} bytes"
    )]
    TooSmall {
        /// The name of the device.
        device: String,
        /// The bytes of the device.
        bytes: u64,
        /// The bytes that are needed.
        needed: u64,
        /// The smallest number of segments.
        segments: u32,
    },
    /// The device is shorter than before, so segments in use are missing.
    #[error(
        "{device} has shrunk to {bytes} bytes, but its log needs {needed} bytes; a store may grow but not shrink: to start with an empty store, delete {device}"
    )]
    Shrunk {
        /// The name of the device.
        device: String,
        /// The bytes of the device.
        bytes: u64,
        /// The offset at which its log ends.
        needed: u64,
    },
    /// The devices were not formatted as one cache.
    #[error(
        "{device} belongs to another cache than {first}: their keys are hashed with different seeds"
    )]
    SeedMismatch {
        /// The name of the device.
        device: String,
        /// The device with which it was compared.
        first: String,
    },
    /// The same device is configured twice.
    #[error("{device} is the same device as {first}")]
    Twice {
        /// The name of the device.
        device: String,
        /// The device with which it was compared.
        first: String,
    },
    /// A setting has an invalid value.
    #[error("{0}")]
    Settings(&'static str),
    /// The writer's thread could not be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// A device that was a store and cannot be read, because its superblock is destroyed. The device is not
/// changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{device} is a damaged edgeward store: both copies of its superblock are destroyed; it is not changed and not used; \
     to start with an empty store, delete it (block device: zero its first {erase_mib} MiB and its last MiB)"
)]
pub struct DamagedDevice {
    /// The name of the device.
    pub device: String,
    /// The number of MiB at the start of the device that must be erased, so that it is no longer recognised as a
    /// damaged store.
    pub erase_mib: u64,
}

/// Joins the messages of all devices.
fn list(devices: &[DamagedDevice]) -> String {
    let texts: Vec<_> = devices.iter().map(ToString::to_string).collect();
    texts.join("; ")
}
