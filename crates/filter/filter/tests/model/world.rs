//! Simulates one run (a "life"): a database, its publisher, a network and a client, in virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::time::Duration;

use edgeward_filter::client::{ClientConfig, Now};
use edgeward_filter::complete::Coverage;
use edgeward_filter::{
    Digest, FilterParams, IdForm, IdHash, IdHasher, Rate, Signer, Trust, UpdatableFilter,
};
use edgeward_types::{SplitMix64, Timestamp};

use crate::dice::Dice;
use crate::life::{ClientEvent, Life};
use crate::publisher::{Fault, Folder, FolderCondition, Publisher, PublisherConfig, SEED, Scan};

/// The wall-clock time at the beginning of a life.
pub(crate) const EPOCH_MS: u64 = 1_800_000_000_000;

/// The number of ids in a life. Each step records an answer for every id.
const IDS_MAX: usize = 28;

const HASHER: IdHasher = IdHasher {
    form: IdForm::Integer,
    seed: SEED,
};

pub(crate) fn hash(id: usize) -> IdHash {
    HASHER.hash_integer(id as i128)
}

/// Parameters drawn once per life.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) coverage: Coverage,
    /// True if the date of a manifest proves freshness to the client, even if a cache served the manifest. Otherwise
    /// each poll requests a proof: a statement of the publisher that repeats a random challenge of the client.
    pub(crate) dated: bool,
    /// `max_staleness` of the client, in ms.
    staleness: u64,
    /// The time from the start of a scan to the start of the next, in ms.
    interval: u64,
    /// The duration of the longest scan, in ms.
    scan_ms_max: u64,
    /// The longest time from a post of an id to its commit, in ms.
    commit_within: u64,
    /// The time between two polls of the feed, in ms.
    poll_every: u64,
    /// The share of lost messages, in percent.
    loss: u64,
    /// The share of failed snapshot downloads, in percent.
    failures: u64,
    /// Snapshots of this epoch or later cannot be downloaded.
    blocked_from: u64,
    /// The probability that an [`Event::Trouble`] causes a failure, in percent.
    trouble: u64,
    /// The time by which the publisher's wall clock is ahead of real time, in ms.
    publisher_wall_ahead: i64,
}

/// The `u64` of an event is the value of `publisher_run` when the event was queued.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A writer inserts or deletes a random id.
    Write,
    /// The database commits this posted id.
    Commit(usize),
    /// The publisher receives the removal of an id, perhaps after the id was committed again.
    Removed(usize),
    ScanBegin(u64),
    ScanEnd(u64),
    FeedPoll(u64),
    FeedBatch(u64),
    ClientPoll,
    /// The publisher, or a cache in front of it, answers the poll that has this challenge.
    Answer([u8; 16]),
    /// The client requests the files that it lacks.
    Fetch,
    /// The client receives the message at this index of `messages`.
    Deliver(usize),
    LookUp,
    /// A failure may occur.
    Trouble,
}

#[derive(Clone, Debug, Default)]
struct Row {
    /// The time of the commit in ms; `None` while the row does not exist.
    committed: Option<u64>,
    /// True if the id was posted and acknowledged and will be committed.
    is_pending: bool,
}

