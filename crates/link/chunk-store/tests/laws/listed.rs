//! Tests of listed chunks: the store has their ids but not their bytes. Lookups find them like stored chunks,
//! but they cannot be loaded.

use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::{Just, Strategy};

use edgeward_chunk_store::Chunks;
use edgeward_chunk_store::format::{Superblock, Trailer, VERSION, VERSION_BLOCKS, VERSION_RAW};
use edgeward_dedup::codec::Method;
use edgeward_dedup::store::{ChunkLocation, Entry, bytes_of};
use edgeward_testkit::disk::{Errno, Fault, SimulatedDisk};

use crate::{
    CONTAINER, CONTAINERS, chunk, disk, has_bytes, is_stored, key, layout, load_chunk, methods,
    open,
};

fn entry(number: usize) -> Entry {
    let bytes = chunk(number);
    Entry {
        id: key().id(&bytes),
        length: bytes.len() as u32,
    }
}

fn list(store: &mut Chunks, number: usize) -> (ChunkLocation, bool) {
    let (location, found) = store.find_or_list(entry(number));
    (location.expect("the chunk fits in a container"), found)
}

fn store_chunk(store: &mut Chunks, number: usize) -> (ChunkLocation, bool) {
    let bytes = chunk(number);
    let (location, found) = store.find_or_insert(key().id(&bytes), &bytes);
    (location.expect("the chunk fits in a container"), found)
}

