//! A request that is sampled, and the times of its parts.

use std::time::{Duration, Instant};

use edgeward_metrics::Exemplar;
use edgeward_semantics::{TRACEPARENT, TRACESTATE, TraceParent};
use http::header::{HeaderMap, HeaderValue};

use crate::observe::access_log::RequestText;
use crate::observe::outcome::RequestOutcome;

/// A request that is sampled.
#[derive(Debug)]
pub(crate) struct SampledRequest {
    /// The facts about the request, then `User-Agent`.
    pub(crate) text: RequestText,
    /// The span that sent the request, if the request names a valid one.
    pub(super) parent: Option<TraceParent>,
    /// The span of the request.
    pub(super) own: TraceParent,
    /// The id of the span of the request to the origin.
    pub(super) fetch_id: u64,
    /// The id of the span of the lookup.
    pub(super) lookup_id: u64,
    pub(super) started_at: Instant,
    /// The wall time of `started_at`, since the Unix epoch.
    pub(super) started_unix: Duration,
    /// The start and the end of the lookup, since `started_at`.
    pub(super) lookup: Option<[Duration; 2]>,
    /// The start of the request to the origin and, if it has come, the head of the response.
    pub(super) fetch: Option<(Duration, Option<Duration>)>,
    pub(crate) end: RequestEnd,
}

/// The end of a request, as its spans show it.
#[derive(Debug, Default)]
pub(crate) struct RequestEnd {
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    pub(crate) is_aborted: bool,
    pub(crate) is_collapsed: bool,
    pub(crate) outcome: RequestOutcome,
    pub(crate) duration: Duration,
}

impl SampledRequest {
    /// Makes the headers name the span of the request to the origin. Without a valid parent, `tracestate` is removed
    /// (W3C Trace Context §4.3).
    pub(crate) fn write_to(&self, headers: &mut HeaderMap) {
        let value = self.own.with_span(self.fetch_id, true).to_string();
        let value = HeaderValue::try_from(value).expect("hexadecimal digits and hyphens");
        headers.insert(&TRACEPARENT, value);
        if self.parent.is_none() {
            headers.remove(&TRACESTATE);
        }
    }

    /// Returns the duration of the request, which has ended, with its trace.
    pub(crate) fn exemplar(&self) -> Exemplar {
        Exemplar {
            trace_id: self.own.trace_id(),
            value: self.end.duration.as_secs_f64(),
            at: self.started_unix + self.end.duration,
        }
    }

    /// Records that the lookup has ended.
    pub(crate) fn end_lookup(&mut self) {
        let now = self.started_at.elapsed();
        let start = self.lookup.map_or(Duration::ZERO, |[start, _]| start);
        self.lookup = Some([start, now]);
    }

    /// Records that a request to the origin begins. The last one counts.
    pub(crate) fn begin_fetch(&mut self) {
        self.fetch = Some((self.started_at.elapsed(), None));
    }

    /// Records that the head of the origin's response has come, or an error.
    pub(crate) fn end_fetch(&mut self) {
        if let Some((_, end)) = &mut self.fetch {
            *end = Some(self.started_at.elapsed());
        }
    }
}