pub(crate) struct World {
    config: PublisherConfig,
    pub(crate) setup: Setup,
    dice: Dice,
    /// The virtual time since the beginning of the life, in ms.
    time: u64,
    /// The pending events. Each has its time in ms, and a sequence number that orders events of the same time.
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    /// The sequence number of the newest event.
    events: u64,
    rows: Vec<Row>,
    /// The publisher while it runs.
    publisher: Option<Publisher>,
    /// The state folder while no publisher runs.
    folder: Option<Folder>,
    /// The condition of `folder`.
    folder_condition: FolderCondition,
    /// A copy of an earlier state folder.
    backup: Option<Folder>,
    /// The number of starts and kills of the publisher so far. Events of earlier numbers are ignored.
    publisher_run: u64,
    /// The current scan, the ids that existed at its start, and the time of its start.
    scan: Option<(Scan, Vec<usize>, u64)>,
    /// The position of the feed in ms, and the value of `publisher_run` when the feed began.
    feed: Option<(u64, u64)>,
    /// The ids that a poll of the feed returned, the time of the poll in ms, and the value of `publisher_run`
    /// at the poll.
    feed_batch: Option<(Vec<usize>, u64, u64)>,
    /// The end of the current or last outage of the database, in ms.
    database_down_until: u64,
    /// All manifests that were published so far.
    manifests: Vec<String>,
    files: HashMap<Digest, Vec<u8>>,
    /// The epoch of each snapshot by its digest.
    epochs: BTreeMap<String, u64>,
    /// All messages that the network did not lose, in the order of sending.
    messages: Vec<ClientEvent>,
    /// The time by which the client's wall clock is ahead of real time, in ms.
    wall_ahead: i64,
    /// The end of the current sleep of the client's machine, in ms. During a sleep the monotonic clock stops.
    asleep_until: u64,
    /// The duration of the current sleep in ms; 0 without a sleep.
    sleep_ms: u64,
    /// The total duration of earlier sleeps, in ms.
    slept_before_ms: u64,
    pub(crate) life: Life,
}

impl World {
    /// Creates the life of a seed. If `signer` is set, every document is signed.
    pub(crate) fn new(seed: u64, signer: Option<Signer>, fault: Fault) -> Self {
        let mut dice = Dice(SplitMix64(seed));
        let interval = dice.between(20, 1200) * 1000;
        let coverage = dice.pick(&[
            Coverage::Scans,
            Coverage::Scans,
            Coverage::Feed,
            Coverage::Posts,
        ]);
        let staleness = match coverage {
            Coverage::Scans => interval * dice.between(60, 300) / 100,
            _ => dice.between(2, 60) * 1000,
        };
        let dated = dice.percent(35);
        let clock_error_ms = 500;
        // The time by which a machine's wall clock is ahead, in ms. With `dated`, two clocks differ by at most
        // `clock_error_ms`.
        let skew = |dice: &mut Dice| match dated {
            true => dice.between(0, clock_error_ms) as i64 - clock_error_ms as i64 / 2,
            false => dice.between(0, 7_200_000) as i64 - 3_600_000,
        };
        let setup = Setup {
            coverage,
            dated,
            staleness,
            interval,
            scan_ms_max: dice.between(1000, interval / 2),
            commit_within: dice.between(1, 60) * 1000,
            poll_every: dice.between(1, 5) * 500,
            loss: dice.pick(&[0, 5, 30]),
            failures: dice.pick(&[0, 20, 70]),
            blocked_from: if dice.percent(25) {
                dice.between(2, 6)
            } else {
                u64::MAX
            },
            trouble: dice.pick(&[0, 20, 60, 90]),
            publisher_wall_ahead: skew(&mut dice),
        };
        let trust = match &signer {
            Some(signer) => Trust::Keys(vec![signer.public()]),
            None => Trust::Transport,
        };
        let mut client_config =
            ClientConfig::new("resource", trust, Duration::from_millis(staleness));
        client_config.clock_error = dated.then(|| Duration::from_millis(clock_error_ms));
        // In some lives, the snapshot or the overlay can exceed its limit.
        client_config.snapshot_bytes_max = dice.pick(&[1 << 30, 1 << 30, 192, 224]);
        client_config.overlay_ids_max = dice.pick(&[1 << 20, 1 << 20, 3]);
        let wall_ahead = skew(&mut dice);
        // A lineage has 53 bits, as in the real publisher.
        let lineage = dice.roll() >> 11;
        let config = PublisherConfig {
            coverage,
            commit_within: setup.commit_within,
            signer,
            fault,
        };
        let mut publisher = Publisher::new(config.clone(), lineage);
        publisher.wall_ahead = setup.publisher_wall_ahead;
        let mut world = Self {
            config,
            setup,
            time: 0,
            queue: BinaryHeap::new(),
            events: 0,
            rows: vec![Row::default(); IDS_MAX],
            publisher: Some(publisher),
            folder: None,
            folder_condition: FolderCondition::Unchanged,
            backup: None,
            publisher_run: 0,
            scan: None,
            feed: None,
            feed_batch: None,
            database_down_until: 0,
            manifests: Vec::new(),
            files: HashMap::new(),
            epochs: BTreeMap::new(),
            messages: Vec::new(),
            wall_ahead,
            asleep_until: 0,
            sleep_ms: 0,
            slept_before_ms: 0,
            life: Life::new(seed, client_config, IDS_MAX),
            dice,
        };
        for row in &mut world.rows[..6] {
            row.committed = Some(0);
        }
        world.time = 1;
        world.start_publisher_events();
        for event in [
            Event::Write,
            Event::ClientPoll,
            Event::LookUp,
            Event::Trouble,
        ] {
            world.after(1, event);
        }
        world
    }

