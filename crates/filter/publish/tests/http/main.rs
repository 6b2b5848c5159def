//! Tests the responses of a publisher to clients, caches, writers and attackers.
#![forbid(unsafe_code)]

mod pages;
mod support;
mod trouble; // slow, silent and hostile clients

use std::time::Duration;

use edgeward_filter::delta::Delta;
use edgeward_filter::manifest::{Manifest, Proof};
use edgeward_filter::{Digest, Filter, IdHasher, Trust};
use edgeward_publish::{Changes, Coverage, FeedError, Publisher, RunningPublisher};
use support::{Table, config, get, post, send_request, signer, start, wait_until};

const SET: &str = "/sets/resource";

fn trust() -> Trust {
    Trust::Keys(vec![signer().public()])
}

fn manifest(addr: std::net::SocketAddr) -> Manifest {
    let response = get(addr, SET, &[]);
    assert_eq!(response.status, 200, "{response:?}");
    Manifest::from_line(&response.body, &trust()).expect("the manifest is valid")
}

/// Method: fetch the snapshot and the delta by the digests in the manifest, and look up every id.
#[test]
fn a_client_finds_all_files_through_the_manifest() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let publisher = start(config(folder.path()), &Table::with(0..3000));
    let addr = publisher.addr();
    let first = manifest(addr);
    let path = format!("{SET}/snapshot/{}", first.snapshot.sha256);
    let snapshot = get(addr, &path, &[]);
    assert_eq!(
        snapshot.field("cache-control"),
        "public, max-age=31536000, immutable"
    );
    assert_eq!(Digest::compute(&snapshot.body), first.snapshot.sha256);
    let filter = Filter::open(snapshot.body).expect("the filter is valid");
    assert!((0..3000).all(|id| filter.contains(IdHasher::default().hash_integer(id))));

    assert_eq!(
        post(addr, &format!("{SET}/ids"), "3000\n3001\n").status,
        200
    );
    let second = manifest(addr);
    assert!(second.serial > first.serial && second.head == first.head + 1);
    let delta = second.deltas.last().expect("the delta is valid");
    let response = get(addr, &format!("{SET}/delta/{}", delta.sha256), &[]);
    assert_eq!(response.body.len() as u64, delta.bytes);
    let delta = Delta::from_bytes(&response.body).expect("the delta is valid");
    assert!(
        delta
            .ids()
            .contains(&IdHasher::default().hash_integer(3001))
    );
}

#[test]
fn caches_can_use_validators_ranges_and_head_requests() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let publisher = start(config(folder.path()), &Table::with(0..3000));
    let addr = publisher.addr();
    let path = format!("{SET}/snapshot/{}", manifest(addr).snapshot.sha256);
    let snapshot = get(addr, &path, &[]);
    let tag = snapshot.field("etag").to_owned();
    assert!(tag.starts_with('"'), "strong");
    let unchanged = get(addr, &path, &[("if-none-match", &tag)]);
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
    assert_eq!(unchanged.field("etag"), tag);
    let part = get(
        addr,
        &path,
        &[("range", "bytes=100-199"), ("if-range", &tag)],
    );
    assert_eq!(
        (part.status, &part.body[..]),
        (206, &snapshot.body[100..200])
    );
    let total = format!("bytes 100-199/{}", snapshot.body.len());
    assert_eq!(part.field("content-range"), total);
    let beyond = get(addr, &path, &[("range", "bytes=99999999-")]);
    assert_eq!(beyond.status, 416);
    let head = send_request(addr, "HEAD", &path, &[], b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(
        head.field("content-length"),
        snapshot.body.len().to_string()
    );

    let manifest = get(addr, SET, &[]);
    assert_eq!(manifest.field("cache-control"), "public, max-age=1");
    assert!(manifest.field("vary").contains("edgeward-challenge"));
}

