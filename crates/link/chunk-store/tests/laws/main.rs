//! Property tests of the chunk store. A loaded chunk has the bytes that were stored, even if the device has
//! faults, and lost chunks are reported as missing.

mod checkpoint;
mod compressed;
mod format;
mod listed;
mod threads;
mod writes;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::sample;
use proptest::strategy::Strategy;

use edgeward_chunk_store::format::{Layout, SuperblockError, Trailer};
use edgeward_chunk_store::{ChunkSettings, Chunks, OpenError};
use edgeward_dedup::codec::Method;
use edgeward_dedup::id::{ChunkId, IdKey};
use edgeward_dedup::store::{ChunkLocation, Entry, bytes_of};
use edgeward_store::disk::Device;
use edgeward_testkit::disk::{Harm, ReadObserver, SimulatedDisk};
use edgeward_types::Seed;

/// The size of a container in bytes, without its trailer, which lists the container's chunks.
const CONTAINER: usize = 64 << 10;
/// The number of containers on the device of a test.
const CONTAINERS: usize = 4;

/// All compression methods.
const METHODS: [Method; 3] = [Method::None, Method::Lz4, Method::Zstd];

/// Counts the blocking reads of a disk.
#[derive(Debug, Default)]
struct ReadCounter(AtomicU64);

