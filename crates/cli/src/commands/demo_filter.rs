//! `edgeward demo-filter`: a service where nearly every lookup is a 404, with and without an id filter.
//!
//! The demo creates a table of UUIDs in SQLite, a slow service, and a publisher that scans the table. It sends
//! lookups of absent ids and of one present id. In the first run, the edge forwards all lookups to the service. Two
//! runs follow for each false-positive rate: in one the edge answers absent ids by the filter, in the other the
//! clients query the filter themselves. All parts run in one process, on loopback ports.
//!
//! The demo repeats an experiment that was published for a Dropwizard service, Cassandra and a Guava filter. The
//! printed results also show the published figures.

mod database;
mod load;
mod service;

use std::fs;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::Serialize;

use edgeward_filter::{IdForm, IdHasher, Rate, Signer, Trust};
use edgeward_filter_client::{FilterClient, FilterConfig, system_clock};
use edgeward_proxy::config::LOOPBACK_ANY_PORT;
use edgeward_proxy::{Edge, EdgeConfig, RunningEdge};
use edgeward_publish::{Coverage, PublishConfig, Publisher, RunningPublisher};
use edgeward_types::ByteSize;

use crate::negative::{self, FilterLocation, NegativeSettings};
use crate::output::{self, Column, Table};
use load::{Load, Outcome};
use service::Service;

/// Lookups that are nearly all 404, with and without an id filter
///
/// Starts a slow service, a publisher that scans the ids of the service in SQLite, and an edge, on free loopback ports.
/// Sends lookups of absent ids and of one present id.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct DemoFilterArgs {
    /// Ids in the table
    #[arg(
        long,
        default_value_t = 620_000,
        value_parser = clap::value_parser!(u64).range(1..=20_000_000),
        value_name = "N"
    )]
    ids: u64,

    /// Lookups of absent ids; one lookup of a present id is added
    #[arg(
        long,
        default_value_t = 50_000,
        value_parser = clap::value_parser!(u64).range(1..=10_000_000),
        value_name = "N"
    )]
    lookups: u64,

    /// Time until the service starts each response
    #[arg(long, default_value = "20ms", value_parser = super::flag_values::duration, value_name = "TIME")]
    latency: Duration,

    /// Connections of the clients
    #[arg(long, default_value = "32", value_name = "N")]
    connections: NonZeroUsize,

    /// False-positive rates to try
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "3%,1%",
        value_name = "LIST"
    )]
    fpr: Vec<Rate>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Seed of all random numbers
    #[arg(long, default_value_t = 1, value_name = "N", hide_short_help = true)]
    seed: u64,
}

/// Runs the demo. Exit codes: 0 every response was correct, 1 some responses were wrong.
pub(crate) fn run(args: &DemoFilterArgs) -> anyhow::Result<ExitCode> {
    let folder = TemporaryFolder::new()?;
    let started = Instant::now();
    let table = database::create(&folder.0.join("resource.db"), args.ids, args.seed)?;
    log_info(&format!(
        "{} UUIDs in SQLite, {}",
        output::count(args.ids),
        output::duration(started.elapsed())
    ));
    let service = Service::start(table.ids(), args.latency)?;
    let inputs = Inputs {
        args,
        lookups: Arc::new(table.lookups(args.lookups)),
        service: &service,
    };
    let mut rows = Vec::new();

    let edge = start_edge(&service, Vec::new())?;
    rows.push(measure(&inputs, "without", None, edge.addrs()[0], None)?);
    drop(edge);
    for &rate in &args.fpr {
        let signer = Signer::from_secret([7; 32]);
        let published = publish(&folder.0, rate, &signer, &table)?;
        let url = format!("http://{}/sets/resource", published.publisher.addr());
        let url: edgeward_filter_client::PublisherUrl = url.parse()?;
        let settings = NegativeSettings {
            pattern: Some("/resource/{id}".parse()?),
            filter: Some(FilterLocation::Publisher(url.clone())),
            keys: vec![signer.public()],
            max_staleness: Some(MAX_STALENESS),
            ..NegativeSettings::default()
        };
        let edge = start_edge(&service, negative::start(&[settings])?)?;
        let config = FilterConfig::new(url, Trust::Keys(vec![signer.public()]), MAX_STALENESS);
        let client = FilterClient::start(config)?;
        ensure!(
            client.wait_fresh(TIMEOUT),
            "no filter arrived: {:?}",
            client.status().last_error
        );
        let filter = Some(MeasuredFilter {
            rate,
            bytes: client.status().facts.map(|facts| facts.bytes),
            publication_time: published.publication_time,
        });
        load::wait_until_skipped(edge.addrs()[0], TIMEOUT)?;
        rows.push(measure(&inputs, "edge", filter, edge.addrs()[0], None)?);
        drop(edge);
        let client = Some(Arc::new(client));
        let row = measure(&inputs, "clients", filter, service.addr(), client)?;
        rows.push(row);
    }
    let report = Report {
        ids: args.ids,
        latency_ms: args.latency.as_secs_f64() * 1000.0,
        connections: args.connections.get(),
        rows,
    };
    if args.json {
        output::print_json(&report)?;
    } else {
        report.print()?;
    }
    let is_correct = report
        .rows
        .iter()
        .all(|row| row.wrong == 0 && row.found == 1);
    Ok(ExitCode::from(u8::from(!is_correct)))
}

