//! The state of the thread that writes a device.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use edgeward_policy::digest::Digest;
use edgeward_policy::log::SegmentLog;

use super::buffer::PageBuffer;
use super::draft::Relocation;
use super::pace::WriteRate;
use crate::disk::format::Entry;
use crate::disk::location::Location;
use crate::disk::volume::Volume;
use crate::disk::write_state::WriteState;

/// The state of the thread that writes a device.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(in crate::disk) volume: Arc<Volume>,
    pub(in crate::disk) log: SegmentLog,
    /// Records since the last flush, with their padding.
    pub(super) buffer: PageBuffer,
    /// The offset of the buffer in the open segment. The bytes before this offset were written.
    pub(super) flushed: u64,
    /// The entries for the footer of the open segment.
    pub(super) entries: Vec<Entry>,
    /// Objects whose only or commit record is in the buffer.
    pub(super) records_pending: Vec<(Arc<WriteState>, Location)>,
    /// Objects with a piece in the buffer.
    pub(super) pieces_pending: Vec<Arc<WriteState>>,
    /// Index entries that move when the buffer is written.
    pub(in crate::disk) moves_pending: Vec<Relocation>,
    /// Hashes of purged keys that are not in a tombstone record yet.
    pub(super) tombstones: Vec<u64>,
    /// Hashes of purged keys in tombstone records that are not durable yet.
    pub(super) tombstones_unsynced: Vec<u64>,
    pub(super) unsynced_bytes: u64,
    pub(super) write_rate: WriteRate,
    /// The time when the oldest record in the buffer was appended.
    pub(super) buffered_since: Option<Instant>,
    /// The time when the oldest data that is not durable was appended.
    pub(super) unsynced_since: Option<Instant>,
    /// The time of the next try after a failure.
    pub(super) retry_at: Option<Instant>,
    /// The time of the next checkpoint. `None` if checkpoints are written only at shutdown.
    pub(super) checkpoint_at: Option<Instant>,
    /// The thread that writes a checkpoint.
    pub(super) checkpoint: Option<JoinHandle<()>>,
    /// A fingerprint of the sequence of objects that were written, reinserted and evicted. Tests compare it
    /// with that of the simulator.
    pub(super) digest: Digest,
}

impl Writer {
    pub(crate) fn new(volume: Arc<Volume>, log: SegmentLog) -> Self {
        let interval = volume.settings.checkpoint_interval;
        Self {
            buffer: PageBuffer::default(),
            flushed: 0,
            entries: Vec::new(),
            records_pending: Vec::new(),
            pieces_pending: Vec::new(),
            moves_pending: Vec::new(),
            tombstones: Vec::new(),
            tombstones_unsynced: Vec::new(),
            unsynced_bytes: 0,
            write_rate: WriteRate::default(),
            buffered_since: None,
            unsynced_since: None,
            retry_at: None,
            checkpoint: None,
            digest: Digest::default(),
            checkpoint_at: (!interval.is_zero()).then(|| Instant::now() + interval),
            volume,
            log,
        }
    }
}
