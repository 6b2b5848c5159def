//! Tests of the saved index: a store that is opened with a checkpoint has the chunks that it would have without the
//! checkpoint, whatever happened to the file.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, LazyLock, Mutex};

use proptest::prelude::{ProptestConfig, any, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Strategy;

use edgeward_chunk_store::checkpoint::{CheckpointError, checkpoint_bytes};
use edgeward_chunk_store::{ChunkSettings, Chunks, OpenError, RecoveryReport};
use edgeward_dedup::codec::Method;
use edgeward_dedup::id::ChunkId;
use edgeward_dedup::store::ChunkLocation;
use edgeward_store::disk::Device;
use edgeward_testkit::disk::{ObservedDisk, ReadObserver, SimulatedDisk};

use crate::format::line;
use crate::{
    CONTAINERS, chunk, disk, has_bytes, key, layout, load_chunk, open, settings, store_chunk,
};

/// A temporary folder with the file of a checkpoint.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("the folder can be created"))
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("index")
    }

    fn open(&self, disk: &Arc<SimulatedDisk>) -> Chunks {
        let opened = Chunks::open(Arc::clone(disk) as Arc<dyn Device>, self.settings());
        opened.expect("the store opens")
    }

    /// Opens the store and returns it with the report of its recovery.
    fn open_with_report(&self, disk: &Arc<SimulatedDisk>) -> (Chunks, RecoveryReport) {
        open_with_report(Arc::clone(disk) as Arc<dyn Device>, self.settings())
    }

    fn settings(&self) -> ChunkSettings {
        with_checkpoint(&self.file())
    }
}

fn with_checkpoint(file: &Path) -> ChunkSettings {
    ChunkSettings {
        checkpoint: Some(file.to_owned()),
        ..settings(Method::None)
    }
}

fn open_with_report(disk: Arc<dyn Device>, settings: ChunkSettings) -> (Chunks, RecoveryReport) {
    let (send, report) = mpsc::channel();
    let store = Chunks::open_in_background(disk, settings, move |report| _ = send.send(report));
    let report = report.recv().expect("the recovery ends");
    (store.expect("the store opens"), report)
}

/// Returns the location of each chunk that a store has.
fn locations(store: &mut Chunks) -> Vec<Option<ChunkLocation>> {
    static IDS: LazyLock<Vec<ChunkId>> =
        LazyLock::new(|| (0..120).map(|number| key().id(&chunk(number))).collect());
    IDS.iter().map(|id| store.locate(id)).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Store(usize),
    Flush,
    Save,
    /// Opens the store like after a kill.
    Reopen,
    /// Takes a copy of the file, or restores it: the file is then older than the store.
    CopyFile,
    RestoreFile,
    /// Changes a byte of the file. The checkpoint is then damaged.
    FlipBit(usize),
    Truncate(usize),
    RemoveFile,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        40 => (0_usize..120).prop_map(Step::Store),
        2 => any::<bool>().prop_map(|_| Step::Flush),
        3 => any::<bool>().prop_map(|_| Step::Save),
        3 => any::<bool>().prop_map(|_| Step::Reopen),
        1 => any::<bool>().prop_map(|_| Step::CopyFile),
        1 => any::<bool>().prop_map(|_| Step::RestoreFile),
        1 => any::<usize>().prop_map(Step::FlipBit),
        1 => any::<usize>().prop_map(Step::Truncate),
        1 => any::<bool>().prop_map(|_| Step::RemoveFile),
    ];
    proptest::collection::vec(step, 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// A reopened store has the same chunks at the same locations, and as many index entries, as a store that is
    /// recovered from its trailers. This holds for a checkpoint of any age, for a damaged one, and without one.
    #[test]
    fn a_checkpoint_changes_no_lookup(steps in steps()) {
        let (disk, folder) = (disk(), Folder::new());
        let mut store = folder.open(&disk);
        let mut copy = None;
        for step in steps {
            match step {
                Step::Store(number) => _ = store_chunk(&mut store, number),
                Step::Flush => store.flush().expect("the disk has no faults"),
                Step::Save => _ = store.save_checkpoint().expect("the file can be written"),
                Step::Reopen => {
                    drop(store);
                    let image = SimulatedDisk::with_content(disk.content());
                    let mut oracle = open(&image, Method::None);
                    store = folder.open(&disk);
                    prop_assert_eq!(locations(&mut store), locations(&mut oracle));
                    prop_assert_eq!(store.counters().indexed, oracle.counters().indexed);
                    prop_assert_eq!(store.open_container_number(), oracle.open_container_number());
                }
                Step::CopyFile => copy = fs::read(folder.file()).ok(),
                Step::RestoreFile => {
                    if let Some(copy) = &copy {
                        fs::write(folder.file(), copy).expect("the file can be written");
                    }
                }
                Step::FlipBit(at) => change(&folder.file(), |bytes| {
                    let at = at % (8 * bytes.len());
                    bytes[at / 8] ^= 1 << (at % 8);
                }),
                Step::Truncate(at) => change(&folder.file(), |bytes| bytes.truncate(at % bytes.len())),
                Step::RemoveFile => _ = fs::remove_file(folder.file()),
            }
        }
    }
}

