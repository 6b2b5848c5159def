//! Compares the hit ratios of cache policies with those of libCacheSim, the referee, and with upper bounds.
//!
//! A cell is a trace and a capacity. In each cell, `edgeward simulate` runs our policies and computes the bounds, and
//! libCacheSim runs its policies over the same file. Each run is a process with limits of CPU time and memory. Results
//! are kept in a file, so the next run continues an interrupted bench.

mod cells;
mod findings;
mod page;
mod policies;
mod results;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::bench_shared::facts;
use crate::options::Options;
use crate::referee::{PACKAGE, Referee, known_policies, shortened_command};
use crate::say;

use cells::Cell;
use findings::{CellResults, Verdict};
use policies::{OURS, Policy, REFEREE, Simulator};
use results::Runner;

pub(crate) const HELP: &str = "\
Compares hit ratios with libCacheSim and upper bounds.

usage: cargo xtask bench-ohr [options]

  --traces FOLDER  also run all *.tr.zst of this folder
  --few            six short traces, one size, ten policies: two minutes
  --only LIST      only these traces, by name
  --policies LIST  only these policies of both simulators
  --no-referee     only our policies
  --cached         only results of earlier runs; start no process
  --cpu SECONDS    limit of CPU time of each process [600]
  --jobs N         processes at the same time [2]
  --json           print one JSON document instead of the tables
  --edgeward NAME  a cargo profile or a path to the binary [release]
  --out FOLDER     for ohr.html, ohr.json and results.csv [bench/scratch/ohr]

Six traces are always generated. The traces and results are kept in
bench/scratch/ohr. The exit code is 1 if a goal of bench/README.md is missed.
";

pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<bool> {
    let bench = Bench::from_options(root, options)?;
    let runner = Runner::new(root, options, bench.edgeward.clone(), bench.referee())?;
    let outcomes = runner.outcomes(&bench.cells, &bench.policies)?;
    let table: Vec<CellResults> = bench
        .cells
        .iter()
        .zip(outcomes)
        .map(|(cell, outcomes)| CellResults::new(cell, &bench.policies, outcomes))
        .filter(|cell| !cell.results.is_empty())
        .collect();
    let verdicts = findings::verdicts(&table);
    let document = bench.document(&table, &verdicts);
    bench.write("ohr.json", &format!("{document:#}\n"))?;
    bench.write("ohr.html", &page::render(&table, &verdicts, &document))?;
    bench.write("results.csv", &findings::csv(&table))?;
    if options.is_set("--json") {
        say(format!("{document:#}\n"));
    } else {
        say(findings::text(&table));
        for verdict in &verdicts {
            say(format!("{verdict}\n"));
        }
        say(format!("\nresults in {}\n", bench.out.display()));
    }
    Ok(verdicts.iter().all(Verdict::is_not_missed))
}

struct Bench {
    root: PathBuf,
    edgeward: PathBuf,
    out: PathBuf,
    cells: Vec<Cell>,
    policies: Vec<Policy>,
    /// True if a policy of the referee is selected.
    referee: bool,
}

impl Bench {
    fn from_options(root: &Path, options: &Options) -> anyhow::Result<Self> {
        let edgeward = options.edgeward(root, "release")?;
        let few = options.is_set("--few");
        let folder = options.folder("--out", root, "bench/scratch/ohr")?;
        let only = match options.value("--only") {
            None => Vec::new(),
            Some(_) => options.list("--only", "")?,
        };
        let traces = options.value("--traces").map(Path::new);
        if traces.is_none() && !few {
            say("no folder of traces is given (TRACES=…): only generated traces run\n");
        }
        let scratch = root.join("bench/scratch/ohr/traces");
        let cells = cells::cells(&edgeward, traces, few, &only, &scratch)?;
        let names: Vec<&str> = OURS.iter().map(|policy| policy.name).collect();
        let known = known_policies(&edgeward, &scratch, &names)?;
        let chosen: Vec<String> = match options.value("--policies") {
            None => Vec::new(),
            Some(_) => options.list("--policies", "")?,
        };
        let wanted = |policy: &Policy| {
            let ours = policy.simulator == Simulator::Edgeward;
            let is_chosen = chosen.is_empty() || chosen.iter().any(|name| name == policy.name);
            (!ours || policy.is_bound() || known.contains(&policy.name))
                && (ours || !options.is_set("--no-referee"))
                && (!few || policy.few)
                && is_chosen
        };
        let policies: Vec<Policy> = OURS.into_iter().chain(REFEREE).filter(wanted).collect();
        let referee = policies.iter().any(|p| p.simulator == Simulator::Referee);
        Ok(Self {
            root: root.to_path_buf(),
            out: folder,
            edgeward,
            cells,
            policies,
            referee,
        })
    }

    /// Returns the referee, or `None` if none of its policies is selected or it cannot be installed.
    fn referee(&self) -> Option<Referee> {
        self.referee.then(|| Referee::install(&self.root)).flatten()
    }

    fn document(&self, table: &[CellResults], verdicts: &[Verdict]) -> Value {
        let mut document = facts::common(&self.root, &self.edgeward);
        document["command"] = json!(shortened_command());
        document["referee"] = json!(PACKAGE);
        document["cells"] = table.iter().map(CellResults::json).collect();
        document["goals"] = verdicts.iter().map(Verdict::json).collect();
        document
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.out.join(name);
        fs::write(&path, text).with_context(|| path.display().to_string())
    }
}
