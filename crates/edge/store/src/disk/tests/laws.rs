//! Tests of single properties: bounds, rejections, purges, ranges.

use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::*;

/// Returns the settings of a store with a file of twelve times 256 KiB and segments of 256 KiB.
fn small(folder: &Path) -> DiskSettings {
    DiskSettings {
        segment_bytes: Some(ByteSize::kib(256)),
        ..DiskSettings::new(folder, ByteSize::kib(256 * 12))
    }
}

fn open(settings: DiskSettings) -> DiskCache {
    DiskCache::open(settings).expect("the cache opens").0
}

fn object(cache: &DiskCache, key: u64) -> DiskObject {
    let candidate = cache.lookup(KeyHash(key)).expect("the key is indexed");
    cache
        .read_head(&candidate, &key.to_le_bytes())
        .expect("the head is read")
}

/// Flips the lowest bit of a byte of the store's file.
fn flip(folder: &Path, offset: u64) {
    let file = folder.join(FILE_NAME);
    let mut bytes = std::fs::read(&file).expect("the read succeeds");
    bytes[usize::try_from(offset).expect("the number is small")] ^= 1;
    std::fs::write(&file, bytes).expect("the write succeeds");
}

#[test]
fn a_key_with_the_hash_of_a_stored_key_is_a_miss() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let cache = open(small(folder.path()));
    put(&cache, 1, b"body", true);
    cache.sync().expect("the sync succeeds");
    let candidate = cache.lookup(KeyHash(1)).expect("the key is indexed");
    assert_eq!(
        cache.read_head(&candidate, b"other").err(),
        Some(Miss::KeyMismatch)
    );
    assert!(get(&cache, 1).is_some(), "the other key's object stays");
    assert_eq!(cache.counters().total(|device| device.strangers), 1);
}

#[test]
fn an_unfinished_write_stores_nothing_and_releases_its_bytes() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let cache = open(small(folder.path()));
    for bytes in [10, 300_000] {
        let mut write = cache
            .begin(KeyHash(1), b"k", Bytes::new(), None)
            .expect("the write begins");
        write
            .push(vec![1; bytes].into())
            .expect("the push succeeds");
        drop(write);
        cache.sync().expect("the sync succeeds");
        assert_eq!(cache.lookup(KeyHash(1)), None);
    }
    let counters = &cache.counters().devices[0];
    assert_eq!((counters.queue_bytes, counters.dropped_aborted), (0, 2));
}

#[test]
fn a_body_of_another_length_than_announced_is_not_stored() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let cache = open(small(folder.path()));
    let begin = || {
        cache
            .begin(KeyHash(1), b"k", Bytes::new(), Some(10))
            .expect("the write begins")
    };
    let mut longer = begin();
    assert_eq!(longer.push(vec![0; 11].into()), Err(WriteError::TooLong));
    assert_eq!(
        longer.push(vec![0; 1].into()),
        Err(WriteError::TooLong),
        "the write has ended"
    );
    let mut shorter = begin();
    shorter.push(vec![0; 9].into()).expect("the push succeeds");
    assert_eq!(shorter.finish(), Err(WriteError::TooShort));
    cache.sync().expect("the sync succeeds");
    assert_eq!(cache.lookup(KeyHash(1)), None);
}

#[test]
fn a_write_above_the_queue_bound_is_dropped_and_counted() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let cache = open(DiskSettings {
        queue_bytes: ByteSize::kib(64),
        ..small(folder.path())
    });
    let mut write = cache
        .begin(KeyHash(1), b"k", Bytes::new(), None)
        .expect("the write begins");
    write
        .push(vec![0; 60_000].into())
        .expect("the push succeeds");
    assert_eq!(
        write.push(vec![0; 10_000].into()),
        Err(WriteError::QueueFull)
    );
    let counters = &cache.counters().devices[0];
    assert_eq!((counters.queue_bytes, counters.dropped_queue_full), (0, 1));
    put(&cache, 2, &pattern(2, 30_000), true);
    cache.sync().expect("the sync succeeds");
    assert!(get(&cache, 2).is_some(), "the queue is empty again");
}

