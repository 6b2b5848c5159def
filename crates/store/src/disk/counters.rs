//! What a device has done, counted without locks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Declares the counters once, as they are counted and as they are told.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counted by whoever does it.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        /// What a device holds and has done since it was opened.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct DeviceCounters {
            /// What messages call it.
            pub device: String,
            /// Whether it is in use.
            pub state: DeviceState,
            /// Bytes its segments take.
            pub capacity_bytes: u64,
            /// Objects in the index.
            pub objects: u64,
            /// RAM the index takes.
            pub index_bytes: u64,
            /// RAM that remembers which blocks were compared with their checksums.
            pub verified_bytes: u64,
            /// Bytes on their way to it.
            pub queue_bytes: u64,
            /// Messages on their way to it.
            pub queue_messages: u64,
            /// A fingerprint of all that was written, written again and evicted since it was opened.
            pub digest: u64,
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// The counters as they are, the rest at its default.
            pub(crate) fn snapshot(&self) -> DeviceCounters {
                DeviceCounters {
                    $($name: self.$name.load(),)*
                    ..DeviceCounters::default()
                }
            }
        }

        impl DeviceCounters {
            /// Every counter with its name, for metrics.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Bytes written to the device: records, what aligns them, headers, footers, checkpoints.
    written_bytes,
    /// Write operations.
    write_ops,
    /// Syncs.
    syncs,
    /// Bytes read from the device by requests, whether or not it had to be waited for.
    read_bytes,
    /// Read operations by requests.
    read_ops,
    /// Of the bytes read, those that the kernel was to send from the page cache as they lie there.
    mapped_bytes,
    /// Reads that could not be answered without waiting.
    would_block,
    /// Objects that became visible.
    stored_objects,
    /// Bytes of their bodies.
    stored_body_bytes,
    /// Objects read: heads, or whole small objects.
    read_objects,
    /// Writes given up because the queue was full.
    dropped_queue_full,
    /// Writes given up because the device could not be written.
    dropped_not_writable,
    /// Writes given up by the caller, or by a body that was too short or too long.
    dropped_aborted,
    /// Writes that a purge of their key overtook.
    dropped_purged,
    /// Writes whose first pieces were reclaimed before the last one came.
    dropped_reclaimed,
    /// Entries that the full index pushed out.
    displaced_objects,
    /// Purges.
    purges,
    /// Purges that could not be written down because too many were waiting for a device that fails.
    purges_not_durable,
    /// Records whose bytes were not what was written.
    checksum_failures,
    /// Reads that found another key's record.
    strangers,
    /// Reads whose segment was reclaimed under them.
    reclaimed_reads,
    /// Reads the device refused.
    read_errors,
    /// Writes the device refused.
    write_errors,
    /// Objects that left because their segment did.
    evicted_objects,
    /// Objects written again.
    reinserted_objects,
    /// Bytes of records written again.
    reinserted_bytes,
    /// Segments whose room was taken back.
    reclaimed_segments,
    /// Checkpoints of the index written.
    checkpoints,
}

impl DeviceCounters {
    /// Bytes written to the device for each byte of body that was stored; 1 if nothing was.
    pub fn write_amplification(&self) -> f64 {
        if self.stored_body_bytes == 0 {
            return 1.0;
        }
        self.written_bytes as f64 / self.stored_body_bytes as f64
    }
}

/// How a device fares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DeviceState {
    /// It reads and writes.
    #[default]
    InService,
    /// It reads; the last write failed, and another will be tried.
    ReadOnly,
    /// Reads failed too; its keys are misses.
    OutOfService,
}

impl DeviceState {
    /// As metrics and reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::InService => "in-service",
            Self::ReadOnly => "read-only",
            Self::OutOfService => "out-of-service",
        }
    }
}

/// What a cache holds and has done since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// One a device, in the order of the settings.
    pub devices: Vec<DeviceCounters>,
}

impl DiskCounters {
    /// One figure of all devices together.
    pub fn total(&self, of: impl Fn(&DeviceCounters) -> u64) -> u64 {
        self.devices.iter().map(of).sum()
    }
}

/// A figure that only rises.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    pub(crate) fn one(&self) {
        self.add(1);
    }

    pub(crate) fn load(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
