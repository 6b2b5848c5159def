//! The lowest layer: configuration, clock, counters, access log, tasks and budgets. All other layers import it.

pub(crate) mod access_log;
pub(crate) mod ahead;
pub(crate) mod background;
pub(crate) mod budget;
pub(crate) mod clock;
pub mod config;
pub(crate) mod counters;
pub(crate) mod descriptors;
pub(crate) mod dial;
pub(crate) mod error_chain;
pub(crate) mod field_line;
pub(crate) mod field_spans;
pub(crate) mod key_map;
pub(crate) mod lock;
pub(crate) mod pace;
pub(crate) mod partial_head;
pub(crate) mod sparse_log;
pub(crate) mod tasks;
pub(crate) mod tls;
