//! The client in a simulated run (a "life"), and the script that records what happens to it. A script has the
//! format of `vectors/filter/scripts.json` and one more column: the ids for which the client must not answer
//! `absent`.

use std::collections::HashMap;

use edgeward_filter::client::{Answer, Client, ClientConfig, Now};
use edgeward_filter::{Digest, Trust, to_hex};
use serde_json::{Value, json};

use crate::script_format::{letter, outcome};
use crate::world::hash;

/// An event of a client: it sends a challenge, it receives a document or file, or only time passes.
#[derive(Clone, Debug)]
pub(crate) enum ClientEvent {
    Challenge([u8; 16]),
    Manifest(String),
    Proof(String),
    Snapshot(Vec<u8>),
    Delta(Vec<u8>),
    Observe,
}

/// A client and the record of its events.
pub(crate) struct Life {
    seed: u64,
    config: ClientConfig,
    client: Client<Vec<u8>>,
    /// The number of ids that are looked up in each step.
    ids: usize,
    /// The newest manifest and snapshot, which a client stores on disk and reads after a restart.
    stored: Option<(String, Vec<u8>)>,
    /// Describes the last violation of the guarantee: an answer `absent` for an id that was committed more than
    /// `max_staleness` ago.
    violation: Option<String>,
    /// The number of steps so far.
    step_count: usize,
    /// The number of answers `absent` or `maybe`, also for ids that were never committed.
    pub(crate) answered: u64,
    /// The number of answers `ask`, also for ids that were never committed.
    pub(crate) asked: u64,
    /// The number of steps with each outcome.
    pub(crate) outcomes: HashMap<&'static str, u64>,
    record: Option<Record>,
}

/// The recorded parts of a script. Steps refer to documents and files by their index.
#[derive(Default)]
struct Record {
    documents: Vec<String>,
    document_index: HashMap<String, usize>,
    files: Vec<Digest>,
    file_index: HashMap<Digest, usize>,
    steps: Vec<Value>,
}

impl Record {
    /// Records a document, unless it is already recorded. Returns its index.
    fn document(&mut self, line: String) -> usize {
        let next = self.documents.len();
        let index = *self.document_index.entry(line.clone()).or_insert(next);
        if index == next {
            self.documents.push(line);
        }
        index
    }

    /// Records a file, unless it is already recorded. Returns its index.
    fn file(&mut self, digest: Digest) -> usize {
        let next = self.files.len();
        let index = *self.file_index.entry(digest).or_insert(next);
        if index == next {
            self.files.push(digest);
        }
        index
    }
}

/// A life ends after this number of steps.
const STEPS_MAX: usize = 400;

impl Life {
    pub(crate) fn new(seed: u64, config: ClientConfig, ids: usize) -> Self {
        Self {
            seed,
            client: Client::new(config.clone()),
            config,
            ids,
            stored: None,
            violation: None,
            step_count: 0,
            answered: 0,
            asked: 0,
            outcomes: HashMap::new(),
            record: None,
        }
    }

    /// Records all further events, so that [`Self::script`] can return them.
    pub(crate) fn start_recording(&mut self) {
        self.record = Some(Record::default());
    }

    pub(crate) fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    pub(crate) fn is_long(&self) -> bool {
        self.step_count > STEPS_MAX
    }

    pub(crate) fn to_fetch(&self) -> (Option<Digest>, Vec<Digest>) {
        let to_fetch = self.client.to_fetch();
        (
            to_fetch.snapshot.map(|snapshot| snapshot.sha256),
            to_fetch.deltas.iter().map(|delta| delta.sha256).collect(),
        )
    }

    pub(crate) fn stored(&self) -> Option<(String, Vec<u8>)> {
        self.stored.clone()
    }