#[test]
fn an_object_that_is_too_large_is_refused() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let cache = open(small(folder.path()));
    let max = cache.object_bytes_max();
    let begin = |key: &[u8], head: Vec<u8>, length| {
        cache
            .begin(KeyHash(1), key, head.into(), Some(length))
            .err()
    };
    assert_eq!(begin(b"k", vec![], max), None);
    assert_eq!(begin(b"k", vec![], max + 1), Some(BeginError::TooLarge));
    assert_eq!(
        begin(&vec![0; 65_536], vec![], 1),
        Some(BeginError::KeyOrHeadTooLong)
    );
    assert_eq!(
        begin(b"k", vec![0; 65_537], 1),
        Some(BeginError::KeyOrHeadTooLong)
    );
}

/// The longest key and head and the largest object that are accepted can be stored.
#[test]
fn the_largest_accepted_object_can_be_stored() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let cache = open(small(folder.path()));
    let key = vec![1; 65_535];
    let head: Bytes = vec![2; 65_536].into();
    for (hash, length) in [
        (1, 65_536),
        (
            2,
            usize::try_from(cache.object_bytes_max()).expect("the number is small"),
        ),
    ] {
        let body = pattern(hash, length);
        let mut write = cache
            .begin(KeyHash(hash), &key, head.clone(), None)
            .expect("the write begins");
        for chunk in body.chunks(50_000) {
            write
                .push(chunk.to_vec().into())
                .expect("the push succeeds");
        }
        write.finish().expect("the write finishes");
        cache.sync().expect("the sync succeeds");
        let candidate = cache.lookup(KeyHash(hash)).expect("the key is indexed");
        let object = cache.read_head(&candidate, &key).expect("the head is read");
        assert_eq!((object.head(), object.length()), (&head, length as u64));
        assert!(body.starts_with(&object.read(0..u64::MAX).expect("the read succeeds")));
    }
}

#[test]
fn a_purge_stops_a_write_in_progress() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let cache = open(small(folder.path()));
    let mut write = cache
        .begin(KeyHash(1), b"k", Bytes::new(), None)
        .expect("the write begins");
    write.push(vec![1; 100].into()).expect("the push succeeds");
    cache.purge(KeyHash(1), b"k");
    assert_eq!(write.push(vec![1; 100].into()), Err(WriteError::Purged));
    let begun = cache.begin(KeyHash(1), b"k", Bytes::new(), None);
    begun
        .expect("the write begins")
        .finish()
        .expect("a newer write is not stopped");
    cache.sync().expect("the sync succeeds");
    assert!(cache.lookup(KeyHash(1)).is_some());
}

/// Method: copy the file after `purge_synced` and open the copy. The copy is the state after a crash at this moment.
#[test]
fn a_synced_purge_survives_a_crash() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let cache = open(small(folder.path()));
    put(&cache, 1, b"body", true);
    put(&cache, 2, b"body", true);
    cache.sync().expect("the sync succeeds");
    cache
        .purge_synced(KeyHash(1), b"k")
        .expect("the sync succeeds");
    let after = tempfile::tempdir().expect("the folder is created");
    let file = |folder: &Path| folder.join(FILE_NAME);
    std::fs::copy(file(folder.path()), file(after.path())).expect("the file can be copied");
    let cache = open(small(after.path()));
    assert_eq!(cache.lookup(KeyHash(1)), None);
    assert!(get(&cache, 2).is_some());
}

#[test]
fn a_new_head_does_not_change_the_body() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let cache = open(small(folder.path()));
    for (key, bytes) in [(1, 100), (2, 200_000)] {
        let body = pattern(key, bytes);
        put(&cache, key, &body, true);
        cache.sync().expect("the sync succeeds");
        let old = object(&cache, key);
        let updated = cache.update_head(&old, &key.to_le_bytes(), "newer".into());
        updated.expect("the queue has room");
        cache.sync().expect("the sync succeeds");
        let new = object(&cache, key);
        assert_eq!(new.head(), "newer");
        assert_eq!(new.read(50..60).expect("the read succeeds"), body[50..60]);
        let again = cache.update_head(&old, &key.to_le_bytes(), "late".into());
        again.expect("the queue has room");
        cache.sync().expect("the sync succeeds");
        assert_eq!(
            object(&cache, key).head(),
            "newer",
            "the old object was replaced"
        );
    }
}

#[test]
fn a_range_is_read_without_the_rest() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let cache = open(small(folder.path()));
    let body = pattern(1, 400_000);
    put(&cache, 1, &body, true);
    cache.sync().expect("the sync succeeds");
    let before = cache.counters().total(|device| device.read_bytes);
    let object = object(&cache, 1);
    assert_eq!(
        object.read(300_000..300_010).expect("the read succeeds"),
        body[300_000..300_010]
    );
    assert_eq!(
        object.read(400_000..400_010).expect("the read succeeds"),
        Bytes::new()
    );
    let read = cache.counters().total(|device| device.read_bytes) - before;
    assert!(
        read < 150_000,
        "{read} bytes: more than the metadata, the metadata of a piece, and a block"
    );
}

