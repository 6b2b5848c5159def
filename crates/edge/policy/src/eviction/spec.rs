//! The eviction rules and their names.

use std::fmt;

use edgeward_types::Seed;

use super::greedy_dual::{Gds, Gdsf, GdsfGhosts, GdsfPlain, LfuDa};
use super::size::Size;
use crate::admission::rule::Admission;
use crate::density::DensityTier;
use crate::lists::{
    AdaptiveReplacement, Camp, Fifo, Hyperbolic, Lhd, ListTier, Lru, LruK, S3Fifo, S4Lru, Sieve,
    Slru, TinyLfuAv, TwoQ, WTinyLfu,
};
use crate::ranked::RankedTier;
use crate::rule_text::{ParsePolicyError, reject_argument, split_argument};
use crate::tier::AnyTier;

/// An eviction rule. [`EVICTION_NAMES`](crate::EVICTION_NAMES) lists the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionSpec {
    /// Evicts the least recently used object.
    Lru,
    /// Evicts the object that was admitted first.
    Fifo,
    /// LRU with two segments: an object that was hit is evicted after the objects without hits.
    Slru,
    /// LRU with four segments of equal size: an object rises by one segment at each hit.
    S4Lru,
    /// FIFO with a moving position. Evicts the next object that was not hit since the position last passed it.
    Sieve,
    /// FIFO with a small queue for new objects, a main queue for objects with several hits, and ghosts.
    S3Fifo,
    /// A FIFO queue for new objects, and LRU for objects that are requested again after their eviction.
    TwoQ,
    /// Two LRU lists, for objects with one request and for objects with several. Their sizes adapt to the traffic.
    Arc,
    /// Evicts the object whose second-last request is the oldest.
    LruK,
    /// LRU for a small window of new objects. An object stays after the window if it has more requests than the object
    /// that it replaces.
    WTinyLfu,
    /// Like [`WTinyLfu`](Self::WTinyLfu), but an object must have as many requests as all objects together that it
    /// replaces.
    TinyLfuAv,
    /// Evicts the largest object.
    Size,
    /// Evicts the object with the fewest requests. Old requests lose weight, so that formerly popular objects
    /// are evicted.
    LfuDa,
    /// GreedyDual-Size: prefers to evict large objects and objects that were not requested recently.
    Gds,
    /// Like [`Gds`](Self::Gds), with sizes rounded so that queues replace the heap.
    Camp,
    /// Compares 64 random objects, and evicts the one with the fewest requests per byte and time since its admission.
    Hyperbolic,
    /// Compares several random objects, and evicts the one with the fewest expected hits per byte and time.
    Lhd,
    /// Evicts the object with the fewest requests per byte. Rejects a new object if an object that would be
    /// evicted for it has more requests per byte; in this comparison, the new object counts with at least four
    /// requests.
    Gdsf,
    /// Like [`Gdsf`](Self::Gdsf), but the earlier requests of an evicted or rejected object count when it is
    /// offered again.
    GdsfGhosts,
    /// Evicts the object with the fewest requests per byte: GDSF as published.
    GdsfPlain,
    /// Evicts the object with the fewest expected hits per byte and time, learned from the traffic. Rejects a new
    /// object if an object that would be evicted for it has at least as many.
    ///
    /// The rule of the default policy. docs/explanation/policies.md compares the rules.
    Density,
    /// Evicts no object: the upper bound of hits for any policy.
    Never,
}

impl EvictionSpec {
    /// See [`PolicySpec::weighs_benefits`](crate::PolicySpec::weighs_benefits).
    pub(crate) const fn weighs_benefits(self) -> bool {
        matches!(
            self,
            Self::Gds | Self::Gdsf | Self::GdsfGhosts | Self::GdsfPlain | Self::Density
        )
    }

    /// See [`PolicySpec::is_served`](crate::PolicySpec::is_served).
    pub(crate) const fn is_served(self) -> bool {
        matches!(
            self,
            Self::Lru
                | Self::LfuDa
                | Self::Gdsf
                | Self::GdsfGhosts
                | Self::GdsfPlain
                | Self::Density
        )
    }

