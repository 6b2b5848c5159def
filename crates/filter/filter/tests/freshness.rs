//! Simulates a client and checks: an id committed more than `max_staleness` ago is never answered `Absent`.
//!
//! A simulation has one database, one publisher, one client, and a network that loses, delays, duplicates,
//! reorders and replays messages. The publisher dies and returns, with its journal or without. Wall clocks are
//! stepped by up to an hour in both directions; the client's machine sleeps. Time is simulated: a run counts
//! milliseconds and never waits. Each run has a seed, which a failure prints. `EDGEWARD_SIM_SEED=…` runs only this
//! seed. `EDGEWARD_SIM_RUNS=…` sets the number of runs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use edgeward_filter::client::{Answer, Client, ClientConfig, FetchList, Now};
use edgeward_filter::journal::Journal;
use edgeward_filter::{FilterParams, IdHash, IdHasher, Rate, Signer, StaticBuilder, Trust};
use edgeward_types::{SplitMix64, Timestamp};

/// SplitMix64 (Steele, Lea, Flood, 2014): one stream per run.
struct Dice(SplitMix64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0.draw()
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.roll() % (high - low)
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.roll() % 100 < percent
    }
}

/// How a client learns that it is fresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evidence {
    /// The client requests proofs. Wall clocks may be arbitrarily wrong.
    Proofs,
    /// The client compares the date of a manifest from a cache with its own wall clock. Both wall clocks agree
    /// within a second at the beginning.
    Dates,
}

#[derive(Clone, Debug)]
enum Message {
    /// A poll of the client with this challenge.
    Ask {
        echo: [u8; 16],
    },
    Manifest(Vec<u8>),
    Proof(Vec<u8>),
    Snapshot(Vec<u8>),
    Delta(Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Commit,
    Journal,
    Build,
    Poll,
    Query,
    Failure,
    Deliver(usize),
}

struct World {
    evidence: Evidence,
    dice: Dice,
    /// The time in ms since the start of the run.
    time: u64,
    /// The future events. Each has its time in ms and a sequence number that orders events of the same time.
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    /// The number of events queued so far.
    events: u64,
    /// The messages sent so far, each `None` after its delivery.
    messages: Vec<Option<Message>>,

    /// The time at which each id was committed.
    committed: Vec<u64>,
    signer: Signer,
    /// True while the publisher runs.
    alive: bool,
    journal: Journal,
    /// The number of ids of `committed` that the journal has.
    journaled: usize,
    /// The time in ms up to which the journal has all committed ids.
    covers: u64,
    /// The time by which the publisher's wall clock is ahead of real time, in ms.
    publisher_wall_ahead: i64,
    /// The sequence number of the newest snapshot.
    epoch: u64,
    /// All published snapshots and deltas, by name.
    files: Vec<(String, Message)>,
    /// All published manifests and proofs, the newest last. An attacker replays older ones.
    manifests: Vec<Vec<u8>>,
    proofs: Vec<Vec<u8>>,

