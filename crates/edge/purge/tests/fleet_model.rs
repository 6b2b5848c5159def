//! A model of a fleet in virtual time: no node serves an object that a purge covers which the node has applied.
//!
//! Clients ask three edges for four objects. An edge asks the owner of the object among the edges, the owner asks a
//! shield, and the shield asks the origin. An edge that does not own an object keeps some copies. Meanwhile the objects
//! change at the origin, and each change is followed by a purge. Messages are delayed by random times, and therefore
//! reordered; some are lost, some arrive twice. Nodes restart: they lose the requests under way and fall back to the
//! table that they persisted last.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use edgeward_purge::{Delivery, Limits, Purge, PurgeTable, Scope, Stamp, Verdict};
use edgeward_types::SplitMix64;

/// The rule for the stamp of an object that another node has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// The rule of a fleet: [`Positions::received`](edgeward_purge::Positions::received).
    Received,
    /// The position of the receiver when it asked: the rule of a single node.
    OwnPosition,
}

/// The number of seeds in a test run. `EDGEWARD_FLEET_SEEDS=10000` runs more.
fn seeds() -> u64 {
    let seeds = std::env::var("EDGEWARD_FLEET_SEEDS").ok();
    seeds.and_then(|seeds| seeds.parse().ok()).unwrap_or(1000)
}

#[test]
fn no_node_serves_an_object_older_than_a_purge_that_it_has_applied() {
    let mut reached = CaseCounts::default();
    for seed in 0..seeds() {
        let done = Model::run(seed, Rule::Received);
        let stale = done.stale;
        assert!(stale.is_none(), "seed {seed}: {stale:?}");
        reached.add(&done.reached);
    }
    // The runs reach the cases that the rule is for.
    let runs = seeds();
    assert!(reached.hits > 10 * runs, "{reached:?}");
    assert!(reached.received_hits > runs, "{reached:?}");
    assert!(reached.copy_hits > runs, "{reached:?}");
    assert!(reached.sender_behind > runs / 10, "{reached:?}");
    assert!(reached.receiver_behind > runs / 10, "{reached:?}");
    assert!(reached.gaps > runs / 10, "{reached:?}");
    assert!(reached.repeated > runs / 10, "{reached:?}");
    assert!(reached.restarts > runs / 2, "{reached:?}");
    assert!(reached.floor_raises > runs / 10, "{reached:?}");
}

#[test]
fn the_model_finds_the_fault_of_the_rule_of_a_single_node() {
    let found = (0..100).find(|&seed| Model::run(seed, Rule::OwnPosition).stale.is_some());
    assert!(found.is_some(), "the model misses the fault");
}

/// The number of times that the runs reached each case.
#[derive(Clone, Copy, Debug, Default)]
struct CaseCounts {
    hits: u64,
    /// Hits on objects that came from another node.
    received_hits: u64,
    /// Hits of edges on copies of objects that another edge owns.
    copy_hits: u64,
    /// Answers of a node that had not applied a purge which the receiver had applied.
    sender_behind: u64,
    /// Answers whose stamp is newer than the receiver's position.
    receiver_behind: u64,
    gaps: u64,
    repeated: u64,
    restarts: u64,
    floor_raises: u64,
}

impl CaseCounts {
    fn add(&mut self, other: &Self) {
        self.hits += other.hits;
        self.received_hits += other.received_hits;
        self.copy_hits += other.copy_hits;
        self.sender_behind += other.sender_behind;
        self.receiver_behind += other.receiver_behind;
        self.gaps += other.gaps;
        self.repeated += other.repeated;
        self.restarts += other.restarts;
        self.floor_raises += other.floor_raises;
    }
}

/// A stale answer: the version of the served object is older than the one at the time of the purge.
#[derive(Debug)]
#[expect(dead_code, reason = "the fields are printed")]
struct StaleAnswer {
    node: usize,
    key: usize,
    version: u64,
    purged_version: u64,
}

struct Model {
    rule: Rule,
    random: SplitMix64,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    /// Numbers the events, so that events of one time have an order.
    scheduled: u64,
    /// The current version of each object at the origin.
    origin: [u64; KEYS],
    /// The stream of purges.
    stream: Vec<PublishedPurge>,
    nodes: Vec<ModelNode>,
    reached: CaseCounts,
    stale: Option<StaleAnswer>,
}

