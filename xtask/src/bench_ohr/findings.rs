//! The tables of the results, and the check of the goals.

use std::fmt::{self, Write as _};

use serde_json::{Value, json};

use super::cells::Cell;
use super::policies::{BOUND, COUNTERPARTS, Policy, Simulator};
use super::results::Outcome;
use crate::bench_shared::median;

/// The outcomes of all policies in one cell.
pub(super) struct CellResults {
    pub(super) trace: String,
    /// The capacity as the tables show it.
    pub(super) size: String,
    pub(super) capacity_bytes: u64,
    pub(super) results: Vec<(Policy, Outcome)>,
}

impl CellResults {
    pub(super) fn new(cell: &Cell, policies: &[Policy], outcomes: Vec<Option<Outcome>>) -> Self {
        let results = policies.iter().copied().zip(outcomes);
        Self {
            trace: cell.trace.name.clone(),
            size: cell.size.clone(),
            capacity_bytes: cell.capacity_bytes,
            results: results.filter_map(|(p, o)| Some((p, o?))).collect(),
        }
    }

    /// Returns the outcome of a policy, if it finished.
    fn outcome(&self, simulator: Simulator, name: &str) -> Option<&Outcome> {
        let same =
            |(policy, _): &&(Policy, Outcome)| policy.simulator == simulator && policy.name == name;
        let (_, outcome) = self.results.iter().find(same)?;
        outcome.ratios.is_some().then_some(outcome)
    }

    /// Returns the object hit ratio of one of our policies.
    pub(super) fn ours(&self, name: &str) -> Option<f64> {
        Some(self.outcome(Simulator::Edgeward, name)?.ratios?.0)
    }

    /// Returns the object hit ratio of one of the referee's policies.
    pub(super) fn theirs(&self, name: &str) -> Option<f64> {
        Some(self.outcome(Simulator::Referee, name)?.ratios?.0)
    }

    /// Returns the online policy with the highest object hit ratio, and this ratio. `density` is excluded.
    pub(super) fn best_other(&self) -> Option<(Policy, f64)> {
        let online = self.results.iter().filter(|(policy, _)| {
            !policy.offline && (policy.simulator, policy.name) != (Simulator::Edgeward, "density")
        });
        let ratios = online.filter_map(|(policy, outcome)| Some((*policy, outcome.ratios?.0)));
        ratios.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Returns the object hit ratio of `density` minus that of the best other online policy, in percentage points.
    pub(super) fn distance_points(&self) -> Option<f64> {
        Some((self.ours("density")? - self.best_other()?.1) * 100.0)
    }

    /// Returns the object hit ratio of Belady-Size: the referee's, or ours if the referee has no result.
    pub(super) fn belady_size(&self) -> Option<f64> {
        self.theirs("BeladySize")
            .or_else(|| self.ours("belady-size"))
    }

    /// Returns the difference between `density` and GDSF as published, divided by the difference between Belady-Size
    /// and GDSF. Returns `None` if Belady-Size is less than 0.05 points above GDSF and therefore no bound.
    pub(super) fn share_closed(&self) -> Option<f64> {
        let gdsf = self.ours("gdsf-plain")?;
        let room = self.belady_size()? - gdsf;
        (room >= 0.0005).then_some((self.ours("density")? - gdsf) / room)
    }

    fn name(&self) -> String {
        format!("{} {}", self.trace, self.size)
    }

    pub(super) fn json(&self) -> Value {
        let results = self.results.iter().map(|(policy, outcome)| {
            let mut json = outcome.json();
            json["simulator"] = json!(policy.simulator.name());
            json["policy"] = json!(policy.name);
            json
        });
        json!({
            "trace": self.trace,
            "size": self.size,
            "capacity_bytes": self.capacity_bytes,
            "best_other_online": self.best_other().map(|(policy, _)| label(policy)),
            "density_distance_points": self.distance_points(),
            "share_closed": self.share_closed(),
            "results": results.collect::<Vec<_>>(),
        })
    }
}

/// Returns the name of a policy in tables. The prefix `lcs` marks policies of the referee.
pub(super) fn label(policy: Policy) -> String {
    match policy.simulator {
        Simulator::Edgeward => policy.name.to_owned(),
        Simulator::Referee => format!("lcs {}", policy.name),
    }
}

/// A goal, and whether the results meet it.
pub(super) struct Verdict {
    pub(super) goal: String,
    /// `None` if no cell has the required results.
    pub(super) met: Option<bool>,
    /// The measured values, as text.
    pub(super) figures: String,
}

impl Verdict {
    pub(super) fn word(&self) -> &'static str {
        match self.met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not measured",
        }
    }

    pub(super) fn is_not_missed(&self) -> bool {
        self.met != Some(false)
    }

    pub(super) fn json(&self) -> Value {
        json!({ "goal": self.goal, "met": self.met, "figures": self.figures })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<13} {}: {}", self.word(), self.goal, self.figures)
    }
}

