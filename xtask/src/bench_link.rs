//! What the link saves, beside what else saves: `make bench-link`.
//!
//! Sizes: successive sets of real packages go through the link's own machines (both ends, their stores and compressors; an
//! example of `chunk-store` that knows no socket), and through zstd, borg, restic, casync and rsync. Each tool stores or
//! sends set after set, so what the second costs is what an update costs.
//!
//! Speed and latency: both ends on loopback, by an example of `link`.

mod corpus;
mod peers;
mod sizes;
mod speed;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::say;

use corpus::Corpus;

const HELP: &str = "\
What the link sends of successive versions of packages, beside zstd, borg, restic, casync and rsync.

usage: cargo xtask bench-link [options]

  --averages LIST  chunks' average bytes [8192,65536]
  --few            the two smaller packages only
  --synthetic      a corpus made up from a seed, as where there is no network
  --no-peers       the link alone
  --fetch          packages only, for `make demo-link`
  --no-sizes       speed and latency only
  --rounds N       pairs of passes a row of speed, 0 leaves speed out [5]
  --corpus FOLDER  packages, fetched if they are not there [bench/scratch/link/corpus]
  --savings PATH   the example link_savings of chunk-store [target/release/examples/link_savings]
  --speed PATH     the example bench_link_speed of link [target/release/examples/bench_link_speed]
  --out FOLDER     results, as sizes.jsonl and speed.jsonl [bench/scratch/link]
";

pub(crate) fn run(root: &Path, arguments: impl Iterator<Item = String>) -> anyhow::Result<bool> {
    let Some(plan) = Plan::parse(root, arguments)? else {
        say(HELP);
        return Ok(true);
    };
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
    peers: bool,
    corpus: PathBuf,
    savings: PathBuf,
    speed: PathBuf,
    out: PathBuf,
}

impl Plan {
    fn parse(
        root: &Path,
        mut arguments: impl Iterator<Item = String>,
    ) -> anyhow::Result<Option<Self>> {
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
        let examples = root.join(target).join("release/examples");
        let mut plan = Self {
            averages: vec![8192, 65536],
            fetch: false,
            sizes: true,
            rounds: 5,
            few: false,
            synthetic: false,
            peers: true,
            corpus: root.join("bench/scratch/link/corpus"),
            savings: examples.join("link_savings"),
            speed: examples.join("bench_link_speed"),
            out: root.join("bench/scratch/link"),
        };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--help" => return Ok(None),
                "--fetch" => plan.fetch = true,
                "--no-sizes" => plan.sizes = false,
                "--few" => plan.few = true,
                "--synthetic" => plan.synthetic = true,
                "--no-peers" => plan.peers = false,
                _ => {
                    let value = arguments
                        .next()
                        .with_context(|| format!("{argument} needs a value"))?;
                    match argument.as_str() {
                        "--averages" => {
                            let averages = value.split(',').map(str::parse);
                            plan.averages = averages
                                .collect::<Result<_, _>>()
                                .with_context(|| format!("{argument} {value} is not understood"))?;
                        }
                        "--corpus" => plan.corpus = root.join(value),
                        "--rounds" => {
                            plan.rounds = value
                                .parse()
                                .with_context(|| format!("{argument} {value} is not understood"))?;
                        }
                        "--savings" => plan.savings = root.join(value),
                        "--speed" => plan.speed = root.join(value),
                        "--out" => plan.out = root.join(value),
                        _ => bail!("no option is called {argument}\n  hint: --help lists them"),
                    }
                }
            }
        }
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
                    "{} is not there\n  hint: cargo build --release --package {example}",
                    path.display()
                );
            }
        }
        Ok(Some(plan))
    }
}
