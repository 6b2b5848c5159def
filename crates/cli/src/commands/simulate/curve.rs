//! `simulate --curve`: miss-ratio curves.
//!
//! The curve of LRU is computed from stack distances in one pass. The curve of any other policy needs one simulated
//! cache for each size. With `--sample`, all curves are computed from the requests for a share of the objects, and
//! capacities are multiplied by this share.

use std::io::Write as _;
use std::num::NonZeroU32;

use edgeward_policy::PolicySpec;
use edgeward_report::{Axis, Page, Plot, Series, Unit};
use edgeward_sim::{
    CurvePoint, LruCurve, Request, Run, RunConfig, Sampler, SimulatedPolicy, TraceFacts, Traffic,
    curve_capacities,
};
use edgeward_types::{ByteSize, Seed};
use serde::Serialize;

use super::args::SimulateArgs;
use super::part::{Part, add_all};
use super::pass::Pass;
use super::rows::{Cell, RowColumn, Rows};
use super::runs::{BATCH_REQUESTS_MAX, check_facts, measure};
use super::schedule::feed_all;
use crate::diagnostic::Diagnostic;
use crate::input::Inputs;
use crate::output::{self, Column, Table};

/// The curves of all policies. They are also the JSON document of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Curves {
    trace: TraceFacts,
    /// The share of the objects whose requests were simulated.
    sample_rate: f64,
    curves: Vec<Curve>,
}

/// The miss ratios of one policy, by the size of the cache.
#[derive(Debug, Serialize)]
struct Curve {
    policy: String,
    /// `stack-distances` or `simulation`.
    method: &'static str,
    points: Vec<CurvePoint>,
}

/// A consumer of the sampled requests.
enum Job {
    /// A whole curve of LRU, from stack distances.
    Distances(Box<LruCurve>),
    /// One simulated cache of a curve.
    Cache(Box<Run>),
}

impl Job {
    fn feed(&mut self, requests: &[Request]) {
        match self {
            Self::Distances(curve) => curve.feed_requests(requests),
            Self::Cache(run) => run.feed_requests(requests),
        }
    }
}

