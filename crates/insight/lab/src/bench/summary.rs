//! The results of a benchmark, and their summary as Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

use super::measure::{Expression, Measures};
use super::plan::{Benchmark, Goal, LoadPlan};
use super::verdict::{Verdict, median, values};
use crate::outcome::Machine;

/// The results of a benchmark so far. `data.json` has them.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct BenchmarkOutcome {
    /// The title of the plan.
    pub title: String,
    /// The description from the plan.
    pub about: Option<String>,
    /// The date of the start, in UTC.
    pub date: String,
    /// The commit of the plan's folder, with a plus sign if files differ from it.
    pub commit: String,
    /// Why a part of the plan did not run; `None` if the whole plan ran.
    pub unfinished: Option<String>,
    /// Facts about the machine.
    pub machine: Machine,
    /// The versions of the servers, by name.
    pub versions: BTreeMap<String, String>,
    /// The values of placeholders.
    pub set: BTreeMap<String, String>,
    /// Parts of the plan that were left out.
    pub notes: Vec<String>,
    /// The verdicts of the goals.
    pub verdicts: Vec<Verdict>,
    /// The runs in their order.
    pub runs: Vec<LoadRun>,
    #[serde(skip)]
    show: Vec<Expression>,
}

/// The run of one load with one server in one round.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct LoadRun {
    /// The round, counted from 0.
    pub round: u32,
    /// The name of the load.
    pub load: String,
    /// The name of the server.
    pub server: String,
    /// The measures by name.
    pub measures: Measures,
    /// Why the run is invalid; `None` for a valid run. Verdicts and medians ignore invalid runs.
    pub problem: Option<String>,
    /// The resources of the server's processes, sampled each second.
    pub series: Vec<ResourceSample>,
}

/// The resources of a server at one moment of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ResourceSample {
    /// Seconds since the start of the load.
    pub seconds: f64,
    /// CPU time since the start of the load.
    pub cpu_seconds: f64,
    /// Current memory: the proportional set size.
    pub memory_bytes: u64,
    /// Bytes passed to a device for writing since the start of the load.
    pub disk_write_bytes: u64,
}

impl LoadRun {
    pub(super) fn new(round: u32, load: &str, server: &str) -> Self {
        Self {
            round,
            load: load.to_owned(),
            server: server.to_owned(),
            measures: Measures::new(),
            problem: None,
            series: Vec::new(),
        }
    }

    /// Adds measures of the lab, except those that the load itself has reported.
    pub(super) fn add_resources(&mut self, measures: &[(&str, f64)]) {
        for (name, value) in measures {
            self.measures.entry((*name).to_owned()).or_insert(*value);
        }
    }

    pub(super) fn is_valid_run_of(&self, (load, server): (&str, &str)) -> bool {
        self.problem.is_none() && self.load == load && self.server == server
    }

    /// Makes the run invalid if its measures violate a check.
    pub(super) fn check(&mut self, load: &LoadPlan, checks: &[Goal]) {
        for check in checks {
            if !check.is_about(load, &self.server) || self.problem.is_some() {
                continue;
            }
            let measure = &check.measure;
            self.problem = match measure.of(&self.measures) {
                None => Some(format!("{measure} was not measured")),
                Some(value) if check.at_most.is_some_and(|most| value > most) => {
                    let most = check.at_most.unwrap_or_default();
                    Some(format!("{measure} = {value}, which exceeds {most}"))
                }
                Some(value) if check.at_least.is_some_and(|least| value < least) => {
                    let least = check.at_least.unwrap_or_default();
                    Some(format!("{measure} = {value}, which is less than {least}"))
                }
                Some(_) => None,
            };
        }
    }
}

impl BenchmarkOutcome {
    pub(super) fn new(plan: &Benchmark, machine: Machine, folder: &Path) -> Self {
        let git =
            |arguments: &[&str]| output(Command::new("git").args(arguments).current_dir(folder));
        let mut commit = git(&["rev-parse", "HEAD"]);
        if commit.is_empty() {
            commit.push_str("unknown");
        } else if !git(&["status", "--porcelain"]).is_empty() {
            commit.push('+');
        }
        Self {
            title: plan.title.clone(),
            about: plan.about.clone(),
            date: output(Command::new("date").args(["--utc", "+%F"])),
            commit,
            unfinished: None,
            machine,
            versions: BTreeMap::new(),
            set: plan.set.clone(),
            notes: Vec::new(),
            verdicts: Vec::new(),
            runs: Vec::new(),
            show: plan.show.clone(),
        }
    }

    /// Returns true if the whole plan ran, all runs are valid and all goals are met.
    pub fn is_good(&self) -> bool {
        self.unfinished.is_none()
            && self.runs.iter().all(|run| run.problem.is_none())
            && self.verdicts.iter().all(Verdict::is_met)
    }