fn log_info(text: &str) {
    tracing::info!("{text}");
}

/// Starts an edge in front of the service.
fn start_edge(
    service: &Service,
    negative: Vec<edgeward_proxy::negative::NegativeRule>,
) -> anyhow::Result<RunningEdge> {
    let origin = format!("http://{}", service.addr()).parse()?;
    let mut config = EdgeConfig::new(LOOPBACK_ANY_PORT, origin, ByteSize::mib(16));
    config.workers = NonZeroUsize::MIN;
    config.negative = negative;
    Ok(Edge::start(config)?)
}

/// A running publisher that has published its first snapshot.
struct Published {
    publisher: RunningPublisher,
    /// The time of the scan, the build of the filter and its publication.
    publication_time: Duration,
}

fn publish(
    folder: &Path,
    rate: Rate,
    signer: &Signer,
    table: &database::IdTable,
) -> anyhow::Result<Published> {
    let state = folder.join(format!("state-{}", rate.share()));
    let mut config = PublishConfig::new("resource", LOOPBACK_ANY_PORT, state, system_clock());
    config.signer = Some(signer.clone());
    config.rate = rate;
    config.hasher = IdHasher {
        form: IdForm::Uuid,
        seed: 0,
    };
    config.coverage = Coverage::Scans;
    let started = Instant::now();
    let publisher = Publisher::start(config, Box::new(table.source()?))?;
    ensure!(
        publisher.wait_published(0, TIMEOUT),
        "no snapshot was published"
    );
    Ok(Published {
        publisher,
        publication_time: started.elapsed(),
    })
}

/// The results of one run of all lookups.
#[derive(Clone, Debug, Serialize)]
struct Row {
    /// The part that queries the filter: "without", "edge" or "clients".
    skipping: &'static str,
    /// The requested false-positive rate, as a share.
    rate: Option<f64>,
    filter_bytes: Option<u64>,
    scan_and_build_seconds: Option<f64>,
    lookups: u64,
    /// Lookups that the filter answered, so that no request reached the service.
    skipped: u64,
    service_requests: u64,
    /// Lookups of absent ids for which the filter answered *maybe*.
    false_positives: u64,
    /// Lookups with status 200: 1 if the present id was found.
    found: u64,
    /// Lookups with a status other than 200 and 404.
    wrong: u64,
    seconds: f64,
}

/// The inputs that all rows have in common.
struct Inputs<'a> {
    args: &'a DemoFilterArgs,
    lookups: Arc<Vec<String>>,
    service: &'a Service,
}

/// A filter that one row measures.
#[derive(Clone, Copy)]
struct MeasuredFilter {
    rate: Rate,
    bytes: Option<u64>,
    /// The time to scan the table and to build the filter.
    publication_time: Duration,
}

