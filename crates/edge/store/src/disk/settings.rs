//! The settings of a disk cache, and the events that it reports.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use edgeward_policy::log::Reinsertion;
use edgeward_types::ByteSize;

/// The settings of a disk cache. They are checked when the cache is opened.
#[derive(Clone, Debug)]
pub struct DiskSettings {
    /// The devices. The hash of a key selects its device. If a device fails, only its own keys are out of
    /// service.
    pub devices: Vec<DeviceSettings>,

    /// The size of a segment, for a device that is formatted now. An existing store keeps its segment size. `None`
    /// selects 64 MiB, or less if the device would have fewer than 16 segments.
    pub segment_bytes: Option<ByteSize>,

    /// The number of segments that are kept free. A free segment still has its old content, so that slow readers
    /// can read an evicted object to the end.
    pub reserve_segments: u32,

    /// The rule that selects the objects to reinsert when the oldest segment is reclaimed.
    pub reinsertion: Reinsertion,

    /// The size of a write. Records are collected in a buffer until they have this size. Disks and file systems
    /// reach their full speed with writes of 1 MiB.
    pub write_bytes: ByteSize,

    /// Selects the writes that bypass the page cache.
    pub direct_writes: DirectWrites,

    /// The longest time that a record waits in the buffer, if `sync_interval` is not shorter. A lookup
    /// finds an object whose single record waits, but not an object in pieces whose commit record waits.
    pub flush_interval: Duration,

    /// The longest time between a write and its sync. A crash loses at most the data written during this time,
    /// and a purge is durable after this time.
    pub sync_interval: Duration,

    /// Written data is also synced after this many bytes, so that no sync stalls the writer for long.
    pub sync_bytes: ByteSize,

    /// The largest number of bytes queued for each device. If the queue is full, objects are dropped; callers
    /// never wait.
    pub queue_bytes: ByteSize,

    /// The largest number of messages queued for each device.
    pub queue_messages: usize,

    /// The size in bytes of the first read of an object. It should be enough for the head, and for most small
    /// objects as a whole.
    pub first_read_bytes: ByteSize,

    /// The largest number of bytes that one read of a body returns.
    pub read_bytes: ByteSize,

    /// How long a verified block may be served from the page cache before it is verified again. A bit that flips
    /// on the device may be served for this time. Rounded down to seconds. If it is 0, every read verifies its
    /// blocks.
    pub verify_every: Duration,

    /// The size of the largest object. `None` selects half of the smallest device.
    pub object_bytes_max: Option<ByteSize>,

    /// The size of the largest head (the metadata that the caller stores with a body).
    pub head_bytes_max: ByteSize,

    /// The interval between checkpoints of the index. After a crash, recovery reads only the footers of segments
    /// that were opened after the last checkpoint. If it is 0, the index is saved only at shutdown.
    pub checkpoint_interval: Duration,

    /// The time between a failed write and the next try.
    pub retry_interval: Duration,

    /// The seed with which keys are hashed in a cache that is formatted now. `None` selects a random seed.
    pub key_seed: Option<u64>,

    /// The receiver of events about devices. It may be called from any thread and must not block.
    pub on_event: EventSink,
}

/// Selects the writes that bypass the page cache, if the file system supports such writes. Reads always use the
/// page cache.
///
/// Except with `Never`, the writing thread has a lower priority, because nearly all of its work can wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectWrites {
    /// No write bypasses the page cache. New objects are in the page cache when they are requested, but
    /// write-back by the kernel delays requests.
    Never,
    /// Writes bypass the page cache while the device is written at 32 MiB per second or more.
    Auto,
    /// All writes bypass the page cache. The first read of each new block therefore waits for the device.
    Always,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSettings {
    /// A directory (a file is created in it), a file, or a block device.
    pub path: PathBuf,

    /// The number of bytes to use. `None` selects the current size of an existing file or device.
    pub capacity: Option<ByteSize>,
}

