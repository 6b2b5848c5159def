//! Tests of spans: parts of bodies that the kernel sends from the page cache, without a read by this process. Only
//! bytes of blocks whose checksum was verified may be sent, and no bytes of an overwritten segment.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use edgeward_types::Timestamp;

use super::*;

/// The setting `verify_every` of the tests.
const EVERY: Duration = Duration::from_secs(600);

/// Returns the settings of a store with a file of twelve times 256 KiB and segments of 256 KiB. After a block was
/// compared with its checksum, it is sent without another comparison for [`EVERY`].
fn small(folder: &Path) -> DiskSettings {
    DiskSettings {
        segment_bytes: Some(ByteSize::kib(256)),
        verify_every: EVERY,
        ..DiskSettings::new(folder, ByteSize::kib(256 * 12))
    }
}

/// Opens a cache whose clock shows 1000 seconds.
fn open(settings: DiskSettings) -> DiskCache {
    let (cache, _) = DiskCache::open(settings).expect("the cache opens");
    cache.tick(Timestamp::from_secs(1000));
    cache
}

fn object(cache: &DiskCache, key: u64) -> DiskObject {
    let candidate = cache.lookup(KeyHash(key)).expect("the key is indexed");
    match cache.read_head_now(&candidate, &key.to_le_bytes()) {
        NonBlockingRead::Ready(object) => object,
        other => panic!("the object was written a moment ago: {other:?}"),
    }
}

fn piece(object: &DiskObject, range: std::ops::Range<u64>) -> Piece {
    match object.piece_now(range) {
        NonBlockingRead::Ready(piece) => piece,
        other => panic!("the range is in the page cache: {other:?}"),
    }
}

/// Returns the bytes that a receiver gets from a span. If the kernel copies bytes, each call of `send` copies at most
/// 50,000.
fn send_span(mut span: Span) -> Result<Vec<u8>, SendError> {
    let (ours, mut theirs) = UnixStream::pair().expect("the sockets are created");
    let mut received = Vec::new();
    while !span.is_empty() {
        let sent = span.send(ours.as_fd(), b"", 50_000)?;
        span.advance(sent as u64);
        let before = received.len();
        received.resize(before + sent, 0);
        theirs
            .read_exact(&mut received[before..])
            .expect("the sent bytes arrive");
    }
    Ok(received)
}

/// Returns the body, and how many of its bytes were in spans.
fn read_all(object: &DiskObject) -> (Vec<u8>, u64) {
    let (mut received, mut in_spans) = (Vec::new(), 0);
    while (received.len() as u64) < object.length() {
        let rest = received.len() as u64..object.length();
        match object.piece_now(rest.clone()) {
            NonBlockingRead::Ready(Piece::Bytes(bytes)) => received.extend_from_slice(&bytes),
            NonBlockingRead::WouldBlock => {
                received.extend_from_slice(&object.read(rest).expect("the read succeeds"));
            }
            NonBlockingRead::Miss(miss) => panic!("{miss:?}"),
            NonBlockingRead::Ready(Piece::Span(span)) => {
                in_spans += span.len();
                received.extend_from_slice(&send_span(span).expect("the span is sent"));
            }
        }
    }
    (received, in_spans)
}

/// Method: store a body shorter than a block (64 KiB), one of exactly one block, and two bodies that the store splits
/// into two and four pieces. Read each body twice and in parts. Here and in the other tests, the argument `true` of
/// `put` announces the length of the body.
#[test]
fn a_body_is_sent_from_the_cache_after_its_first_read_until_the_verification_expires() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let cache = open(small(folder.path()));
    for (key, length) in [(1, 20_000), (2, 65_536), (3, 65_537), (4, 200_000)] {
        let body = pattern(key, length);
        put(&cache, key, &body, true);
        cache.sync().expect("the sync succeeds");
        cache.tick(Timestamp::from_secs(1000));
        let (first, in_spans) = read_all(&object(&cache, key));
        assert!(first == body);
        assert_eq!(in_spans, 0, "{length}: no block is verified yet");
        let (second, in_spans) = read_all(&object(&cache, key));
        assert!(second == body);
        assert_eq!(in_spans, length as u64);
        let Piece::Span(part) = piece(&object(&cache, key), 10_000..length as u64) else {
            panic!("{length}: a part is a span as well");
        };
        let part = send_span(part).expect("the span is sent");
        assert!(body[10_000..].starts_with(&part) && !part.is_empty());
    }
    cache.tick(Timestamp::from_secs(1599));
    assert_eq!(read_all(&object(&cache, 1)).1, 20_000);
    cache.tick(Timestamp::from_secs(1600));
    assert_eq!(read_all(&object(&cache, 1)).1, 0);
    assert_eq!(read_all(&object(&cache, 1)).1, 20_000, "verified again");
    let counters = &cache.counters().devices[0];
    assert!(counters.mapped_bytes > 380_000, "{counters:?}");
    assert!(counters.read_bytes > counters.mapped_bytes + 380_000);
}

