//! The laws of the placement of keys on nodes, of the path of a request through a fleet, and of hot copies.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::time::Duration;

use edgeward_balance::{
    CopyRule, LOAD_EXCESS_PERCENT, MemoryUse, NODES_MAX, Node, NodeGroup, NodeId, NodeState,
    Placement, PlacementError, RequestRate, Sender, Target, next_hop,
};
use edgeward_types::{SplitMix64, Timestamp};
use proptest::prelude::*;

fn node(id: u64, weight: u32, state: NodeState) -> Node {
    Node {
        id: NodeId(id),
        weight: NonZeroU32::new(weight).expect("a weight is not 0"),
        state,
    }
}

fn active(id: u64) -> Node {
    node(id, 1, NodeState::Active)
}

fn placement(nodes: &[Node]) -> Placement {
    Placement::new(nodes).expect("the list is valid")
}

fn owner(placement: &Placement, hash: u64) -> NodeId {
    placement.owner(hash).expect("a node owns the key").node
}

/// The hashes of this many keys.
fn keys(seed: u64, keys: usize) -> impl Iterator<Item = u64> {
    let mut random = SplitMix64(seed);
    (0..keys).map(move |_| random.draw())
}

/// A random member list: distinct ids, weights from 1 to 8 and all states. At least one node may own keys.
fn nodes() -> impl Strategy<Value = Vec<Node>> {
    let state = prop_oneof![
        3 => Just(NodeState::Active),
        1 => (1_u8..10).prop_map(|tenths| NodeState::Starting { tenths }),
        1 => Just(NodeState::Draining),
    ];
    let members = prop::collection::btree_map(any::<u64>(), (1..9_u32, state), 1..12);
    members.prop_map(|members| {
        let node = |(id, (weight, state))| node(id, weight, state);
        let mut nodes: Vec<Node> = members.into_iter().map(node).collect();
        nodes[0].state = NodeState::Active;
        nodes
    })
}

