//! Tests of the write of a full container, which does not hold the lock of the store.

use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use bytes::Bytes;

use edgeward_chunk_store::{Chunks, WouldBlock};
use edgeward_dedup::buffer::Pool;
use edgeward_dedup::store::{Answer, Entry, LocatedChunk, Request};
use edgeward_store::disk::Device;
use edgeward_testkit::Gate;
use edgeward_testkit::disk::{Fault, SimulatedDisk};

use crate::{METHODS, disk, has_bytes, key, noise, open, settings};

/// A disk whose writes can panic.
#[derive(Debug)]
struct PanickingDisk {
    disk: Arc<SimulatedDisk>,
    panics: AtomicBool,
}

impl Device for PanickingDisk {
    fn len(&self) -> u64 {
        self.disk.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.read_at(buffer, offset)
    }

    fn read_now_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.read_now_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        assert!(
            !self.panics.load(Ordering::SeqCst),
            "the test wants this panic"
        );
        self.disk.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn name(&self) -> String {
        self.disk.name()
    }
}

/// A chunk of a 16th of a container, which no method compresses.
fn bytes(number: usize) -> Bytes {
    noise(number, 4096).into()
}

fn fill(store: &Chunks, numbers: Range<usize>) {
    for number in numbers {
        let chunk = bytes(number);
        assert!(store.insert(key().id(&chunk), &chunk).is_some());
    }
}

/// Calls a function that must not wait for a write.
fn at_once<T: Send + 'static>(function: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, result) = channel();
    std::thread::spawn(move || sender.send(function()));
    let result = result.recv_timeout(LONG);
    result.expect("the call does not wait for the write")
}

/// The time after which a test fails.
const LONG: Duration = Duration::from_secs(30);

fn store_at_once(store: &Chunks, number: usize) -> Result<Option<Answer>, WouldBlock> {
    let (store, chunk) = (store.clone(), bytes(number));
    let id = key().id(&chunk);
    at_once(move || store.try_answer(&Request::Store { id, chunk }, &key(), &Pool::default()))
}

/// While a container is written, its chunks are found and loaded, and new chunks are stored in the next container. When
/// that one is full too, the next chunk waits.
///
/// Method: hold the write of the first container, on a disk whose bytes are never in the page cache.
#[test]
fn a_write_delays_only_the_next_write() {
    for method in METHODS {
        let disk = disk();
        let store = open(&disk, method);
        let gate = Gate::new();
        disk.inject(Fault::ReadsWait);
        disk.inject(Fault::WritesWait(gate.clone()));
        let filling = store.clone();
        let filler = std::thread::spawn(move || fill(&filling, 0..18));
        gate.wait_reached(1);
        for number in 0..17 {
            let (store, chunk) = (store.clone(), bytes(number));
            let id = key().id(&chunk);
            let request = Request::Lookup(vec![id]);
            let (answering, pool) = (store.clone(), Pool::default());
            let located = at_once(move || answering.try_answer(&request, &key(), &pool));
            let Ok(Some(Answer::Located(located))) = located else {
                panic!("{number}: {located:?}");
            };
            let [LocatedChunk { location, entry }] = located[..] else {
                panic!("{number}: {located:?}");
            };
            assert_eq!(entry, Entry { id, length: 4096 });
            assert_eq!(location.container, u32::from(number == 16));
            let load = Request::Load(located);
            let loaded = at_once(move || store.try_answer(&load, &key(), &Pool::default()));
            assert_eq!(loaded, Ok(Some(Answer::Loaded(Some(chunk)))), "{number}");
        }
        let stored = (100..).take_while(|number| store_at_once(&store, *number).is_ok());
        // The filler has stored one chunk in this container.
        assert_eq!(stored.count(), 15);
        gate.open();
        filler.join().expect("all chunks are stored");
        store.flush().expect("the disk has no faults");
        disk.heal();
        drop(store);
        let store = open(&disk, method);
        for number in (0..18).chain(100..115) {
            let chunk = bytes(number);
            let id = key().id(&chunk);
            let location = store.locate(&id).expect("the chunk is stored");
            let mut loaded = vec![0; 4096];
            assert!(store.load(&key(), location, &[Entry { id, length: 4096 }], &mut loaded));
            assert!(loaded == chunk, "{number}");
        }
    }
}

/// A write that panics is a failed write: the chunks of its container are lost, and later chunks are stored. If the
/// container has a listed chunk, which has no bytes, the panic is in the write of the store's version, before the
/// container's.
#[test]
fn a_write_that_panics_has_failed() {
    for lists_chunk in [false, true] {
        let device = Arc::new(PanickingDisk {
            disk: disk(),
            panics: AtomicBool::new(false),
        });
        let store = Chunks::open(Arc::clone(&device) as Arc<dyn Device>, settings(METHODS[0]));
        let mut store = store.expect("the store opens");
        if lists_chunk {
            let (id, length) = (key().id(&bytes(99)), 4096);
            store.find_or_list(Entry { id, length });
        }
        device.panics.store(true, Ordering::SeqCst);
        let filled = catch_unwind(AssertUnwindSafe(|| fill(&store, 0..17)));
        assert!(filled.is_err(), "the container is written");
        device.panics.store(false, Ordering::SeqCst);
        let filling = store.clone();
        let flushed = at_once(move || {
            fill(&filling, 20..50);
            filling.flush()
        });
        flushed.expect("the disk has no faults");
        let is_stored = |number: &usize| has_bytes(&mut store, &bytes(*number));
        let stored: Vec<usize> = (0..50).filter(is_stored).collect();
        // The panic has ended the call that stored the 16th or 17th chunk.
        let first = if lists_chunk { 0..15 } else { 16..17 };
        assert_eq!(stored, first.chain(20..50).collect::<Vec<_>>());
    }
}

/// A sync waits for the containers that it makes durable, and not for the write of a later one: on a busy store, the
/// next write begins when one ends.
#[test]
fn a_sync_waits_only_for_its_containers() {
    let disk = disk();
    let store = open(&disk, METHODS[0]);
    fill(&store, 0..17);
    assert_eq!(store.open_container_number(), 1);
    let gate = Gate::new();
    disk.inject(Fault::WritesWait(gate.clone()));
    let filling = store.clone();
    let filler = std::thread::spawn(move || fill(&filling, 17..33));
    gate.wait_reached(1);
    let syncing = store.clone();
    at_once(move || syncing.sync(1)).expect("the disk has no faults");
    let (ended, end) = channel();
    std::thread::spawn(move || {
        let synced = store.sync(2);
        ended.send(synced.map(|()| store.counters().written))
    });
    let early = end.recv_timeout(Duration::from_millis(100));
    assert!(early.is_err(), "the sync waits for the write");
    gate.open();
    let written = end.recv().expect("no thread panics");
    assert_eq!(written.expect("the disk has no faults"), 2);
    filler.join().expect("all chunks are stored");
}