#[test]
fn a_small_body_is_read_with_its_head_and_then_sent_from_the_cache() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let cache = open(small(folder.path()));
    let body = pattern(1, 1000);
    put(&cache, 1, &body, true);
    cache.sync().expect("the sync succeeds");
    let reads = || cache.counters().total(|device| device.read_ops);
    let before = reads();
    assert_eq!(read_all(&object(&cache, 1)), (body.clone(), 0));
    assert_eq!(reads(), before + 1);
    // The metadata is cached now, so the second read of the object needs only one read operation, for the span.
    assert_eq!(read_all(&object(&cache, 1)), (body, 1000));
    assert_eq!(reads(), before + 2);
}

/// The cache does not know the time until the first call of `tick`.
#[test]
fn no_span_is_returned_without_a_time_or_with_verify_every_zero() {
    for (every, ticks, length) in [(EVERY, false, 20_000), (Duration::ZERO, true, 20_000)] {
        let folder = tempfile::tempdir().expect("the folder is created");
        let settings = DiskSettings {
            verify_every: every,
            ..small(folder.path())
        };
        let (cache, _) = DiskCache::open(settings).expect("the cache opens");
        if ticks {
            cache.tick(Timestamp::from_secs(1000));
        }
        let body = pattern(1, length);
        put(&cache, 1, &body, true);
        cache.sync().expect("the sync succeeds");
        for _ in 0..2 {
            assert_eq!(read_all(&object(&cache, 1)), (body.clone(), 0));
        }
    }
}

/// Flips the lowest bit of a byte of the store's file.
fn flip(folder: &Path, offset: u64) {
    use std::os::unix::fs::FileExt as _;
    let mut options = File::options();
    let file = options
        .read(true)
        .write(true)
        .open(folder.join(FILE_NAME))
        .expect("the file opens");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset)
        .expect("the read succeeds");
    byte[0] ^= 1;
    file.write_all_at(&byte, offset)
        .expect("the write succeeds");
}

/// Method: flip a bit in the file under the store, before the first read and after it.
#[test]
fn a_flipped_bit_is_detected_at_the_first_read_and_after_the_verification_expires() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let cache = open(small(folder.path()));
    (1..=2).for_each(|key| put(&cache, key, &pattern(key, 30_000), true));
    cache.sync().expect("the sync succeeds");
    let [early, late] = [1, 2].map(|key| object(&cache, key));
    flip(folder.path(), early.location().offset() + 25_000);
    assert!(matches!(
        early.piece_now(0..30_000),
        NonBlockingRead::Miss(Miss::Corrupt)
    ));
    assert_eq!(cache.lookup(KeyHash(1)), None);

    assert_eq!(read_all(&late), (pattern(2, 30_000), 0));
    flip(folder.path(), late.location().offset() + 25_000);
    let (served, in_spans) = read_all(&late);
    assert_eq!(in_spans, 30_000);
    assert!(
        served != pattern(2, 30_000),
        "a verified block is served until the verification expires, even if it is corrupt now"
    );
    cache.tick(Timestamp::from_secs(1600));
    assert!(matches!(
        late.piece_now(0..30_000),
        NonBlockingRead::Miss(Miss::Corrupt)
    ));
    assert_eq!(cache.counters().total(|device| device.checksum_failures), 2);
}

#[test]
fn a_span_of_a_truncated_file_is_lost_and_counted() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let cache = open(small(folder.path()));
    put(&cache, 1, &pattern(1, 100_000), true);
    cache.sync().expect("the sync succeeds");
    let object = object(&cache, 1);
    read_all(&object);
    let Piece::Span(span) = piece(&object, 0..100_000) else {
        panic!("the body was verified");
    };
    let path = folder.path().join(FILE_NAME);
    let file = File::options()
        .write(true)
        .open(path)
        .expect("the file opens");
    file.set_len(4096).expect("the file can be truncated");
    let (ours, _theirs) = UnixStream::pair().expect("the sockets are created");
    assert!(matches!(
        span.send(ours.as_fd(), b"", u64::MAX),
        Err(SendError::Lost(Miss::Device(_)))
    ));
    assert_eq!(cache.counters().total(|device| device.read_errors), 1);
    assert_eq!(cache.lookup(KeyHash(1)), None);
    assert!(matches!(
        object.piece_now(0..100_000),
        NonBlockingRead::Miss(_)
    ));
}

