//! Builds the tables of the summary: medians, ratios to the best nginx setting, goals.

use std::fmt::Write as _;

use super::plan::{Subject, Workload};

/// One run of one server.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) workload: Workload,
    pub(crate) subject: Subject,
    /// Requests per CPU-second of the server.
    pub(crate) per_cpu_second: f64,
    /// The 99th percentile of latency in microseconds. Not a number if the load generator reports no latency.
    pub(crate) p99_us: f64,
    /// The reason why the run is invalid; `None` for a valid run.
    pub(crate) invalid_reason: Option<String>,
}

/// A cell of the tables: the medians of the valid runs of one server and workload.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cell {
    per_cpu_second: f64,
    p99_us: f64,
    /// Half the difference between the largest and the smallest rate, as a share of the median.
    spread: f64,
    /// The number of valid runs.
    runs: usize,
}

/// Returns the tables as Markdown.
pub(crate) fn markdown(runs: &[Run], workloads: &[Workload], subjects: &[Subject]) -> String {
    let mut out = String::new();
    table(
        &mut out,
        "Thousand requests per CPU-second (median ± half the range)",
        workloads,
        subjects,
        |s, w| {
            let cell = cell(runs, s, w)?;
            let thousands = cell.per_cpu_second / 1000.0;
            Some(format!(
                "{thousands:.*} ± {:.0} %",
                if thousands < 10.0 { 2 } else { 1 },
                cell.spread * 100.0
            ))
        },
    );
    table(
        &mut out,
        "p99 latency in milliseconds (median), closed loop",
        workloads,
        subjects,
        |s, w| {
            let p99_us = cell(runs, s, w)?.p99_us;
            (!p99_us.is_nan()).then(|| format!("{:.2}", p99_us / 1000.0))
        },
    );
    goals(&mut out, runs, workloads);
    let invalid_runs: Vec<_> = runs
        .iter()
        .filter(|run| run.invalid_reason.is_some())
        .collect();
    if !invalid_runs.is_empty() {
        _ = writeln!(out, "### Invalid runs\n");
        for run in invalid_runs {
            let why = run.invalid_reason.as_deref().unwrap_or_default();
            _ = writeln!(out, "- {}, {}: {why}", run.subject, run.workload);
        }
        out.push('\n');
    }
    out
}

fn table(
    out: &mut String,
    title: &str,
    workloads: &[Workload],
    subjects: &[Subject],
    text: impl Fn(Subject, Workload) -> Option<String>,
) {
    _ = writeln!(out, "### {title}\n");
    let names: Vec<_> = workloads.iter().map(ToString::to_string).collect();
    _ = writeln!(out, "| | {} |", names.join(" | "));
    _ = writeln!(out, "|---|{}", "---|".repeat(names.len()));
    for &subject in subjects {
        let cells = workloads
            .iter()
            .map(|&w| text(subject, w).unwrap_or_else(|| "–".to_owned()));
        _ = writeln!(
            out,
            "| {subject} | {} |",
            cells.collect::<Vec<_>>().join(" | ")
        );
    }
    out.push('\n');
}

/// Appends the goals of edgeward with the policy LRU and the measured ratios, if there is a server to compare with.
/// `CPU` in a row stands for the requests per CPU-second.
fn goals(out: &mut String, runs: &[Run], workloads: &[Workload]) {
    let mut rows = String::new();
    for &workload in workloads {
        let Some(ours) = cell(runs, Subject::LRU, workload) else {
            continue;
        };
        if let Some((best, nginx)) = best_nginx(runs, workload) {
            let ratio = ours.per_cpu_second / nginx.per_cpu_second;
            row(
                &mut rows,
                workload,
                &format!("CPU, divided by {best}"),
                ratio,
                workload.goal_against_nginx(),
            );
            // nginx's latency is divided by ours, so that more is better in every row.
            let faster = nginx.p99_us / ours.p99_us;
            if !faster.is_nan() {
                row(
                    &mut rows,
                    workload,
                    &format!("p99, {best} divided by edgeward"),
                    faster,
                    1.0,
                );
            }
        }
        if let Some(varnish) = cell(runs, Subject::Varnish, workload) {
            let ratio = ours.per_cpu_second / varnish.per_cpu_second;
            match workload.goal_against_varnish() {
                Some(goal) => row(&mut rows, workload, "CPU, divided by varnish", ratio, goal),
                None => {
                    _ = writeln!(
                        rows,
                        "| {workload} | CPU, divided by varnish | {ratio:.2} | – | |"
                    );
                }
            }
        }
        if let Some(adaptsize) = cell(runs, Subject::ADAPTSIZE, workload) {
            let ratio = adaptsize.per_cpu_second / ours.per_cpu_second;
            row(
                &mut rows,
                workload,
                "CPU, adaptsize divided by lru",
                ratio,
                // AdaptSize may cost 3 % of the requests per CPU-second.
                0.97,
            );
        }
        if let Some(sites) = cell(runs, Subject::EdgewardSites, workload) {
            let ratio = sites.per_cpu_second / ours.per_cpu_second;
            // So may ten sites of ten rules each.
            let compared = "CPU, with sites divided by without";
            row(&mut rows, workload, compared, ratio, 0.97);
        }
        if let Some(observed) = cell(runs, Subject::EdgewardObserved, workload) {
            let ratio = observed.per_cpu_second / ours.per_cpu_second;
            let compared = "CPU, observed divided by unobserved";
            row(&mut rows, workload, compared, ratio, 0.95);
        }
    }
    if !rows.is_empty() {
        _ = writeln!(out, "### Ratios and goals (more is better)\n");
        _ = writeln!(
            out,
            "| | compared | ratio | goal | reached |\n|---|---|---|---|---|\n{rows}"
        );
    }
}