#[test]
fn objects_with_a_flipped_bit_are_misses_and_verify_finds_them() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let cache = open(small(folder.path()));
    (0..4).for_each(|key| put(&cache, key, &pattern(key, 20_000), true));
    cache.close().expect("the cache closes");
    let at = (0..4).map(|key| object(&cache, key).location().offset());
    let at: Vec<_> = at.collect();
    drop(cache);
    flip(folder.path(), at[1] + 15_000); // the body
    flip(folder.path(), at[2] + 20); // the header
    let found = verify(folder.path(), |_| {}).expect("the file is a store");
    assert_eq!(found.problems, 2, "{:?}", found.problems_shown);

    let events = Arc::new(Mutex::new(Vec::new()));
    let received = Arc::clone(&events);
    let cache = open(DiskSettings {
        on_event: EventSink::new(move |event| {
            received
                .lock()
                .expect("no thread panics")
                .push(event.clone());
        }),
        ..small(folder.path())
    });
    let is_hit: Vec<_> = (0..4).map(|key| get(&cache, key).is_some()).collect();
    assert_eq!(is_hit, [true, false, false, true]);
    assert_eq!(
        cache.lookup(KeyHash(1)),
        None,
        "the object is removed from the index"
    );
    assert_eq!(cache.counters().total(|device| device.checksum_failures), 2);
    let events = events.lock().expect("no thread panics");
    // A device reports only its first corrupt bytes as an event.
    assert!(
        matches!(events[..], [DiskEvent::Corrupt { .. }]),
        "{events:?}"
    );
}

#[test]
fn a_file_that_is_not_a_store_of_this_version_is_rejected_and_not_changed() {
    for (bytes, message) in [
        (vec![7; 4 << 20], "not an edgeward store"),
        (
            [&b"edgeward\x02\0\0\0"[..], &[0; 4 << 20]].concat(),
            "format version 2",
        ),
    ] {
        let folder = tempfile::tempdir().expect("the folder is created");
        let file = folder.path().join(FILE_NAME);
        std::fs::write(&file, &bytes).expect("the write succeeds");
        let error = DiskCache::open(small(folder.path())).expect_err("the input is refused");
        assert!(error.to_string().contains(message), "{error}");
        let error = inspect(folder.path(), |_| {}).expect_err("the input is refused");
        assert!(error.to_string().contains(message), "{error}");
        assert!(std::fs::read(&file).expect("the read succeeds") == bytes);
    }
}

#[test]
fn one_damaged_superblock_is_replaced_by_its_copy_and_two_are_rejected() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let cache = open(small(folder.path()));
    put(&cache, 1, b"body", true);
    cache.close().expect("the cache closes");
    drop(cache);
    flip(folder.path(), 100);
    let cache = open(small(folder.path()));
    assert!(get(&cache, 1).is_some());
    drop(cache);
    flip(folder.path(), 4096 + 100);
    let error = DiskCache::open(small(folder.path())).expect_err("the input is refused");
    assert!(error.to_string().contains("damaged"), "{error}");
}

#[test]
fn a_store_grows_and_does_not_shrink() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let sized = |segments: u64| DiskSettings {
        segment_bytes: Some(ByteSize::kib(256)),
        ..DiskSettings::new(folder.path(), ByteSize::kib(256 * segments))
    };
    let cache = open(sized(8));
    put(&cache, 1, b"body", true);
    cache.close().expect("the cache closes");
    drop(cache);
    let cache = open(sized(16));
    assert!(get(&cache, 1).is_some());
    assert!(cache.counters().devices[0].capacity_bytes > 14 * 256 * 1024);
    put(&cache, 2, b"body", true);
    cache.close().expect("the cache closes");
    drop(cache);
    let error = DiskCache::open(sized(8)).expect_err("the input is refused");
    assert!(error.to_string().contains("has shrunk"), "{error}");
}

