//! A stopping edge writes two things for its successor: the objects in memory that the disk lacks, and the
//! [list](edgeward_store::hot_list) of the objects in memory. [`warm_start`](super::warm_start) reads both.
//!
//! The most valuable objects are written first, in the reverse order in which the policy would evict them. Admission to
//! disk is not asked: it counts requests that memory could not answer, and these objects were answered by memory. An
//! object of a host with the rule `never` is not written.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use edgeward_purge::Verdict;
use edgeward_store::hot::DrainedObject;
use edgeward_store::hot_list::{HotList, HotObject};
use edgeward_types::{ByteSize, KeyHash};
use http::StatusCode;

use super::disk::{DiskTier, default_file};
use super::key_parts::{path_key, primary_of, without_rule};
use super::slices::entry_of_slice;
use super::stored::{DiskPlan, Stored, StoredBody, StoredKind, Variants};
use super::tiers::Cache;
use crate::config::{DiskConfig, RestartConfig};

/// Returns the file of the list, or `None` if the edge keeps no list.
pub(crate) fn list_file(config: &DiskConfig) -> Option<PathBuf> {
    let restart = &config.restart;
    let default = || default_file(&config.settings, "hot.list", ".hot");
    restart
        .enabled
        .then(|| restart.list.clone().or_else(default))?
}

/// The numbers of objects that a stopping edge has and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PersistedObjects {
    /// Objects that the disk had already.
    pub(crate) on_disk: u64,
    /// Objects that were written.
    pub(crate) written: u64,
    /// Bytes of the bodies that were written.
    pub(crate) written_bytes: u64,
    /// Objects that are lost: a limit was reached, or the disk does not take them.
    pub(crate) lost: u64,
}

impl Cache {
    /// Empties memory: writes the objects that the disk lacks within the limits, and then the list. Call it when no
    /// request uses the cache any more. The writes are durable after the disk tier was closed.
    pub(crate) fn persist_memory(
        &self,
        restart: &RestartConfig,
        list: Option<&Path>,
    ) -> PersistedObjects {
        let mut counts = PersistedObjects::default();
        let Some(disk) = self.disk().filter(|_| restart.enabled) else {
            return counts;
        };
        let objects = self.hot.drain();
        let mut writer = ShutdownWriter::new(self, disk, restart, &objects);
        let mut listed = Vec::with_capacity(objects.len());
        for object in &objects {
            let is_kept = if disk.contains(object.object.object.key) {
                counts.on_disk += 1;
                true
            } else if let Some(bytes) = writer.write(object) {
                counts.written += 1;
                counts.written_bytes += bytes;
                true
            } else {
                counts.lost += 1;
                false
            };
            if is_kept {
                listed.push(object.object);
            }
            writer.log_progress(&counts, objects.len());
        }
        tracing::info!(
            written = counts.written,
            bytes = %ByteSize(counts.written_bytes),
            on_disk = counts.on_disk,
            lost = counts.lost,
            elapsed_ms = writer.start.elapsed().as_millis(),
            "objects of memory are on disk for the next start"
        );
        if let Some(list) = list {
            save(list, disk, listed);
        }
        counts
    }

    /// Writes the list while the edge runs. The order of the objects is arbitrary.
    pub(crate) fn save_list(&self, list: &Path) {
        let Some(disk) = self.disk() else { return };
        let mut listed = Vec::new();
        self.hot.for_each(|stored| {
            let key = self.hash(stored.key());
            if disk.contains(key) {
                listed.push(HotObject {
                    object: edgeward_policy::Object {
                        key,
                        size_bytes: stored.charge_bytes(),
                    },
                    was_hit: false,
                });
            }
        });
        if !listed.is_empty() {
            save(list, disk, listed);
        }
    }
}

fn save(path: &Path, disk: &DiskTier, objects: Vec<HotObject>) {
    let list = HotList {
        key_seed: disk.cache.key_seed(),
        objects,
    };
    if let Err(error) = list.write(path) {
        tracing::warn!(%error, file = %path.display(), "the list of objects in memory cannot be written");
    }
}

/// Writes objects to disk until a limit is reached.
struct ShutdownWriter<'a> {
    cache: &'a Cache,
    disk: &'a DiskTier,
    /// The drained markers and entries of responses in slices, by the hash of their key. The marker of a variant is
    /// written with the variant, and the entry with its slices.
    markers: HashMap<KeyHash, &'a DrainedObject<Stored>>,
    start: Instant,
    deadline: Instant,
    bytes_left: u64,
    last_progress: Instant,
}

impl<'a> ShutdownWriter<'a> {
    fn new(
        cache: &'a Cache,
        disk: &'a DiskTier,
        restart: &RestartConfig,
        objects: &'a [DrainedObject<Stored>],
    ) -> Self {
        let is_marker = |object: &&DrainedObject<Stored>| {
            matches!(object.value.kind, StoredKind::Varies(_)) || object.value.slices().is_some()
        };
        let markers = objects.iter().filter(is_marker);
        let start = Instant::now();
        Self {
            cache,
            disk,
            markers: markers.map(|it| (it.object.object.key, it)).collect(),
            start,
            deadline: start + restart.write_time_max,
            bytes_left: restart.write_bytes_max.bytes(),
            last_progress: start,
        }
    }

