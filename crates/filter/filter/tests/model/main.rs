//! Simulates random runs and checks: an id committed more than `max_staleness` ago is never answered `absent`.
//!
//! A run ("life") has a database, its publisher, a network and one client, all in virtual time. The publisher
//! scans the database, receives posts and removals, and polls a feed of changes. It is killed and restarted,
//! sometimes with a state folder restored from a backup. Feeds break and continue. Downloads of snapshots fail,
//! are too large for the client, or never succeed. Manifests and proofs are lost, delayed, duplicated and
//! replayed. The client restarts, its clocks are stepped and its machine sleeps. The model knows when each id
//! was committed and looks up all ids at each step.
//!
//! Each life has a seed, and a failing test prints it. `EDGEWARD_SIM_SEED=…` runs one life, `EDGEWARD_SIM_RUNS=…`
//! runs more. `cargo xtask lives` writes lives as scripts for the clients in other languages.
#![forbid(unsafe_code)]

mod dice;
mod life;
mod publisher;
mod script_format;
mod world;

use std::collections::BTreeMap;
use std::io::Write as _;

use edgeward_filter::Signer;
use edgeward_filter::complete::Coverage;
use publisher::Fault;
use world::World;

/// The number of lives in `make test`. `EDGEWARD_SIM_RUNS=100000` takes a quarter of an hour.
const RUNS: u64 = 1000;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn an_id_older_than_max_staleness_is_never_answered_absent() {
    let runs = variable("EDGEWARD_SIM_RUNS").unwrap_or(RUNS);
    let seeds = match variable("EDGEWARD_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..runs,
    };
    // `answered` counts the answers `absent` and `maybe`, `asked` counts the answers `ask`.
    let (mut answered, mut asked, mut outcomes) = (BTreeMap::new(), 0, BTreeMap::new());
    for seed in seeds {
        // Signatures take most of the time, so only some lives have them.
        let signer = (seed % 32 == 0).then(|| Signer::from_secret([7; 32]));
        let mut world = World::new(seed, signer, Fault::None);
        if let Err(violation) = world.run() {
            panic!("the life EDGEWARD_SIM_SEED={seed}: {violation}");
        }
        let kind = match world.setup.coverage {
            Coverage::Scans => "scans",
            Coverage::Posts => "posts",
            Coverage::Feed => "feed",
        };
        *answered.entry((kind, world.setup.dated)).or_insert(0) += world.life.answered;
        asked += world.life.asked;
        for (outcome, count) in &world.life.outcomes {
            *outcomes.entry(*outcome).or_insert(0) += count;
        }
    }
    eprintln!("answered {answered:?}, asked {asked}, outcomes {outcomes:?}");
    if variable("EDGEWARD_SIM_SEED").is_none() {
        // A client that always answers `Ask` would pass the test, so other answers are required too. There are six
        // kinds of lives: three values of `Coverage`, each with manifests that are proved fresh by their date (`dated`)
        // or by a challenge.
        assert_eq!(answered.len(), 6, "{answered:?}");
        let answers: u64 = answered.values().sum();
        assert!(answers > asked / 3, "{answered:?}, asked {asked}");
        assert!(answered.values().all(|&count| count > 0), "{answered:?}");
    }
}

/// A [`Fault`] is a deliberate error of the simulated publisher. The model detects each fault within the first
/// thousand lives.
#[test]
fn each_publisher_fault_is_detected() {
    for fault in [
        // Manifests and proofs accept any snapshot.
        Fault::AnySnapshot,
        // A restart does not begin a new lineage.
        Fault::OneLineage,
        // After a restored backup, the publisher states that it has every posted id.
        Fault::LostPosts,
        // A feed that lost its position is treated as if it had continued.
        Fault::BrokenFeed,
    ] {
        let first = (0..1000).find(|&seed| World::new(seed, None, fault).run().is_err());
        eprintln!("{fault:?}: the first life in which an old id is answered absent is {first:?}");
        assert!(first.is_some(), "{fault:?} is not detected");
    }
}

/// Writes the scripts of `EDGEWARD_LIVES` lives to the file `EDGEWARD_LIVES_FILE`, one per line. The first life
/// has the seed `EDGEWARD_SIM_SEED`. Does nothing if `EDGEWARD_LIVES_FILE` is not set.
#[test]
fn lives_are_written_for_other_languages() {
    let Some(path) = std::env::var_os("EDGEWARD_LIVES_FILE") else {
        return;
    };
    let first = variable("EDGEWARD_SIM_SEED").unwrap_or(0);
    let lives = variable("EDGEWARD_LIVES").unwrap_or(30);
    let mut file = std::fs::File::create(path).expect("the file can be written");
    for seed in first..first + lives {
        let mut world = World::new(seed, Some(Signer::from_secret([7; 32])), Fault::None);
        world.life.start_recording();
        world.run().expect("no old id is answered absent");
        writeln!(file, "{}", world.script()).expect("the file can be written");
    }
}
