//! An edge as a whole: start, stop, metrics and status. `hostile` has functions for the fuzz targets only.

mod admin;
#[doc(hidden)]
pub mod hostile;
mod metrics;
mod reload; // changes the configuration while the edge serves
mod restart;
mod site_metrics;
mod span_export;
mod start;
mod status;

pub use metrics::metric_definitions;
pub use reload::{ReloadError, Reloader};
pub use start::{Edge, RunningEdge, StartError};
