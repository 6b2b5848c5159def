//! Events in the log: errors with their causes, and kinds of events of which one in ten seconds is logged.

use std::cell::Cell;
use std::time::Duration;

use edgeward_types::Timestamp;

/// Decides which events of one kind are logged.
#[derive(Debug, Default)]
pub(crate) struct SparseLog {
    last_logged: Cell<Option<Timestamp>>,
    skipped: Cell<u64>,
}

impl SparseLog {
    /// Counts an event. If the event is to be logged, returns the number of events skipped before it.
    pub(crate) fn record(&self, now: Timestamp) -> Option<u64> {
        let is_recent = |last_logged| now.since(last_logged) < INTERVAL;
        if self.last_logged.get().is_some_and(is_recent) {
            self.skipped.set(self.skipped.get() + 1);
            return None;
        }
        self.last_logged.set(Some(now));
        Some(self.skipped.take())
    }
}

const INTERVAL: Duration = Duration::from_secs(10);

/// Displays an error and its sources, separated by colons.
pub(crate) struct ErrorChain<'a>(pub(crate) &'a dyn std::error::Error);

impl std::fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_logged_once_in_ten_seconds() {
        let log = SparseLog::default();
        let skipped_counts: Vec<_> = (1000..1030)
            .filter_map(|second| log.record(Timestamp::from_secs(second)))
            .collect();
        assert_eq!(skipped_counts, [0, 9, 9]);
    }
}