    /// Returns the script as one line of JSON. `files` contains all published files.
    pub(crate) fn script(&self, files: &HashMap<Digest, Vec<u8>>) -> String {
        let record = self.record.as_ref().expect("the life is recorded");
        let (config, clock_error) = (&self.config, self.config.clock_error);
        let key = match &config.trust {
            Trust::Keys(keys) => keys[0].to_string(),
            Trust::Transport => {
                panic!("the clients in other languages accept only signed manifests")
            }
        };
        let looked_up: Vec<_> = (0..self.ids).map(|id| id.to_string()).collect();
        let contents: Vec<_> = record
            .files
            .iter()
            .map(|name| to_hex(&files[name]))
            .collect();
        let script = json!({
            "client": {
                "seed": self.seed, "set": config.set, "key": key,
                "max_staleness_ms": config.max_staleness.as_millis() as u64,
                "clock_error_ms": clock_error.map(|error| error.as_millis() as u64),
                "overlay_ids_max": config.overlay_ids_max,
                "snapshot_bytes_max": config.snapshot_bytes_max,
                "asked": looked_up,
            },
            "documents": record.documents, "files": contents, "steps": record.steps,
        });
        script.to_string()
    }

    /// Restarts the client's process: its state is lost.
    pub(crate) fn restart(&mut self, now: Now) {
        self.client = Client::new(self.config.clone());
        self.step(now, "restart", Value::Null, "taken", &vec![false; self.ids]);
    }

    /// Passes an event to the client and then looks up every id. `must_not_be_absent` has an entry per id: true if the
    /// client must not answer `absent` for it.
    pub(crate) fn handle(&mut self, now: Now, event: ClientEvent, must_not_be_absent: &[bool]) {
        let client = &mut self.client;
        let (what, result) = match &event {
            ClientEvent::Challenge(echo) => {
                client.challenge(now, *echo);
                ("challenge", Ok(()))
            }
            ClientEvent::Manifest(line) => {
                ("manifest", client.accept_manifest(now, line.as_bytes()))
            }
            ClientEvent::Proof(line) => ("proof", client.accept_proof(now, line.as_bytes())),
            ClientEvent::Snapshot(file) => ("snapshot", client.accept_snapshot(now, file.clone())),
            ClientEvent::Delta(file) => ("delta", client.accept_delta(now, file)),
            ClientEvent::Observe => {
                client.observe(now);
                ("observe", Ok(()))
            }
        };
        let outcome = outcome(&result);
        if let (ClientEvent::Snapshot(file), Ok(())) = (&event, &result) {
            let line = client
                .manifest_line()
                .expect("a manifest listed the snapshot");
            let line = String::from_utf8(line).expect("a manifest is ASCII");
            self.stored = Some((line, file.clone()));
        }
        let argument = match (&mut self.record, event) {
            (None, _) | (_, ClientEvent::Observe) => Value::Null,
            (_, ClientEvent::Challenge(echo)) => json!(to_hex(&echo)),
            (Some(record), ClientEvent::Manifest(line) | ClientEvent::Proof(line)) => {
                json!(record.document(line))
            }
            (Some(record), ClientEvent::Snapshot(file) | ClientEvent::Delta(file)) => {
                json!(record.file(Digest::compute(&file)))
            }
        };
        self.step(now, what, argument, outcome, must_not_be_absent);
    }

    fn step(
        &mut self,
        now: Now,
        what: &str,
        argument: Value,
        outcome: &'static str,
        must_not_be_absent: &[bool],
    ) {
        self.step_count += 1;
        *self.outcomes.entry(outcome).or_default() += 1;
        let mut answers = String::new();
        for (id, &is_old) in must_not_be_absent.iter().enumerate() {
            let answer = self.client.answer(now, hash(id));
            answers.push(letter(answer));
            match answer {
                Answer::Absent if is_old => {
                    self.violation = Some(format!(
                        "the client answered `absent` for id {id} after `{what}`"
                    ));
                }
                Answer::Absent | Answer::Maybe => self.answered += 1,
                Answer::Ask(_) => self.asked += 1,
            }
        }
        let fresh_ms = self.client.fresh_for(now).as_millis() as u64;
        let (snapshot, deltas) = self.to_fetch();
        let Some(record) = &mut self.record else {
            return;
        };
        let must: String = must_not_be_absent
            .iter()
            .map(|is_old| if *is_old { '!' } else { '.' })
            .collect();
        let snapshot = snapshot.map(|name| record.file(name));
        let deltas: Vec<_> = deltas.into_iter().map(|name| record.file(name)).collect();
        record.steps.push(json!([
            now.monotonic.as_millis() as u64,
            now.wall.as_millis(),
            what,
            argument,
            outcome,
            fresh_ms,
            answers,
            snapshot,
            deltas,
            must,
        ]));
    }
}
