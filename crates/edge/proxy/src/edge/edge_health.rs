//! The health of a running edge, for the program that runs it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::rt::health::Health;

/// The health of a running edge. A program that reports to the watchdog of its supervisor (systemd's `WATCHDOG=1`) asks
/// it before each report.
#[derive(Clone)]
pub struct EdgeHealth(pub(super) Arc<Health>);

impl EdgeHealth {
    /// Returns true if no worker is stuck.
    pub fn is_alive(&self) -> bool {
        self.0.stuck.load(Ordering::Relaxed) == 0
    }
}

impl std::fmt::Debug for EdgeHealth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EdgeHealth(alive: {})", self.is_alive())
    }
}