/// A proof echoes its challenge, is signed, and must not be cached. The proof covers all ids that
/// were committed at least `lag_ms` before it.
#[test]
fn a_challenge_is_answered_by_a_proof() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let mut config = config(folder.path());
    config.coverage = Coverage::Posts;
    let publisher = start(config, &Table::with(0..10));
    let echo = "00112233445566778899aabbccddeeff";
    let response = get(publisher.addr(), SET, &[("edgeward-challenge", echo)]);
    assert_eq!(response.field("cache-control"), "no-store");
    let line = response.field("edgeward-proof");
    let proof = Proof::from_line(line.as_bytes(), &trust()).expect("the signature is valid");
    assert_eq!((proof.echo.as_str(), proof.lag_ms), (echo, 0));
    let manifest = Manifest::from_line(&response.body, &trust()).expect("the signature is valid");
    assert_eq!((proof.serial, proof.head), (manifest.serial, manifest.head));
    let wrong = get(publisher.addr(), SET, &[("edgeward-challenge", "0011")]);
    assert_eq!(wrong.status, 400);
}

/// A client with the newest state waits at most `wait` milliseconds, and gets a response as soon as an id is posted.
#[test]
fn a_waiting_client_gets_the_manifest_when_an_id_is_posted() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let publisher = start(config(folder.path()), &Table::with(0..10));
    let addr = publisher.addr();
    let have = |manifest: &Manifest| {
        let (lineage, epoch) = (manifest.lineage, manifest.snapshot.epoch);
        format!("{SET}?have={lineage}-{epoch}-{}", manifest.head)
    };
    let current = manifest(addr);
    let unchanged = get(addr, &format!("{}&wait=1", have(&current)), &[]);
    assert_eq!(unchanged.status, 204);
    let path = format!("{}&wait=20000", have(&current));
    let waiting = std::thread::spawn(move || get(addr, &path, &[]));
    assert_eq!(post(addr, &format!("{SET}/ids"), "77").status, 200);
    let response = waiting.join().expect("a response arrives");
    let newer = Manifest::from_line(&response.body, &trust()).expect("the manifest is valid");
    assert_eq!(newer.head, current.head + 1);
}

/// Posts without the token, too large, malformed, or with more ids than the journal accepts are refused, as are
/// requests for wrong paths. No id is journaled.
#[test]
fn invalid_posts_are_refused() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let mut config = config(folder.path());
    config.hasher.form = edgeward_filter::IdForm::Integer;
    config.limits.post_bytes_max = 100;
    config.limits.journal_ids_max = 3;
    let publisher = start(config, &Table::with(0..10));
    let addr = publisher.addr();
    let ids = format!("{SET}/ids");
    let head = manifest(addr).head;
    let statuses = [
        send_request(addr, "POST", &ids, &[], b"1").status,
        send_request(
            addr,
            "POST",
            &ids,
            &[("authorization", "Bearer wrong-wrong-wrong-")],
            b"1",
        )
        .status,
        post(addr, &ids, "1\nno number\n").status,
        post(addr, &ids, &"1\n".repeat(60)).status,
        post(addr, &ids, "1\n2\n3\n4\n").status,
        post(addr, SET, "1").status,
        get(addr, &ids, &[]).status,
        get(addr, "/sets/other", &[]).status,
        get(addr, &format!("{SET}/delta/00"), &[]).status,
    ];
    assert_eq!(statuses, [401, 401, 400, 413, 503, 405, 405, 404, 404]);
    assert_eq!(manifest(addr).head, head);
    assert_eq!(post(addr, &ids, "1\n2\n3").status, 200);
    assert_eq!(manifest(addr).head, head + 1);
}

/// Paths are compared by whole segments: a set whose name begins with this set's name is another set.
#[test]
fn a_path_of_another_set_is_not_found() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let publisher = start(config(folder.path()), &Table::with(0..10));
    let addr = publisher.addr();
    let (head, snapshot) = (manifest(addr).head, manifest(addr).snapshot.sha256);
    for path in [
        "/sets/resourceANY/ids".to_owned(),
        "/sets/resourceANY/removed".to_owned(),
        format!("{SET}/ids/"),
        format!("{SET}//ids"),
        format!("/x{SET}/ids"),
    ] {
        assert_eq!(post(addr, &path, "77").status, 404, "POST {path}");
    }
    for path in [
        "/sets/resourceANY".to_owned(),
        format!("{SET}/"),
        format!("/{SET}"),
        format!("/sets/resourceANY/snapshot/{snapshot}"),
    ] {
        assert_eq!(get(addr, &path, &[]).status, 404, "GET {path}");
    }
    assert_eq!(manifest(addr).head, head, "no id was journaled");
}