/// Checks that `margin`, in percentage points, is at least `least` in each cell for which it has a value.
fn in_every_cell(
    goal: &str,
    table: &[CellResults],
    least: f64,
    margin: impl Fn(&CellResults) -> Option<f64>,
) -> Verdict {
    let margins: Vec<(f64, String)> = table
        .iter()
        .filter_map(|cell| Some((margin(cell)?, cell.name())))
        .collect();
    let worst = margins.iter().min_by(|a, b| a.0.total_cmp(&b.0));
    let good = margins.iter().filter(|(margin, _)| *margin >= least);
    Verdict {
        goal: goal.to_owned(),
        met: worst.map(|(margin, _)| *margin >= least),
        figures: worst.map_or_else(String::new, |(margin, cell)| {
            let (good, all) = (good.count(), margins.len());
            format!("{good} of {all} cells; least {margin:+.2} points, {cell}")
        }),
    }
}

/// Checks all goals.
pub(super) fn verdicts(table: &[CellResults]) -> Vec<Verdict> {
    let mut verdicts = vec![
        in_every_cell(
            "density is at most 0.1 points below the best other online policy",
            table,
            -0.1,
            CellResults::distance_points,
        ),
        share_verdict(table),
        in_every_cell(
            "density has more hits than ThreeLCache",
            table,
            0.0,
            |cell| Some((cell.ours("density")? - cell.theirs("ThreeLCache")?) * 100.0),
        ),
        cpu_verdict(table),
        in_every_cell(
            "density reaches its prototype within 0.2 points",
            table,
            -0.2,
            |cell| {
                let name = (&cell.trace[..], &cell.size[..]);
                let prototype = PROTOTYPE.iter().find(|row| (row.0, row.1) == name)?;
                Some((cell.ours("density")? - prototype.2) * 100.0)
            },
        ),
        in_every_cell(
            "adaptsize-horizon is at most 1 point below lru",
            table,
            -1.0,
            |cell| Some((cell.ours("adaptsize-horizon")? - cell.ours("lru")?) * 100.0),
        ),
    ];
    for (ours, theirs, points) in COUNTERPARTS {
        verdicts.push(in_every_cell(
            &format!("{ours} agrees with the referee's {theirs} within {points} points"),
            table,
            -points,
            |cell| Some(-(cell.ours(ours)? - cell.theirs(theirs)?).abs() * 100.0),
        ));
    }
    verdicts
}

/// The object hit ratios of the prototype of `density`: trace, capacity, and the ratio rounded to three digits.
const PROTOTYPE: [(&str, &str, f64); 12] = [
    ("akamai-w-web", "256MiB", 0.849),
    ("akamai-w-web", "2GiB", 0.885),
    ("akamai-w-web", "16GiB", 0.899),
    ("akamai-tc0-download", "256MiB", 0.804),
    ("akamai-tc0-download", "2GiB", 0.886),
    ("akamai-tc0-download", "32GiB", 0.910),
    ("akamai-v-video", "4GiB", 0.322),
    ("akamai-v-video", "64GiB", 0.546),
    ("akamai-v-video", "512GiB", 0.668),
    ("bu98-proxy", "256KiB", 0.219),
    ("bu98-proxy", "2MiB", 0.330),
    ("bu98-proxy", "32MiB", 0.428),
];

fn share_verdict(table: &[CellResults]) -> Verdict {
    let shares: Vec<f64> = table.iter().filter_map(CellResults::share_closed).collect();
    let middle = median(&shares);
    Verdict {
        goal: "density closes at least 30 % of the distance from gdsf-plain to Belady-Size"
            .to_owned(),
        met: middle.map(|share| share >= 0.3),
        figures: middle.map_or_else(String::new, |share| {
            format!("median {:.0} % of {} cells", share * 100.0, shares.len())
        }),
    }
}