#[derive(Clone, Copy, Debug)]
enum Step {
    List(usize),
    Store(usize),
    Reopen,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    /// A listed chunk is found at its location, even after the store is opened again, but cannot be loaded. A
    /// stored chunk can be loaded, even if the chunk is also listed before or after that.
    #[test]
    fn listed_chunks_are_found_and_stored_ones_are_loaded(
        steps in vec(
            prop_oneof![
                12 => (0_usize..90).prop_map(Step::List),
                8 => (0_usize..90).prop_map(Step::Store),
                1 => Just(Step::Reopen),
            ],
            1..250,
        ),
        method in methods(),
    ) {
        let disk = disk();
        let mut store = open(&disk, method);
        let mut known: HashMap<usize, (ChunkLocation, bool)> = HashMap::new();
        // The highest container number. A new container overwrites the container that is `CONTAINERS` older.
        let mut newest = 0;
        for step in steps {
            match step {
                Step::List(number) => {
                    let (location, found) = list(&mut store, number);
                    newest = newest.max(location.container);
                    match known.get(&number) {
                        Some(&(known_location, _)) => prop_assert_eq!((location, found), (known_location, true)),
                        None => {
                            prop_assert!(!found);
                            known.insert(number, (location, false));
                        }
                    }
                }
                Step::Store(number) => {
                    let (location, found) = store_chunk(&mut store, number);
                    newest = newest.max(location.container);
                    match known.get(&number) {
                        Some(&(known_location, true)) => prop_assert_eq!((location, found), (known_location, true)),
                        _ => {
                            prop_assert!(!found);
                            known.insert(number, (location, true));
                        }
                    }
                }
                Step::Reopen => {
                    store.flush().expect("the disk has no faults");
                    store = open(&disk, method);
                    // The flush writes the newest container if it has chunks. The next chunk then gets a new container.
                    let written = |&(location, _): &(ChunkLocation, bool)| location.container == newest;
                    newest += u32::from(known.values().any(written));
                }
            }
            known.retain(|_, (location, _)| location.container + CONTAINERS as u32 > newest);
            let checked: Vec<_> = match step {
                Step::List(number) | Step::Store(number) => vec![number],
                Step::Reopen => known.keys().copied().collect(),
            };
            for number in checked {
                let (location, has_bytes) = known[&number];
                prop_assert_eq!(store.locate(&entry(number).id), Some(location), "{}", number);
                prop_assert_eq!(is_stored(&store, location), has_bytes);
                let expected = if has_bytes { Ok(location) } else { Err(()) };
                prop_assert_eq!(load_chunk(&mut store, number), Some(expected), "{}", number);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    /// If the row of a chunk is retained, the chunk can still be loaded after another container was written. The
    /// container that is overwritten next is not retained.
    #[test]
    fn retained_chunks_survive_the_next_container(
        steps in vec((0_usize..90, 0..3), 1..250),
        method in methods(),
    ) {
        let disk = disk();
        let mut store = open(&disk, method);
        let mut known = HashMap::new();
        for (number, kind) in steps {
            // One step in three lists its chunk, the others store it.
            let (location, _) = if kind == 0 { list(&mut store, number) } else { store_chunk(&mut store, number) };
            known.insert(number, location);
        }
        let open = store.open_container_number();
        let mut retained = Vec::new();
        for (&number, &location) in &known {
            let is_found = store.locate(&entry(number).id) == Some(location);
            let Some(row) = store.row(location).filter(|_| is_found) else { continue };
            let is_overwritten_next = location.container + CONTAINERS as u32 - 1 <= open;
            prop_assert_eq!(row.is_retained, !is_overwritten_next, "{}", number);
            let is_retained = row.is_retained && row.chunks[0].has_bytes;
            retained.extend(is_retained.then_some((number, location)));
        }
        let mut more = 1000;
        while store.open_container_number() == open {
            store_chunk(&mut store, more);
            more += 1;
        }
        for (number, location) in retained {
            prop_assert_eq!(load_chunk(&mut store, number), Some(Ok(location)), "{}", number);
        }
    }
}

/// The store writes only the ids of listed chunks, but they count against its capacity as if their bytes were stored.
#[test]
fn only_ids_of_listed_chunks_are_written() {
    let disk = disk();
    let mut store = open(&disk, Method::None);
    for number in 0..60 {
        list(&mut store, number);
    }
    store.flush().expect("the disk has no faults");
    // The superblock takes the first 4096 bytes. `settings` creates the store with epoch 77.
    let content = disk.content();
    let span = CONTAINER + layout().trailer_bytes();
    for container in content[4096..]
        .chunks(span)
        .filter(|container| container.len() == span)
    {
        let (chunks, trailer) = container.split_at(CONTAINER);
        assert!(chunks.iter().all(|byte| *byte == 0));
        let trailer = Trailer::decode(layout(), 77, trailer).expect("the container has a trailer");
        assert!(bytes_of(&trailer.entries) <= CONTAINER);
        assert_eq!(
            trailer.blocks.len(),
            1,
            "adjacent listed chunks are in one block"
        );
    }
    let counters = store.counters();
    assert_eq!((counters.raw_bytes, counters.stored_bytes), (0, 0));
    assert!(
        counters.listed_bytes > 2 * CONTAINER as u64
            && counters.listed_bytes <= store.capacity_bytes()
    );
    assert_eq!(
        open(&disk, Method::None).counters().listed_bytes,
        counters.listed_bytes
    );
}

/// Writing a container with listed chunks raises the version of the store, although an earlier attempt has failed.
/// Opening the store does not change the version.
#[test]
fn listing_a_chunk_raises_the_version_of_the_store() {
    let version = |disk: &SimulatedDisk| {
        let content = disk.content();
        let superblock =
            Superblock::decode(content.first_chunk().expect("the disk has a superblock"));
        superblock
            .expect("the superblock is valid")
            .expect("the superblock is not blank")
            .version
    };
    for (method, before) in [(Method::None, VERSION_RAW), (Method::Zstd, VERSION_BLOCKS)] {
        let disk = disk();
        let mut store = open(&disk, method);
        store_chunk(&mut store, 1);
        store.flush().expect("the disk has no faults");
        list(&mut store, 2);
        disk.inject(Fault::Writes(Errno::Io));
        assert!(store.flush().is_err());
        disk.heal();
        assert_eq!(version(&disk), before);
        list(&mut store, 2);
        store.flush().expect("the disk has no faults");
        assert_eq!(version(&disk), VERSION);
        drop(open(&disk, method));
        assert_eq!(version(&disk), VERSION);
    }
}

/// Stored chunks between listed chunks of the same container can be loaded.
#[test]
fn listed_and_stored_chunks_alternate() {
    for method in [Method::None, Method::Lz4, Method::Zstd] {
        let disk = disk();
        let mut store = open(&disk, method);
        for number in 0..14 {
            if number % 4 == 1 {
                list(&mut store, number);
            } else {
                store_chunk(&mut store, number);
            }
        }
        store.flush().expect("the disk has no faults");
        let mut store = open(&disk, method);
        for number in 0..14 {
            assert_eq!(
                has_bytes(&mut store, &chunk(number)),
                number % 4 != 1,
                "{method:?}, {number}"
            );
        }
        let counters = store.counters();
        let listed: usize = [1, 5, 9, 13].map(|number| chunk(number).len()).iter().sum();
        assert_eq!(counters.listed_bytes, listed as u64);
    }
}
