//! Goals: a measure, or the ratio of two measures of one round, compared with a limit.

use serde::Serialize;

use super::measure::Expression;
use super::plan::{Benchmark, Goal};
use super::summary::LoadRun;
use super::text;

/// The result of a goal for one load and one server.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Verdict {
    /// The goal in words.
    pub goal: String,
    /// The compared values in words: `requests / cpu_seconds, hits: edgeward / nginx`.
    pub subject: String,
    /// The median over the rounds. `None` if no round has both values.
    pub median: Option<f64>,
    /// The smallest value of a round.
    pub least: Option<f64>,
    /// The largest value of a round.
    pub most: Option<f64>,
    /// The number of rounds with a value.
    pub rounds: usize,
    /// The smallest median that meets the goal.
    pub at_least: Option<f64>,
    /// The largest median that meets the goal.
    pub at_most: Option<f64>,
}

impl Verdict {
    /// Returns true if the median is within the limits.
    pub(crate) fn is_met(&self) -> bool {
        self.median.is_some_and(|median| self.allows(median))
    }

    /// Returns true if some rounds alone would give another verdict than the median.
    pub(crate) fn is_within_scatter(&self) -> bool {
        let ends = [self.least, self.most].into_iter().flatten();
        ends.map(|end| self.allows(end))
            .any(|allowed| allowed != self.is_met())
    }

    fn allows(&self, value: f64) -> bool {
        self.at_least.is_none_or(|least| value >= least)
            && self.at_most.is_none_or(|most| value <= most)
    }
}

/// Returns the verdicts of all goals: one for each load and server of a goal, and one for each server that they are
/// compared with. Servers without runs, such as those that are not installed, have no verdict.
pub(super) fn verdicts(plan: &Benchmark, runs: &[LoadRun]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for goal in &plan.goals {
        for load in &plan.loads {
            let servers = load.servers.iter();
            for server in servers.filter(|server| goal.is_about(load, server)) {
                let to_load = goal.to_load.as_ref();
                let to_load = to_load.map(|name| text::expand(name, &load.set));
                for base in bases(goal, &load.name, server, to_load.as_deref(), plan) {
                    verdicts.extend(verdict(goal, runs, (load.name.as_str(), server), base));
                }
            }
        }
    }
    verdicts
}

/// A load and a server.
type Cell<'a> = (&'a str, &'a str);

/// Returns the cells that the goal compares a cell with; `None` for a goal without a comparison.
fn bases<'a>(
    goal: &'a Goal,
    load: &'a str,
    server: &'a str,
    to_load: Option<&'a str>,
    plan: &'a Benchmark,
) -> Vec<Option<Cell<'a>>> {
    let has = |load: &str, server: &String| {
        let mut loads = plan.loads.iter();
        loads.any(|other| other.name == load && other.servers.contains(server))
    };
    if let Some(other) = to_load {
        return vec![Some((other, server))];
    }
    if goal.to.is_empty() {
        return vec![None];
    }
    let others = goal.to.iter().filter(|other| has(load, other));
    others.map(|other| Some((load, other.as_str()))).collect()
}

fn verdict(
    goal: &Goal,
    runs: &[LoadRun],
    cell: Cell<'_>,
    base: Option<Cell<'_>>,
) -> Option<Verdict> {
    let has_runs = |(load, server): Cell<'_>| {
        let mut runs = runs.iter();
        runs.any(|run| run.load == load && run.server == server)
    };
    if !has_runs(cell) || base.is_some_and(|base| !has_runs(base)) {
        return None;
    }
    let values = match base {
        Some(base) => ratios(runs, &goal.measure, cell, base),
        None => values(runs, &goal.measure, cell),
    };
    let (load, server) = cell;
    let subject = match base {
        None => format!("{}, {load}: {server}", goal.measure),
        Some((base_load, base_server)) if base_load == load => {
            format!("{}, {load}: {server} / {base_server}", goal.measure)
        }
        Some((base_load, _)) => format!("{}, {server}: {load} / {base_load}", goal.measure),
    };
    Some(Verdict {
        goal: goal.says.clone(),
        subject,
        median: median(&values),
        least: values.iter().copied().reduce(f64::min),
        most: values.iter().copied().reduce(f64::max),
        rounds: values.len(),
        at_least: goal.at_least,
        at_most: goal.at_most,
    })
}