/// After a restart, acknowledged ids are present, and the serial number of the manifest is larger than before.
#[test]
fn a_restart_continues_with_the_stored_state() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let table = Table::with(0..1000);
    let publisher = start(config(folder.path()), &table);
    let ids = format!("{SET}/ids");
    (0..5).for_each(|n| {
        let id = format!("{}", 5000 + n);
        assert_eq!(post(publisher.addr(), &ids, &id).status, 200);
    });
    let before = manifest(publisher.addr());
    publisher.shutdown();

    let empty = Table::default();
    // A scan of an empty source fails, so the publisher serves the stored state.
    let publisher =
        Publisher::start(config(folder.path()), Box::new(empty)).expect("the publisher starts");
    let after = manifest(publisher.addr());
    // The folder may have been restored from a backup, so each start begins a new lineage of journal numbers.
    assert_ne!(after.lineage, before.lineage);
    assert_eq!(after.head, before.head);
    assert_eq!(after.snapshot, before.snapshot);
    assert!(after.serial > before.serial);
    wait_until("the scan of the empty source fails", || {
        (publisher.scans_failed() > 0).then_some(())
    });
    assert_eq!(
        manifest(publisher.addr()).snapshot,
        before.snapshot,
        "the last valid snapshot stays"
    );
    publisher.shutdown();

    let publisher =
        Publisher::start(config(folder.path()), Box::new(table)).expect("the publisher starts");
    assert!(publisher.wait_published(after.snapshot.epoch, support::WAIT_MAX));
    let newest = manifest(publisher.addr());
    assert!(newest.snapshot.epoch > after.snapshot.epoch);
    // This id was posted but is not in the table. The snapshot contains it, because the journal does.
    let path = format!("{SET}/snapshot/{}", newest.snapshot.sha256);
    let filter = Filter::open(get(publisher.addr(), &path, &[]).body).expect("the filter is valid");
    assert!(filter.contains_spelling(b"5004"));
}

/// A first scan without ids has no earlier count to compare with, and is refused nevertheless.
#[test]
fn a_first_scan_without_ids_is_published_only_on_demand() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let publisher = Publisher::start(config(folder.path()), Box::new(Table::default()));
    let publisher = publisher.expect("the publisher starts");
    wait_until("the scan fails", || {
        (publisher.scans_failed() > 0).then_some(())
    });
    assert_eq!(publisher.published(), None);
    publisher.shutdown();
    let folder = tempfile::tempdir().expect("the folder is created");
    let mut accepting = config(folder.path());
    accepting.least_share = 0.0;
    let publisher = Publisher::start(accepting, Box::new(Table::default()));
    let publisher = publisher.expect("the publisher starts");
    assert!(publisher.wait_published(0, support::WAIT_MAX));
}

/// White space and a byte order mark are no part of an id. A list that is no text with one id per line is refused.
#[test]
fn a_posted_list_is_text_with_one_id_per_line() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let publisher = start(config(folder.path()), &Table::with(0..1000));
    let ids = format!("{SET}/ids");
    for (list, status) in [
        ("\u{feff}5000\n 5001 \r\n\n", 200),
        ("5002\tname\n", 400),
        ("\"5002\"\n", 400),
        ("5\x00002\x00", 400),
    ] {
        assert_eq!(
            post(publisher.addr(), &ids, list).status,
            status,
            "{list:?}"
        );
    }
}

/// Method: four threads post ids at the same time. Every post is acknowledged, and every id is in a delta of the
/// manifest.
#[test]
fn posts_from_many_writers_are_all_journaled() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let mut config = config(folder.path());
    config.limits.superseded_files_max = 8;
    let publisher = start(config, &Table::with(0..10));
    let addr = publisher.addr();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            scope.spawn(move || {
                for n in 0..25 {
                    let id = format!("{}", 1000 * (writer + 1) + n);
                    assert_eq!(post(addr, &format!("{SET}/ids"), &id).status, 200);
                }
            });
        }
    });
    let manifest = manifest(addr);
    let mut found = std::collections::HashSet::new();
    for entry in &manifest.deltas {
        let response = get(addr, &format!("{SET}/delta/{}", entry.sha256), &[]);
        let delta = Delta::from_bytes(&response.body).expect("the delta is valid");
        found.extend(delta.ids().iter().copied());
    }
    for writer in 0..4u64 {
        for n in 0..25 {
            let id = IdHasher::default().hash_integer(i128::from(1000 * (writer + 1) + n));
            assert!(found.contains(&id), "{writer}, {n}");
        }
    }
}

