//! Drives the serving policies with a trace and reports what they would have done.
//!
//! A [`Run`] is one policy at one capacity, fed with records in batches, so that a trace of any
//! length passes through bounded memory and many runs share one reading of it. The decisions are
//! made by the very [`AnyTier`](edgeward_policy::AnyTier) that the server holds: fed with the same
//! requests, charges and seed, both end with the same digest. With a disk under RAM
//! ([`Run::with_disk`]) the rules between the tiers and the log's places are the server's too.
#![forbid(unsafe_code)]

mod capacity;
mod curve;
mod disk;
mod facts;
mod ram;
mod run;

pub use capacity::{Capacity, ParseCapacityError, ParseShareError, Share};
pub use curve::{CurveConfig, CurveRow, CurveStudy};
pub use disk::{DiskConfig, DiskReport, DiskTotals};
pub use facts::{TraceFacts, Traffic};
pub use run::{Interval, Run, RunConfig, RunReport, TierInterval, Tuned};