    /// Makes an empty tier with this eviction rule.
    pub(crate) fn tier(self, capacity_bytes: u64, admission: Admission, seed: Seed) -> AnyTier {
        /// Calls the constructor of a tier type and boxes the tier.
        macro_rules! tier {
            ($tier:ty, $capacity_bytes:expr) => {
                Box::new(<$tier>::new($capacity_bytes, admission, seed))
            };
            ($tier:ty) => {
                tier!($tier, capacity_bytes)
            };
        }
        match self {
            Self::Lru => tier!(ListTier<Lru>),
            Self::Fifo => tier!(ListTier<Fifo>),
            Self::Slru => tier!(ListTier<Slru>),
            Self::S4Lru => tier!(ListTier<S4Lru>),
            Self::Sieve => tier!(ListTier<Sieve>),
            Self::S3Fifo => tier!(ListTier<S3Fifo>),
            Self::TwoQ => tier!(ListTier<TwoQ>),
            Self::Arc => tier!(ListTier<AdaptiveReplacement>),
            Self::LruK => tier!(ListTier<LruK>),
            Self::WTinyLfu => tier!(ListTier<WTinyLfu>),
            Self::TinyLfuAv => tier!(ListTier<TinyLfuAv>),
            Self::Size => tier!(RankedTier<Size>),
            Self::LfuDa => tier!(RankedTier<LfuDa>),
            Self::Gds => tier!(RankedTier<Gds>),
            Self::Camp => tier!(ListTier<Camp>),
            Self::Hyperbolic => tier!(ListTier<Hyperbolic>),
            Self::Lhd => tier!(ListTier<Lhd>),
            Self::Gdsf => tier!(RankedTier<Gdsf>),
            Self::GdsfGhosts => tier!(RankedTier<GdsfGhosts>),
            Self::GdsfPlain => tier!(RankedTier<GdsfPlain>),
            Self::Density => tier!(DensityTier),
            // FIFO in a tier that is never full evicts no object.
            Self::Never => tier!(ListTier<Fifo>, u64::MAX),
        }
    }

    /// See [`PolicySpec::depends_on_key_hash`](crate::PolicySpec::depends_on_key_hash).
    pub(crate) fn depends_on_key_hash(self) -> bool {
        matches!(self, Self::WTinyLfu | Self::TinyLfuAv)
    }
}

/// The eviction rules by name.
pub(crate) const EVICTIONS: &[(&str, EvictionSpec)] = &[
    ("lru", EvictionSpec::Lru),
    ("fifo", EvictionSpec::Fifo),
    ("slru", EvictionSpec::Slru),
    ("s4lru", EvictionSpec::S4Lru),
    ("sieve", EvictionSpec::Sieve),
    ("s3-fifo", EvictionSpec::S3Fifo),
    ("2q", EvictionSpec::TwoQ),
    ("arc", EvictionSpec::Arc),
    ("lru-k", EvictionSpec::LruK),
    ("w-tinylfu", EvictionSpec::WTinyLfu),
    ("tinylfu-av", EvictionSpec::TinyLfuAv),
    ("size", EvictionSpec::Size),
    ("lfu-da", EvictionSpec::LfuDa),
    ("gds", EvictionSpec::Gds),
    ("camp", EvictionSpec::Camp),
    ("hyperbolic", EvictionSpec::Hyperbolic),
    ("lhd", EvictionSpec::Lhd),
    ("gdsf", EvictionSpec::Gdsf),
    ("gdsf-ghosts", EvictionSpec::GdsfGhosts),
    ("gdsf-plain", EvictionSpec::GdsfPlain),
    ("density", EvictionSpec::Density),
    ("infinite", EvictionSpec::Never),
];

/// Returns `None` if no eviction rule has this name.
pub(crate) fn parse_eviction(text: &str) -> Result<Option<EvictionSpec>, ParsePolicyError> {
    let (name, argument) = split_argument(text);
    let Some(&(_, eviction)) = EVICTIONS.iter().find(|entry| entry.0 == name) else {
        return Ok(None);
    };
    reject_argument(name, argument)?;
    Ok(Some(eviction))
}

impl fmt::Display for EvictionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = EVICTIONS.iter().find(|entry| entry.1 == *self);
        f.write_str(entry.expect("every rule has a name").0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule_text::{EVICTION_NAMES, SERVED_EVICTION_NAMES};

    /// The names in the messages are those of the rules.
    #[test]
    fn the_messages_name_every_eviction_rule() {
        let names = |rules: &mut dyn Iterator<Item = &(&'static str, EvictionSpec)>| {
            let names: Vec<&str> = rules.map(|entry| entry.0).collect();
            names.join(", ")
        };
        assert_eq!(EVICTION_NAMES, names(&mut EVICTIONS.iter()));
        let mut served = EVICTIONS.iter().filter(|entry| entry.1.is_served());
        assert_eq!(SERVED_EVICTION_NAMES, names(&mut served));
    }
}
