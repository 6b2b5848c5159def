//! The positions of a node in the stream of its fleet.
//!
//! A node numbers its purges itself: those that the stream delivers, and those of this node only. A node states the
//! stamp of an object to another node as a stamp of the stream, which all nodes share.

use std::collections::VecDeque;

use crate::scope::Stamp;

/// The newest positions of a node: each is a stamp of the node, and the stamp of the stream's newest purge that the
/// node had applied by then. There are at most 4096, all of one stream.
#[derive(Clone, Debug, Default)]
pub struct Positions(VecDeque<(Stamp, Stamp)>);

impl Positions {
    /// Adds a position. Those of another stream, and those that are not older, are forgotten: a node that has lost
    /// purges falls back to an older position.
    pub(crate) fn add(&mut self, own: Stamp, of_stream: Stamp) {
        let is_older = |known: &(Stamp, Stamp)| {
            known.1.epoch() == of_stream.epoch() && known.0 < own && known.1 < of_stream
        };
        while self.0.back().is_some_and(|known| !is_older(known)) {
            self.0.pop_back();
        }
        if self.0.len() == POSITIONS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((own, of_stream));
    }

    pub(crate) fn newest(&self) -> Option<(Stamp, Stamp)> {
        self.0.back().copied()
    }

    /// Returns the stamp of the newest purge of the stream that is applied with all before it. `None` if the node has
    /// not followed a stream.
    pub fn position(&self) -> Option<Stamp> {
        self.newest().map(|(_, of_stream)| of_stream)
    }

    /// Returns the stamp in the stream of an object with a stamp of this node: an object with this stamp is not covered
    /// by the purges of the stream up to it. `None` if the object's stamp is older than all positions.
    fn of_stream(&self, own: Stamp) -> Option<Stamp> {
        let newer = self.0.partition_point(|(known, _)| *known <= own);
        let (known, of_stream) = self.0.get(newer.checked_sub(1)?)?;
        (known.epoch() == own.epoch()).then_some(*of_stream)
    }

    /// Returns the stamp that this node states to another node for an object: [`Stamp::NONE`] if the object's stamp is
    /// older than all positions. Any purge may cover such an object.
    pub fn stated(&self, own: Stamp) -> Stamp {
        self.of_stream(own).unwrap_or(Stamp::NONE)
    }

    /// Returns the stamp with which this node stores an object that another node has sent: the smaller of the stamp
    /// that the answer states and of the newest purge of this node when it asked. [`Stamp::NONE`] if the stated stamp
    /// is of another stream, or older than all positions.
    ///
    /// The node checks the object with this stamp like any stored object, before it serves or stores it. If a purge
    /// covers it, the sender was behind, and the node asks the origin.
    pub fn received(&self, stated: Stamp, asked_at: Stamp) -> Stamp {
        self.own(stated)
            .map_or(Stamp::NONE, |own| own.min(asked_at))
    }

    /// Returns the stamp of this node for a stamp of the stream. `None` if the stamp is of another stream, or older
    /// than all positions.
    fn own(&self, of_stream: Stamp) -> Option<Stamp> {
        let newer = self.0.partition_point(|(_, known)| *known <= of_stream);
        let (own, known) = self.0.get(newer.checked_sub(1)?)?;
        (known.epoch() == of_stream.epoch()).then_some(*own)
    }
}

/// The most positions that are kept: 64 kB. A batch of purges makes one, so they reach back over a second at least.
const POSITIONS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn own(sequence: u64) -> Stamp {
        Stamp::at(1, sequence)
    }

    fn of_stream(sequence: u64) -> Stamp {
        Stamp::at(2, sequence)
    }

    #[test]
    fn the_stamps_of_node_and_stream_are_related_by_the_newest_position_that_is_not_newer() {
        let mut positions = Positions::default();
        assert_eq!(positions.position(), None);
        assert_eq!(positions.of_stream(own(5)), None);
        positions.add(own(3), of_stream(10));
        positions.add(own(7), of_stream(12));
        assert_eq!(positions.position(), Some(of_stream(12)));
        let of = |n| positions.of_stream(own(n));
        assert_eq!([of(2), of(3)], [None, Some(of_stream(10))]);
        assert_eq!([of(6), of(7)], [Some(of_stream(10)), Some(of_stream(12))]);
        let back = |n| positions.own(of_stream(n));
        assert_eq!([back(9), back(10)], [None, Some(own(3))]);
        assert_eq!([back(11), back(12)], [Some(own(3)), Some(own(7))]);
        assert_eq!(back(99), Some(own(7)));
        assert_eq!(positions.own(Stamp::at(3, 11)), None);
        assert_eq!(positions.of_stream(Stamp::at(2, 7)), None);
    }

    #[test]
    fn the_smaller_stamp_counts_for_a_received_object() {
        let mut positions = Positions::default();
        assert_eq!(positions.received(of_stream(5), own(9)), Stamp::NONE);
        positions.add(own(3), of_stream(10));
        positions.add(own(7), of_stream(12));
        let received = |sequence, asked_at| positions.received(of_stream(sequence), own(asked_at));
        assert_eq!([received(11, 8), received(12, 8)], [own(3), own(7)]);
        assert_eq!(received(12, 5), own(5), "the node was behind");
        assert_eq!(received(9, 8), Stamp::NONE);
        assert_eq!(positions.received(Stamp::at(3, 12), own(8)), Stamp::NONE);
        assert_eq!(positions.received(Stamp::NONE, own(8)), Stamp::NONE);
        assert_eq!(positions.stated(own(2)), Stamp::NONE);
        assert_eq!(positions.stated(own(4)), of_stream(10));
    }

    #[test]
    fn positions_of_another_stream_are_forgotten() {
        let mut positions = Positions::default();
        positions.add(own(3), of_stream(10));
        positions.add(own(4), Stamp::at(9, 1));
        assert_eq!(positions.own(of_stream(10)), None);
        assert_eq!(positions.of_stream(own(3)), None);
        assert_eq!(positions.of_stream(own(4)), Some(Stamp::at(9, 1)));
    }

    #[test]
    fn the_oldest_positions_are_forgotten() {
        let mut positions = Positions::default();
        let count = POSITIONS_MAX as u64;
        (1..=count).for_each(|n| positions.add(own(n), of_stream(n)));
        assert_eq!(positions.own(of_stream(1)), Some(own(1)));
        positions.add(own(count + 1), of_stream(count + 1));
        assert_eq!(positions.own(of_stream(1)), None);
        assert_eq!(positions.own(of_stream(2)), Some(own(2)));
    }

    proptest! {
        /// Neither direction claims more than was applied: there and back is never newer.
        #[test]
        fn there_and_back_is_never_newer(
            steps in prop::collection::vec((0_u64..4, 0_u64..4), 1..20),
            at in 0_u64..60,
        ) {
            let mut positions = Positions::default();
            let (mut last_own, mut last) = (0, 0);
            for (of_node, more) in steps {
                (last_own, last) = (last_own + of_node, last + more);
                positions.add(own(last_own), of_stream(last));
            }
            if let Some(stamp) = positions.of_stream(own(at)) {
                prop_assert!(positions.own(stamp).is_some_and(|back| back <= own(at)));
            }
            if let Some(stamp) = positions.own(of_stream(at)) {
                prop_assert!(positions.of_stream(stamp).is_some_and(|back| back <= of_stream(at)));
            }
        }
    }
}
