//! The simulation of a fleet of nodes.
//!
//! Each request arrives at one of the edges, drawn by the seed: a trace has no clients. The decisions are those of
//! [`edgeward_balance`]: [`next_hop`] and [`Placement`] choose the node that answers, and [`CopyRule`] decides if the
//! asking node keeps a copy of the object. Each node is a [`Run`] with the policy of the server. The same trace is
//! simulated with other [`FleetKind`]s, to compare the fleet with separate caches and with one large node.

use std::num::NonZeroU32;

use edgeward_balance::{
    CopyRule, MemoryUse, Node, NodeGroup, NodeId, NodeLoads, NodeState, Owner, Placement,
    RequestRate, Sender, Target, next_hop,
};
use edgeward_policy::Objective;
use edgeward_types::{KeyHash, Seed, SplitMix64, mix64};
use serde::Serialize;

use crate::cost::OriginCost;
use crate::facts::ratio;
use crate::objects::Request;
use crate::run::{Counts, Interval, Run, RunConfig, ServedFrom};

/// The settings of a simulated fleet.
#[derive(Clone, Debug)]
pub struct FleetConfig {
    /// The cooperation of the edges.
    pub kind: FleetKind,
    /// The settings of each edge. The policies of the nodes get different random numbers from its seed.
    pub node: RunConfig,
    /// The number of edges, 1 to [`NODES_MAX`](edgeward_balance::NODES_MAX).
    pub nodes: u16,
    /// The shields between the edges and the origin.
    pub shield: Option<ShieldConfig>,
    /// The cost of a fetch from an edge as a share of the cost of a fetch from the origin: see [`CopyRule`]. With 0, no
    /// edge keeps copies of objects that another edge owns.
    pub peer_cost: f64,
    /// The number of requests before the edge with the highest number fails. `None` if no edge fails.
    pub lose_at: Option<u64>,
}

/// The cooperation of the edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FleetKind {
    /// Each edge stores the objects of its own clients.
    Separate,
    /// Each object has one owner among the edges.
    Fleet,
    /// A single edge with the memory of all nodes.
    OneNode,
}

/// The shields between the edges and the origin.
#[derive(Clone, Copy, Debug)]
pub struct ShieldConfig {
    /// The number of shields, 1 to [`NODES_MAX`](edgeward_balance::NODES_MAX).
    pub nodes: u16,
    /// The memory of each shield in bytes.
    pub capacity_bytes: u64,
}

impl FleetConfig {
    /// Returns the settings of a single edge with the memory of all edges and shields.
    #[must_use]
    pub fn one_node(mut self) -> Self {
        let shields = self.shield.take();
        let shield_bytes = shields.map_or(0, |shields| {
            u64::from(shields.nodes).saturating_mul(shields.capacity_bytes)
        });
        self.node.capacity_bytes = u64::from(self.nodes)
            .saturating_mul(self.node.capacity_bytes)
            .saturating_add(shield_bytes);
        self.kind = FleetKind::OneNode;
        self.nodes = 1;
        self.peer_cost = 0.0;
        self.lose_at = None;
        self
    }
}

/// A simulated fleet with its counts.
///
/// Memory: up to 13 bytes per object and node, 512 KiB per node, 16 bytes per object if nodes keep copies, and 8 if a
/// node fails later.
#[derive(Debug)]
pub struct Fleet {
    config: FleetConfig,
    edges: NodeCaches,
    shields: Option<NodeCaches>,
    /// The loads that each edge measures at the others. Empty for other kinds.
    loads: Vec<NodeLoads>,
    /// Draws the edge at which a request arrives.
    arrivals: SplitMix64,
    /// The rate of the requests for each object at its owner, by the number of the object.
    owner_rates: Vec<RequestRate>,
    /// The rate of the hits in memory of each edge.
    hit_rates: Vec<RequestRate>,
    /// The keys of all objects so far, if an edge fails later.
    keys: Vec<u64>,
    seen_requests: u64,
    counted: Counts,
    traffic: TrafficCounts,
    interval: Counts,
    series: Vec<Interval>,
    loss: Option<LossReport>,
}

/// The caches of one group of nodes. A node's id is its position.
#[derive(Debug)]
struct NodeCaches {
    caches: Vec<Run>,
    placement: Placement,
}

