//! HTTP/2 clients that try to cause much work or memory use of the edge with few bytes.

#[expect(dead_code, reason = "this binary uses a part of the helpers")]
#[path = "../support/mod.rs"]
mod support;

mod frames;

mod bounds;
mod memory;
mod stream_errors;
mod uploads;

use std::num::NonZeroUsize;
use std::time::Duration;

use edgeward_testkit::{Answer, Gate};
use frames::*;
use support::TestBed;

/// Method: send 4000 requests. Each request repeats a field of 4000 bytes 15 times, and each repetition is encoded as
/// one byte (an index of the dynamic table). The edge may open one connection to the origin, which does not answer.
#[test]
fn requests_that_wait_for_the_origin_do_not_hold_their_forwarded_heads() {
    let bed = TestBed::with_config(|config| {
        config.origins[0].connections_per_worker_max = NonZeroUsize::MIN;
    });
    bed.origin.otherwise(|_| Answer::never());
    let before = bed.metric("process_resident_memory_bytes");
    let mut clients: Vec<_> = (0..40).map(|_| H2Client::connect(bed.addr())).collect();
    for (nth, client) in clients.iter_mut().enumerate() {
        for request_nth in 0..100u32 {
            let path = format!("/{nth}/{request_nth}");
            let mut block = request("GET", &path, &[]);
            if request_nth == 0 {
                indexed_field(&mut block, "a", &"v".repeat(4000));
            }
            block.extend([LAST_INDEXED; 15]);
            let stream = 2 * request_nth + 1;
            client.try_send(&frame(HEADERS, END_STREAM | END_HEADERS, stream, &block));
        }
    }
    for client in &mut clients {
        // The clients whose heads take most memory are closed.
        _ = client.try_ping();
    }
    let growth = bed.metric("process_resident_memory_bytes") - before;
    assert!(growth < 96e6, "{growth} bytes for 340 kB sent");
}

#[test]
fn a_client_that_resets_many_requests_gets_enhance_your_calm() {
    let bed = TestBed::start();
    bed.origin.otherwise(|_| Answer::never());
    let mut client = H2Client::connect(bed.addr());
    'attack: for batch in 0..20u32 {
        let streams = || (0..100u32).map(move |nth| 2 * (100 * batch + nth) + 1);
        for stream in streams() {
            let path = format!("/{stream}");
            let block = request("GET", &path, &[]);
            let headers = frame(HEADERS, END_STREAM | END_HEADERS, stream, &block);
            if !client.try_send(&headers) {
                break 'attack;
            }
        }
        if !client.try_ping() {
            break;
        }
        for stream in streams() {
            if !client.try_send(&frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())) {
                break 'attack;
            }
        }
    }
    assert_eq!(client.read_to_goaway(), Some(ENHANCE_YOUR_CALM));
    let forwarded_requests = bed.origin.requests_total();
    assert!(
        forwarded_requests <= 200,
        "{forwarded_requests} requests reached the origin"
    );
    bed.wait_for_metric("edgeward_h2_floods_total{frames=\"resets\"}", 1.0);
}

/// A fetch continues after its client has reset the stream, because other requests may share the fetch. It must
/// still count as a stream of the connection.
#[test]
fn fetches_of_reset_streams_count_against_the_limit_of_streams() {
    let bed = TestBed::with_config(|config| {
        config.limits.h2_streams_max = 10.try_into().expect("the number is not zero");
    });
    let gate = Gate::new();
    let origin_gate = gate.clone();
    bed.origin
        .otherwise(move |_| Answer::ok("x").wait_before_head(&origin_gate));
    let mut client = H2Client::connect(bed.addr());
    for nth in 0..10u32 {
        client.get(2 * nth + 1, &format!("/{nth}"), &[]);
    }
    gate.wait_reached(10);
    for nth in 0..10u32 {
        client.send(&frame(RST_STREAM, 0, 2 * nth + 1, &CANCEL.to_be_bytes()));
    }
    // During these two round trips the edge processes the resets.
    client.ping();
    client.ping();
    client.get(21, "/11", &[]);
    assert_eq!(client.status(21), 503);
    assert_eq!(bed.origin.requests_total(), 10);
    gate.open();
    bed.wait_for_metric("edgeward_fills", 0.0);
    client.get(23, "/12", &[]);
    assert_eq!(client.status(23), 200);
}