    client: Client<Vec<u8>>,
    /// The time by which the client's wall clock is ahead of real time, in ms.
    wall_ahead: i64,
    /// The total time for which the client's machine has slept, in ms.
    slept: u64,
    loss_percent: u64,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// The answers `Absent` for an id that was never committed.
    absent: u64,
    /// The other answers for an id that was never committed.
    not_absent: u64,
    /// The steps of the client's wall clock.
    steps: u64,
    /// The times that the publisher died or returned.
    deaths_and_returns: u64,
    /// The polls that an attacker answered with old documents.
    replays: u64,
}

const STALENESS_MS: u64 = 5_000;
/// The real time at the start of a run, in ms since 1970.
const EPOCH_MS: u64 = 1_800_000_000_000;
const HOUR_MS: i64 = 3_600_000;

impl World {
    fn new(seed: u64, evidence: Evidence) -> Self {
        let mut dice = Dice(SplitMix64(seed));
        let signer = Signer::from_secret([3; 32]);
        let trust = Trust::Keys(vec![signer.public()]);
        let staleness = Duration::from_millis(STALENESS_MS);
        let mut config = ClientConfig::new("resource", trust, staleness);
        if evidence == Evidence::Dates {
            config.clock_error = Some(Duration::from_secs(1));
        }
        // In one run of ten, the overlay is so small that it may become full.
        config.overlay_ids_max = if dice.percent(10) { 50 } else { 100_000 };
        let skew = |dice: &mut Dice| dice.between(0, 500) as i64 - 250;
        let wrong_by_an_hour = |dice: &mut Dice| dice.between(0, 7_200_000) as i64 - HOUR_MS;
        let (publisher_wall_ahead, wall_ahead) = match evidence {
            Evidence::Dates => (skew(&mut dice), skew(&mut dice)),
            Evidence::Proofs => (wrong_by_an_hour(&mut dice), wrong_by_an_hour(&mut dice)),
        };
        let mut world = Self {
            evidence,
            time: 0,
            queue: BinaryHeap::new(),
            events: 0,
            messages: Vec::new(),
            committed: Vec::new(),
            signer,
            alive: true,
            journal: Journal::new("resource", dice.roll(), 1, 0),
            journaled: 0,
            covers: 0,
            publisher_wall_ahead,
            epoch: 0,
            files: Vec::new(),
            manifests: Vec::new(),
            proofs: Vec::new(),
            client: Client::new(config),
            wall_ahead,
            slept: 0,
            loss_percent: dice.between(0, 40),
            counts: Counts::default(),
            dice,
        };
        for event in [
            Event::Commit,
            Event::Journal,
            Event::Build,
            Event::Poll,
            Event::Query,
            Event::Failure,
        ] {
            world.after(world.time + 1, event);
        }
        world
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.events += 1;
        self.queue
            .push(Reverse((self.time + delay, self.events, event)));
    }

    fn now(&self) -> Now {
        let wall = EPOCH_MS as i64 + self.time as i64 + self.wall_ahead;
        Now {
            monotonic: Duration::from_millis(self.time - self.slept + 1000),
            wall: Timestamp::from_millis(wall as u64),
        }
    }

    /// Sends a message over the network, which may lose, delay or duplicate it.
    fn send(&mut self, message: &Message) {
        let copies = 1 + u64::from(self.dice.percent(10));
        for _ in 0..copies {
            if self.dice.percent(self.loss_percent) {
                continue;
            }
            let late = self.dice.percent(5);
            let delay = if late {
                self.dice.between(1_000, 15_000)
            } else {
                self.dice.between(5, 400)
            };
            self.messages.push(Some(message.clone()));
            self.after(delay, Event::Deliver(self.messages.len() - 1));
        }
    }

    fn run(&mut self, until: u64) {
        while let Some(Reverse((time, _, event))) = self.queue.pop() {
            if time > until {
                return;
            }
            self.time = time;
            match event {
                Event::Commit => self.commit(),
                Event::Journal => self.write_journal(),
                Event::Build => self.build(),
                Event::Poll => self.poll(),
                Event::Query => self.query(),
                Event::Failure => self.cause_failure(),
                Event::Deliver(n) => {
                    if let Some(message) = self.messages[n].take() {
                        self.deliver(message);
                    }
                }
            }
        }
    }

    fn commit(&mut self) {
        self.committed.push(self.time);
        let delay = self.dice.between(10, 600);
        self.after(delay, Event::Commit);
    }

    /// The publisher reads new ids and journals them.
    fn write_journal(&mut self) {
        if self.alive {
            let new_ids = self.journaled..self.committed.len();
            self.journaled = self.committed.len();
            self.covers = self.time;
            self.journal.append(new_ids.map(hash).collect());
            for delta in self.journal.deltas() {
                let name = delta.entry.sha256.to_string();
                if !self.files.iter().any(|(listed, _)| *listed == name) {
                    self.files.push((name, Message::Delta(delta.bytes.clone())));
                }
            }
            self.publish_manifest();
        }
        let delay = self.dice.between(100, 800);
        self.after(delay, Event::Journal);
    }

    fn publish_manifest(&mut self) {
        let wall = EPOCH_MS as i64 + self.covers as i64 + self.publisher_wall_ahead;
        // The statement is true for every snapshot from epoch 1 on.
        if let Some(manifest) = self.journal.manifest(wall as u64, Some(1)) {
            self.manifests
                .push(manifest.to_line(Some(&self.signer)).into_bytes());
        }
    }

