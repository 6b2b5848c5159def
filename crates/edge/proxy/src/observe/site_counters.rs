//! The counters that a worker has for each site with a label of its own, and for all others. They count a response when
//! it has ended.

use std::array;
use std::sync::Mutex;
use std::time::Duration;

use edgeward_metrics::Exemplar;
use edgeward_semantics::NotStoredReason;

use super::causes::MissCause;
use super::counter::Counter;
use super::duration_histogram::DurationHistogram;
use super::labels::{Label, PerLabel, labels};
use super::metric_labels::Tally;
use crate::rt::panics::lock;

labels! {
    /// How a request was answered: the label `outcome` of durations and bytes. Each class contains one or more of the
    /// outcomes of `edgeward_requests_total`.
    pub(crate) enum OutcomeClass {
        Hit = "hit",
        /// A stored response that was not fresh, also because the origin failed.
        HitStale = "hit-stale",
        /// A fetch, or the fetch of another request.
        Miss = "miss",
        /// A stored response that the origin confirmed.
        Revalidated = "revalidated",
        Pass = "pass",
        /// The edge generated the response, without the origin.
        Refused = "refused",
        /// The client left before the lookup ended, or the request needed no lookup.
        None = "none",
    }
}

labels! {
    /// The purpose of a request to the origin: the label `outcome` of the times until the first byte.
    pub(crate) enum FetchClass {
        /// The response is new to the cache.
        Miss = "miss",
        /// The origin confirmed a stored response with 304.
        Revalidated = "revalidated",
        /// The request passes by the cache.
        Pass = "pass",
    }
}

/// The counters of one worker for one site, on cache lines of their own. They take about 2.5 KiB.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct SiteCounters {
    /// Indexed by [`OutcomeClass`].
    pub(crate) durations: [DurationHistogram; OutcomeClass::LABELS.len()],
    /// Indexed by [`OutcomeClass`]: bytes of bodies that the access log has as `bytes`.
    pub(crate) body_bytes: [Counter; OutcomeClass::LABELS.len()],
    /// Indexed as [`STATUS_LABELS`].
    pub(crate) statuses: [Counter; STATUS_LABELS.len()],
    /// Indexed by [`FetchClass`]: from sending a request to the origin to the head of its response.
    pub(crate) first_bytes: [DurationHistogram; FetchClass::LABELS.len()],
    /// Indexed as [`NotStoredReason::ALL`]: fetched responses that may not be stored.
    pub(crate) not_storable: [Counter; NotStoredReason::ALL.len()],
    /// Requests of the class [`OutcomeClass::Miss`], by cause.
    pub(crate) misses: PerLabel<MissCause, { MissCause::LABELS.len() }>,
    /// The last duration of a request with a trace, by [`OutcomeClass`]. Only sampled requests use the lock.
    exemplars: Mutex<[Option<Exemplar>; OutcomeClass::LABELS.len()]>,
}

impl Default for SiteCounters {
    fn default() -> Self {
        Self {
            durations: Default::default(),
            body_bytes: Default::default(),
            statuses: array::from_fn(|_| Counter::default()),
            first_bytes: Default::default(),
            not_storable: array::from_fn(|_| Counter::default()),
            misses: PerLabel::default(),
            exemplars: Mutex::default(),
        }
    }
}

impl SiteCounters {
    /// Counts a response that has ended.
    pub(crate) fn record_response(
        &self,
        outcome: OutcomeClass,
        status: u16,
        body_bytes: u64,
        duration: Duration,
    ) {
        self.durations[outcome as usize].observe(duration);
        self.body_bytes[outcome as usize].add(body_bytes);
        self.statuses[status_series(status)].increment();
    }

    /// Counts a request of the class [`OutcomeClass::Miss`] that has ended.
    pub(crate) fn record_miss(&self, cause: MissCause) {
        self.misses[cause].increment();
    }