fn row(rows: &mut String, workload: Workload, compared: &str, ratio: f64, goal: f64) {
    let reached = if ratio >= goal { "yes" } else { "**no**" };
    _ = writeln!(
        rows,
        "| {workload} | {compared} | {ratio:.2} | {goal:.2} | {reached} |"
    );
}

/// Returns the nginx setting that needs the least CPU time for this workload.
fn best_nginx(runs: &[Run], workload: Workload) -> Option<(Subject, Cell)> {
    let mut best: Option<(Subject, Cell)> = None;
    for run in runs
        .iter()
        .filter(|run| matches!(run.subject, Subject::Nginx { .. }))
    {
        if let Some(cell) = cell(runs, run.subject, workload)
            && best.is_none_or(|(_, other)| cell.per_cpu_second > other.per_cpu_second)
        {
            best = Some((run.subject, cell));
        }
    }
    best
}

/// Returns the medians of the valid runs, or `None` if no run is valid.
fn cell(runs: &[Run], subject: Subject, workload: Workload) -> Option<Cell> {
    let counted: Vec<_> = runs
        .iter()
        .filter(|run| run.subject == subject && run.workload == workload)
        .filter(|run| run.invalid_reason.is_none())
        .collect();
    let rates: Vec<_> = counted.iter().map(|run| run.per_cpu_second).collect();
    let per_cpu_second = median(&rates)?;
    let (least, most) = rates.iter().fold((f64::MAX, f64::MIN), |(low, high), &x| {
        (low.min(x), high.max(x))
    });
    Some(Cell {
        per_cpu_second,
        p99_us: median(&counted.iter().map(|run| run.p99_us).collect::<Vec<_>>())?,
        spread: (most - least) / 2.0 / per_cpu_second,
        runs: counted.len(),
    })
}

/// Returns the median, or `None` for an empty list. For an even number of values it is the mean of the middle two.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Kind, Transport};
    use super::*;

    const WORKLOAD: Workload = Workload {
        kind: Kind::Hit,
        size: 1024,
        transport: Transport::Http,
    };
    const FAST: Subject = Subject::Nginx {
        sendfile: false,
        tcp_nopush: false,
    };
    const SLOW: Subject = Subject::Nginx {
        sendfile: true,
        tcp_nopush: true,
    };

    fn run(subject: Subject, per_cpu_second: f64) -> Run {
        Run {
            workload: WORKLOAD,
            subject,
            per_cpu_second,
            p99_us: 500.0,
            invalid_reason: None,
        }
    }

    #[test]
    fn the_median_ignores_an_outlier_and_an_invalid_run() {
        let mut runs = vec![
            run(FAST, 1.0),
            run(FAST, 3.0),
            run(FAST, 1000.0),
            run(FAST, 9.0),
        ];
        runs[3].invalid_reason = Some("errors".to_owned());
        let cell = cell(&runs, FAST, WORKLOAD).expect("three runs are valid");
        assert_eq!((cell.per_cpu_second, cell.runs), (3.0, 3));
    }

    #[test]
    fn ratios_compare_with_the_best_nginx_setting() {
        let runs = [run(Subject::LRU, 150.0), run(SLOW, 50.0), run(FAST, 100.0)];
        let text = markdown(&runs, &[WORKLOAD], &[Subject::LRU, SLOW, FAST]);
        let goal =
            "| hit 1 KiB | CPU, divided by nginx sendfile off tcp_nopush off | 1.50 | 1.50 | yes |";
        assert!(text.contains(goal), "{text}");
    }

    #[test]
    fn a_missed_goal_is_printed_in_bold() {
        let runs = [
            run(Subject::LRU, 149.0),
            run(FAST, 100.0),
            run(Subject::ADAPTSIZE, 140.0),
            run(Subject::EdgewardSites, 146.0),
        ];
        let text = markdown(&runs, &[WORKLOAD], &[Subject::LRU]);
        assert!(
            text.contains("with sites divided by without | 0.98 | 0.97 | yes |"),
            "{text}"
        );
        assert!(text.contains("| 1.49 | 1.50 | **no** |"), "{text}");
        assert!(
            text.contains("adaptsize divided by lru | 0.94 | 0.97 | **no** |"),
            "{text}"
        );
    }

    #[test]
    fn the_median_of_an_even_number_of_values_is_the_mean_of_the_middle_two() {
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }
}