#[test]
fn the_admin_address_serves_metrics_and_status() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let mut config = config(folder.path());
    config.admin = Some(([127, 0, 0, 1], 0).into());
    let publisher = start(config, &Table::with(0..10));
    post(publisher.addr(), &format!("{SET}/ids"), "11");
    let admin = publisher
        .admin_addr()
        .expect("the admin address is configured");
    let metrics = get(admin, "/metrics", &[]).text().to_owned();
    for line in [
        "edgeward_publish_posts_total 1",
        "edgeward_publish_scans_total 1",
        "edgeward_publish_snapshot_ids 10",
        "edgeward_publish_journal_ids 1",
    ] {
        assert!(
            metrics.lines().any(|has| has == line),
            "no `{line}` in\n{metrics}"
        );
    }
    let status: serde_json::Value =
        serde_json::from_slice(&get(admin, "/status", &[]).body).expect("the status is JSON");
    assert_eq!(status["now"]["snapshot_ids"], 10);
    assert_eq!(get(admin, "/healthz", &[]).text(), "ok\n");
}

/// A feed does not send ids that were committed before it began. A proof therefore needs a scan that began after the
/// feed.
#[test]
fn a_proof_needs_a_scan_that_began_after_the_feed() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let mut config = config(folder.path());
    config.coverage = Coverage::Feed;
    let clock = config.clock.clone();
    let publisher = start(config, &Table::with(0..10));
    let addr = publisher.addr();
    let (before, _) = publisher.published().expect("a snapshot is published");
    let proof = || {
        let echo = [("edgeward-challenge", "00112233445566778899aabbccddeeff")];
        let response = get(addr, SET, &echo);
        let line = response.field("edgeward-proof").to_owned();
        (!line.is_empty())
            .then(|| Proof::from_line(line.as_bytes(), &trust()).expect("the signature is valid"))
    };
    assert!(proof().is_none(), "no feed has begun yet");
    let feed = publisher.feed("the table's changes");
    assert_eq!(feed.begin(), Ok(()));
    assert!(publisher.wait_published(before, support::WAIT_MAX));
    assert!(proof().is_none(), "the feed has not sent a batch yet");
    let hash = |id| IdHasher::default().hash_integer(id);
    let complete = clock().monotonic;
    let changes = |added: Vec<i128>, removed: Vec<i128>, complete| Changes {
        added: added.into_iter().map(hash).collect(),
        removed: removed.into_iter().map(hash).collect(),
        complete_until: complete,
        position: None,
    };
    let sent = feed.blocking_send(changes(vec![100, 101], vec![101], Some(complete)));
    assert_eq!(sent, Ok(()));
    let first_proof = wait_until("a proof relies on the feed", &proof);
    assert_eq!(first_proof.head, manifest(addr).head);
    // A batch that does not set `complete_until`: the lag in the proof grows, because the covered time stays.
    let sent = feed.blocking_send(changes(vec![102], vec![], None));
    assert_eq!(sent, Ok(()));
    wait_until("the batch is published", || {
        (manifest(addr).head > first_proof.head).then_some(())
    });
    let later_proof = proof().expect("the publisher still signs a proof");
    let elapsed_ms = (clock().monotonic - complete).as_millis();
    assert!(
        later_proof.lag_ms >= first_proof.lag_ms
            && u128::from(later_proof.lag_ms) <= elapsed_ms + 1
    );
    publisher.shutdown();
    assert!(
        feed.blocking_send(Changes::default()).is_err(),
        "the publisher has stopped"
    );
}

fn prove(addr: std::net::SocketAddr) -> Option<Proof> {
    let echo = [("edgeward-challenge", "00112233445566778899aabbccddeeff")];
    let response = get(addr, SET, &echo);
    let line = response.field("edgeward-proof").to_owned();
    (!line.is_empty())
        .then(|| Proof::from_line(line.as_bytes(), &trust()).expect("the signature is valid"))
}

