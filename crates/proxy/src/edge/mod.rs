//! An edge as a whole: start, stop, metrics and status. `hostile` has functions for the fuzz targets only.

mod admin;
mod bind; // listeners and certificates
#[doc(hidden)]
pub mod hostile;
mod metrics;
mod reload; // changes the configuration while the edge serves
mod restart;
mod site_metrics;
mod span_export;
mod start;
mod start_error;
mod status;

pub use metrics::metric_definitions;
pub use reload::{ReloadError, Reloader};
pub use start::{Edge, RunningEdge};
pub use start_error::StartError;
