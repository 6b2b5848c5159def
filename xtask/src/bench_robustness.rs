//! Hit ratios of policies after changes of the traffic mix, relative to SIZE-OPT, as in section 6.3 of the AdaptSize
//! paper.
//!
//! The example `robustness` of the crate `sim` generates the traffic and runs the policies; its documentation
//! describes both kinds of changes. This command computes percentiles, checks the goals and renders the page.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use edgeward_report::{Axis, Boxes, Column, Page, Table, Unit};
use serde_json::{Value, json};

use crate::bench_disk::goal::{Bound, Goal};
use crate::options::{Options, target};
use crate::say;
use crate::statistics::percentile;

pub(crate) const HELP: &str = "\
Compares policies with SIZE-OPT while the traffic changes.

usage: cargo xtask bench-robustness [options]

  --randomised N   experiments in which random objects become popular [50]
  --adversarial N  phases of the trace that alternates between small, medium
                   and large objects [25]
  --seed N         seed of the trace; experiment N has this seed + N [1]
  --program FILE   the built example [target/release/examples/robustness]
  --json           print one JSON document instead of tables
  --out FOLDER     for results.csv, summary.json and page.html
                   [bench/scratch/robustness]

The goals are those of bench/README.md. The exit code is 1 if one is missed.
";

/// The policies of the table, in this order. All are compared with [`REFERENCE`].
const POLICIES: [&str; 5] = ["lru", "adaptsize", "adaptsize-horizon", "gdsf", "density"];

/// The first part of the reference's name. The number of future requests that the reference knows follows it.
const REFERENCE: &str = "size-opt";

/// The kinds of changes of the traffic mix.
const KINDS: [&str; 2] = ["randomised", "adversarial"];

/// The share of SIZE-OPT's hits that `density` must reach at the 5th percentile.
const SHARE_MIN: f64 = 0.95;

/// The maximum by which the object hit ratio of `adaptsize-horizon` may be below that of LRU.
const LOSS_MAX: f64 = 0.01;

pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<bool> {
    let numbers = [
        options.number("--randomised", 50_u64)?,
        options.number("--adversarial", 25)?,
        options.number("--seed", 1)?,
    ];
    let program = options.path("--program", &target(root), "release/examples/robustness");
    let out = options.folder("--out", root, "bench/scratch/robustness")?;
    let output = Command::new(&program)
        .args(numbers.map(|number| number.to_string()))
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("{} cannot be started", program.display()))?;
    ensure!(output.status.success(), "{} failed", program.display());
    let mut lines: Vec<&str> = std::str::from_utf8(&output.stdout)?.lines().collect();
    lines.sort_unstable();
    let csv = format!(
        "kind,number,seed,policy,requests,hits\n{}\n",
        lines.join("\n")
    );
    fs::write(out.join("results.csv"), csv)?;

    let rows: Vec<Row<'_>> = lines
        .iter()
        .copied()
        .map(Row::parse)
        .collect::<Result<_, _>>()?;
    let results: Vec<Distribution> = KINDS
        .iter()
        .flat_map(|kind| POLICIES.map(|policy| Distribution::new(&rows, kind, policy)))
        .filter(|result| !result.shares.is_empty())
        .collect();
    let goals: Vec<Goal> = results.iter().filter_map(Distribution::goal).collect();
    let summary = json!({
        "randomised": numbers[0],
        "adversarial": numbers[1],
        "seed": numbers[2],
        "results": results.iter().map(Distribution::json).collect::<Vec<_>>(),
        "goals": goals.iter().map(Goal::json).collect::<Vec<_>>(),
    });
    fs::write(out.join("summary.json"), format!("{summary:#}\n"))?;
    fs::write(
        out.join("page.html"),
        page(&results, &goals, numbers).render(),
    )?;
    if options.is_set("--json") {
        say(format!("{summary:#}\n"));
    } else {
        say(format!("seed {}\n", numbers[2]));
        KINDS.iter().for_each(|kind| say(table(&results, kind)));
        goals.iter().for_each(|goal| say(format!("{goal}\n")));
        say(format!("page: {}\n", out.join("page.html").display()));
    }
    Ok(goals.iter().all(Goal::is_met))
}

/// A line of the program's output.
struct Row<'a> {
    kind: &'a str,
    /// The number of the experiment or phase, from 0.
    number: u64,
    seed: u64,
    policy: &'a str,
    requests: u64,
    hits: u64,
}

impl<'a> Row<'a> {
    fn parse(line: &'a str) -> anyhow::Result<Self> {
        let fields: Vec<&str> = line.split(',').collect();
        let [kind, number, seed, policy, requests, hits] = fields[..] else {
            anyhow::bail!("not a result: {line}");
        };
        Ok(Self {
            kind,
            number: number.parse()?,
            seed: seed.parse()?,
            policy,
            requests: requests.parse()?,
            hits: hits.parse()?,
        })
    }

    fn hit_ratio(&self) -> f64 {
        self.hits as f64 / self.requests as f64
    }
}

/// The results of one policy in all experiments of a kind.
struct Distribution {
    kind: &'static str,
    policy: &'static str,
    /// The hits as a share of SIZE-OPT's hits.
    shares: Vec<f64>,
    /// The object hit ratio minus that of LRU.
    gains: Vec<f64>,
    /// The number and the seed of the experiment with the smallest share.
    worst: (u64, u64),
}