impl ReadObserver for ReadCounter {
    fn after_read(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Selects a compression method for one case of a property test.
fn methods() -> impl Strategy<Value = Method> {
    sample::select(&METHODS[..])
}

fn layout() -> Layout {
    Layout::new(CONTAINER as u32).expect("the size is supported")
}

fn key() -> IdKey {
    IdKey::new([1; 32])
}

/// Settings for chunks of 4096 bytes on average, and for the epoch 77 in a new store. The store keeps two of the four
/// trailers in memory.
fn settings(compression: Method) -> ChunkSettings {
    ChunkSettings {
        layout: layout(),
        compression,
        trailers_max: 2,
        ..ChunkSettings::new(4096, 77)
    }
}

/// A disk with room for the superblock of 4096 bytes and four containers.
fn disk() -> Arc<SimulatedDisk> {
    SimulatedDisk::new(4096 + CONTAINERS * (CONTAINER + layout().trailer_bytes()))
}

fn open(disk: &Arc<SimulatedDisk>, compression: Method) -> Chunks {
    Chunks::open(Arc::clone(disk) as Arc<dyn Device>, settings(compression))
        .expect("the store opens")
}

/// Returns the chunk with this number: random bytes or text.
fn chunk(number: usize) -> Vec<u8> {
    let bytes = 4 * (700 + number * 37 % 900);
    if number.is_multiple_of(3) {
        noise(number, bytes)
    } else {
        text(number, bytes)
    }
}

fn text(number: usize, bytes: usize) -> Vec<u8> {
    let words = (0..bytes).map(|word| format!("{number} and {} ", word % 17 * number));
    words.flat_map(String::into_bytes).take(bytes).collect()
}

fn noise(number: usize, bytes: usize) -> Vec<u8> {
    let words = (0..bytes.div_ceil(8)).map(|word| Seed((number * 1000 + word) as u64).0);
    let mix = |word: u64| word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    words.flat_map(mix).take(bytes).collect()
}

/// Loads a chunk, compares its bytes and returns its location. Returns `None` if the chunk is not found, and
/// `Err` if it is corrupt or only listed: the store has its id but not its bytes.
fn load_chunk(store: &mut Chunks, number: usize) -> Option<Result<ChunkLocation, ()>> {
    let bytes = chunk(number);
    let id = key().id(&bytes);
    let location = store.locate(&id)?;
    let entries = store.entries(location, 1);
    assert_eq!(entries.first().map(|entry| entry.id), Some(id));
    let mut found = vec![0; bytes_of(&entries)];
    if !store.load(&key(), location, &entries, &mut found) {
        return Some(Err(()));
    }
    assert!(found == bytes, "chunk {number} has other bytes");
    Some(Ok(location))
}

/// Returns true if the store has the bytes of this chunk, and not only its entry.
fn is_stored(store: &Chunks, location: ChunkLocation) -> bool {
    let row = store.row(location);
    row.is_some_and(|row| row.chunks[0].has_bytes)
}

/// Returns true if the store has these bytes.
fn has_bytes(store: &mut Chunks, bytes: &[u8]) -> bool {
    let id = key().id(bytes);
    let Some(location) = store.locate(&id) else {
        return false;
    };
    let entry = Entry {
        id,
        length: bytes.len() as u32,
    };
    let mut found = vec![0; bytes.len()];
    store.load(&key(), location, &[entry], &mut found) && found == bytes
}

fn store_chunk(store: &mut Chunks, number: usize) -> ChunkLocation {
    let bytes = chunk(number);
    store
        .insert(key().id(&bytes), &bytes)
        .expect("the chunk fits in a container")
}

#[derive(Clone, Debug)]
enum Step {
    Store(usize),
    Read(usize),
    Forget(usize),
    Flush,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        20 => (0_usize..120).prop_map(Step::Store),
        10 => (0_usize..120).prop_map(Step::Read),
        1 => (0_usize..120).prop_map(Step::Forget),
        1 => any::<bool>().prop_map(|_| Step::Flush),
        1 => any::<bool>().prop_map(|_| Step::Reopen),
    ];
    vec(step, 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// The store behaves like a map of the chunks in the open container and the last three written containers. These
    /// chunks are found at the same location until they are removed from the index. Chunks in older containers are not
    /// found.
    #[test]
    fn a_store_is_a_map_of_the_last_containers(steps in steps(), method in methods()) {
        let disk = disk();
        let mut store = open(&disk, method);
        let mut locations: HashMap<usize, ChunkLocation> = HashMap::new();
        // A chunk that was removed from the index and stored again may be in one container twice. When the container
        // has been written, either location is a correct result.
        let mut forgotten = HashSet::new();
        // After a reopening, both copies of such a chunk may be found: when the container of one of them is
        // overwritten, the other is a correct result.
        let mut stored_twice = HashSet::new();
        let mut newest = 0;
        for step in steps {
            match step {
                Step::Store(number) => {
                    let location = store_chunk(&mut store, number);
                    newest = newest.max(location.container);
                    locations.retain(|_, location| location.container + CONTAINERS as u32 > newest);
                    let known = locations.entry(number).or_insert(location);
                    if forgotten.contains(&(number, location)) || stored_twice.contains(&number) {
                        *known = location;
                    }
                    prop_assert_eq!(*known, location);
                }
                Step::Read(number) => {
                    let found = load_chunk(&mut store, number).transpose();
                    if let Ok(Some(location)) = found {
                        let is_copy = forgotten.contains(&(number, location));
                        if stored_twice.contains(&number) && location.container + CONTAINERS as u32 > newest {
                            locations.insert(number, location);
                        } else if let Some(known) = locations.get_mut(&number).filter(|_| is_copy) {
                            *known = location;
                        }
                    }
                    prop_assert_eq!(found, Ok(locations.get(&number).copied()));
                }
                Step::Forget(number) => {
                    if let Some(location) = locations.remove(&number) {
                        forgotten.insert((number, location));
                        store.forget(location);
                    }
                }
                Step::Flush => {
                    store.flush().expect("the disk has no faults");
                    // The next container is open now. It has the position of the oldest container, whose chunks are
                    // removed.
                    newest += u32::from(locations.values().any(|location| location.container == newest));
                    locations.retain(|_, location| location.container + CONTAINERS as u32 > newest);
                }
                Step::Reopen => {
                    // Opens the store like after a kill of the process. The open container is lost, and chunks
                    // that were removed from the index may be found again.
                    drop(store);
                    store = open(&disk, method);
                    locations.clear();
                    stored_twice.extend(forgotten.drain().map(|(number, _)| number));
                    newest = 0;
                    for number in 0..120 {
                        if let Some(found) = load_chunk(&mut store, number) {
                            let location = found.expect("the disk has no faults");
                            newest = newest.max(location.container);
                            locations.insert(number, location);
                        }
                    }
                    newest += u32::from(!locations.is_empty());
                }
            }
        }
    }

    /// Neighbouring chunks are loaded with the stored bytes, from the open container and from the device.
    #[test]
    fn runs_are_loaded_as_they_were_stored(first in 0_usize..40, most in 1_usize..30, method in methods()) {
        let disk = disk();
        let mut store = open(&disk, method);
        let locations: Vec<_> = (0..50).map(|number| store_chunk(&mut store, number)).collect();
        let Some(Ok(location)) = load_chunk(&mut store, first) else {
            // The chunk was overwritten.
            prop_assert!(locations[49].container - locations[first].container >= CONTAINERS as u32);
            return Ok(());
        };
        let entries = store.entries(location, most);
        let in_container = locations.iter().skip(first).take_while(|other| other.container == location.container);
        prop_assert_eq!(entries.len(), in_container.count().min(most));
        let mut bytes = vec![0; bytes_of(&entries)];
        prop_assert!(store.load(&key(), location, &entries, &mut bytes));
        let expected: Vec<u8> = (first..first + entries.len()).flat_map(chunk).collect();
        prop_assert!(bytes == expected);
    }

    /// After a bit is flipped anywhere behind the superblock, each chunk is loaded correctly, reported as corrupt, or
    /// not found. A body that is read from chunks therefore never has wrong bytes. A chunk that is stored again is
    /// loaded correctly.
    #[test]
    fn a_flipped_bit_corrupts_no_body(at in any::<u64>(), bit in 0_u8..8, method in methods()) {
        let disk = disk();
        // Compression puts neighbouring chunks into blocks of up to 8 KiB. One flipped bit can corrupt all chunks of a
        // block. These chunks have at least 2800 bytes, so a block has at most two. The test permits one more.
        let corrupt_max = if method == Method::None { 1 } else { 3 };
        let mut store = open(&disk, method);
        (0..40).for_each(|number| _ = store_chunk(&mut store, number));
        store.flush().expect("the disk has no faults");
        disk.flip(4096 + at % (disk.len() - 4096), 1 << bit);
        for reopen in [false, true] {
            if reopen {
                store = open(&disk, method);
            }
            let corrupt = (0..40).filter(|&number| load_chunk(&mut store, number) == Some(Err(()))).count();
            prop_assert!(corrupt <= corrupt_max, "{corrupt} chunks are corrupt");
            for number in 30..40 {
                store_chunk(&mut store, number);
                prop_assert!(matches!(load_chunk(&mut store, number), Some(Ok(_))));
            }
        }
    }
}

/// After a power failure at any moment, the store opens. Chunks that were flushed before are loaded correctly. Each
/// other chunk is loaded correctly, reported as corrupt, or not found. The simulated disk loses, tears or corrupts
/// writes that were not synced.
#[test]
fn crashes_lose_chunks_and_never_change_one() {
    METHODS.into_iter().for_each(check_crashes);
}

fn check_crashes(method: Method) {
    let disk = disk();
    let mut store = open(&disk, method);
    (0..20).for_each(|number| _ = store_chunk(&mut store, number));
    store.flush().expect("the disk has no faults");
    // A boundary lies between two operations of the disk. The power fails at each boundary in turn.
    let flushed = disk.boundary();
    // Stores only few chunks, so that the flushed chunks are not overwritten.
    (20..40).for_each(|number| _ = store_chunk(&mut store, number));
    let mut corrupt = 0;
    for harm in Harm::ALL {
        let mut crashes = disk.crashes(Seed(5));
        let boundaries: Vec<_> = crashes.boundaries().collect();
        for boundary in boundaries {
            let image = SimulatedDisk::with_content(crashes.image(boundary, harm));
            // If the power fails during the first write of the superblock, a disk that corrupts writes may leave an
            // invalid superblock.
            let opened = Chunks::open(Arc::clone(&image) as Arc<dyn Device>, settings(method));
            let mut store = match opened {
                Ok(store) => store,
                Err(OpenError::Superblock { .. }) if boundary < 2 && harm == Harm::AddNoise => {
                    continue;
                }
                Err(error) => panic!("{method:?}, {harm:?} at {boundary}: {error}"),
            };
            for number in 0..40 {
                let found = load_chunk(&mut store, number);
                corrupt += u32::from(found == Some(Err(())));
                if boundary >= flushed && number < 20 {
                    assert!(
                        matches!(found, Some(Ok(_))),
                        "{method:?}, {harm:?} at {boundary}: chunk {number} is lost"
                    );
                }
            }
            store_chunk(&mut store, 60);
            assert!(matches!(load_chunk(&mut store, 60), Some(Ok(_))));
        }
    }
    assert!(
        corrupt > 0,
        "no chunk was corrupt, so the test shows nothing"
    );
}

/// After failed writes, each chunk is loaded correctly or not found. Chunks that are stored when the device works
/// again are found.
#[test]
fn the_store_survives_a_failing_device() {
    let disk = disk();
    let mut store = open(&disk, Method::None);
    (0..30).for_each(|number| _ = store_chunk(&mut store, number));
    disk.inject(edgeward_testkit::disk::Fault::Writes(
        edgeward_testkit::disk::Errno::Io,
    ));
    (30..60).for_each(|number| _ = store_chunk(&mut store, number));
    assert!(store.counters().errors > 0);
    disk.heal();
    (60..70).for_each(|number| _ = store_chunk(&mut store, number));
    for number in 0..70 {
        assert!(!matches!(load_chunk(&mut store, number), Some(Err(()))));
    }
    assert!((60..70).all(|number| matches!(load_chunk(&mut store, number), Some(Ok(_)))));
}

/// Clones share the store: a chunk that is stored through one clone is found through the other.
#[test]
fn clones_share_one_store() {
    let mut store = open(&disk(), Method::None);
    let mut other = store.clone();
    store_chunk(&mut store, 1);
    assert!(matches!(load_chunk(&mut other, 1), Some(Ok(_))));
}

/// Looking up neighbouring chunks of one container reads its trailer only once.
#[test]
fn neighbouring_chunks_are_found_with_one_read() {
    let disk = disk();
    let mut store = open(&disk, Method::None);
    (0..12).for_each(|number| _ = store_chunk(&mut store, number));
    store.flush().expect("the disk has no faults");
    let mut store = open(&disk, Method::None);
    let before = store.counters().trailers_read;
    (0..12).for_each(|number| assert!(matches!(load_chunk(&mut store, number), Some(Ok(_)))));
    assert_eq!(store.counters().trailers_read - before, 1);
}

/// A store keeps its epoch when it is opened again.
#[test]
fn a_reopened_store_has_the_same_epoch() {
    let disk = disk();
    assert_eq!(open(&disk, Method::None).epoch(), 77);
    let later = ChunkSettings {
        epoch: 78,
        ..settings(Method::None)
    };
    let reopened =
        Chunks::open(Arc::clone(&disk) as Arc<dyn Device>, later).expect("the store opens");
    assert_eq!(reopened.epoch(), 77);
}

/// When the container numbers are used up, the store begins a new epoch and continues. The last number is
/// `u32::MAX - 2`, because all container numbers are lower than `u32::MAX - 1`.
#[test]
fn a_new_epoch_begins_when_container_numbers_are_used_up() {
    let disk = disk();
    drop(open(&disk, Method::None));
    // Simulates that all containers up to number 2^32 - 4 were written: writes the trailer of the last one.
    let number = u32::MAX - 3;
    let position = number as usize % CONTAINERS;
    let entry = Entry {
        id: ChunkId([9; 16]),
        length: 100,
    };
    let mut trailer = Vec::new();
    Trailer {
        number,
        entries: vec![entry],
        blocks: Vec::new(),
    }
    .encode(layout(), 77, &mut trailer);
    let at = layout().offset(position as u32) + CONTAINER as u64;
    disk.write_at(&trailer, at).expect("the disk has no faults");

    let mut store = open(&disk, Method::None);
    assert!(store.locate(&entry.id).is_some());
    assert_eq!(store_chunk(&mut store, 1).container, u32::MAX - 2);
    store.flush().expect("the disk has no faults");
    assert_ne!(store.epoch(), 77);
    assert!(store.locate(&entry.id).is_none() && load_chunk(&mut store, 1).is_none());
    assert_eq!(
        store_chunk(&mut store, 2),
        ChunkLocation {
            container: 0,
            slot: 0
        }
    );
    store.flush().expect("the disk has no faults");
    let epoch = store.epoch();
    let mut store = open(&disk, Method::None);
    assert_eq!(store.epoch(), epoch);
    assert!(
        matches!(load_chunk(&mut store, 2), Some(Ok(_))) && load_chunk(&mut store, 1).is_none()
    );
}

/// A device with other content or a corrupt superblock is refused and left unchanged. A device that is too small is
/// refused too.
#[test]
fn a_device_with_other_content_is_refused() {
    let open_error = |change: &dyn Fn(&SimulatedDisk)| {
        let disk = disk();
        drop(open(&disk, Method::None));
        change(&disk);
        let before = disk.content();
        let opened = Chunks::open(Arc::clone(&disk) as Arc<dyn Device>, settings(Method::None));
        assert!(disk.content() == before);
        match opened.expect_err("the content is refused") {
            OpenError::Superblock { source, .. } => source,
            other => panic!("{other}"),
        }
    };
    assert_eq!(
        open_error(&|disk| disk.flip(0, 1)),
        SuperblockError::Foreign
    );
    assert_eq!(
        open_error(&|disk| disk.flip(9, 1)),
        SuperblockError::Corrupt
    );
    let small = SimulatedDisk::new(8192);
    let opened = Chunks::open(small, settings(Method::None));
    assert!(matches!(
        opened,
        Err(OpenError::TooSmall { bytes: 8192, .. })
    ));
}
