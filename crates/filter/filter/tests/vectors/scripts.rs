//! The scripts with which the clients in all languages are tested. A script is the life of one client: a random
//! sequence of inputs, and the result that every client must have after each input.
//!
//! In a life, manifests, proofs, snapshots and deltas arrive in order, out of order, twice, late, forged and from a
//! replaced journal, while clocks are stepped. Each step records the time, the input and the result. The result has
//! the outcome (`taken` or the reason for the refusal), the files that the client needs, how long its filter stays
//! fresh, and its answers for some ids. The lives are random but reproducible.

use std::time::Duration;

use edgeward_filter::client::{Client, ClientConfig, Now, UpdateError};
use edgeward_filter::journal::Journal;
use edgeward_filter::manifest::Proof;
use edgeward_filter::{Digest, FilterParams, IdForm, IdHasher, Rate, Signer, StaticBuilder, Trust};
use edgeward_types::{SplitMix64, Timestamp};
use serde_json::{Value, json};

use super::dice::Dice;
use super::golden;
use super::script_format::{letter, outcome};

/// The life of a client, and all documents and files that its publisher has published.
struct Life {
    dice: Dice,
    client: Client<Vec<u8>>,
    monotonic_ms: u64,
    wall_ms: u64,
    signer: Signer,
    journal: Journal,
    /// The number of ids committed so far: the ids from 0 to `ids - 1`.
    ids: u64,
    /// The epoch of the newest snapshot.
    epoch: u64,
    /// The `epoch_min` of manifests and proofs: a client needs a snapshot of this epoch or a later one.
    epoch_min: u64,
    /// Manifests and proofs, one line each.
    documents: Vec<String>,
    /// The indices in `documents` of the manifests.
    manifests: Vec<usize>,
    /// The indices in `documents` of the proofs.
    proofs: Vec<usize>,
    /// The published snapshots and deltas.
    files: Vec<Vec<u8>>,
    /// The random bytes of all challenges.
    echoes: Vec<[u8; 16]>,
    /// One array per step, see [`Life::step`].
    steps: Vec<Value>,
}

const HASHER: IdHasher = IdHasher {
    form: IdForm::Integer,
    seed: 11,
};

const STEPS: usize = 90;

const STALENESS_MS: u64 = 12_000;

impl Life {
    fn new(seed: u64, config: ClientConfig, signer: Signer) -> Self {
        let mut dice = Dice(SplitMix64(seed));
        // The lineage and the serial number exceed 2^53, so a client that stores them as double-precision floats fails.
        let journal = Journal::new("resource", dice.roll() | 1 << 63, (1 << 60) + 1, 11);
        Self {
            client: Client::new(config),
            monotonic_ms: 5_000,
            wall_ms: 1_800_000_000_000,
            signer,
            journal,
            ids: 0,
            epoch: 0,
            epoch_min: 1,
            documents: Vec::new(),
            manifests: Vec::new(),
            proofs: Vec::new(),
            files: Vec::new(),
            echoes: Vec::new(),
            steps: Vec::new(),
            dice,
        }
    }

    fn now(&self) -> Now {
        Now {
            monotonic: Duration::from_millis(self.monotonic_ms),
            wall: Timestamp::from_millis(self.wall_ms),
        }
    }

    fn run(&mut self) {
        self.publish(true);
        while self.steps.len() < STEPS {
            self.advance_clocks();
            match self.dice.below(100) {
                0..12 => self.publish(false),
                12..16 => self.publish(true),
                16 => self.restart_publisher(),
                17..36 => self.send_challenge(),
                36..56 => self.deliver_manifest(),
                56..76 => self.deliver_proof(),
                76..97 => self.deliver_file(),
                _ => self.step("observe", Value::Null, |client, now| {
                    client.observe(now);
                    Ok(())
                }),
            }
        }
    }

