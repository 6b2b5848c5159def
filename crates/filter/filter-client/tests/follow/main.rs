//! Tests a client with a real publisher and an unreliable network. `hostile` tests invalid responses, and `law` tests
//! with failures of all kinds that no id older than `max_staleness` is answered absent.
#![forbid(unsafe_code)]

mod hostile;
mod law;
mod support;

use std::time::{Duration, Instant};

use edgeward_filter_client::{Answer, FilterClient, Reason};
use support::{Clocks, Relay, WAIT_MAX, client, config, post, publisher, table, until};

/// A `max_staleness` that does not elapse in real time during a test.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn absent_ids_are_answered_absent_and_posted_ids_maybe() {
    let folder = tempfile::tempdir().expect("a folder");
    let publisher = publisher(folder.path(), &table(5000));
    let client = client(publisher.addr(), LONG);
    assert!(client.wait_fresh(WAIT_MAX), "{:?}", client.status());
    assert!((0..5000u64).all(|id| client.may_exist(id.to_string())));
    let absent = (10_000..20_000u64)
        .filter(|id| !client.may_exist(id.to_string()))
        .count();
    assert!(
        absent > 9700,
        "{absent} of 10,000 absent ids were answered absent, at a false-positive rate of 1 %"
    );

    let id = (10_000..20_000u64)
        .find(|id| !client.may_exist(id.to_string()))
        .expect("nearly all absent ids are answered absent");
    assert!(post(publisher.addr(), id));
    until("the id is answered maybe", || {
        client.answer(id.to_string()) == Answer::Maybe
    });
}

/// After the publisher dies, the filter is still fresh. It is stale when `max_staleness` has elapsed.
#[test]
fn a_client_fails_open_after_its_publisher_died() {
    let folder = tempfile::tempdir().expect("a folder");
    let publisher = publisher(folder.path(), &table(100));
    let clocks = Clocks::default();
    let mut config = config(publisher.addr(), LONG);
    config.clock = clocks.clock();
    let client = FilterClient::start(config).expect("the client starts");
    assert!(client.wait_fresh(WAIT_MAX));
    publisher.shutdown();
    assert_eq!(client.answer("no such id"), Answer::Absent);
    clocks.pass(LONG);
    assert_eq!(client.answer("no such id"), Answer::Ask(Reason::Stale));
    assert!(!client.status().fresh);
}

/// A step of the wall clock never makes a stale filter fresh. If a step makes a fresh filter stale, the next proof (the
/// publisher's signed response to a request of this client) makes it fresh again.
#[test]
fn stepped_wall_clocks_do_not_extend_freshness() {
    let folder = tempfile::tempdir().expect("a folder");
    let publisher = publisher(folder.path(), &table(100));
    let clocks = Clocks::default();
    let mut config = config(publisher.addr(), Duration::from_secs(3));
    config.clock = clocks.clock();
    let client = FilterClient::start(config).expect("the client starts");
    for step in [0, 3_600_000, -3_600_000, -3_600_000, 3_600_000] {
        clocks.step_wall(step);
        assert!(
            client.wait_fresh(WAIT_MAX),
            "after {step} ms: {:?}",
            client.status()
        );
        assert_eq!(client.answer("no such id"), Answer::Absent);
    }
    publisher.shutdown();
    clocks.step_wall(-3_600_000);
    clocks.pass(Duration::from_secs(3));
    assert_eq!(client.answer("no such id"), Answer::Ask(Reason::Stale));
}

/// If the operator guarantees a largest difference between the clocks of client and publisher (`clock_error`), the date
/// of a manifest makes the filter fresh without a proof.
#[test]
fn dated_manifests_suffice_with_a_known_clock_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let publisher = publisher(folder.path(), &table(100));
    let mut config = config(publisher.addr(), Duration::from_secs(10));
    config.clock_error = Some(Duration::from_secs(1));
    let client = FilterClient::start(config).expect("the client starts");
    assert!(client.wait_fresh(WAIT_MAX), "{:?}", client.status());
    assert_eq!(client.status().counts.proofs, 0);
    assert!(post(publisher.addr(), 777));
    until("the id is answered maybe", || {
        client.answer("777") == Answer::Maybe
    });
}

#[test]
fn a_stored_snapshot_is_not_fetched_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let snapshot_folder = tempfile::tempdir().expect("a folder");
    let publisher = publisher(folder.path(), &table(5000));
    let start = || {
        let mut config = config(publisher.addr(), LONG);
        config.snapshot_folder = Some(snapshot_folder.path().to_owned());
        FilterClient::start(config).expect("the client starts")
    };
    let client = start();
    assert!(client.wait_until(WAIT_MAX, |status| status.fresh));
    until("the snapshot is stored", || {
        snapshot_folder.path().join("resource.manifest").exists()
    });
    drop(client);
    assert!(post(publisher.addr(), 6000));
    let client = start();
    assert_ne!(
        client.answer("no such id"),
        Answer::Absent,
        "the stored snapshot is not fresh before a proof arrived"
    );
    assert!(client.wait_fresh(WAIT_MAX));
    assert_eq!(client.status().counts.snapshots, 0);
    assert_eq!(client.answer("6000"), Answer::Maybe);
}

/// The time from the response to a post until the client answers "maybe": the 99th percentile is below two
/// seconds.
#[test]
fn a_posted_id_is_answered_maybe_within_two_seconds() {
    let folder = tempfile::tempdir().expect("a folder");
    let publisher = publisher(folder.path(), &table(5000));
    let client = client(publisher.addr(), LONG);
    assert!(client.wait_fresh(WAIT_MAX));
    let mut times: Vec<Duration> = (0..200u64)
        .map(|n| {
            let id = 1_000_000 + n;
            assert!(post(publisher.addr(), id));
            let posted = Instant::now();
            until("the id is answered maybe", || {
                client.may_exist(id.to_string())
            });
            posted.elapsed()
        })
        .collect();
    times.sort_unstable();
    let (median, p99) = (times[100], times[198]);
    eprintln!("from the response to a post until \"maybe\": median {median:?}, p99 {p99:?}");
    assert!(p99 < Duration::from_secs(2), "{p99:?}");
}

/// The relay truncates the bodies of the first three snapshot responses to half their length. The client then requests
/// the missing bytes.
#[test]
fn a_broken_download_is_resumed() {
    let folder = tempfile::tempdir().expect("a folder");
    let publisher = publisher(folder.path(), &table(50_000));
    let relay = Relay::in_front_of(publisher.addr());
    let mut breaks = 0;
    let (partial_response_sender, partial_responses) = std::sync::mpsc::channel();
    relay.tamper(move |path, mut answer| {
        if path.contains("/snapshot/") {
            if answer.starts_with(b"HTTP/1.1 206") {
                _ = partial_response_sender.send(());
            }
            breaks += 1;
            if breaks <= 3 {
                let body = support::body_at(&answer);
                answer.truncate(body + (answer.len() - body) / 2);
            }
        }
        Some(answer)
    });
    let client = client(relay.addr, LONG);
    assert!(client.wait_fresh(WAIT_MAX), "{:?}", client.status());
    assert!(partial_responses.recv_timeout(WAIT_MAX).is_ok());
}