    /// Runs the life. Fails if the client answers `absent` for an id that was committed more than `max_staleness` ago.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        let until = self.setup.interval * 10;
        while let Some(Reverse((time, _, event))) = self.queue.pop() {
            if time > until || self.life.is_long() {
                break;
            }
            self.time = time;
            self.handle_event(event);
            if let Some(violation) = self.life.violation() {
                return Err(format!("{violation} at {} ms; {:?}", self.time, self.setup));
            }
        }
        Ok(())
    }

    /// Returns the life as a script.
    pub(crate) fn script(&self) -> String {
        self.life.script(&self.files)
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.events += 1;
        let at = self.time + delay;
        self.queue.push(Reverse((at, self.events, event)));
    }

    fn now(&self) -> Now {
        let wall = EPOCH_MS as i64 + self.time as i64 + self.wall_ahead;
        // The monotonic clock shows 5 s at the beginning of a life.
        Now {
            monotonic: Duration::from_millis(self.time - self.slept_before_ms + 5000),
            wall: Timestamp::from_millis(wall as u64),
        }
    }

    fn handle_event(&mut self, event: Event) {
        let asleep = self.asleep_until > self.time;
        if !asleep {
            self.slept_before_ms += std::mem::take(&mut self.sleep_ms);
        }
        match event {
            Event::ClientPoll | Event::Fetch | Event::Deliver(_) | Event::LookUp if asleep => {
                self.after(self.asleep_until - self.time, event);
            }
            Event::Write => self.write(),
            Event::Commit(id) => {
                self.rows[id].committed = Some(self.time);
                self.rows[id].is_pending = false;
            }
            Event::Removed(id) => {
                if let Some(publisher) = &mut self.publisher {
                    publisher.remove(hash(id));
                }
            }
            Event::ScanBegin(run) if run == self.publisher_run => self.begin_scan_of_database(),
            Event::ScanEnd(run) if run == self.publisher_run => self.end_scan_of_database(),
            Event::FeedPoll(run) if run == self.publisher_run => self.poll_feed(),
            Event::FeedBatch(run) if run == self.publisher_run => self.apply_feed_batch(),
            Event::ScanBegin(_) | Event::ScanEnd(_) | Event::FeedPoll(_) | Event::FeedBatch(_) => {}
            Event::ClientPoll => self.poll_publisher(),
            Event::Answer(echo) => self.answer_poll(echo),
            Event::Fetch => self.fetch(),
            Event::Deliver(n) => {
                let event = std::mem::replace(&mut self.messages[n], ClientEvent::Observe);
                let is_manifest = matches!(event, ClientEvent::Manifest(_));
                self.handle_client_event(event);
                if is_manifest {
                    self.after(1, Event::Fetch);
                }
            }
            Event::LookUp => {
                self.handle_client_event(ClientEvent::Observe);
                let next = self
                    .dice
                    .between(self.setup.staleness / 6, self.setup.staleness);
                self.after(next, Event::LookUp);
            }
            Event::Trouble => self.cause_failure(),
        }
    }

    /// Passes an event to the client, which then looks up every id.
    fn handle_client_event(&mut self, event: ClientEvent) {
        let now = self.now();
        let is_past_staleness = |row: &Row| {
            let committed = row.committed;
            committed.is_some_and(|at| at + self.setup.staleness < self.time)
        };
        let must_not_be_absent: Vec<bool> = self.rows.iter().map(is_past_staleness).collect();
        self.life.handle(now, event, &must_not_be_absent);
    }

    /// Sends a message to the client, which may be lost, delayed or duplicated.
    fn send(&mut self, event: &ClientEvent) {
        let copies = 1 + u64::from(self.dice.percent(5));
        for _ in 0..copies {
            if self.dice.percent(self.setup.loss) {
                continue;
            }
            let delay = if self.dice.percent(5) {
                self.dice.between(1000, self.setup.staleness * 2)
            } else {
                self.dice.between(5, 400)
            };
            self.messages.push(event.clone());
            self.after(delay, Event::Deliver(self.messages.len() - 1));
        }
    }

    // The database and its writers.

    fn write(&mut self) {
        let delay = self
            .dice
            .between(self.setup.interval / 12, self.setup.interval);
        self.after(delay, Event::Write);
        let id = self.dice.between(0, IDS_MAX as u64) as usize;
        if self.rows[id].is_pending {
            return;
        }
        if self.rows[id].committed.is_some() {
            if self.dice.percent(30) {
                self.rows[id].committed = None;
                let delay = self.dice.between(1, self.setup.scan_ms_max);
                self.after(delay, Event::Removed(id));
            }
            return;
        }
        let posts = self.setup.coverage == Coverage::Posts || self.dice.percent(25);
        let posted = match &mut self.publisher {
            Some(publisher) if posts => {
                publisher.add(vec![hash(id)], self.time);
                true
            }
            _ => false,
        };
        self.record_published();
        if posted {
            self.rows[id].is_pending = true;
            let delay = self.dice.between(0, self.setup.commit_within * 9 / 10);
            self.after(delay, Event::Commit(id));
        } else if self.setup.coverage != Coverage::Posts {
            self.rows[id].committed = Some(self.time);
        }
    }

    // The publisher.

    fn start_publisher_events(&mut self) {
        self.publisher_run += 1;
        (self.scan, self.feed, self.feed_batch) = (None, None, None);
        let run = self.publisher_run;
        if self.setup.coverage == Coverage::Feed {
            self.after(1, Event::FeedPoll(run));
        }
        // The first scan begins after the feed.
        let delay = self.dice.between(2, 2000);
        self.after(delay, Event::ScanBegin(run));
        self.record_published();
    }

    fn kill_publisher(&mut self) {
        if let Some(publisher) = self.publisher.take() {
            self.folder = Some(publisher.folder(&mut self.dice));
            self.publisher_run += 1;
        }
    }

    fn restart_publisher(&mut self) {
        if let Some(folder) = self.folder.take() {
            let lineage = self.dice.roll() >> 11;
            let mut publisher = Publisher::start(
                self.config.clone(),
                folder,
                self.folder_condition,
                self.time,
                lineage,
            );
            publisher.wall_ahead = self.setup.publisher_wall_ahead;
            publisher.make_manifest(self.time);
            self.folder_condition = FolderCondition::Unchanged;
            self.publisher = Some(publisher);
            self.start_publisher_events();
        }
    }

    /// Records the published manifest and files.
    fn record_published(&mut self) {
        let Some(publisher) = &self.publisher else {
            return;
        };
        if let Some((line, _)) = &publisher.manifest
            && self.manifests.last() != Some(line)
        {
            self.manifests.push(line.clone());
        }
        for file in &publisher.files {
            self.files.insert(Digest::compute(file), file.clone());
        }
    }

    fn begin_scan_of_database(&mut self) {
        if self.time < self.database_down_until || self.dice.percent(10) {
            self.after(
                self.setup.interval / 4,
                Event::ScanBegin(self.publisher_run),
            );
            return;
        }
        let Some(publisher) = &mut self.publisher else {
            return;
        };
        let scan = publisher.begin_scan(self.time);
        let ids = (0..IDS_MAX).filter(|&id| self.rows[id].committed.is_some());
        self.scan = Some((scan, ids.collect(), self.time));
        let takes = self.dice.between(500, self.setup.scan_ms_max);
        self.after(takes, Event::ScanEnd(self.publisher_run));
    }

    fn end_scan_of_database(&mut self) {
        let Some((scan, found, began)) = self.scan.take() else {
            return;
        };
        let mut ids: Vec<IdHash> = Vec::new();
        for id in 0..self.rows.len() {
            let row = &self.rows[id];
            let was_present = found.contains(&id);
            let is_in_scan = match row.committed {
                // The row was committed before the scan began and was not removed since then.
                Some(at) if at <= began => true,
                // The row was committed during the scan, perhaps a second time after a removal.
                Some(_) => self.dice.percent(50),
                None => was_present && self.dice.percent(50),
            };
            if is_in_scan {
                ids.push(hash(id));
            }
        }
        let Some(publisher) = &mut self.publisher else {
            return;
        };
        ids.extend(publisher.journaled_ids());
        let params = FilterParams {
            hasher: HASHER,
            epoch: scan.epoch,
            ..FilterParams::with_rate(Rate::new(0.001).expect("a rate"))
        };
        let capacity = ids.len() as u64 + 1;
        let mut filter = UpdatableFilter::new(params, capacity).expect("the filter is small");
        ids.iter()
            .for_each(|id| _ = filter.insert(*id).expect("the filter has space"));
        let bytes = filter.to_filter(scan.epoch).into_bytes();
        publisher.publish(scan, &bytes, self.time);
        let digest = Digest::compute(&bytes);
        self.epochs.insert(digest.to_string(), scan.epoch);
        self.files.insert(digest, bytes);
        let due_at = publisher.scan_due_at();
        self.record_published();
        let next = self
            .setup
            .interval
            .saturating_sub(self.time - began)
            .max(100);
        let early = due_at.map_or(u64::MAX, |at| at.saturating_sub(self.time) + 1);
        self.after(next.min(early), Event::ScanBegin(self.publisher_run));
    }

    fn poll_feed(&mut self) {
        let Some(publisher) = &mut self.publisher else {
            return;
        };
        let is_down = self.time < self.database_down_until;
        if self.feed.is_none() && !is_down {
            // Without a stored position the feed begins now. It then lacks the rows that were committed before.
            let position = publisher.begin_feed(self.time).unwrap_or(self.time);
            self.feed = Some((position, self.publisher_run));
            self.record_published();
        }
        match self.feed {
            Some((position, _)) if !is_down => {
                let newer = |id: &usize| {
                    let committed = self.rows[*id].committed;
                    committed.is_some_and(|at| at >= position && at <= self.time)
                };
                let ids = (0..IDS_MAX).filter(newer).collect();
                self.feed_batch = Some((ids, self.time, self.publisher_run));
                let delay = self.dice.between(1, 300);
                self.after(delay, Event::FeedBatch(self.publisher_run));
            }
            _ => self.after(self.setup.poll_every, Event::FeedPoll(self.publisher_run)),
        }
    }

    fn apply_feed_batch(&mut self) {
        if let (Some((ids, polled_at, _)), Some(publisher)) =
            (self.feed_batch.take(), &mut self.publisher)
        {
            let ids = ids.into_iter().map(hash).collect();
            publisher.apply_changes(ids, polled_at, self.time);
            if let Some((position, _)) = &mut self.feed {
                *position = polled_at;
            }
            self.record_published();
        }
        self.after(self.setup.poll_every, Event::FeedPoll(self.publisher_run));
    }

    // The network.

    fn poll_publisher(&mut self) {
        let echo = self.dice.echo();
        if !self.setup.dated {
            self.handle_client_event(ClientEvent::Challenge(echo));
        }
        if !self.dice.percent(self.setup.loss) {
            let delay = self.dice.between(1, 200);
            self.after(delay, Event::Answer(echo));
        }
        let period = self.setup.staleness / 3;
        let next = self.dice.between(period * 8 / 10, period * 12 / 10 + 2);
        self.after(next, Event::ClientPoll);
        self.after(1, Event::Fetch);
    }

    /// Sends a response to the poll, from the publisher or from a cache in front of it.
    fn answer_poll(&mut self, echo: [u8; 16]) {
        if self.dice.percent(8) && !self.manifests.is_empty() {
            let old = self
                .dice
                .pick(&(0..self.manifests.len()).collect::<Vec<_>>());
            self.send(&ClientEvent::Manifest(self.manifests[old].clone()));
        }
        let Some(publisher) = &mut self.publisher else {
            // A cache still serves the last manifest after the publisher was killed.
            if let Some(line) = self.manifests.last().cloned() {
                self.send(&ClientEvent::Manifest(line));
            }
            return;
        };
        if self.setup.dated
            && publisher
                .manifest
                .as_ref()
                .is_some_and(|(_, made)| made + 1000 < self.time)
        {
            publisher.make_manifest(self.time);
        }
        let manifest = publisher.manifest.clone();
        let proof = (!self.setup.dated)
            .then(|| publisher.prove(echo, self.time))
            .flatten();
        self.record_published();
        let Some((line, _)) = manifest else { return };
        self.send(&ClientEvent::Manifest(line));
        if let Some(proof) = proof {
            self.send(&ClientEvent::Proof(proof));
        }
    }

    fn fetch(&mut self) {
        let (snapshot, deltas) = self.life.to_fetch();
        if let Some(name) = snapshot {
            let epoch = self.epochs.get(&name.to_string()).copied();
            let blocked = epoch.is_none_or(|epoch| epoch >= self.setup.blocked_from);
            if !blocked && !self.dice.percent(self.setup.failures) {
                let file = self.files[&name].clone();
                self.send(&ClientEvent::Snapshot(file));
            }
        }
        for name in deltas {
            let file = self.files.get(&name).cloned();
            if let Some(file) = file {
                self.send(&ClientEvent::Delta(file));
            }
        }
    }

    /// Restarts the client's process, with or without its stored manifest and snapshot.
    fn restart_client(&mut self) {
        self.life.restart(self.now());
        if self.dice.percent(50)
            && let Some((line, file)) = self.life.stored()
        {
            self.handle_client_event(ClientEvent::Manifest(line));
            self.handle_client_event(ClientEvent::Snapshot(file));
        }
    }

    /// Causes a failure with the probability [`Setup::trouble`]: the publisher is killed, restarted or restored from a
    /// backup, the database is down and may lose the position of the feed, the client's wall clock is stepped, or the
    /// client sleeps or restarts. Sometimes the state folder is copied instead, as the backup for a later failure.
    fn cause_failure(&mut self) {
        let next = self
            .dice
            .between(self.setup.interval / 8, self.setup.interval);
        self.after(next, Event::Trouble);
        if !self.dice.percent(self.setup.trouble) {
            return;
        }
        match self.dice.between(0, 12) {
            0 | 1 => self.kill_publisher(),
            2 | 3 => self.restart_publisher(),
            4 => {
                self.kill_publisher();
                self.restart_publisher();
            }
            5 => {
                if let Some(publisher) = &self.publisher {
                    self.backup = Some(publisher.folder(&mut self.dice));
                }
            }
            6 | 7 => {
                if let Some(backup) = self.backup.clone() {
                    self.kill_publisher();
                    self.folder = Some(backup);
                    self.folder_condition = FolderCondition::Restored;
                    self.restart_publisher();
                }
            }
            8 => {
                let down_ms = self.dice.between(1000, self.setup.interval);
                self.database_down_until = self.time + down_ms;
                if self.dice.percent(50)
                    && let Some(publisher) = &mut self.publisher
                {
                    publisher.forget_position();
                    (self.feed, self.feed_batch) = (None, None);
                }
            }
            // A sleeping client neither restarts nor steps its clock: after a sleep it first reads its clocks.
            _ if self.asleep_until >= self.time => {}
            9 => self.restart_client(),
            // With `dated`, the client's clock is not stepped and its machine does not sleep.
            _ if self.setup.dated => {}
            10 => {
                self.wall_ahead += self.dice.between(0, 7_200_000) as i64 - 3_600_000;
                self.handle_client_event(ClientEvent::Observe);
            }
            _ => {
                self.handle_client_event(ClientEvent::Observe);
                self.sleep_ms = self.dice.between(100, self.setup.staleness * 2);
                self.asleep_until = self.time + self.sleep_ms;
                self.after(self.sleep_ms, Event::LookUp);
            }
        }
    }
}
