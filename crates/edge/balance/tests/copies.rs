//! A model in virtual time of copies and of the invalidations by unsafe requests: no node serves an object that is
//! older than an unsafe request whose client has its response.
//!
//! Clients ask three nodes for two objects. A node asks the owner of the object, or another node because of the owner's
//! load, and this one asks the origin. Unsafe requests change the objects at the origin. The node of the client then
//! invalidates the object at all nodes, which get the message at times up to two seconds apart, and the client gets its
//! response after the last of them. Messages overtake each other.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use edgeward_balance::CopyPause;
use edgeward_types::{KeyHash, SplitMix64, Timestamp};

/// The number of seeds in a test run. `EDGEWARD_FLEET_SEEDS=10000` runs more.
fn seeds() -> u64 {
    let seeds = std::env::var("EDGEWARD_FLEET_SEEDS").ok();
    seeds.and_then(|seeds| seeds.parse().ok()).unwrap_or(1000)
}

#[test]
fn no_copy_is_older_than_an_unsafe_request_whose_client_has_its_response() {
    let (mut hits, mut moved, mut paused, mut confirmed) = (0, 0, 0, 0);
    for seed in 0..seeds() {
        let model = Model::run(seed, true);
        assert!(model.stale.is_none(), "seed {seed}: {:?}", model.stale);
        hits += model.copy_hits;
        moved += model.moved;
        paused += model.paused;
        confirmed += model
            .confirmed
            .iter()
            .filter(|version| **version > 0)
            .count() as u64;
    }
    // The runs reach the cases that the rule is for.
    assert!(hits > 5 * seeds() && moved > seeds() && paused > seeds() && confirmed > seeds());
}

#[test]
fn the_model_finds_the_fault_of_copies_without_a_pause() {
    let found = (0..100).find(|&seed| Model::run(seed, false).stale.is_some());
    assert!(found.is_some(), "the model misses the fault");
}

struct Model {
    pauses: bool,
    random: SplitMix64,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    /// Numbers the events, so that events of one time have an order.
    scheduled: u64,
    /// The current version of each object at the origin.
    origin: [u64; KEYS],
    /// The version of the last unsafe request whose client has its response.
    confirmed: [u64; KEYS],
    nodes: Vec<ModelNode>,
    copy_hits: u64,
    moved: u64,
    paused: u64,
    /// A node, a key, the version that it serves, and the version of the unsafe request.
    stale: Option<(usize, usize, u64, u64)>,
}

#[derive(Default)]
struct ModelNode {
    pause: CopyPause,
    /// The versions of the stored objects.
    objects: HashMap<usize, u64>,
    /// The invalidations of each key. A fetch that began before one is dropped.
    invalidations: [u64; KEYS],
}

/// A request of a node for an object that it may store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Fetch {
    node: usize,
    key: usize,
    /// The invalidations of the key when the fetch began.
    invalidations: u64,
    /// False if the object was invalidated a moment ago.
    may_copy: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Get {
        node: usize,
        key: usize,
    },
    Post {
        node: usize,
        key: usize,
    },
    Invalidate {
        node: usize,
        key: usize,
    },
    Confirm {
        key: usize,
        version: u64,
    },
    AtOwner {
        owner: usize,
        copy: Fetch,
    },
    AtOrigin {
        owner: Fetch,
        copy: Option<Fetch>,
    },
    FromOrigin {
        owner: Fetch,
        copy: Option<Fetch>,
        version: u64,
    },
    FromOwner {
        copy: Fetch,
        version: u64,
    },
}

impl Model {
    fn run(seed: u64, pauses: bool) -> Self {
        let mut model = Self {
            pauses,
            random: SplitMix64(seed),
            now: 0,
            events: BinaryHeap::new(),
            scheduled: 0,
            origin: [0; KEYS],
            confirmed: [0; KEYS],
            nodes: (0..NODES).map(|_| ModelNode::default()).collect(),
            copy_hits: 0,
            moved: 0,
            paused: 0,
            stale: None,
        };
        for _ in 0..150 {
            let (node, key) = model.node_and_key();
            model.at(END, Event::Get { node, key });
        }
        for _ in 0..4 {
            let (node, key) = model.node_and_key();
            model.at(END, Event::Post { node, key });
        }
        while let Some(Reverse((time, _, event))) = model.events.pop() {
            model.now = time;
            model.step(event);
        }
        for node in 0..NODES {
            (0..KEYS).for_each(|key| _ = model.hit(node, key));
        }
        model
    }

    fn node_and_key(&mut self) -> (usize, usize) {
        let mut below = |limit: usize| self.random.below(limit as u64) as usize;
        (below(NODES), below(KEYS))
    }