struct PublishedPurge {
    purge: Purge,
    /// The number in the stream.
    stamp: Stamp,
    covers: [bool; KEYS],
    /// The versions at the origin when the purge was published.
    versions: [u64; KEYS],
}

/// A node: an edge or a shield. It has its own numbers of purges, in an epoch of its own.
struct ModelNode {
    table: PurgeTable,
    /// The table that the log has.
    persisted: PurgeTable,
    objects: HashMap<usize, Object>,
    queries: HashMap<u64, Query>,
}

#[derive(Clone, Copy)]
struct Object {
    version: u64,
    stamp: Stamp,
    is_received: bool,
}

/// A request of a node to another node or to the origin.
#[derive(Clone, Copy)]
struct Query {
    key: usize,
    /// The newest purge of the node when it asked.
    asked_at: Stamp,
    asker: Asker,
}

/// The client for which a node asks (`None`), or the node and its query.
type Asker = Option<(usize, u64)>;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    ClientRequest {
        edge: usize,
        key: usize,
    },
    Change {
        key: usize,
        all: bool,
    },
    Publish {
        key: usize,
        all: bool,
    },
    Deliver {
        node: usize,
        purge: usize,
    },
    /// The node asks the stream for the purges after its position.
    Resume {
        node: usize,
    },
    Persist {
        node: usize,
    },
    Restart {
        node: usize,
    },
    NodeRequest {
        from: usize,
        to: usize,
        query: u64,
        key: usize,
    },
    NodeAnswer {
        to: usize,
        query: u64,
        version: u64,
        stated: Stamp,
    },
    OriginRequest {
        from: usize,
        query: u64,
        key: usize,
    },
    OriginAnswer {
        to: usize,
        query: u64,
        version: u64,
    },
}

impl Model {
    fn run(seed: u64, rule: Rule) -> Self {
        let node = |number| ModelNode {
            table: table(number),
            persisted: table(number),
            objects: HashMap::new(),
            queries: HashMap::new(),
        };
        let mut model = Self {
            rule,
            random: SplitMix64(seed),
            now: 0,
            events: BinaryHeap::new(),
            scheduled: 0,
            origin: [0; KEYS],
            stream: Vec::new(),
            nodes: (0..EDGES + SHIELDS).map(node).collect(),
            reached: CaseCounts::default(),
            stale: None,
        };
        model.schedule_all();
        while let Some(Reverse((time, _, event))) = model.events.pop() {
            model.now = time;
            model.step(event);
        }
        model.catch_up();
        let raises = model.nodes.iter();
        model.reached.floor_raises = raises.map(|node| node.table.size().floor_raises).sum();
        model
    }

    /// Schedules the requests of clients, the changes, the restarts, and the work that nodes do by a timer.
    fn schedule_all(&mut self) {
        for _ in 0..120 {
            let (edge, key) = (self.below(EDGES), self.below(KEYS));
            self.at(END, Event::ClientRequest { edge, key });
        }
        for _ in 0..12 {
            let (key, all) = (self.below(KEYS), self.random.below(8) == 0);
            self.at(END, Event::Change { key, all });
        }
        for node in 0..EDGES + SHIELDS {
            for _ in 0..8 {
                self.at(END, Event::Resume { node });
                self.at(END, Event::Persist { node });
            }
            if self.random.below(3) == 0 {
                self.at(END, Event::Restart { node });
            }
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random.below(limit as u64) as usize
    }

    /// Schedules an event after a random time of at most `delay_max`.
    fn at(&mut self, delay_max: u64, event: Event) {
        let time = self.now + 1 + self.random.below(delay_max);
        self.scheduled += 1;
        self.events.push(Reverse((time, self.scheduled, event)));
    }

    /// Sends a message, which may be late, lost or repeated.
    fn send(&mut self, event: Event) {
        let copies = match self.random.below(10) {
            0 => 0,
            1 => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let delay_max = if self.random.below(4) == 0 { 200 } else { 20 };
            self.at(delay_max, event);
        }
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::ClientRequest { edge, key } => self.answer_or_ask(edge, key, None),
            Event::Change { key, all } => {
                for changed in 0..KEYS {
                    self.origin[changed] += u64::from(all || changed == key);
                }
                self.at(30, Event::Publish { key, all });
            }
            Event::Publish { key, all } => self.publish(key, all),
            Event::Deliver { node, purge } => self.deliver(node, purge),
            Event::Resume { node } => {
                for purge in self.position(node)..self.stream.len() {
                    self.send(Event::Deliver { node, purge });
                }
            }
            Event::Persist { node } => {
                let node = &mut self.nodes[node];
                node.persisted = node.table.clone();
            }
            Event::Restart { node } => self.restart(node),
            Event::NodeRequest {
                from,
                to,
                query,
                key,
            } => self.answer_or_ask(to, key, Some((from, query))),
            Event::NodeAnswer {
                to,
                query,
                version,
                stated,
            } => self.receive(to, query, version, Some(stated)),
            Event::OriginRequest { from, query, key } => {
                let version = self.origin[key];
                self.send(Event::OriginAnswer {
                    to: from,
                    query,
                    version,
                });
            }
            Event::OriginAnswer { to, query, version } => self.receive(to, query, version, None),
        }
    }

