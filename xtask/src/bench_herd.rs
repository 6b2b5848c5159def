//! Measures thundering herds: thousands of clients request one object of an edge at the same time.
//!
//! Five bursts, each on new connections that were opened before. Except for the limit of time of `cold`, their laws do
//! not depend on the speed of the machine, because the origin holds responses back:
//!
//! 1. `cold`: the object is not stored. The edge sends one request to the origin, and streams its response to all. The
//!    last client gets its first byte at most 1.2 s after the first byte of the origin.
//! 2. `stale`: the stored object is stale, with `stale-while-revalidate`. The origin answers the validation only after
//!    the burst: a client that waited for the origin would get a response only after the timeout of the gate.
//! 3. `uncacheable`: the response has `no-store`, which the edge learns from the first response. The origin holds all
//!    others back until all of them are requested. An edge that serialised these requests would time out.
//! 4. `uncacheable again`: the edge has learned it. The origin holds all responses back until all are requested.
//! 5. `beyond the limit`: twice as many clients of an uncacheable object as the edge may have origin connections. The
//!    requests take turns. The origin holds no response back.
//!
//! The clients, the origin and the edge share the cores.

mod clients;
mod origin;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::bench_disk::servers::{count, status};
use crate::bench_memory::{MEMORY_RATIO_MAX, base_bytes};
use crate::bench_shared::client::Client;
use crate::bench_shared::facts;
use crate::bench_shared::process::{Scratch, Server, free_port};
use crate::options::Options;
use crate::say;
use clients::Clients;
use origin::Origin;

pub(crate) const HELP: &str = "\
Measures bursts of thousands of clients for one object.

usage: cargo xtask bench-herd [options]

  --clients N        clients of the cold and of the stale object [10000]
  --uncacheable N    clients of the uncacheable object [800]
  --size SIZE        size of the cold object [10000000]
  --small-size SIZE  size of the stale and of the uncacheable object [64KiB]
  --latency-ms N     latency of the origin [1000]
  --hot SIZE         capacity of the memory tier [256MiB]
  --policy NAME      policy of the edge [density]
  --workers N        workers of the edge [2]
  --edgeward NAME    a cargo profile or a path to the binary [release]
  --out FOLDER       for result.json and summary.md [bench/scratch/herd]

The kernel distributes the clients over the workers by a hash. Above about 950
clients of the uncacheable object, one of two workers can need more than its
512 origin connections. Its requests then take turns.
";

/// The longest time from the origin's first byte to the first byte of the last client of the cold object.
const FIRST_BYTE_MAX: Duration = Duration::from_millis(1200);

/// The memory of an HTTP/1.1 connection and its request, beside the base. The documented bound is 64 KiB.
const CONNECTION_BYTES: u64 = 16 << 10;

/// The default of `origin.connections_per_worker_max`.
const ORIGIN_CONNECTIONS_PER_WORKER: u64 = 512;

/// The time from the arrival of the stale object to its burst. The object is fresh for two seconds.
const TO_STALENESS: Duration = Duration::from_millis(2500);

/// The longest time from the end of a burst to the last request at the origin.
const SETTLING: Duration = Duration::from_secs(20);

struct Plan {
    clients: usize,
    uncacheable: usize,
    size: u64,
    small_size: u64,
    latency: Duration,
    hot: u64,
    policy: String,
    workers: u64,
    edgeward: PathBuf,
    out: PathBuf,
}

/// Runs the benchmark. Returns true if all goals are met.
pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<bool> {
    let plan = Plan {
        clients: options.count("--clients", 10_000)?,
        uncacheable: options.count("--uncacheable", 800)?,
        size: options.size("--size", 10_000_000)?,
        small_size: options.size("--small-size", 64 << 10)?,
        latency: Duration::from_millis(options.count("--latency-ms", 1000)?),
        hot: options.size("--hot", 256 << 20)?,
        policy: options.text("--policy", "density"),
        workers: options.count("--workers", 2)?,
        edgeward: options.edgeward(root, "release")?,
        out: options.path("--out", root, "bench/scratch/herd"),
    };
    raise_open_files()?;
    fs::create_dir_all(&plan.out).with_context(|| plan.out.display().to_string())?;
    let machine = facts::common(root, &plan.edgeward);
    let rows = plan.measure()?;
    let summary = summary(&machine, &rows);
    let result = json!({ "machine": machine, "bursts": rows });
    fs::write(plan.out.join("result.json"), format!("{result:#}\n"))?;
    fs::write(plan.out.join("summary.md"), &summary)?;
    say(&summary);
    Ok(rows.iter().all(|row| row["met"] == true))
}

/// An edge and its origin.
struct Bed {
    origin: Origin,
    edge: Server,
    port: u16,
    admin: u16,
}