/// An orphaned fetch is cancelled if a request waits for a connection to the origin.
///
/// Method: start four fetches, which use all origin connections of the worker, and reset their streams. The
/// origin does not answer until the end of the test.
#[test]
fn orphaned_fetches_are_cancelled_for_requests_that_wait() {
    let bed = TestBed::with_config(|config| {
        config.workers = NonZeroUsize::MIN;
        config.origins[0].connections_per_worker_max =
            NonZeroUsize::new(4).expect("the number is not zero");
        config.origins[0].client_share_percent = 100;
        // If no fetch were cancelled, the request for `/page` would get a 503 after this time.
        config.origins[0].queue_timeout = Duration::from_secs(3);
    });
    let shared = |body: &str| Answer::ok(body.to_owned()).header("cache-control", "max-age=60");
    let gate = Gate::new();
    let origin_gate = gate.clone();
    bed.origin
        .otherwise(move |_| shared("x").wait_before_head(&origin_gate));
    bed.origin.on("/page", Answer::ok("page"));
    let mut client = H2Client::connect(bed.addr());
    for nth in 0..4u32 {
        client.get(2 * nth + 1, &format!("/{nth}"), &[]);
    }
    gate.wait_reached(4);
    // Another client follows the oldest of the four fetches, so this fetch must not be cancelled.
    let mut other = H2Client::connect(bed.addr());
    other.get(1, "/0", &[]);
    other.ping();
    other.ping();
    for nth in 0..4u32 {
        client.send(&frame(RST_STREAM, 0, 2 * nth + 1, &CANCEL.to_be_bytes()));
    }
    client.ping();
    client.ping();
    let page = bed.get("/page");
    assert_eq!(page.status, 200);
    assert_eq!(bed.metric("edgeward_fetches_cancelled_total"), 1.0);
    gate.open();
    assert_eq!(other.status(1), 200);
    assert_eq!(bed.origin.requests("/0"), 1);
    bed.wait_for_metric("edgeward_fills", 0.0);
}

#[test]
fn floods_of_control_frames_end_the_connection() {
    for (kind, stream, payload) in [
        (PING, 0, &[0u8; 8][..]),
        (SETTINGS, 0, &[]),
        (PRIORITY, 1, &[0, 0, 0, 0, 9]),
        (WINDOW_UPDATE, 0, &[0, 0, 0, 1]),
        // A frame type that HTTP/2 does not define.
        (250, 0, &[]),
    ] {
        let bed = TestBed::start();
        let mut client = H2Client::connect(bed.addr());
        let flood = frame(kind, 0, stream, payload).repeat(100);
        for _ in 0..300 {
            if !client.try_send(&flood) {
                break;
            }
        }
        assert_eq!(
            client.read_to_goaway(),
            Some(ENHANCE_YOUR_CALM),
            "kind {kind}"
        );
        bed.wait_for_metric(
            "edgeward_client_connections_closed_total{cause=\"h2-flood\"}",
            1.0,
        );
    }
}

/// gRPC clients send each small message in its own DATA frame, so this is not a flood.
#[test]
fn a_burst_of_small_data_frames_reaches_the_origin_completely() {
    let bed = TestBed::start();
    bed.origin.on("/upload", Answer::ok("x"));
    let mut client = H2Client::connect(bed.addr());
    let block = request("POST", "/upload", &[]);
    let mut bytes = frame(HEADERS, END_HEADERS, 1, &block);
    for nth in 0..5000 {
        let flags = if nth == 4999 { END_STREAM } else { 0 };
        bytes.extend(frame(DATA, flags, 1, b"0123456789"));
    }
    client.send(&bytes);
    assert_eq!(client.status(1), 200);
    let forwarded = bed
        .origin
        .last("/upload")
        .expect("the origin got a request");
    assert!(forwarded.body() == b"0123456789".repeat(5000));
}

#[test]
fn headers_max_applies_to_http2() {
    let bed = TestBed::start();
    bed.origin.on("/page", Answer::ok("x"));
    let fields = |n: usize| -> Vec<(String, String)> {
        (0..n)
            .map(|nth| (format!("x-{nth}"), "v".to_owned()))
            .collect()
    };
    for (count, status) in [(100, 200), (101, 431)] {
        let fields = fields(count);
        let fields: Vec<_> = fields
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_str()))
            .collect();
        let mut client = H2Client::connect(bed.addr());
        client.get(1, "/page", &fields);
        assert_eq!(client.status(1), status, "{count} fields");
    }
    // The edge's check of HTTP/2 frames rejects 500 fields before hyper decodes them. Each of the 500 bytes is the
    // field `accept-encoding`, entry 16 of the static table (RFC 7541, appendix A).
    let mut client = H2Client::connect(bed.addr());
    let mut block = request("GET", "/page", &[("x-first", "v")]);
    block.extend([0x80 | 16; 500]);
    client.send(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &block));
    assert_eq!(client.read_to_goaway(), Some(ENHANCE_YOUR_CALM));
    assert_eq!(bed.origin.requests_total(), 1);
}

#[test]
fn a_first_line_of_another_protocol_is_closed_without_an_answer() {
    let bed = TestBed::start();
    for line in ["INVALID CONNECTION PREFACE\r\n\r\n", "GET / SPDY/3\r\n\r\n"] {
        let mut client = bed.connect();
        client.send(line.as_bytes());
        assert!(client.is_closed(), "the edge did not close after {line:?}");
    }
    let mut client = bed.connect();
    client.send(b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 400, "a malformed request of HTTP");
}
