//! Checks over sockets, with failures of all kinds: an id older than `max_staleness` is never answered `Absent`.
//!
//! The tests of the crate `filter` simulate the client's decisions in thousands of runs. This test runs the
//! real programs: the publisher with its journal on disk, HTTP, a relay, and the client with its threads.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use edgeward_filter_client::{Answer, FilterClient};
use edgeward_publish::RunningPublisher;

use edgeward_types::SplitMix64;

use crate::support::{Clocks, Relay, WAIT_MAX, body_at, config, post, publisher, table};

const STALENESS: Duration = Duration::from_millis(600);
const RUN: Duration = Duration::from_secs(6);

/// The relay loses responses, truncates them after their head, and replaces manifests by earlier ones. It is also
/// disconnected, the client's wall clock is stepped by an hour, and the publisher restarts or rebuilds its snapshot.
#[test]
fn an_id_older_than_max_staleness_is_never_answered_absent() {
    let seed = std::env::var("EDGEWARD_SIM_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(20_261_121);
    eprintln!("EDGEWARD_SIM_SEED={seed}");
    let mut dice = SplitMix64(seed);
    let folder = tempfile::tempdir().expect("a folder");
    let table = table(1000);
    let mut running_publisher = Some(publisher(folder.path(), &table));
    let mut addr = running_publisher
        .as_ref()
        .expect("the publisher runs")
        .addr();
    let relay = Relay::in_front_of(addr);
    let earlier_manifests: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let mut tamper_dice = SplitMix64(seed ^ 1);
    relay.tamper(move |path, answer| {
        let is_manifest = path.contains("/resource?") || path.ends_with("/resource");
        let mut earlier_manifests = earlier_manifests
            .lock()
            .expect("no thread panics while it has the lock");
        if is_manifest && earlier_manifests.len() < 1000 {
            earlier_manifests.push(answer.clone());
        }
        match tamper_dice.below(10) {
            0 => None,
            1 if is_manifest => {
                let index = tamper_dice.below(earlier_manifests.len() as u64);
                Some(earlier_manifests[usize::try_from(index).expect("an index is small")].clone())
            }
            2 => Some(answer[..body_at(&answer)].to_vec()),
            _ => Some(answer),
        }
    });
    let clocks = Clocks::default();
    let mut client_config = config(relay.addr, STALENESS);
    client_config.clock = clocks.clock();
    // The timeout for the next bytes of a response.
    client_config.silence_max = Duration::from_millis(500);
    let client = FilterClient::start(client_config).expect("the client starts");

    let mut committed: Vec<(Instant, u64)> = Vec::new();
    // Answers for ids that do not exist: `skipped` counts `Absent`, `asked` the others.
    let (mut skipped, mut asked, mut publisher_stops, mut disconnects) = (0u64, 0u64, 0, 0);
    let mut is_disconnected = false;
    let mut next_id = 10_000;
    let started = Instant::now();
    let mut next_failure_at = started;
    let covers_all_cases = |skipped, publisher_stops, disconnects| {
        skipped > 0 && publisher_stops > 0 && disconnects > 0
    };
    while started.elapsed() < RUN
        || (!covers_all_cases(skipped, publisher_stops, disconnects)
            && started.elapsed() < WAIT_MAX)
    {
        // `post` returns true if the publisher has journaled the id. The test counts the id as committed from then on.
        if running_publisher.is_some() && post(addr, next_id) {
            committed.push((Instant::now(), next_id));
            next_id += 1;
        }
        // The time is read before the lookup, so that each checked id is at least `STALENESS` old.
        let now = Instant::now();
        let old_count = committed.partition_point(|(at, _)| now - *at >= STALENESS);
        for (at, id) in committed[..old_count].iter().rev().take(20) {
            let answer = client.answer(id.to_string());
            assert_ne!(
                answer,
                Answer::Absent,
                "{id}, committed {:?} ago",
                at.elapsed()
            );
        }
        for n in 0..10 {
            match client.answer(format!("no such id {n}")) {
                Answer::Absent => skipped += 1,
                _ => asked += 1,
            }
        }
        if now >= next_failure_at {
            next_failure_at = now + Duration::from_millis(100 + dice.below(400));
            if running_publisher.is_none() || is_disconnected {
                // A failure ends before the next begins; otherwise the filter would never be fresh.
                if running_publisher.is_none() {
                    let restarted = publisher(folder.path(), &table);
                    addr = restarted.addr();
                    running_publisher = Some(restarted);
                }
                relay.connect(addr);
                is_disconnected = false;
                next_failure_at += Duration::from_millis(500);
            } else {
                match dice.below(4) {
                    0 => clocks.step_wall(if dice.below(2) == 0 {
                        3_600_000
                    } else {
                        -3_600_000
                    }),
                    1 => {
                        relay.disconnect();
                        is_disconnected = true;
                        disconnects += 1;
                    }
                    2 => {
                        drop(running_publisher.take());
                        publisher_stops += 1;
                    }
                    _ => running_publisher.iter().for_each(RunningPublisher::rebuild),
                }
            }
        }
    }
    eprintln!(
        "{} ids, {skipped} skipped, {asked} asked, {publisher_stops} publisher stops, {disconnects} disconnects",
        committed.len()
    );
    eprintln!("{:?}", client.status().counts);
    // A client that never answers `Absent` would pass the checks above, so at least one `Absent` is required.
    assert!(covers_all_cases(skipped, publisher_stops, disconnects) && committed.len() > 20);
}