    /// Schedules an event after a random time of at most `delay_max` milliseconds. Returns its time.
    fn at(&mut self, delay_max: u64, event: Event) -> u64 {
        let time = self.now + self.random.below(delay_max + 1);
        self.schedule(time, event);
        time
    }

    fn schedule(&mut self, time: u64, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((time, self.scheduled, event)));
    }

    /// Schedules the arrival of a message, which is seldom late.
    fn send(&mut self, event: Event) {
        let delay_max = if self.random.below(8) == 0 { 8000 } else { 20 };
        self.at(delay_max, event);
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Get { node, key } => self.get(node, key),
            Event::Post { node, key } => {
                self.origin[key] += 1;
                let version = self.origin[key];
                self.invalidate(node, key);
                let others = (0..NODES).filter(|other| *other != node);
                let times =
                    others.map(|node| self.at(INVALIDATION_MS, Event::Invalidate { node, key }));
                let last = times.max().unwrap_or(self.now);
                self.schedule(last, Event::Confirm { key, version });
            }
            Event::Invalidate { node, key } => self.invalidate(node, key),
            Event::Confirm { key, version } => {
                self.confirmed[key] = self.confirmed[key].max(version);
            }
            Event::AtOwner { owner, copy } => match self.hit(owner, copy.key) {
                Some(version) => self.send(Event::FromOwner { copy, version }),
                None => {
                    let owner = self.fetch(owner, copy.key);
                    let copy = Some(copy);
                    self.send(Event::AtOrigin { owner, copy });
                }
            },
            Event::AtOrigin { owner, copy } => {
                let version = self.origin[owner.key];
                self.send(Event::FromOrigin {
                    owner,
                    copy,
                    version,
                });
            }
            Event::FromOrigin {
                owner,
                copy,
                version,
            } => {
                self.store(owner, version);
                if let Some(copy) = copy {
                    self.send(Event::FromOwner { copy, version });
                }
            }
            // The rule of hot copies keeps some of them.
            Event::FromOwner { copy, version } if copy.may_copy => {
                if self.random.below(2) == 0 {
                    self.store(copy, version);
                }
            }
            Event::FromOwner { .. } => self.paused += 1,
        }
    }

    fn get(&mut self, node: usize, key: usize) {
        if self.hit(node, key).is_some() {
            self.copy_hits += u64::from(node != owner_of(key));
            return;
        }
        let is_moved = self.random.below(4) == 0 && node != owner_of(key);
        let skipped = match is_moved {
            true => 1 + self.random.below(NODES as u64 - 1) as usize,
            false => 0,
        };
        let owner = (owner_of(key) + skipped) % NODES;
        self.moved += u64::from(is_moved);
        let fetch = self.fetch(node, key);
        self.send(match node == owner {
            true => Event::AtOrigin {
                owner: fetch,
                copy: None,
            },
            false => Event::AtOwner { owner, copy: fetch },
        });
    }

    /// Returns the version of the stored object, which the node serves.
    fn hit(&mut self, node: usize, key: usize) -> Option<u64> {
        let version = *self.nodes[node].objects.get(&key)?;
        if version < self.confirmed[key] {
            let confirmed = self.confirmed[key];
            self.stale.get_or_insert((node, key, version, confirmed));
        }
        Some(version)
    }

    fn fetch(&self, number: usize, key: usize) -> Fetch {
        let node = &self.nodes[number];
        let is_paused = node
            .pause
            .is_paused(KeyHash(key as u64), Timestamp::from_millis(self.now));
        Fetch {
            node: number,
            key,
            invalidations: node.invalidations[key],
            may_copy: !(is_paused && self.pauses),
        }
    }

    fn store(&mut self, fetch: Fetch, version: u64) {
        let node = &mut self.nodes[fetch.node];
        if node.invalidations[fetch.key] == fetch.invalidations {
            node.objects.insert(fetch.key, version);
        }
    }

    fn invalidate(&mut self, number: usize, key: usize) {
        let node = &mut self.nodes[number];
        let now = Timestamp::from_millis(self.now);
        node.pause.begin(KeyHash(key as u64), now);
        node.objects.remove(&key);
        node.invalidations[key] += 1;
    }
}

const fn owner_of(key: usize) -> usize {
    key % NODES
}

const NODES: usize = 3;
const KEYS: usize = 2;

/// The time of the last event from outside.
const END: u64 = 60_000;

/// The longest time between the first and the last node that get an invalidation.
const INVALIDATION_MS: u64 = 2000;
