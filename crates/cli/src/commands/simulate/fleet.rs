//! `simulate --nodes`: the options of a fleet, and its results as tables and as parts of a page.
//!
//! Each combination of capacity, policy and seed is simulated as separate caches, as a fleet and as one node with the
//! sum of the memory. With `--lose`, the fleet is also simulated with the failure of a node.

use std::io::Write;

use clap::Args;

use edgeward_report::{Axis, Bars, Plot, Series, Unit};
use edgeward_sim::{
    Capacity, FleetConfig, FleetKind, FleetReport, NODES_MAX, RunConfig, Share, ShieldConfig,
    Warmup,
};
use edgeward_types::ByteSize;

use super::part::Part;
use crate::diagnostic::Diagnostic;
use crate::output::{self, Column, Table};

/// Options of a fleet.
#[derive(Args, Clone, Debug)]
pub(super) struct FleetArgs {
    /// Simulate a fleet of N nodes of --capacity each
    ///
    /// The results compare three ways: separate caches, a fleet in which each object has one owner, and one node with
    /// the sum of the memory. Each request arrives at a node that is drawn by --seed, because a trace has no clients.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(2..=NODES_MAX as i64),
        conflicts_with_all = ["disk", "bounds", "by_c", "curve", "fetch_latency", "csv", "parquet"],
    )]
    nodes: Option<u16>,

    /// Number of shields: nodes that the edges of the fleet ask instead of the origin
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=NODES_MAX as i64),
        requires = "nodes",
        hide_short_help = true
    )]
    shield: Option<u16>,

    /// RAM of each shield [default: that of a node]
    #[arg(long, value_name = "SIZE", requires = "shield", hide_short_help = true)]
    shield_capacity: Option<Capacity>,

    /// Cost of a fetch from another node, as a share of the cost of a fetch from the origin
    ///
    /// A node keeps a copy of an object that another node owns if the copy saves more per byte than the average byte
    /// of its RAM. With 0%, nodes keep no copies. The default is that of 1 ms between nodes and 100 ms to the origin.
    #[arg(
        long,
        value_name = "SHARE",
        default_value = "1%",
        requires = "nodes",
        hide_short_help = true
    )]
    replicate: Share,

    /// Also simulate the failure of a node after this part of the requests: 60% or a number
    #[arg(long, value_name = "AT", requires = "nodes", hide_short_help = true)]
    lose: Option<Warmup>,
}

impl FleetArgs {
    /// Returns true if the runs are fleets.
    pub(super) fn is_present(&self) -> bool {
        self.nodes.is_some()
    }

    /// Returns true if an option is a share of the trace.
    pub(super) fn needs_facts(&self) -> bool {
        matches!(self.shield_capacity, Some(Capacity::OfFootprint(_)))
            || matches!(self.lose, Some(Warmup::Share(_)))
    }

    /// Returns the configurations for nodes with these settings, or `None` without `--nodes`.
    pub(super) fn configs(
        &self,
        node: &RunConfig,
        requests: Option<u64>,
        footprint_bytes: u64,
    ) -> Option<Vec<FleetConfig>> {
        let nodes = self.nodes?;
        let shield_bytes = match &self.shield_capacity {
            Some(capacity) => capacity.bytes(footprint_bytes).max(1),
            None => node.capacity_bytes,
        };
        let shield = self.shield.map(|nodes| ShieldConfig {
            nodes,
            capacity_bytes: shield_bytes,
        });
        let fleet = FleetConfig {
            kind: FleetKind::Fleet,
            node: node.clone(),
            nodes,
            shield,
            peer_cost: self.replicate.fraction(),
            lose_at: None,
        };
        let separate = FleetConfig {
            kind: FleetKind::Separate,
            ..fleet.clone()
        };
        let mut configs = vec![fleet.clone().one_node(), separate, fleet.clone()];
        if let Some(lose) = self.lose {
            configs.push(FleetConfig {
                lose_at: Some(lose.requests(requests)),
                ..fleet
            });
        }
        Some(configs)
    }