/// A scan does not increase the journal number. Manifests and proofs therefore name the snapshot of the scan by its
/// epoch.
#[test]
fn a_statement_about_a_scan_names_its_snapshot() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let publisher = start(config(folder.path()), &Table::with(0..10));
    let addr = publisher.addr();
    for _ in 0..3 {
        let (epoch, _) = publisher.published().expect("a snapshot is published");
        let (manifest, proof) = (manifest(addr), prove(addr).expect("a scan is published"));
        assert_eq!((manifest.snapshot.epoch, manifest.head), (epoch, 0));
        assert_eq!((manifest.epoch_min, proof.epoch_min), (epoch, epoch));
        publisher.rebuild();
        assert!(publisher.wait_published(epoch, support::WAIT_MAX));
    }
}

/// A feed without a stored position misses the changes before it began. Only a scan that begins later has them.
#[test]
fn a_feed_that_cannot_continue_requires_a_later_snapshot() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let mut config = config(folder.path());
    config.coverage = Coverage::Feed;
    let clock = config.clock.clone();
    let publisher = start(config, &Table::with(0..10));
    let mut required = Vec::new();
    for name in ["one", "another"] {
        let (before, _) = publisher.published().expect("a snapshot is published");
        let feed = publisher.feed(name);
        assert_eq!(feed.begin(), Ok(()));
        let proof = wait_until("a scan that began after the feed is published", || {
            let sent = feed.blocking_send(Changes {
                complete_until: Some(clock().monotonic),
                ..Changes::default()
            });
            assert_eq!(sent, Ok(()));
            prove(publisher.addr())
        });
        assert!(proof.epoch_min > before, "{proof:?}");
        required.push(proof.epoch_min);
    }
    assert!(required[1] > required[0], "{required:?}");
}

/// A folder restored from a backup lacks the ids that were acknowledged after the backup. No proof is signed before a
/// scan is published. The writers of the lost ids commit them at most `commit_within` after the restart. Only a scan
/// that begins after this time finds all of them, so proofs have a lag until such a scan is published.
#[test]
fn proofs_of_a_restored_folder_have_a_lag_until_a_scan_after_commit_within() {
    let (folder, backup) = (tempfile::tempdir(), tempfile::tempdir());
    let (folder, backup) = (
        folder.expect("the folder is created"),
        backup.expect("the folder is created"),
    );
    let table = Table::with(0..10);
    let config_with_posts = |state: &std::path::Path, commit_within| {
        let mut config = config(state);
        config.coverage = Coverage::Posts;
        config.commit_within = commit_within;
        config
    };
    let publisher = start(config_with_posts(folder.path(), Duration::ZERO), &table);
    let lineage = manifest(publisher.addr()).lineage;
    assert_eq!(
        prove(publisher.addr())
            .expect("the publisher signs a proof")
            .lag_ms,
        0
    );
    publisher.shutdown();
    for entry in std::fs::read_dir(folder.path()).expect("the folder is readable") {
        let entry = entry.expect("the folder is readable");
        std::fs::copy(entry.path(), backup.path().join(entry.file_name()))
            .expect("the file is copied");
    }

    // With the original folder, the publisher signs proofs immediately, in a new lineage.
    let hour = Duration::from_secs(3600);
    let run_publisher = |state, commit_within| {
        let config = config_with_posts(state, commit_within);
        Publisher::start(config, Box::new(Table::default())).expect("the publisher starts")
    };
    let publisher = run_publisher(folder.path(), hour);
    assert_eq!(
        prove(publisher.addr())
            .expect("the publisher signs a proof")
            .lag_ms,
        0
    );
    assert_ne!(manifest(publisher.addr()).lineage, lineage);
    publisher.shutdown();

    // With the copy, the publisher signs no proof, also after a second start.
    for _ in 0..2 {
        let publisher = run_publisher(backup.path(), hour);
        assert_eq!(prove(publisher.addr()), None);
        publisher.shutdown();
    }
    // A scan that begins before `commit_within` has passed covers only the ids that were committed before this
    // scan. A later scan covers all acknowledged ids.
    let publisher = start(
        config_with_posts(backup.path(), Duration::from_millis(1500)),
        &table,
    );
    let early_proof = wait_until("a scan is published", || prove(publisher.addr()));
    let late_proof = wait_until("a scan after commit_within is published", || {
        prove(publisher.addr()).filter(|proof| proof.lag_ms == 0)
    });
    assert!(late_proof.epoch_min > early_proof.epoch_min || early_proof.lag_ms == 0);
}

