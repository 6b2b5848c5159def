//! The laws of the placement of keys on nodes, of the path of a request through a fleet, and of hot copies.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;

use edgeward_balance::{
    CopyRule, LOAD_EXCESS_PERCENT, MemoryUse, NODES_MAX, Node, NodeGroup, NodeId, NodeLoads,
    NodeState, OWNERS_MAX, Placement, PlacementError, RequestRate, Sender, Target, next_hop,
};
use edgeward_types::{KeyHash, SplitMix64, Timestamp};
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

/// Returns the weight, and 0 for a node that owns no key.
fn weight_of(node: &Node) -> u64 {
    match node.state {
        NodeState::Active => u64::from(node.weight.get()),
        NodeState::Draining => 0,
    }
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
    /// whatever list each node has, and whatever key the edge of the client moves. At most one of the edges stores the
    /// object.
    #[test]
    fn a_request_ends_at_the_origin_whatever_the_lists_are(
        edges in prop::collection::vec(nodes(), 1..6),
        shields in prop::collection::vec(nodes(), 1..6),
        has_shields in any::<bool>(),
        is_moved in any::<bool>(),
        hash in any::<u64>(),
    ) {
        let list = |lists: &[Vec<Node>], visits: usize| placement(&lists[visits % lists.len()]);
        let (mut node, mut group, mut sender) = (NodeId(1), NodeGroup::Edge, Sender::Client);
        let (mut visited, mut stores) = (Vec::new(), 0);
        loop {
            let visits = visited.len();
            visited.push(group);
            let shield = || has_shields.then(|| list(&shields, visits).owner(hash)).flatten();
            let edge = || {
                let edges = list(&edges, visits);
                match sender {
                    Sender::Client if is_moved => {
                        let first = edges.owner(hash)?.node;
                        edges.owner_among(hash, |id| id != first)
                    }
                    Sender::Client => edges.owner(hash),
                    Sender::Edge => edges.owner_for_node(hash, node, |_| true),
                }
            };
            let hop = next_hop(node, group, sender, edge, shield);
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    /// A key has its first node, unless the load of that node has reached 1.25 times the mean in relation to the
    /// weights. It then has the first one with room of its first four nodes, if the key had four recent answers before
    /// the last one. For requests of other nodes, each of the four is the owner.
    ///
    /// Method: a node asks for few keys, and one node answers with long bodies. The loads are counted again here. They
    /// are halved at 512 answers per node.
    #[test]
    fn a_key_with_many_requests_moves_from_a_node_above_the_bound_to_one_with_room(
        list in nodes(),
        seed in any::<u64>(),
    ) {
        let placement = placement(&list);
        let (own, may_own) = (list[0].id, |id: NodeId| id.0 % 5 != 1 || id == list[0].id);
        let others = || list.iter().filter(|node| node.id != own);
        let mut measured = NodeLoads::new(others().map(|node| node.id));
        let mut loads: HashMap<NodeId, u64> = others().map(|node| (node.id, 0)).collect();
        let mut counts: HashMap<u64, u64> = HashMap::new();
        let window = 512 * loads.len() as u64;
        let asked = loads.len() as u64 * 250;
        let mut counted = 0;
        let long = others().map(|node| node.id).min();
        for hash in keys(seed, asked as usize) {
            let hash = hash % 64;
            let owner = placement.owner_within_bound(hash, own, may_own, &measured);
            let owner = owner.expect("a node may own the key");
            let usable = placement.order(hash).filter(|id| {
                may_own(*id) && list.iter().any(|it| it.id == *id && it.state != NodeState::Draining)
            });
            let owners: Vec<_> = usable.take(OWNERS_MAX).collect();
            // Nodes that may not own keys had few answers, so the bound without them is not smaller.
            let has_room = |id: NodeId| {
                let bounded = || others().filter(|it| it.state != NodeState::Draining && may_own(it.id));
                let sum: u64 = bounded().map(|it| loads[&it.id]).sum();
                let weights: u64 = bounded().map(weight_of).sum();
                let weight = list.iter().find(|it| it.id == id).map_or(0, weight_of);
                id == own || u128::from(loads[&id])
                    < (u128::from(100 + LOAD_EXCESS_PERCENT) * u128::from(sum + 1) * u128::from(weight))
                        .div_ceil(100 * u128::from(weights.max(1)))
            };
            let is_measured = counted >= window / 8;
            // Since the first of these answers, none has lost more than half of its weight.
            let count = counts.get(&hash).copied().unwrap_or(0);
            let (is_hot, is_cold) = (count >= 12, count < 5);
            let roomy = owners.iter().copied().find(|id| has_room(*id));
            if owner.node == owners[0] {
                prop_assert!(!is_measured || !is_hot || roomy.is_none_or(|id| id == owners[0]));
            } else {
                prop_assert_eq!(Some(owner.node), roomy);
                prop_assert!(is_measured && !is_cold);
            }
            for node in &owners {
                let at_node = placement.owner_for_node(hash, *node, may_own);
                prop_assert_eq!(at_node.map(|owner| owner.node), Some(*node));
            }
            if owner.node != own {
                let body_bytes = if Some(owner.node) == long { 300_000 } else { 1000 };
                measured.record(owner.node, KeyHash(hash), body_bytes);
                *loads.get_mut(&owner.node).expect("a node") += body_bytes + (64 << 10);
                *counts.entry(hash).or_default() += 1;
                counted += 1;
            }
        }
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

/// The shares of keys follow the weights. A node whose weight grows, as after its start, keeps its keys.
#[test]
fn shares_follow_the_weights() {
    const KEYS: usize = 40_000;
    let mut owned: HashSet<u64> = HashSet::new();
    for weight in [1, 5, 9, 10] {
        let list = [
            active(7),
            node(8, 2, NodeState::Active),
            node(9, weight, NodeState::Active),
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
        let weights = [(7, 1.0), (8, 2.0), (9, f64::from(weight)), (10, 0.0)];
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
