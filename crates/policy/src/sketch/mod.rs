//! Small memories of many keys, wrong at a known rate.
//!
//! [`Bloom`] remembers keys in one cache line each. [`RotatingBloom`] forgets the old ones by keeping two of
//! them, which is what "has this been asked for before, lately?" needs. How often they are wrong, and how large
//! they must be to be wrong no more often than that, is worked out in [`rates`].

pub mod bloom;
pub mod rates;
pub mod rotating_bloom;
mod state;

pub use bloom::{Bloom, Probe};
pub use rotating_bloom::{RotatingBloom, RotatingBloomConfig, RotatingBloomStats, Seen};
pub use state::{MAGIC, StateError, VERSION};