proptest! {
    /// Nodes with equal lists find the same owner and order, in any order of the list. The order has each node once.
    /// The owner is its first node that does not drain, and `former` the draining node before it.
    #[test]
    fn the_order_of_a_key_depends_on_the_members_only(
        list in nodes(),
        rotation in any::<usize>(),
        hash in any::<u64>(),
    ) {
        let mut other = list.clone();
        other.reverse();
        let by = rotation % other.len();
        other.rotate_left(by);
        let (here, there) = (placement(&list), placement(&other));
        let order: Vec<NodeId> = here.order(hash).collect();
        prop_assert_eq!(&order, &there.order(hash).collect::<Vec<_>>());
        prop_assert_eq!(here.owner(hash), there.owner(hash));
        let mut ids = order.clone();
        ids.sort();
        prop_assert_eq!(ids, here.ids().collect::<Vec<_>>());
        let drains = |id: &NodeId| {
            list.iter().any(|node| node.id == *id && node.state == NodeState::Draining)
        };
        let owner = here.owner(hash).expect("a node is active");
        prop_assert_eq!(Some(owner.node), order.iter().copied().find(|id| !drains(id)));
        prop_assert_eq!(owner.former, order.first().copied().filter(drains));
    }

    /// Each load is at most 1.25 times the mean in relation to the weights, rounded up, whatever the keys are: here a
    /// tenth of the keys are one key.
    #[test]
    fn no_load_exceeds_the_bound(list in nodes(), seed in any::<u64>()) {
        let placement = placement(&list);
        let mut loads: HashMap<NodeId, u64> = HashMap::new();
        let weight = |node: &Node| match node.state {
            NodeState::Active => u64::from(node.weight.get()) * 10,
            NodeState::Starting { tenths } => u64::from(node.weight.get()) * u64::from(tenths),
            NodeState::Draining => 0,
        };
        let weights: u64 = list.iter().map(weight).sum();
        for (placed, hash) in (1..).zip(keys(seed, 300)) {
            let hash = if hash.is_multiple_of(10) { 1 } else { hash };
            let load = |id| loads.get(&id).copied().unwrap_or(0);
            let owner = placement.owner_within_bound(hash, load).expect("a node has room");
            *loads.entry(owner.node).or_default() += 1;
            for node in &list {
                let load = loads.get(&node.id).copied().unwrap_or(0);
                let scaled = u64::from(100 + LOAD_EXCESS_PERCENT) * placed * weight(node);
                prop_assert!(load <= scaled.div_ceil(100 * weights), "{loads:?}");
            }
        }
    }

    /// A node that drains gets no key, and only its keys move: to nodes that learn from `former` where the object was.
    #[test]
    fn only_the_keys_of_a_draining_node_move(count in 2..9_u64, seed in any::<u64>()) {
        let before: Vec<Node> = (0..count).map(active).collect();
        let mut after = before.clone();
        after[0].state = NodeState::Draining;
        let (before, after) = (placement(&before), placement(&after));
        for hash in keys(seed, 50) {
            let moved = after.owner(hash).expect("a node owns the key");
            if owner(&before, hash) == NodeId(0) {
                prop_assert_ne!(moved.node, NodeId(0));
                prop_assert_eq!(moved.former, Some(NodeId(0)));
            } else {
                prop_assert_eq!(moved.node, owner(&before, hash));
                prop_assert_eq!(moved.former, None);
            }
        }
    }

    /// Nodes with different member lists cannot wait for each other: a request visits at most two edges and one shield,
    /// whatever list each node has, and at most one of the edges stores the object.
    #[test]
    fn a_request_ends_at_the_origin_whatever_the_lists_are(
        edges in prop::collection::vec(nodes(), 1..6),
        shields in prop::collection::vec(nodes(), 1..6),
        has_shields in any::<bool>(),
        hash in any::<u64>(),
    ) {
        let list = |lists: &[Vec<Node>], visits: usize| placement(&lists[visits % lists.len()]);
        let (mut node, mut group, mut sender) = (NodeId(1), NodeGroup::Edge, Sender::Client);
        let (mut visited, mut stores) = (Vec::new(), 0);
        loop {
            let visits = visited.len();
            visited.push(group);
            let shield = || has_shields.then(|| list(&shields, visits).owner(hash)).flatten();
            let hop = next_hop(node, group, sender, || list(&edges, visits).owner(hash), shield);
            stores += u32::from(hop.stores && group == NodeGroup::Edge);
            (node, group) = match hop.target {
                Target::Edge(owner) => (owner.node, NodeGroup::Edge),
                Target::Shield(owner) => (owner.node, NodeGroup::Shield),
                Target::Origin => break,
            };
            sender = Sender::Edge;
        }
        let count = |group| visited.iter().filter(|visited| **visited == group).count();
        prop_assert!((1..=2).contains(&count(NodeGroup::Edge)), "{visited:?}");
        prop_assert_eq!(count(NodeGroup::Shield), usize::from(has_shields));
        prop_assert!(stores <= 1);
    }
}

/// When a node joins or leaves, at most 1/n of the keys and 2 points move, and all of them to or from this node.
#[test]
fn a_change_of_one_node_moves_its_share_of_the_keys() {
    const KEYS: usize = 10_000;
    for count in [1_u64, 2, 3, 5, 8, 32, NODES_MAX as u64 - 1] {
        let few: Vec<Node> = (0..count).map(active).collect();
        let many: Vec<Node> = (0..=count).map(active).collect();
        let (few, many) = (placement(&few), placement(&many));
        let mut moved = 0;
        for hash in keys(count, KEYS) {
            let (without, with) = (owner(&few, hash), owner(&many, hash));
            if without != with {
                assert_eq!(with, NodeId(count), "a key moved between two other nodes");
                moved += 1;
            }
        }
        let share = f64::from(moved) / KEYS as f64;
        let expected = 1.0 / (count + 1) as f64;
        assert!(
            (share - expected).abs() < 0.02,
            "{share} moved of {count} nodes"
        );
    }
}

