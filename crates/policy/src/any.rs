//! A tier whose ranking, the order in which objects are evicted, is selected at run time.
//!
//! The selection costs a hit one predictable branch. A generic server would have to be compiled once for each
//! policy.

use edgeward_types::Seed;

use crate::admission::Admission;
use crate::density::{DensityHitRecorder, DensityTier};
use crate::eviction::{Fifo, Gds, Gdsf, GdsfPlain, LfuDa, Lru, Size};
use crate::slots::Slot;
use crate::spec::EvictionSpec;
use crate::tier::{HitRecorder, Tier};
use crate::{Evicted, Object, Verdict};

/// Declares [`AnyTier`] and [`AnyHitRecorder`] with one variant per eviction rule: its name, its tier and its recorder.
macro_rules! any_tier {
    ($($rule:ident: $tier:ty, $recorder:ty;)*) => {
        /// A tier with any eviction rule. It has the methods of [`Tier`].
        #[derive(Debug)]
        pub enum AnyTier {
            $(
                #[doc = concat!("Evicts by the rule [`EvictionSpec::", stringify!($rule), "`].")]
                $rule($tier),
            )*
        }

        /// A [`HitRecorder`] with any eviction rule.
        #[derive(Clone, Debug)]
        pub enum AnyHitRecorder {
            $(
                #[doc = concat!("Evicts by the rule [`EvictionSpec::", stringify!($rule), "`].")]
                $rule($recorder),
            )*
        }

        impl AnyTier {
            /// Makes an empty tier. All random decisions depend on `seed`.
            pub fn new(
                eviction: EvictionSpec,
                capacity_bytes: u64,
                admission: Admission,
                seed: Seed,
            ) -> Self {
                match eviction {
                    // LRU in a tier that is never full evicts no object.
                    EvictionSpec::Never => Self::Lru(Tier::new(u64::MAX, admission, seed)),
                    $(EvictionSpec::$rule => {
                        Self::$rule(<$tier>::new(capacity_bytes, admission, seed))
                    })*
                }
            }

            /// See [`Tier::hit_recorder`].
            pub fn hit_recorder(&self) -> AnyHitRecorder {
                match self {
                    $(Self::$rule(tier) => AnyHitRecorder::$rule(tier.hit_recorder()),)*
                }
            }
        }

        impl AnyHitRecorder {
            /// See [`HitRecorder::hit`].
            #[inline]
            pub fn hit(&self, slot: Slot) {
                match self {
                    $(Self::$rule(hit_recorder) => hit_recorder.hit(slot),)*
                }
            }
        }
    };
}

any_tier! {
    Lru: Tier<Lru>, HitRecorder<Lru>;
    Fifo: Tier<Fifo>, HitRecorder<Fifo>;
    Size: Tier<Size>, HitRecorder<Size>;
    LfuDa: Tier<LfuDa>, HitRecorder<LfuDa>;
    Gds: Tier<Gds>, HitRecorder<Gds>;
    Gdsf: Tier<Gdsf>, HitRecorder<Gdsf>;
    GdsfPlain: Tier<GdsfPlain>, HitRecorder<GdsfPlain>;
    Density: DensityTier, DensityHitRecorder;
}

macro_rules! with_tier {
    ($any:expr, $tier:ident => $call:expr) => {
        match $any {
            AnyTier::Lru($tier) => $call,
            AnyTier::Fifo($tier) => $call,
            AnyTier::Size($tier) => $call,
            AnyTier::LfuDa($tier) => $call,
            AnyTier::Gds($tier) => $call,
            AnyTier::Gdsf($tier) => $call,
            AnyTier::GdsfPlain($tier) => $call,
            AnyTier::Density($tier) => $call,
        }
    };
}

impl AnyTier {
    /// See [`Tier::offer`].
    pub fn offer(&mut self, object: &Object, evicted: &mut Vec<Evicted>) -> Verdict {
        with_tier!(self, tier => tier.offer(object, evicted))
    }

    /// See [`Tier::remove`].
    pub fn remove(&mut self, slot: Slot) -> bool {
        with_tier!(self, tier => tier.remove(slot))
    }

    /// See [`Tier::resize`].
    pub fn resize(&mut self, capacity_bytes: u64, evicted: &mut Vec<Evicted>) {
        with_tier!(self, tier => tier.resize(capacity_bytes, evicted));
    }

    /// See [`Admission::set_c`].
    pub fn set_c(&mut self, c_bytes: f64) {
        with_tier!(self, tier => tier.set_c(c_bytes));
    }

    /// See [`Tier::admission`].
    pub fn admission(&self) -> &Admission {
        with_tier!(self, tier => tier.admission())
    }

    /// See [`Tier::holds`].
    pub fn holds(&self, slot: Slot) -> bool {
        with_tier!(self, tier => tier.holds(slot))
    }

    /// See [`Tier::used_bytes`].
    pub fn used_bytes(&self) -> u64 {
        with_tier!(self, tier => tier.used_bytes())
    }

    /// See [`Tier::capacity_bytes`].
    pub fn capacity_bytes(&self) -> u64 {
        with_tier!(self, tier => tier.capacity_bytes())
    }

    /// See [`Tier::residents`].
    pub fn residents(&self) -> usize {
        with_tier!(self, tier => tier.residents())
    }

    /// See [`Tier::digest`].
    pub fn digest(&self) -> u64 {
        with_tier!(self, tier => tier.digest())
    }

    /// The bytes of bookkeeping beyond [`BOOKKEEPING_BYTES_CHARGED`](crate::BOOKKEEPING_BYTES_CHARGED) per resident
    /// object. A cache whose capacity limits all its memory reduces the capacity of the tier by this number.
    pub fn uncharged_bytes(&self) -> u64 {
        match self {
            Self::Density(tier) => tier.uncharged_bytes(),
            // The charge includes 8 bytes for the state of the ranking. A state has 8 or 16 bytes; the rest is ignored.
            _ => 0,
        }
    }

    /// See [`Tier::bookkeeping_bytes`].
    pub fn bookkeeping_bytes(&self) -> usize {
        with_tier!(self, tier => tier.bookkeeping_bytes())
    }
}