    /// The number of purges that the node has applied.
    fn position(&self, node: usize) -> usize {
        let position = position_of(&self.nodes[node].table);
        let is_applied = |purge: &PublishedPurge| purge.stamp <= position;
        self.stream.partition_point(is_applied)
    }

    fn publish(&mut self, key: usize, all: bool) {
        let scope = match all {
            true => Scope::prefix("http://h/").expect("a prefix"),
            false => Scope::url(&url(key)).expect("a URL"),
        };
        self.stream.push(PublishedPurge {
            purge: Purge { scope, soft: false },
            stamp: Stamp::at(STREAM, self.stream.len() as u64 + 1),
            covers: std::array::from_fn(|other| all || other == key),
            versions: self.origin,
        });
        let purge = self.stream.len() - 1;
        for node in 0..self.nodes.len() {
            self.send(Event::Deliver { node, purge });
        }
    }

    fn deliver(&mut self, node: usize, purge: usize) {
        let purge = &self.stream[purge];
        let table = &mut self.nodes[node].table;
        match Delivery::at(position_of(table), purge.stamp) {
            Delivery::Next => {
                table.apply(table.record(&purge.purge, 0));
                table.apply(table.position_record(purge.stamp, 0));
            }
            Delivery::Repeated => self.reached.repeated += 1,
            Delivery::Gap => self.reached.gaps += 1,
        }
    }

    /// Restarts a node. Its objects are on disk and survive. It knows only the purges that it has persisted.
    fn restart(&mut self, number: usize) {
        self.reached.restarts += 1;
        let node = &mut self.nodes[number];
        node.queries.clear();
        node.table = table(number);
        for record in node.persisted.records() {
            node.table.apply(record);
        }
    }

    /// Answers a client or a node from the cache, or asks the next node or the origin.
    fn answer_or_ask(&mut self, node: usize, key: usize, asker: Asker) {
        if let Some(object) = self.current(node, key) {
            self.reached.hits += 1;
            self.reached.received_hits += u64::from(object.is_received);
            self.reached.copy_hits += u64::from(node < EDGES && node != key % EDGES);
            self.answer(node, key, object, asker);
            return;
        }
        let owner = key % EDGES;
        let next = match node {
            EDGES.. => None,
            edge if edge == owner || asker.is_some() => Some(EDGES + key % SHIELDS),
            _ => Some(owner),
        };
        let (from, query) = (node, self.ask(node, key, asker));
        self.send(match next {
            Some(to) => Event::NodeRequest {
                from,
                to,
                query,
                key,
            },
            None => Event::OriginRequest { from, query, key },
        });
    }

    fn ask(&mut self, node: usize, key: usize, asker: Asker) -> u64 {
        let id = self.random.draw();
        let node = &mut self.nodes[node];
        let query = Query {
            key,
            asked_at: node.table.latest(),
            asker,
        };
        node.queries.insert(id, query);
        id
    }

