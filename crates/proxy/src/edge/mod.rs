//! An edge as a whole: its start and its end, and what it tells of itself.

mod admin;
#[doc(hidden)]
pub mod hostile;
mod metrics;
mod start;
mod status;

pub use start::{Edge, RunningEdge, StartError};
