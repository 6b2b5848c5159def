//! The progress of a pass over the traces.

use crate::output::Progress;

/// The progress of one pass over all traces, with the remaining time.
///
/// If the number of requests is unknown, it is estimated from the share of bytes that were read.
pub(super) struct Pass {
    progress: Progress,
    /// The bytes of all files, if the number of requests is unknown and all inputs are files.
    bytes: Option<u64>,
    /// The bytes of all traces before the current trace.
    bytes_before: u64,
    requests: u64,
}

impl Pass {
    /// Starts a pass over traces with these total numbers of requests and bytes. Either may be unknown.
    pub(super) fn new(name: &'static str, requests: Option<u64>, bytes: Option<u64>) -> Self {
        Self {
            progress: Progress::new(name, "requests", requests),
            bytes: bytes.filter(|_| requests.is_none()),
            bytes_before: 0,
            requests: 0,
        }
    }

    /// Adds requests. `bytes_read` is the number of bytes of the current trace that were read so far.
    pub(super) fn advance(&mut self, requests: u64, bytes_read: u64) {
        self.requests += requests;
        let bytes_read = self.bytes_before + bytes_read;
        if let Some(bytes) = self.bytes
            && bytes_read > 0
        {
            self.progress
                .set_total(estimate(self.requests, bytes_read, bytes));
        }
        self.progress.advance(requests);
    }

    /// Ends the current trace, which had this number of bytes.
    pub(super) fn end_trace(&mut self, bytes: Option<u64>) {
        self.bytes_before += bytes.unwrap_or(0);
    }
}

/// Estimates the number of requests in a trace of `bytes` bytes, whose first `bytes_read` bytes have `requests`
/// requests.
fn estimate(requests: u64, bytes_read: u64, bytes: u64) -> u64 {
    let estimate = u128::from(requests) * u128::from(bytes) / u128::from(bytes_read.max(1));
    u64::try_from(estimate).unwrap_or(u64::MAX).max(requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_estimated_from_the_bytes_read() {
        assert_eq!(estimate(100, 1 << 20, 4 << 20), 400);
        assert_eq!(estimate(u64::MAX, 1, u64::MAX), u64::MAX);
        // A file that grew while it was read has at least the requests so far.
        assert_eq!(estimate(100, 10, 5), 100);
    }
}