/// A burst of requests, and the laws that its responses must obey.
struct Case {
    name: &'static str,
    clients: usize,
    target: String,
    /// The requests at the origin.
    origin_requests: usize,
    /// The responses that pass the closed gate of the origin, and the waiting requests that open it.
    gate: Option<(usize, usize)>,
    first_byte_max: Option<Duration>,
    /// True if the edge may answer 503, because the requests exceed the limit of origin connections.
    may_refuse: bool,
}

impl Plan {
    fn cases(&self) -> [Case; 5] {
        let (size, small) = (self.size, self.small_size);
        let uncacheable = |name, clients, target| Case {
            name,
            clients,
            target,
            origin_requests: clients,
            gate: None,
            first_byte_max: None,
            may_refuse: false,
        };
        let beyond = 2 * usize::try_from(self.pool_max()).expect("a few thousand");
        let count = self.uncacheable;
        let target = format!("/uncacheable/{small}");
        [
            Case {
                name: "cold",
                clients: self.clients,
                target: format!("/shared/{size}"),
                origin_requests: 1,
                gate: None,
                first_byte_max: Some(FIRST_BYTE_MAX),
                may_refuse: false,
            },
            Case {
                name: "stale",
                clients: self.clients,
                target: format!("/shared/{small}"),
                origin_requests: 1,
                gate: Some((0, usize::MAX)),
                first_byte_max: None,
                may_refuse: false,
            },
            Case {
                // All clients wait for the first response. Then the others send their own requests.
                gate: Some((1, count - 1)),
                ..uncacheable("uncacheable", count, target.clone())
            },
            Case {
                gate: Some((0, count)),
                ..uncacheable("uncacheable again", count, target.clone())
            },
            Case {
                may_refuse: true,
                ..uncacheable("beyond the limit", beyond, target)
            },
        ]
    }

    /// Returns the most connections of the edge to the origin.
    fn pool_max(&self) -> u64 {
        ORIGIN_CONNECTIONS_PER_WORKER * self.workers
    }

    fn measure(&self) -> anyhow::Result<Vec<Value>> {
        let scratch = Scratch::new(&std::env::temp_dir())?;
        let origin = Origin::start(self.latency)?;
        let (port, admin) = (free_port()?, free_port()?);
        let line = format!(
            "serve --listen 127.0.0.1:{port} --admin 127.0.0.1:{admin} --origin http://127.0.0.1:{} \
             --hot {} --policy {} --workers {}",
            origin.port, self.hot, self.policy, self.workers
        );
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let edge = Server::start_unpinned("edge", &self.edgeward, &words, port, &scratch.path)?;
        let bed = Bed {
            origin,
            edge,
            port,
            admin,
        };
        let mut rows = Vec::new();
        for case in self.cases() {
            if case.name == "stale" {
                Clients::connect(1, bed.port)?.request(&case.target)?;
                std::thread::sleep(TO_STALENESS);
            }
            rows.push(self.burst(&bed, &case)?);
        }
        Ok(rows)
    }

    fn burst(&self, bed: &Bed, case: &Case) -> anyhow::Result<Value> {
        let clients = Clients::connect(case.clients, bed.port)?;
        bed.origin.take_connections_max();
        let requests_before = bed.origin.first_bytes(&case.target).len();
        let collapsed_before = bed.metric("edgeward_requests_collapsed_total")?;
        let pid = bed.edge.pid();
        // Resets the peak of the resident set, `VmHWM` (proc(5)).
        fs::write(format!("/proc/{pid}/clear_refs"), "5").context("the peak of the memory")?;
        let cpu = || anyhow::Ok((bed.edge.cpu_seconds()?, own_cpu_seconds()?));
        let (edge_before, own_before) = cpu()?;
        if let Some((passing, opens_at)) = case.gate {
            bed.origin.close_gate(passing, opens_at);
        }
        let burst = clients.request(&case.target)?;
        let (edge_after, own_after) = cpu()?;
        let held_in_time = bed.origin.open_gate();
        let origin = bed.origin_requests(case, requests_before, burst.refused);
        let page = status(bed.admin)?;
        let peak = peak_bytes(pid)?;
        let fills = count(&page["fills"], "bytes");
        let budget = (self.hot + base_bytes(self.workers) + fills) as f64 * MEMORY_RATIO_MAX;
        let budget = budget as u64 + case.clients as u64 * CONNECTION_BYTES;
        let connections = bed.origin.take_connections_max();
        let (measured_from, from) = match case.name {
            "cold" => (
                "first byte of the origin",
                origin.first().copied().unwrap_or(burst.start),
            ),
            _ => ("start of the burst", burst.start),
        };
        let first_bytes = burst.first_byte_seconds(from);
        let is_in_time = case
            .first_byte_max
            .is_none_or(|most| first_bytes.last <= most.as_secs_f64());
        let met = burst.errors == 0
            && (burst.refused == 0 || case.may_refuse)
            && origin.len() == case.origin_requests - burst.refused
            && held_in_time
            && is_in_time
            && connections <= self.pool_max()
            && peak <= budget;
        let row = json!({
            "burst": case.name,
            "clients": case.clients,
            "body_bytes": burst.body_bytes,
            "errors": burst.errors,
            "refused": burst.refused,
            "origin_requests": origin.len(),
            "origin_requests_expected": case.origin_requests,
            "origin_connections_max": connections,
            "held_back_in_time": held_in_time,
            "collapsed": bed.metric("edgeward_requests_collapsed_total")? - collapsed_before,
            "sending_seconds": burst.sending.as_secs_f64(),
            "whole_seconds": burst.whole.as_secs_f64(),
            "edge_peak_bytes": peak,
            "edge_budget_bytes": budget,
            "edge_cpu_seconds": edge_after - edge_before,
            "clients_and_origin_cpu_seconds": own_after - own_before,
            "first_byte_seconds": {
                "p50": first_bytes.p50, "p99": first_bytes.p99, "last": first_bytes.last,
            },
            "first_byte_max_seconds": case.first_byte_max.map(|most| most.as_secs_f64()),
            "measured_from": measured_from,
            "met": met,
        });
        eprintln!("  {row}");
        Ok(row)
    }
}