    /// Checks that a node that is lost is lost within a trace of so many requests.
    pub(super) fn check(&self, requests: u64) -> anyhow::Result<()> {
        let lost_at = self.lose.map(|lose| lose.requests(Some(requests)));
        match lost_at {
            Some(at) if !(1..requests).contains(&at) => Err(Diagnostic::new(format!(
                "--lose: a node is lost after {} requests, and the trace has {}",
                output::count(at),
                output::count(requests)
            ))
            .hint("--lose 60% loses it after 60 % of the requests")
            .into()),
            _ => Ok(()),
        }
    }
}

/// Compares each fleet that lost a node with the fleet that did not. Without `series`, the reports have no time series.
pub(super) fn finish(fleets: &mut [FleetReport], series: bool) {
    for at in 0..fleets.len() {
        if fleets[at].loss.is_some() {
            let (before, lost) = fleets.split_at_mut(at);
            let is_whole = |other: &&FleetReport| other.kind == FleetKind::Fleet;
            if let Some(whole) = before.iter().rev().find(is_whole) {
                lost[0].compare_loss(whole);
            }
        }
    }
    if !series {
        fleets.iter_mut().for_each(|fleet| fleet.series.clear());
    }
}

/// Prints the comparison of the ways, and the costs of failures.
pub(super) fn write_tables(out: &mut impl Write, fleets: &[FleetReport]) -> anyhow::Result<()> {
    write!(out, "{}", Table::from(table(fleets)))?;
    if let Some(losses) = losses(fleets) {
        write!(out, "\n{}", Table::from(losses))?;
    }
    Ok(())
}

/// Returns a sentence about the origin bytes of the first fleet and its separate caches, compared with one node.
pub(super) fn finding(fleets: &[FleetReport]) -> Option<String> {
    let first = |kind: FleetKind| fleets.iter().find(|fleet| fleet.kind == kind);
    let fleet = first(FleetKind::Fleet)?;
    let separate = first(FleetKind::Separate)?;
    let one = first(FleetKind::OneNode)?;
    Some(format!(
        "A fleet of {} nodes with {} each fetches {} times the bytes from the origin that one node with {} fetches; \
         separate caches fetch {} times as many.",
        fleet.nodes,
        ByteSize(fleet.capacity_bytes),
        relative_bytes(fleet, one),
        ByteSize(one.capacity_bytes),
        relative_bytes(separate, one),
    ))
}

/// Returns bars, tables and a plot over time.
pub(super) fn parts(fleets: &[FleetReport]) -> Vec<Part> {
    let mut ratios = Bars::new(
        "Requests and bytes answered without the origin",
        Axis::new("hit ratio", Unit::Share),
        ["object hit ratio", "byte hit ratio"],
    );
    let mut plot = Plot::new(
        "Object hit ratio over time",
        Axis::new("requests", Unit::Count),
        Axis::new("object hit ratio", Unit::Share).tight(),
    );
    for fleet in fleets {
        let size = ByteSize(fleet.capacity_bytes);
        let name = format!("{} {} {size}", way(fleet), fleet.policy);
        ratios.group(
            name.as_str(),
            [fleet.object_hit_ratio, fleet.byte_hit_ratio],
        );
        let point = |interval: &edgeward_sim::Interval| {
            (interval.requests_end as f64, interval.object_hit_ratio)
        };
        plot.add(Series::line(name.as_str(), fleet.series.iter().map(point)));
    }
    let mut parts = vec![
        Part::Heading("Fleet".to_owned()),
        Part::Bars("fleet-hit-ratios".to_owned(), ratios),
        Part::Table(table(fleets).into()),
    ];
    if let Some(losses) = losses(fleets) {
        parts.push(Part::Heading("Failure of a node".to_owned()));
        parts.push(Part::Table(losses.into()));
    }
    if fleets.iter().any(|fleet| fleet.series.len() > 1) {
        parts.push(Part::Plot("fleet-over-time".to_owned(), plot));
    }
    parts
}

