//! The metrics of the sites: durations, statuses and bytes; and those of the origins: statuses and latencies.

use edgeward_metrics::{Definition, Exemplars, Family, Histogram, HistogramValues, metrics};

use crate::observe::causes::MissCause;
use crate::observe::counter::Counter;
use crate::observe::duration_histogram::{BOUNDS_SECONDS, DurationHistogram};
use crate::observe::labels::Label as _;
use crate::observe::metric_labels::PerWorker;
use crate::observe::origin_counters::{OriginCounters, STATUS_CLASSES};
use crate::observe::site_counters::{FetchClass, OutcomeClass, STATUS_LABELS, SiteCounters};
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

const LATENCIES: Histogram = Histogram {
    name: "edgeward_origin_latency_seconds",
    help: "Time from sending a request to the origin to the head of its response, by origin.",
    labels: &["origin"],
    bounds: &BOUNDS_SECONDS,
};

metrics! {
    const ORIGIN_RESPONSES: u64 ["origin", "status"] = |responses| {
        Counter "edgeward_origin_responses_total"
            "Responses of origins, by origin and class of the status." { *responses }
    }

    const LABELS: Shared = |shared| {
        Gauge "edgeward_metric_labels"
            "Sites and origins with a label of their own in metrics, by kind, without the shared label `other`."
            ["label":
                "site" = shared.labels.sites.len(),
                "origin" = shared.labels.origins.len(),
            ]
        Gauge "edgeward_metric_labels_max"
            "Bound of the sites, and of the origins, with a label of their own." { shared.config.metric_labels_max }
    }

    const RESPONSES: u64 ["site", "status"] = |responses| {
        Counter "edgeward_responses_total"
            "Responses that have ended, by site and status: frequent ones by number, others by class, and 499 if the client \
             left before the response began." { *responses }
    }

    const MISSES: u64 ["site", "cause"] = |misses| {
        Counter "edgeward_site_misses_total"
            "Misses that have ended, without passes and confirmed revalidations, by site and by the reason why no stored \
             response answered." { *misses }
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
    definitions.extend(MISSES.definitions());
    definitions.push(LATENCIES.definition());
    definitions.extend(ORIGIN_RESPONSES.definitions());
    definitions.extend(LABELS.definitions());
    definitions
}

/// Returns the metrics of all sites and origins. A series exists from its first request on, so that a site has few
/// series.
pub(super) fn families(shared: &Shared) -> Vec<Family> {
    let mut families = site_families(&shared.labels.sites.all());
    families.extend(origin_families(&shared.labels.origins.all()));
    families.extend(LABELS.of(shared));
    families
}

/// Returns the newest duration with a trace of each site and outcome.
pub(super) fn exemplars(shared: &Shared) -> Exemplars {
    let mut exemplars = Exemplars::default();
    for (site, counters) in shared.labels.sites.all() {
        let workers = counters.iter().flat_map(|workers| workers.iter());
        let workers: Vec<_> = workers.map(SiteCounters::exemplars).collect();
        for (class, outcome) in OutcomeClass::LABELS.iter().enumerate() {
            let of_class = workers.iter().filter_map(|of_worker| of_worker[class]);
            if let Some(newest) = of_class.max_by_key(|exemplar| exemplar.at) {
                exemplars.add(&DURATIONS, &[&site, outcome], newest);
            }
        }
    }
    exemplars
}

/// A label, and its counters of all workers.
type Labelled<C> = (Box<str>, Vec<PerWorker<C>>);

fn site_families(sites: &[Labelled<SiteCounters>]) -> Vec<Family> {
    let (outcomes, fetches) = (OutcomeClass::LABELS, FetchClass::LABELS);
    let durations = histograms(sites, outcomes, |site, n| &site.durations[n]);
    let first_bytes = histograms(sites, fetches, |site, n| &site.first_bytes[n]);
    let statuses = sums(sites, &STATUS_LABELS, |site, n| &site.statuses[n]);
    let bytes = sums(sites, outcomes, |site, n| &site.body_bytes[n]);
    let mut families = vec![
        DURATIONS.family(&durations),
        FIRST_BYTES.family(&first_bytes),
    ];
    families.extend(RESPONSES.families(&rows(&statuses)));
    families.extend(BODY_BYTES.families(&rows(&bytes)));
    let misses = sums(sites, MissCause::LABELS, |site, n| &site.misses.all()[n]);
    families.extend(MISSES.families(&rows(&misses)));
    families
}

fn origin_families(origins: &[Labelled<OriginCounters>]) -> Vec<Family> {
    let responses = sums(origins, &STATUS_CLASSES, |origin, n| &origin.responses[n]);
    let latencies = origins.iter().filter_map(|(name, counters)| {
        let counters = counters.iter().flat_map(|counters| counters.iter());
        let values = DurationHistogram::sum(counters.map(|of| &of.latency))?;
        Some((vec![&**name], values))
    });
    let mut families = vec![LATENCIES.family(&latencies.collect::<Vec<_>>())];
    families.extend(ORIGIN_RESPONSES.families(&rows(&responses)));
    families
}

/// Returns a histogram for each label and each second label that has values.
fn histograms<'a, C>(
    labelled: &'a [Labelled<C>],
    second: &[&'a str],
    histogram: impl Fn(&C, usize) -> &DurationHistogram,
) -> Vec<(Vec<&'a str>, HistogramValues)> {
    let mut rows = Vec::new();
    for (name, counters) in labelled {
        for (n, label) in second.iter().enumerate() {
            let counters = counters.iter().flat_map(|counters| counters.iter());
            let sum = DurationHistogram::sum(counters.map(|of| histogram(of, n)));
            rows.extend(sum.map(|values| (vec![&**name, *label], values)));
        }
    }
    rows
}

/// A sum, and its two labels.
type Sum<'a> = ([&'a str; 2], u64);

/// Returns the sums for each label and each second label that are not zero.
fn sums<'a, C>(
    labelled: &'a [Labelled<C>],
    second: &[&'a str],
    counter: impl Fn(&C, usize) -> &Counter,
) -> Vec<Sum<'a>> {
    let mut sums = Vec::new();
    for (name, counters) in labelled {
        for (n, label) in second.iter().enumerate() {
            let counters = counters.iter().flat_map(|counters| counters.iter());
            let sum: u64 = counters.map(|of| counter(of, n).value()).sum();
            sums.extend((sum > 0).then_some(([&**name, *label], sum)));
        }
    }
    sums
}

fn rows<'a>(sums: &'a [Sum<'a>]) -> Vec<(Vec<&'a str>, &'a u64)> {
    let rows = sums.iter();
    rows.map(|(labels, sum)| (labels.to_vec(), sum)).collect()
}
