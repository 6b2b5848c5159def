//! An admission rule: its parameters or memory, and its decision.

use super::nth_hit::NthHit;
use super::{exponential, inverse_size, threshold};
use crate::object::Object;
use crate::rng::Rng;

/// An admission rule with its state.
#[derive(Debug)]
pub enum Admission {
    /// Admits every object.
    Always,
    /// Admits objects up to a size.
    Threshold {
        /// The largest admitted size.
        size_bytes_max: u64,
    },
    /// Admits an object of `s` bytes with probability `e^(-s/c)`: small objects nearly always, large objects
    /// rarely.
    Exponential {
        /// The size in bytes at which the probability is 1/e. Infinity admits every object.
        c: f64,
    },
    /// Admits an object of `s` bytes with probability `size_bytes / s`, and always if `s` is at most `size_bytes`.
    InverseSize {
        /// The largest size that is always admitted.
        size_bytes: u64,
    },
    /// Admits an object at its N-th remembered miss and at later ones.
    NthHit(NthHit),
}

impl Admission {
    /// Returns true if `object` is admitted. Call this function once per miss, because a rule may count the request.
    /// Only a random rule draws from `rng`, one number per call.
    pub fn admits(&self, object: &Object, rng: &mut Rng) -> bool {
        match self {
            Self::Always => true,
            Self::Threshold { size_bytes_max } => threshold::admits(*size_bytes_max, object),
            Self::Exponential { c } => exponential::admits(*c, object, rng),
            Self::InverseSize { size_bytes } => inverse_size::admits(*size_bytes, object, rng),
            Self::NthHit(rule) => rule.admits(object),
        }
    }

    /// Sets the size parameter of the rule: the largest admitted size of a threshold, or `c` of the exponential rule.
    /// Other rules have no such parameter and do not change. Tuners call this function.
    pub fn set_c(&mut self, c_bytes: f64) {
        match self {
            Self::Threshold { size_bytes_max } => *size_bytes_max = c_bytes as u64,
            Self::Exponential { c } => *c = c_bytes,
            Self::Always | Self::InverseSize { .. } | Self::NthHit(_) => {}
        }
    }

    /// The size parameter that a tuner may set, in bytes. `None` if the rule has no such parameter.
    pub fn c(&self) -> Option<f64> {
        match *self {
            Self::Threshold { size_bytes_max } if size_bytes_max == u64::MAX => Some(f64::INFINITY),
            Self::Threshold { size_bytes_max } => Some(size_bytes_max as f64),
            Self::Exponential { c } => Some(c),
            Self::Always | Self::InverseSize { .. } | Self::NthHit(_) => None,
        }
    }

    /// The bytes of memory of the rule's state, without the memory of its tuner.
    pub fn memory_bytes(&self) -> u64 {
        match self {
            Self::NthHit(rule) => rule.memory_bytes(),
            _ => 0,
        }
    }
}
