//! Opens and closes the disk tier.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use edgeward_policy::hierarchy::HierarchyRules;
use edgeward_store::disk::{DamagedDevice, DiskCache, DiskEvent, EventSink, OpenError};
use edgeward_types::ByteSize;

use super::admission::{Admissions, RuleSettings};
use super::key_set::KeySet;
use super::memory;
use super::readers::Readers;
use super::tier::DiskTier;
use crate::cache::stored::Hot;
use crate::config::DiskConfig;

/// The reason why the disk tier did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The store could not be opened.
    #[error("the disk cache cannot be opened")]
    Open(#[from] OpenError),
    /// A thread that reads from disks cannot be started.
    #[error("the disk cache's read threads cannot be started")]
    Thread(#[source] io::Error),
}

impl DiskTier {
    /// Opens the store, restores the history of admission, and logs each step.
    /// `key_seed` is the configured seed of key hashes for a new store. A store that exists keeps its own seed.
    pub(crate) fn open(
        config: &DiskConfig,
        key_seed: Option<u64>,
        ram_object_bytes_max: ByteSize,
        hot: &Arc<Hot>,
    ) -> Result<OpenedTier, DiskError> {
        let mut settings = config.settings.clone();
        settings.key_seed = settings.key_seed.or(key_seed);
        settings.on_event = EventSink::new(log_event);
        let device_queue_bytes_max = settings.queue_bytes.bytes();
        let opened = if config.opened.is_empty() {
            DiskCache::open(settings)
        } else {
            DiskCache::open_with_devices(settings, config.opened.clone())
        };
        let (cache, report) = match opened {
            Ok(opened) => opened,
            // No device is usable, so the edge starts without a disk tier.
            Err(OpenError::Damaged { devices: damaged }) => {
                log_damaged(&damaged);
                return Ok(OpenedTier {
                    tier: None,
                    damaged,
                });
            }
            Err(error) => return Err(error.into()),
        };
        log_damaged(&report.damaged);
        for device in &report.devices {
            if device.created {
                tracing::info!(
                    device = device.device,
                    size = %ByteSize(device.bytes),
                    "created a file for the disk cache"
                );
            }
            tracing::info!(
                device = device.device,
                formatted = device.formatted,
                objects = device.objects,
                segments = device.segments,
                searched = device.searched, // segments without a footer
                unreadable = device.unreadable,
                checkpoint = device.checkpoint,
                elapsed_ms = device.elapsed.as_millis(),
                "disk cache opened"
            );
        }
        if let Some(wanted) = key_seed.filter(|seed| *seed != cache.key_seed()) {
            tracing::warn!(
                wanted,
                used = cache.key_seed(),
                "the key seed of the disk cache is used instead of the configured one"
            );
        }
        let devices = cache.counters().devices;
        let capacity = devices
            .iter()
            .map(|device| device.capacity_bytes)
            .sum::<u64>();
        // Admission remembers keys in Bloom filters, its memory, and saves them in this file.
        let memory_file = config
            .memory_file
            .clone()
            .or_else(|| memory::default_file(&config.settings, "admission.state", ".admission"));
        let rules = HierarchyRules {
            disk_object_bytes_max: cache.object_bytes_max(),
            ram_object_bytes_max: ram_object_bytes_max.bytes(),
            ..HierarchyRules::default()
        };
        let common = RuleSettings {
            memory: config.memory(capacity),
            rules,
            file: memory_file.as_deref(),
            tag: cache.key_seed(),
        };
        let admissions = Admissions::restore(config.admission, &config.hosts, common);
        let readers = Readers::start(
            "disk-reader",
            config.read_threads,
            config.reads_waiting_max.get(),
        )
        .map_err(DiskError::Thread)?;
        let tier = Self {
            cache,
            admissions,
            readers,
            device_queue_bytes_max,
            invalidation_wait_max: config.invalidation_wait_max,
            promoting: KeySet::default(),
            writing: KeySet::default(),
            hot: Arc::clone(hot),
            retiring: AtomicBool::new(false),
        };
        let ram = tier.memory_bytes();
        tracing::info!(
            capacity = %ByteSize(capacity),
            index = %ByteSize(ram.index),
            verified = %ByteSize(ram.verified), // tables of verified and of cached blocks, and cached metadata
            admission = %ByteSize(ram.admission),
            queues_max = %ByteSize(ram.queues_max),
            "memory of the disk cache, in addition to the budget of the memory tier"
        );
        Ok(OpenedTier {
            tier: Some(tier),
            damaged: report.damaged,
        })
    }

    /// Ends lookups of requests. Reads of objects that were found earlier continue.
    pub(crate) fn retire(&self) {
        self.retiring.store(true, Ordering::Relaxed);
    }

    /// Lets another process open the store, which was closed, when `is_needed` returns false or the last object was
    /// read.
    pub(crate) fn release(&self, is_needed: impl FnMut() -> bool) {
        self.cache.retire();
        self.wait_until_unused(is_needed);
        self.cache.unlock();
    }

    /// Waits until no object is read or written, or `is_needed` returns false.
    pub(crate) fn wait_until_unused(&self, mut is_needed: impl FnMut() -> bool) {
        while self.cache.is_in_use() && is_needed() {
            std::thread::sleep(USE_CHECK_INTERVAL);
        }
    }

    /// Saves the history of admission. Then waits at most `within` until the queued writes and the index are persisted.
    pub(crate) fn close(self: &Arc<Self>, within: Duration) {
        self.readers.close();
        self.admissions.save(self.cache.key_seed());
        let (done, closed) = std::sync::mpsc::sync_channel(1);
        let cache = self.cache.clone();
        let spawned = std::thread::Builder::new()
            .name("disk-close".to_owned())
            .spawn(move || {
                let result = cache.close();
                // This clone keeps the device open. Another edge may open the device as soon as the result is sent.
                drop(cache);
                _ = done.send(result);
            });
        if let Err(error) = spawned {
            tracing::warn!(%error, "the disk cache was not closed; it will recover at the next start");
            return;
        }
        match closed.recv_timeout(within) {
            Ok(Ok(())) => tracing::info!("disk cache closed"),
            Ok(Err(error)) => tracing::warn!(%error, "the disk cache was not closed cleanly"),
            Err(_) => tracing::warn!(
                "the disk was too slow to close the cache in time; it will recover at the next start"
            ),
        }
    }
}

/// The opened disk tier, and the devices that it does not use because they are damaged.
#[derive(Debug)]
pub(crate) struct OpenedTier {
    /// `None` if no device is usable.
    pub(crate) tier: Option<DiskTier>,
    pub(crate) damaged: Vec<DamagedDevice>,
}

fn log_damaged(devices: &[DamagedDevice]) {
    for device in devices {
        tracing::error!("the edge starts without a device of the disk cache: {device}");
    }
}

fn log_event(event: &DiskEvent) {
    match event {
        DiskEvent::Writable { .. } => tracing::info!("{event}"),
        DiskEvent::OutOfService { .. } => tracing::error!("{event}"),
        _ => tracing::warn!("{event}"),
    }
}

/// The interval of the checks if a request still uses the store of a process that is replaced.
const USE_CHECK_INTERVAL: Duration = Duration::from_millis(5);