impl Bed {
    /// Returns the times at which the origin began to answer the requests of a burst. A validation in the background
    /// ends after its burst.
    fn origin_requests(&self, case: &Case, before: usize, refused: usize) -> Vec<Instant> {
        let deadline = Instant::now() + SETTLING;
        loop {
            let times = self.origin.first_bytes(&case.target).split_off(before);
            if times.len() + refused >= case.origin_requests || Instant::now() >= deadline {
                return times;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns the value of a metric without labels.
    fn metric(&self, name: &str) -> anyhow::Result<u64> {
        let page = Client::connect(self.admin)?.get_page("/metrics")?;
        let page = String::from_utf8(page)?;
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        let value = line.with_context(|| format!("the metric {name}"))?;
        Ok(value.trim().parse()?)
    }
}

/// Returns the CPU time of this process without its children: the clients and the origin.
fn own_cpu_seconds() -> anyhow::Result<f64> {
    let clock = rustix::time::ClockId::ProcessCPUTime;
    let time = rustix::time::clock_gettime(clock);
    Ok(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

/// Returns the largest resident set of a process since its peak was reset.
fn peak_bytes(pid: u32) -> anyhow::Result<u64> {
    let page = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = page.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.context("VmHWM")?.parse::<u64>()? << 10)
}

/// Raises the soft limit of open files to the hard limit, for this process and the edge.
fn raise_open_files() -> anyhow::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, raised).context("the limit of open files")
}

fn summary(machine: &Value, rows: &[Value]) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let goal = |value: &Value| {
        value
            .as_f64()
            .map_or_else(|| "–".into(), |most| format!("{most:.2}"))
    };
    let lines: Vec<_> = rows
        .iter()
        .map(|row| {
            let first = &row["first_byte_seconds"];
            let mib = |key: &str| number(&row[key]) / f64::from(1 << 20);
            format!(
                "| {} | {} | {} | {} | {:.2} | {:.2} | {:.2} | {} | {} | {:.0} of {:.0} | {:.1} | {:.1} / {:.1} | {} |",
                text(&row["burst"]),
                row["clients"],
                row["origin_requests"],
                row["origin_connections_max"],
                number(&first["p50"]),
                number(&first["p99"]),
                number(&first["last"]),
                goal(&row["first_byte_max_seconds"]),
                row["refused"],
                mib("edge_peak_bytes"),
                mib("edge_budget_bytes"),
                number(&row["whole_seconds"]),
                number(&row["edge_cpu_seconds"]),
                number(&row["clients_and_origin_cpu_seconds"]),
                if row["met"] == true { "yes" } else { "**no**" },
            )
        })
        .collect();
    format!(
        "# Many clients of one object, {}\n\n\
         `cargo xtask {}` at commit {}, {} cores of {}, load {}.\n\n\
         First byte: seconds from the first byte of the origin (cold) or from the start of the burst (others) to the \
         first byte of a client. Memory: the peak of the resident set and its budget, MiB. Whole: seconds until the \
         last byte. CPU: seconds of the edge / of the clients and the origin, which share the cores. The laws: \
         bench/README.md.\n\n\
         | burst | clients | origin requests | origin connections | p50 | p99 | last | goal | 503 | memory | whole \
         | CPU | met |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n{}\n",
        text(&machine["date"]),
        text(&machine["command"]),
        text(&machine["commit"]),
        machine["cores"],
        text(&machine["cpu"]),
        machine["load_average"],
        lines.join("\n"),
    )
}