    fn build(&mut self) {
        if self.alive {
            self.epoch += 1;
            let params = FilterParams {
                epoch: self.epoch,
                ..FilterParams::with_rate(Rate::new(0.01).expect("a rate"))
            };
            let mut builder = StaticBuilder::new(params);
            for id in 0..self.journaled {
                builder
                    .insert(hash(id))
                    .expect("the number of ids is below the limit");
            }
            let bytes = builder
                .finish()
                .expect("random ids are solvable")
                .into_bytes();
            let base = self.journal.head();
            // The journal keeps the deltas after this number, for clients that still use the previous snapshot.
            let keep = base.saturating_sub(self.dice.between(0, 30));
            self.journal.publish(&bytes, self.epoch, base, keep);
            let name = edgeward_filter::Digest::compute(&bytes).to_string();
            self.files.push((name, Message::Snapshot(bytes)));
            self.publish_manifest();
        }
        let delay = self.dice.between(3_000, 12_000);
        self.after(delay, Event::Build);
    }

    /// The client polls and fetches the files that it wants.
    fn poll(&mut self) {
        let mut echo = [0; 16];
        echo[..8].copy_from_slice(&self.dice.roll().to_le_bytes());
        let now = self.now();
        self.client.challenge(now, echo);
        self.send(&Message::Ask { echo });
        let FetchList { snapshot, deltas } = self.client.to_fetch();
        let wanted = snapshot.iter().map(|s| s.sha256);
        let wanted: Vec<_> = wanted.chain(deltas.iter().map(|d| d.sha256)).collect();
        for digest in wanted {
            let name = digest.to_string();
            let file = self.files.iter().find(|(listed, _)| *listed == name);
            if let Some((_, file)) = file.cloned() {
                self.send(&file);
            }
        }
        let delay = self.dice.between(200, 1_000);
        self.after(delay, Event::Poll);
    }

    fn deliver(&mut self, message: Message) {
        let now = self.now();
        // Errors are ignored; the test checks only the guarantee.
        match message {
            Message::Ask { echo } => self.answer_poll(echo),
            Message::Manifest(line) => _ = self.client.accept_manifest(now, &line),
            Message::Proof(line) => _ = self.client.accept_proof(now, &line),
            Message::Snapshot(bytes) => _ = self.client.accept_snapshot(now, bytes),
            Message::Delta(bytes) => _ = self.client.accept_delta(now, &bytes),
        }
    }

    /// Responds to a poll: the publisher itself, a cache, or an attacker who replays old documents.
    fn answer_poll(&mut self, echo: [u8; 16]) {
        if self.dice.percent(15) && !self.manifests.is_empty() {
            self.counts.replays += 1;
            let old = self.dice.roll() as usize;
            let manifest = self.manifests[old % self.manifests.len()].clone();
            self.send(&Message::Manifest(manifest));
            if !self.proofs.is_empty() {
                let proof = self.proofs[old % self.proofs.len()].clone();
                self.send(&Message::Proof(proof));
            }
            return;
        }
        // A cache continues to serve the last manifest of a dead publisher.
        if let Some(manifest) = self.manifests.last().cloned() {
            self.send(&Message::Manifest(manifest));
        }
        if self.alive && self.evidence == Evidence::Proofs {
            let lag = self.time - self.covers;
            let proof = self.journal.prove(echo, lag, 1).to_line(Some(&self.signer));
            self.proofs.push(proof.clone().into_bytes());
            self.send(&Message::Proof(proof.into_bytes()));
        }
    }

    /// Causes a failure: death, stepped clock or sleep.
    fn cause_failure(&mut self) {
        let mut pause_ms = 0;
        match self.dice.between(0, 8) {
            0 => {
                self.alive = !self.alive;
                self.counts.deaths_and_returns += 1;
                if self.alive && self.dice.percent(50) {
                    // The publisher returns without its journal and scans the database. `serial`, from
                    // which it numbers its manifests, must not be below the number of any earlier manifest.
                    let earlier = self.manifests.len() as u64 * 2;
                    let serial = earlier + 1_000 * self.counts.deaths_and_returns;
                    self.journal = Journal::new("resource", self.dice.roll(), serial, 0);
                    self.journal
                        .append((0..self.committed.len()).map(hash).collect());
                    self.journaled = self.committed.len();
                    self.covers = self.time;
                }
            }
            1 | 2 => {
                // The client's wall clock is stepped, with `Evidence::Dates` too. The client compares a date with a
                // clock that starts at the right wall time and never goes back. A step forward makes a date look
                // older, which is safe.
                let step = self.dice.between(0, 7_200_000) as i64 - HOUR_MS;
                self.wall_ahead += step;
                self.counts.steps += 1;
            }
            3 if self.evidence == Evidence::Proofs => {
                self.publisher_wall_ahead += self.dice.between(0, 7_200_000) as i64 - HOUR_MS;
            }
            4 => {
                // The client's machine sleeps, and its monotonic clock stops.
                let sleep = self.dice.between(100, 20_000);
                self.sleep(sleep);
                // At wake-up the client reads its clocks before they are stepped again.
                pause_ms = sleep + 1_000;
            }
            _ => {}
        }
        let delay = pause_ms + self.dice.between(500, 8_000);
        self.after(delay, Event::Failure);
    }