/// After a restart, the feed continues at its stored position, and its first batch suffices for a proof without
/// a scan. A feed with another name has no stored position and needs a scan.
#[test]
fn a_feed_continues_at_its_position_after_a_restart() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let run_publisher = |table: &Table, feed: &str| {
        let mut config = config(folder.path());
        config.coverage = Coverage::Feed;
        let clock = config.clock.clone();
        // A scan that finds fewer ids than the previous scan fails, so the second and third publisher publish
        // no scan.
        config.least_share = 1.0;
        let publisher =
            Publisher::start(config, Box::new(table.clone())).expect("the publisher starts");
        let feed = publisher.feed(feed);
        (publisher, feed, clock)
    };
    let proof = |publisher: &RunningPublisher| {
        let echo = [("edgeward-challenge", "00112233445566778899aabbccddeeff")];
        let response = get(publisher.addr(), SET, &echo);
        let line = response.field("edgeward-proof").to_owned();
        (!line.is_empty())
            .then(|| Proof::from_line(line.as_bytes(), &trust()).expect("the signature is valid"))
    };
    let changes = |id: i128, complete, position| Changes {
        added: vec![IdHasher::default().hash_integer(id)],
        complete_until: Some(complete),
        position: Some(position),
        ..Changes::default()
    };

    let (publisher, feed, clock) = run_publisher(&Table::with(0..10), "one");
    assert_eq!(feed.position(), None);
    assert_eq!(feed.begin(), Ok(()));
    wait_until("a scan that began after the feed is published", || {
        let sent = feed.blocking_send(changes(100, clock().monotonic, -7));
        assert_eq!(sent, Ok(()));
        proof(&publisher)
    });
    let send = || {
        let sent = feed.blocking_send(changes(100, clock().monotonic, -6));
        assert_eq!(sent, Ok(()));
    };
    send();
    let head = manifest(publisher.addr()).head;
    send();
    assert_eq!(
        manifest(publisher.addr()).head,
        head,
        "the id was already journaled"
    );
    publisher.shutdown();

    let (publisher, feed, clock) = run_publisher(&Table::default(), "one");
    assert_eq!(feed.position(), Some(-6));
    assert_eq!(feed.begin(), Ok(()));
    assert!(
        proof(&publisher).is_none(),
        "the feed has not sent a batch yet"
    );
    assert_eq!(
        feed.blocking_send(changes(101, clock().monotonic, -5)),
        Ok(())
    );
    assert_eq!(
        proof(&publisher).map(|proof| proof.head),
        Some(manifest(publisher.addr()).head)
    );
    publisher.shutdown();

    let (publisher, feed, clock) = run_publisher(&Table::default(), "another");
    assert_eq!(feed.position(), None);
    assert_eq!(feed.begin(), Ok(()));
    assert_eq!(
        feed.blocking_send(changes(102, clock().monotonic, 1)),
        Ok(())
    );
    assert!(proof(&publisher).is_none(), "a scan is needed");
}

/// A full journal refuses changes. The feed sends the refused changes again, and the journal accepts them after
/// the next snapshot.
#[test]
fn refused_changes_are_accepted_after_the_next_snapshot() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let mut config = config(folder.path());
    config.coverage = Coverage::Feed;
    config.commit_within = Duration::ZERO;
    config.limits.journal_ids_max = 100;
    let publisher = start(config, &Table::with(0..10));
    let feed = publisher.feed("the table's changes");
    assert_eq!(feed.begin(), Ok(()));
    let batch = |from: i128| Changes {
        added: (from..from + 60)
            .map(|id| IdHasher::default().hash_integer(id))
            .collect(),
        ..Changes::default()
    };
    let mut refused = 0;
    for n in 0..5 {
        wait_until("the batch is accepted", || {
            match feed.blocking_send(batch(n * 1000)) {
                Ok(()) => Some(()),
                Err(error) => {
                    assert_eq!(error, FeedError::Full);
                    refused += 1;
                    None
                }
            }
        });
    }
    assert!(refused > 0);
}