/// Counts since the end of the warm-up.
#[derive(Debug, Default)]
struct TrafficCounts {
    copy_hits: u64,
    peer_requests: u64,
    peer_bytes: u64,
    shield_requests: u64,
    shield_bytes: u64,
    moved_by_load: u64,
    /// The requests and bytes that each edge answered, from its memory or as the owner.
    answered: Vec<(u64, u64)>,
}

impl NodeCaches {
    /// The seeds of the nodes follow `seed`.
    fn new(config: &RunConfig, nodes: u16, seed: u64) -> Self {
        let run = |node: u16| {
            Run::new(RunConfig {
                seed: Seed(seed.wrapping_add(u64::from(node))),
                ..config.clone()
            })
        };
        Self {
            caches: (0..nodes).map(run).collect(),
            placement: placement(nodes),
        }
    }

    fn owner(&self, hash: u64) -> Option<Owner> {
        self.placement.owner(hash)
    }

    /// Passes a request to the cache of a node, which stores the object on a miss. Returns true for a hit.
    fn request(&mut self, node: usize, request: &Request) -> bool {
        self.caches[node].request(request) != ServedFrom::Origin
    }
}

impl Fleet {
    /// Makes a fleet with empty caches.
    ///
    /// # Panics
    ///
    /// Panics if a group has no node, or more than [`NODES_MAX`](edgeward_balance::NODES_MAX).
    pub fn new(config: FleetConfig) -> Self {
        assert!(config.nodes > 0, "a fleet has an edge");
        let seed = config.node.seed.0;
        let shields = config.shield.map(|shield| {
            assert!(shield.nodes > 0, "a group of shields has a node");
            let node = RunConfig {
                capacity_bytes: shield.capacity_bytes,
                ..config.node.clone()
            };
            NodeCaches::new(&node, shield.nodes, mix64(seed ^ SHIELD_SEED))
        });
        let nodes = usize::from(config.nodes);
        let edges = NodeCaches::new(&config.node, config.nodes, seed);
        let loads = match config.kind {
            FleetKind::Fleet => loads(&edges.placement),
            FleetKind::Separate | FleetKind::OneNode => Vec::new(),
        };
        Self {
            edges,
            shields,
            loads,
            arrivals: SplitMix64(mix64(seed)),
            owner_rates: Vec::new(),
            hit_rates: vec![RequestRate::default(); nodes],
            keys: Vec::new(),
            seen_requests: 0,
            counted: Counts::default(),
            traffic: TrafficCounts {
                answered: vec![(0, 0); nodes],
                ..TrafficCounts::default()
            },
            interval: Counts::default(),
            series: Vec::new(),
            loss: None,
            config,
        }
    }

    /// Charges each object `bytes` in addition: see [`Run::with_metadata_bytes`].
    #[must_use]
    pub fn with_metadata_bytes(self, bytes: u64) -> Self {
        self.map_runs(|run| run.with_metadata_bytes(bytes))
    }

    /// Sets the objective of the policies of all nodes: see [`Run::with_objective`].
    #[must_use]
    pub fn with_objective(self, objective: Objective, origin_cost: OriginCost) -> Self {
        self.map_runs(|run| run.with_objective(objective, origin_cost))
    }

    fn map_runs(mut self, map: impl Fn(Run) -> Run) -> Self {
        for group in [Some(&mut self.edges), self.shields.as_mut()]
            .into_iter()
            .flatten()
        {
            group.caches = std::mem::take(&mut group.caches)
                .into_iter()
                .map(&map)
                .collect();
        }
        self
    }

    /// Processes the next requests, in order. One [`Traffic`](crate::Traffic) must have numbered all objects.
    pub fn feed_requests(&mut self, requests: &[Request]) {
        for request in requests {
            if self.config.lose_at == Some(self.seen_requests) {
                self.lose_node();
            }
            if self.config.lose_at.is_some() && request.object.index() == self.keys.len() {
                self.keys.push(request.key);
            }
            if self.seen_requests == self.config.node.warmup_requests {
                self.traffic = TrafficCounts {
                    answered: vec![(0, 0); self.traffic.answered.len()],
                    ..TrafficCounts::default()
                };
            }
            let served_from = match self.request(request) {
                true => ServedFrom::Ram,
                false => ServedFrom::Origin,
            };
            self.interval.add(request.size, served_from);
            if self.seen_requests >= self.config.node.warmup_requests {
                self.counted.add(request.size, served_from);
            }
            self.seen_requests += 1;
            if self.interval.requests >= self.config.node.interval_requests {
                self.series.push(self.interval.interval(self.seen_requests));
                self.interval = Counts::default();
            }
        }
    }

