//! What came of an experiment: the contract of `edgeward lab --json`.
//!
//! Names end in their unit. Every key is described in `docs/reference/json-reports.md`.

use edgeward_replay::load::{ErrorSample, Latencies};
use serde::Serialize;

use crate::plan::{Compare, SourceFigure};
use crate::sample::Sample;

/// Everything.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// The plan's.
    pub title: String,
    /// The plan's.
    pub about: Option<String>,
    /// Why it is not the whole plan that ran.
    pub unfinished: Option<String>,
    /// What was asked for.
    pub trace: TraceFacts,
    /// How.
    pub load: LoadFacts,
    /// Where.
    pub machine: Machine,
    /// The contenders, in the plan's order; those that have not had their turn are missing.
    pub contenders: Vec<ContenderOutcome>,
    /// Who is compared with whom.
    #[serde(skip)]
    pub compare: Option<Compare>,
    /// What others measured.
    #[serde(skip)]
    pub sources: Vec<SourceFigure>,
}

/// The trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TraceFacts {
    /// What to call it.
    pub label: String,
    /// Requests, without those for objects left out.
    pub requests: u64,
    /// Distinct objects.
    pub objects: u64,
    /// Bytes of all of them together.
    pub footprint_bytes: u64,
    /// Bytes of all requests together.
    pub requested_bytes: u64,
    /// The share of the objects asked for once.
    pub one_hit_share: f64,
}

/// The load.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LoadFacts {
    /// Connections to each contender.
    pub connections: usize,
    /// Requests a second; none is a closed loop.
    pub rate: Option<f64>,
    /// Sent before anything counted.
    pub warmup_requests: u64,
    /// The clients' distance.
    pub round_trip_ms: f64,
    /// The origin's distance.
    pub origin_round_trip_ms: f64,
    /// Whether contenders ran at the same time.
    pub together: bool,
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Machine {
    /// Processors that may be used.
    pub cores: usize,
    /// Their name.
    pub processor: Option<String>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// Processes that wanted a processor in the minute before, on average.
    pub load_before: Option<f64>,
    /// In the last minute of the run; the experiment itself is part of that.
    pub load_after: Option<f64>,
}

/// One contender.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct ContenderOutcome {
    /// The plan's.
    pub name: String,
    /// The plan's.
    pub group: Option<String>,
    /// The program.
    pub server: String,
    /// Its version, if it tells.
    pub version: Option<String>,
    /// What it was given, as one would say it.
    pub settings: Vec<String>,
    /// How it ended.
    pub end: End,
    /// What it came to, from the end of the warm-up on.
    pub totals: Option<Totals>,
    /// When the warm-up was over.
    pub warm_seconds: Option<f64>,
    /// When its settings changed.
    pub switched_seconds: Option<f64>,
    /// The first few failures.
    pub error_samples: Vec<ErrorSample>,
    /// What could not be measured, and anything odd.
    pub notes: Vec<String>,
    /// The looks, oldest first.
    pub series: Vec<Sample>,
}

impl ContenderOutcome {
    /// Whether the machine did not keep up with the rate: half of the requests were sent this late, which is no hiccup.
    pub(crate) fn was_late(&self) -> bool {
        let late = |totals: &Totals| totals.send_delay_p50_ms > LATE_MS;
        self.totals.as_ref().is_some_and(late)
    }
}

const LATE_MS: f64 = 250.0;

/// How a contender's turn ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "how", rename_all = "snake_case")]
#[non_exhaustive]
pub enum End {
    /// With the trace.
    #[default]
    Whole,
    /// It could not begin: the program is not here.
    Missing {
        /// What to do about it.
        hint: String,
    },
    /// It could not begin.
    Failed {
        /// Why.
        why: String,
    },
    /// In the middle: what there is was kept.
    Cut {
        /// Why.
        why: String,
    },
}

impl End {
    /// Whether all of the trace went through.
    pub fn is_whole(&self) -> bool {
        *self == Self::Whole
    }
}

