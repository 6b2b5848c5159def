//! What a disk cache is told, and what it tells of itself while it runs.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use edgeward_policy::log::Reinsertion;
use edgeward_types::ByteSize;

/// A disk cache's settings, checked when it is opened.
#[derive(Clone, Debug)]
pub struct DiskSettings {
    /// Where it lies. A key belongs to one device by its hash; a device that fails takes its own keys
    /// out of service and nothing else.
    pub devices: Vec<DeviceSettings>,

    /// Bytes of a segment of a device that is formatted now; one that exists keeps what it has.
    /// None: 64 MiB, less where a device would hold fewer than 16.
    pub segment_bytes: Option<ByteSize>,

    /// Segments kept free. Their old content can still be read to the end by whoever began to.
    pub reserve_segments: u32,

    /// What of the oldest segment is written again when it makes room.
    pub reinsertion: Reinsertion,

    /// Records are gathered into writes of at least this. 1 MiB is where disks and file systems are at
    /// their full speed.
    pub write_bytes: ByteSize,

    /// Which writes go past the page cache.
    pub direct_writes: DirectWrites,

    /// What waits for more company is written after this all the same, or sooner where `sync_interval` is
    /// shorter. A short object is found meanwhile, one in pieces is not.
    pub flush_interval: Duration,

    /// What came is made durable after this at the latest: what a crash may take, and how
    /// long a purge may take to outlive one.
    pub sync_interval: Duration,

    /// … or after so many bytes. Small enough that a sync does not stall the writer for long.
    pub sync_bytes: ByteSize,

    /// Bytes of bodies on their way to each device. Beyond it objects are dropped, not waited for.
    pub queue_bytes: ByteSize,

    /// Messages on their way to each device.
    pub queue_messages: usize,

    /// The first read of an object: enough for a head, and for the whole of most small objects.
    pub first_read_bytes: ByteSize,

    /// The most a single read of a body returns.
    pub read_bytes: ByteSize,

    /// How long a block that was compared with its checksum may be served from the page cache without being
    /// compared again. So long a bit that turned on the device may be served. To the second; zero: compared at
    /// each read.
    pub verify_every: Duration,

    /// Larger objects are refused. None: half of the smallest device.
    pub object_bytes_max: Option<ByteSize>,

    /// Larger heads (what the caller keeps beside a body) are refused.
    pub head_bytes_max: ByteSize,

    /// How often the index is written down, so that a restart after a crash need not read every
    /// segment's footer. Zero: at shutdown alone.
    pub checkpoint_interval: Duration,

    /// How long a device that could not be written is left alone before it is tried again.
    pub retry_interval: Duration,

    /// What keys are hashed with in a cache that is formatted now. None: drawn at random.
    pub key_seed: Option<u64>,

    /// Who hears of changes of a device's state. Called from any thread; must not block.
    pub on_event: EventSink,
}

/// Which writes go past the page cache, where the file system can do that. What is read is kept there all the same.
///
/// With any but `Never` the thread that writes gives way to others, since nearly all of its work can wait then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectWrites {
    /// What was written is in memory when it is asked for next; the kernel's work for it delays those who are served.
    Never,
    /// Those of a device that is written fast, from 32 MiB a second on.
    Auto,
    /// The first read of whatever was written is the device's.
    Always,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSettings {
    /// A directory (a file is made in it), a file, or a block device.
    pub path: PathBuf,

    /// How much of it to use. None: what is there, which must then exist.
    pub capacity: Option<ByteSize>,
}

impl DiskSettings {
    /// One device at `path` with `capacity`; everything else as most want it.
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
    /// No device, and everything else as most want it.
    fn default() -> Self {
        Self {
            devices: Vec::new(),
            segment_bytes: None,
            reserve_segments: 2,
            // By simulation; see docs/explanation/disk-cache.md.
            reinsertion: Reinsertion::Hit { hits_min: 2 },
            write_bytes: ByteSize::mib(1),
            direct_writes: DirectWrites::Auto,
            // With a tenth of it the clock decides how often is written, not what there is:
            // docs/explanation/disk-cache.md.
            flush_interval: Duration::from_secs(1),
            sync_interval: Duration::from_secs(2),
            sync_bytes: ByteSize::mib(64),
            queue_bytes: ByteSize::mib(64),
            queue_messages: 65_536,
            first_read_bytes: ByteSize::kib(32),
            read_bytes: ByteSize::kib(256),
            // Seldom enough that comparing does not show, often enough that damage is found within minutes.
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

/// Who hears of [`DiskEvent`]s.
#[derive(Clone)]
pub struct EventSink(Arc<dyn Fn(&DiskEvent) + Send + Sync>);

impl EventSink {
    /// Calls `hear` for every event.
    pub fn new(hear: impl Fn(&DiskEvent) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hear))
    }

    pub(crate) fn tell(&self, event: &DiskEvent) {
        (self.0)(event);
    }
}

impl Default for EventSink {
    /// Nobody.
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventSink")
    }
}

/// Something an operator should know. Told once for each change, not for each request it touches.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiskEvent {
    /// A write failed. What is there is served; nothing is written until a later try succeeds.
    ReadOnly {
        /// The device.
        device: String,
        /// What it said.
        error: String,
    },
    /// A write succeeded again.
    Writable {
        /// The device.
        device: String,
    },
    /// Too many reads failed one after another: the device's keys are misses until a restart.
    OutOfService {
        /// The device.
        device: String,
        /// What it said last.
        error: String,
    },
    /// The first record whose bytes are not what was written. Later ones are counted alone.
    Corrupt {
        /// The device.
        device: String,
        /// Where.
        what: String,
    },
}

impl fmt::Display for DiskEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadOnly { device, error } => write!(
                f,
                "{device} cannot be written and only serves what it holds: {error}"
            ),
            Self::Writable { device } => write!(f, "{device} can be written again"),
            Self::OutOfService { device, error } => {
                write!(f, "{device} is out of service until a restart: {error}")
            }
            Self::Corrupt { device, what } => write!(
                f,
                "{device} returned bytes that were not written there; {what}; `edgeward store verify` checks the rest"
            ),
        }
    }
}
