//! A tier whose ranking is selected at run time.
//!
//! The selection costs a hit one predictable branch. A generic server would have to be compiled once for each
//! policy.

use crate::admission::Admission;
use crate::eviction::{Gdsf, Lru};
use crate::slots::Slot;
use crate::tier::{Tier, Touch};
use crate::{Evicted, Object, Verdict};

/// A [`Tier`] with any ranking. It has the methods of [`Tier`].
#[derive(Debug)]
pub enum AnyTier {
    /// Ranked by recency.
    Lru(Tier<Lru>),
    /// Ranked by requests per byte.
    Gdsf(Tier<Gdsf>),
}

/// A [`Touch`] with any ranking.
#[derive(Clone, Debug)]
pub enum AnyTouch {
    /// Ranked by recency.
    Lru(Touch<Lru>),
    /// Ranked by requests per byte.
    Gdsf(Touch<Gdsf>),
}

macro_rules! each {
    ($any:expr, $tier:ident => $call:expr) => {
        match $any {
            AnyTier::Lru($tier) => $call,
            AnyTier::Gdsf($tier) => $call,
        }
    };
}

impl AnyTier {
    /// See [`Tier::offer`].
    pub fn offer(&mut self, object: &Object, evicted: &mut Vec<Evicted>) -> Verdict {
        each!(self, tier => tier.offer(object, evicted))
    }

    /// See [`Tier::remove`].
    pub fn remove(&mut self, slot: Slot) -> bool {
        each!(self, tier => tier.remove(slot))
    }

    /// See [`Tier::resize`].
    pub fn resize(&mut self, capacity_bytes: u64, evicted: &mut Vec<Evicted>) {
        each!(self, tier => tier.resize(capacity_bytes, evicted));
    }

    /// See [`Tier::set_admission`].
    pub fn set_admission(&mut self, admission: Admission) {
        each!(self, tier => tier.set_admission(admission));
    }

    /// See [`Tier::admission`].
    pub fn admission(&self) -> Admission {
        each!(self, tier => tier.admission())
    }

    /// See [`Tier::holds`].
    pub fn holds(&self, slot: Slot) -> bool {
        each!(self, tier => tier.holds(slot))
    }

    /// See [`Tier::touch`].
    pub fn touch(&self) -> AnyTouch {
        match self {
            Self::Lru(tier) => AnyTouch::Lru(tier.touch()),
            Self::Gdsf(tier) => AnyTouch::Gdsf(tier.touch()),
        }
    }

    /// See [`Tier::used_bytes`].
    pub fn used_bytes(&self) -> u64 {
        each!(self, tier => tier.used_bytes())
    }

    /// See [`Tier::capacity_bytes`].
    pub fn capacity_bytes(&self) -> u64 {
        each!(self, tier => tier.capacity_bytes())
    }

    /// See [`Tier::residents`].
    pub fn residents(&self) -> usize {
        each!(self, tier => tier.residents())
    }

    /// See [`Tier::digest`].
    pub fn digest(&self) -> u64 {
        each!(self, tier => tier.digest())
    }

    /// See [`Tier::bookkeeping_bytes`].
    pub fn bookkeeping_bytes(&self) -> usize {
        each!(self, tier => tier.bookkeeping_bytes())
    }
}

impl AnyTouch {
    /// See [`Touch::hit`].
    #[inline]
    pub fn hit(&self, slot: Slot) {
        match self {
            Self::Lru(touch) => touch.hit(slot),
            Self::Gdsf(touch) => touch.hit(slot),
        }
    }
}