impl Distribution {
    fn new(rows: &[Row<'_>], kind: &'static str, policy: &'static str) -> Self {
        let of = |matches: &dyn Fn(&str) -> bool| -> Vec<&Row<'_>> {
            let mut found: Vec<_> = rows
                .iter()
                .filter(|row| row.kind == kind && matches(row.policy))
                .collect();
            found.sort_by_key(|row| row.number);
            found
        };
        let own = of(&|name| name == policy);
        let share =
            |(own, reference): (&&Row<'_>, &Row<'_>)| own.hits as f64 / reference.hits as f64;
        let reference = of(&|name| name.starts_with(REFERENCE));
        let shares: Vec<f64> = own.iter().zip(reference).map(share).collect();
        let gain = |(own, lru): (&&Row<'_>, &Row<'_>)| own.hit_ratio() - lru.hit_ratio();
        let worst = own.iter().zip(&shares).min_by(|a, b| a.1.total_cmp(b.1));
        Self {
            kind,
            policy,
            gains: own
                .iter()
                .zip(of(&|name| name == "lru"))
                .map(gain)
                .collect(),
            worst: worst.map_or((0, 0), |(row, _)| (row.number, row.seed)),
            shares,
        }
    }

    fn percentile(&self, percent: f64) -> f64 {
        percentile(&self.shares, percent)
    }

    /// Returns the smallest of the `gains`. It is negative if the policy is worse than LRU in an experiment.
    fn gain_min(&self) -> f64 {
        percentile(&self.gains, 0.0)
    }

    fn goal(&self) -> Option<Goal> {
        let (what, measured, min, unit) = match self.policy {
            "density" => (
                "density, hits relative to SIZE-OPT, 5th percentile",
                self.percentile(5.0),
                SHARE_MIN,
                "%",
            ),
            "adaptsize-horizon" => (
                "adaptsize-horizon, minimum above LRU",
                self.gain_min(),
                -LOSS_MAX,
                "points",
            ),
            _ => return None,
        };
        Some(Goal {
            what: format!("{}: {what}", self.kind),
            measured: 100.0 * measured,
            bound: Bound::AtLeast(100.0 * min),
            unit,
        })
    }

    fn json(&self) -> Value {
        json!({
            "kind": self.kind,
            "policy": self.policy,
            "experiments": self.shares.len(),
            "share_min": self.percentile(0.0),
            "share_p5": self.percentile(5.0),
            "share_p25": self.percentile(25.0),
            "share_p50": self.percentile(50.0),
            "share_p75": self.percentile(75.0),
            "share_p95": self.percentile(95.0),
            "gain_over_lru_min": self.gain_min(),
            "worst_number": self.worst.0,
            "worst_seed": self.worst.1,
        })
    }
}

fn table(results: &[Distribution], kind: &str) -> String {
    let mut text = format!(
        "\n{kind}: hits as a share of SIZE-OPT's\n{:<18}{:>7}{:>7}{:>7}{:>7}{:>7}{:>9}{:>7}\n",
        "policy", "min", "5 %", "25 %", "50 %", "75 %", "worst", "- LRU"
    );
    for result in results.iter().filter(|result| result.kind == kind) {
        text += &format!("{:<18}", result.policy);
        for percent in [0.0, 5.0, 25.0, 50.0, 75.0] {
            text += &format!("{:>7.3}", result.percentile(percent));
        }
        text += &format!(
            "{:>9}{:>7.3}\n",
            format!("#{}", result.worst.0),
            result.gain_min()
        );
    }
    text
}

fn page(results: &[Distribution], goals: &[Goal], numbers: [u64; 3]) -> Page {
    let mut page = Page::new("Hit ratios after changes of the traffic mix");
    for goal in goals {
        page.finding(format!(
            "{}: {} (goal {})",
            goal.what,
            goal.measured_text(),
            goal.bound_text()
        ));
    }
    for kind in KINDS {
        let mut boxes = Boxes::new(
            format!("{kind} changes"),
            Axis::new("hits, as a share of SIZE-OPT's", Unit::Share).tight(),
        )
        .note("Box: 25th to 75th percentile and median. Line: 5th to 95th percentile.");
        let mut table = Table::new(
            std::iter::once(Column::words("policy"))
                .chain(["minimum", "5 %", "25 %", "50 %", "75 %", "95 %"].map(Column::figures)),
        );
        for result in results.iter().filter(|result| result.kind == kind) {
            let percentiles = [5.0, 25.0, 50.0, 75.0, 95.0].map(|p| result.percentile(p));
            boxes.add(result.policy, percentiles);
            let cells = std::iter::once(result.percentile(0.0)).chain(percentiles);
            let cells = cells.map(|share| format!("{share:.3}"));
            table.row(std::iter::once(result.policy.to_owned()).chain(cells));
        }
        page.boxes(boxes);
        page.table(table);
    }
    page.fact("randomised experiments", numbers[0].to_string());
    page.fact("adversarial phases", numbers[1].to_string());
    page.fact("seed", numbers[2].to_string());
    page
}
