//! The options of `edgeward simulate`.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::thread;

use clap::Args;

use edgeward_policy::{ADMISSION_NAMES, EVICTION_NAMES, Objective};
use edgeward_sim::{
    Capacity, OFFLINE_NAMES, OriginCost, ParseShareError, Share, SimulatedPolicy, Warmup,
};
use edgeward_types::ByteSize;

use super::{disk, fleet};
use crate::input::TraceInputArgs;

/// Run a trace through cache policies and compare their hit ratios
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct SimulateArgs {
    #[command(flatten)]
    pub(super) trace: TraceInputArgs,

    /// Policies, such as lru, gdsf or adaptsize+gdsf
    #[arg(
        long,
        short,
        value_delimiter = ',',
        default_value = "lru,adaptsize,gdsf,density",
        value_name = "LIST",
        long_help = policy_help()
    )]
    pub(super) policy: Vec<SimulatedPolicy>,

    /// RAM tier sizes: bytes (64MiB) or a share of the trace's footprint (1%)
    #[arg(
        long,
        visible_alias = "hot",
        short,
        value_delimiter = ',',
        required = true,
        value_name = "LIST"
    )]
    pub(super) capacity: Vec<Capacity>,

    #[command(flatten)]
    pub(super) disk: disk::DiskArgs,

    #[command(flatten)]
    pub(super) fleet: fleet::FleetArgs,

    /// Requests that only fill the caches: 20% or a number
    #[arg(long, default_value = "0", value_name = "SHARE")]
    pub(super) warmup: Warmup,

    /// Bytes per object in addition to its body; bodies are then rounded up as in a live edge
    #[arg(long, default_value = "0", value_name = "SIZE", hide_short_help = true)]
    pub(super) object_overhead: ByteSize,

    /// Bytes per object in addition to its body, without rounding, as in the literature
    ///
    /// Use --object-overhead instead to predict a live edge.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "0",
        conflicts_with = "object_overhead",
        hide_short_help = true
    )]
    pub(super) count_metadata: ByteSize,

    /// Milliseconds that a fetch from the origin takes; requests during it are delayed hits
    ///
    /// A delayed hit waits for the fetch of an earlier request. It costs the origin no request and is not counted as a
    /// hit. The times are those of the trace.
    #[arg(
        long,
        value_name = "MS",
        conflicts_with = "disk",
        hide_short_help = true
    )]
    pub(super) fetch_latency: Option<u64>,

    /// Aim of the policies: requests, bytes or origin-cost
    ///
    /// `requests` counts the hits, `bytes` the bytes of the hits, and `origin-cost` the time that hits save, by
    /// --origin-latency and --origin-bandwidth. density, gds and the forms of gdsf follow the objective. The other
    /// policies ignore it.
    #[arg(
        long,
        default_value_t,
        value_name = "OBJECTIVE",
        hide_short_help = true
    )]
    pub(super) objective: Objective,

    /// Milliseconds until the first byte of a response from the origin, for the origin cost
    ///
    /// The cost of a fetch is this latency, and the time to transfer the body at --origin-bandwidth. The cost does not
    /// delay requests; see --fetch-latency.
    #[arg(long, value_name = "MS", default_value = "100", hide_short_help = true)]
    pub(super) origin_latency: u64,

    /// Bytes per second of a response from the origin, for the origin cost
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "12MiB",
        hide_short_help = true
    )]
    pub(super) origin_bandwidth: ByteSize,

    /// Compute miss-ratio curves of this number of sizes, from the smallest to the largest --capacity
    ///
    /// The curve of lru is computed from stack distances in one pass. Each other policy is simulated at each size.
    #[arg(
        long,
        value_name = "POINTS",
        value_parser = clap::value_parser!(u16).range(2..=1000),
        conflicts_with_all = ["disk", "bounds", "fetch_latency"],
        hide_short_help = true
    )]
    pub(super) curve: Option<u16>,

    /// Share of the objects from which curves are estimated, such as 1% (SHARDS, miniature simulation)
    #[arg(
        long,
        value_name = "SHARE",
        value_parser = sample_share,
        requires = "curve",
        hide_short_help = true
    )]
    pub(super) sample: Option<Share>,

    /// Seeds of the policies' random numbers; each is a run of its own
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "0",
        value_name = "LIST",
        hide_short_help = true
    )]
    pub(super) seed: Vec<u64>,

    /// Requests between two runs of AdaptSize's tuner [default: 250000, as in the paper]
    #[arg(long, value_name = "REQUESTS", hide_short_help = true)]
    pub(super) window: Option<NonZeroU32>,

    /// Threads of the runs [default: one per core]
    #[arg(long, hide_short_help = true)]
    pub(super) threads: Option<NonZeroUsize>,

    /// Compute upper bounds of the hit ratios of any policy, even of one that knows the future
    ///
    /// Takes 16 bytes of memory per request and 16 to 37 bytes per object.
    #[arg(long, conflicts_with = "disk", hide_short_help = true)]
    pub(super) bounds: bool,

    /// Compare the hit ratios of caches with each `c` of AdaptSize with the predictions of its models
    ///
    /// The results are in --json and --report. Takes the time of about thirty policies. The windows have --window
    /// requests, or an eighth of the trace if this is less.
    #[arg(
        long,
        conflicts_with_all = ["disk", "curve", "object_overhead", "count_metadata", "fetch_latency"],
        hide_short_help = true
    )]
    pub(super) by_c: bool,

    /// Omit hit ratios over time from the JSON
    #[arg(long, hide_short_help = true)]
    pub(super) no_series: bool,

    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,

    /// Write an HTML page with plots
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,

    /// Write the plots of --report as SVG files into this folder
    #[arg(long, value_name = "FOLDER", hide_short_help = true)]
    pub(super) plots: Option<PathBuf>,

    /// Write the results as CSV
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(super) csv: Option<PathBuf>,

    /// Write the results as Parquet, with the columns of --csv
    ///
    /// Needs a build with `--features parquet`.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(super) parquet: Option<PathBuf>,
}

