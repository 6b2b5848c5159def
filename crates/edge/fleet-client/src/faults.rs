//! The faults of a node that are logged: a fault once when it begins, and once when it ends.
//!
//! A node tries failed work again every second, mostly with the same error. Without a bound, an outage of NATS would
//! fill the log.

/// The parts of a node's work that can fail, each by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection to NATS, as its client reports it.
    Connection,
    /// The state of the stream.
    Query,
    /// The subscription to the stream.
    Subscription,
    /// The messages that this node publishes.
    Publish,
    /// The purges of the stream, which the cache does not apply.
    Apply,
    /// The log of purges.
    Write,
    /// The bucket of the members.
    Open,
    /// The watch of the bucket.
    Watch,
    /// The records that this node writes to the bucket.
    Heartbeat,
    /// The list of members, which the edge cannot use.
    List,
}

impl Fault {
    const COUNT: usize = 10;

    fn begin_text(self) -> &'static str {
        match self {
            Self::Connection => "NATS cannot be reached",
            Self::Query => "the stream of the fleet does not state its state",
            Self::Subscription => "the stream of the fleet cannot be followed",
            Self::Publish => "the stream of the fleet has not acknowledged a purge",
            Self::Apply => "the purges of the fleet are not applied",
            Self::Write => {
                "the purges of the fleet apply, and are not persisted: this node counts as cut off"
            }
            Self::Open => "the bucket of the fleet's members cannot be opened",
            Self::Watch => "the members of the fleet cannot be followed",
            Self::Heartbeat => "this node cannot be announced to its fleet",
            Self::List => "the list of the fleet's members cannot be used",
        }
    }

    /// Returns `None` if another message says the same.
    fn end_text(self) -> Option<&'static str> {
        Some(match self {
            Self::Connection | Self::Watch | Self::Heartbeat => return None,
            Self::Query => "the stream of the fleet states its state again",
            Self::Subscription => "the stream of the fleet is followed again",
            Self::Publish => "the stream of the fleet acknowledges purges again",
            Self::Apply => "the purges of the fleet are applied again",
            Self::Write => "the purges of the fleet are persisted again",
            Self::Open => "the bucket of the fleet's members is open again",
            Self::List => "the list of the fleet's members is in use again",
        })
    }
}

/// The errors of the present faults that were logged.
#[derive(Debug, Default)]
pub(crate) struct Faults([Vec<String>; Fault::COUNT]);

impl Faults {
    /// Logs an error, unless the fault has had it since it began.
    pub(crate) fn log(&mut self, fault: Fault, error: &str) {
        if self.begin(fault, error) {
            tracing::error!(error, "{}", fault.begin_text());
        }
    }

    /// Ends a fault, and logs this if there was one.
    pub(crate) fn recovered(&mut self, fault: Fault) {
        if self.end(fault)
            && let Some(text) = fault.end_text()
        {
            tracing::info!("{text}");
        }
    }

    /// Returns true if this error is to be logged: the fault has not had it since it began. A fault logs four different
    /// errors at most, because an error may contain a number or the address of one of many servers.
    fn begin(&mut self, fault: Fault, error: &str) -> bool {
        let logged = &mut self.0[fault as usize];
        let is_new = logged.len() < ERRORS_MAX && !logged.iter().any(|known| known == error);
        if is_new {
            logged.push(error.to_owned());
        }
        is_new
    }

    /// Returns true if a fault ends that was logged.
    fn end(&mut self, fault: Fault) -> bool {
        !std::mem::take(&mut self.0[fault as usize]).is_empty()
    }
}

/// The most errors that one fault logs.
const ERRORS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_logged_once_and_again_after_a_recovery() {
        let mut faults = Faults::default();
        for _ in 0..2 {
            assert!(faults.begin(Fault::Query, "timed out"));
            assert!(!faults.begin(Fault::Query, "timed out"));
            // Errors that alternate, and an error of another part.
            assert!(faults.begin(Fault::Query, "refused"));
            assert!(!faults.begin(Fault::Query, "timed out"));
            assert!(faults.begin(Fault::Connection, "timed out"));
            assert!(faults.end(Fault::Query));
            assert!(!faults.end(Fault::Query), "it has ended");
            assert!(!faults.begin(Fault::Connection, "timed out"));
            assert!(faults.end(Fault::Connection));
        }
    }

    #[test]
    fn a_fault_with_many_errors_logs_the_first_ones() {
        let mut faults = Faults::default();
        let errors = (0..100).map(|n| format!("server {n} is down"));
        let logged = errors.filter(|error| faults.begin(Fault::Connection, error));
        assert_eq!(logged.count(), ERRORS_MAX);
    }
}