#[test]
fn keys_are_distributed_among_devices_and_found_after_a_restart() {
    let folders = [(); 3].map(|()| tempfile::tempdir().expect("the folder is created"));
    let settings = || DiskSettings {
        segment_bytes: Some(ByteSize::kib(256)),
        devices: folders
            .iter()
            .map(|folder| DeviceSettings {
                path: folder.path().to_owned(),
                capacity: Some(ByteSize::mib(3)),
            })
            .collect(),
        ..DiskSettings::default()
    };
    let cache = open(settings());
    (0..60).for_each(|key| put(&cache, key, b"body", true));
    cache.close().expect("the cache closes");
    let objects: Vec<_> = cache
        .counters()
        .devices
        .iter()
        .map(|device| device.objects)
        .collect();
    assert!(objects.iter().all(|&objects| objects > 5), "{objects:?}");
    drop(cache);
    let cache = open(settings());
    assert!((0..60).all(|key| get(&cache, key).is_some()));
}

/// Method: read two objects repeatedly while ten times the device's capacity is written. One of them is stored as
/// one record, the other in pieces.
#[test]
fn objects_that_are_read_often_are_not_evicted() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let cache = open(small(folder.path()));
    // Each reclaim of a segment reinserts at most half of its bytes, 128 KiB. The two bodies are smaller in total.
    let bodies = [pattern(0, 3000), pattern(1, 120_000)];
    (0..2).for_each(|key| put(&cache, key, &bodies[key as usize], true));
    for key in 2..600 {
        put(&cache, key, &pattern(key, 50_000), true);
        if key % 4 == 0 {
            cache.sync().expect("the sync succeeds");
            (0..2)
                .for_each(|key| assert!(get(&cache, key).as_ref() == Some(&bodies[key as usize])));
        }
    }
    let counters = &cache.counters().devices[0];
    assert!(counters.reinserted_objects > 10, "{counters:?}");
    assert!(counters.evicted_objects > 400, "{counters:?}");
}

/// Method: set the timers to an hour, so that no timer triggers a write.
#[test]
fn an_unwritten_object_is_found_and_read() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let hour = std::time::Duration::from_secs(3600);
    let cache = open(DiskSettings {
        flush_interval: hour,
        sync_interval: hour,
        ..small(folder.path())
    });
    let (short, newer, in_pieces) = (pattern(1, 50_000), pattern(9, 60_000), pattern(2, 150_000));
    put(&cache, 1, &short, true);
    put(&cache, 2, &in_pieces, true);
    wait_until_messages_are_taken(&cache);
    let writes = |cache: &DiskCache| cache.counters().total(|device| device.write_ops);
    let before = writes(&cache);
    assert!(get(&cache, 1) == Some(short.clone()));
    let NonBlockingRead::Ready(Piece::Bytes(piece)) = object(&cache, 1).piece_now(40_000..u64::MAX)
    else {
        panic!("the object is in memory");
    };
    assert!(!piece.is_empty() && short[40_000..].starts_with(&piece));
    let candidate = cache
        .lookup(KeyHash(1))
        .expect("the object is in the buffer");
    assert_eq!(
        cache.read_head(&candidate, b"other").err(),
        Some(Miss::KeyMismatch)
    );
    assert_eq!(
        cache.lookup(KeyHash(2)),
        None,
        "an object in pieces is not found"
    );
    assert_eq!(writes(&cache), before);

    // A candidate from before the write finds the written object.
    cache.sync().expect("the sync succeeds");
    assert!(cache.read_head(&candidate, &1_u64.to_le_bytes()).is_ok());
    assert!(get(&cache, 1) == Some(short) && get(&cache, 2) == Some(in_pieces));

    // The newest object is found, and a purge takes effect at once.
    let store_in_buffer = |key: u64, body: &[u8]| {
        let name = key.to_le_bytes();
        let head = format!("head of {key}").into();
        let mut write = cache
            .begin(KeyHash(key), &name, head, None)
            .expect("the write begins");
        write.push(body.to_vec().into()).expect("the push succeeds");
        write.finish().expect("the body is complete");
        wait_until_messages_are_taken(&cache);
    };
    store_in_buffer(1, &newer);
    assert!(get(&cache, 1) == Some(newer));
    let updated = cache.update_head(&object(&cache, 1), &1_u64.to_le_bytes(), "new".into());
    updated.expect("the queue has room");
    wait_until_messages_are_taken(&cache);
    assert_eq!(object(&cache, 1).head(), "new");
    cache.purge(KeyHash(1), b"");
    assert_eq!(cache.lookup(KeyHash(1)), None);
    cache.sync().expect("the sync succeeds");
    assert_eq!(cache.lookup(KeyHash(1)), None);
}

