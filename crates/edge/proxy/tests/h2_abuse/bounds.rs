//! The limits on the memory of decoded request heads: for each connection, and in total.

use edgeward_testkit::{Answer, Gate};
use edgeward_types::ByteSize;

use super::frames::*;
use crate::support::TestBed;

/// The total length of the field values in [`large_get`].
const HEAD_BYTES: usize = 40_000;

/// Sends a request whose head takes more than half of 64 KiB, so that two of these requests exceed a limit of
/// 64 KiB.
fn large_get(client: &mut H2Client, stream: u32) {
    let value = "v".repeat(HEAD_BYTES / 4);
    let fields = [("a", value.as_str()); 4];
    let block = request("GET", &format!("/{stream}"), &fields);
    let mut kind = HEADERS;
    let pieces: Vec<_> = block.chunks(16_000).collect();
    for (nth, piece) in pieces.iter().enumerate() {
        let is_last = nth + 1 == pieces.len();
        let ends_stream = if kind == HEADERS { END_STREAM } else { 0 };
        let ends_headers = if is_last { END_HEADERS } else { 0 };
        client.send(&frame(kind, ends_stream | ends_headers, stream, piece));
        kind = CONTINUATION;
    }
}

#[test]
fn the_memory_of_decoded_heads_is_limited_for_each_connection() {
    let bed = TestBed::with_config(|config| config.limits.h2_heads_bytes_max = ByteSize::kib(64));
    let gate = Gate::new();
    let origin_gate = gate.clone();
    bed.origin
        .otherwise(move |_| Answer::ok("x").wait_before_head(&origin_gate));
    let mut client = H2Client::connect(bed.addr());
    large_get(&mut client, 1);
    gate.wait_reached(1);
    large_get(&mut client, 3);
    assert_eq!(client.status(3), 503);
    assert_eq!(bed.origin.requests_total(), 1);
    // The limit applies to each connection separately.
    let mut other = H2Client::connect(bed.addr());
    large_get(&mut other, 7);
    gate.wait_reached(2);
    gate.open();
    assert_eq!(client.status(1), 200);
    bed.wait_for_metric("edgeward_heads_bytes", 0.0);
    large_get(&mut client, 5);
    assert_eq!(client.status(5), 200);
    assert_eq!(
        bed.metric("edgeward_h2_requests_refused_total{bound=\"head-memory\"}"),
        1.0
    );
}

#[test]
fn the_memory_of_decoded_heads_is_limited_in_total() {
    let bed = TestBed::with_config(|config| config.limits.heads_bytes_max = ByteSize::kib(64));
    let gate = Gate::new();
    let origin_gate = gate.clone();
    bed.origin
        .otherwise(move |_| Answer::ok("x").wait_before_head(&origin_gate));
    let mut client = H2Client::connect(bed.addr());
    large_get(&mut client, 1);
    gate.wait_reached(1);
    let mut other = H2Client::connect(bed.addr());
    large_get(&mut other, 1);
    assert_eq!(other.status(1), 503);
    gate.open();
    assert_eq!(client.status(1), 200);
    bed.wait_for_metric("edgeward_heads_bytes", 0.0);
    large_get(&mut other, 3);
    assert_eq!(other.status(3), 200);
}
