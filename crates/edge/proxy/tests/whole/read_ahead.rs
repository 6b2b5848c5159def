//! The read-ahead rate: how fast the edge reads a body from the origin while no client reads it. The rate does
//! not apply while a client reads the body.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use crate::closed_windows::ClosedWindows;
use crate::support::{TestBed, pattern};
use edgeward_testkit::Answer;
use edgeward_testkit::client::until;
use edgeward_types::ByteSize;

const MIB: u64 = 1 << 20;
/// The read-ahead rate in bytes per second.
const RATE: u64 = 2 * MIB;
const ORIGIN_BYTES: &str = "edgeward_origin_bytes_total";

/// Starts an edge with one worker. While no client reads a body, the edge reads bodies at `rate` in total.
fn bed(rate: u64) -> TestBed {
    TestBed::with_config(|config| {
        config.workers = NonZeroUsize::MIN;
        config.limits.read_ahead_rate_max = ByteSize(rate);
    })
}

/// Requests bodies over HTTP/2 with windows of zero. Returns the rate at which the edge reads the bodies
/// from the origin, in bytes per second.
///
/// Method: wait until `at_once` bytes have arrived, which the edge may read without waiting for the rate. Then measure
/// the time in which another 4 MiB arrive.
fn rate_of_closed_windows(bed: &TestBed, requests: u64, at_once: u64) -> f64 {
    let client = ClosedWindows::request(bed, requests);
    // On a busy machine the number of bytes may be older than the end of its request. The measured rate is then too
    // low, but not too high.
    let read = |bytes: f64| {
        until("the bytes are read", || {
            let before = Instant::now();
            let now = bed.metric(ORIGIN_BYTES);
            (now >= bytes).then(|| (now, before, Instant::now()))
        })
    };
    let (first, start, _) = read(at_once as f64);
    let (last, _, end) = read(first + (4 * MIB) as f64);
    drop(client);
    (last - first) / (end - start).as_secs_f64()
}

/// The edge reads a little more than 1 MiB of each body at once, and the rest at the rate. Without the rate,
/// the rest of all sixteen bodies would arrive in 0.1 s.
#[test]
fn bodies_that_may_be_stored_are_read_at_the_rate_while_no_client_reads_them() {
    let bed = bed(RATE);
    bed.origin
        .otherwise(|_| Answer::pattern(4 * MIB).header("cache-control", "max-age=600"));
    let rate = rate_of_closed_windows(&bed, 16, 16 * MIB * 5 / 4);
    assert!(rate < 1.5 * RATE as f64, "{:.1} MiB/s", rate / MIB as f64);
    assert!(bed.metric("edgeward_read_ahead_waits_total") >= 16.0);
}

/// The allowance of 1 MiB for each body does not apply to passed bodies.
#[test]
fn passed_bodies_are_read_at_the_rate_while_no_client_reads_them() {
    let bed = bed(RATE);
    bed.origin
        .otherwise(|_| Answer::pattern(250_000).header("cache-control", "no-store"));
    let rate = rate_of_closed_windows(&bed, 60, MIB);
    assert!(rate < 1.5 * RATE as f64, "{:.1} MiB/s", rate / MIB as f64);
}

/// If the rate applied, the body would take 128 s.
#[test]
fn a_client_that_reads_its_body_does_not_wait_for_the_rate() {
    let bed = bed(RATE / 8);
    bed.origin
        .otherwise(|_| Answer::pattern(32 * MIB).header("cache-control", "max-age=600"));
    let start = Instant::now();
    let answer = bed.get("/large");
    assert!(answer.complete && answer.body == pattern(0..32 * MIB));
    assert!(
        start.elapsed() < Duration::from_secs(60),
        "{:?}",
        start.elapsed()
    );
}

/// The client reads no byte until the edge reads ahead at the rate, and then reads the complete body. If the
/// rate still applied, the rest would take at least 100 s.
#[test]
fn a_client_that_continues_to_read_no_longer_waits_for_the_rate() {
    let bed = bed(RATE / 8);
    bed.origin
        .otherwise(|_| Answer::pattern(32 * MIB).header("cache-control", "max-age=600"));
    let mut client = bed.connect();
    client.send_head("GET", "/large", &[]);
    let mut answer = client.head();
    until("the body is read ahead", || {
        (bed.metric("edgeward_read_ahead_waits_total") >= 2.0).then_some(())
    });
    let start = Instant::now();
    client.body("GET", &mut answer);
    assert!(answer.complete && answer.body == pattern(0..32 * MIB));
    assert!(
        start.elapsed() < Duration::from_secs(60),
        "{:?}",
        start.elapsed()
    );
}
