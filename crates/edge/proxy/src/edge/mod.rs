//! An edge as a whole: start, stop, metrics and status. `hostile` has functions for the fuzz targets only.

mod acme_metrics;
mod admin;
mod bind;
mod bind_admin; // listeners and certificates
mod certificate_files;
mod certificate_watch;
mod checks; // checks a configuration
mod counts; // counters as JSON
mod edge_health;
mod fleet_purge_metrics;
mod fleet_report; // the state of the fleet
mod generation; // makes the state of a generation
mod generations; // the states of the start and of each reload
mod handover; // an upgrade passes sockets and store to another process
#[doc(hidden)]
pub mod hostile;
mod inherit;
mod measured; // the memory of the process, and its bounds
mod metrics;
mod monitor; // measures the process: overload, stuck workers
mod open; // parts of an edge that may be missing
mod page; // the page of the admin server
mod rehearse; // tries what a start does
mod reload; // changes the configuration while the edge serves
mod restart;
mod site_metrics;
mod span_export;
mod start;
mod start_error;
mod status;
mod watch_metrics; // the metrics of the watcher
mod watching; // samples of requests for a watcher
mod worker_thread;

pub use admin::REPLACED;
pub use edge_health::EdgeHealth;
pub use generations::LogReopener;
pub use handover::{DiskTakeOver, UpgradeSource};
pub use inherit::{CacheIdentity, Inheritance, InheritedSockets, QuicIdentity};
pub use metrics::metric_definitions;
pub use rehearse::{SettingKey, check_start, rehearse};
pub use reload::{ReloadError, Reloader, after_reload};
pub use start::{Edge, RunningEdge};
pub use start_error::StartError;
