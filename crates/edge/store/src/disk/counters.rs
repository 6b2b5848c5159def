//! The counters of a device, updated without locks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Declares the counters, both for counting (`Counters`) and for reports (`DeviceCounters`).
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of one device. Each module counts its own events.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        /// The counters and gauges of one device. Counters count from the time when the device was opened.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct DeviceCounters {
            /// The name of the device in messages.
            pub device: String,
            /// The state of the device.
            pub state: DeviceState,
            /// The bytes of all segments of the device.
            pub capacity_bytes: u64,
            /// The bytes of the segments in use: those with objects, also with objects that are no longer current.
            pub used_bytes: u64,
            /// The number of objects in the index.
            pub objects: u64,
            /// The bytes of RAM that the index takes.
            pub index_bytes: u64,
            /// The bytes of RAM of three tables: blocks that were compared with their checksums, blocks that were
            /// found in the page cache, and cached metadata.
            pub verified_bytes: u64,
            /// Bytes queued for the device.
            pub queue_bytes: u64,
            /// Messages queued for the device.
            pub queue_messages: u64,
            /// A fingerprint of the sequence of objects that were written, reinserted and evicted since the
            /// device was opened. Tests compare it with that of the simulator.
            pub digest: u64,
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Returns the counters; all other fields have their defaults.
            pub(crate) fn snapshot(&self) -> DeviceCounters {
                DeviceCounters {
                    $($name: self.$name.load(),)*
                    ..DeviceCounters::default()
                }
            }
        }

        impl DeviceCounters {
            /// Returns every counter with its name, for metrics.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Bytes written to the device: records with their padding, headers, footers, checkpoints.
    written_bytes,
    /// Write operations.
    write_ops,
    /// Syncs.
    syncs,
    /// Bytes that requests read from the device, with or without waiting.
    read_bytes,
    /// Read operations by requests.
    read_ops,
    /// The part of `read_bytes` that the kernel sends directly from the page cache.
    mapped_bytes,
    /// Non-blocking reads that would have had to wait for the device.
    would_block,
    /// Objects written, counted when lookups can find them.
    stored_objects,
    /// Bytes of the bodies of `stored_objects`.
    stored_body_bytes,
    /// Objects read: heads, or whole small objects.
    read_objects,
    /// Writes dropped because the queue was full.
    dropped_queue_full,
    /// Writes dropped because the device was not writable.
    dropped_not_writable,
    /// Writes that the caller aborted, or whose body was shorter or longer than announced.
    dropped_aborted,
    /// Writes dropped because their key was purged.
    dropped_purged,
    /// Writes dropped because their first pieces were reclaimed before the last piece arrived, and updates of heads
    /// dropped because the object is no longer stored.
    dropped_reclaimed,
    /// Index entries displaced because the index was full.
    displaced_objects,
    /// Purges of keys.
    purges,
    /// Purges that could not be persisted because too many purges were waiting for a failing device.
    purges_not_durable,
    /// Records whose bytes do not match their checksum.
    checksum_failures,
    /// Reads that found a record of another key.
    strangers,
    /// Reads whose segment was reclaimed during the read.
    reclaimed_reads,
    /// Reads for which the device returned an error.
    read_errors,
    /// Writes for which the device returned an error.
    write_errors,
    /// Objects evicted because their segment was reclaimed.
    evicted_objects,
    /// Objects reinserted.
    reinserted_objects,
    /// Bytes of reinserted records.
    reinserted_bytes,
    /// Segments reclaimed.
    reclaimed_segments,
    /// Checkpoints of the index written.
    checkpoints,
}

impl DeviceCounters {
    /// Bytes written to the device divided by bytes of bodies stored; 1 if no body was stored.
    pub fn write_amplification(&self) -> f64 {
        if self.stored_body_bytes == 0 {
            return 1.0;
        }
        self.written_bytes as f64 / self.stored_body_bytes as f64
    }
}

/// The state of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DeviceState {
    /// The device is read and written.
    #[default]
    InService,
    /// The device is only read. The last write failed, and another write will be tried.
    ReadOnly,
    /// Reads failed too. All keys of the device are misses.
    OutOfService,
}

impl DeviceState {
    /// The name of the state in metrics and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::InService => "in-service",
            Self::ReadOnly => "read-only",
            Self::OutOfService => "out-of-service",
        }
    }
}

/// The counters and gauges of a disk cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// The counters of each device, in the order of the settings.
    pub devices: Vec<DeviceCounters>,
}

impl DiskCounters {
    /// Returns the sum of one field over all devices.
    pub fn total(&self, field: impl Fn(&DeviceCounters) -> u64) -> u64 {
        self.devices.iter().map(field).sum()
    }
}

/// A counter that only increases.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    pub(crate) fn increment(&self) {
        self.add(1);
    }

    pub(crate) fn load(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
