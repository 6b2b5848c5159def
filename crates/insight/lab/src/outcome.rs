//! The results of an experiment. `edgeward lab --json` prints them, so the names of the fields are part of the
//! interface.
//!
//! Names of durations and sizes end in their unit, for example `_ms` or `_bytes`. `docs/reference/json-reports.md`
//! describes every key.

use edgeward_replay::load::{ErrorSample, Latencies};
use serde::Serialize;

use crate::plan::{ComparisonPlan, SourceFigure};
use crate::sample::Sample;

/// All results of one experiment.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// The title of the plan.
    pub title: String,
    /// The description from the plan.
    pub about: Option<String>,
    /// Why a part of the plan did not run; `None` if the whole plan ran.
    pub unfinished: Option<String>,
    /// Facts about the trace.
    pub trace: TraceFacts,
    /// Facts about the load.
    pub load: LoadFacts,
    /// Facts about the machine.
    pub machine: Machine,
    /// The contenders in the order of the plan. Contenders that did not run yet are missing.
    pub contenders: Vec<ContenderOutcome>,
    /// The contenders that the findings of the report compare.
    #[serde(skip)]
    pub comparison: Option<ComparisonPlan>,
    /// Published figures, shown beside the measured ones.
    #[serde(skip)]
    pub sources: Vec<SourceFigure>,
}

/// Facts about the trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TraceFacts {
    /// The name of the trace in the report.
    pub label: String,
    /// Requests, without those for objects above the plan's size limit.
    pub requests: u64,
    /// Distinct objects.
    pub objects: u64,
    /// The sum of the sizes of all distinct objects.
    pub footprint_bytes: u64,
    /// The sum of the sizes of all requests.
    pub requested_bytes: u64,
    /// The share of the objects that are requested once.
    pub one_hit_share: f64,
}

/// Facts about the load.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LoadFacts {
    /// Connections to each contender.
    pub connections: usize,
    /// Requests per second; `None` in a closed loop.
    pub rate: Option<f64>,
    /// Requests sent before the measurement begins.
    pub warmup_requests: u64,
    /// Emulated round-trip time between clients and contender, in milliseconds.
    pub round_trip_ms: f64,
    /// Emulated round-trip time between contender and origin, in milliseconds.
    pub origin_round_trip_ms: f64,
    /// True if the contenders ran at the same time.
    pub together: bool,
}

/// Facts about the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Machine {
    /// The number of usable cores.
    pub cores: usize,
    /// The model name of the processor.
    pub processor: Option<String>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The load average of the minute before the run.
    pub load_before: Option<f64>,
    /// The load average of the last minute of the run, which includes the load of the experiment.
    pub load_after: Option<f64>,
}

/// The results of one contender.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct ContenderOutcome {
    /// The name from the plan.
    pub name: String,
    /// The group from the plan.
    pub group: Option<String>,
    /// The server program.
    pub server: String,
    /// The version that the program prints.
    pub version: Option<String>,
    /// The settings, one readable line each.
    pub settings: Vec<String>,
    /// How the contender's run ended.
    pub end: RunEnd,
    /// The totals after the warm-up.
    pub totals: Option<Totals>,
    /// The end of the warm-up, in seconds since the load began.
    pub warm_seconds: Option<f64>,
    /// The time when the edge restarted with other settings (`[contender.switch]`), in seconds since the load began.
    pub switched_seconds: Option<f64>,
    /// The first failed requests.
    pub error_samples: Vec<ErrorSample>,
    /// Anomalies of the run that affect the figures.
    pub notes: Vec<String>,
    /// The samples, oldest first.
    pub series: Vec<Sample>,
}

impl ContenderOutcome {
    /// Returns true if the median request was sent more than 250 ms late, because the machine was too slow for
    /// the rate. The median ignores short delays.
    pub(crate) fn was_late(&self) -> bool {
        let late = |totals: &Totals| totals.send_delay_p50_ms > SEND_DELAY_LATE_MS;
        self.totals.as_ref().is_some_and(late)
    }
}

const SEND_DELAY_LATE_MS: f64 = 250.0;

/// How the run of a contender ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "how", rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunEnd {
    /// The whole trace was sent.
    #[default]
    #[serde(rename = "whole")]
    Completed,
    /// The program is not installed.
    #[serde(rename = "missing")]
    NotInstalled {
        /// How to install it.
        hint: String,
    },
    /// The server did not start.
    #[serde(rename = "failed")]
    NotStarted {
        /// The cause.
        why: String,
    },
    /// The run ended early. The samples so far are kept.
    #[serde(rename = "cut")]
    EndedEarly {
        /// The cause.
        why: String,
    },
}