/// What a contender came to, without the warm-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Totals {
    /// How long it took.
    pub seconds: f64,
    /// Requests answered or failed.
    pub requests: u64,
    /// Failures.
    pub errors: u64,
    /// Requests answered from the cache, as the server says.
    pub hits: u64,
    /// By requests.
    pub hit_ratio: f64,
    /// The share of requests that the origin heard nothing of, as the origin counts them.
    pub spared_ratio: f64,
    /// Bytes of right bodies.
    pub body_bytes: u64,
    /// The share of these that came from the cache.
    pub byte_hit_ratio: f64,
    /// Requests that reached the origin.
    pub origin_requests: u64,
    /// Bytes of bodies that the origin sent.
    pub origin_bytes: u64,
    /// CPU of the server.
    pub cpu_seconds: Option<f64>,
    /// The most memory at any look.
    pub memory_bytes_max: Option<u64>,
    /// Bytes fetched from a device.
    pub disk_read_bytes: Option<u64>,
    /// Bytes handed over to be written to one.
    pub disk_write_bytes: Option<u64>,
    /// Writes of the disk cache, where the server counts them.
    pub store_write_operations: Option<u64>,
    /// Reads and writes that the device completed, whoever caused them.
    pub device_operations: Option<u64>,
    /// Half of the answers took no longer.
    pub latency_p50_ms: Option<f64>,
    /// Nine in ten.
    pub latency_p90_ms: Option<f64>,
    /// Ninety-nine in a hundred.
    pub latency_p99_ms: Option<f64>,
    /// Half the requests were sent later than they were due by this: where it is long, the machine did not
    /// keep up with the rate.
    pub send_delay_p50_ms: f64,
}

/// What the load counted exactly, without the warm-up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) hits: u64,
    pub(crate) body_bytes: u64,
    pub(crate) hit_bytes: u64,
    pub(crate) send_delay_p50_ms: f64,
    pub(crate) latencies: Latencies,
}