#[test]
fn a_span_of_an_overwritten_segment_is_lost() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let cache = open(small(folder.path()));
    put(&cache, 0, &pattern(0, 30_000), true);
    cache.sync().expect("the sync succeeds");
    let old = object(&cache, 0);
    read_all(&old);
    let Piece::Span(span) = piece(&old, 0..30_000) else {
        panic!("the body was verified");
    };
    // An object in use pins its segment, and the writer prefers to overwrite other segments. If all free segments are
    // pinned, it overwrites one of them.
    let mut pinned = vec![old];
    let mut key = 1;
    let lost = loop {
        put(&cache, key, &pattern(key, 60_000), true);
        cache.sync().expect("the sync succeeds");
        pinned.push(object(&cache, key));
        match span.send(
            UnixStream::pair()
                .expect("the sockets are created")
                .0
                .as_fd(),
            b"",
            1,
        ) {
            Err(SendError::Lost(miss)) => break miss,
            // The receiver closes at once, so the socket may return an error.
            Ok(_) | Err(SendError::Receiver(_)) => key += 1,
        }
        assert!(key < 1000, "the segment is never overwritten");
    };
    assert_eq!(lost, Miss::Reclaimed);
    assert_eq!(cache.counters().total(|device| device.reclaimed_reads), 1);
}

/// Method: one thread writes thirty times the device's capacity. Three threads look objects up, keep their
/// spans for a while and send the spans. Each object has different bytes, so a byte of another object would be
/// detected.
#[test]
fn spans_are_correct_or_lost_while_segments_are_overwritten() {
    check_spans_while_segments_are_overwritten(DirectWrites::Never);
}

/// The same method with writes that bypass the page cache.
#[test]
fn spans_are_correct_or_lost_while_direct_writes_overwrite_segments() {
    check_spans_while_segments_are_overwritten(DirectWrites::Always);
}

fn check_spans_while_segments_are_overwritten(direct_writes: DirectWrites) {
    let folder = tempfile::tempdir().expect("the folder is created");
    let cache = open(DiskSettings {
        direct_writes,
        ..small(folder.path())
    });
    // With `Always`, the writing thread has a lower priority than the readers, which never pause. With several readers
    // it would get too little CPU time.
    let readers = if direct_writes == DirectWrites::Never {
        3
    } else {
        1
    };
    let is_over = AtomicBool::new(false);
    let newest = std::sync::atomic::AtomicU64::new(1);
    let (correct, lost) = thread::scope(|scope| {
        let readers: Vec<_> = (0..readers)
            .map(|reader| {
                let (cache, is_over, newest) = (&cache, &is_over, &newest);
                scope.spawn(move || {
                    let mut pending_spans = std::collections::VecDeque::new();
                    let (mut correct, mut lost) = (0_u64, 0_u64);
                    let mut random_state: u64 = reader;
                    while !is_over.load(Ordering::Relaxed) {
                        random_state = random_state
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1);
                        let newest = newest.load(Ordering::Relaxed);
                        let key = newest.saturating_sub((random_state >> 33) % 30);
                        let Some(candidate) = cache.lookup(KeyHash(key)) else {
                            continue;
                        };
                        let Ok(object) = cache.read_head(&candidate, &key.to_le_bytes()) else {
                            continue;
                        };
                        let expected = pattern(key, 90_000);
                        // The first read verifies the blocks, so a later read can return a span.
                        for _ in 0..3 {
                            match object.piece_now(0..90_000) {
                                NonBlockingRead::Ready(Piece::Bytes(bytes)) => {
                                    assert!(expected.starts_with(&bytes), "{key}");
                                }
                                NonBlockingRead::Ready(Piece::Span(span)) => {
                                    pending_spans.push_back((span, expected.clone()));
                                }
                                NonBlockingRead::WouldBlock => {
                                    if let Ok(bytes) = object.read(0..90_000) {
                                        assert!(expected.starts_with(&bytes), "{key}");
                                    }
                                }
                                NonBlockingRead::Miss(_) => {}
                            }
                        }
                        // Some spans are sent at once, others only after many segments were overwritten.
                        while pending_spans.len() > (random_state >> 40) as usize % 60 {
                            let (span, expected) =
                                pending_spans.pop_front().expect("the queue is not empty");
                            match send_span(span) {
                                Ok(bytes) => {
                                    assert!(expected.starts_with(&bytes), "{key}");
                                    correct += 1;
                                }
                                Err(SendError::Lost(Miss::Reclaimed)) => lost += 1,
                                Err(other) => panic!("{other:?}"),
                            }
                        }
                    }
                    (correct, lost)
                })
            })
            .collect();
        for key in 1..1000 {
            put(&cache, key, &pattern(key, 90_000), true);
            if key % 3 == 0 {
                cache.sync().expect("the sync succeeds");
                newest.store(key, Ordering::Relaxed);
            }
        }
        is_over.store(true, Ordering::Relaxed);
        readers
            .into_iter()
            .map(|reader| reader.join().expect("the reader found no wrong byte"))
            .fold((0, 0), |(a, b), (c, d)| (a + c, b + d))
    });
    assert!(correct > 50, "{correct} spans sent, {lost} lost");
}