fn cpu_verdict(table: &[CellResults]) -> Verdict {
    let mut sums = (0.0, 0.0);
    for cell in table {
        let ours = cell.outcome(Simulator::Edgeward, "density");
        if let Some((ours, theirs)) = ours.zip(cell.outcome(Simulator::Referee, "ThreeLCache")) {
            sums = (sums.0 + ours.cpu_seconds, sums.1 + theirs.cpu_seconds);
        }
    }
    Verdict {
        goal: "density needs at most a third of the CPU time of ThreeLCache".to_owned(),
        met: (sums.1 > 0.0).then_some(sums.0 <= sums.1 / 3.0),
        figures: format!("{:.1} s and {:.1} s over all cells", sums.0, sums.1),
    }
}

/// Returns the names of the traces, in order.
pub(super) fn traces(table: &[CellResults]) -> Vec<&str> {
    let mut names: Vec<&str> = table.iter().map(|cell| &cell.trace[..]).collect();
    names.dedup();
    names
}

/// Returns the cells of a trace, by capacity.
pub(super) fn cells_of<'a>(table: &'a [CellResults], trace: &str) -> Vec<&'a CellResults> {
    let mut cells: Vec<_> = table.iter().filter(|cell| cell.trace == trace).collect();
    cells.sort_by_key(|cell| cell.capacity_bytes);
    cells
}

/// Returns the policies of one trace, each with its outcome in every cell. They are sorted by their object hit ratio in
/// the middle cell, the highest first.
pub(super) fn rows<'a>(cells: &[&'a CellResults]) -> Vec<(Policy, Vec<Option<&'a Outcome>>)> {
    let mut rows: Vec<(Policy, Vec<Option<&Outcome>>)> = Vec::new();
    for (n, cell) in cells.iter().enumerate() {
        for (policy, outcome) in &cell.results {
            let same = |row: &&mut (Policy, Vec<_>)| label(row.0) == label(*policy);
            if let Some(row) = rows.iter_mut().find(same) {
                row.1[n] = Some(outcome);
            } else {
                let mut outcomes = vec![None; cells.len()];
                outcomes[n] = Some(outcome);
                rows.push((*policy, outcomes));
            }
        }
    }
    let middle = cells.len() / 2;
    let ratio = |row: &(Policy, Vec<Option<&Outcome>>)| {
        row.1[middle]
            .and_then(|outcome| outcome.ratios)
            .map_or(-1.0, |ratios| ratios.0)
    };
    rows.sort_by(|a, b| ratio(b).total_cmp(&ratio(a)));
    rows
}

/// Returns both hit ratios, or how the run ended without them.
pub(super) fn ratios_text(outcome: Option<&Outcome>) -> String {
    match outcome {
        None => "–".to_owned(),
        Some(outcome) => outcome.ratios.map_or_else(
            || outcome.ending.clone(),
            |(object, byte)| format!("{object:.4} {byte:.4}"),
        ),
    }
}

/// Returns one table per trace, and one with a row per cell.
pub(super) fn text(table: &[CellResults]) -> String {
    let mut text = String::from("object hit ratio and byte hit ratio; `lcs` is libCacheSim\n");
    for trace in traces(table) {
        let cells = cells_of(table, trace);
        _ = write!(text, "\n{trace:<24}");
        for cell in &cells {
            _ = write!(text, "{:>15}", cell.size);
        }
        text.push('\n');
        for (policy, outcomes) in rows(&cells) {
            _ = write!(text, "{:<24}", label(policy));
            for outcome in outcomes {
                _ = write!(text, "{:>15}", ratios_text(outcome));
            }
            text.push('\n');
        }
    }
    _ = writeln!(
        text,
        "\n{:<30}{:>9}{:>9}{:>9}{:>9}{:>8}  best other online policy",
        "cell", "bound", "Belady-S.", "density", "points", "share"
    );
    for cell in table {
        let ratio =
            |ratio: Option<f64>| ratio.map_or_else(|| "–".to_owned(), |r| format!("{r:.4}"));
        let best = cell.best_other();
        let best = best.map_or_else(String::new, |(p, r)| format!("{} {r:.4}", label(p)));
        _ = writeln!(
            text,
            "{:<30}{:>9}{:>9}{:>9}{:>9}{:>8}  {best}",
            cell.name(),
            ratio(cell.ours(BOUND)),
            ratio(cell.belady_size()),
            ratio(cell.ours("density")),
            cell.distance_points()
                .map_or_else(String::new, |d| format!("{d:+.2}")),
            cell.share_closed()
                .map_or_else(|| "–".to_owned(), |s| format!("{:.0} %", s * 100.0)),
        );
    }
    text.push('\n');
    text
}

