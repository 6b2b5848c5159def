//! The settings of the cache on disk, and of a restart.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use edgeward_policy::disk_admission::{self, DiskAdmissionSpec};
use edgeward_policy::sketch::RotatingBloomConfig;
use edgeward_sites::HostPattern;
use edgeward_store::disk::{Device, DiskSettings};
use edgeward_types::ByteSize;

/// The cache on disk.
#[derive(Clone, Debug)]
pub struct DiskConfig {
    /// Devices, segments, queues and intervals of the store.
    pub settings: DiskSettings,
    /// The rule that decides which responses are written to disk. Default: a response is written at its second
    /// request, because most objects are requested once.
    pub admission: DiskAdmissionSpec,
    /// Hosts with admission rules of their own. The most specific pattern that matches a host applies. Default: none.
    pub hosts: Vec<HostAdmission>,
    /// Distinct keys that each admission rule remembers at a time. Default: one key per 32 KiB of disk, so that a key
    /// is remembered for about as long as an object stays on disk.
    pub expected_keys: Option<NonZeroU64>,
    /// Largest share of first requests that admission mistakes for second ones. Default 1 %: each mistake is one
    /// needless write.
    pub false_positive_rate: f64,
    /// File to which admission saves the remembered keys at shutdown, for the next start. Default: in the first
    /// device's directory or beside its file, and none for a block device.
    pub memory_file: Option<PathBuf>,
    /// Threads that read from the devices. Default 16: enough to keep several disks busy. Workers read from the page
    /// cache without these threads.
    pub read_threads: NonZeroUsize,
    /// Lookups that may wait for a read thread. Default 1024. Further lookups are misses: the origin answers sooner.
    pub reads_waiting_max: NonZeroUsize,
    /// Longest time that a response to an unsafe method waits until its invalidation is durable. Default 5 s: a sync
    /// takes milliseconds. After this time the response is sent, and the invalidation is counted as not durable.
    pub invalidation_wait_max: Duration,
    /// How objects in memory survive a restart.
    pub restart: RestartConfig,
    /// Opened devices that replace those of `settings`. Tests pass devices here that fail on purpose.
    pub opened: Vec<Arc<dyn Device>>,
}

/// The rule of admission to disk for a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAdmission {
    /// The hosts to which the rule applies.
    pub host: HostPattern,
    /// The rule that decides which responses are written.
    pub admission: DiskAdmissionSpec,
}

impl DiskConfig {
    /// Returns a cache of `capacity` at `path`. All other settings have their defaults.
    pub fn new(path: impl Into<PathBuf>, capacity: ByteSize) -> Self {
        Self::with(DiskSettings::new(path, capacity))
    }

    /// Returns a cache with these settings of the store. All other settings have their defaults.
    pub fn with(settings: DiskSettings) -> Self {
        Self {
            settings,
            admission: DiskAdmissionSpec::default(),
            hosts: Vec::new(),
            expected_keys: None,
            false_positive_rate: disk_admission::FALSE_POSITIVE_RATE_MAX,
            memory_file: None,
            read_threads: NonZeroUsize::new(16).expect("16 is not zero"),
            reads_waiting_max: NonZeroUsize::new(1024).expect("1024 is not zero"),
            invalidation_wait_max: Duration::from_secs(5),
            restart: RestartConfig::default(),
            opened: Vec::new(),
        }
    }

    /// Returns the size of the Bloom filters by which admission remembers keys, for a disk of this capacity.
    pub(crate) fn memory(&self, capacity_bytes: u64) -> RotatingBloomConfig {
        let keys = self
            .expected_keys
            .unwrap_or_else(|| disk_admission::memory_for_disk(capacity_bytes).expected_keys);
        RotatingBloomConfig::new(keys, self.false_positive_rate)
    }
}

/// How the objects in memory survive a restart. An edge without a disk has no place to keep them.
#[derive(Clone, Debug)]
pub struct RestartConfig {
    /// True if the edge writes objects of memory to disk when it stops, and fills memory from disk when it starts.
    /// Default: true.
    pub enabled: bool,
    /// The longest time for which a stopping edge writes objects. Default 10 s: with the drain timeout of 30 s, the
    /// process ends before the 45 s of the unit in `docs/how-to/systemd.md`.
    pub write_time_max: Duration,
    /// The most bytes of objects that a stopping edge writes. Default 8 GiB: with the default time, a device that
    /// writes less than 800 MB/s does not reach it. On a faster device it limits the wear.
    pub write_bytes_max: ByteSize,
    /// The file of the list of the objects in memory. Default: in the first device's directory or beside its file, and
    /// none for a block device.
    pub list: Option<PathBuf>,
    /// The time between two writes of the list while the edge runs, for a start after a crash. Zero: the list is
    /// written only when the edge stops. Default 10 min: a list of a million objects has 16 MB.
    pub list_interval: Duration,
}

impl Default for RestartConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            write_time_max: Duration::from_secs(10),
            write_bytes_max: ByteSize::gib(8),
            list: None,
            list_interval: Duration::from_secs(10 * 60),
        }
    }
}