impl RunEnd {
    /// Returns true if the whole trace was sent.
    pub fn is_complete(&self) -> bool {
        *self == Self::Completed
    }
}

/// The totals of a contender after the warm-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Totals {
    /// The duration of the measurement, in seconds, without the warm-up.
    pub seconds: f64,
    /// Requests that were answered or that failed.
    pub requests: u64,
    /// Requests that failed, also by a wrong status or a wrong body.
    pub errors: u64,
    /// Requests answered from the cache, according to the server's `Cache-Status`.
    pub hits: u64,
    /// Hits divided by requests.
    pub hit_ratio: f64,
    /// The share of the requests that did not reach the origin, as the origin counts them.
    pub spared_ratio: f64,
    /// Bytes of correct bodies.
    pub body_bytes: u64,
    /// The share of `body_bytes` that came from the cache.
    pub byte_hit_ratio: f64,
    /// Requests that reached the origin.
    pub origin_requests: u64,
    /// Body bytes that the origin sent.
    pub origin_bytes: u64,
    /// CPU time of the server's processes.
    pub cpu_seconds: Option<f64>,
    /// The largest memory use in any sample.
    pub memory_bytes_max: Option<u64>,
    /// Bytes that the server's processes read from a device.
    pub disk_read_bytes: Option<u64>,
    /// Bytes that the server's processes passed to a device for writing.
    pub disk_write_bytes: Option<u64>,
    /// Write operations of the disk cache, if the server counts them.
    pub store_write_operations: Option<u64>,
    /// Reads and writes that the device completed, including those of other programs.
    pub device_operations: Option<u64>,
    /// The median latency.
    pub latency_p50_ms: Option<f64>,
    /// The 90th percentile of the latency.
    pub latency_p90_ms: Option<f64>,
    /// The 99th percentile of the latency.
    pub latency_p99_ms: Option<f64>,
    /// The median delay between the scheduled time of a request and the time when the request was sent. A long delay
    /// means that the machine was too slow for the rate.
    pub send_delay_p50_ms: f64,
}

/// The load's counts from the end of the warm-up. They do not depend on the times at which samples were taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadCounts {
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) hits: u64,
    pub(crate) body_bytes: u64,
    pub(crate) hit_bytes: u64,
    pub(crate) send_delay_p50_ms: f64,
    pub(crate) latencies: Latencies,
}

impl Totals {
    /// Computes the totals from the counts of the load and from the samples after the warm-up. Returns `None` if no
    /// sample was taken after the warm-up.
    pub(crate) fn new(counts: &LoadCounts, series: &[Sample], warm_seconds: f64) -> Option<Self> {
        let first = series.iter().find(|sample| sample.seconds >= warm_seconds);
        let (first, last) = (first?, series.last()?);
        let growth = |figure: fn(&Sample) -> u64| figure(last).saturating_sub(figure(first));
        let optional_growth =
            |figure: fn(&Sample) -> Option<u64>| Some(figure(last)?.saturating_sub(figure(first)?));
        let quantile = |share| {
            let took = counts.latencies.quantile(share)?;
            Some(took.as_secs_f64() * 1e3)
        };
        let origin_requests = growth(|sample| sample.origin_requests);
        let measured = series.iter().filter(|s| s.seconds >= warm_seconds);
        Some(Self {
            seconds: last.seconds - first.seconds,
            requests: counts.requests,
            errors: counts.errors,
            hits: counts.hits,
            hit_ratio: share(counts.hits, counts.requests),
            spared_ratio: 1.0 - share(origin_requests, counts.requests).min(1.0),
            body_bytes: counts.body_bytes,
            byte_hit_ratio: share(counts.hit_bytes, counts.body_bytes),
            origin_requests,
            origin_bytes: growth(|sample| sample.origin_bytes),
            cpu_seconds: last
                .cpu_seconds
                .zip(first.cpu_seconds)
                .map(|(last, first)| (last - first).max(0.0)),
            memory_bytes_max: measured.filter_map(|sample| sample.memory_bytes).max(),
            disk_read_bytes: optional_growth(|sample| sample.disk_read_bytes),
            disk_write_bytes: optional_growth(|sample| sample.disk_write_bytes),
            store_write_operations: optional_growth(|sample| sample.store_write_operations),
            device_operations: optional_growth(|sample| sample.device_operations),
            latency_p50_ms: quantile(0.5),
            latency_p90_ms: quantile(0.9),
            latency_p99_ms: quantile(0.99),
            send_delay_p50_ms: counts.send_delay_p50_ms,
        })
    }
}

pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64
}

