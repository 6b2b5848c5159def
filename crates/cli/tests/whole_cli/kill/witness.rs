//! Purges objects that no other client requests, and records which purges are durable.
//!
//! The edge writes to the disk in the order of the operations. So a purge is durable if an object requested
//! after it is durable, which the [`Ledger`] records.

use std::net::SocketAddr;

use serde_json::Value;

use super::ledger::Ledger;
use super::request::{ask, exchange};

/// A client whose objects have names of their own.
#[derive(Debug, Default)]
pub(super) struct Witness {
    names: u64,
    /// Objects requested since the start.
    requested: Vec<u64>,
    /// Objects that were on disk after the start.
    on_disk: Vec<u64>,
    /// Durably purged objects, to be requested at the next start or at the end.
    gone: Vec<u64>,
    gone_until_the_end: Vec<u64>,
    /// The edge's count of evicted objects when it last reported.
    evicted: u64,
}

impl Witness {
    /// Purges objects and waits until the purges are durable. Returns false if the edge was killed meanwhile.
    pub(super) fn round(&mut self, addr: SocketAddr, admin: SocketAddr, ledger: &Ledger) -> bool {
        self.try_round(addr, admin, ledger).is_some()
    }

    fn try_round(&mut self, addr: SocketAddr, admin: SocketAddr, ledger: &Ledger) -> Option<()> {
        let purged = self
            .on_disk
            .split_off(self.on_disk.len().saturating_sub(PURGES_A_ROUND));
        for &id in &purged {
            ask(addr, "POST", id, None).whole.then_some(())?;
        }
        // Objects to purge after the next start; they are as durable as the marker after them.
        for kind in 0..FETCHES_A_ROUND {
            let id = self.name(kind % 4);
            ask(addr, "GET", id, None).whole.then_some(())?;
            self.requested.push(id);
        }
        // Larger than the memory tier, so that a hit proves that the marker is on disk.
        let marker = self.name(4);
        let ticket = ledger.ask(marker);
        ask(addr, "GET", marker, None).whole.then_some(())?;
        while !ask(addr, "GET", marker, Some((0, 99))).whole_from_disk()? {}
        ledger.is_written(ticket);
        loop {
            ledger.ask_for_syncs(|| self.syncs(admin))?;
            if ledger.holds(ticket) {
                break;
            }
            // A write, so that the next sync has something to do.
            let id = self.name(0);
            ask(addr, "GET", id, None).whole.then_some(())?;
        }
        for id in purged {
            match id % 2 {
                0 => self.gone.push(id),
                _ => self.gone_until_the_end.push(id),
            }
        }
        Some(())
    }

    /// Requests the durably purged objects, none of which may be a hit, and returns their number. The latest
    /// objects that are on disk are the next to be purged.
    pub(super) fn after_a_start(&mut self, addr: SocketAddr, last: bool) -> u64 {
        let mut gone = std::mem::take(&mut self.gone);
        if last {
            gone.append(&mut self.gone_until_the_end);
        }
        for &id in &gone {
            let result = ask(addr, "GET", id, None);
            assert!(result.whole, "object {id}");
            assert!(!result.from_disk, "object {id} was purged and is back");
        }
        let mut known = std::mem::take(&mut self.on_disk);
        known.append(&mut self.requested);
        let latest = known.len().saturating_sub(KNOWN_MAX);
        known.drain(..latest);
        known.retain(|&id| ask(addr, "GET", id, None).from_disk);
        self.on_disk = known;
        gone.len() as u64
    }

    /// The number of objects evicted before the kill, as last reported.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    fn syncs(&mut self, admin: SocketAddr) -> Option<u64> {
        let request = "GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let (_, body) = exchange(admin, request)?;
        let status: Value = serde_json::from_slice(&body).ok()?;
        let device = &status["disk"]["devices"][0];
        self.evicted = device["evicted_objects"].as_u64().expect("a count");
        Some(device["syncs"].as_u64().expect("a count"))
    }

    /// The name of an object that was not requested before, with this kind of size.
    fn name(&mut self, kind: u64) -> u64 {
        self.names += 1;
        10_000 + 5 * self.names + kind
    }
}

/// Few enough to be requested at each start.
const KNOWN_MAX: usize = 16;

/// Twice the number purged in a round: a round that the kill interrupts leaves enough for the next.
const FETCHES_A_ROUND: u64 = 6;

const PURGES_A_ROUND: usize = 3;
