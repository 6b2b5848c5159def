//! Measures what the link saves, compared with other tools: `make bench-link`.
//!
//! Sizes: successive sets of real packages pass through the link's own encoders and through zstd, borg, restic,
//! casync and rsync. An example of `chunk-store` runs both endpoints of the link with their stores and
//! compressors, without sockets. Each tool stores or sends set after set, so the bytes for the second set are
//! those of an update.
//!
//! Speed and latency: an example of `link` runs both endpoints on loopback.

mod corpus;
mod peers;
mod sizes;
mod speed;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::options::{self, Options};

use corpus::Corpus;

pub(crate) const HELP: &str = "\
Compares the link with zstd, borg, restic, casync and rsync.

usage: cargo xtask bench-link [options]

  --averages LIST  average sizes of chunks, in bytes [8192,65536]
  --few            only the two smaller packages
  --synthetic      a corpus that is generated from a seed, without a network
  --no-peers       only the link, without the other tools
  --fetch          only fetch the packages, for `make demo-link`
  --no-sizes       only speed and latency
  --rounds N       rounds for each row of speed: one pass over the link and
                   one through a relay; 0 skips speed [5]
  --corpus FOLDER  packages; missing ones are fetched
                   [bench/scratch/link/corpus]
  --savings PATH   the example link_savings of chunk-store
                   [target/release/examples/link_savings]
  --speed PATH     the example bench_link_speed of link
                   [target/release/examples/bench_link_speed]
  --out FOLDER     for sizes.jsonl and speed.jsonl [bench/scratch/link]
";

/// Returns true if all goals for sizes and speed are met.
pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<bool> {
    let plan = Plan::from_options(root, options)?;
    if plan.fetch {
        return Corpus::ensure(&plan.corpus, plan.few, plan.synthetic).map(|_| true);
    }
    fs::create_dir_all(&plan.out).with_context(|| format!("{}", plan.out.display()))?;
    let corpus = Corpus::ensure(&plan.corpus, plan.few, plan.synthetic)?;
    let sizes_met = !plan.sizes || sizes::run(root, &plan, &corpus)?;
    let speed_met = plan.rounds == 0 || speed::run(root, &plan, &corpus)?;
    Ok(sizes_met && speed_met)
}

struct Plan {
    averages: Vec<u32>,
    fetch: bool,
    sizes: bool,
    rounds: usize,
    few: bool,
    synthetic: bool,
    /// True if the sizes of the other tools are measured too.
    peers: bool,
    corpus: PathBuf,
    /// The path of the example `link_savings`, which measures sizes.
    savings: PathBuf,
    /// The path of the example `bench_link_speed`.
    speed: PathBuf,
    out: PathBuf,
}

impl Plan {
    fn from_options(root: &Path, options: &Options) -> anyhow::Result<Self> {
        let examples = options::target(root).join("release/examples");
        let example = |name: &str, example| match options.value(name) {
            Some(path) => root.join(path),
            None => examples.join(example),
        };
        let plan = Self {
            averages: options.numbers("--averages", "8192,65536")?,
            fetch: options.is_set("--fetch"),
            sizes: !options.is_set("--no-sizes"),
            rounds: options.number("--rounds", 5)?,
            few: options.is_set("--few"),
            synthetic: options.is_set("--synthetic"),
            peers: !options.is_set("--no-peers"),
            corpus: options.path("--corpus", root, "bench/scratch/link/corpus"),
            savings: example("--savings", "link_savings"),
            speed: example("--speed", "bench_link_speed"),
            out: options.path("--out", root, "bench/scratch/link"),
        };
        let wanted = [
            (
                plan.sizes,
                &plan.savings,
                "edgeward-chunk-store --example link_savings",
            ),
            (
                plan.rounds > 0,
                &plan.speed,
                "edgeward-link --example bench_link_speed",
            ),
        ];
        for (_, path, example) in wanted
            .into_iter()
            .filter(|(wanted, ..)| *wanted && !plan.fetch)
        {
            if !path.is_file() {
                bail!(
                    "{} does not exist\n  hint: cargo build --release --package {example}",
                    path.display()
                );
            }
        }
        Ok(plan)
    }
}
