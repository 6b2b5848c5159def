//! The policies of both simulators.

/// The program that runs a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Simulator {
    Edgeward,
    /// libCacheSim.
    Referee,
}

impl Simulator {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Edgeward => "edgeward",
            Self::Referee => "libcachesim",
        }
    }
}

/// A policy of a simulator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    pub(super) simulator: Simulator,
    pub(super) name: &'static str,
    /// True if the policy knows all future requests.
    pub(super) offline: bool,
    /// True if the policy belongs to the short bench, `--few`.
    pub(super) few: bool,
}

impl Policy {
    /// Returns true for the pseudo-policy that stands for the upper bounds.
    pub(super) fn is_bound(&self) -> bool {
        self.name == BOUND
    }
}

/// The name under which the upper bounds are kept.
pub(super) const BOUND: &str = "upper-bound";

const fn online(simulator: Simulator, name: &'static str) -> Policy {
    Policy {
        simulator,
        name,
        offline: false,
        few: false,
    }
}

const fn few(policy: Policy) -> Policy {
    Policy {
        few: true,
        ..policy
    }
}

const fn offline(policy: Policy) -> Policy {
    Policy {
        offline: true,
        ..policy
    }
}

const fn ours(name: &'static str) -> Policy {
    online(Simulator::Edgeward, name)
}

const fn theirs(name: &'static str) -> Policy {
    online(Simulator::Referee, name)
}

/// Our policies. Those that the binary does not know are skipped.
pub(super) const OURS: [Policy; 33] = [
    few(offline(ours(BOUND))),
    few(ours("density")),
    few(ours("gdsf")),
    few(ours("gdsf-plain")),
    few(ours("lru")),
    ours("fifo"),
    ours("slru"),
    ours("s4lru"),
    ours("2q"),
    ours("lru-k"),
    ours("arc"),
    few(ours("s3-fifo")),
    ours("sieve"),
    ours("w-tinylfu"),
    ours("tinylfu-av"),
    ours("gdsf-ghosts"),
    few(ours("lhd")),
    ours("hyperbolic"),
    ours("camp"),
    ours("gds"),
    ours("lfu-da"),
    ours("size"),
    ours("adaptsize"),
    ours("adaptsize-code"),
    ours("adaptsize-horizon"),
    ours("inverse-size:64KiB"),
    ours("second-hit"),
    ours("threshold-percentile:90"),
    ours("hill-climbing"),
    ours("adaptsize-horizon+gdsf"),
    offline(ours("belady")),
    offline(ours("belady-size")),
    offline(ours("size-opt")),
];

/// The referee's policies. The slow ones are last, because runs start in this order.
pub(super) const REFEREE: [Policy; 13] = [
    few(theirs("LRU")),
    few(theirs("GDSF")),
    few(offline(theirs("BeladySize"))),
    few(theirs("ThreeLCache")),
    theirs("FIFO"),
    theirs("SLRU"),
    few(theirs("S3FIFO")),
    theirs("Sieve"),
    few(theirs("LHD")),
    theirs("GLCache"),
    offline(theirs("Belady")),
    theirs("WTinyLFU"),
    theirs("LRB"),
];

/// Our policy, the referee's, and the largest difference of their object hit ratios that counts as agreement, in
/// percentage points.
pub(super) const COUNTERPARTS: [(&str, &str, f64); 8] = [
    ("lru", "LRU", 0.005),
    ("fifo", "FIFO", 0.005),
    ("gdsf", "GDSF", 0.5),
    ("s3-fifo", "S3FIFO", 0.5),
    ("sieve", "Sieve", 0.5),
    ("lhd", "LHD", 0.5),
    ("s4lru", "SLRU", 0.5),
    ("w-tinylfu", "WTinyLFU", 0.5),
];
