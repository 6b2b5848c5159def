//! Generates CDN-like traffic from a seed.
//!
//! A [`Workload`] is a mix of traffic classes (web pages, images, video chunks, downloads,
//! API responses), each with its own catalogue (set of objects), Zipf popularity and sizes. Three properties that
//! determine the hit ratio of a cache are set exactly:
//!
//! - **one-hit wonders**: the configured share of objects has exactly one request, and every other object has
//!   at least two requests;
//! - **churn**: the configured share of the catalogue appears during the trace; each new object
//!   takes the popularity rank of an object that gets no further requests;
//! - **the mix**: the weights of the classes change at given points of the trace.
//!
//! A request takes O(1) time, independent of the catalogue's size. A trace depends only on its workload and
//! seed: the random numbers, the logarithm and the exponential function are implemented here with operations
//! that IEEE 754 rounds identically on every machine.

mod catalogue;
mod generator;
mod math;
mod preset;
mod random;
mod sizes;
mod workload;
mod zipf;

pub use generator::Generator;
pub use preset::{ParsePresetError, Preset};
pub use sizes::{Sizes, Tail};
pub use workload::{Class, Phase, Workload, WorkloadError};
