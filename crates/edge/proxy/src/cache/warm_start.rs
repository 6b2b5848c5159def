//! Fills memory after a start with the objects that the previous process had there.
//!
//! The list of these objects comes from [`restart`](super::restart), and the objects from the disk. Requests are served
//! meanwhile. The thread first reserves space for all objects, in the order of the policy. Then it reads the objects,
//! the most valuable first. A read object is inserted like a promotion: only if it is the current object of its key,
//! and memory has no object of the key. A purged object is not inserted. After the fill, the thread writes the list at
//! intervals.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use edgeward_purge::Verdict;
use edgeward_store::hot::{Commit, Offer, Reservation};
use edgeward_store::hot_list::{HotList, HotObject};
use edgeward_store::versions::Version;
use edgeward_types::ByteSize;

use super::disk::{DiskEntry, DiskHit};
use super::key_parts::{primary_of, url_of};
use super::stored::{Stored, StoredKind};
use super::tiers::Cache;
use crate::observe::counters::Counters;
use crate::rt::budget::charged;
use crate::rt::panics::lock;

/// The thread that fills memory and writes the list. Dropping this value stops and joins the thread.
#[derive(Debug)]
pub(crate) struct WarmStart {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl WarmStart {
    /// Starts the thread. A zero `list_interval` writes no list while the edge runs.
    pub(crate) fn start(
        cache: Arc<Cache>,
        counters: Arc<Counters>,
        list: PathBuf,
        list_interval: Duration,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let fill = Fill {
            cache,
            counters,
            stop: Arc::clone(&stop),
        };
        let thread = thread::Builder::new()
            .name("edgeward-warm".to_owned())
            .spawn(move || {
                fill.run(&list);
                while !fill.stop.load(Relaxed) && !list_interval.is_zero() {
                    let start = Instant::now();
                    while start.elapsed() < list_interval && !fill.stop.load(Relaxed) {
                        thread::park_timeout(list_interval.saturating_sub(start.elapsed()));
                    }
                    if !fill.stop.load(Relaxed) {
                        fill.cache.save_list(&list);
                    }
                }
            })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for WarmStart {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            _ = thread.join();
        }
    }
}

/// A fill of memory from the disk.
struct Fill {
    cache: Arc<Cache>,
    counters: Arc<Counters>,
    stop: Arc<AtomicBool>,
}

/// The objects that are still to be read, the most valuable first.
type Pending = Mutex<VecDeque<(HotObject, Reservation<Stored>)>>;

impl Fill {
    fn run(&self, list: &Path) {
        let start = Instant::now();
        let Some(disk) = self.cache.disk() else {
            return;
        };
        let objects = match HotList::read(list) {
            Ok(Some(list)) if list.key_seed == disk.cache.key_seed() => list.objects,
            Ok(Some(_)) => {
                let file = list.display();
                tracing::warn!(%file, "the list of hot objects belongs to another store: memory starts empty");
                return;
            }
            Ok(None) => return,
            Err(error) => {
                let file = list.display();
                tracing::warn!(%error, %file, "the list of hot objects is not used: memory starts empty");
                return;
            }
        };
        let listed = objects.len();
        let on_disk: Vec<HotObject> = objects
            .into_iter()
            .filter(|hot| disk.contains(hot.object.key))
            .collect();
        let reservations = self.cache.reserve(&on_disk, &self.counters);
        let pending: VecDeque<_> = on_disk
            .into_iter()
            .zip(reservations)
            .filter_map(|(hot, reservation)| Some((hot, reservation?)))
            .collect();
        let progress = &self.cache.warm_progress;
        progress.pending.store(pending.len() as u64, Relaxed);
        progress
            .skipped
            .store((listed - pending.len()) as u64, Relaxed);
        let pending = Mutex::new(pending);
        thread::scope(|scope| {
            for _ in 1..READERS {
                scope.spawn(|| self.load_all(&pending));
            }
            self.load_all(&pending);
        });
        tracing::info!(
            objects = progress.loaded.load(Relaxed),
            bytes = %ByteSize(progress.loaded_bytes.load(Relaxed)),
            skipped = progress.skipped.load(Relaxed),
            elapsed_ms = start.elapsed().as_millis(),
            "memory was filled from disk"
        );
        // After a stop, the reservations of the objects that were not read are dropped here.
        progress.pending.store(0, Relaxed);
    }