/// Measures one row. `addr` answers the lookups; `client` is asked first.
fn measure(
    inputs: &Inputs<'_>,
    skipping: &'static str,
    filter: Option<MeasuredFilter>,
    addr: std::net::SocketAddr,
    client: Option<Arc<FilterClient>>,
) -> anyhow::Result<Row> {
    let Inputs {
        args,
        lookups,
        service,
    } = inputs;
    let before = service.requests();
    let outcome: Outcome = Load {
        addr,
        connections: args.connections.get(),
        lookups: Arc::clone(lookups),
        client,
    }
    .run()?;
    let service_requests = service.requests() - before;
    Ok(Row {
        skipping,
        rate: filter.map(|filter| filter.rate.share()),
        filter_bytes: filter.and_then(|filter| filter.bytes),
        scan_and_build_seconds: filter.map(|filter| filter.publication_time.as_secs_f64()),
        lookups: lookups.len() as u64,
        skipped: outcome.skipped,
        service_requests,
        false_positives: if filter.is_some() {
            service_requests - outcome.found
        } else {
            0
        },
        found: outcome.found,
        wrong: outcome.wrong,
        seconds: outcome.time.as_secs_f64(),
    })
}

#[derive(Debug, Serialize)]
struct Report {
    ids: u64,
    latency_ms: f64,
    connections: usize,
    rows: Vec<Row>,
}

impl Report {
    fn print(&self) -> anyhow::Result<()> {
        let mut table = Table::new([
            Column::words("filter queried by"),
            Column::figures("requested rate"),
            Column::figures("filter"),
            Column::figures("lookups"),
            Column::figures("skipped"),
            Column::figures("sent to the service"),
            Column::figures("false positives"),
            Column::figures("seconds"),
        ]);
        let share = |part: u64, total: u64| output::percent(part as f64 / total.max(1) as f64);
        for row in &self.rows {
            table.row([
                match row.skipping {
                    "without" => "not used".to_owned(),
                    other => format!("the {other}"),
                },
                row.rate.map_or_else(String::new, output::percent),
                row.filter_bytes
                    .map_or_else(String::new, |bytes| ByteSize(bytes).to_string()),
                output::count(row.lookups),
                format!(
                    "{} ({})",
                    output::count(row.skipped),
                    share(row.skipped, row.lookups)
                ),
                output::count(row.service_requests),
                match row.rate {
                    Some(_) => format!(
                        "{} ({})",
                        output::count(row.false_positives),
                        share(row.false_positives, row.lookups)
                    ),
                    None => String::new(),
                },
                format!("{:.2}", row.seconds),
            ]);
        }
        for (part, rate, size, skipped, false_positives, seconds) in PUBLISHED {
            table.row([
                part,
                rate,
                size,
                "50 001",
                skipped,
                "",
                false_positives,
                seconds,
            ]);
        }
        let mut out = output::stdout();
        writeln!(
            out,
            "{} UUIDs in SQLite, a service with a delay of {} ms, {} connections\n\n{table}",
            output::count(self.ids),
            self.latency_ms,
            self.connections
        )?;
        if let Some(scan) = self.rows.iter().find_map(|row| row.scan_and_build_seconds) {
            writeln!(
                out,
                "scan of the table, build and publication: {scan:.2} s (published: 30 s)"
            )?;
        }
        out.flush()?;
        Ok(())
    }
}

/// The figures of the published experiment. It ran on another machine, and the delay of its service is unknown.
const PUBLISHED: [(&str, &str, &str, &str, &str, &str); 3] = [
    ("published: not used", "", "", "", "", "36.6"),
    (
        "published: the client",
        "3 %",
        "450 KB",
        "94 %",
        "3 147 (6.3 %)",
        "3.9",
    ),
    ("published: the client", "1 %", "600 KB", "97 %", "", ""),
];

/// A temporary folder that is removed at the end.
struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    fn new() -> anyhow::Result<Self> {
        let folder =
            std::env::temp_dir().join(format!("edgeward-demo-filter-{}", std::process::id()));
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create the folder {}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // If the removal fails, the files remain in the system's temporary folder.
        _ = fs::remove_dir_all(&self.0);
    }
}

/// The staleness that the edge and the clients accept: longer than the demo, so that the filter stays usable
/// without a second scan.
const MAX_STALENESS: Duration = Duration::from_secs(3600);

/// The longest wait for a snapshot and for a filter.
const TIMEOUT: Duration = Duration::from_secs(120);

const EXAMPLES: &str = "\
Exit codes: 0 every response was correct, 1 some responses were wrong, 2 the demo failed.

Examples:
  edgeward demo-filter
  edgeward demo-filter --ids 100000 --lookups 10000 --latency 5ms --json | jq .rows";