impl Outcome {
    /// Returns the contender with this name, or the contender of this group with the highest hit ratio. Skips
    /// contenders that did not complete the trace.
    pub(crate) fn representative(&self, name: &str) -> Option<&ContenderOutcome> {
        let ratio =
            |contender: &ContenderOutcome| contender.totals.as_ref().map_or(0.0, |t| t.hit_ratio);
        self.contenders
            .iter()
            .filter(|contender| contender.name == name || contender.group.as_deref() == Some(name))
            .filter(|contender| contender.end.is_complete() && contender.totals.is_some())
            .max_by(|a, b| ratio(a).total_cmp(&ratio(b)))
    }

    /// Returns true if all contenders completed and every response was correct. A missing program is not a failure.
    pub fn is_good(&self) -> bool {
        let good = |contender: &ContenderOutcome| match contender.end {
            RunEnd::Completed => contender
                .totals
                .as_ref()
                .is_some_and(|totals| totals.errors == 0),
            RunEnd::NotInstalled { .. } => true,
            RunEnd::NotStarted { .. } | RunEnd::EndedEarly { .. } => false,
        };
        self.unfinished.is_none() && self.contenders.iter().all(good)
    }
}

#[cfg(test)]
impl Outcome {
    /// Returns an outcome with these contenders and empty facts, for tests.
    pub(crate) fn with_contenders(contenders: Vec<ContenderOutcome>) -> Self {
        Self {
            title: "t".to_owned(),
            about: None,
            unfinished: None,
            trace: TraceFacts::default(),
            load: LoadFacts::default(),
            machine: Machine::default(),
            comparison: None,
            contenders,
            sources: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender(name: &str, group: Option<&str>, hit_ratio: f64, end: RunEnd) -> ContenderOutcome {
        ContenderOutcome {
            name: name.to_owned(),
            group: group.map(str::to_owned),
            end,
            totals: Some(Totals {
                hit_ratio,
                ..Totals::default()
            }),
            ..ContenderOutcome::default()
        }
    }

    #[test]
    fn a_group_is_represented_by_its_best_complete_contender() {
        let cut = RunEnd::EndedEarly {
            why: "x".to_owned(),
        };
        let outcome = Outcome::with_contenders(vec![
            contender("n1", Some("nginx"), 0.4, RunEnd::Completed),
            contender("n2", Some("nginx"), 0.5, RunEnd::Completed),
            contender("n3", Some("nginx"), 0.9, cut),
            contender("alone", None, 0.3, RunEnd::Completed),
        ]);
        let name = |requested| {
            outcome
                .representative(requested)
                .map(|contender| contender.name.as_str())
        };
        assert_eq!(name("nginx"), Some("n2"));
        assert_eq!(name("n1"), Some("n1"));
        assert_eq!(name("alone"), Some("alone"));
        assert_eq!(name("n3"), None);
        assert_eq!(name("nobody"), None);
        assert!(!outcome.is_good());
    }

    #[test]
    fn a_missing_program_is_no_failure_but_a_wrong_response_is_one() {
        let missing = RunEnd::NotInstalled {
            hint: "x".to_owned(),
        };
        let mut outcome = Outcome::with_contenders(vec![
            contender("a", None, 0.5, RunEnd::Completed),
            contender("b", None, 0.0, missing),
        ]);
        assert!(outcome.is_good());
        if let Some(totals) = &mut outcome.contenders[0].totals {
            totals.errors = 1;
        }
        assert!(!outcome.is_good());
    }

    #[test]
    fn totals_do_not_include_the_warm_up() {
        let sample_at = |seconds: f64, n: u64| Sample {
            seconds,
            origin_requests: n,
            origin_bytes: n * 10,
            cpu_seconds: Some(n as f64 / 100.0),
            memory_bytes: Some(1000 - n),
            disk_write_bytes: (n > 0).then_some(n),
            ..Sample::default()
        };
        let series = [sample_at(0.0, 0), sample_at(1.0, 100), sample_at(2.0, 150)];
        let counts = LoadCounts {
            requests: 200,
            hits: 150,
            ..LoadCounts::default()
        };
        let totals =
            Totals::new(&counts, &series, 1.0).expect("there are two samples after the warm-up");
        assert_eq!((totals.origin_requests, totals.origin_bytes), (50, 500));
        assert_eq!((totals.hit_ratio, totals.spared_ratio), (0.75, 0.75));
        assert_eq!(totals.cpu_seconds, Some(0.5));
        assert_eq!(totals.memory_bytes_max, Some(900));
        assert_eq!(totals.disk_write_bytes, Some(50));
        assert_eq!(totals.latency_p50_ms, None);
        assert!(Totals::new(&counts, &series, 9.0).is_none());
        assert_eq!(
            Totals::new(&counts, &series, 0.0).and_then(|t| t.disk_write_bytes),
            None
        );
    }
}
