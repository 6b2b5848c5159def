//! The path of a request through a fleet: which node answers it, which node stores the object, and which node or
//! origin is asked on a miss.
//!
//! A fleet has up to two groups. The edges serve the clients; the shields, if any, are asked by the edges and ask the
//! origin. In both, an object has one owner ([`Placement`](crate::Placement)). A request that came from a node never
//! goes to another node of the same group. Two nodes with different member lists therefore cannot wait for each other,
//! and no request visits more than two edges and one shield.

use super::node_id::NodeId;
use super::placement::Owner;

/// The sender of a request that a node has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A client of the site.
    Client,
    /// A node of the group of edges.
    Edge,
}

/// The group of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeGroup {
    /// The nodes that serve clients.
    Edge,
    /// The nodes between the edges and the origin.
    Shield,
}

/// The decisions of a node about a request that its memory cannot answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The node or origin that is asked next.
    pub target: Target,
    /// True if this node stores the response as the owner. Any other node stores it only as a hot copy
    /// ([`CopyRule`](crate::CopyRule)).
    pub stores: bool,
}

/// The destination of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// An edge: the owner of the key.
    Edge(Owner),
    /// A shield: the owner of the key among the shields.
    Shield(Owner),
    /// The origin.
    Origin,
}

/// Returns the next hop of a request at the node `node` of `group`. `edge_owner` and `shield_owner` return the owner of
/// the request's key in their group, or `None` if the group has no owner.
///
/// A node that another node took for the owner, by a different member list, fetches the object. It stores the object if
/// `edge_owner` returns it: see [`Placement::owner_for_node`](crate::Placement::owner_for_node).
pub fn next_hop(
    node: NodeId,
    group: NodeGroup,
    sender: Sender,
    edge_owner: impl FnOnce() -> Option<Owner>,
    shield_owner: impl FnOnce() -> Option<Owner>,
) -> Hop {
    let is_own = |owner: Option<Owner>| owner.is_some_and(|owner| owner.node == node);
    if group == NodeGroup::Shield {
        return Hop {
            target: Target::Origin,
            stores: is_own(shield_owner()),
        };
    }
    let owner = edge_owner();
    match owner {
        Some(owner) if owner.node != node && sender == Sender::Client => Hop {
            target: Target::Edge(owner),
            stores: false,
        },
        _ => Hop {
            target: shield_owner().map_or(Target::Origin, Target::Shield),
            stores: is_own(owner),
        },
    }
}