    /// Writes an object. Returns the bytes of its body, or `None` if it was not written.
    fn write(&mut self, object: &DrainedObject<Stored>) -> Option<u64> {
        let hash = object.object.object.key;
        let stored = &*object.value;
        match &stored.kind {
            StoredKind::Varies(variants) => {
                // A marker without variants on disk would be useless. A variant that is written later writes it too.
                self.put_marker(object, variants).then_some(0)
            }
            StoredKind::Response(_) if stored.slices().is_some() => {
                self.put_entry(object).then_some(0)
            }
            StoredKind::Response(response) => {
                let StoredBody::Memory(body) = &response.body else {
                    return None;
                };
                let length = body.len() as u64;
                if length > self.bytes_left
                    || self.cache.verdict(primary_of(stored.key()), stored) == Verdict::Hard
                {
                    return None;
                }
                let is_findable = if response.status == StatusCode::PARTIAL_CONTENT {
                    let entry = self.cache.hash(entry_of_slice(stored.key())?);
                    let entry = *self.markers.get(&entry)?;
                    self.put_entry(entry)
                } else {
                    self.put_markers_of(stored.key())
                };
                if !is_findable {
                    return None;
                }
                if !self.disk.stores_host_of(stored.key())
                    || matches!(response.disk_plan, DiskPlan::Never | DiskPlan::Copy { .. })
                {
                    return None;
                }
                // The iterator ends early after the deadline. The body is then incomplete, and the write is dropped.
                let piece_bytes = self.disk.piece_bytes();
                let pieces = (0..body.len()).step_by(piece_bytes).map_while(|at| {
                    let end = body.len().min(at + piece_bytes);
                    self.wait_for_room(hash).then(|| body.slice(at..end))
                });
                if !self.wait_for_room(hash)
                    || !self
                        .disk
                        .write(hash, object.version, stored, response, pieces)
                {
                    return None;
                }
                self.bytes_left -= length;
                Some(length)
            }
        }
    }

    /// Writes the entry of a response in slices, unless it was purged.
    fn put_entry(&self, entry: &DrainedObject<Stored>) -> bool {
        let (hash, stored) = (entry.object.object.key, &*entry.value);
        let Some(slices) = stored.slices() else {
            return false;
        };
        self.cache.verdict(primary_of(stored.key()), stored) != Verdict::Hard
            && self.put_markers_of(stored.key())
            && self.wait_for_room(hash)
            && self.disk.stores_host_of(stored.key())
            && self.disk.put_sliced(hash, stored, slices, entry.version)
    }

    /// Writes the markers through which lookups find the response with this key. Returns false if one is not written.
    fn put_markers_of(&self, key: &[u8]) -> bool {
        let primary = primary_of(key);
        let is_under_rule = without_rule(primary).len() < primary.len();
        let is_variant = primary.len() < key.len();
        (!is_under_rule || self.put_marker_under(&path_key(primary)))
            && (!is_variant || self.put_marker_under(primary))
    }

    /// Writes the marker with this key. Returns false if memory did not have it or it was not written.
    fn put_marker_under(&self, key: &[u8]) -> bool {
        let marker = self.markers.get(&self.cache.hash(key));
        marker.is_some_and(|marker| match &marker.value.kind {
            StoredKind::Varies(variants) => self.put_marker(marker, variants),
            StoredKind::Response(_) => false,
        })
    }

    fn put_marker(&self, marker: &DrainedObject<Stored>, variants: &Variants) -> bool {
        let (hash, key) = (marker.object.object.key, marker.value.key());
        self.wait_for_room(hash)
            && self.disk.stores_host_of(key)
            && self.disk.put_marker(hash, key, variants, marker.version)
    }

    /// Waits until the device's queue has room. Returns false after the deadline.
    fn wait_for_room(&self, hash: KeyHash) -> bool {
        while Instant::now() < self.deadline {
            if self.disk.cache.has_room(hash) {
                return true;
            }
            thread::sleep(QUEUE_PAUSE);
        }
        false
    }

    fn log_progress(&mut self, counts: &PersistedObjects, objects: usize) {
        if self.last_progress.elapsed() < PROGRESS_INTERVAL {
            return;
        }
        self.last_progress = Instant::now();
        tracing::info!(
            written = counts.written,
            bytes = %ByteSize(counts.written_bytes),
            examined = counts.on_disk + counts.written + counts.lost,
            objects,
            "writing objects of memory to disk"
        );
    }
}

/// The pause before the queue of a device is checked again. In this time a fast device writes a few megabytes, far less
/// than half of the queue.
const QUEUE_PAUSE: Duration = Duration::from_millis(2);

/// The interval of messages about the progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