/// Waits until the writer has taken all messages.
fn wait_until_messages_are_taken(cache: &DiskCache) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while cache.counters().total(|device| device.queue_bytes) > 0 {
        assert!(std::time::Instant::now() < deadline, "the writer is stuck");
        std::thread::yield_now();
    }
}

/// Hits on an object in the write buffer count like later hits: the object is reinserted when its segment is
/// reclaimed.
#[test]
fn an_object_hit_before_it_was_written_is_reinserted() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let hour = std::time::Duration::from_secs(3600);
    let cache = open(DiskSettings {
        flush_interval: hour,
        sync_interval: hour,
        ..small(folder.path())
    });
    for key in 0..2 {
        put(&cache, key, &pattern(key, 3000), true);
    }
    wait_until_messages_are_taken(&cache);
    (0..2).for_each(|_| assert!(get(&cache, 0).is_some()));
    for key in 2..60 {
        put(&cache, key, &pattern(key, 50_000), true);
        wait_until_messages_are_taken(&cache);
    }
    assert!(cache.counters().total(|device| device.evicted_objects) > 10);
    assert!(get(&cache, 0).is_some(), "hit twice");
    assert!(get(&cache, 1).is_none(), "never hit");
}

/// Method: store a body much smaller than the write buffer, and set the flush interval to an hour. Only the sync
/// interval then triggers a write.
#[test]
fn an_unwritten_object_is_durable_after_the_sync_interval() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let cache = open(DiskSettings {
        flush_interval: std::time::Duration::from_secs(3600),
        sync_interval: std::time::Duration::from_millis(1),
        ..small(folder.path())
    });
    put(&cache, 1, b"body", true);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let stored = |cache: &DiskCache| cache.counters().total(|device| device.stored_objects);
    while stored(&cache) == 0 {
        assert!(std::time::Instant::now() < deadline, "never written");
        std::thread::yield_now();
    }
}

/// Method: update the head of the old object while a newer object of the same key is in the writer's buffer.
#[test]
fn a_new_head_for_an_old_object_does_not_replace_a_newer_object() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let (cache, _) = DiskCache::open(settings(folder.path(), 16)).expect("the cache opens");
    put(&cache, 1, &pattern(1, 1000), true);
    cache.sync().expect("the sync succeeds");
    let old = object(&cache, 1);
    put(&cache, 1, &pattern(2, 2000), true);
    let updated = cache.update_head(&old, &1_u64.to_le_bytes(), "of the old object".into());
    assert_eq!(updated, Ok(()), "the update is queued");
    cache.sync().expect("the sync succeeds");
    assert!(get(&cache, 1) == Some(pattern(2, 2000)));
    // `dropped_reclaimed` also counts updates of an object that is no longer stored.
    assert_eq!(cache.counters().devices[0].dropped_reclaimed, 1);
}

/// Method: configure the store so that no timer triggers a sync. Open a copy of its file, which is the state after
/// the process is killed.
#[test]
fn a_completed_purge_survives_a_crash_and_syncs_only_if_the_key_may_be_stored() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let hour = std::time::Duration::from_secs(3600);
    let settings = DiskSettings {
        sync_interval: hour,
        flush_interval: hour,
        ..settings(folder.path(), 16)
    };
    let (cache, _) = DiskCache::open(settings.clone()).expect("the cache opens");
    (0..50).for_each(|key| put(&cache, key, &pattern(key, 1000), true));
    cache.sync().expect("the sync succeeds");
    let syncs = || cache.counters().devices[0].syncs;
    let before = syncs();
    let (sender, receiver) = std::sync::mpsc::channel();
    let purge = |key: u64| {
        let sender = sender.clone();
        cache.purge_then(KeyHash(key), &key.to_le_bytes(), move |result| {
            sender.send(result).expect("the test waits");
        });
        receiver.recv_timeout(std::time::Duration::from_secs(30))
    };
    assert_eq!(purge(1000), Ok(Ok(())), "the key has no object");
    assert_eq!(syncs(), before);
    assert_eq!(purge(7), Ok(Ok(())));
    assert_eq!(syncs(), before + 1);
    let copy = tempfile::tempdir().expect("the folder is created");
    std::fs::copy(folder.path().join(FILE_NAME), copy.path().join(FILE_NAME))
        .expect("the file can be copied");
    let copied = DiskSettings {
        devices: super::settings(copy.path(), 16).devices,
        ..settings
    };
    let (found, _) = DiskCache::open(copied).expect("the cache opens");
    assert!(get(&found, 7).is_none());
    assert!(get(&found, 8).is_some());
}
