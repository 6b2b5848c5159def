//! Checks the rule of [`versions`](crate::versions) with the model checker shuttle: every combination of three
//! concurrent operations, from every initial state.
//!
//! The RAM tier is the real one. It uses shuttle's locks, so that shuttle schedules the threads differently in
//! every run. The disk is a model of [`DiskCache`](crate::disk::DiskCache): each of its operations is one step,
//! and a lookup finds a written object only after the model's writer has published the object. The operations
//! copy those of the crate `proxy` line by line (`Cache::insert`, `remove`, `purge`, `DiskTier::take_evicted`,
//! `Promotion`).
//!
//! The origin numbers its responses, and the number is the stored value. A greater value therefore is a newer
//! response. Two laws are checked. After a purge has returned, no lookup finds a response older than the purge.
//! At the end no tier has a response older than the newest response whose change was applied.

use std::sync::Arc;

use edgeward_policy::PolicySpec;
use edgeward_types::{ByteSize, KeyHash};
use shuttle::thread;

use crate::hot::{Commit, HotCache, HotConfig, Offer, Reservation};
use crate::sync::Mutex;
use crate::versions::Version;

const KEY: KeyHash = KeyHash(2);
/// Another key in the same stripe. The keys of a stripe share a log of changes.
const OTHER: KeyHash = KeyHash(4);
/// The charge of an object. The cache has the capacity of one object.
const CHARGE: u64 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    /// A response is stored in the tiers whose flags are true.
    Fetch { ram: bool, disk: bool },
    /// The origin answers 304.
    Refresh,
    /// The origin sends a response that may not be stored, so the stored response is removed.
    Remove,
    /// An operator or an unsafe request purges the key.
    Purge,
    /// The object is copied from disk to RAM.
    Promote,
    /// Another object takes the space in RAM, and the evicted object is written to disk.
    Evict,
}

const OPERATIONS: [Operation; 8] = [
    Operation::Fetch {
        ram: true,
        disk: true,
    },
    Operation::Fetch {
        ram: true,
        disk: false,
    },
    Operation::Fetch {
        ram: false,
        disk: true,
    },
    Operation::Refresh,
    Operation::Remove,
    Operation::Purge,
    Operation::Promote,
    Operation::Evict,
];

struct Tiers {
    hot: Arc<HotCache<u64>>,
    disk: Mutex<Disk>,
    /// True while a write of the key to disk is in progress. A key has at most one write at a time.
    writing: Mutex<bool>,
    /// The number of responses that the origin has sent.
    origin: Mutex<u64>,
    /// The number of the newest purge. A purge takes a number from `origin` like a response. Later lookups must not
    /// find a response with a smaller number.
    purged: Mutex<u64>,
    /// The newest response whose change was applied. At the end no tier may have an older response.
    changed: Mutex<u64>,
}

/// The model of a device: the object in its index, and the writes in progress.
#[derive(Default)]
struct Disk {
    object: Option<u64>,
    writes: Vec<Write>,
}

#[derive(Clone, Copy)]
struct Write {
    value: u64,
    is_finished: bool,
}

impl Disk {
    fn begin(&mut self, value: u64) {
        let is_finished = false;
        self.writes.push(Write { value, is_finished });
    }

    /// Ends a write: if `is_finished` is true, the writer may publish it; otherwise the write is aborted. Returns false
    /// if a purge stopped the write.
    fn end(&mut self, value: u64, is_finished: bool) -> bool {
        let ours = |write: &Write| write.value == value && !write.is_finished;
        let Some(index) = self.writes.iter().position(ours) else {
            return false;
        };
        match is_finished {
            true => self.writes[index].is_finished = true,
            false => _ = self.writes.remove(index),
        }
        true
    }

    fn publish(&mut self) {
        if let Some(index) = self.writes.iter().position(|write| write.is_finished) {
            self.object = Some(self.writes.remove(index).value);
        }
    }

