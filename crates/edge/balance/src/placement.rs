//! The placement of cache keys on the nodes of a fleet.
//!
//! Each key has one owner in a group of nodes, and only the owner stores its object. [`Placement`] is a function of the
//! member list and the key: nodes with equal lists find the same owner, in any order of the list. If a node joins or
//! leaves, only its own keys move (weighted rendezvous hashing). A placement has no table, so it takes 24 bytes per
//! node; a lookup computes one score per node and allocates nothing.
//!
//! If the owner is overloaded, keys with many requests go to the next node in the order of their scores
//! ([`Placement::owner_within_bound`]). This order differs from key to key, so the load of an overloaded node is
//! distributed over all others.

use std::fmt;
use std::num::NonZeroU32;

use edgeward_types::{KeyHash, mix64};

use super::group::WEIGHT_MAX;
use super::node_id::NodeId;
use super::node_loads::NodeLoads;
use super::rendezvous::{LoadBound, score};

/// An entry of the member list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The id.
    pub id: NodeId,
    /// The share of keys, in relation to the weights of the other nodes. At most [`WEIGHT_MAX`]. A node that has
    /// started announces a part of its weight.
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
    /// The node will leave. It owns no key, but other nodes may still ask it for the objects that it has.
    Draining,
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

/// The number of nodes, from the first one of a key's order, that store the object if other nodes ask them. More allow
/// a more popular object, and store it more often.
pub const OWNERS_MAX: usize = 4;

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
        let owner = self.owner_among(hash, |_| true)?;
        // The draining node with the largest score owned the key last, if it precedes the owner.
        let last = self.walk(hash).next().filter(|node| node.is_draining);
        let former = last.map(|node| node.id);
        Some(Owner { former, ..owner })
    }

    /// Returns the owner of a key among the nodes that `may_own` accepts.
    pub fn owner_among(&self, hash: u64, may_own: impl Fn(NodeId) -> bool) -> Option<Owner> {
        self.candidates(hash, may_own).next().map(Owner::of)
    }

    /// Returns the owner of a key for a request of a client at the node `own`, among the nodes that `may_own` accepts.
    /// If the load of the first node in the key's order has reached the bound, and the key had enough requests, this is
    /// the next node with room of [`OWNERS_MAX`]. `loads` are those that the node `own` has measured.
    ///
    /// The node `own` always has room: it sends the response to its client in any case.
    pub fn owner_within_bound(
        &self,
        hash: u64,
        own: NodeId,
        may_own: impl Fn(NodeId) -> bool,
        loads: &NodeLoads,
    ) -> Option<Owner> {
        let bound_of = |may_own: &dyn Fn(NodeId) -> bool| {
            let nodes = self.nodes.iter();
            let others = nodes.filter(|it| !it.is_draining && it.id != own && may_own(it.id));
            loads.bound(others.map(|it| (it.id, it.weight)))
        };
        let has_room = |bound: Option<LoadBound>, node: &PlacedNode| {
            let fits = |bound: LoadBound| bound.has_room(loads.of(node.id), node.weight.into());
            node.id == own || bound.is_none_or(fits)
        };
        let mut candidates = self.candidates(hash, &may_own).take(OWNERS_MAX);
        let first = candidates.next()?;
        // `may_own` takes longer than a score, so all nodes count at first.
        if has_room(bound_of(&|_| true), first) || !loads.may_move(KeyHash(hash)) {
            return Some(Owner::of(first));
        }
        let bound = bound_of(&may_own);
        let mut nodes = [first].into_iter().chain(candidates).enumerate();
        let (skipped, node) = nodes
            .find(|(_, node)| has_room(bound, node))
            .unwrap_or((0, first));
        Some(Owner {
            skipped,
            ..Owner::of(node)
        })
    }

    /// Returns the owner of a key for a request that another node of the group has sent to the node `own`. The sender
    /// may have skipped nodes, so each of [`OWNERS_MAX`] is the owner.
    pub fn owner_for_node(
        &self,
        hash: u64,
        own: NodeId,
        may_own: impl Fn(NodeId) -> bool,
    ) -> Option<Owner> {
        let mut candidates = self.candidates(hash, may_own).take(OWNERS_MAX).enumerate();
        let (_, first) = candidates.next()?;
        let itself = candidates.find(|(_, node)| node.id == own);
        let (skipped, node) = itself.unwrap_or((0, first));
        Some(Owner {
            skipped,
            ..Owner::of(node)
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

    /// Returns the nodes that may own a key, in its order.
    fn candidates(
        &self,
        hash: u64,
        may_own: impl Fn(NodeId) -> bool,
    ) -> impl Iterator<Item = &PlacedNode> {
        let walk = self.walk(hash);
        walk.filter(move |node| !node.is_draining && may_own(node.id))
    }
}

impl Owner {
    const fn of(node: &PlacedNode) -> Self {
        Self {
            node: node.id,
            former: None,
            skipped: 0,
        }
    }
}

impl PlacedNode {
    fn new(node: &Node) -> Self {
        Self {
            id: node.id,
            key: mix64(node.id.0 ^ NODE_SALT),
            weight: node.weight.get().min(WEIGHT_MAX),
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
