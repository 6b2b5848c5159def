//! The rules by which the nodes of a fleet agree on purges.
//!
//! A stream numbers the purges of a fleet: the [`Stamp`] of a purge is its sequence number in the stream. Each node
//! applies the stream in order ([`Delivery`]); its position is the stamp of the last purge that it has applied. Nodes
//! have different positions at one time, so an object that a node sends to another may be older than a purge which the
//! receiver has applied already. An answer between nodes therefore states the stamp of its object
//! ([`Positions::stated`]), and the receiver stores the object with [`Positions::received`]. The order in which a purge
//! reaches the nodes then has no effect.

#[cfg(doc)]
use crate::positions::Positions;
use crate::scope::Stamp;

/// The handling of a purge that the stream has delivered. Streams deliver again after an interruption, and messages
/// may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The node applies the purge. Its stamp becomes the node's position.
    Next,
    /// The node has applied the purge before and ignores it.
    Repeated,
    /// Purges before this one are missing, or the stream is another one. The node ignores the purge and asks the
    /// stream for all purges after its position.
    Gap,
}

impl Delivery {
    /// Returns the handling of the purge `delivered` at a node with this position.
    pub fn at(position: Stamp, delivered: Stamp) -> Self {
        if position.epoch() != delivered.epoch() {
            Self::Gap
        } else if delivered <= position {
            Self::Repeated
        } else if delivered == position.next() {
            Self::Next
        } else {
            Self::Gap
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purges_are_applied_in_order_and_once() {
        let at =
            |position, delivered| Delivery::at(Stamp::at(1, position), Stamp::at(1, delivered));
        assert_eq!(at(0, 0), Delivery::Repeated);
        assert_eq!(at(0, 1), Delivery::Next);
        assert_eq!(at(0, 2), Delivery::Gap);
        assert_eq!(at(7, 6), Delivery::Repeated);
        assert_eq!(at(7, 8), Delivery::Next);
        let other = Stamp::at(2, 1);
        assert_eq!(Delivery::at(Stamp::at(1, 0), other), Delivery::Gap);
    }
}
