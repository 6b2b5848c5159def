//! Invalid responses over HTTP are refused and counted, and the last valid filter stays in use.

use std::time::Duration;

use edgeward_filter::manifest::Manifest;
use edgeward_filter::{Signer, Trust};
use edgeward_filter_client::{Answer, FilterClient, Status};
use edgeward_publish::RunningPublisher;

use crate::support::{
    Relay, Table, WAIT_MAX, body_at, client, config, post, publisher, signer, table, until,
};

const MAX_STALENESS: Duration = Duration::from_secs(60);

/// Starts a client, which gets a valid filter through a relay. Then the relay changes the responses by `tamper`, which
/// gets a request's path and its response, and `publish` publishes id 5000. The test waits until `has_counted` returns
/// true for the client's status. Then the relay passes responses unchanged, and the client must get the newest filter.
fn check_refusal(
    publish: impl FnOnce(&RunningPublisher, &Table),
    tamper: impl FnMut(&str, Vec<u8>) -> Option<Vec<u8>> + Send + 'static,
    has_counted: impl Fn(&Status) -> bool,
) {
    let folder = tempfile::tempdir().expect("a folder");
    let table = table(2000);
    let publisher = publisher(folder.path(), &table);
    let relay = Relay::in_front_of(publisher.addr());
    let mut config = config(relay.addr, MAX_STALENESS);
    config.silence_max = Duration::from_secs(1);
    let client = FilterClient::start(config).expect("the client starts");
    assert!(client.wait_fresh(WAIT_MAX), "{:?}", client.status());
    let valid_epoch = client.status().facts.expect("a filter").epoch;
    relay.tamper(tamper);
    publish(&publisher, &table);
    assert!(
        client.wait_until(WAIT_MAX, has_counted),
        "{:?}",
        client.status()
    );
    let status = client.status();
    assert!(status.last_error.is_some());
    assert_eq!(
        status.facts.expect("the last valid filter is in use").epoch,
        valid_epoch
    );
    assert!((0..2000u64).all(|id| client.answer(id.to_string()) == Answer::Maybe));
    assert_eq!(
        client.answer("no such id"),
        Answer::Absent,
        "the last valid filter is still in use"
    );
    // Without the relay's changes the newest filter is fetched.
    relay.stop_tampering();
    until("the newest id is answered maybe", || {
        client.may_exist("5000")
    });
}

fn publish_snapshot(publisher: &RunningPublisher, table: &Table) {
    let (epoch, _) = publisher.published().expect("a snapshot is published");
    table
        .0
        .lock()
        .expect("no thread panics while it has the lock")
        .push(5000);
    publisher.rebuild();
    assert!(publisher.wait_published(epoch, WAIT_MAX));
}

fn publish_delta(publisher: &RunningPublisher, _: &Table) {
    assert!(post(publisher.addr(), 5000));
}

/// Returns a relay function that changes successful responses to requests whose path contains `part`. `change` gets
/// the response and the offset of its body.
fn change_responses(
    part: &'static str,
    mut change: impl FnMut(&mut Vec<u8>, usize) + Send + 'static,
) -> impl FnMut(&str, Vec<u8>) -> Option<Vec<u8>> + Send + 'static {
    move |path, mut answer| {
        if path.contains(part) && answer.starts_with(b"HTTP/1.1 20") {
            let body = body_at(&answer);
            change(&mut answer, body);
        }
        Some(answer)
    }
}

#[test]
fn a_truncated_snapshot_is_refused() {
    let cut = change_responses("/snapshot/", |answer, body| answer.truncate(body + 100));
    check_refusal(publish_snapshot, cut, |status| status.counts.failed > 2);
}

#[test]
fn a_snapshot_with_a_flipped_bit_is_refused() {
    let flip = change_responses("/snapshot/", |answer, body| answer[body + 777] ^= 4);
    check_refusal(publish_snapshot, flip, |status| {
        status.counts.snapshots_refused > 2
    });
}

#[test]
fn a_delta_with_a_flipped_bit_is_refused() {
    let flip = change_responses("/delta/", |answer, body| answer[body + 70] ^= 1);
    check_refusal(publish_delta, flip, |status| {
        status.counts.deltas_refused > 2
    });
}

/// Method: send a snapshot larger than the manifest states, once with a large `Content-Length` and once without.
#[test]
fn an_oversized_snapshot_is_refused() {
    let oversized_by_length = change_responses("/snapshot/", |answer, body| {
        answer.truncate(body);
        let head = String::from_utf8_lossy(answer).into_owned();
        let length = head
            .find("content-length: ")
            .expect("the response has a length")
            + 16;
        answer.splice(length..length, b"9999999".iter().copied());
        answer.extend_from_slice(&[7; 100_000]);
    });
    check_refusal(publish_snapshot, oversized_by_length, |status| {
        status.counts.snapshots_refused > 0
    });
    let oversized_without_length = change_responses("/snapshot/", |answer, body| {
        answer.splice(
            ..body,
            b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"
                .iter()
                .copied(),
        );
        answer.extend_from_slice(&[7; 100_000]);
    });
    check_refusal(publish_snapshot, oversized_without_length, |status| {
        status.counts.snapshots_refused > 0
    });
}

/// The path of a poll for the manifest contains `?have`.
#[test]
fn a_changed_manifest_and_a_manifest_of_another_key_are_refused() {
    let flip = change_responses("?have", |answer, body| {
        if answer.len() > body {
            let last = answer.len() - 10;
            answer[last] ^= 1;
        }
    });
    check_refusal(publish_delta, flip, |status| {
        status.counts.manifests_refused > 2
    });
    let resign = change_responses("?have", |answer, body| {
        let trust = Trust::Keys(vec![signer().public()]);
        if let Ok(manifest) = Manifest::from_line(&answer[body..], &trust) {
            let line = manifest.to_line(Some(&Signer::from_secret([1; 32])));
            answer.splice(body.., line.into_bytes());
        }
    });
    check_refusal(publish_delta, resign, |status| {
        status.counts.manifests_refused > 2
    });
}

/// A valid manifest lists a snapshot of a petabyte. The client does not request this snapshot.
///
/// Method: a client with a short staleness, because it polls three times within it. Wait for its second poll.
#[test]
fn a_snapshot_of_a_petabyte_is_not_requested() {
    let folder = tempfile::tempdir().expect("a folder");
    let publisher = publisher(folder.path(), &table(2000));
    let relay = Relay::in_front_of(publisher.addr());
    let (snapshot_requested, requests) = std::sync::mpsc::channel();
    relay.tamper(move |path, mut answer| {
        if path.contains("/snapshot/") {
            _ = snapshot_requested.send(());
        }
        let body = body_at(&answer);
        let trust = Trust::Keys(vec![signer().public()]);
        if let Ok(mut manifest) = Manifest::from_line(&answer[body..], &trust) {
            manifest.snapshot.bytes = 1 << 50;
            let line = manifest.to_line(Some(&signer()));
            answer.truncate(body);
            let head = String::from_utf8_lossy(&answer).into_owned();
            // The changed manifest may have another length, so its response must not state the old one.
            let head = head.replace("content-length", "x-was");
            answer = [head.as_bytes(), line.as_bytes()].concat();
        }
        Some(answer)
    });
    let client = client(relay.addr, Duration::from_secs(3));
    assert!(client.wait_until(WAIT_MAX, |status| status.counts.manifests > 1));
    assert!(requests.try_recv().is_err(), "the snapshot was requested");
    assert_ne!(client.answer("no such id"), Answer::Absent);
}