impl DiskSettings {
    /// Returns settings for one device at `path` with `capacity`, and defaults for all other fields.
    pub fn new(path: impl Into<PathBuf>, capacity: ByteSize) -> Self {
        let device = DeviceSettings {
            path: path.into(),
            capacity: Some(capacity),
        };
        Self {
            devices: vec![device],
            ..Self::default()
        }
    }
}

impl Default for DiskSettings {
    /// Returns settings without a device, and defaults for all other fields.
    fn default() -> Self {
        Self {
            devices: Vec::new(),
            segment_bytes: None,
            reserve_segments: 2,
            // Chosen by simulation; see docs/explanation/disk-cache.md.
            reinsertion: Reinsertion::Hit { hits_min: 2 },
            write_bytes: ByteSize::mib(1),
            direct_writes: DirectWrites::Auto,
            // With a tenth of this interval, most writes would be much smaller than `write_bytes`, and the
            // device would need more writes: docs/explanation/disk-cache.md.
            flush_interval: Duration::from_secs(1),
            sync_interval: Duration::from_secs(2),
            sync_bytes: ByteSize::mib(64),
            queue_bytes: ByteSize::mib(64),
            queue_messages: 65_536,
            first_read_bytes: ByteSize::kib(32),
            read_bytes: ByteSize::kib(256),
            // Verification is rare enough to take little CPU time, and frequent enough to find damage within minutes.
            verify_every: Duration::from_secs(600),
            object_bytes_max: None,
            head_bytes_max: ByteSize::kib(256),
            checkpoint_interval: Duration::from_secs(300),
            retry_interval: Duration::from_secs(10),
            key_seed: None,
            on_event: EventSink::default(),
        }
    }
}

/// A receiver of [`DiskEvent`]s.
#[derive(Clone)]
pub struct EventSink(Arc<dyn Fn(&DiskEvent) + Send + Sync>);

impl EventSink {
    /// Returns a sink that calls `handler` for every event.
    pub fn new(handler: impl Fn(&DiskEvent) + Send + Sync + 'static) -> Self {
        Self(Arc::new(handler))
    }

    /// Passes an event to the receiver.
    pub(crate) fn send(&self, event: &DiskEvent) {
        (self.0)(event);
    }
}

impl Default for EventSink {
    /// A sink that ignores all events.
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventSink")
    }
}

/// An event for operators. It is reported once for each change of state, not for each affected request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiskEvent {
    /// A write failed. Stored objects are served; no object is written until a later try succeeds.
    ReadOnly {
        /// The name of the device.
        device: String,
        /// The error of the device.
        error: String,
    },
    /// A write succeeded again.
    Writable {
        /// The name of the device.
        device: String,
    },
    /// Too many consecutive reads failed: all keys of the device are misses until a restart.
    OutOfService {
        /// The name of the device.
        device: String,
        /// The last error of the device.
        error: String,
    },
    /// A record does not match its checksum. Only the first corrupt record is reported; all are counted.
    Corrupt {
        /// The name of the device.
        device: String,
        /// A description of the record.
        record: String,
    },
}

impl fmt::Display for DiskEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadOnly { device, error } => {
                write!(f, "{device} is read-only after a write error: {error}")
            }
            Self::Writable { device } => write!(f, "{device} is writable again"),
            Self::OutOfService { device, error } => {
                write!(f, "{device} is out of service until a restart: {error}")
            }
            Self::Corrupt { device, record } => write!(
                f,
                "{device} has a corrupt record: {record}; run `edgeward store verify` to check all records"
            ),
        }
    }
}

/// The name of the log's file in a directory.
pub const FILE_NAME: &str = "edgeward.store";

/// Returns the file of the log: the path itself, or the file [`FILE_NAME`] in a folder.
pub(super) fn file_in(path: &Path) -> PathBuf {
    if path.is_dir() {
        path.join(FILE_NAME)
    } else {
        path.to_owned()
    }
}
