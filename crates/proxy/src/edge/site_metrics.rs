//! The metrics of the sites: durations, statuses and bytes. All of an edge's requests belong to one site.

use edgeward_metrics::{Definition, Family, Histogram, metrics};

use crate::base::counter::Counter;
use crate::base::duration_histogram::{BOUNDS_SECONDS, DurationHistogram};
use crate::base::site_counters::{FetchClass, OutcomeClass, STATUS_LABELS, SiteCounters};
use crate::path::worker::Shared;

const DURATIONS: Histogram = Histogram {
    name: "edgeward_request_duration_seconds",
    help: "Time from the complete head of a request to the last byte that the client's socket accepted (with HTTP/2: \
           that the connection's buffer accepted), by site and outcome.",
    labels: &["site", "outcome"],
    bounds: &BOUNDS_SECONDS,
};

const FIRST_BYTES: Histogram = Histogram {
    name: "edgeward_origin_first_byte_seconds",
    help: "Time from sending a request to the origin to the head of its response, by site and outcome.",
    labels: &["site", "outcome"],
    bounds: &BOUNDS_SECONDS,
};

metrics! {
    const RESPONSES: u64 ["site", "status"] = |responses| {
        Counter "edgeward_responses_total"
            "Responses that have ended, by site and status: frequent ones by number, others by class, and 499 if the client \
             left before the response began." { *responses }
    }

    const BODY_BYTES: u64 ["site", "outcome"] = |bytes| {
        Counter "edgeward_response_body_bytes_total"
            "Body bytes of responses that have ended, by site and outcome: the sum of `bytes` in the access log." { *bytes }
    }
}

pub(super) fn definitions() -> Vec<Definition> {
    let mut definitions = vec![DURATIONS.definition(), FIRST_BYTES.definition()];
    definitions.extend(RESPONSES.definitions());
    definitions.extend(BODY_BYTES.definitions());
    definitions
}

/// Returns the metrics of all sites. A series exists from its first request on, so that a site has few series.
pub(super) fn families(shared: &Shared) -> Vec<Family> {
    let workers = || shared.counters.iter().map(|counters| &counters.site);
    let outcomes = OutcomeClass::ALL.map(OutcomeClass::as_str);
    let fetches = FetchClass::ALL.map(FetchClass::as_str);
    let durations = outcomes.iter().enumerate().filter_map(|(n, outcome)| {
        let values = DurationHistogram::sum(workers().map(|site| &site.durations[n]))?;
        Some((vec![SITE, *outcome], values))
    });
    let first_bytes = fetches.iter().enumerate().filter_map(|(n, fetch)| {
        let values = DurationHistogram::sum(workers().map(|site| &site.first_bytes[n]))?;
        Some((vec![SITE, *fetch], values))
    });
    let sum = |counter: &dyn Fn(&SiteCounters) -> &Counter| -> u64 {
        workers().map(|site| counter(site).value()).sum()
    };
    let statuses: Vec<u64> = (0..STATUS_LABELS.len())
        .map(|n| sum(&|site| &site.statuses[n]))
        .collect();
    let bytes: Vec<u64> = (0..outcomes.len())
        .map(|n| sum(&|site| &site.body_bytes[n]))
        .collect();
    let mut families = vec![
        DURATIONS.family(&durations.collect::<Vec<_>>()),
        FIRST_BYTES.family(&first_bytes.collect::<Vec<_>>()),
    ];
    families.extend(RESPONSES.families(&rows(&STATUS_LABELS, &statuses)));
    families.extend(BODY_BYTES.families(&rows(&outcomes, &bytes)));
    families
}

/// Returns a row for each value that is not zero.
fn rows<'a>(labels: &[&'a str], values: &'a [u64]) -> Vec<(Vec<&'a str>, &'a u64)> {
    let rows = labels.iter().zip(values);
    rows.filter(|(_, value)| **value > 0)
        .map(|(label, value)| (vec![SITE, *label], value))
        .collect()
}

/// The label of the only site.
const SITE: &str = "default";
