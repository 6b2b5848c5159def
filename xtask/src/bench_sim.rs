//! Compares the speed and the memory of the simulator with libCacheSim.
//!
//! The speed is requests per CPU-second of the whole process, including reading the trace. Both programs read the same
//! oracleGeneral file. A pair of runs has one run of each program; the order alternates from pair to pair. Results are
//! medians over the pairs, because other work on the machine disturbs some runs. libCacheSim, the referee, runs in
//! Python: the CPU time and the memory of a process that only loads the library are subtracted from its figures.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::bench_disk::goal::{Bound, Goal};
use crate::bench_shared::facts;
use crate::bench_shared::median;
use crate::options::Options;
use crate::oracle_trace::OracleTrace;
use crate::referee::{
    Limits, Measured, PACKAGE, Referee, known_policies, measure, shortened_command,
};
use crate::say;

pub(crate) const HELP: &str = "\
Compares speed and memory of the simulator and libCacheSim.

usage: cargo xtask bench-sim [TRACE] [options]

  TRACE            a trace of any format [generated: web, 6 million requests]
  --policies LIST  [lru,sieve,s3-fifo,slru,gdsf,density]
  --capacity SIZE  capacity of the cache [1 % of the trace's footprint]
  --runs N         pairs of runs of each policy [5]
  --no-grid        skip the run of twelve policies with three sizes
  --edgeward NAME  a cargo profile or a path to the binary [release]
  --out FOLDER     for sim.jsonl and machine.json [bench/scratch/sim]

The goals are those of bench/README.md. The exit code is 1 if one is missed.
";

/// Our policy, libCacheSim's counterpart, and the required ratio of our requests per CPU-second to its requests.
const PAIRS: [(&str, &str, f64); 6] = [
    ("lru", "LRU", 2.0),
    ("sieve", "Sieve", 2.0),
    ("s3-fifo", "S3FIFO", 2.0),
    ("slru", "SLRU", 2.0),
    ("gdsf", "GDSF", 5.0),
    ("density", "GDSF", 5.0),
];

/// The maximum ratio of our peak memory to that of libCacheSim.
const MEMORY_SHARE_MAX: f64 = 0.5;

/// The candidates for the grid, in order of preference. The grid has the first twelve that the binary knows.
const GRID_POLICIES: [&str; 18] = [
    "lru",
    "fifo",
    "slru",
    "sieve",
    "s3-fifo",
    "gdsf",
    "density",
    "2q",
    "arc",
    "gdsf-ghosts",
    "lhd",
    "lfu-da",
    "camp",
    "hyperbolic",
    "gdsf-plain",
    "gds",
    "size",
    "adaptsize",
];
const GRID_SIZES: &str = "0.1%,1%,10%";
const GRID_SECONDS_MAX: f64 = 60.0;

pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<bool> {
    let bench = Bench::from_options(root, options)?;
    let mut goals = bench.compare(options)?;
    if !options.is_set("--no-grid") {
        goals.extend(bench.grid()?);
    }
    say("\n");
    for goal in &goals {
        say(format!("{goal}\n"));
    }
    bench.write_machine(&goals)?;
    Ok(goals.iter().all(Goal::is_met))
}

struct Bench {
    root: PathBuf,
    trace: OracleTrace,
    capacity_bytes: u64,
    runs: usize,
    edgeward: PathBuf,
    out: PathBuf,
}

impl Bench {
    fn from_options(root: &Path, options: &Options) -> anyhow::Result<Self> {
        let edgeward = options.edgeward(root, "release")?;
        let folder = root.join("bench/scratch/sim");
        let trace = match options.positional().first() {
            Some(path) => OracleTrace::convert(&edgeward, Path::new(path), &folder)?,
            None => {
                let arguments = "--preset web --requests 6000000 --seed 1";
                OracleTrace::generate(&edgeward, "web-6m", arguments, &folder)?
            }
        };
        let bench = Self {
            capacity_bytes: options.size("--capacity", trace.footprint_bytes / 100)?,
            runs: options.count("--runs", 5)?,
            out: options.folder("--out", root, "bench/scratch/sim")?,
            root: root.to_path_buf(),
            trace,
            edgeward,
        };
        say(format!(
            "{}: {} requests, {} objects; cache of {} bytes\n",
            bench.trace.name, bench.trace.requests, bench.trace.objects, bench.capacity_bytes
        ));
        Ok(bench)
    }

    /// Measures each policy and its counterpart, and returns the goals.
    fn compare(&self, options: &Options) -> anyhow::Result<Vec<Goal>> {
        let asked = options.list("--policies", "lru,sieve,s3-fifo,slru,gdsf,density")?;
        let names: Vec<&str> = asked.iter().map(String::as_str).collect();
        let known = known_policies(&self.edgeward, &self.out, &names)?;
        for name in names.iter().filter(|name| !known.contains(name)) {
            say(format!(
                "the binary does not know the policy {name}: skipped\n"
            ));
        }
        let Some(referee) = Referee::install(&self.root) else {
            return Ok(Vec::new());
        };
        let mut imports = Vec::new();
        for _ in 0..self.runs {
            imports.push(self.measure(&referee.import())?);
        }
        let import_cpu = figure(&imports, |m| m.cpu_seconds);
        let import_rss = figure(&imports, |m| m.rss_bytes);
        say(format!(
            "Python with the library alone: {import_cpu:.3} CPU s, {:.0} MB; subtracted below\n\n",
            import_rss / 1e6
        ));
        say(format!(
            "{:<10}{:>12}{:>10}{:>8}{:>10}  {:<8}{:>12}{:>10}{:>8}{:>10}{:>8}\n",
            "policy",
            "M req/CPU s",
            "CPU s",
            "MB",
            "hits",
            "referee",
            "M req/CPU s",
            "CPU s",
            "MB",
            "hits",
            "ratio"
        ));
        let mut goals = Vec::new();
        let mut lines = String::new();
        for (policy, peer, ratio_min) in PAIRS {
            if !known.contains(&policy) {
                continue;
            }
            let (ours, theirs) = self.pairs(policy, &referee, peer)?;
            let ratios: Vec<f64> = ours
                .iter()
                .zip(&theirs)
                .map(|(ours, theirs)| (theirs.cpu_seconds - import_cpu) / ours.cpu_seconds)
                .collect();
            let ratio = median(&ratios).unwrap_or(f64::NAN);
            let memory =
                figure(&ours, |m| m.rss_bytes) / (figure(&theirs, |m| m.rss_bytes) - import_rss);
            let side = |runs: &[Measured], cpu: f64, rss: f64, hits: &Value| {
                let cpu = figure(runs, |m| m.cpu_seconds) - cpu;
                format!(
                    "{:>12.2}{cpu:>10.3}{:>8.0}{:>10.4}",
                    self.trace.requests as f64 / cpu / 1e6,
                    (figure(runs, |m| m.rss_bytes) - rss) / 1e6,
                    hits.as_f64().unwrap_or(f64::NAN),
                )
            };
            let our_hits = &ours[0].json["runs"][0]["object_hit_ratio"];
            let their_hits = &theirs[0].json["object_hit_ratio"];
            say(format!(
                "{policy:<10}{}  {peer:<8}{}{ratio:>8.2}\n",
                side(&ours, 0.0, 0.0, our_hits),
                side(&theirs, import_cpu, import_rss, their_hits),
            ));
            goals.push(Goal {
                what: format!("{policy}: requests per CPU-second, to those of {peer}"),
                measured: ratio,
                bound: Bound::AtLeast(ratio_min),
                unit: "x",
            });
            goals.push(Goal {
                what: format!("{policy}: peak memory, to that of {peer}"),
                measured: memory,
                bound: Bound::AtMost(MEMORY_SHARE_MAX),
                unit: "x",
            });
            for (n, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
                let line = json!({
                    "policy": policy,
                    "referee_policy": peer,
                    "pair": n,
                    "capacity_bytes": self.capacity_bytes,
                    "edgeward": resources(ours),
                    "referee": resources(theirs),
                    "import": { "cpu_seconds": import_cpu, "rss_bytes": import_rss },
                });
                lines += &format!("{line}\n");
            }
        }
        fs::write(self.out.join("sim.jsonl"), lines)?;
        Ok(goals)
    }

    /// Runs a policy and its counterpart alternately. Returns the measured runs of each.
    fn pairs(
        &self,
        policy: &str,
        referee: &Referee,
        peer: &str,
    ) -> anyhow::Result<(Vec<Measured>, Vec<Measured>)> {
        let simulate = self.simulate(policy, &self.capacity_bytes.to_string());
        let other = referee.command(peer, self.capacity_bytes, &self.trace.path);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for n in 0..self.runs {
            if n % 2 == 0 {
                ours.push(self.measure(&simulate)?);
                theirs.push(self.measure(&other)?);
            } else {
                theirs.push(self.measure(&other)?);
                ours.push(self.measure(&simulate)?);
            }
        }
        Ok((ours, theirs))
    }

    /// Runs twelve policies with three sizes in one command. Returns `None` if the binary knows fewer than twelve.
    fn grid(&self) -> anyhow::Result<Option<Goal>> {
        let mut policies = known_policies(&self.edgeward, &self.out, &GRID_POLICIES)?;
        policies.truncate(12);
        let measured = self.measure(&self.simulate(&policies.join(","), GRID_SIZES))?;
        let line = json!({
            "policies": policies,
            "sizes": GRID_SIZES,
            "threads": std::thread::available_parallelism().map_or(0, usize::from),
            "load_average": facts::load_average(),
            "edgeward": resources(&measured),
        });
        say(format!(
            "\n{} policies, sizes {GRID_SIZES}: {:.1} s, {:.1} CPU s, {:.0} MB\n  {}\n",
            policies.len(),
            measured.wall_seconds,
            measured.cpu_seconds,
            measured.rss_bytes / 1e6,
            policies.join(",")
        ));
        let path = self.out.join("sim.jsonl");
        let mut text = fs::read_to_string(&path).unwrap_or_default();
        text += &format!("{line}\n");
        fs::write(&path, text).with_context(|| path.display().to_string())?;
        Ok((policies.len() == 12).then(|| Goal {
            what: "12 policies, 3 sizes, one command".to_owned(),
            measured: measured.wall_seconds,
            bound: Bound::AtMost(GRID_SECONDS_MAX),
            unit: "s",
        }))
    }

    /// Returns the command that simulates these policies at these capacities.
    fn simulate(&self, policies: &str, capacities: &str) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![self.edgeward.clone().into()];
        words.extend(
            [
                "simulate",
                "--quiet",
                "--no-series",
                "--json",
                "--policy",
                policies,
                "--capacity",
                capacities,
            ]
            .map(OsString::from),
        );
        words.push(self.trace.path.clone().into());
        words
    }

    fn measure(&self, words: &[OsString]) -> anyhow::Result<Measured> {
        let measured = measure(&self.root, words, Limits::default())?;
        ensure!(!measured.timed_out, "{words:?} took too long");
        ensure!(measured.success, "{words:?} failed");
        Ok(measured)
    }

    fn write_machine(&self, goals: &[Goal]) -> anyhow::Result<()> {
        let mut machine = facts::common(&self.root, &self.edgeward);
        machine["command"] = json!(shortened_command());
        machine["referee"] = json!(PACKAGE);
        machine["trace"] = json!(self.trace.name);
        machine["requests"] = json!(self.trace.requests);
        machine["capacity_bytes"] = json!(self.capacity_bytes);
        machine["goals"] = json!(goals.iter().map(Goal::json).collect::<Vec<_>>());
        let path = self.out.join("machine.json");
        fs::write(&path, format!("{machine:#}\n")).with_context(|| path.display().to_string())
    }
}

/// Returns the median of a figure over the runs.
fn figure(runs: &[Measured], figure: fn(&Measured) -> f64) -> f64 {
    let values: Vec<f64> = runs.iter().map(figure).collect();
    median(&values).unwrap_or(f64::NAN)
}

fn resources(measured: &Measured) -> Value {
    json!({
        "wall_seconds": measured.wall_seconds,
        "cpu_seconds": measured.cpu_seconds,
        "rss_bytes": measured.rss_bytes,
    })
}
