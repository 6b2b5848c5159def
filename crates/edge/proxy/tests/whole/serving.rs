//! The basic behaviour of the edge: hits, misses, and responses that are not stored.

use crate::support::{TestBed, pattern};
use edgeward_testkit::Answer;

#[test]
fn a_second_request_is_a_hit_that_does_not_reach_the_origin() {
    let bed = TestBed::start();
    bed.origin.on(
        "/page",
        Answer::ok("hello")
            .header("cache-control", "max-age=60")
            .header("content-type", "text/plain"),
    );
    let miss = bed.get("/page");
    assert_eq!((miss.status, miss.text()), (200, "hello"));
    assert_eq!(
        miss.cache_status(),
        "edgeward; fwd=uri-miss; fwd-status=200; stored"
    );
    let hit = bed.get("/page");
    assert_eq!((hit.status, hit.text()), (200, "hello"));
    assert!(hit.is_hit(), "{hit:?}");
    assert_eq!(hit.header("age"), Some("0"));
    assert_eq!(hit.header("content-type"), Some("text/plain"));
    assert_eq!(hit.header("content-length"), Some("5"));
    assert_eq!(bed.origin.requests("/page"), 1);
}

#[test]
fn one_connection_carries_many_requests() {
    let bed = TestBed::start();
    bed.origin
        .on("/a", Answer::ok("a").header("cache-control", "max-age=60"));
    bed.origin
        .on("/b", Answer::ok("b").header("cache-control", "no-store"));
    let mut client = bed.connect();
    for _ in 0..20 {
        assert_eq!(client.get("/a", &[]).text(), "a");
        assert_eq!(client.get("/b", &[]).text(), "b");
    }
    assert_eq!(bed.origin.requests("/a"), 1);
    assert_eq!(bed.origin.requests("/b"), 20);
    assert_eq!(
        bed.origin.accepted_connections(),
        1,
        "the origin's connection is reused"
    );
}

#[test]
fn responses_that_may_not_be_stored_are_not_stored() {
    let bed = TestBed::start();
    for (path, fields) in [
        ("/no-store", &[("cache-control", "no-store")][..]),
        ("/private", &[("cache-control", "private, max-age=60")]),
        (
            "/cookie",
            &[("cache-control", "max-age=60"), ("set-cookie", "a=b")],
        ),
        (
            "/vary-any",
            &[("cache-control", "max-age=60"), ("vary", "*")],
        ),
        // Without a lifetime and a validator, the stored response could never be reused.
        ("/nothing", &[]),
    ] {
        let answer = fields
            .iter()
            .fold(Answer::ok("x"), |answer, (name, value)| {
                answer.header(name, value)
            });
        bed.origin.on(path, answer);
        for n in 1..=3 {
            let got = bed.get(path);
            assert_eq!(got.text(), "x");
            assert!(!got.is_hit(), "{path}: {got:?}");
            assert_eq!(bed.origin.requests(path), n, "{path}");
        }
    }
}

#[test]
fn bodies_of_all_lengths_arrive_completely_with_and_without_content_length() {
    let bed = TestBed::start();
    for length in [0, 1, 1023, 8192, 65_535, 65_536, 65_537, 300_000, 3_000_000] {
        for chunked in [false, true] {
            let path = format!("/{length}/{chunked}");
            let mut answer = Answer::pattern(length).header("cache-control", "max-age=60");
            if chunked {
                answer = answer.chunked(7001);
            }
            bed.origin.on(&path, answer);
            for n in 0..3 {
                let got = bed.get(&path);
                assert!(got.complete, "{path} {n}");
                assert!(
                    got.body == pattern(0..length),
                    "{path} {n}: {} bytes",
                    got.body.len()
                );
                assert_eq!(got.is_hit(), n > 0, "{path} {n}: {}", got.cache_status());
            }
        }
    }
}