    /// Keeps the duration of a request with a trace.
    pub(crate) fn record_exemplar(&self, outcome: OutcomeClass, exemplar: Exemplar) {
        lock(&self.exemplars)[outcome as usize] = Some(exemplar);
    }

    /// Returns the last durations of requests with traces, by [`OutcomeClass`].
    pub(crate) fn exemplars(&self) -> [Option<Exemplar>; OutcomeClass::LABELS.len()] {
        *lock(&self.exemplars)
    }

    /// Counts a fetched response that may not be stored.
    pub(crate) fn record_not_storable(&self, reason: NotStoredReason) {
        self.not_storable[reason as usize].increment();
    }

    pub(crate) fn record_first_byte(&self, fetch: FetchClass, duration: Duration) {
        self.first_bytes[fetch as usize].observe(duration);
    }
}

impl Tally for SiteCounters {
    fn add(&self, counted: &Self) {
        let of_bytes = self.body_bytes.iter().zip(&counted.body_bytes);
        let of_statuses = self.statuses.iter().zip(&counted.statuses);
        let of_reasons = self.not_storable.iter().zip(&counted.not_storable);
        let of_misses = self.misses.all().iter().zip(counted.misses.all());
        of_bytes
            .chain(of_statuses)
            .chain(of_reasons)
            .chain(of_misses)
            .for_each(|(sum, count)| sum.add(count.value()));
        let sums = self.durations.iter().chain(&self.first_bytes);
        let counts = counted.durations.iter().chain(&counted.first_bytes);
        sums.zip(counts).for_each(|(sum, count)| sum.add(count));
    }
}

/// The values of the label `status`: the statuses that occur often or that an operator looks for, then a value for all
/// others of each class. `2..` as a regular expression matches the whole class.
pub(crate) const STATUS_LABELS: [&str; 36] = [
    "200", "204", "206", "301", "302", "303", "304", "307", "308", "400", "401", "403", "404",
    "405", "408", "410", "412", "413", "414", "416", "421", "429", "431", "499", "500", "501",
    "502", "503", "504", "508", "1xx", "2xx", "3xx", "4xx", "5xx", "xxx",
];

/// The status of a request whose client left before the response began, as in the logs of nginx. No response has it.
pub(crate) const CLIENT_LEFT: u16 = 499;

fn status_series(status: u16) -> usize {
    match STATUS_SERIES.get(usize::from(status)) {
        Some(series) => usize::from(*series),
        None => STATUS_LABELS.len() - 1,
    }
}

/// The index in [`STATUS_LABELS`] of each status.
const STATUS_SERIES: [u8; 600] = {
    let mut table = [STATUS_LABELS.len() as u8 - 1; 600];
    let mut status = 100;
    while status < table.len() {
        table[status] = (CLASSES_START - 1 + status / 100) as u8;
        status += 1;
    }
    let mut series = 0;
    while series < CLASSES_START {
        let digits = STATUS_LABELS[series].as_bytes();
        let status = (digits[0] - b'0') as usize * 100
            + (digits[1] - b'0') as usize * 10
            + (digits[2] - b'0') as usize;
        table[status] = series as u8;
        series += 1;
    }
    table
};

/// The index of the first class, `1xx`.
const CLASSES_START: usize = STATUS_LABELS.len() - 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_of_a_reason_is_at_the_position_of_the_reason() {
        let counters = SiteCounters::default();
        for (n, reason) in NotStoredReason::ALL.into_iter().enumerate() {
            counters.record_not_storable(reason);
            assert_eq!(counters.not_storable[n].value(), 1, "{reason}");
        }
    }

    #[test]
    fn a_status_is_counted_under_itself_or_under_its_class() {
        for status in 0..=u16::MAX {
            let label = STATUS_LABELS[status_series(status)];
            let own = format!("{status:03}");
            let expected = match status / 100 {
                1..=5 if STATUS_LABELS.contains(&own.as_str()) => own,
                class @ 1..=5 => format!("{class}xx"),
                _ => "xxx".to_owned(),
            };
            assert_eq!(label, expected);
        }
    }
}