    /// Processes one request. Returns true if a node of the fleet had the object.
    fn request(&mut self, request: &Request) -> bool {
        let alive = self.edges.placement.ids().len() as u64;
        // The ids of the edges are 0, 1 and so on, and the edge that fails has the highest.
        let arrival = NodeId(self.arrivals.below(alive));
        let hash = mix64(request.key);
        let owner = match self.config.kind {
            FleetKind::Separate => Some(alone(arrival)),
            FleetKind::OneNode => self.edges.owner(hash),
            FleetKind::Fleet => {
                let (placement, loads) = (&self.edges.placement, &self.loads[arrival.0 as usize]);
                placement.owner_within_bound(hash, arrival, |_| true, loads)
            }
        };
        let shield = self
            .shields
            .as_ref()
            .and_then(|shields| shields.owner(hash));
        let mut hop = next_hop(
            arrival,
            NodeGroup::Edge,
            Sender::Client,
            || owner,
            || shield,
        );
        let asked = match hop.target {
            Target::Edge(owner) => Some(owner),
            Target::Shield(_) | Target::Origin => None,
        };
        if asked.is_some() && self.hit_copy(arrival, request) {
            return true;
        }
        let node = asked.map_or(arrival, |owner| owner.node);
        if asked.is_some() {
            hop = next_hop(node, NodeGroup::Edge, Sender::Edge, || owner, || shield);
            self.loads[arrival.0 as usize].record(node, KeyHash(hash), request.size);
            self.traffic.peer_requests += 1;
            self.traffic.peer_bytes += request.size;
        }
        let is_moved = owner.is_some_and(|owner| owner.skipped > 0);
        self.traffic.moved_by_load += u64::from(is_moved);
        self.answered(node, request);
        let mut is_hit = self.edges.request(node.0 as usize, request);
        if is_hit {
            self.hit_rates[node.0 as usize].record(request.time);
        } else if let (Target::Shield(shield), Some(shields)) = (hop.target, &mut self.shields) {
            self.traffic.shield_requests += 1;
            self.traffic.shield_bytes += request.size;
            is_hit = shields.request(shield.node.0 as usize, request);
        }
        if self.config.peer_cost > 0.0 && self.config.kind == FleetKind::Fleet {
            self.keep_copy(arrival, asked, request, alive);
        }
        is_hit
    }

    /// Returns true if the edge has the object, for example a copy of it.
    fn hit_copy(&mut self, edge: NodeId, request: &Request) -> bool {
        let at = edge.0 as usize;
        let is_hit = self.edges.caches[at].hit_copy(request);
        if is_hit {
            self.hit_rates[at].record(request.time);
            self.traffic.copy_hits += 1;
            self.answered(edge, request);
        }
        is_hit
    }

    /// Measures the rate of the object at its owner. If another node was asked, offers the asking node a copy by the
    /// rule.
    fn keep_copy(&mut self, arrival: NodeId, asked: Option<Owner>, request: &Request, alive: u64) {
        let object = request.object.index();
        if object >= self.owner_rates.len() {
            self.owner_rates.resize(object + 1, RequestRate::default());
        }
        let owner_rate = self.owner_rates[object].record(request.time);
        if asked.is_none() {
            return;
        }
        let at = arrival.0 as usize;
        let memory = MemoryUse {
            hits_per_second: self.hit_rates[at].per_second(request.time),
            used_bytes: self.edges.caches[at].used_bytes(),
        };
        let charge_bytes = self.edges.caches[at].charge(request);
        let rule = CopyRule {
            peer_cost: self.config.peer_cost,
        };
        if rule.keeps_copy(owner_rate, 1.0 / alive as f64, charge_bytes, memory) {
            self.edges.caches[at].offer_copy(request, rule.peer_cost);
        }
    }

