//! The record of one request, from its complete head to the last byte of its response. The metrics of durations and
//! statuses, and the line of the access log, are made from this record at its end.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::{Duration, Instant};

use edgeward_semantics::CacheStatus;
use edgeward_types::Timestamp;
use http::StatusCode;

use super::access_log::{LogLine, LogQueue, LogText};
use super::causes::MissCause;
use super::counters::Counters;
use super::metric_labels::WorkerTally;
use super::outcome::RequestOutcome;
use super::site_counters::{CLIENT_LEFT, OutcomeClass, SiteCounters};
use super::spans::{RequestEnd, SampledRequest};
use super::watch::{SeenEnd, WatchQueue};
use crate::config::watch::{RequestedObject, SampledText};

/// A line of the access log, and its queue.
pub(crate) type QueuedLine = (Rc<LogQueue>, LogLine);

/// The record of a request whose response has not ended.
#[derive(Debug)]
pub(crate) struct Observation {
    started_at: Instant,
    /// The counters of the request's site.
    site: WorkerTally<SiteCounters>,
    /// `None` until the outcome of the request is counted.
    outcome: Option<RequestOutcome>,
    /// The class of the outcome. A later step may change it, for example after a revalidation.
    class: OutcomeClass,
    /// The cause, if the class at the end is [`OutcomeClass::Miss`].
    pub(crate) miss_cause: MissCause,
    /// [`CLIENT_LEFT`] until the response begins.
    status: u16,
    /// The number of body bytes that were passed to the connection.
    body_bytes: u64,
    /// True if the response was not sent completely.
    is_aborted: bool,
    is_collapsed: bool,
    detail: Option<Cow<'static, str>>,
    /// `Some` if the request is sampled for tracing.
    pub(crate) sampled: Option<Box<SampledRequest>>,
    /// The object of the request, if it is known and requests are watched.
    pub(crate) object: Option<RequestedObject>,
    /// `Some` if the request is in the watcher's sample of texts.
    pub(crate) seen_text: Option<Box<SampledText>>,
    /// The first part of the line of the access log, if one is configured.
    text: Option<LogText>,
}

impl Observation {
    /// Begins the record of a request whose head is complete.
    pub(crate) fn begin(site: &WorkerTally<SiteCounters>, text: Option<LogText>) -> Self {
        Self::begin_at(Instant::now(), site, text)
    }

    pub(crate) fn begin_at(
        started_at: Instant,
        site: &WorkerTally<SiteCounters>,
        text: Option<LogText>,
    ) -> Self {
        Self {
            started_at,
            site: site.clone(),
            outcome: None,
            class: OutcomeClass::None,
            miss_cause: MissCause::New,
            status: CLIENT_LEFT,
            body_bytes: 0,
            is_aborted: false,
            is_collapsed: false,
            detail: None,
            sampled: None,
            object: None,
            seen_text: None,
            text,
        }
    }

    /// Counts the outcome of the request, unless an outcome was counted. A request that begins again is counted once.
    #[inline]
    pub(crate) fn count(&mut self, outcome: RequestOutcome, counters: &Counters) {
        if self.outcome.is_none() {
            counters.requests[outcome].increment();
            self.outcome = Some(outcome);
            self.class = outcome.class();
        }
    }

    /// Changes the class of the outcome.
    pub(crate) fn set_class(&mut self, class: OutcomeClass) {
        self.class = class;
    }

    /// Records the head of the response.
    pub(crate) fn set_response(&mut self, status: StatusCode, cache_status: Option<&CacheStatus>) {
        self.status = status.as_u16();
        if let Some(cache_status) = cache_status {
            self.is_collapsed = cache_status.collapsed;
            self.detail.clone_from(&cache_status.detail);
        }
    }

    /// Records the head of a hit that a codec answers itself.
    pub(crate) fn set_hit(&mut self, status: StatusCode, detail: Option<&'static str>) {
        self.status = status.as_u16();
        self.detail = detail.map(Cow::Borrowed);
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

    /// Ends the record: counts the response, passes it to the watcher, and returns the line of the access log and the
    /// sampled request.
    pub(crate) fn finish(
        mut self,
        counters: &Counters,
        watch: Option<(&WatchQueue, impl FnOnce() -> Timestamp)>,
    ) -> (Option<QueuedLine>, Option<Box<SampledRequest>>) {
        let duration = self.started_at.elapsed();
        self.count(RequestOutcome::None, counters);
        if let Some((watch, now)) = watch {
            let end = SeenEnd {
                outcome: self.outcome.unwrap_or_default(),
                class: self.class,
                status: self.status,
                body_bytes: self.body_bytes,
                is_aborted: self.is_aborted,
                duration,
            };
            let mut text = self.seen_text.take();
            if let Some(text) = &mut text {
                text.end(self.detail.as_ref(), self.body_bytes, self.is_aborted);
            }
            watch.finish(self.object, text, now, end);
        }
        let mut sampled = self.sampled.take();
        if let Some(sampled) = &mut sampled {
            sampled.end = RequestEnd {
                status: self.status,
                body_bytes: self.body_bytes,
                is_aborted: self.is_aborted,
                is_collapsed: self.is_collapsed,
                outcome: self.outcome.unwrap_or_default(),
                duration,
            };
            self.site.record_exemplar(self.class, sampled.exemplar());
        }
        (self.finish_after(duration), sampled)
    }

    /// Like [`finish`](Self::finish), for a request of which only the status is known.
    pub(crate) fn finish_unread(self) -> Option<QueuedLine> {
        self.finish_after(Duration::ZERO)
    }

    fn finish_after(self, duration: Duration) -> Option<QueuedLine> {
        self.site
            .record_response(self.class, self.status, self.body_bytes, duration);
        if self.class == OutcomeClass::Miss {
            self.site.record_miss(match self.is_collapsed {
                true => MissCause::Collapsed,
                false => self.miss_cause,
            });
        }
        let LogText { request, queue } = self.text?;
        let line = LogLine {
            request,
            status: self.status,
            bytes: self.body_bytes,
            duration,
            outcome: self.outcome.unwrap_or_default(),
            class: self.class,
            collapsed: self.is_collapsed,
            aborted: self.is_aborted,
            detail: self.detail,
        };
        Some((queue, line))
    }
}
