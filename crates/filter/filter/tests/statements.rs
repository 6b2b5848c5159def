//! Tests how single manifests and proofs of a publisher change the freshness of a client's filter.
#![forbid(unsafe_code)]

use std::time::Duration;

use edgeward_filter::client::{Answer, Client, ClientConfig, Now, Reason, UpdateError};
use edgeward_filter::journal::Journal;
use edgeward_filter::manifest::Proof;
use edgeward_filter::{FilterParams, IdHash, IdHasher, Rate, Trust, UpdatableFilter};
use edgeward_types::Timestamp;

const MINUTE: u64 = 60_000;
/// The wall-clock time at the start of a test, in milliseconds since 1970.
const START_MS: u64 = 1_800_000_000_000;

fn id(n: i128) -> IdHash {
    IdHasher::default().hash_integer(n)
}

fn now(ms: u64) -> Now {
    Now {
        monotonic: Duration::from_millis(ms),
        wall: Timestamp::from_millis(START_MS + ms),
    }
}

fn snapshot(epoch: u64, ids: i128) -> Vec<u8> {
    let params = FilterParams {
        epoch,
        ..FilterParams::with_rate(Rate::new(0.0001).expect("the rate is valid"))
    };
    let mut filter = UpdatableFilter::new(params, ids as u64 + 1).expect("the filter is small");
    (0..ids).for_each(|n| _ = filter.insert(id(n)).expect("the filter has space"));
    filter.to_filter(epoch).into_bytes()
}

fn client(staleness_ms: u64, change: impl FnOnce(&mut ClientConfig)) -> Client<Vec<u8>> {
    let staleness = Duration::from_millis(staleness_ms);
    let mut config = ClientConfig::new("resource", Trust::Transport, staleness);
    change(&mut config);
    Client::new(config)
}

/// A publisher whose scans contain all ids committed before they began, and a client that follows this publisher.
struct FollowedPublisher {
    journal: Journal,
    client: Client<Vec<u8>>,
    /// The byte that the last challenge repeats. Each challenge has another byte.
    echo: u8,
}

impl FollowedPublisher {
    fn new(client: Client<Vec<u8>>) -> Self {
        // The lineage is 5, the serial number before the first manifest is 0, and the seed of the ids' hashes is 0.
        let journal = Journal::new("resource", 5, 0, 0);
        Self {
            journal,
            client,
            echo: 0,
        }
    }

    /// Publishes the snapshot of a scan that found the ids from 0 to `ids - 1` and began at `began` (in ms), and
    /// delivers its manifest at the time `at`. Returns the snapshot.
    fn scan(&mut self, epoch: u64, ids: i128, at: u64, began: u64) -> Vec<u8> {
        let file = snapshot(epoch, ids);
        // The snapshot contains all ids up to the journal's head. The 0 keeps all deltas.
        self.journal.publish(&file, epoch, self.journal.head(), 0);
        self.manifest(at, began, epoch)
            .expect("the manifest is newer");
        file
    }

    /// Delivers a manifest at the time `at`. The manifest states that every id committed before `covers` is in the
    /// journal, or in each snapshot from epoch `epoch_min` on. All times are milliseconds since the test's start.
    fn manifest(&mut self, at: u64, covers: u64, epoch_min: u64) -> Result<(), UpdateError> {
        let manifest = self.journal.manifest(START_MS + covers, Some(epoch_min));
        let line = manifest.expect("the journal has a snapshot").to_line(None);
        self.client.accept_manifest(now(at), line.as_bytes())
    }

    /// Sends a challenge at the time `at` and delivers the proof, after `change` modified it. The proof makes the
    /// statement of [`Self::manifest`].
    fn prove(
        &mut self,
        at: u64,
        covers: u64,
        epoch_min: u64,
        change: impl FnOnce(&mut Proof),
    ) -> Result<(), UpdateError> {
        self.echo += 1;
        let echo = [self.echo; 16];
        self.client.challenge(now(at), echo);
        let mut proof = self.journal.prove(echo, at - covers, epoch_min);
        change(&mut proof);
        self.client
            .accept_proof(now(at), proof.to_line(None).as_bytes())
    }
}

/// Checks a client that receives only the first snapshot, although scans begin every 10 minutes and proofs of the
/// later scans arrive. `max_staleness` is 11 minutes. An id was committed after the first scan; 11 minutes later the
/// client must not answer "absent" for it. If `accepts_dates` is true, the date of a manifest can make a filter fresh.
/// A `snapshot_bytes_max` of 200 admits the first snapshot, but not the later ones.
fn check_old_snapshot(accepts_dates: bool, snapshot_bytes_max: u64) {
    let mut publisher = FollowedPublisher::new(client(11 * MINUTE, |config| {
        config.clock_error = accepts_dates.then_some(Duration::from_secs(1));
        config.snapshot_bytes_max = snapshot_bytes_max;
    }));
    let file = publisher.scan(1, 3, 1000, 0);
    publisher
        .client
        .accept_snapshot(now(1000), file)
        .expect("the manifest lists the file");
    publisher
        .prove(1000, 0, 1, |_| {})
        .expect("the proof answers the challenge");
    assert_eq!(publisher.client.answer(now(1000), id(300)), Answer::Absent);
    // The id 300 is committed after one minute, so every later scan contains it.
    for scan in 1..6 {
        let began = scan * 10 * MINUTE;
        publisher.scan(scan + 1, 301, began + 1000, began);
        publisher
            .prove(began + 2000, began, scan + 1, |_| {})
            .expect("the proof answers the challenge");
        let answer = publisher.client.answer(now(began + 3 * MINUTE), id(300));
        assert_eq!(answer, Answer::Ask(Reason::Stale), "scan {scan}");
    }
    let refused = publisher.client.snapshot_refused();
    let too_large = matches!(refused, Some(UpdateError::SnapshotTooLarge { .. }));
    assert_eq!(too_large, snapshot_bytes_max < 1000, "{refused:?}");
    assert_eq!(publisher.client.to_fetch().snapshot.is_none(), too_large);
}

