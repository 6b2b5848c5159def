//! CDN-like traffic out of a seed.
//!
//! A [`Workload`] is a mix of traffic classes (web pages, images, video chunks, downloads,
//! API answers), each with its own catalogue, Zipf popularity and sizes. Three things that
//! decide how a cache fares are under exact control:
//!
//! - **one-hit wonders**: the requested share of objects is asked for exactly once and every
//!   other object at least twice, not on average but to the object;
//! - **churn**: a set share of the catalogue is not there at the start and is born during the
//!   trace, each newcomer taking the popularity of an object that dies;
//! - **the mix**: the classes' weights change at set points of the trace.
//!
//! A request costs O(1) whatever the catalogue's size, and a trace depends on its workload and
//! seed alone: the random stream, logarithm and exponential are this crate's own, made of
//! operations IEEE 754 rounds the same way everywhere.

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