/// Changes the file if it exists and is not empty.
fn change(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let Ok(mut bytes) = fs::read(file) else {
        return;
    };
    if !bytes.is_empty() {
        change(&mut bytes);
        fs::write(file, bytes).expect("the file can be written");
    }
}

/// Returns a disk with a store, the folder of its checkpoint, and the locations of its chunks.
fn saved_store() -> (Arc<SimulatedDisk>, Folder, Vec<Option<ChunkLocation>>) {
    let (disk, folder) = (disk(), Folder::new());
    let mut store = folder.open(&disk);
    (0..40).for_each(|number| _ = store_chunk(&mut store, number));
    store.flush().expect("the disk has no faults");
    let found = locations(&mut store);
    assert!(found.iter().flatten().count() > 20);
    (disk, folder, found)
}

/// After a shutdown, the index is read from the checkpoint and no trailer is read. The counters of the store are those
/// before the shutdown.
#[test]
fn a_store_that_was_shut_down_reads_no_trailer() {
    let (disk, folder, found) = saved_store();
    let sizes = |store: &Chunks| {
        let counters = store.counters();
        (counters.raw_bytes, counters.stored_bytes, counters.indexed)
    };
    let expected = sizes(&open(&disk, Method::None));
    let (mut store, report) = folder.open_with_report(&disk);
    assert!(report.from_checkpoint && report.trailers == 0, "{report:?}");
    assert_eq!(report.chunks, expected.2);
    assert_eq!(sizes(&store), expected);
    assert_eq!(locations(&mut store), found);
    let file = fs::metadata(folder.file()).expect("the file exists");
    let counters = store.counters();
    assert_eq!(file.len(), checkpoint_bytes(counters.index_bytes / 64));
    assert!(!counters.recovering && counters.unread_trailers == 0);
    store.flush().expect("the disk has no faults");
    assert_eq!(
        store.counters().checkpoints,
        0,
        "an unchanged index is not saved again"
    );
}

/// After a kill, only the trailers of the containers are read that were written after the checkpoint.
#[test]
fn a_killed_store_reads_the_trailers_after_the_checkpoint() {
    let (disk, folder) = (disk(), Folder::new());
    let mut store = folder.open(&disk);
    (0..12).for_each(|number| _ = store_chunk(&mut store, number));
    store.flush().expect("the disk has no faults");
    let saved = store.open_container_number();
    (12..40).for_each(|number| _ = store_chunk(&mut store, number));
    let written = store.open_container_number() - saved;
    assert!((1..CONTAINERS as u32 - 1).contains(&written));
    drop(store);
    let mut oracle = open(&disk, Method::None);
    let (mut store, report) = folder.open_with_report(&disk);
    assert!(report.from_checkpoint, "{report:?}");
    assert_eq!(report.trailers, u64::from(written));
    assert_eq!(locations(&mut store), locations(&mut oracle));
}

