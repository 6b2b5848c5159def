//! The record of one request, from its complete head to the last byte of its response. The metrics of durations and
//! statuses, and the line of the access log, are made from this record at its end.

use std::time::{Duration, Instant};

use super::access_log::LogLine;
use super::site_counters::{CLIENT_LEFT, OutcomeClass, SiteCounters};
use edgeward_semantics::CacheStatus;
use http::StatusCode;

/// The record of a request whose response has not ended.
#[derive(Debug)]
pub(crate) struct Observation {
    started_at: Instant,
    /// `None` until the outcome of the request is counted.
    pub(crate) outcome: Option<OutcomeClass>,
    /// [`CLIENT_LEFT`] until the response begins.
    status: u16,
    /// The number of body bytes that were passed to the connection.
    body_bytes: u64,
    /// True if the response was not sent completely.
    is_aborted: bool,
    /// The line of the access log, if one is configured.
    line: Option<Box<LogLine>>,
}

impl Observation {
    /// Begins the record of a request whose head is complete.
    pub(crate) fn begin(line: Option<Box<LogLine>>) -> Self {
        Self::begin_at(Instant::now(), line)
    }

    pub(crate) fn begin_at(started_at: Instant, line: Option<Box<LogLine>>) -> Self {
        Self {
            started_at,
            outcome: None,
            status: CLIENT_LEFT,
            body_bytes: 0,
            is_aborted: false,
            line,
        }
    }

    /// Records the head of the response.
    pub(crate) fn set_response(&mut self, status: StatusCode, cache_status: Option<&CacheStatus>) {
        self.status = status.as_u16();
        if let (Some(line), Some(cache_status)) = (&mut self.line, cache_status) {
            line.set_cache_status(cache_status);
        }
    }

    /// Records that the response cannot be sent completely.
    pub(crate) fn set_aborted(&mut self) {
        self.is_aborted = true;
    }

    /// Records that the body ended or was aborted after `bytes` body bytes were passed to the connection.
    pub(crate) fn set_body(&mut self, bytes: u64, is_aborted: bool) {
        self.body_bytes = bytes;
        self.is_aborted |= is_aborted;
    }

    /// Records that the connection ended early. `written` maps the number of body bytes that were passed to the
    /// connection to the number that the socket accepted.
    pub(crate) fn truncate(&mut self, written: impl FnOnce(u64) -> u64) {
        self.body_bytes = written(self.body_bytes).min(self.body_bytes);
        self.is_aborted = true;
    }

    /// Ends the record: counts the response, and returns the line of the access log. `outcome` has been counted.
    pub(crate) fn finish(self, outcome: OutcomeClass, site: &SiteCounters) -> Option<Box<LogLine>> {
        let duration = self.started_at.elapsed();
        self.finish_after(duration, outcome, site)
    }

    /// Like [`finish`](Self::finish), for a request of which only the status is known.
    pub(crate) fn finish_unread(self, site: &SiteCounters) -> Option<Box<LogLine>> {
        self.finish_after(Duration::ZERO, OutcomeClass::Refused, site)
    }

    fn finish_after(
        self,
        duration: Duration,
        outcome: OutcomeClass,
        site: &SiteCounters,
    ) -> Option<Box<LogLine>> {
        site.record_response(outcome, self.status, self.body_bytes, duration);
        let mut line = self.line?;
        line.status = self.status;
        line.bytes = self.body_bytes;
        line.aborted = self.is_aborted;
        line.duration = duration;
        Some(line)
    }
}