    fn advance_clocks(&mut self) {
        let passed = self.dice.below(400);
        self.monotonic_ms += passed;
        self.wall_ms += passed;
        match self.dice.below(200) {
            // The wall clock is stepped back by up to an hour.
            0 => self.wall_ms -= self.dice.below(3_600_000),
            // The wall clock is stepped ahead by up to an hour.
            1 => self.wall_ms += self.dice.below(3_600_000),
            // The machine sleeps, and the monotonic clock stops.
            2 => self.wall_ms += STALENESS_MS + self.dice.below(4_000),
            // The client is idle, and the wall clock is stepped back by the idle time.
            3 => self.monotonic_ms += STALENESS_MS + self.dice.below(4_000),
            _ => {}
        }
    }

    /// Commits one to three ids, and publishes the new deltas and a manifest. If `snapshot` is true, also publishes a
    /// snapshot with all ids.
    fn publish(&mut self, snapshot: bool) {
        let new_ids = 1 + self.dice.below(3);
        let ids = (self.ids..self.ids + new_ids).map(id);
        self.ids += new_ids;
        self.journal.append(ids.collect());
        self.store_deltas();
        if snapshot {
            self.epoch += 1;
            let params = FilterParams {
                hasher: HASHER,
                epoch: self.epoch,
                ..FilterParams::with_rate(Rate::new(0.001).expect("the rate is valid"))
            };
            let mut builder = StaticBuilder::new(params);
            (0..self.ids).for_each(|n| builder.insert(id(n)).expect("the builder accepts the id"));
            let bytes = builder
                .finish()
                .expect("the filter is solvable")
                .into_bytes();
            let head = self.journal.head();
            // Some deltas from before the snapshot are kept, for clients with an older snapshot.
            let keep_from = head.saturating_sub(self.dice.below(4));
            self.journal.publish(&bytes, self.epoch, head, keep_from);
            self.files.push(bytes);
            if self.dice.percent(60) {
                self.epoch_min = self.epoch;
            }
        }
        self.write_manifest();
    }

    fn store_deltas(&mut self) {
        for delta in self.journal.deltas() {
            if !self.files.contains(&delta.bytes) {
                self.files.push(delta.bytes.clone());
            }
        }
    }

    fn write_manifest(&mut self) {
        // The publisher's wall clock is never stepped, unlike the client's.
        let covers_ms = 1_800_000_000_000 + self.monotonic_ms - 5_000;
        if let Some(manifest) = self.journal.manifest(covers_ms, Some(self.epoch_min)) {
            self.manifests.push(self.documents.len());
            self.documents.push(manifest.to_line(Some(&self.signer)));
        }
    }

    /// Restarts the publisher in a new lineage, sometimes without its journal.
    fn restart_publisher(&mut self) {
        let lineage = self.dice.roll();
        if self.dice.percent(50) {
            self.journal = self.journal.clone().with_lineage(lineage);
            self.store_deltas();
            self.write_manifest();
        } else {
            self.journal = Journal::new("resource", lineage, self.journal.serial() + 1000, 11);
            self.epoch_min = self.epoch + 1;
            self.publish(true);
        }
    }

    fn send_challenge(&mut self) {
        let echo = self.dice.echo();
        self.echoes.push(echo);
        let hex = edgeward_filter::to_hex(&echo);
        self.step("challenge", json!(hex), |client, now| {
            assert_eq!(client.challenge(now, echo).len(), 32);
            Ok(())
        });
    }

    /// Delivers a manifest: usually the newest, sometimes an old or forged manifest, or a manifest of another set.
    fn deliver_manifest(&mut self) {
        let newest = self.manifests[self.manifests.len() - 1];
        let at = match self.dice.below(100) {
            0..75 => newest,
            75..90 => self.dice.pick(&self.manifests),
            n => {
                let line = &self.documents[newest];
                self.documents.push(match n {
                    // Two forged manifests: the signature does not match the changed line.
                    90..93 => line.replace("\"head\":", "\"head\": "),
                    93..96 => line.replace("\"set\":\"resource\"", "\"set\":\"else\""),
                    // An `epoch_min` that decreases within the lineage.
                    98 => {
                        let smaller = self.epoch_min - 1;
                        let manifest = self
                            .journal
                            .manifest(0, Some(smaller))
                            .expect("the journal has a snapshot");
                        manifest.to_line(Some(&self.signer))
                    }
                    // An unsigned manifest.
                    96..98 => format!(
                        "unsigned {}",
                        &line[line.find('{').expect("the line contains JSON")..]
                    ),
                    // A signed manifest of another set.
                    _ => {
                        let mut other = Journal::new("other", 1, 1 << 61, 11);
                        other.publish(b"a snapshot", 1, 0, 0);
                        let manifest = other.manifest(0, None).expect("the journal has a snapshot");
                        manifest.to_line(Some(&self.signer))
                    }
                });
                self.documents.len() - 1
            }
        };
        let line = self.documents[at].clone();
        self.step("manifest", json!(at), |client, now| {
            client.accept_manifest(now, line.as_bytes())
        });
    }