    fn publish_all(&mut self) {
        while self.writes.iter().any(|write| write.is_finished) {
            self.publish();
        }
    }

    fn purge(&mut self) {
        *self = Self::default();
    }

    fn is_current(&self, object: u64) -> bool {
        self.writes.is_empty() && self.object == Some(object)
    }
}

impl Tiers {
    fn new(in_ram: bool, on_disk: bool) -> Self {
        let tiers = Self {
            hot: HotCache::new(HotConfig {
                policy: PolicySpec::LRU,
                ..HotConfig::new(ByteSize(CHARGE))
            }),
            disk: Mutex::default(),
            writing: Mutex::default(),
            origin: Mutex::default(),
            purged: Mutex::default(),
            changed: Mutex::default(),
        };
        if on_disk {
            tiers.disk.lock().object = Some(0);
        }
        if let Some(reservation) = tiers.offer(KEY).filter(|_| in_ram) {
            reservation.promote(Arc::new(0), tiers.hot.version(KEY));
        }
        tiers
    }

    fn run(&self, operation: Operation) {
        match operation {
            Operation::Fetch { ram, disk } => self.fetch(ram, disk),
            Operation::Refresh => self.refresh(),
            Operation::Remove => {
                let version = self.hot.version(KEY);
                let value = self.request_origin();
                let _changing = self.hot.changing(KEY);
                if self.hot.remove(version).is_some() {
                    self.disk.lock().purge();
                    raise(&self.changed, value);
                }
            }
            Operation::Purge => {
                let value = self.request_origin();
                let changing = self.hot.changing(KEY);
                self.hot.purge(KEY, |_| true);
                self.disk.lock().purge();
                drop(changing);
                raise(&self.purged, value);
            }
            Operation::Promote => self.promote(),
            Operation::Evict => drop(self.offer(OTHER)),
        }
    }

    fn fetch(&self, ram: bool, disk: bool) {
        let version = self.hot.version(KEY);
        let value = self.request_origin();
        let writes = disk && self.claim();
        if writes {
            self.disk.lock().begin(value);
        }
        let reservation = self.offer(KEY).filter(|_| ram);
        if self.insert(version, value, reservation, writes) {
            raise(&self.changed, value);
        }
        if writes {
            self.disk.lock().end(value, false);
            *self.writing.lock() = false;
        }
    }

    fn insert(
        &self,
        version: Version,
        value: u64,
        ram: Option<Reservation<u64>>,
        writes: bool,
    ) -> bool {
        let _changing = self.hot.changing(KEY);
        let commit = ram.map(|reservation| reservation.commit(Arc::new(value), version));
        match commit {
            Some(Commit::Done(_)) => {}
            Some(Commit::Outdated) => return false,
            Some(Commit::Lost) | None if !writes => return false,
            Some(Commit::Lost) | None => {
                if self.hot.remove(version).is_none() {
                    return false;
                }
            }
        }
        if !(writes && self.disk.lock().end(value, true)) {
            self.disk.lock().purge();
        }
        true
    }

    fn refresh(&self) {
        let Some(before) = self.hot.lookup(KEY) else {
            return;
        };
        let version = self.hot.version(KEY);
        let value = self.request_origin();
        let _changing = self.hot.changing(KEY);
        // The 304 with the number `value` confirms the stored response `before`.
        if self
            .hot
            .refresh(version, &before, Arc::new(value))
            .is_some()
        {
            // The head on disk may be old, so the object on disk is purged and not refreshed.
            self.disk.lock().purge();
            raise(&self.changed, value);
        }
    }

    fn promote(&self) {
        let Some(object) = self.disk.lock().object else {
            return;
        };
        let Some(version) = self.hot.settled_version(KEY) else {
            return;
        };
        if !self.disk.lock().is_current(object) {
            return;
        }
        if let Some(reservation) = self.offer(KEY) {
            reservation.promote(Arc::new(object), version);
        }
    }

