//! An edge as a whole: start, stop, metrics and status. `hostile` has functions for the fuzz targets only.

mod admin;
mod bind; // listeners and certificates
mod edge_health;
mod handover; // an upgrade passes sockets and store to another process
#[doc(hidden)]
pub mod hostile;
mod inherit;
mod measured; // the memory of the process, and its bounds
mod metrics;
mod monitor; // measures the process: overload, stuck workers
mod open; // parts of an edge that may be missing
mod reload; // changes the configuration while the edge serves
mod restart;
mod site_metrics;
mod span_export;
mod start;
mod start_error;
mod status;
mod worker_thread;

pub use edge_health::EdgeHealth;
pub use handover::{DiskTakeOver, UpgradeSource};
pub use inherit::{CacheIdentity, Inheritance, InheritedSockets};
pub use metrics::metric_definitions;
pub use reload::{ReloadError, Reloader};
pub use start::{Edge, RunningEdge};
pub use start_error::StartError;
