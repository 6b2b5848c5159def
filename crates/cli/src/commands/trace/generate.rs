//! `edgeward trace generate`: generates synthetic CDN traffic from a seed.

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use clap::Args;

use edgeward_trace::generate::{Generator, Preset};
use edgeward_types::Seed;

use super::output_file::OutputArgs;
use crate::output::{self, Progress};

/// Generate a trace: Zipf popularity, one-hit wonders, churn, all sizes
///
/// The same options and seed give the same trace on every machine. Presets: web (pages, images, API), video,
/// mixed (web, video and downloads), switch (as mixed, in phases), small (replays over HTTP within a minute),
/// chunks (downloads in chunks of 1 MiB), scan (web with crawlers), recurring (video that returns every day).
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct GenerateArgs {
    /// Type of traffic: web, mixed, … (--help lists all)
    #[arg(long, short, default_value = "mixed", value_name = "NAME")]
    preset: Preset,

    /// Number of requests [default: 1000000, for small 300000]
    #[arg(long, value_name = "N")]
    requests: Option<u64>,

    /// Number of objects [default: the preset's, in proportion to the requests]
    #[arg(long, value_name = "N")]
    objects: Option<u64>,

    /// Fraction of objects requested exactly once, as 0.7 or 70%
    #[arg(long, value_name = "SHARE")]
    one_hit_share: Option<Proportion>,

    /// Fraction of repeatedly requested objects that appear during the trace
    #[arg(long, value_name = "SHARE")]
    churn: Option<Proportion>,

    /// Requests per second, averaged over a day
    #[arg(long, value_name = "RATE")]
    rate: Option<f64>,

    /// Daily variation of the rate, from 0 (flat) to 1 (down to zero)
    #[arg(long, value_name = "SHARE")]
    diurnal: Option<Proportion>,

    /// Seed of all random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// The trace to write; - for stdout
    #[arg(long, short, default_value = "-", value_name = "FILE")]
    output: PathBuf,

    #[command(flatten)]
    writing: OutputArgs,
}

/// Generates the trace and writes it.
pub(crate) fn run(args: GenerateArgs) -> anyhow::Result<ExitCode> {
    let mut workload = args.preset.workload();
    if let Some(requests) = args.requests {
        workload = workload.scaled_to(requests);
    }
    let set = |field: &mut f64, value: Option<Proportion>| {
        if let Some(Proportion(share)) = value {
            *field = share;
        }
    };
    set(&mut workload.one_hit_share, args.one_hit_share);
    set(&mut workload.churn, args.churn);
    set(&mut workload.diurnal, args.diurnal);
    workload.objects = args.objects.unwrap_or(workload.objects);
    workload.requests_per_second = args.rate.unwrap_or(workload.requests_per_second);

    let progress = Progress::new("generating", "requests", Some(workload.requests));
    let generator = Generator::new(workload, Seed(args.seed))?;
    let mut target = args.writing.create(&args.output)?;
    let mut written_since_update = 0;
    for record in generator {
        target.write(&record)?;
        written_since_update += 1;
        if written_since_update == PROGRESS_STEP {
            progress.advance(written_since_update);
            written_since_update = 0;
        }
    }
    progress.advance(written_since_update);
    let records = target.finish()?;
    drop(progress);
    eprintln!("{} requests written", output::count(records));
    Ok(ExitCode::SUCCESS)
}

/// A share, written as a fraction or as a percentage. The workload checks that it is between 0 and 1.
#[derive(Clone, Copy, Debug)]
struct Proportion(f64);

impl FromStr for Proportion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, scale) = match text.strip_suffix('%') {
            Some(number) => (number, 100.0),
            None => (text, 1.0),
        };
        let share: f64 = number
            .trim()
            .parse()
            .map_err(|_| format!("`{text}` is not a share; write 0.7 or 70%"))?;
        Ok(Self(share / scale))
    }
}

/// The number of requests between two updates of the progress.
const PROGRESS_STEP: u64 = 1 << 14;

const EXAMPLES: &str = "\
Examples:
  edgeward trace generate --preset web --requests 5000000 -o web.txt.zst
  edgeward trace generate --preset switch --one-hit-share 80% --seed 7 -o t.oracleGeneral
  edgeward trace generate --requests 5000000 --one-hit-share 70% -o access.log.zst
  edgeward trace generate --preset small | edgeward simulate - --capacity 64MiB";