    fn answered(&mut self, node: NodeId, request: &Request) {
        let (requests, bytes) = &mut self.traffic.answered[node.0 as usize];
        *requests += 1;
        *bytes += request.size;
    }

    /// Removes the edge with the highest number from the fleet, with its objects. The last edge never fails.
    fn lose_node(&mut self) {
        let left = self.edges.placement.ids().len().saturating_sub(1);
        let Some(nodes) = u16::try_from(left).ok().filter(|nodes| *nodes > 0) else {
            return;
        };
        let before = std::mem::replace(&mut self.edges.placement, placement(nodes));
        let has_moved = |key: &&u64| {
            let owner =
                |placement: &Placement| placement.owner(mix64(**key)).map(|owner| owner.node);
            owner(&before) != owner(&self.edges.placement)
        };
        let moved = self.keys.iter().filter(has_moved).count() as u64;
        let keys = self.keys.len() as u64;
        self.edges.caches.truncate(left);
        self.loads = loads(&self.edges.placement);
        self.loss = Some(LossReport {
            at_request: self.seen_requests,
            moved_keys_ratio: ratio(moved, keys),
            object_hit_ratio_drop_max: 0.0,
            recovered_after_requests: None,
            additional_origin_requests: 0,
            additional_origin_bytes: 0,
        });
    }

    /// Returns the report so far.
    pub fn report(&self) -> FleetReport {
        let Counts {
            requests,
            hits,
            bytes,
            hit_bytes,
            ..
        } = self.counted;
        let config = &self.config;
        let traffic = &self.traffic;
        let rest = (self.interval.requests > 0).then(|| self.interval.interval(self.seen_requests));
        FleetReport {
            kind: config.kind,
            policy: config.node.policy.to_string(),
            nodes: config.nodes,
            capacity_bytes: config.node.capacity_bytes,
            shield_nodes: config.shield.map_or(0, |shield| shield.nodes),
            shield_capacity_bytes: config.shield.map_or(0, |shield| shield.capacity_bytes),
            seed: config.node.seed.0,
            requests,
            hits,
            object_hit_ratio: ratio(hits, requests),
            byte_hit_ratio: ratio(hit_bytes, bytes),
            origin_requests: requests - hits,
            origin_bytes: bytes - hit_bytes,
            peer_requests: traffic.peer_requests,
            peer_bytes: traffic.peer_bytes,
            shield_requests: traffic.shield_requests,
            shield_bytes: traffic.shield_bytes,
            copy_hits: traffic.copy_hits,
            moved_by_load_requests: traffic.moved_by_load,
            request_load_max_ratio: max_ratio(traffic.answered.iter().map(|answered| answered.0)),
            byte_load_max_ratio: max_ratio(traffic.answered.iter().map(|answered| answered.1)),
            node_requests: traffic.answered.iter().map(|answered| answered.0).collect(),
            loss: self.loss.clone(),
            series: self.series.iter().copied().chain(rest).collect(),
        }
    }
}

/// The result of a simulated fleet. The JSON of `edgeward simulate --nodes` has these keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetReport {
    /// The cooperation of the edges.
    pub kind: FleetKind,
    /// The policy of each node.
    pub policy: String,
    /// The number of edges.
    pub nodes: u16,
    /// The memory of each edge in bytes.
    pub capacity_bytes: u64,
    /// The number of shields.
    pub shield_nodes: u16,
    /// The memory of each shield in bytes.
    pub shield_capacity_bytes: u64,
    /// The seed of all random draws.
    pub seed: u64,
    /// Counted requests, without the warm-up.
    pub requests: u64,
    /// Counted requests that a node answered without the origin.
    pub hits: u64,
    /// Hits per request.
    pub object_hit_ratio: f64,
    /// Bytes hit per byte requested.
    pub byte_hit_ratio: f64,
    /// Requests to the origin.
    pub origin_requests: u64,
    /// Bytes from the origin.
    pub origin_bytes: u64,
    /// Requests from an edge to another edge.
    pub peer_requests: u64,
    /// Bytes from an edge to another edge.
    pub peer_bytes: u64,
    /// Requests from an edge to a shield.
    pub shield_requests: u64,
    /// Bytes from a shield to an edge.
    pub shield_bytes: u64,
    /// Hits in the memory of an edge that does not own the object.
    pub copy_hits: u64,
    /// Requests whose owner was not the first edge of the key's order, because of the bound of the loads.
    pub moved_by_load_requests: u64,
    /// The requests that the busiest edge answered, divided by the mean of all edges. An edge answers the requests for
    /// which it is the owner, and those for its copies.
    pub request_load_max_ratio: f64,
    /// The bytes of the answers of the busiest edge, divided by the mean of all edges.
    pub byte_load_max_ratio: f64,
    /// The requests that each edge answered.
    pub node_requests: Vec<u64>,
    /// The failure of an edge, if one has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<LossReport>,
    /// Hit ratios over time, including the warm-up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Interval>,
}

