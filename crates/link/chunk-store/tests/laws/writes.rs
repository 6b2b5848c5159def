//! Tests of the write of a full container, which does not hold the lock of the store.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;

use edgeward_chunk_store::{Chunks, WouldBlock};
use edgeward_dedup::buffer::Pool;
use edgeward_dedup::store::{Answer, Entry, LocatedChunk, Request};
use edgeward_store::disk::Device;
use edgeward_testkit::disk::{Fault, SimulatedDisk};

use crate::{METHODS, disk, key, noise, settings};

/// A disk on which no write ends while a test holds the lock.
#[derive(Debug)]
struct WriteGate {
    disk: Arc<SimulatedDisk>,
    gate: Mutex<()>,
    /// Gets a message when a write begins.
    begun: Sender<()>,
}

impl WriteGate {
    fn new() -> (Arc<Self>, Receiver<()>) {
        let (begun, receiver) = channel();
        let gate = Self {
            disk: disk(),
            gate: Mutex::default(),
            begun,
        };
        (Arc::new(gate), receiver)
    }
}

impl Device for WriteGate {
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
        _ = self.begun.send(());
        drop(self.gate.lock());
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
        let (device, begun) = WriteGate::new();
        let store = Chunks::open(Arc::clone(&device) as Arc<dyn Device>, settings(method));
        let store = store.expect("the store opens");
        while begun.try_recv().is_ok() {}
        device.disk.inject(Fault::ReadsWait);
        let gate = device.gate.lock().expect("no thread panics");
        let filling = store.clone();
        let filler = std::thread::spawn(move || {
            for number in 0..18 {
                let stored = filling.insert(key().id(&bytes(number)), &bytes(number));
                assert!(stored.is_some());
            }
        });
        begun.recv_timeout(LONG).expect("a container is written");
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
        drop(gate);
        filler.join().expect("all chunks are stored");
        store.flush().expect("the disk has no faults");
        device.disk.heal();
        drop(store);
        let store = Chunks::open(device, settings(method)).expect("the store opens");
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