    fn load_all(&self, pending: &Pending) {
        let progress = &self.cache.warm_progress;
        while !self.stop.load(Relaxed) {
            let Some((hot, reservation)) = lock(pending).pop_front() else {
                return;
            };
            match self.load(&hot, reservation) {
                Some(bytes) => {
                    progress.loaded.fetch_add(1, Relaxed);
                    progress.loaded_bytes.fetch_add(bytes, Relaxed);
                }
                None => {
                    progress.skipped.fetch_add(1, Relaxed);
                }
            }
            progress.pending.fetch_sub(1, Relaxed);
        }
    }

    /// Reads an object into memory and returns the length of its body. Returns `None` if memory has an object of the
    /// key already, or if the object on disk is not current any more.
    fn load(&self, hot: &HotObject, mut reservation: Reservation<Stored>) -> Option<u64> {
        let cache = &self.cache;
        let disk = cache.disk()?;
        let hash = hot.object.key;
        if cache.hot.peek(hash).is_some() {
            return None;
        }
        let candidate = disk.cache.lookup(hash)?;
        let key = disk.cache.key_of(&candidate)?;
        if cache.hash(&key) != hash {
            return None;
        }
        let (value, version, bytes) = match disk.read(candidate, hash, &key) {
            DiskEntry::Marker(marker) => {
                let StoredKind::Varies(variants) = &marker.kind else {
                    return None;
                };
                let version = variants.version?;
                reservation = self.with_charge(reservation, marker.charge_bytes())?;
                marker.attach_charge(reservation.take_charge());
                (marker, version, 0)
            }
            DiskEntry::Sliced(entry) => {
                if cache.verdict(primary_of(&key), &entry) == Verdict::Hard {
                    return None;
                }
                let version = entry.slices()?.version?;
                reservation = self.with_charge(reservation, entry.charge_bytes())?;
                entry.attach_charge(reservation.take_charge());
                (entry, version, 0)
            }
            DiskEntry::Response(hit) => {
                let (verdict, _) =
                    cache
                        .purges
                        .verdict(url_of(primary_of(&key)), &hit.fields, hit.stamp);
                if verdict == Verdict::Hard {
                    return None;
                }
                let version = disk.version_of(hash, &hit.object)?;
                reservation = self.with_charge(reservation, hit.charge_bytes(key.len()))?;
                let (body, version) = self.read_body(&hit, version)?;
                let bytes = body.len() as u64;
                let body = charged(body.into_boxed_slice(), reservation.take_charge());
                (hit.stored_in_memory(&key, body), version, bytes)
            }
            DiskEntry::Absent | DiskEntry::Pending(_) => return None,
        };
        matches!(reservation.promote(value, version), Commit::Done(_)).then_some(bytes)
    }

    /// Returns a reservation of at least this charge. The object may have a larger charge than in the list, for example
    /// if another release has written the list.
    fn with_charge(
        &self,
        reservation: Reservation<Stored>,
        charge_bytes: u64,
    ) -> Option<Reservation<Stored>> {
        if reservation.charge_bytes() >= charge_bytes {
            return Some(reservation);
        }
        let key = reservation.key();
        drop(reservation);
        match self
            .cache
            .offer_to_ram(key, charge_bytes, None, &self.counters)
        {
            Offer::Admit(reservation) => Some(reservation),
            Offer::Refuse(_) | Offer::Pinned => None,
        }
    }

    /// Reads a body. Renews the version of the key, because a long read would outlive it.
    fn read_body(&self, hit: &DiskHit, mut version: Version) -> Option<(Vec<u8>, Version)> {
        let length = hit.length();
        let mut body = Vec::with_capacity(usize::try_from(length).ok()?);
        while (body.len() as u64) < length {
            if self.stop.load(Relaxed) {
                return None;
            }
            let piece = hit.object.read(body.len() as u64..length).ok()?;
            body.extend_from_slice(&piece);
            version = self.cache.hot.renewed(version)?;
        }
        Some((body, version))
    }
}

/// The number of threads that read objects. Four reads at a time keep most of a solid-state disk's speed for requests,
/// which use up to `disk.read_threads`.
const READERS: usize = 4;