    /// Returns the summary as Markdown. `command` is the command that repeats the run.
    pub fn markdown(&self, command: &str) -> String {
        let mut text = format!("# {}\n\n", self.title);
        if let Some(about) = &self.about {
            _ = write!(text, "{about}\n\n");
        }
        let processor = self
            .machine
            .processor
            .as_deref()
            .unwrap_or("an unknown processor");
        let kernel = self.machine.kernel.as_deref().unwrap_or("unknown");
        _ = writeln!(
            text,
            "{}, `{command}` at commit {}. {} cores of {processor}, Linux {kernel}, load average {:.2} before the run.",
            self.date,
            self.commit,
            self.machine.cores,
            self.machine.load_before.unwrap_or_default(),
        );
        let mut facts: Vec<String> = Vec::new();
        facts.extend(
            self.versions
                .iter()
                .map(|(name, version)| format!("{name} {version}")),
        );
        facts.extend(
            self.set
                .iter()
                .filter(|(_, value)| !value.contains(' '))
                .map(|(name, value)| format!("{name} = {value}")),
        );
        if !facts.is_empty() {
            _ = writeln!(text, "{}.", facts.join(", "));
        }
        for note in self.notes.iter().chain(&self.unfinished) {
            _ = writeln!(text, "\n{note}.");
        }
        for measure in &self.show {
            self.add_table(&mut text, measure);
        }
        self.add_verdicts(&mut text);
        let problems = self.runs.iter().filter(|run| run.problem.is_some());
        for (n, run) in problems.enumerate() {
            if n == 0 {
                text.push_str("\n## Invalid runs\n\n");
            }
            let problem = run.problem.as_deref().unwrap_or_default();
            _ = writeln!(
                text,
                "- {}, {}, round {}: {problem}",
                run.load,
                run.server,
                run.round + 1
            );
        }
        text
    }

    /// Adds a table with a row for each load and a column for each server: the median, and the smallest and the largest
    /// value.
    fn add_table(&self, text: &mut String, measure: &Expression) {
        let mut servers: Vec<&str> = Vec::new();
        let mut loads: Vec<&str> = Vec::new();
        for run in &self.runs {
            if !servers.contains(&run.server.as_str()) {
                servers.push(&run.server);
            }
            if !loads.contains(&run.load.as_str()) {
                loads.push(&run.load);
            }
        }
        _ = writeln!(text, "\n| {measure} | {} |", servers.join(" | "));
        _ = writeln!(text, "|---|{}", "---|".repeat(servers.len()));
        for load in loads {
            let cells = servers.iter().map(|server| {
                let values = values(&self.runs, measure, (load, server));
                let shown = |value: f64| figure(value, measure.is_bytes());
                match (median(&values), &values[..]) {
                    (Some(median), [_, _, ..]) => {
                        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
                        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                        format!("{} ({} to {})", shown(median), shown(least), shown(most))
                    }
                    (Some(median), _) => shown(median),
                    (None, _) => "–".to_owned(),
                }
            });
            let cells: Vec<String> = cells.collect();
            _ = writeln!(text, "| {load} | {} |", cells.join(" | "));
        }
    }

    fn add_verdicts(&self, text: &mut String) {
        if self.verdicts.is_empty() {
            return;
        }
        text.push_str(
            "\n| goal | of | limit | median | rounds | verdict |\n|---|---|---|---|---|---|\n",
        );
        for verdict in &self.verdicts {
            let number =
                |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |n| figure(n, false));
            let limits = [("≥", verdict.at_least), ("≤", verdict.at_most)];
            let limits = limits
                .iter()
                .filter_map(|(sign, limit)| Some(format!("{sign} {}", (*limit)?)));
            let limits: Vec<String> = limits.collect();
            let is_limited = !limits.is_empty();
            let result = match (is_limited, verdict.is_met(), verdict.is_within_scatter()) {
                (_, false, _) if verdict.median.is_none() => "not measured",
                (false, ..) => "",
                (_, true, false) => "met",
                (_, true, true) => "met, within the scatter",
                (_, false, false) => "**missed**",
                (_, false, true) => "**missed**, within the scatter",
            };
            _ = writeln!(
                text,
                "| {} | {} | {} | {} ({} to {}) | {} | {result} |",
                verdict.goal,
                verdict.subject,
                limits.join(", "),
                number(verdict.median),
                number(verdict.least),
                number(verdict.most),
                verdict.rounds,
            );
        }
    }
}

/// Formats a value with at least three digits.
pub(super) fn figure(value: f64, is_bytes: bool) -> String {
    if is_bytes && value >= 1024.0 {
        // Three digits: a larger unit begins at 1024 of the smaller one.
        let (scale, unit) = match value {
            ..1_048_576.0 => (1024.0, "KiB"),
            ..1_073_741_824.0 => (1_048_576.0, "MiB"),
            _ => (1_073_741_824.0, "GiB"),
        };
        return format!("{:.1} {unit}", value / scale);
    }
    match value.abs() {
        1000.0.. => {
            let digits = format!("{:.0}", value.abs());
            let mut grouped = String::new();
            for (n, digit) in digits.chars().enumerate() {
                if n > 0 && (digits.len() - n).is_multiple_of(3) {
                    grouped.push(',');
                }
                grouped.push(digit);
            }
            let sign = if value < 0.0 { "-" } else { "" };
            format!("{sign}{grouped}")
        }
        size => {
            let decimals = match size {
                100.0.. => 0,
                10.0.. => 1,
                _ => 4,
            };
            let text = format!("{value:.decimals$}");
            match text.split_once('.') {
                Some(_) => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
                None => text,
            }
        }
    }
}

fn output(command: &mut Command) -> String {
    let output = command
        .output()
        .map(|output| output.stdout)
        .unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_or_more() {
        for (value, is_bytes, text) in [
            (1_234_567.4, false, "1,234,567"),
            (-1000.0, false, "-1,000"),
            (999.6, false, "1000"),
            (123.4, false, "123"),
            (12.34, false, "12.3"),
            (10.0, false, "10"),
            (100.0, false, "100"),
            (1.0, false, "1"),
            (0.98765, false, "0.9877"),
            (0.0, true, "0"),
            (1536.0, true, "1.5 KiB"),
            (1_610_612_736.0, true, "1.5 GiB"),
        ] {
            assert_eq!(figure(value, is_bytes), text);
        }
    }
}