/// If the trailer of a container is corrupt, the containers after it are found, and their numbers are not used again.
#[test]
fn containers_after_a_corrupt_one_are_found() {
    for corrupt in [0, 1] {
        let disk = disk();
        let mut store = open(&disk, Method::None);
        (0..40).for_each(|number| _ = store_chunk(&mut store, number));
        store.flush().expect("the disk has no faults");
        let next = store.open_container_number();
        assert!(next > 2 && (next as usize) < CONTAINERS);
        drop(store);
        let trailer = layout().offset(corrupt) + layout().container_bytes() as u64;
        disk.flip(trailer, 1);
        let store = open(&disk, Method::None);
        assert_eq!(store.open_container_number(), next, "container {corrupt}");
    }
}

/// A checkpoint in which any bit is changed, and one that is cut off at any byte, is not used. The store then has all
/// of its chunks.
#[test]
fn a_damaged_checkpoint_is_not_used() {
    let (disk, folder, found) = saved_store();
    let bytes = fs::read(folder.file()).expect("the file exists");
    let check = |changed: &[u8], name: &str| {
        fs::write(folder.file(), changed).expect("the file can be written");
        let (mut store, report) = folder.open_with_report(&disk);
        assert!(
            !report.from_checkpoint && report.rejected.is_some(),
            "{name}: {report:?}"
        );
        assert_eq!(locations(&mut store), found, "{name}");
        assert_eq!(store.counters().indexed, report.chunks);
    };
    for at in 0..bytes.len() {
        check(&bytes[..at], &format!("{at} bytes"));
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        check(&changed, &format!("byte {at}"));
    }
}

/// A crash while a checkpoint is written leaves the previous checkpoint, which is used.
#[test]
fn an_unfinished_checkpoint_is_ignored() {
    let (disk, folder, found) = saved_store();
    let bytes = fs::read(folder.file()).expect("the file exists");
    let unfinished = folder.file().with_file_name("index.new");
    for length in [0, 1, bytes.len() / 2, bytes.len()] {
        fs::write(&unfinished, &bytes[..length]).expect("the file can be written");
        let (mut store, report) = folder.open_with_report(&disk);
        assert!(report.from_checkpoint, "{report:?}");
        assert_eq!(locations(&mut store), found);
    }
    let mut store = folder.open(&disk);
    store_chunk(&mut store, 100);
    store.flush().expect("the disk has no faults");
    assert!(!unfinished.exists(), "the next checkpoint replaces it");
}

/// A checkpoint of another store is not used, and neither is one that is newer than the store.
#[test]
fn a_checkpoint_of_another_store_is_not_used() {
    let (disk, folder, _) = saved_store();
    let file = fs::read(folder.file()).expect("the file exists");
    let rejected = |disk: &Arc<SimulatedDisk>| {
        fs::write(folder.file(), &file).expect("the file can be written");
        let (_, report) = folder.open_with_report(disk);
        assert!(!report.from_checkpoint);
        report.rejected
    };
    let other = SimulatedDisk::new(disk.len() as usize);
    let settings = ChunkSettings {
        epoch: 78,
        ..settings(Method::None)
    };
    drop(Chunks::open(
        Arc::clone(&other) as Arc<dyn Device>,
        settings,
    ));
    assert!(matches!(
        rejected(&other),
        Some(CheckpointError::OtherStore)
    ));
    // The disk has lost all containers.
    let mut content = disk.content();
    content[4096..].fill(0);
    let erased = SimulatedDisk::with_content(content);
    let found = rejected(&erased);
    assert!(
        matches!(found, Some(CheckpointError::OtherContainers)),
        "{found:?}"
    );
    // The device has grown.
    let mut content = disk.content();
    content.resize(content.len() * 2, 0);
    let grown = SimulatedDisk::with_content(content);
    assert!(matches!(
        rejected(&grown),
        Some(CheckpointError::OtherStore)
    ));
}

