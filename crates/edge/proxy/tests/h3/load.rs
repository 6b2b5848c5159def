//! The client of the benchmarks, on an edge.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use edgeward_testkit::Answer;
use tokio::task::LocalSet;

use crate::Http3Bed;
use crate::h3_load::{self as loads, Stats, Target};
use crate::support::run;

const BYTES: u64 = 100_000;

/// Runs a load on an edge that has an object of [`BYTES`] bytes.
fn load<S: Future<Output = Stats>>(bed: &Http3Bed, load: impl FnOnce(Rc<Target>) -> S) -> Stats {
    let certificate = bed.identity.files().certificates;
    let answer = Answer::pattern(BYTES).header("cache-control", "max-age=600");
    bed.bed.origin.on("/object", answer);
    let target = Target::new(bed.bed.addr(), Path::new(&certificate), "/object");
    let target = target.expect("the certificate can be a root");
    run(LocalSet::new().run_until(load(Rc::new(target))))
}

fn assert_all_succeeded(stats: &Stats) {
    assert_eq!(
        (stats.errors, stats.refused, stats.stateless_resets),
        (0, 0, 0)
    );
    assert_eq!(stats.bytes, stats.requests * BYTES);
    assert_eq!(stats.latencies.len() as u64, stats.requests);
}

#[test]
fn the_client_of_the_benchmarks_counts_the_responses_of_the_edge() {
    let bed = Http3Bed::start();
    let length = Duration::from_secs(1);
    let requests = load(&bed, async |target| {
        let stats = loads::requests(&target, 2, 3, length).await;
        stats.expect("the edge accepts connections")
    });
    assert_all_succeeded(&requests);
    assert!(requests.requests >= 6);
    let downloads = load(&bed, async |target| {
        let stats = loads::downloads(&target, 2, length).await;
        stats.expect("ports are free")
    });
    assert_all_succeeded(&downloads);
    assert!(downloads.requests >= 2);
    let moves = load(&bed, async |target| {
        let stats = loads::moves(&target, 1, 20).await;
        stats.expect("ports are free")
    });
    assert_all_succeeded(&moves);
    assert_eq!((moves.requests, moves.connections), (20, 1));
}