    /// Returns the stored object if no applied purge covers it. Its stamp becomes the position, as at a hit of the
    /// edge.
    fn current(&mut self, node: usize, key: usize) -> Option<Object> {
        let node = &mut self.nodes[node];
        let object = node.objects.get_mut(&key)?;
        if !is_current(&node.table, key, object.stamp) {
            return None;
        }
        object.stamp = object.stamp.max(node.table.latest());
        Some(*object)
    }

    /// Stores the object of an answer by the rule and passes it on. `stated` is the stamp that a node states; the
    /// origin states none.
    fn receive(&mut self, to: usize, query: u64, version: u64, stated: Option<Stamp>) {
        // The node may have restarted since it asked.
        let Some(&Query {
            key,
            asked_at,
            asker,
        }) = self.nodes[to].queries.get(&query)
        else {
            return;
        };
        let stamp = match (stated, self.rule) {
            (None, _) | (Some(_), Rule::OwnPosition) => asked_at,
            (Some(stated), Rule::Received) => {
                let table = &self.nodes[to].table;
                self.reached.receiver_behind += u64::from(stated > position_of(table));
                table.positions().received(stated, asked_at)
            }
        };
        if is_current(&self.nodes[to].table, key, stamp) {
            let object = Object {
                version,
                stamp,
                is_received: stated.is_some(),
            };
            // The rule of hot copies keeps some of them.
            let is_copy = to < EDGES && to != key % EDGES;
            if !is_copy || self.random.below(2) == 0 {
                self.nodes[to].objects.insert(key, object);
            }
            self.answer(to, key, object, asker);
        } else if stated.is_some() {
            self.reached.sender_behind += 1;
            let (from, query) = (to, self.ask(to, key, asker));
            self.send(Event::OriginRequest { from, query, key });
        }
    }

    /// Sends an object that is current at the node to a client or to another node.
    fn answer(&mut self, node: usize, key: usize, object: Object, asker: Asker) {
        self.check(node, key, object.version);
        if let Some((to, query)) = asker {
            let stated = self.nodes[node].table.positions().stated(object.stamp);
            self.send(Event::NodeAnswer {
                to,
                query,
                version: object.version,
                stated,
            });
        }
    }

    /// Checks that the version is not older than a purge of the object that the node has applied.
    fn check(&mut self, node: usize, key: usize, version: u64) {
        let applied = &self.stream[..self.position(node)];
        let covering = applied.iter().rev().find(|purge| purge.covers[key]);
        let purged_version = covering.map_or(0, |purge| purge.versions[key]);
        if version < purged_version {
            self.stale.get_or_insert(StaleAnswer {
                node,
                key,
                version,
                purged_version,
            });
        }
    }

    /// Delivers all purges to all nodes, and checks each object that they would serve.
    fn catch_up(&mut self) {
        for node in 0..self.nodes.len() {
            for purge in self.position(node)..self.stream.len() {
                self.deliver(node, purge);
            }
            for key in 0..KEYS {
                if let Some(object) = self.current(node, key) {
                    self.check(node, key, object.version);
                }
            }
        }
    }
}

/// Returns the table of a node that has joined the empty stream.
fn table(node: usize) -> PurgeTable {
    let mut table = PurgeTable::new(LIMITS, Stamp::start_of(STREAM + 1 + node as u64), 77);
    table.apply(table.position_record(Stamp::start_of(STREAM), 0));
    table
}

/// Returns the newest purge of the stream that a node has applied.
fn position_of(table: &PurgeTable) -> Stamp {
    let position = table.positions().position();
    position.expect("the node has joined the stream")
}

fn is_current(table: &PurgeTable, key: usize, stamp: Stamp) -> bool {
    table.check(url(key).as_bytes(), stamp).verdict() == Verdict::Current
}

fn url(key: usize) -> String {
    format!("http://h/{key}")
}

const KEYS: usize = 4;
const EDGES: usize = 3;
const SHIELDS: usize = 2;

/// The epoch of the stream.
const STREAM: u64 = 9;

/// The time of the last event from outside.
const END: u64 = 2000;

/// The tables are so small that they reach their limits.
const LIMITS: Limits = Limits {
    entries_max: 4,
    patterns_max: 2,
};