/// Returns CSV with one line per cell and policy.
pub(super) fn csv(table: &[CellResults]) -> String {
    let mut text = String::from(
        "trace,size,capacity_bytes,simulator,policy,object_hit_ratio,byte_hit_ratio,cpu_seconds,rss_bytes,ending\n",
    );
    for cell in table {
        for (policy, outcome) in &cell.results {
            let ratios = outcome
                .ratios
                .map_or_else(|| ",".to_owned(), |(o, b)| format!("{o:.6},{b:.6}"));
            _ = writeln!(
                text,
                "{},{},{},{},{},{ratios},{:.3},{:.0},{}",
                cell.trace,
                cell.size,
                cell.capacity_bytes,
                policy.simulator.name(),
                policy.name,
                outcome.cpu_seconds,
                outcome.rss_bytes,
                outcome.ending
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::policies::{OURS, REFEREE};
    use super::*;

    /// Returns a cell in which the named policies, of either simulator, have these object hit ratios.
    fn cell(ratios: &[(&str, f64)]) -> CellResults {
        let result = |(name, ratio): &(&str, f64)| {
            let mut policies = OURS.into_iter().chain(REFEREE);
            let policy = policies.find(|policy| policy.name == *name);
            let outcome = Outcome {
                ratios: Some((*ratio, 0.0)),
                cpu_seconds: 1.0,
                rss_bytes: 0.0,
                ending: "ok".to_owned(),
            };
            (policy.expect("the policy is in a list"), outcome)
        };
        CellResults {
            trace: "t".to_owned(),
            size: "1 %".to_owned(),
            capacity_bytes: 1,
            results: ratios.iter().map(result).collect(),
        }
    }

    #[test]
    fn offline_policies_are_not_the_best_online_policy() {
        let cell = cell(&[
            ("upper-bound", 0.9),
            ("BeladySize", 0.8),
            ("density", 0.6),
            ("LHD", 0.5),
            ("gdsf-plain", 0.4),
        ]);
        assert_eq!(
            cell.best_other().map(|(policy, _)| policy.name),
            Some("LHD")
        );
        let distance = cell.distance_points().expect("both have results");
        assert!((distance - 10.0).abs() < 1e-9, "{distance}");
        let share = cell.share_closed().expect("Belady-Size is better");
        assert!((share - 0.5).abs() < 1e-9, "{share}");
    }

    #[test]
    fn a_share_needs_room_between_gdsf_and_belady_size() {
        let close = cell(&[("gdsf-plain", 0.8), ("BeladySize", 0.8), ("density", 0.9)]);
        assert_eq!(close.share_closed(), None);
    }

    #[test]
    fn a_goal_holds_in_every_cell_or_is_missed_or_was_not_measured() {
        let first = |table: &[CellResults]| verdicts(table)[0].met;
        let good = || cell(&[("density", 0.5), ("lru", 0.5009)]);
        let bad = || cell(&[("density", 0.5), ("lru", 0.502)]);
        assert_eq!(first(&[good()]), Some(true));
        assert_eq!(first(&[good(), bad()]), Some(false));
        assert_eq!(first(&[cell(&[("lru", 0.5)])]), None);
    }

    #[test]
    fn a_disagreement_in_either_direction_is_reported() {
        for ours in [0.49, 0.51] {
            let table = [cell(&[("lhd", ours), ("LHD", 0.5)])];
            let verdicts = verdicts(&table);
            let lhd = verdicts.iter().find(|verdict| verdict.goal.contains("LHD"));
            assert_eq!(lhd.and_then(|verdict| verdict.met), Some(false));
        }
    }
}