/// Returns the values of the valid runs of a cell, ordered by round.
pub(super) fn values(runs: &[LoadRun], measure: &Expression, cell: Cell<'_>) -> Vec<f64> {
    let runs = runs.iter().filter(|run| run.is_valid_run_of(cell));
    runs.filter_map(|run| measure.of(&run.measures)).collect()
}

/// Returns the ratios of the values of two cells, one for each round in which both runs are valid.
pub(super) fn ratios(
    runs: &[LoadRun],
    measure: &Expression,
    cell: Cell<'_>,
    base: Cell<'_>,
) -> Vec<f64> {
    let of_base = |round| {
        let mut runs = runs.iter();
        let run = runs.find(|run| run.round == round && run.is_valid_run_of(base))?;
        measure.of(&run.measures)
    };
    let runs = runs.iter().filter(|run| run.is_valid_run_of(cell));
    let ratios = runs.filter_map(|run| Some(measure.of(&run.measures)? / of_base(run.round)?));
    ratios.filter(|ratio| ratio.is_finite()).collect()
}

/// Returns the median; the mean of the two middle values if their number is even.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bench::measure::Measures;

    fn run(round: u32, server: &str, value: f64, is_valid: bool) -> LoadRun {
        LoadRun {
            round,
            load: "hits".to_owned(),
            server: server.to_owned(),
            measures: Measures::from([("x".to_owned(), value)]),
            problem: (!is_valid).then(|| "failed".to_owned()),
            series: Vec::new(),
        }
    }

    fn x() -> Expression {
        Expression::parse("x").expect("the expression is valid")
    }

    proptest! {
        /// The oracle walks over the rounds, and finds the median as the value that has as many values below it as
        /// above it.
        #[test]
        fn ratios_are_formed_within_rounds_and_the_median_splits_them_in_halves(
            rounds in proptest::collection::vec(
                (1_u32..1000, proptest::bool::weighted(0.8), 1_u32..1000, proptest::bool::weighted(0.8), any::<bool>()),
                0..12,
            )
        ) {
            let mut runs = Vec::new();
            let mut expected = Vec::new();
            for (n, (a, a_valid, b, b_valid, b_first)) in (0..).zip(rounds) {
                let first = run(n, "a", f64::from(a), a_valid);
                let second = run(n, "b", f64::from(b), b_valid);
                if b_first {
                    runs.extend([second, first]);
                } else {
                    runs.extend([first, second]);
                }
                if a_valid && b_valid {
                    expected.push(f64::from(a) / f64::from(b));
                }
            }
            let found = ratios(&runs, &x(), ("hits", "a"), ("hits", "b"));
            prop_assert_eq!(&found, &expected);
            let Some(median) = median(&found) else {
                prop_assert!(expected.is_empty());
                return Ok(());
            };
            let below = expected.iter().filter(|value| **value < median).count();
            let above = expected.iter().filter(|value| **value > median).count();
            prop_assert!(below <= expected.len() / 2 && above <= expected.len() / 2, "{median} of {expected:?}");
        }
    }

    #[test]
    fn a_verdict_depends_on_the_median_and_names_a_scatter_across_the_limit() {
        let verdict = |least: f64, median: f64, most: f64| Verdict {
            goal: String::new(),
            subject: String::new(),
            median: Some(median),
            least: Some(least),
            most: Some(most),
            rounds: 3,
            at_least: Some(1.0),
            at_most: Some(2.0),
        };
        for (values, is_met, is_within_scatter) in [
            ([1.0, 1.5, 2.0], true, false),
            ([0.9, 1.0, 2.0], true, true),
            ([1.0, 2.0, 2.1], true, true),
            ([0.8, 0.9, 0.99], false, false),
            ([0.8, 0.9, 1.0], false, true),
            ([1.9, 2.1, 3.0], false, true),
        ] {
            let [least, median, most] = values;
            let verdict = verdict(least, median, most);
            assert_eq!(verdict.is_met(), is_met, "{values:?}");
            assert_eq!(verdict.is_within_scatter(), is_within_scatter, "{values:?}");
        }
        let unmeasured = Verdict {
            median: None,
            ..verdict(1.0, 1.0, 1.0)
        };
        assert!(!unmeasured.is_met());
    }
}