impl SimulateArgs {
    /// Returns true if an option is a share of the trace. The trace must then be read once before the simulation.
    pub(super) fn needs_facts(&self) -> bool {
        let is_share = |capacity: &Capacity| matches!(capacity, Capacity::OfFootprint(_));
        self.capacity.iter().any(is_share)
            || self.disk.needs_footprint()
            || self.fleet.needs_facts()
            || matches!(self.warmup, Warmup::Share(_))
    }

    /// The combinations of capacity, policy and seed, in the order of the results.
    pub(super) fn cells(&self) -> impl Iterator<Item = (&Capacity, &SimulatedPolicy, &u64)> {
        self.capacity.iter().flat_map(move |capacity| {
            self.policy.iter().flat_map(move |policy| {
                let cell = move |seed| (capacity, policy, seed);
                self.seed.iter().map(cell)
            })
        })
    }

    /// The model of the cost of a fetch.
    pub(super) fn origin_cost(&self) -> OriginCost {
        OriginCost {
            latency_ms: self.origin_latency,
            bytes_per_second: self.origin_bandwidth.bytes(),
        }
    }

    /// The number of threads, from `--threads` or the number of cores.
    pub(super) fn threads(&self) -> NonZeroUsize {
        self.threads
            .or_else(|| thread::available_parallelism().ok())
            .unwrap_or(NonZeroUsize::MIN)
    }
}

/// Parses the share of objects in a sample, which must be more than 0.
fn sample_share(text: &str) -> Result<Share, String> {
    let share: Share = text
        .parse()
        .map_err(|error: ParseShareError| error.to_string())?;
    if share.fraction() > 0.0 {
        Ok(share)
    } else {
        Err("a sample has objects; write 1%".to_owned())
    }
}

/// Returns the help of `--policy`, which lists all rules.
fn policy_help() -> String {
    format!(
        "Policies: an eviction rule, an admission rule, or both, such as adaptsize+gdsf\n\n\
         Eviction rules: {EVICTION_NAMES}.\n\n\
         Admission rules: {ADMISSION_NAMES}.\n\n\
         Three policies know all future requests and cannot serve: {OFFLINE_NAMES}. They take 8 bytes of memory per \
         request.\n\n\
         docs/explanation/policies.md describes them."
    )
}

const EXAMPLES: &str = "\
Examples:
  edgeward simulate access.log.gz --capacity 256MiB,1GiB
  edgeward simulate day.tr.zst -p lru,gdsf,adaptsize -c 0.1%,1% --warmup 20% --report sim.html
  edgeward simulate day.tr.zst -p adaptsize -c 1GiB --object-overhead 600 --json
  edgeward simulate day.tr.zst -p lru,gdsf -c 0.1%,20% --curve 30 --sample 1% --report curves.html
  edgeward simulate day.tr.zst -p adaptsize --hot 64MiB --disk 10GiB --disk-admission second-hit,always
  edgeward simulate day.tr.zst -p density -c 64GiB --nodes 4 --lose 60% --report fleet.html
  edgeward simulate --plan sweep.toml --csv sweep.csv --report sweep.html

With --object-overhead the results predict a live edge, which uses the same policies. The
overhead of an object is hot.object_overhead_bytes in /status of the edge, plus the allocations of
its key, its head and two reference counts (docs/explanation/memory.md). Bodies are then rounded
up to the allocator's size classes.";