/// An index that no longer fits the store is not read. The chunks of a store whose average chunk size is smaller than
/// before would not fit.
#[test]
fn a_checkpoint_of_another_size_is_not_used() {
    let (disk, folder, found) = saved_store();
    let smaller = ChunkSettings {
        chunk_bytes: 1024,
        ..folder.settings()
    };
    let (mut store, report) = open_with_report(Arc::clone(&disk) as Arc<dyn Device>, smaller);
    assert!(
        matches!(report.rejected, Some(CheckpointError::Size { .. })),
        "{report:?}"
    );
    assert_eq!(locations(&mut store), found);
}

/// The store is opened without a checkpoint whose file cannot be written. The failure is counted.
#[test]
fn a_failed_checkpoint_is_counted() {
    let (disk, folder) = (disk(), Folder::new());
    let missing = folder.0.path().join("missing").join("index");
    let mut store = Chunks::open(disk, with_checkpoint(&missing)).expect("the store opens");
    store_chunk(&mut store, 1);
    store.flush().expect("the disk has no faults");
    let counters = store.counters();
    assert_eq!((counters.checkpoints, counters.checkpoint_errors), (0, 1));
}

/// An index that exceeds the limit is an error that states its size.
#[test]
fn an_index_above_the_limit_of_memory_is_refused() {
    let limited = |index_bytes_max| ChunkSettings {
        index_bytes_max,
        ..settings(Method::None)
    };
    let needed = open(&disk(), Method::None).counters().index_bytes;
    assert!(Chunks::open(disk(), limited(needed)).is_ok());
    match Chunks::open(disk(), limited(needed - 1)) {
        Err(OpenError::Memory { index_bytes, .. }) => assert_eq!(index_bytes, needed),
        other => panic!("{other:?}"),
    }
}

/// The memory of an index beyond the address space is an error and no panic.
#[test]
fn an_impossible_index_is_an_error() {
    let index = edgeward_chunk_store::Index::for_chunks(u64::MAX / 4);
    assert!(index.is_err());
}

