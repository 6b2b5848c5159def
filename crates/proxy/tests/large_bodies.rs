//! Bodies that lie in the arena and are sent from there.

mod support;

use edgeward_testkit::Answer;
use edgeward_types::ByteSize;
use support::{Bed, pattern};

fn arena_bytes(bed: &Bed) -> u64 {
    bed.status()["hot"]["arena_bytes"]
        .as_u64()
        .unwrap_or_default()
}

/// Whether this system has what an arena takes.
fn has_arena(bed: &Bed) -> bool {
    let has = bed.status()["hot"]["arena_bytes"].is_u64();
    if !has {
        eprintln!("skipped: large bodies lie on the heap here");
    }
    has
}

#[test]
fn every_size_is_right_by_every_way() {
    let bed = Bed::start();
    let mut client = bed.connect();
    for length in [65_535, 65_536, 65_537, 100_000, 262_144, 262_145, 1_048_579] {
        let path = format!("/{length}");
        let answer = Answer::pattern(length).header("cache-control", "max-age=60");
        bed.origin.on(&path, answer);
        let whole = pattern(0..length);
        assert!(client.get(&path, &[]).body == whole, "the miss of {length}");
        for _ in 0..3 {
            let hit = client.get(&path, &[]);
            assert!(hit.is_hit());
            assert!(hit.body == whole, "a hit of {length}");
        }
        // Not plain: hyper's way.
        let hit = client.get(&path, &[("via", "1.1 someone")]);
        assert!(hit.is_hit() && hit.body == whole, "hyper's hit of {length}");
        let range = client.get(&path, &[("range", "bytes=65000-")]);
        assert_eq!(range.status, 206);
        assert!(range.body == pattern(65_000..length), "a range of {length}");
        let head = client.request("HEAD", &path, &[], b"");
        assert_eq!(head.header("content-length"), Some(&*length.to_string()));
        assert_eq!(bed.origin.requests(&path), 1);
    }
}

#[test]
fn pipelined_hits_large_and_small_come_in_order() {
    let bed = Bed::start();
    for (path, length) in [("/large", 300_000), ("/small", 10)] {
        let answer = Answer::pattern(length).header("cache-control", "max-age=60");
        bed.origin.on(path, answer);
        bed.get(path);
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

/// Method: the client takes a few bytes of a hit, others push the object out and fill its place, then
/// the client goes on.
#[test]
fn a_slow_client_gets_what_it_asked_for_though_the_object_has_left() {
    const LENGTH: u64 = 6 << 20;
    let bed = Bed::with(|config| config.hot.capacity = ByteSize::mib(16));
    if !has_arena(&bed) {
        return;
    }
    bed.origin.on(
        "/slow",
        Answer::pattern(LENGTH).header("cache-control", "max-age=60"),
    );
    assert!(bed.get("/slow").body == pattern(0..LENGTH));
    let mut slow = bed.connect();
    slow.send_head("GET", "/slow", &[]);
    assert!(slow.head().is_hit());
    let start = slow.read_up_to(1000);

    for n in 0..6 {
        let path = format!("/other{n}");
        let other = Answer::ok(vec![n; LENGTH as usize]).header("cache-control", "max-age=60");
        bed.origin.on(&path, other);
        assert_eq!(bed.get(&path).body.len() as u64, LENGTH);
    }
    assert!(!bed.get("/slow").is_hit(), "pushed out");

    let rest = slow.read_up_to(LENGTH as usize - start.len());
    assert!([start, rest].concat() == pattern(0..LENGTH));
}

#[test]
fn memory_is_bounded_by_the_budget_and_comes_back() {
    let bed = Bed::with(|config| config.hot.capacity = ByteSize::mib(4));
    if !has_arena(&bed) {
        return;
    }
    for n in 0..20 {
        let path = format!("/{n}");
        let answer = Answer::pattern(500_000).header("cache-control", "max-age=60");
        bed.origin.on(&path, answer);
        bed.get(&path);
        // What has left may be on its way to its last client for a moment.
        bed.until("within the budget", |status| {
            status["hot"]["arena_bytes"].as_u64() <= Some(4 << 20)
        });
    }
    assert!(arena_bytes(&bed) >= 2 << 20);

    bed.origin.on(
        "/broken",
        Answer::pattern(1_000_000)
            .header("cache-control", "max-age=60")
            .close_at(700_000),
    );
    assert!(!bed.get("/broken").complete);
    bed.until("what came of it is let go", |status| {
        status["fills"]["under_way"] == 0 && status["hot"]["arena_bytes"].as_u64() <= Some(4 << 20)
    });
}
