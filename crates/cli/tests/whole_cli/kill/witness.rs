//! Purges objects that nobody else asks for, and knows which purges are durable.
//!
//! What comes to the disk is written in the order in which it came. So a purge is durable when an object that was asked
//! for after it is, and of objects that is known ([`Ledger`]).

use std::net::SocketAddr;

use serde_json::Value;

use super::ask::{ask, exchange};
use super::ledger::Ledger;

/// Each of its objects has a name of its own.
#[derive(Debug, Default)]
pub(super) struct Witness {
    names: u64,
    /// Asked for since the start.
    asked: Vec<u64>,
    /// Were on disk after the start.
    on_disk: Vec<u64>,
    /// Purged durably; to be asked for at the next start, and at the end.
    gone: Vec<u64>,
    gone_until_the_end: Vec<u64>,
    /// Objects that had made room when the edge last told.
    evicted: u64,
}

impl Witness {
    /// Purges, and waits until the purges are durable. False if the edge was killed meanwhile.
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
        // Something to purge after the next start: as durable as what comes after it.
        for kind in 0..FETCHES_A_ROUND {
            let id = self.name(kind % 4);
            ask(addr, "GET", id, None).whole.then_some(())?;
            self.asked.push(id);
        }
        // Too large for RAM, so that a hit says that it is on disk.
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
            // Something to sync.
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

    /// Asks for what was durably purged: how many. None of it may be a hit. Of the last round's objects those that are on
    /// disk are the next to be purged.
    pub(super) fn after_a_start(&mut self, addr: SocketAddr, last: bool) -> u64 {
        let mut gone = std::mem::take(&mut self.gone);
        if last {
            gone.append(&mut self.gone_until_the_end);
        }
        for &id in &gone {
            let asked = ask(addr, "GET", id, None);
            assert!(asked.whole, "object {id}");
            assert!(!asked.from_disk, "object {id} was purged and is back");
        }
        let mut known = std::mem::take(&mut self.on_disk);
        known.append(&mut self.asked);
        let latest = known.len().saturating_sub(KNOWN_MAX);
        known.drain(..latest);
        known.retain(|&id| ask(addr, "GET", id, None).from_disk);
        self.on_disk = known;
        gone.len() as u64
    }

    /// Objects that had made room before the kill, as far as it was told.
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

    /// One that nobody has asked for, of this kind of size.
    fn name(&mut self, kind: u64) -> u64 {
        self.names += 1;
        10_000 + 5 * self.names + kind
    }
}

/// Few enough to be asked for at each start.
const KNOWN_MAX: usize = 16;

/// Twice what is purged in a round: one that the kill cuts short leaves enough for the next.
const FETCHES_A_ROUND: u64 = 6;

const PURGES_A_ROUND: usize = 3;