impl Totals {
    /// From what the load counted, and the looks from the end of the warm-up on.
    pub(crate) fn new(counted: &Counted, series: &[Sample], warm_seconds: f64) -> Option<Self> {
        let first = series.iter().find(|sample| sample.seconds >= warm_seconds);
        let (first, last) = (first?, series.last()?);
        let gained = |figure: fn(&Sample) -> u64| figure(last).saturating_sub(figure(first));
        let maybe =
            |figure: fn(&Sample) -> Option<u64>| Some(figure(last)?.saturating_sub(figure(first)?));
        let quantile = |share| {
            let took = counted.latencies.quantile(share)?;
            Some(took.as_secs_f64() * 1e3)
        };
        let origin_requests = gained(|sample| sample.origin_requests);
        let seen = series.iter().filter(|s| s.seconds >= warm_seconds);
        Some(Self {
            seconds: last.seconds - first.seconds,
            requests: counted.requests,
            errors: counted.errors,
            hits: counted.hits,
            hit_ratio: share(counted.hits, counted.requests),
            spared_ratio: 1.0 - share(origin_requests, counted.requests).min(1.0),
            body_bytes: counted.body_bytes,
            byte_hit_ratio: share(counted.hit_bytes, counted.body_bytes),
            origin_requests,
            origin_bytes: gained(|sample| sample.origin_bytes),
            cpu_seconds: last
                .cpu_seconds
                .zip(first.cpu_seconds)
                .map(|(last, first)| (last - first).max(0.0)),
            memory_bytes_max: seen.filter_map(|sample| sample.memory_bytes).max(),
            disk_read_bytes: maybe(|sample| sample.disk_read_bytes),
            disk_write_bytes: maybe(|sample| sample.disk_write_bytes),
            store_write_operations: maybe(|sample| sample.store_write_operations),
            device_operations: maybe(|sample| sample.device_operations),
            latency_p50_ms: quantile(0.5),
            latency_p90_ms: quantile(0.9),
            latency_p99_ms: quantile(0.99),
            send_delay_p50_ms: counted.send_delay_p50_ms,
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
    /// The contender of this name, or the best of the group: the one that answers most requests from its cache.
    /// Only those that saw the whole trace.
    pub fn standing_for(&self, name: &str) -> Option<&ContenderOutcome> {
        let ratio = |one: &ContenderOutcome| one.totals.as_ref().map_or(0.0, |t| t.hit_ratio);
        self.contenders
            .iter()
            .filter(|one| one.name == name || one.group.as_deref() == Some(name))
            .filter(|one| one.end.is_whole() && one.totals.is_some())
            .max_by(|a, b| ratio(a).total_cmp(&ratio(b)))
    }

    /// Whether all ran to the end and every answer was right. Programs that are not installed are no failure.
    pub fn is_good(&self) -> bool {
        let good = |one: &ContenderOutcome| match one.end {
            End::Whole => one.totals.as_ref().is_some_and(|totals| totals.errors == 0),
            End::Missing { .. } => true,
            End::Failed { .. } | End::Cut { .. } => false,
        };
        self.unfinished.is_none() && self.contenders.iter().all(good)
    }
}

#[cfg(test)]
impl Outcome {
    /// For tests, which look at contenders.
    pub(crate) fn of(contenders: Vec<ContenderOutcome>) -> Self {
        Self {
            title: "t".to_owned(),
            about: None,
            unfinished: None,
            trace: TraceFacts::default(),
            load: LoadFacts::default(),
            machine: Machine::default(),
            compare: None,
            contenders,
            sources: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, group: Option<&str>, hit_ratio: f64, end: End) -> ContenderOutcome {
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
    fn the_best_of_a_group_stands_for_it_if_it_saw_the_whole_trace() {
        let cut = End::Cut {
            why: "x".to_owned(),
        };
        let outcome = Outcome::of(vec![
            one("n1", Some("nginx"), 0.4, End::Whole),
            one("n2", Some("nginx"), 0.5, End::Whole),
            one("n3", Some("nginx"), 0.9, cut),
            one("alone", None, 0.3, End::Whole),
        ]);
        let name = |asked| outcome.standing_for(asked).map(|one| one.name.as_str());
        assert_eq!(name("nginx"), Some("n2"));
        assert_eq!(name("n1"), Some("n1"));
        assert_eq!(name("alone"), Some("alone"));
        assert_eq!(name("n3"), None);
        assert_eq!(name("nobody"), None);
        assert!(!outcome.is_good());
    }

    #[test]
    fn a_program_that_is_not_installed_is_no_failure_and_a_wrong_answer_is() {
        let missing = End::Missing {
            hint: "x".to_owned(),
        };
        let mut outcome = Outcome::of(vec![
            one("a", None, 0.5, End::Whole),
            one("b", None, 0.0, missing),
        ]);
        assert!(outcome.is_good());
        if let Some(totals) = &mut outcome.contenders[0].totals {
            totals.errors = 1;
        }
        assert!(!outcome.is_good());
    }

    #[test]
    fn totals_begin_where_the_warm_up_ends() {
        let at = |seconds: f64, n: u64| Sample {
            seconds,
            origin_requests: n,
            origin_bytes: n * 10,
            cpu_seconds: Some(n as f64 / 100.0),
            memory_bytes: Some(1000 - n),
            disk_write_bytes: (n > 0).then_some(n),
            ..Sample::default()
        };
        let series = [at(0.0, 0), at(1.0, 100), at(2.0, 150)];
        let counted = Counted {
            requests: 200,
            hits: 150,
            ..Counted::default()
        };
        let totals = Totals::new(&counted, &series, 1.0).expect("two looks");
        assert_eq!((totals.origin_requests, totals.origin_bytes), (50, 500));
        assert_eq!((totals.hit_ratio, totals.spared_ratio), (0.75, 0.75));
        assert_eq!(totals.cpu_seconds, Some(0.5));
        assert_eq!(totals.memory_bytes_max, Some(900));
        assert_eq!(totals.disk_write_bytes, Some(50));
        assert_eq!(totals.latency_p50_ms, None);
        assert!(Totals::new(&counted, &series, 9.0).is_none());
        assert_eq!(
            Totals::new(&counted, &series, 0.0).and_then(|t| t.disk_write_bytes),
            None
        );
    }
}