/// The failure of an edge, compared with the same fleet without it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LossReport {
    /// The number of requests before the failure.
    pub at_request: u64,
    /// The share of all objects so far whose owner changed.
    pub moved_keys_ratio: f64,
    /// The largest difference of the object hit ratios of one interval.
    pub object_hit_ratio_drop_max: f64,
    /// The number of requests from the failure to the end of the first interval whose hit ratio is within one point of
    /// that of the fleet without a failure. `None` if the trace ends before.
    pub recovered_after_requests: Option<u64>,
    /// Requests to the origin beyond those of the fleet without a failure.
    pub additional_origin_requests: u64,
    /// Bytes from the origin beyond those of the fleet without a failure.
    pub additional_origin_bytes: u64,
}

impl FleetReport {
    /// Computes the cost of the failure of an edge. `whole` is the report of the fleet without the failure.
    pub fn compare_loss(&mut self, whole: &Self) {
        let Some(loss) = &mut self.loss else {
            return;
        };
        let intervals = self.series.iter().zip(&whole.series);
        let drops = intervals
            .filter(|(interval, _)| interval.requests_end > loss.at_request)
            .map(|(with, without)| {
                let drop = without.object_hit_ratio - with.object_hit_ratio;
                (with.requests_end - loss.at_request, drop)
            });
        loss.object_hit_ratio_drop_max = drops.clone().map(|(_, drop)| drop).fold(0.0, f64::max);
        let recovered = drops.clone().find(|(_, drop)| *drop < RECOVERED_DROP);
        loss.recovered_after_requests = recovered.map(|(requests, _)| requests);
        let additional = |lost: u64, whole: u64| lost.saturating_sub(whole);
        loss.additional_origin_requests = additional(self.origin_requests, whole.origin_requests);
        loss.additional_origin_bytes = additional(self.origin_bytes, whole.origin_bytes);
    }
}

/// Returns the placement of the nodes 0 to `nodes` - 1, with equal weights.
fn placement(nodes: u16) -> Placement {
    let node = |id: u16| Node {
        id: NodeId(u64::from(id)),
        weight: NonZeroU32::MIN,
        state: NodeState::Active,
    };
    let members: Vec<Node> = (0..nodes).map(node).collect();
    Placement::new(&members).expect("the caller checks the number of nodes")
}

/// Returns the loads that each edge has measured before its first request.
fn loads(edges: &Placement) -> Vec<NodeLoads> {
    let others_of = |edge: NodeId| edges.ids().filter(move |other| *other != edge);
    edges
        .ids()
        .map(|edge| NodeLoads::new(others_of(edge)))
        .collect()
}

/// Returns the node as the owner of all keys of its own clients.
const fn alone(node: NodeId) -> Owner {
    Owner {
        node,
        former: None,
        skipped: 0,
    }
}

/// Returns the largest number divided by the mean.
fn max_ratio(numbers: impl ExactSizeIterator<Item = u64> + Clone) -> f64 {
    let nodes = numbers.len() as f64;
    let (sum, max) = (numbers.clone().sum::<u64>(), numbers.max().unwrap_or(0));
    nodes * ratio(max, sum)
}

/// The fleet has recovered from a failure when its object hit ratio is within one point.
const RECOVERED_DROP: f64 = 0.01;

/// Makes the seeds of shields differ from those of edges.
const SHIELD_SEED: u64 = 0x7368_6965_6c64;
