//! Large bodies with frequent hits. The memory tier moves them to its arena, a file in RAM. The fast path, edgeward's
//! own code for HTTP/1.1, sends them from this file. hyper serves all other requests.

use crate::support::{TestBed, pattern};
use edgeward_testkit::Answer;
use edgeward_types::ByteSize;

fn arena_bytes(bed: &TestBed) -> u64 {
    bed.status()["hot"]["arena_bytes"]
        .as_u64()
        .unwrap_or_default()
}

/// A number of hits after which the memory tier has moved a large body to the arena.
const HITS_TO_MOVE: usize = 12;

/// Returns true if the memory tier has an arena, which not all systems support.
fn has_arena(bed: &TestBed) -> bool {
    let has = bed.status()["hot"]["arena_bytes"].is_u64();
    if !has {
        eprintln!("skipped: this system supports no arena");
    }
    has
}

#[test]
fn bodies_of_all_sizes_are_right_from_the_fast_path_and_from_hyper() {
    let bed = TestBed::start();
    let mut client = bed.connect();
    // The arena accepts bodies from 128 KiB (131,072 bytes) on.
    for length in [131_071, 131_072, 131_073, 200_000, 262_145, 1_048_579] {
        let path = format!("/{length}");
        let answer = Answer::pattern(length).header("cache-control", "max-age=60");
        bed.origin.on(&path, answer);
        let full = pattern(0..length);
        assert!(client.get(&path, &[]).body == full, "the miss of {length}");
        for _ in 0..HITS_TO_MOVE {
            let hit = client.get(&path, &[]);
            assert!(hit.is_hit());
            assert!(hit.body == full, "a hit of {length}");
        }
        // The fast path passes a request with `Via` to hyper.
        let hit = client.get(&path, &[("via", "1.1 someone")]);
        assert!(
            hit.is_hit() && hit.body == full,
            "a hit by hyper of {length}"
        );
        let range = client.get(&path, &[("range", "bytes=100000-")]);
        assert_eq!(range.status, 206);
        assert!(
            range.body == pattern(100_000..length),
            "a range of {length}"
        );
        let head = client.request("HEAD", &path, &[], b"");
        assert_eq!(head.header("content-length"), Some(&*length.to_string()));
        assert_eq!(bed.origin.requests(&path), 1);
    }
    assert!(!has_arena(&bed) || arena_bytes(&bed) > 1 << 20);
}

#[test]
fn a_body_with_few_hits_does_not_move() {
    let bed = TestBed::start();
    let answer = Answer::pattern(300_000).header("cache-control", "max-age=60");
    bed.origin.on("/once", answer);
    let mut client = bed.connect();
    for _ in 0..3 {
        client.get("/once", &[]);
    }
    for _ in 0..HITS_TO_MOVE {
        // hyper has to copy a body from the arena, so hits by hyper do not count for the move.
        client.get("/once", &[("via", "1.1 someone")]);
    }
    assert_eq!(arena_bytes(&bed), 0);
}

/// The arena accepts bodies of at most 16 MiB.
#[test]
fn a_body_that_would_take_long_to_move_does_not_move() {
    const LENGTH: u64 = (16 << 20) + 1;
    let bed = TestBed::start();
    let answer = Answer::ok(vec![7; LENGTH as usize]).header("cache-control", "max-age=60");
    bed.origin.on("/huge", answer);
    let mut client = bed.connect();
    for _ in 0..HITS_TO_MOVE {
        assert_eq!(client.get("/huge", &[]).body.len() as u64, LENGTH);
    }
    assert!(client.get("/huge", &[]).is_hit());
    assert_eq!(arena_bytes(&bed), 0);
}

#[test]
fn pipelined_hits_of_large_and_small_bodies_arrive_in_order() {
    let bed = TestBed::start();
    for (path, length) in [("/large", 300_000), ("/small", 10)] {
        let answer = Answer::pattern(length).header("cache-control", "max-age=60");
        bed.origin.on(path, answer);
        let mut client = bed.connect();
        for _ in 0..HITS_TO_MOVE {
            client.get(path, &[]);
        }
    }
    let mut client = bed.connect();
    let paths = ["/large", "/small", "/large", "/large", "/small"];
    let all: String = paths
        .map(|path| format!("GET {path} HTTP/1.1\r\nHost: test.example\r\n\r\n"))
        .concat();
    client.send(all.as_bytes());
    for path in paths {
        let length = if path == "/large" { 300_000 } else { 10 };
        let answer = client.answer("GET");
        assert!(
            answer.is_hit() && answer.body == pattern(0..length),
            "{path}"
        );
    }
}

/// Method: a client reads the first bytes of a hit. Then other objects evict the object, and the client reads
/// the rest.
#[test]
fn a_slow_client_gets_the_complete_body_of_an_object_that_is_evicted_meanwhile() {
    const LENGTH: u64 = 6 << 20;
    let bed = TestBed::with_config(|config| {
        config.hot.capacity = ByteSize::mib(16);
        // The default limit of pinned bytes is 4 MiB here. If more bytes are pinned for longer than a second, the
        // edge may disconnect the client.
        config.hot.pinned_bytes_max = Some(ByteSize::mib(16));
    });
    if !has_arena(&bed) {
        return;
    }
    bed.origin.on(
        "/slow",
        Answer::pattern(LENGTH).header("cache-control", "max-age=60"),
    );
    let mut client = bed.connect();
    for _ in 0..HITS_TO_MOVE {
        assert_eq!(client.get("/slow", &[]).body.len() as u64, LENGTH);
    }
    assert_eq!(arena_bytes(&bed), LENGTH);
    let mut slow = bed.connect();
    slow.send_head("GET", "/slow", &[]);
    assert!(slow.head().is_hit());
    let start = slow.read_up_to(1000);

    for n in 0..6 {
        let path = format!("/other{n}");
        let other = Answer::ok(vec![n; LENGTH as usize]).header("cache-control", "max-age=60");
        bed.origin.on(&path, other);
        for _ in 0..HITS_TO_MOVE {
            assert_eq!(client.get(&path, &[]).body.len() as u64, LENGTH);
        }
    }
    assert!(!bed.get("/slow").is_hit(), "the object was evicted");

    let rest = slow.read_up_to(LENGTH as usize - start.len());
    assert!([start, rest].concat() == pattern(0..LENGTH));
}

#[test]
fn memory_stays_within_the_budget_and_is_released() {
    let bed = TestBed::with_config(|config| config.hot.capacity = ByteSize::mib(4));
    if !has_arena(&bed) {
        return;
    }
    let mut client = bed.connect();
    for n in 0..20 {
        let path = format!("/{n}");
        let answer = Answer::pattern(500_000).header("cache-control", "max-age=60");
        bed.origin.on(&path, answer);
        for _ in 0..HITS_TO_MOVE {
            client.get(&path, &[]);
        }
        // A connection may still send an evicted body for a moment.
        bed.wait_until("memory is within the budget", |status| {
            status["hot"]["arena_bytes"].as_u64() <= Some(4 << 20)
        });
    }
    assert!(arena_bytes(&bed) >= 2 << 20);
}