/// Blocks the reads of other threads than the first until the test releases them.
#[derive(Debug)]
struct Gate {
    opener: std::thread::ThreadId,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl ReadObserver for Gate {
    fn before_read(&self, _offset: u64) {
        if std::thread::current().id() != self.opener {
            let mut is_open = self.is_open.lock().expect("no thread panics");
            while !*is_open {
                is_open = self.opened.wait(is_open).expect("no thread panics");
            }
        }
    }
}

/// A store can be used before its index is recovered. Lookups of old chunks then find nothing and are counted. New
/// chunks are found, and may overwrite containers that are not recovered yet. In the end the store has the chunks of
/// the last containers.
#[test]
fn a_store_is_used_while_its_index_is_recovered() {
    for new_chunks in [5, 30, 200] {
        let before = disk();
        let mut store = open(&before, Method::None);
        (0..40).for_each(|number| _ = store_chunk(&mut store, number));
        store.flush().expect("the disk has no faults");
        drop(store);

        let gate = Gate {
            opener: std::thread::current().id(),
            is_open: Mutex::new(false),
            opened: Condvar::new(),
        };
        let disk = ObservedDisk::new(Arc::clone(&before) as Arc<dyn Device>, gate);
        let (send, report) = mpsc::channel();
        let mut store = Chunks::open_in_background(
            Arc::clone(&disk) as Arc<dyn Device>,
            settings(Method::None),
            move |report| _ = send.send(report),
        )
        .expect("the store opens");
        assert!(load_chunk(&mut store, 39).is_none());
        let counters = store.counters();
        assert!(counters.recovering && counters.unread_trailers == CONTAINERS as u64 - 1);
        assert_eq!(counters.absent_while_recovering, 1);
        assert!(!store.save_checkpoint().expect("no file is written"));

        let new: Vec<_> = (1000..1000 + new_chunks).collect();
        for &number in &new {
            let location = store_chunk(&mut store, number);
            assert_eq!(load_chunk(&mut store, number), Some(Ok(location)));
        }
        *disk.observer().is_open.lock().expect("no thread panics") = true;
        disk.observer().opened.notify_all();
        let report = report.recv().expect("the recovery ends");
        assert!(!store.counters().recovering);
        store.flush().expect("the disk has no faults");
        let mut oracle = open(&before, Method::None);
        for number in (0..40).chain(new) {
            assert_eq!(
                load_chunk(&mut store, number),
                load_chunk(&mut oracle, number),
                "{number} after {new_chunks}, {report:?}"
            );
        }
        let (counters, expected) = (store.counters(), oracle.counters());
        assert_eq!(counters.indexed, expected.indexed);
        assert_eq!(counters.raw_bytes, expected.raw_bytes);
    }
}

/// Dropping a store ends its recovery.
#[test]
fn a_dropped_store_stops_its_recovery() {
    let (disk, folder, _) = saved_store();
    fs::remove_file(folder.file()).expect("the file exists");
    for _ in 0..100 {
        let opened = Chunks::open_in_background(
            Arc::clone(&disk) as Arc<dyn Device>,
            folder.settings(),
            |_| (),
        );
        drop(opened.expect("the store opens"));
    }
    assert_eq!(Arc::strong_count(&disk), 1, "no thread has the device");
}

/// The index is saved when enough containers were written, without a flush.
#[test]
fn the_index_is_saved_from_time_to_time() {
    let folder = Folder::new();
    let disk = SimulatedDisk::new(4096 + CONTAINERS * (layout().container_bytes() + 4096));
    let store = folder.open(&disk);
    let mut number = 0;
    // A checkpoint is due after 64 containers.
    while store.counters().checkpoints == 0 {
        let bytes = chunk(number % 1000 + 1000);
        let mut id = key().id(&bytes);
        id.0[..8].copy_from_slice(&(number as u64).to_le_bytes());
        store.insert(id, &bytes).expect("the chunk fits");
        number += 1;
        assert!(
            store.open_container_number() < 10_000,
            "no checkpoint is written"
        );
    }
    assert!(store.open_container_number() >= 64);
    assert!(folder.file().exists());
}

/// The fixture, a saved index of the store of version 1, is read, and all chunks are found.
#[test]
fn a_saved_index_of_the_first_version_is_read() {
    let fixture = |name: &str| {
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../../fixtures")
            .join(name)
    };
    let content = fs::read(fixture("chunk-store-v1.bin")).expect("the fixture can be read");
    let disk = SimulatedDisk::with_content(content);
    let folder = Folder::new();
    let settings = ChunkSettings {
        checkpoint: Some(folder.file()),
        ..ChunkSettings::new(256, 77)
    };
    let index = fixture("chunk-index-v1.bin");
    if std::env::var_os("EDGEWARD_RENEW_FIXTURES").is_some() {
        let store = Chunks::open(Arc::clone(&disk) as Arc<dyn Device>, settings.clone());
        let saved = store.expect("the store opens").save_checkpoint();
        assert!(saved.expect("the file can be written"));
        fs::copy(folder.file(), &index).expect("the fixture can be written");
    }
    fs::copy(&index, folder.file()).expect("the fixture can be read");
    let (mut store, report) = open_with_report(disk, settings);
    assert!(report.from_checkpoint && report.trailers == 0, "{report:?}");
    assert!((0..30).all(|number| has_bytes(&mut store, &line(number))));
}
