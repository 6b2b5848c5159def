//! The outcome of a request: the label of `edgeward_requests_total`, and the word of the access log and of spans.

use edgeward_semantics::Forward;

use super::counters::{Counter, Counters};
use super::site_counters::OutcomeClass;

/// The outcome of a request. Each request has exactly one, which is counted when it is decided and logged at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RequestOutcome {
    Hit,
    /// A stored response that is not fresh, without a request to the origin before the response.
    HitStale,
    UriMiss,
    VaryMiss,
    Stale,
    Request,
    Partial,
    Method,
    Bypass,
    OnlyIfCached,
    IdFilter,
    Refused,
    /// A rule of the site answered.
    Rule,
    /// The client left before the lookup ended, or the request needed no lookup.
    #[default]
    None,
}

impl RequestOutcome {
    /// Returns the outcome of a request that is forwarded to the origin. RFC 9211 has the reason `miss` for caches that
    /// do not distinguish `uri-miss` and `vary-miss`; this cache does.
    pub(crate) const fn forwarded(reason: Forward) -> Self {
        match reason {
            Forward::UriMiss | Forward::Miss => Self::UriMiss,
            Forward::VaryMiss => Self::VaryMiss,
            Forward::Stale => Self::Stale,
            Forward::Request => Self::Request,
            Forward::Partial => Self::Partial,
            Forward::Bypass => Self::Bypass,
            Forward::Method => Self::Method,
        }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::HitStale => "hit-stale",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Stale => "stale",
            Self::Request => "request",
            Self::Partial => "partial",
            Self::Method => "method",
            Self::Bypass => "bypass",
            Self::OnlyIfCached => "only-if-cached",
            Self::IdFilter => "id-filter",
            Self::Refused => "refused",
            Self::Rule => "rule",
            Self::None => "none",
        }
    }

    /// Returns the class of the outcome, if the end of the request does not change it.
    pub(crate) const fn class(self) -> OutcomeClass {
        match self {
            Self::Hit => OutcomeClass::Hit,
            Self::HitStale => OutcomeClass::HitStale,
            Self::UriMiss | Self::VaryMiss | Self::Stale | Self::Request | Self::Partial => {
                OutcomeClass::Miss
            }
            Self::Method | Self::Bypass => OutcomeClass::Pass,
            Self::OnlyIfCached | Self::IdFilter | Self::Refused | Self::Rule => {
                OutcomeClass::Refused
            }
            Self::None => OutcomeClass::None,
        }
    }

    /// Returns the counter of this outcome.
    pub(super) const fn counter(self, counters: &Counters) -> &Counter {
        match self {
            Self::Hit => &counters.hit,
            Self::HitStale => &counters.hit_stale,
            Self::UriMiss => &counters.uri_miss,
            Self::VaryMiss => &counters.vary_miss,
            Self::Stale => &counters.stale,
            Self::Request => &counters.request,
            Self::Partial => &counters.partial,
            Self::Method => &counters.method,
            Self::Bypass => &counters.bypass,
            Self::OnlyIfCached => &counters.only_if_cached,
            Self::IdFilter => &counters.id_filter,
            Self::Refused => &counters.refused,
            Self::Rule => &counters.rule,
            Self::None => &counters.no_outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::observe::counters::METRICS;

    /// Method: counts each outcome, and finds the series of the metric that has changed.
    #[test]
    fn the_label_of_the_counter_is_the_word_of_the_log() {
        let requests = METRICS.metric("edgeward_requests_total");
        let requests = requests.expect("the metric is in the table");
        for outcome in [
            RequestOutcome::Hit,
            RequestOutcome::HitStale,
            RequestOutcome::UriMiss,
            RequestOutcome::VaryMiss,
            RequestOutcome::Stale,
            RequestOutcome::Request,
            RequestOutcome::Partial,
            RequestOutcome::Method,
            RequestOutcome::Bypass,
            RequestOutcome::OnlyIfCached,
            RequestOutcome::IdFilter,
            RequestOutcome::Refused,
            RequestOutcome::Rule,
            RequestOutcome::None,
        ] {
            let workers = [Arc::new(Counters::default())];
            outcome.counter(&workers[0]).increment();
            let counted = requests.series.iter();
            let counted = counted.filter(|series| (series.value)(&workers) > 0.0);
            let labels: Vec<_> = counted.map(|series| series.label).collect();
            assert_eq!(labels, [Some(outcome.as_str())]);
        }
    }
}
