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
}

impl Fault {
    const COUNT: usize = 6;
}

/// The errors of the present faults that were logged.
#[derive(Debug, Default)]
pub(crate) struct Faults([Vec<String>; Fault::COUNT]);

impl Faults {
    /// Returns true if this error is to be logged: the fault has not had it since it began. A fault logs four different
    /// errors at most, because an error may contain a number or the address of one of many servers.
    pub(crate) fn begin(&mut self, fault: Fault, error: &str) -> bool {
        let logged = &mut self.0[fault as usize];
        let is_new = logged.len() < ERRORS_MAX && !logged.iter().any(|known| known == error);
        if is_new {
            logged.push(error.to_owned());
        }
        is_new
    }

    /// Returns true if a fault ends that was logged.
    pub(crate) fn end(&mut self, fault: Fault) -> bool {
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