/// The cells of a table. The first `words` columns have words, the others figures.
struct Cells {
    words: usize,
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

fn table(fleets: &[FleetReport]) -> Cells {
    let mut rows = Vec::new();
    for (at, fleet) in fleets.iter().enumerate() {
        // The single node is the first way of each group.
        let mut before = fleets[..=at].iter().rev();
        let one = before.find(|other| other.kind == FleetKind::OneNode);
        let between = fleet.peer_bytes + fleet.shield_bytes;
        let ratio = |ratio: f64| format!("{ratio:.2}");
        rows.push(vec![
            way(fleet).to_owned(),
            fleet.policy.clone(),
            format!("{} × {}", fleet.nodes, ByteSize(fleet.capacity_bytes)),
            output::percent(fleet.object_hit_ratio),
            output::percent(fleet.byte_hit_ratio),
            ByteSize(fleet.origin_bytes).to_string(),
            one.map_or_else(String::new, |one| relative_bytes(fleet, one)),
            ByteSize(between).to_string(),
            output::percent(fleet.copy_hits as f64 / fleet.requests.max(1) as f64),
            ratio(fleet.request_load_max_ratio),
            ratio(fleet.byte_load_max_ratio),
        ]);
    }
    Cells {
        words: 2,
        headings: vec![
            "way",
            "policy",
            "RAM",
            "OHR",
            "BHR",
            "origin",
            "to one node",
            "between nodes",
            "copy hits",
            "max/mean requests",
            "bytes",
        ],
        rows,
    }
}

/// Returns the costs of failures, or `None` if no fleet lost a node.
fn losses(fleets: &[FleetReport]) -> Option<Cells> {
    let row = |fleet: &FleetReport| {
        let loss = fleet.loss.as_ref()?;
        let recovered = loss.recovered_after_requests;
        Some(vec![
            fleet.policy.clone(),
            format!("{} × {}", fleet.nodes, ByteSize(fleet.capacity_bytes)),
            output::count(loss.at_request),
            output::percent(loss.moved_keys_ratio),
            output::points(-loss.object_hit_ratio_drop_max),
            recovered.map_or_else(|| "never".to_owned(), output::count),
            output::count(loss.additional_origin_requests),
            ByteSize(loss.additional_origin_bytes).to_string(),
        ])
    };
    let rows: Vec<_> = fleets.iter().filter_map(row).collect();
    let headings = vec![
        "policy",
        "RAM",
        "node lost at",
        "keys moved",
        "largest drop",
        "requests to recovery",
        "more origin requests",
        "more origin bytes",
    ];
    (!rows.is_empty()).then_some(Cells {
        words: 1,
        headings,
        rows,
    })
}

impl From<Cells> for Table {
    fn from(cells: Cells) -> Self {
        let column = |(at, heading): (usize, &str)| match at < cells.words {
            true => Column::words(heading),
            false => Column::figures(heading),
        };
        let mut table = Self::new(cells.headings.iter().copied().enumerate().map(column));
        cells.rows.into_iter().for_each(|row| table.row(row));
        table
    }
}

impl From<Cells> for edgeward_report::Table {
    fn from(cells: Cells) -> Self {
        use edgeward_report::Column;
        let column = |(at, heading): (usize, &str)| match at < cells.words {
            true => Column::words(heading),
            false => Column::figures(heading),
        };
        let mut table = Self::new(cells.headings.iter().copied().enumerate().map(column));
        for row in cells.rows {
            table.row(row);
        }
        table
    }
}

fn way(fleet: &FleetReport) -> &'static str {
    match fleet.kind {
        FleetKind::Separate => "separate caches",
        FleetKind::Fleet if fleet.loss.is_some() => "fleet, one node lost",
        FleetKind::Fleet => "fleet",
        FleetKind::OneNode => "one node",
    }
}

fn relative_bytes(fleet: &FleetReport, one: &FleetReport) -> String {
    format!(
        "{:.3}",
        fleet.origin_bytes as f64 / one.origin_bytes.max(1) as f64
    )
}
