//! Compact memories of many keys with known error rates.
//!
//! [`Bloom`] stores a key in one cache line. [`RotatingBloom`] forgets old keys with two filters; it answers if
//! a key was requested recently. [`FrequencySketch`] estimates how often a key was requested recently. [`rates`]
//! computes error rates and the required sizes of filters. A saved [`RotatingBloom`] begins with [`MAGIC`] and
//! [`VERSION`].

pub mod bloom;
pub mod frequency;
pub mod rates;
pub mod rotating_bloom;
mod state;

pub use bloom::{Bloom, Probe};
pub use frequency::FrequencySketch;
pub use rotating_bloom::{KeyStatus, RotatingBloom, RotatingBloomConfig, RotatingBloomStats};
pub use state::{MAGIC, StateError, VERSION};
