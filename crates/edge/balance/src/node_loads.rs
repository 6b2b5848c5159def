//! The loads of the nodes of a fleet, as one node measures them, and the bound by which a key of an overloaded node
//! moves.
//!
//! Each node counts the answers that it gets from the others. Nothing is announced: if the loads that each node causes
//! are within the bound, so are their sums. The counts of nodes differ by chance, so a key near the bound may be stored
//! at two nodes.
//!
//! Only keys with many requests move, because the other node has to fetch the object from the origin again and stores
//! it a second time.

use edgeward_types::{KeyHash, Timestamp};

use super::hot_copy::DECAY_SECONDS;
use super::key_rates::KeyRates;
use super::node_id::NodeId;
use super::rendezvous::LoadBound;

/// The recent answers of the other nodes of a group to this node, by node and by key. Older ones count less. The time
/// is the number of answers, so the speed of the requests has no effect. It takes 512 KiB.
#[derive(Debug)]
pub struct NodeLoads {
    /// The work of each node, sorted by id. All are halved from time to time.
    loads: Box<[(NodeId, u64)]>,
    /// The number of answers in `loads`, halved with them.
    counted: u64,
    /// The number of all answers.
    answers: u64,
    keys: KeyRates,
}

impl NodeLoads {
    /// Returns the loads of nodes that have answered nothing yet.
    pub fn new(nodes: impl Iterator<Item = NodeId>) -> Self {
        let mut loads: Vec<_> = nodes.map(|node| (node, 0)).collect();
        loads.sort_unstable();
        Self {
            loads: loads.into(),
            counted: 0,
            answers: 0,
            keys: KeyRates::default(),
        }
    }

    /// Returns the nodes in ascending order.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = NodeId> {
        self.loads.iter().map(|(node, _)| *node)
    }

    /// Counts an answer with a body of this length. Answers of unknown nodes do not count.
    pub fn record(&mut self, node: NodeId, key: KeyHash, body_bytes: u64) {
        let Ok(at) = self.loads.binary_search_by_key(&node, |(node, _)| *node) else {
            return;
        };
        let load = &mut self.loads[at].1;
        *load = load.saturating_add(body_bytes.saturating_add(ANSWER_BYTES));
        self.counted += 1;
        self.answers += 1;
        if self.counted >= self.window() {
            self.counted /= 2;
            self.loads.iter_mut().for_each(|(_, load)| *load /= 2);
        }
        self.keys.record(key, self.now());
    }

    /// Returns true if a key had so many requests that it may move from an overloaded node.
    pub(crate) fn may_move(&self, key: KeyHash) -> bool {
        self.keys.before_last(key, self.now()) >= MOVED_ANSWERS_MIN
    }

    /// Returns the bound of the loads of these nodes, each with its weight. `None` if the answers are too few to show
    /// an overload.
    pub(crate) fn bound(&self, nodes: impl Iterator<Item = (NodeId, u32)>) -> Option<LoadBound> {
        let (mut sum, mut weights) = (0_u64, 0);
        for (node, weight) in nodes {
            sum = sum.saturating_add(self.of(node));
            weights += u64::from(weight);
        }
        let is_measured = self.counted >= self.window() / 8;
        is_measured.then(|| LoadBound::new(sum, weights, LOAD_EXCESS_PERCENT))
    }

    /// Returns the load of a node.
    pub(crate) fn of(&self, node: NodeId) -> u64 {
        let at = self.loads.binary_search_by_key(&node, |(node, _)| *node);
        at.map_or(0, |at| self.loads[at].1)
    }

    /// Returns the number of answers at which the loads are halved.
    fn window(&self) -> u64 {
        ANSWERS_PER_NODE * self.loads.len().max(1) as u64
    }

    /// Returns the number of answers as the time of `keys`: its rates decay by the factor e within a window.
    fn now(&self) -> Timestamp {
        Timestamp::from_secs(self.answers * DECAY_SECONDS / self.window())
    }
}

/// The percentage by which the load of a node may exceed the mean: the bound is 1.25 times the mean. A smaller bound
/// moves more keys, a larger one needs more spare capacity in each node.
pub const LOAD_EXCESS_PERCENT: u32 = 25;

/// The work of an answer without a body, as the bytes of a body that are as much work.
const ANSWER_BYTES: u64 = 64 << 10;

/// The loads are halved at this number of answers per node, and compared from an eighth of it on. A smaller number
/// mistakes chance for overload: of 256 to 512 answers of equal work, the standard deviation is 4 to 6 %, and the bound
/// is at 25 %.
const ANSWERS_PER_NODE: u64 = 512;

/// A key may move after this number of recent answers and one more. One of eight nodes asks the seven others for such
/// a key in one of 900 of its requests.
const MOVED_ANSWERS_MIN: f64 = 4.0;