/// Method: send every object of a full device to its own client, which does not read yet. For objects in the
/// middle of a segment, the sockets reference pages of the page cache. Objects near an edge of a segment are copied to
/// the sockets. Then overwrite the device twice, and let the clients read.
#[test]
fn bytes_in_sockets_survive_an_overwrite_of_their_segment() {
    check_overwrite_of_sent_segments(DirectWrites::Never);
}

#[test]
fn bytes_in_sockets_survive_an_overwrite_by_direct_writes() {
    check_overwrite_of_sent_segments(DirectWrites::Always);
}

fn check_overwrite_of_sent_segments(direct_writes: DirectWrites) {
    let folder = tempfile::tempdir().expect("the folder is created");
    let mut settings = small(folder.path());
    settings.direct_writes = direct_writes;
    settings.segment_bytes = Some(ByteSize::mib(8));
    settings.devices[0].capacity = Some(ByteSize::mib(40));
    let cache = open(settings);
    let volume_bytes = 40 << 20;
    let body_bytes = 400_000;
    let fill = |from: u64| {
        let keys = from..from + volume_bytes / body_bytes;
        for key in keys.clone() {
            put(&cache, key, &pattern(key, 400_000), true);
            if key % 16 == 0 {
                cache.sync().expect("the sync succeeds");
            }
        }
        cache.sync().expect("the sync succeeds");
        keys
    };
    let mut clients = Vec::new();
    for key in fill(0) {
        let Some(candidate) = cache.lookup(KeyHash(key)) else {
            continue;
        };
        let Ok(object) = cache.read_head(&candidate, &key.to_le_bytes()) else {
            continue;
        };
        assert_eq!(read_all(&object), (pattern(key, 400_000), 0));
        let Piece::Span(span) = piece(&object, 0..body_bytes) else {
            panic!("the body was verified");
        };
        let (ours, theirs) = UnixStream::pair().expect("the sockets are created");
        ours.set_nonblocking(true)
            .expect("the socket can be configured");
        let sent = span
            .send(ours.as_fd(), b"head", u64::MAX)
            .expect("the socket accepts some bytes");
        clients.push((key, sent, ours, theirs, object.location().offset()));
    }
    assert!(clients.len() > 15, "{}", clients.len());
    let overwritten = |key: u64, offset: u64| {
        let file = std::fs::read(folder.path().join(FILE_NAME)).expect("the read succeeds");
        let at = usize::try_from(offset).expect("the number is small") + 100_000;
        // The body begins less than 1000 bytes after the start of its record.
        let part = &pattern(key, 400_000)[100_000..101_000];
        !file[at..at + 2000].windows(1000).any(|bytes| bytes == part)
    };
    for (key, .., offset) in &clients {
        assert!(!overwritten(*key, *offset), "{key} at {offset:#x}");
    }
    fill(1000);
    fill(2000);
    let mut overwritten_count = 0;
    for (key, sent, _ours, mut theirs, offset) in clients {
        let body = pattern(key, 400_000);
        let mut arrived = vec![0; sent];
        theirs
            .read_exact(&mut arrived)
            .expect("the sent bytes arrive");
        assert!(sent > 4 && arrived.starts_with(b"head"));
        assert!(body.starts_with(&arrived[4..]), "{key} at {offset:#x}");
        overwritten_count += u64::from(overwritten(key, offset));
    }
    assert!(overwritten_count > 15, "{overwritten_count}");
}