    fn offer(&self, key: KeyHash) -> Option<Reservation<u64>> {
        let evicted = |evicted: &edgeward_policy::Evicted, version, value: Arc<u64>| {
            if evicted.object.key != KEY || !self.claim() {
                return;
            }
            self.disk.lock().begin(*value);
            let is_current = self.hot.is_current(version);
            self.disk.lock().end(*value, is_current);
            *self.writing.lock() = false;
        };
        match self.hot.offer_with(key, CHARGE, (None, 1.0), evicted) {
            Offer::Admit(reservation) => Some(reservation),
            Offer::Refuse(_) | Offer::Pinned => None,
        }
    }

    /// Marks a write of the key as in progress. Returns false if one is in progress already.
    fn claim(&self) -> bool {
        !std::mem::replace(&mut *self.writing.lock(), true)
    }

    fn request_origin(&self) -> u64 {
        let mut origin = self.origin.lock();
        *origin += 1;
        *origin
    }

    fn check_lookup(&self) {
        let purged = *self.purged.lock();
        let in_ram = self.hot.lookup(KEY).map(|value| *value);
        let found = in_ram.or_else(|| self.disk.lock().object);
        assert!(
            found.is_none_or(|found| found >= purged),
            "{found:?} was found although a purge removed every response before {purged}"
        );
    }
}

/// Sets `least` to `value` if `value` is greater.
fn raise(least: &Mutex<u64>, value: u64) {
    let mut least = least.lock();
    *least = value.max(*least);
}

/// Runs each of `operations` on its own thread, beside a thread for the device's writer, and checks both laws.
fn race(in_ram: bool, on_disk: bool, operations: &[Operation]) {
    let tiers = Arc::new(Tiers::new(in_ram, on_disk));
    let spawn = |work: Box<dyn FnOnce(&Tiers) + Send>| {
        let tiers = Arc::clone(&tiers);
        thread::spawn(move || work(&tiers))
    };
    let mut threads = Vec::new();
    for &operation in operations {
        threads.push(spawn(Box::new(move |tiers| {
            tiers.run(operation);
            tiers.check_lookup();
        })));
    }
    threads.push(spawn(Box::new(|tiers| {
        tiers.disk.lock().publish();
    })));
    for thread in threads {
        thread.join().expect("no thread panics");
    }
    tiers.disk.lock().publish_all();
    tiers.check_lookup();
    let least = *tiers.changed.lock();
    let in_ram = tiers.hot.peek(KEY).map(|value| *value);
    let on_disk = tiers.disk.lock().object;
    for found in in_ram.into_iter().chain(on_disk) {
        assert!(
            found >= least,
            "{found} is stored although {least} replaced it"
        );
    }
}

/// The environment variable `SHUTTLE_RANDOM_SEED` sets the seed. A failing run prints its seed.
#[test]
fn no_order_of_three_operations_restores_a_replaced_response() {
    let mut scenarios = Vec::new();
    for (n, &first) in OPERATIONS.iter().enumerate() {
        for (m, &second) in OPERATIONS.iter().enumerate().skip(n) {
            let triples = OPERATIONS[m..].iter().map(|&third| [first, second, third]);
            scenarios.extend(triples);
        }
    }
    let check = &|in_ram: bool, on_disk: bool| {
        for operations in scenarios.clone() {
            let race = move || race(in_ram, on_disk, &operations);
            let scenario = format!("in RAM: {in_ram}, on disk: {on_disk}, {operations:?}");
            let result = std::panic::catch_unwind(|| shuttle::check_pct(race, RUNS, 3));
            assert!(result.is_ok(), "{scenario}");
        }
    };
    // A thread of its own for each initial state: a run of shuttle uses one core.
    std::thread::scope(|threads| {
        for (in_ram, on_disk) in [(false, false), (false, true), (true, false), (true, true)] {
            threads.spawn(move || check(in_ram, on_disk));
        }
    });
}

/// The number of schedules that are tried for each of the 480 scenarios.
const RUNS: usize = 50;