    /// The client's machine sleeps; time passes for all others.
    fn sleep(&mut self, duration: u64) {
        // Events of the client and the network are moved to its wake-up. Events of the database and the
        // publisher stay.
        let events = std::mem::take(&mut self.queue);
        for Reverse((time, n, event)) in events {
            let moved = match event {
                Event::Commit | Event::Journal | Event::Build => time,
                _ => time.max(self.time + duration),
            };
            self.queue.push(Reverse((moved, n, event)));
        }
        self.slept += duration;
    }

    /// Checks the guarantee, and counts the answers `Absent`.
    fn query(&mut self) {
        let now = self.now();
        let old = self
            .committed
            .partition_point(|&at| at + STALENESS_MS <= self.time);
        if old > 0 {
            for _ in 0..4 {
                let id = self.dice.between(0, old as u64) as usize;
                let answer = self.client.answer(now, hash(id));
                assert_ne!(
                    answer,
                    Answer::Absent,
                    "id {id}, committed at {}, is answered absent at {}",
                    self.committed[id],
                    self.time
                );
            }
            // Among the ids that must not be answered `Absent`, the newest is the most likely to be missed.
            let newest = self.client.answer(now, hash(old - 1));
            let committed = self.committed[old - 1];
            assert_ne!(
                newest,
                Answer::Absent,
                "committed at {committed}, answered absent at {}",
                self.time
            );
        }
        // No id this large is ever committed, so a fresh client nearly always answers `Absent`.
        match self
            .client
            .answer(now, hash(usize::MAX - self.committed.len()))
        {
            Answer::Absent => self.counts.absent += 1,
            Answer::Maybe | Answer::Ask(_) => self.counts.not_absent += 1,
        }
        let delay = self.dice.between(5, 60);
        self.after(delay, Event::Query);
    }
}

fn hash(id: usize) -> IdHash {
    IdHasher::default().hash_integer(id as i128)
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs many simulations. Returns their total counts.
fn simulate(evidence: Evidence) -> Counts {
    let runs = variable("EDGEWARD_SIM_RUNS").unwrap_or(RUNS);
    let seeds = match variable("EDGEWARD_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..runs,
    };
    let mut all = Counts::default();
    for seed in seeds {
        let result = std::panic::catch_unwind(|| {
            let mut world = World::new(seed, evidence);
            world.run(60_000);
            world.counts
        });
        let counts = result.unwrap_or_else(|panic| {
            eprintln!("{evidence:?}: the run with EDGEWARD_SIM_SEED={seed} violated the guarantee");
            std::panic::resume_unwind(panic);
        });
        all.absent += counts.absent;
        all.not_absent += counts.not_absent;
        all.steps += counts.steps;
        all.deaths_and_returns += counts.deaths_and_returns;
        all.replays += counts.replays;
    }
    eprintln!("{evidence:?}: {all:?}");
    all
}

/// The number of runs, which is enough for all combinations of failures.
/// `EDGEWARD_SIM_RUNS=100000` takes a night.
const RUNS: u64 = if cfg!(debug_assertions) { 60 } else { 2_000 };

#[test]
fn an_old_id_is_never_answered_absent_with_proofs() {
    let all = simulate(Evidence::Proofs);
    if variable("EDGEWARD_SIM_SEED").is_none() {
        // A client that never answers `Absent` keeps the guarantee too, so the test requires many answers `Absent`.
        assert!(all.absent > all.not_absent / 2, "{all:?}");
        assert!(all.steps > 0 && all.deaths_and_returns > 0 && all.replays > 0);
    }
}

#[test]
fn an_old_id_is_never_answered_absent_with_dates() {
    let all = simulate(Evidence::Dates);
    if variable("EDGEWARD_SIM_SEED").is_none() {
        assert!(all.absent > 0, "{all:?}");
    }
}