/// Computes curves of `points` sizes between the smallest and the largest size of `--capacity`.
pub(super) fn compute(
    args: &SimulateArgs,
    inputs: &Inputs,
    points: usize,
) -> anyhow::Result<Curves> {
    let &[seed] = &args.seed[..] else {
        return Err(Diagnostic::new("a curve needs one seed")
            .hint("run the command once for each seed")
            .into());
    };
    let measured = || {
        let mut pass = Pass::new("measuring", inputs.requests_max(), inputs.bytes());
        measure(inputs, &mut pass)
    };
    let known_facts = args.needs_facts().then(measured).transpose()?;
    let footprint_bytes = known_facts
        .as_ref()
        .map_or(0, |facts| facts.footprint_bytes);
    let requests = known_facts.as_ref().map(|facts| facts.requests);
    let sizes = args.capacity.iter().map(|size| size.bytes(footprint_bytes));
    let (from, to) = (sizes.clone().min(), sizes.max());
    let (from, to) = (from.unwrap_or(1).max(1), to.unwrap_or(1).max(1));
    if from == to {
        return Err(Diagnostic::new("a curve needs two different sizes")
            .hint("give the smallest and the largest size: --capacity 0.1%,10%")
            .into());
    }
    let capacities = curve_capacities(from, to, points);
    let sampler = args
        .sample
        .map_or(Sampler::ALL, |share| Sampler::new(share.fraction()));
    let warmup_requests = args.warmup.requests(requests);
    let mut jobs = Vec::new();
    for policy in online(&args.policy)? {
        if by_distances(args, inputs, policy) {
            let metadata_bytes = args.count_metadata.bytes();
            let curve = LruCurve::new(capacities.clone(), sampler, metadata_bytes, warmup_requests);
            jobs.push(Job::Distances(Box::new(curve)));
            continue;
        }
        for &capacity_bytes in &capacities {
            let run = Run::new(RunConfig {
                policy,
                capacity_bytes: sampler.scale(capacity_bytes),
                warmup_requests: (warmup_requests as f64 * sampler.rate()).round() as u64,
                object_overhead_bytes: args.object_overhead.bytes(),
                seed: Seed(seed),
                window_requests: window_requests(args, sampler),
                interval_requests: u64::MAX,
            });
            let run = run
                .with_metadata_bytes(args.count_metadata.bytes())
                .with_objective(args.objective, args.origin_cost());
            jobs.push(Job::Cache(Box::new(run)));
        }
    }
    let requests_max = requests.or_else(|| inputs.requests_max());
    let mut pass = Pass::new("simulating", requests_max, inputs.bytes());
    let mut traffic = Traffic::default();
    let (jobs, read) = feed_all(jobs, args.threads(), Job::feed, |schedule| {
        let (mut counted, mut sample) = (Vec::new(), Vec::new());
        inputs.for_each_batch(|read| {
            traffic.count_all_with_ttls(read.records, read.ttls, &mut counted);
            sample.extend(
                counted
                    .drain(..)
                    .filter(|r: &Request| sampler.selects(r.key)),
            );
            if sample.len() >= BATCH_REQUESTS_MAX {
                schedule.push(&mut sample);
            }
            pass.advance(read.records.len() as u64, read.bytes_read);
        })?;
        schedule.push(&mut sample);
        anyhow::Ok(())
    });
    read?;
    let facts = traffic.facts();
    check_facts(&facts, inputs)?;
    let requests = facts.requests.saturating_sub(warmup_requests);
    let mut jobs = jobs.into_iter();
    let mut curves = Vec::new();
    for policy in online(&args.policy)? {
        let (method, points) = if by_distances(args, inputs, policy) {
            let points = jobs.next().map(|job| match job {
                Job::Distances(curve) => curve.points(requests),
                Job::Cache(_) => Vec::new(),
            });
            ("stack-distances", points.unwrap_or_default())
        } else {
            let caches = capacities.iter().zip(jobs.by_ref());
            let point = |(&capacity_bytes, job): (&u64, Job)| match job {
                Job::Cache(run) => Some(sampler.point(capacity_bytes, &run.report(), requests)),
                Job::Distances(_) => None,
            };
            ("simulation", caches.filter_map(point).collect())
        };
        curves.push(Curve {
            policy: policy.to_string(),
            method,
            points,
        });
    }
    Ok(Curves {
        trace: facts,
        sample_rate: sampler.rate(),
        curves,
    })
}

impl Curves {
    /// Prints the object miss ratios: one row for each size, one column for each policy.
    pub(super) fn print(&self) -> anyhow::Result<()> {
        let mut out = output::stdout();
        writeln!(
            out,
            "{} requests for {} objects of {}. Misses per request{}:\n",
            output::count(self.trace.requests),
            output::count(self.trace.objects),
            ByteSize(self.trace.footprint_bytes),
            self.sample_note(),
        )?;
        let policies = self
            .curves
            .iter()
            .map(|curve| Column::figures(&curve.policy));
        let mut table = Table::new([Column::figures("capacity")].into_iter().chain(policies));
        for at in 0..self.curves.first().map_or(0, |curve| curve.points.len()) {
            let capacity = ByteSize(self.curves[0].points[at].capacity_bytes).to_string();
            let ratios = self.curves.iter().filter_map(|curve| curve.points.get(at));
            let ratios = ratios.map(|point| output::percent(point.object_miss_ratio));
            table.row([capacity].into_iter().chain(ratios));
        }
        write!(out, "{table}")?;
        out.flush()?;
        Ok(())
    }

    /// Returns the page with both plots.
    pub(super) fn page(&self, label: &str) -> String {
        let mut page = Page::new(format!("Miss-ratio curves: {label}"));
        page.fact("requests", output::count(self.trace.requests));
        page.fact("objects", output::count(self.trace.objects));
        page.fact("objects in the sample", output::percent(self.sample_rate));
        if let Some(best) = self.best() {
            page.finding(best);
        }
        add_all(&mut page, "", self.parts());
        page.render()
    }

