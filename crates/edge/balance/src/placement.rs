//! The placement of cache keys on the nodes of a fleet.
//!
//! Each key has one owner in a group of nodes, and only the owner stores its object. [`Placement`] is a function of the
//! member list and the key: nodes with equal lists find the same owner, in any order of the list. If a node joins or
//! leaves, only its own keys move (weighted rendezvous hashing). A placement has no table, so it takes 24 bytes per
//! node; a lookup computes one score per node and allocates nothing.
//!
//! If the owner is overloaded, the key goes to the next node in the order of the scores
//! ([`Placement::owner_within_bound`]). This order differs from key to key, so the load of an overloaded node is
//! distributed over all others.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use edgeward_types::mix64;

use super::group::WEIGHT_MAX;
use super::rendezvous::{LoadBound, score};

/// Identifies a node of a fleet: a hash of its name. A node that returns under its name gets its keys back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// An entry of the member list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The id.
    pub id: NodeId,
    /// The share of keys, in relation to the weights of the other nodes. At most [`WEIGHT_MAX`].
    pub weight: NonZeroU32,
    /// The state that the node announces.
    pub state: NodeState,
}

/// The state of a node. A node announces its own state with its membership, so the placement needs no clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeState {
    /// The node owns keys by its whole weight.
    #[default]
    Active,
    /// The node has started and fills its cache: it owns keys by this many tenths of its weight, 1 to 9.
    Starting {
        /// Tenths of the weight.
        tenths: u8,
    },
    /// The node will leave. It owns no key, but other nodes may still ask it for the objects that it has.
    Draining,
}

impl NodeState {
    /// Returns the state of a node that started `elapsed` ago. Its weight grows in ten steps to the whole weight.
    pub fn after_start(elapsed: Duration, slow_start: Duration) -> Self {
        if elapsed >= slow_start {
            return Self::Active;
        }
        // `slow_start` is not zero here. The quotient is at most 9.
        let tenths = elapsed.as_millis() * 10 / slow_start.as_millis().max(1);
        Self::Starting {
            tenths: u8::try_from(tenths).unwrap_or(9).clamp(1, 9),
        }
    }
}

/// The nodes of one group of a fleet, and the choice of the owner of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Sorted by id.
    nodes: Box<[PlacedNode]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PlacedNode {
    id: NodeId,
    /// The number of the node for [`score`]: the mixed id.
    key: u64,
    /// The weight in tenths. It stays the whole weight while the node drains.
    weight: u32,
    is_draining: bool,
}

/// The owner of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The node that stores the object.
    pub node: NodeId,
    /// The draining node that owned the key before. It may still have the object, so the owner asks it before the
    /// origin.
    pub former: Option<NodeId>,
    /// The number of nodes with a larger score that were skipped because their loads had reached the bound.
    pub skipped: usize,
}

/// The reason why a member list is not a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementError {
    /// The list has more than [`NODES_MAX`] nodes.
    TooMany {
        /// The number of nodes.
        nodes: usize,
    },
    /// Two entries have one id.
    Duplicate {
        /// The id.
        id: NodeId,
    },
}

/// The maximum number of nodes of a group. A lookup computes one score of about 10 ns per node, so it takes a few
/// microseconds, and as much again for each node that the bound on the load skips.
pub const NODES_MAX: usize = 256;

/// The percentage by which the load of a node may exceed the mean: the bound is 1.25 times the mean. A smaller bound
/// moves more keys, a larger one needs more spare capacity in each node.
pub const LOAD_EXCESS_PERCENT: u32 = 25;

