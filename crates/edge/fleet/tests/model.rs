//! A model of one node and its stream in virtual time.
//!
//! The stream gets purges at random times, drops its oldest ones, or is created again.
//! Deliveries and answers are delayed, reordered, repeated and lost; the connection breaks; the node is killed, after
//! which it has what it persisted; its log cannot be written for a time. After every step these laws hold:
//!
//! - The node has applied all purges of the stream up to its position, or has purged all objects since. (A position in
//!   a stream that was deleted has no meaning: the node purges all objects when it learns of the next one.)
//! - The node has applied all purges that the stream had at the time at which the node says that it was current.
//!
//! If the faults end, the node reaches the end of the stream within seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use edgeward_fleet::{Action, Applied, Counts, Follower, StreamState, Work};
use edgeward_purge::Stamp;
use edgeward_types::SplitMix64;

/// The number of seeds in a test run. `EDGEWARD_FLEET_SEEDS=100000` runs more.
fn seeds() -> u64 {
    let seeds = std::env::var("EDGEWARD_FLEET_SEEDS").ok();
    seeds.and_then(|seeds| seeds.parse().ok()).unwrap_or(300)
}

#[test]
fn a_node_has_all_purges_up_to_its_position_and_reaches_the_end_of_the_stream() {
    let mut total = Counts::default();
    let (mut kills, mut failed_writes) = (0, 0);
    for seed in 0..seeds() {
        let mut model = Model::new(seed);
        model.run(300);
        model.heal();
        let counts = model.counts();
        total.applied += counts.applied;
        total.repeated += counts.repeated;
        total.resubscribed += counts.resubscribed;
        total.purged_all += counts.purged_all;
        kills += model.kills;
        failed_writes += model.failed_writes;
    }
    // The runs reach the cases.
    let runs = seeds();
    assert!(total.applied > 10 * runs, "{total:?}");
    assert!(total.repeated > runs, "{total:?}");
    assert!(total.resubscribed > runs, "{total:?}");
    assert!(total.purged_all > runs, "{total:?}");
    assert!(kills > runs, "{kills}");
    assert!(failed_writes > runs, "{failed_writes}");
}

/// A published purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Published {
    epoch: u64,
    sequence: u64,
    /// The number of the purge in all streams.
    id: u64,
}

/// A message on its way to the node.
#[derive(Clone, Copy, Debug)]
enum Packet {
    Delivery {
        subscription: u64,
        sequence: u64,
        id: u64,
    },
    State {
        asked_at: Duration,
        state: StreamState,
    },
}