#[test]
fn a_proof_about_a_later_scan_does_not_make_an_old_snapshot_fresh() {
    check_old_snapshot(false, 1 << 30);
    check_old_snapshot(false, 200);
}

#[test]
fn a_date_of_a_later_scan_does_not_make_an_old_snapshot_fresh() {
    check_old_snapshot(true, 1 << 30);
    check_old_snapshot(true, 200);
}

/// After a publisher is restored from a backup, it assigns journal numbers again that the client already has for
/// other ids. The client must refuse a statement if a number in it is smaller than before in the same lineage.
#[test]
fn numbers_that_decrease_within_a_lineage_are_refused() {
    let mut publisher = FollowedPublisher::new(client(MINUTE, |_| {}));
    for n in 0..4 {
        publisher.journal.append(vec![id(1000 + n)]);
    }
    let backup = publisher.journal.clone();
    for n in 4..8 {
        publisher.journal.append(vec![id(1000 + n)]);
    }
    let file = publisher.scan(3, 3, 0, 0);
    publisher
        .client
        .accept_snapshot(now(0), file)
        .expect("the manifest lists the file");
    publisher
        .prove(0, 0, 3, |_| {})
        .expect("the proof answers the challenge");
    let fresh_before = publisher.client.fresh_for(now(1000));
    let newest = publisher.journal.serial();

    let is_decrease = |refused| matches!(refused, Err(UpdateError::Decreased { .. }));
    assert!(is_decrease(
        publisher.prove(1000, 1000, 3, |proof| proof.head -= 1)
    ));
    assert!(is_decrease(publisher.prove(1000, 1000, 2, |_| {})));
    let replayed = publisher.prove(1000, 1000, 3, |proof| proof.serial = newest - 1);
    assert!(matches!(replayed, Err(UpdateError::Replayed { .. })));
    assert!(is_decrease(publisher.manifest(1000, 0, 2)));

    publisher.journal = backup;
    let lower = snapshot(4, 3);
    publisher.journal.publish(&lower, 4, 4, 0);
    while publisher.journal.serial() <= newest + 1 {
        _ = publisher.journal.manifest(0, None);
    }
    assert!(is_decrease(publisher.manifest(1000, 1000, 4)));
    assert!(is_decrease(publisher.prove(1000, 1000, 4, |_| {})));
    assert_eq!(
        publisher.client.fresh_for(now(1000)),
        fresh_before,
        "no refused statement extended the freshness"
    );
}

/// A restarted publisher lists the same snapshot in another lineage. The client does not fetch the snapshot
/// again, and the filter stays fresh until the deadline that it had before.
#[test]
fn a_restart_of_the_publisher_causes_no_download_of_the_snapshot() {
    let mut publisher = FollowedPublisher::new(client(MINUTE, |_| {}));
    let file = publisher.scan(1, 3, 0, 0);
    publisher
        .client
        .accept_snapshot(now(0), file)
        .expect("the manifest lists the file");
    publisher
        .prove(0, 0, 1, |_| {})
        .expect("the proof answers the challenge");
    let fresh_before = publisher.client.fresh_for(now(1000));
    assert!(!fresh_before.is_zero());
    publisher.journal.append(vec![id(7000)]);
    publisher.journal = publisher.journal.clone().with_lineage(6);
    publisher
        .manifest(1000, 0, 1)
        .expect("the manifest is newer");
    let to_fetch = publisher.client.to_fetch();
    assert_eq!((to_fetch.snapshot, to_fetch.deltas.len()), (None, 1));
    assert_eq!(publisher.client.fresh_for(now(1000)), fresh_before);
    publisher
        .prove(2000, 2000, 1, |_| {})
        .expect("the proof answers the challenge");
    assert_eq!(
        publisher.client.fresh_for(now(2000)),
        fresh_before - Duration::from_secs(1)
    );
    let delta = publisher.journal.deltas()[0].bytes.clone();
    publisher
        .client
        .accept_delta(now(2000), &delta)
        .expect("the manifest lists the file");
    assert!(publisher.client.fresh_for(now(2000)) > fresh_before);
    assert_eq!(publisher.client.answer(now(2000), id(7000)), Answer::Maybe);

    // The new lineage lists another snapshot. The earlier deadline applies only to the first snapshot.
    publisher.journal = publisher.journal.clone().with_lineage(7);
    let other = publisher.scan(2, 4, 3000, 3000);
    publisher
        .client
        .accept_snapshot(now(3000), other)
        .expect("the manifest lists the file");
    assert!(publisher.client.fresh_for(now(3000)).is_zero());
}
