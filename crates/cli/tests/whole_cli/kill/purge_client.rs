//! Purges objects that no other client requests, and records which purges are durable. A purge is a POST for the
//! object's URL, which invalidates the stored object.
//!
//! The edge writes to the disk in the order of the operations. A purge is therefore durable if an object that was
//! requested after the purge is durable. The [`DurabilityLedger`] records which objects are durable.

use std::net::SocketAddr;

use serde_json::Value;

use super::ledger::DurabilityLedger;
use super::request::{exchange, send_request};

/// A client that requests only objects that no other client requests.
#[derive(Debug, Default)]
pub(super) struct PurgeClient {
    ids_used: u64,
    /// Objects requested since the edge started last.
    requested: Vec<u64>,
    /// Objects that were served from disk after the edge started last.
    on_disk: Vec<u64>,
    /// Durably purged objects that are requested after the next start, to check that they are not served from disk.
    purged: Vec<u64>,
    /// Durably purged objects that are requested only after the last start.
    purged_for_last_check: Vec<u64>,
    /// The number of evicted objects in the last status of the edge.
    evicted: u64,
}

impl PurgeClient {
    /// Purges objects and waits until the purges are durable. Returns false if the edge was killed meanwhile.
    pub(super) fn run_round(
        &mut self,
        addr: SocketAddr,
        admin: SocketAddr,
        ledger: &DurabilityLedger,
    ) -> bool {
        self.try_run_round(addr, admin, ledger).is_some()
    }

    fn try_run_round(
        &mut self,
        addr: SocketAddr,
        admin: SocketAddr,
        ledger: &DurabilityLedger,
    ) -> Option<()> {
        let purged = self
            .on_disk
            .split_off(self.on_disk.len().saturating_sub(PURGES_PER_ROUND));
        for &id in &purged {
            send_request(addr, "POST", id, None)
                .complete
                .then_some(())?;
        }
        // Requests the objects that are purged after the next start. The edge writes these objects before the marker,
        // which is requested after them. They are therefore durable when the marker is durable.
        for kind in 0..FETCHES_PER_ROUND {
            let id = self.next_id(kind % 4);
            send_request(addr, "GET", id, None).complete.then_some(())?;
            self.requested.push(id);
        }
        // The marker is larger than the memory tier, so that a hit proves that it is on disk. A generation of an object
        // is its content between two invalidations; the marker is never invalidated.
        let marker = self.next_id(4);
        let marker_generation = ledger.generation_of(marker);
        send_request(addr, "GET", marker, None)
            .complete
            .then_some(())?;
        while !send_request(addr, "GET", marker, Some((0, 99))).was_complete_and_from_disk()? {}
        ledger.record_written(marker_generation);
        loop {
            ledger.update_durable(|| self.read_sync_count(admin))?;
            if ledger.is_known_durable(marker_generation) {
                break;
            }
            // A further request causes a write, because the edge syncs only after writes.
            let id = self.next_id(0);
            send_request(addr, "GET", id, None).complete.then_some(())?;
        }
        for id in purged {
            match id % 2 {
                0 => self.purged.push(id),
                _ => self.purged_for_last_check.push(id),
            }
        }
        Some(())
    }

    /// Requests the durably purged objects, checks that no response comes from disk, and returns their number.
    /// Keeps the latest objects that are still on disk; the next round purges them.
    pub(super) fn check_purged_after_start(
        &mut self,
        addr: SocketAddr,
        is_last_start: bool,
    ) -> u64 {
        let mut purged = std::mem::take(&mut self.purged);
        if is_last_start {
            purged.append(&mut self.purged_for_last_check);
        }
        for &id in &purged {
            let result = send_request(addr, "GET", id, None);
            assert!(result.complete, "object {id}");
            assert!(!result.from_disk, "object {id} was purged and is back");
        }
        let mut objects = std::mem::take(&mut self.on_disk);
        objects.append(&mut self.requested);
        let excess = objects.len().saturating_sub(OBJECTS_ON_DISK_MAX);
        objects.drain(..excess);
        objects.retain(|&id| send_request(addr, "GET", id, None).from_disk);
        self.on_disk = objects;
        purged.len() as u64
    }

    /// The number of objects evicted before the kill, as last reported.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    fn read_sync_count(&mut self, admin: SocketAddr) -> Option<u64> {
        let request = "GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let (_, body) = exchange(admin, request)?;
        let status: Value = serde_json::from_slice(&body).ok()?;
        let device = &status["disk"]["devices"][0];
        self.evicted = device["evicted_objects"]
            .as_u64()
            .expect("the count is a number");
        Some(device["syncs"].as_u64().expect("the count is a number"))
    }

    /// Returns an unused id whose remainder by 5 is `kind`, which selects the object's size.
    fn next_id(&mut self, kind: u64) -> u64 {
        self.ids_used += 1;
        10_000 + 5 * self.ids_used + kind
    }
}

/// The maximum number of objects in `on_disk`, which are all requested after each start.
const OBJECTS_ON_DISK_MAX: usize = 16;

/// The number of new objects in a round: twice the number of purges, so that enough objects remain for the next round
/// if the kill interrupts this one.
const FETCHES_PER_ROUND: u64 = 6;

const PURGES_PER_ROUND: usize = 3;