struct Model {
    seed: u64,
    random: SplitMix64,
    now: Duration,
    has_faults: bool,
    // The stream.
    epoch: u64,
    first: u64,
    last: u64,
    kept: BTreeMap<u64, u64>,
    /// All published purges with the time of their acknowledgement.
    published: Vec<(Published, Duration)>,
    /// The subscription of the node, and the next sequence number to deliver.
    subscription: Option<(u64, u64)>,
    packets: Vec<(Duration, Packet)>,
    // The node.
    follower: Follower<u64>,
    earlier: Counts,
    /// The ids of purges that no stored object predates.
    covered: BTreeSet<u64>,
    /// Those that the log has. A crash keeps them.
    persisted: BTreeSet<u64>,
    position: Option<Stamp>,
    /// The batch under way, and its end.
    batch: Option<(Duration, Vec<Work<u64>>, Stamp, bool)>,
    kills: u64,
    failed_writes: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            random: SplitMix64(seed),
            now: Duration::ZERO,
            has_faults: true,
            epoch: 1,
            first: 1,
            last: 0,
            kept: BTreeMap::new(),
            published: Vec::new(),
            subscription: None,
            packets: Vec::new(),
            follower: Follower::new(None, QUEUE_BYTES),
            earlier: Counts::default(),
            covered: BTreeSet::new(),
            persisted: BTreeSet::new(),
            position: None,
            batch: None,
            kills: 0,
            failed_writes: 0,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.draw() % bound
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.has_faults && self.below(n) == 0
    }

    fn counts(&self) -> Counts {
        let (earlier, counts) = (self.earlier, self.follower.counts());
        Counts {
            applied: earlier.applied + counts.applied,
            repeated: earlier.repeated + counts.repeated,
            resubscribed: earlier.resubscribed + counts.resubscribed,
            purged_all: earlier.purged_all + counts.purged_all,
        }
    }

    fn run(&mut self, steps: u64) {
        self.follower.connected(self.now);
        for _ in 0..steps {
            self.change_stream();
            self.break_something();
            self.step();
        }
    }

    /// Ends the faults, and requires that the node reaches the end of the stream.
    fn heal(&mut self) {
        self.has_faults = false;
        self.follower.disconnected();
        self.follower.connected(self.now);
        // The pause after a failed write may take 30 s.
        let end = self.now + Duration::from_secs(60);
        while self.now < end {
            self.step();
        }
        let seed = self.seed;
        let expected = Stamp::at(self.epoch, self.last);
        assert_eq!(self.follower.position(), Some(expected), "seed {seed}");
        assert_eq!(self.follower.behind(), Some(0), "seed {seed}");
        let current_at = self.follower.current_at();
        assert!(
            current_at > Some(end - Duration::from_secs(3)),
            "seed {seed}: {current_at:?}"
        );
    }

    fn change_stream(&mut self) {
        if self.below(2) == 0 {
            self.last += 1;
            let id = self.published.len() as u64;
            self.kept.insert(self.last, id);
            let published = Published {
                epoch: self.epoch,
                sequence: self.last,
                id,
            };
            self.published.push((published, self.now));
        }
        if self.one_in(40) {
            // The limits of the stream drop its oldest messages.
            self.first += self.below(self.last + 2 - self.first);
            self.kept = self.kept.split_off(&self.first);
        }
        if self.one_in(200) {
            self.epoch += 1;
            (self.first, self.last) = (1, 0);
            self.kept.clear();
            self.subscription = None;
        }
        if self.one_in(300) {
            // An operator deletes one message.
            let at = self.below(self.last + 1);
            self.kept.remove(&at);
        }
    }

    fn break_something(&mut self) {
        if self.one_in(30) {
            self.subscription = None;
            self.packets.clear();
            self.follower.disconnected();
            self.follower.connected(self.now);
        }
        if self.one_in(40)
            && let Some((number, _)) = self.subscription.take()
        {
            self.follower.ended(self.now, number);
        }
        if self.one_in(100) {
            self.kill();
        }
    }

    /// Kills the node. A batch under way may have reached the log.
    fn kill(&mut self) {
        self.kills += 1;
        if let Some((_, works, position, true)) = self.batch.take()
            && self.below(2) == 0
        {
            self.cover(&works);
            self.persist(position);
        }
        self.covered.clone_from(&self.persisted);
        self.earlier = self.counts();
        self.follower = Follower::new(self.position, QUEUE_BYTES);
        self.subscription = None;
        self.packets.clear();
        self.follower.connected(self.now);
    }

    fn cover(&mut self, works: &[Work<u64>]) {
        for work in works {
            match work {
                Work::Message(id) => _ = self.covered.insert(*id),
                Work::All => self.covered.extend(0..self.published.len() as u64),
            }
        }
    }

    /// A write of the log persists all that is applied.
    fn persist(&mut self, position: Stamp) {
        self.persisted.clone_from(&self.covered);
        self.position = Some(position);
    }

    fn step(&mut self) {
        let step = 1 + self.below(300);
        self.now += Duration::from_millis(step);
        self.deliver_next();
        self.packets.sort_by_key(|(at, _)| *at);
        while let Some((at, _)) = self.packets.first()
            && *at <= self.now
        {
            let (_, packet) = self.packets.remove(0);
            if self.one_in(20) {
                continue;
            }
            if self.one_in(10) {
                let again = self.now + Duration::from_millis(self.below(2000));
                self.packets.push((again, packet));
                self.packets.sort_by_key(|(at, _)| *at);
            }
            self.receive(packet);
        }
        if self.batch.as_ref().is_some_and(|(at, ..)| *at <= self.now)
            && let Some((_, works, position, writes)) = self.batch.take()
        {
            let outcome = match (self.one_in(20), writes && !self.one_in(5)) {
                (true, _) => Applied::Failed,
                (false, true) => Applied::Persisted,
                (false, false) => Applied::InMemory,
            };
            if outcome != Applied::Failed {
                self.cover(&works);
            }
            match outcome {
                Applied::Persisted => self.persist(position),
                Applied::InMemory => self.failed_writes += 1,
                Applied::Failed => {}
            }
            self.follower.applied(self.now, outcome);
        }
        if self.now >= self.follower.wake_at() {
            self.follower.tick(self.now);
        }
        self.carry_out();
        self.check();
    }

    /// The stream sends up to three messages to the subscriber.
    fn deliver_next(&mut self) {
        for _ in 0..3 {
            let Some((number, next)) = self.subscription else {
                return;
            };
            let Some((&sequence, &id)) = self.kept.range(next..).next() else {
                return;
            };
            self.subscription = Some((number, sequence + 1));
            let packet = Packet::Delivery {
                subscription: number,
                sequence,
                id,
            };
            let delay = match self.has_faults {
                true => self.below(400),
                false => 1,
            };
            self.packets
                .push((self.now + Duration::from_millis(delay), packet));
        }
    }

    fn receive(&mut self, packet: Packet) {
        match packet {
            Packet::Delivery {
                subscription,
                sequence,
                id,
            } => {
                if !self.follower.is_full() {
                    self.follower
                        .delivered(self.now, subscription, sequence, id, 100);
                }
            }
            Packet::State { asked_at, state } => self.follower.stated(self.now, asked_at, state),
        }
    }

    fn carry_out(&mut self) {
        while let Some(action) = self.follower.poll() {
            match action {
                Action::Query => {
                    let state = StreamState {
                        epoch: self.epoch,
                        first: self.first,
                        last: self.last,
                    };
                    let asked_at = self.now;
                    let at = self.now + Duration::from_millis(self.below(500));
                    self.packets.push((at, Packet::State { asked_at, state }));
                }
                Action::Subscribe { subscription, from } => {
                    self.subscription = Some((subscription, from));
                }
                Action::Apply {
                    works,
                    position,
                    writes,
                } => {
                    assert!(self.batch.is_none(), "one batch at a time");
                    let at = self.now + Duration::from_millis(self.below(200));
                    self.batch = Some((at, works, position, writes));
                }
            }
        }
    }

    fn check(&self) {
        let seed = self.seed;
        for (published, acknowledged_at) in &self.published {
            if self.covered.contains(&published.id) {
                continue;
            }
            let stamp = Stamp::at(published.epoch, published.sequence);
            let position = self.follower.position();
            assert!(
                published.epoch != self.epoch
                    || position.is_none_or(|p| p.epoch() != stamp.epoch() || p < stamp),
                "seed {seed}: {published:?} is not applied at {position:?}"
            );
            let current_at = self.follower.current_at();
            assert!(
                current_at.is_none_or(|at| at <= *acknowledged_at),
                "seed {seed}: {published:?} is not applied, and the node was current at {current_at:?}"
            );
        }
    }
}

/// The bound of the queue: ten messages.
const QUEUE_BYTES: usize = 1000;