/// The shares of keys follow the weights and the tenths of a slow start. A node whose weight grows keeps its keys.
#[test]
fn shares_follow_the_weights() {
    const KEYS: usize = 40_000;
    let mut owned: HashSet<u64> = HashSet::new();
    for tenths in [1, 5, 9, 10] {
        let state = match tenths {
            10 => NodeState::Active,
            tenths => NodeState::Starting { tenths },
        };
        let list = [
            active(7),
            node(8, 2, NodeState::Active),
            node(9, 3, state),
            node(10, 5, NodeState::Draining),
        ];
        let placement = placement(&list);
        let mut counts: HashMap<u64, u32> = HashMap::new();
        let mut grown = HashSet::new();
        for hash in keys(1, KEYS) {
            let NodeId(id) = owner(&placement, hash);
            *counts.entry(id).or_default() += 1;
            if id == 9 {
                grown.insert(hash);
            }
        }
        assert!(owned.is_subset(&grown));
        owned = grown;
        let weights = [(7, 1.0), (8, 2.0), (9, 0.3 * f64::from(tenths)), (10, 0.0)];
        let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
        for (id, weight) in weights {
            let count = counts.get(&id).copied().unwrap_or(0);
            let difference = f64::from(count) / KEYS as f64 - weight / sum;
            // Four standard deviations of the share are less than 0.01.
            assert!(difference.abs() < 0.01, "node {id}: {count}");
        }
    }
}

#[test]
fn the_weight_of_a_started_node_grows_in_ten_steps() {
    let state = |ms| NodeState::after_start(Duration::from_millis(ms), Duration::from_secs(10));
    let tenths = |tenths| NodeState::Starting { tenths };
    assert_eq!(state(0), tenths(1));
    assert_eq!(state(1999), tenths(1));
    assert_eq!(state(2000), tenths(2));
    assert_eq!(state(9999), tenths(9));
    assert_eq!(state(10_000), NodeState::Active);
    let disabled = NodeState::after_start(Duration::ZERO, Duration::ZERO);
    assert_eq!(disabled, NodeState::Active);
}

#[test]
fn a_list_with_too_many_nodes_or_with_duplicates_is_rejected() {
    let list = |count: u64| (0..count).map(active).collect::<Vec<_>>();
    assert!(Placement::new(&list(NODES_MAX as u64)).is_ok());
    let nodes = NODES_MAX + 1;
    assert_eq!(
        Placement::new(&list(nodes as u64)),
        Err(PlacementError::TooMany { nodes })
    );
    let twice = [active(3), active(4), active(3)];
    let id = NodeId(3);
    assert_eq!(
        Placement::new(&twice),
        Err(PlacementError::Duplicate { id })
    );
    assert_eq!(placement(&[]).owner(1), None);
    let leaves = [node(1, 1, NodeState::Draining)];
    assert_eq!(placement(&leaves).owner(1), None);
}

/// A copy is kept exactly if it saves more per byte than the average byte of the memory.
#[test]
fn a_copy_must_save_more_per_byte_than_the_memory() {
    // The memory has one hit per second and KiB.
    let memory = MemoryUse {
        hits_per_second: 1000.0,
        used_bytes: 1_024_000,
    };
    let rule = CopyRule { peer_cost: 0.5 };
    // The share of the asking node is 2 requests per second. A copy saves half of their cost.
    let keeps = |size_bytes| rule.keeps_copy(8.0, 0.25, size_bytes, memory);
    assert!(keeps(1023) && !keeps(1024));
    let without = CopyRule { peer_cost: 0.0 };
    assert!(!without.keeps_copy(1e9, 1.0, 1, memory));
}

/// Events at a constant rate have this rate. The first event has none, and the rate falls when the events end.
#[test]
fn a_rate_is_that_of_the_past_events() {
    let mut rate = RequestRate::default();
    assert_eq!(rate.record(Timestamp::from_secs(10)), 0.0);
    let last = (11..4000).map(|second| rate.record(Timestamp::from_secs(second)));
    let last = last.last().expect("an event");
    assert!((last - 1.0).abs() < 0.01, "{last}");
    assert!(rate.per_second(Timestamp::from_secs(6000)) < 0.01);
}