    /// Delivers a proof: usually for the newest challenge, sometimes for an old or unknown challenge, and
    /// sometimes an earlier proof again.
    fn deliver_proof(&mut self) {
        let replay = self.dice.percent(15) && !self.proofs.is_empty();
        let at = if replay {
            self.dice.pick(&self.proofs)
        } else {
            let echo = match self.echoes.len() as u64 {
                0 => [0; 16],
                _ if self.dice.percent(3) => self.dice.echo(),
                count if self.dice.percent(20) => self.echoes[self.dice.below(count) as usize],
                count => self.echoes[count as usize - 1],
            };
            let lag_ms = match self.dice.below(20) {
                0 => u64::MAX,
                1 => STALENESS_MS,
                _ => self.dice.below(700),
            };
            let proof = self.journal.prove(echo, lag_ms, self.epoch_min);
            let proof = match self.dice.below(40) {
                0 => Proof {
                    set: "other".to_owned(),
                    ..proof
                },
                1 => Proof {
                    head: proof.head - 1,
                    ..proof
                },
                2 => Proof {
                    serial: proof.serial - 1,
                    ..proof
                },
                _ => proof,
            };
            self.documents.push(proof.to_line(Some(&self.signer)));
            self.proofs.push(self.documents.len() - 1);
            self.documents.len() - 1
        };
        let line = self.documents[at].clone();
        self.step("proof", json!(at), |client, now| {
            client.accept_proof(now, line.as_bytes())
        });
    }

    /// Delivers a file: usually a file that the client needs, sometimes any published file.
    fn deliver_file(&mut self) {
        let to_fetch = self.client.to_fetch();
        let digests = to_fetch.snapshot.map(|snapshot| snapshot.sha256);
        let mut digests = digests
            .into_iter()
            .chain(to_fetch.deltas.iter().map(|delta| delta.sha256));
        let at = match (digests.next(), digests.next()) {
            (Some(first), second) if self.dice.percent(92) => {
                // Sometimes the second file is delivered before the first.
                let name = second.filter(|_| self.dice.percent(10)).unwrap_or(first);
                self.file_index(name).expect("the file was published")
            }
            _ if self.dice.percent(30) => {
                let newest = self
                    .journal
                    .snapshot()
                    .expect("the life began with a snapshot");
                self.file_index(newest.sha256)
                    .expect("the file was published")
            }
            _ => self.dice.below(self.files.len() as u64) as usize,
        };
        let bytes = self.files[at].clone();
        if bytes.starts_with(b"\x89EWF") {
            self.step("snapshot", json!(at), |client, now| {
                client.accept_snapshot(now, bytes)
            });
        } else {
            self.step("delta", json!(at), |client, now| {
                client.accept_delta(now, &bytes)
            });
        }
    }

    fn file_index(&self, name: Digest) -> Option<usize> {
        self.files
            .iter()
            .position(|file| Digest::compute(file) == name)
    }

