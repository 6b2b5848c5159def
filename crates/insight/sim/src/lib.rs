//! Simulates the server's policies over a trace.
//!
//! A [`Run`] simulates one policy at one capacity. It processes records in batches, so that a trace of any
//! length needs bounded memory and many runs share one pass over it. The decisions are made by the same
//! [`AnyTier`](edgeward_policy::AnyTier) as in the server: with equal requests, charges and seed, both make the same
//! decisions and report equal digests of them. With a disk below memory ([`Run::with_disk`]) the rules between the
//! tiers and the space management of the log are the server's too. A [`Fleet`] simulates several nodes with the
//! placement code of [`edgeward_balance`].
#![forbid(unsafe_code)]

mod bound;
mod capacity;
mod cost;
mod curve;
mod disk;
mod expiry;
mod facts;
mod fetches;
mod fleet;
mod miss_ratio;
mod missed;
mod objects;
mod offline;
mod ram;
mod run;
mod warmup;

pub use edgeward_balance::NODES_MAX;
pub use edgeward_policy::{Objective, ParseObjectiveError};

pub use bound::{BoundReport, OfflineBounds};
pub use capacity::{Capacity, ParseCapacityError, ParseShareError, Share};
pub use cost::OriginCost;
pub use curve::{CurveConfig, CurveMean, CurveRow, CurveStudy};
pub use disk::{DiskConfig, DiskReport, DiskTotals};
pub use facts::{TraceFacts, Traffic};
pub use fetches::FetchReport;
pub use fleet::{Fleet, FleetConfig, FleetKind, FleetReport, LossReport, ShieldConfig};
pub use miss_ratio::{CurvePoint, LruCurve, Sampler, curve_capacities};
pub use missed::MissedBucket;
pub use objects::{ObjectNumber, Request};
pub use offline::{
    OFFLINE_NAMES, OfflineConfig, OfflinePolicy, ParseOfflinePolicyError,
    ParseSimulatedPolicyError, RecordedTrace, SimulatedPolicy, TraceRecorder, TraceTooLong,
};
pub use run::{Interval, Run, RunConfig, RunReport, TierInterval, Tuned};
pub use warmup::{ParseWarmupError, Warmup};
