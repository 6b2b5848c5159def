//! `edgeward filter inspect`: prints a filter's metadata and measures its false-positive rate.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use edgeward_filter::Filter;
use edgeward_types::{ByteSize, Seed};

use super::open_filter;
use crate::output::{self, Column, Table};

/// Show the metadata of a filter and measure its false-positive rate
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct InspectArgs {
    /// The filter file
    #[arg(value_name = "FILTER")]
    filter: PathBuf,

    /// Random ids for the measurement
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    probes: u64,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Prints the report. Exit codes: 0 the filter is valid, 1 it contains more ids than its capacity.
pub(crate) fn run(args: &InspectArgs) -> anyhow::Result<ExitCode> {
    let filter = open_filter::open_edgeward(&args.filter)?;
    let report = FilterReport::of(&filter, args.probes);
    if args.json {
        output::print_json(&report)?;
    } else {
        let mut out = output::stdout();
        let mut table = Table::new([Column::words(""), Column::words("")]);
        for (name, value) in report.rows() {
            table.row([name.to_owned(), value]);
        }
        write!(out, "{}", table.to_string().trim_start())?;
        out.flush()?;
    }
    Ok(ExitCode::from(u8::from(report.overfilled)))
}

/// The metadata of a filter and its measured false-positive rate.
#[derive(Debug, Serialize)]
pub(super) struct FilterReport {
    /// `static (binary fuse)` or `updatable (blocked Bloom)`.
    construction: &'static str,
    /// The form of the ids, such as `text` or `uuid`.
    form: &'static str,
    hash_seed: u64,
    /// The number of the build. Later builds of a set have higher numbers.
    epoch: u64,
    /// The time at which the reading of the ids began, in milliseconds since 1970.
    built_ms: Option<u64>,
    ids: u64,
    /// The number of ids for which the filter has the requested rate.
    capacity_ids: u64,
    /// True if the filter has more ids than its capacity.
    overfilled: bool,
    bytes: u64,
    bits_per_id: f64,
    /// The size as a multiple of the information-theoretic lower bound (the smallest size of any filter with the
    /// expected rate and this number of ids).
    times_the_limit: f64,
    /// The false-positive rate that the builder of the filter requested.
    asked_rate: f64,
    /// The false-positive rate computed from the shape of a static filter, or from the load of an updatable one.
    expected_rate: f64,
    /// The false-positive rate computed from the bits of the filter.
    exact_rate: f64,
    /// The share of random ids that the filter reported as present.
    measured_rate: f64,
}

impl FilterReport {
    pub(super) fn of(filter: &Filter<Vec<u8>>, probes: u64) -> Self {
        let info = filter.info();
        Self {
            construction: info.construction.name(),
            form: info.hasher.form.name(),
            hash_seed: info.hasher.seed,
            epoch: info.epoch,
            built_ms: info.built.map(|built| built.as_millis()),
            ids: info.ids,
            capacity_ids: info.capacity_ids,
            overfilled: info.ids > info.capacity_ids,
            bytes: info.bytes,
            bits_per_id: info.bytes as f64 * 8.0 / info.ids.max(1) as f64,
            times_the_limit: info.bytes as f64 / info.bytes_limit.max(1.0),
            asked_rate: info.target_rate,
            expected_rate: info.expected_rate,
            exact_rate: filter.exact_rate(),
            measured_rate: filter.measured_rate(probes, Seed(0)),
        }
    }

    pub(super) fn rows(&self) -> Vec<(&'static str, String)> {
        let built = self.built_ms.map_or_else(
            || "unknown".to_owned(),
            |ms| format!("{} s after 1970", ms / 1000),
        );
        vec![
            ("filter", self.construction.to_owned()),
            ("epoch", self.epoch.to_string()),
            ("built", built),
            (
                "ids",
                format!("{} ({})", output::count(self.ids), self.form),
            ),
            ("capacity", output::count(self.capacity_ids)),
            ("hash seed", self.hash_seed.to_string()),
            ("size", ByteSize(self.bytes).to_string()),
            ("bits per id", format!("{:.2}", self.bits_per_id)),
            (
                "times the lower bound",
                format!("{:.2}", self.times_the_limit),
            ),
            ("requested rate", output::percent(self.asked_rate)),
            ("expected rate", output::percent(self.expected_rate)),
            (
                "rate computed from the bits",
                output::percent(self.exact_rate),
            ),
            ("measured rate", output::percent(self.measured_rate)),
        ]
    }
}

const EXAMPLES: &str = "\
Examples:
  edgeward filter inspect resource.ids
  edgeward filter inspect --json resource.ids | jq .measured_rate

Every byte of the file is checked. Exit code 1: the filter contains more ids than its
capacity, so that its rate is above the requested one.";