    /// Executes a step on the client, and records the kind of the input, its argument and the result.
    fn step(
        &mut self,
        kind: &str,
        argument: Value,
        act: impl FnOnce(&mut Client<Vec<u8>>, Now) -> Result<(), UpdateError>,
    ) {
        let now = self.now();
        let outcome = outcome(&act(&mut self.client, now));
        let to_fetch = self.client.to_fetch();
        let snapshot = to_fetch
            .snapshot
            .and_then(|named| self.file_index(named.sha256));
        let deltas: Vec<_> = to_fetch
            .deltas
            .iter()
            .filter_map(|delta| self.file_index(delta.sha256))
            .collect();
        let answers: String = LOOKED_UP_IDS
            .map(|n| letter(self.client.answer(now, id(n))))
            .iter()
            .collect();
        let fresh_ms = self.client.fresh_for(now).as_millis() as u64;
        self.steps.push(json!([
            self.monotonic_ms,
            self.wall_ms,
            kind,
            argument,
            outcome,
            fresh_ms,
            answers,
            snapshot,
            deltas,
        ]));
    }
}

fn id(n: u64) -> edgeward_filter::IdHash {
    HASHER.hash_integer(i128::from(n))
}

/// The ids that are looked up after each step. 0 is in every snapshot; those from 1000 on never exist.
const LOOKED_UP_IDS: [u64; 16] = [
    0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 60, 70, 80, 1000, 1001, 1002,
];

#[test]
fn client_lives_equal_the_golden_scripts() {
    let signer = Signer::from_secret([7; 32]);
    let mut scripts = Vec::new();
    let mut occurred = std::collections::BTreeSet::new();
    // If `dated` is true, the client also accepts the dates of manifests, with clock errors of up to 500 ms.
    for (seed, dated, overlay_ids_max, snapshot_bytes_max) in [
        (1, false, 1 << 20, 1 << 30),
        (2, false, 1 << 20, 1 << 30),
        (3, true, 1 << 20, 1 << 30),
        (4, true, 1 << 20, 1 << 30),
        (5, false, 2, 1 << 30),
        (6, false, 1 << 20, 210),
    ] {
        let trust = Trust::Keys(vec![signer.public()]);
        let mut config = ClientConfig::new("resource", trust, Duration::from_millis(STALENESS_MS));
        config.clock_error = dated.then_some(Duration::from_millis(500));
        config.overlay_ids_max = overlay_ids_max;
        config.snapshot_bytes_max = snapshot_bytes_max;
        let mut life = Life::new(seed, config, signer.clone());
        life.run();
        let asked = LOOKED_UP_IDS.map(|n| n.to_string());
        let files: Vec<_> = life
            .files
            .iter()
            .map(|f| edgeward_filter::to_hex(f))
            .collect();
        for step in &life.steps {
            occurred.insert(step[4].as_str().expect("the outcome is text").to_owned());
            occurred.extend(
                step[6]
                    .as_str()
                    .expect("the answers are text")
                    .chars()
                    .map(String::from),
            );
        }
        let head = json!({
            "seed": seed, "set": "resource", "key": signer.public().to_string(),
            "max_staleness_ms": STALENESS_MS, "clock_error_ms": dated.then_some(500),
            "overlay_ids_max": overlay_ids_max, "snapshot_bytes_max": snapshot_bytes_max,
            "asked": asked,
        });
        let lines = |values: Vec<Value>| {
            let lines: Vec<_> = values.iter().map(|value| format!("  {value}")).collect();
            lines.join(",\n")
        };
        let texts = |texts: Vec<String>| lines(texts.into_iter().map(Value::from).collect());
        scripts.push(format!(
            "{{\"client\": {head},\n\"documents\": [\n{}],\n\"files\": [\n{}],\n\"steps\": [\n{}]}}",
            texts(life.documents),
            texts(files),
            lines(life.steps),
        ));
    }
    // The scripts contain every outcome except `broken` and `contradiction`, which need a publisher with
    // corrupt files. The letters are answers: absent, maybe, ask without a filter, ask with a stale filter.
    for expected in [
        "taken",
        "unbelievable",
        "other-set",
        "replayed",
        "falling",
        "not-asked",
        "unlisted",
        "early",
        "older",
        "too-large",
        "overlay-full",
        "a",
        "m",
        "n",
        "s",
    ] {
        assert!(
            occurred.contains(expected),
            "no script contains `{expected}`"
        );
    }
    golden(
        "scripts.json",
        format!("[{}]\n", scripts.join(",\n")).as_bytes(),
    );
}