    /// Returns both plots.
    pub(super) fn parts(&self) -> Vec<Part> {
        type Ratio = fn(&CurvePoint) -> f64;
        let mut parts = Vec::new();
        let plots: [(&str, Ratio); 2] = [
            ("object miss ratio", |point| point.object_miss_ratio),
            ("byte miss ratio", |point| point.byte_miss_ratio),
        ];
        for (name, ratio) in plots {
            let mut plot = Plot::new(
                format!("{name} by cache size"),
                Axis::new("cache size", Unit::Bytes).log(),
                Axis::new(name, Unit::Share),
            );
            for curve in &self.curves {
                let point = |point: &CurvePoint| (point.capacity_bytes as f64, ratio(point));
                plot.add(Series::line(&curve.policy, curve.points.iter().map(point)));
            }
            parts.push(Part::Plot(name.replace(' ', "-"), plot));
        }
        parts
    }

    /// Returns one row for each point.
    pub(super) fn rows(&self, label: &str) -> Rows {
        let mut rows = Rows::new(&[
            RowColumn::text("trace"),
            RowColumn::text("policy"),
            RowColumn::text("method"),
            RowColumn::number("sample_rate"),
            RowColumn::count("capacity_bytes"),
            RowColumn::number("object_miss_ratio"),
            RowColumn::number("byte_miss_ratio"),
        ]);
        for curve in &self.curves {
            for point in &curve.points {
                rows.add([
                    Cell::Text(label.to_owned()),
                    Cell::Text(curve.policy.clone()),
                    Cell::Text(curve.method.to_owned()),
                    Cell::Number(self.sample_rate),
                    Cell::Count(point.capacity_bytes),
                    Cell::Number(point.object_miss_ratio),
                    Cell::Number(point.byte_miss_ratio),
                ]);
            }
        }
        rows
    }

    fn sample_note(&self) -> String {
        if self.sample_rate < 1.0 {
            let share = output::percent(self.sample_rate);
            format!(", estimated from {share} of the objects")
        } else {
            String::new()
        }
    }

    /// Returns a sentence about the policy with the lowest mean object miss ratio.
    fn best(&self) -> Option<String> {
        let mean = |curve: &Curve| {
            let ratios = curve.points.iter().map(|point| point.object_miss_ratio);
            ratios.sum::<f64>() / curve.points.len().max(1) as f64
        };
        let best = self
            .curves
            .iter()
            .min_by(|a, b| mean(a).total_cmp(&mean(b)))?;
        Some(format!(
            "{} has the fewest misses: {} of the requests on average over all sizes{}.",
            best.policy,
            output::percent(mean(best)),
            self.sample_note(),
        ))
    }
}

/// Returns true if the curve of the policy is computed from stack distances: LRU without `--object-overhead` and
/// without lifetimes. With an overhead, bodies are rounded up and bookkeeping takes capacity. With lifetimes, a
/// resident object may be stale. In both cases LRU is simulated like any other policy.
fn by_distances(args: &SimulateArgs, inputs: &Inputs, policy: PolicySpec) -> bool {
    policy == PolicySpec::LRU && args.object_overhead.bytes() == 0 && !inputs.have_ttls()
}

/// Returns the policies, or an error if one of them is an offline policy.
fn online(policies: &[SimulatedPolicy]) -> anyhow::Result<Vec<PolicySpec>> {
    let online = |policy: &SimulatedPolicy| match policy {
        SimulatedPolicy::Online(policy) => Ok(*policy),
        SimulatedPolicy::Offline(policy) => Err(Diagnostic::new(format!(
            "the policy `{policy}` knows all future requests and has no curve"
        ))
        .hint("run it without --curve, with a list of sizes")
        .into()),
    };
    policies.iter().map(online).collect()
}

/// Returns the number of requests in a window of AdaptSize's tuner, or `None` for its default. In a sample, this number
/// is multiplied by the share of the objects, but is not below the minimum that the tuner's statistics need.
fn window_requests(args: &SimulateArgs, sampler: Sampler) -> Option<u32> {
    let window = args.window.map(NonZeroU32::get);
    if sampler == Sampler::ALL {
        return window;
    }
    let window = f64::from(window.unwrap_or(WINDOW_REQUESTS));
    Some((window * sampler.rate()).max(WINDOW_REQUESTS_MIN) as u32)
}

/// The default window of AdaptSize's tuner in requests, as in the paper.
const WINDOW_REQUESTS: u32 = 250_000;

/// The smallest window in a sample, in requests.
const WINDOW_REQUESTS_MIN: f64 = 5_000.0;