impl Placement {
    /// Returns the placement for a member list. The order of the list has no effect.
    pub fn new(members: &[Node]) -> Result<Self, PlacementError> {
        if members.len() > NODES_MAX {
            let nodes = members.len();
            return Err(PlacementError::TooMany { nodes });
        }
        let mut nodes: Vec<PlacedNode> = members.iter().map(PlacedNode::new).collect();
        nodes.sort_by_key(|node| node.id);
        if let Some(pair) = nodes.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(PlacementError::Duplicate { id: pair[0].id });
        }
        Ok(Self {
            nodes: nodes.into(),
        })
    }

    /// Returns the ids of all nodes in ascending order.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = NodeId> {
        self.nodes.iter().map(|node| node.id)
    }

    /// Returns the owner of a key, whatever the loads are. Returns `None` if no node may own keys.
    pub fn owner(&self, hash: u64) -> Option<Owner> {
        self.first_with_room(hash, |_| true)
    }

    /// Returns the first node in the key's order whose load is below the bound: 1.25 times the mean load in relation
    /// to the weights. The loads are counts of one kind, for example requests under way, and include none for the key.
    pub fn owner_within_bound(&self, hash: u64, load: impl Fn(NodeId) -> u64) -> Option<Owner> {
        let owners = || self.nodes.iter().filter(|node| !node.is_draining);
        let sum = owners().map(|node| load(node.id)).sum();
        let weights = owners().map(|node| u64::from(node.weight)).sum();
        let bound = LoadBound::new(sum, weights, LOAD_EXCESS_PERCENT);
        self.first_with_room(hash, |node| {
            bound.has_room(load(node.id), u64::from(node.weight))
        })
    }

    /// Returns all nodes in the order of the key, by falling score. Draining nodes keep their position.
    pub fn order(&self, hash: u64) -> impl Iterator<Item = NodeId> {
        self.walk(hash).map(|node| node.id)
    }

    /// Returns the nodes in the order of a key. Each step computes all scores again: nearly all walks have one step,
    /// and no memory for the scores is needed.
    fn walk(&self, hash: u64) -> impl Iterator<Item = &PlacedNode> {
        let mut last: Option<(f64, usize)> = None;
        std::iter::from_fn(move || {
            let mut best: Option<(f64, usize)> = None;
            for (at, node) in self.nodes.iter().enumerate() {
                let candidate = (score(node.key, u64::from(node.weight), hash), at);
                let is_left = last.is_none_or(|last| precedes(last, candidate));
                if is_left && best.is_none_or(|best| precedes(candidate, best)) {
                    best = Some(candidate);
                }
            }
            last = best;
            best.map(|(_, at)| &self.nodes[at])
        })
    }

    fn first_with_room(&self, hash: u64, has_room: impl Fn(&PlacedNode) -> bool) -> Option<Owner> {
        let (mut former, mut skipped) = (None, 0);
        for node in self.walk(hash) {
            if node.is_draining {
                // The draining node with the largest score owned the key last, if no other node precedes it.
                if skipped == 0 {
                    former.get_or_insert(node.id);
                }
            } else if has_room(node) {
                return Some(Owner {
                    node: node.id,
                    former,
                    skipped,
                });
            } else {
                skipped += 1;
            }
        }
        None
    }
}

impl PlacedNode {
    fn new(node: &Node) -> Self {
        let tenths = match node.state {
            NodeState::Starting { tenths } => u32::from(tenths.clamp(1, 9)),
            NodeState::Active | NodeState::Draining => 10,
        };
        Self {
            id: node.id,
            key: mix64(node.id.0 ^ NODE_SALT),
            weight: node.weight.get().min(WEIGHT_MAX) * tenths,
            is_draining: node.state == NodeState::Draining,
        }
    }
}

/// Returns true if the first of two nodes, each with its score and position, precedes the second in a walk. Equal
/// scores are ordered by id.
fn precedes(a: (f64, usize), b: (f64, usize)) -> bool {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).is_lt()
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { nodes } => {
                write!(
                    f,
                    "the group has {nodes} nodes; at most {NODES_MAX} are allowed"
                )
            }
            Self::Duplicate { id } => write!(f, "two nodes have the id {:016x}", id.0),
        }
    }
}

impl std::error::Error for PlacementError {}

/// Makes the numbers of nodes differ from mixed ids that are used elsewhere, and that of id 0 differ from 0.
const NODE_SALT: u64 = 0x666c_6565_742d_6e6f;
