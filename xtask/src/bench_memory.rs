//! Measures the memory of an edge under churn: objects enter and leave the cache.
//!
//! Each combination of a kind of objects and a capacity, called a cell, has a fresh edge and a synthetic origin
//! on loopback. Connections request objects as fast as possible. Most objects are new, some were requested
//! recently, and a few are requested repeatedly. The edge moves large bodies with several hits to a file in
//! memory (`memfd`). Meanwhile the edge's memory is sampled.
//!
//! The limit of a sample is (hot.capacity + the fills at that moment + the documented base) x 1.1. A limit
//! with `limits.fill_bytes_max` (256 MiB by default) instead of the current fills would be higher.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use serde_json::{Value, json};

use crate::bench_attacks::client::Connection;
use crate::bench_disk::servers::{Edge, Origin, count};
use crate::bench_shared::client::Client;
use crate::bench_shared::facts;
use crate::bench_shared::process::Scratch;
use crate::options::Options;
use crate::say;

pub(crate) const HELP: &str = "\
Measures the memory of an edge with changing objects.

usage: cargo xtask bench-memory [options]

  --objects LIST     kinds of objects: small (200 B to 10 KiB), mixed (200 B to
                     8 MiB), large (1 to 8 MiB) [all]
  --hot LIST         capacities of the memory tier [64MiB,128MiB,512MiB]
  --seconds N        duration for each kind and capacity, after the cache is
                     full [60]
  --connections N    connections of the clients [16]
  --workers N        workers of the edge [2]
  --policy NAME      policy of the edge [density]
  --edgeward NAME    a cargo profile or a path to the binary [release]
  --out FOLDER       for samples.jsonl and summary.md [bench/scratch/memory]
";

/// Returns the documented base in bytes: the memory of an edge without TLS and disk, besides the cache and the fills
/// (docs/explanation/memory.md).
pub(crate) const fn base_bytes(workers: u64) -> u64 {
    (33 + workers) * (512 << 10)
}

/// The limit of memory, as a multiple of the sum of capacity, fills and base.
pub(crate) const MEMORY_RATIO_MAX: f64 = 1.1;

const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);

/// The warm-up ends when the clients have received this multiple of the capacity, at the latest after 120 s.
const WARMUP_CAPACITIES: u64 = 2;

/// The number of popular objects, which every client requests repeatedly.
const POPULAR: u64 = 16;

#[derive(Clone, Copy, Debug)]
enum Objects {
    Small,
    Mixed,
    Large,
}

impl Objects {
    const ALL: [Self; 3] = [Self::Small, Self::Mixed, Self::Large];

    fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Mixed => "mixed",
            Self::Large => "large",
        }
    }

    /// Returns the size of an object in bytes, a function of its number. The logarithms of the sizes are uniformly
    /// distributed.
    fn size(self, object: u64) -> u64 {
        let (least, most) = match self {
            Self::Small => (200.0_f64, 10_240.0),
            Self::Mixed => (200.0, 8_388_608.0),
            Self::Large => (1_048_576.0, 8_388_608.0),
        };
        (least * (most / least).powf(share(object))) as u64
    }
}

/// Maps a number to a pseudo-random value from 0 to 1.
fn share(number: u64) -> f64 {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1_u64 << 53) as f64
}

struct Plan {
    objects: Vec<Objects>,
    capacities: Vec<u64>,
    seconds: u64,
    connections: u64,
    workers: u64,
    policy: String,
    edgeward: PathBuf,
    out: PathBuf,
}

/// Runs the benchmark. Returns true if no sample exceeded its limit.
pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<bool> {
    let plan = Plan {
        objects: options.choice("--objects", &Objects::ALL, Objects::name)?,
        capacities: options.sizes("--hot", "64MiB,128MiB,512MiB")?,
        seconds: options.count("--seconds", 60)?,
        connections: options.count("--connections", 16)?,
        workers: options.count("--workers", 2)?,
        policy: options.text("--policy", "density"),
        edgeward: options.edgeward(root, "release")?,
        out: options.path("--out", root, "bench/scratch/memory"),
    };
    fs::create_dir_all(&plan.out).with_context(|| plan.out.display().to_string())?;
    let machine = facts::common(root, &plan.edgeward);
    let mut raw = File::create(plan.out.join("samples.jsonl"))?;
    let mut cells = Vec::new();
    for &objects in &plan.objects {
        for &capacity in &plan.capacities {
            let cell = plan.measure(objects, capacity, &mut raw)?;
            eprintln!("  {}", line(&cell));
            cells.push(cell);
        }
    }
    let text = plan.summary(&machine, &cells);
    fs::write(plan.out.join("summary.md"), &text)?;
    fs::write(plan.out.join("machine.json"), format!("{machine:#}\n"))?;
    say(&text);
    Ok(cells.iter().all(|cell| cell["met"] == true))
}

/// A sample of `/status`.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// The time since the end of the warm-up.
    seconds: f64,
    /// The memory of the edge's process in bytes, with its file in memory.
    memory: u64,
    /// Bytes charged to cached objects, and to evicted objects that are still being sent.
    charged: u64,
    /// Bytes of responses that are being received from the origin.
    fills: u64,
    /// The limit of the memory at the time of the sample.
    bound: u64,
}

impl Sample {
    /// Returns the memory divided by the limit. A value above 1 exceeds the limit.
    fn share_of_bound(&self) -> f64 {
        self.memory as f64 / self.bound as f64
    }
}

impl Plan {
    fn measure(&self, objects: Objects, capacity: u64, raw: &mut File) -> anyhow::Result<Value> {
        let scratch = Scratch::new(&std::env::temp_dir())?;
        let origin = Origin::start(&self.edgeward, None, &scratch.path)?;
        let more = format!(
            "--hot {capacity} --policy {} --workers {}",
            self.policy, self.workers
        );
        let edge = Edge::start(&self.edgeward, "edge", &origin, &more, None, &scratch.path)?;
        // The memory before the first request.
        let fresh = count(&first_status(&edge)?, "memory_bytes");
        let (is_over, bytes) = (AtomicBool::new(false), AtomicU64::new(0));
        let (samples, seconds, cpu_seconds) = thread::scope(|scope| {
            let clients: Vec<_> = (1..=self.connections)
                .map(|client| {
                    let (port, is_over, bytes) = (edge.port, &is_over, &bytes);
                    scope.spawn(move || request_objects(port, objects, client, is_over, bytes))
                })
                .collect();
            let samples = self.sample(&edge, capacity, &bytes);
            is_over.store(true, Ordering::Relaxed);
            for client in clients {
                client.join().map_err(|_| anyhow!("a client panicked"))??;
            }
            samples
        })?;
        let label = format!("{}, {} MiB", objects.name(), capacity >> 20);
        // The file has one line per second: the sample with the most memory.
        for second in samples.chunk_by(|a, b| a.seconds as u64 == b.seconds as u64) {
            let most = second.iter().max_by_key(|sample| sample.memory);
            if let Some(most) = most {
                let row = json!({
                    "cell": label,
                    "second": most.seconds as u64,
                    "memory_bytes_max": most.memory,
                    "charged_bytes": most.charged,
                    "fills_bytes": most.fills,
                    "samples": second.len(),
                });
                writeln!(raw, "{row}")?;
            }
        }
        let worst = samples
            .iter()
            .max_by(|a, b| a.share_of_bound().total_cmp(&b.share_of_bound()))
            .context("no sample was taken")?;
        let mut memory: Vec<u64> = samples.iter().map(|sample| sample.memory).collect();
        memory.sort_unstable();
        Ok(json!({
            "cell": label,
            "fresh": fresh,
            "median": memory[memory.len() / 2],
            "p99": memory[memory.len() * 99 / 100],
            "peak": memory.last(),
            "worst": worst.memory,
            "worst_charged": worst.charged,
            "worst_fills": worst.fills,
            "bound": worst.bound,
            "met": worst.share_of_bound() <= 1.0,
            "samples": samples.len(),
            "mb_per_second": bytes.into_inner() as f64 / 1e6 / seconds,
            "cpu_seconds": cpu_seconds,
            "seconds": seconds,
        }))
    }

    /// Returns the samples after the warm-up, their duration, and the CPU time of the edge during it.
    fn sample(
        &self,
        edge: &Edge,
        capacity: u64,
        bytes: &AtomicU64,
    ) -> anyhow::Result<(Vec<Sample>, f64, f64)> {
        let warmup_end = Instant::now() + Duration::from_secs(120);
        while bytes.load(Ordering::Relaxed) < WARMUP_CAPACITIES * capacity
            && Instant::now() < warmup_end
        {
            thread::sleep(SAMPLE_INTERVAL);
        }
        bytes.store(0, Ordering::Relaxed);
        let cpu = edge.server.cpu_seconds()?;
        let mut admin = Client::connect(edge.admin)?;
        let begun = Instant::now();
        let mut samples = Vec::new();
        while begun.elapsed() < Duration::from_secs(self.seconds) {
            let status: Value = serde_json::from_slice(&admin.get_page("/status")?)?;
            let fills = count(&status["fills"], "bytes");
            let expected = capacity + fills + base_bytes(self.workers);
            samples.push(Sample {
                seconds: begun.elapsed().as_secs_f64(),
                memory: count(&status, "memory_bytes"),
                charged: count(&status["hot"], "used_bytes")
                    + count(&status["hot"], "pinned_bytes"),
                fills,
                bound: (expected as f64 * MEMORY_RATIO_MAX) as u64,
            });
            thread::sleep(SAMPLE_INTERVAL);
        }
        let cpu = edge.server.cpu_seconds()? - cpu;
        Ok((samples, begun.elapsed().as_secs_f64(), cpu))
    }

    fn summary(&self, machine: &Value, cells: &[Value]) -> String {
        let lines: Vec<_> = cells.iter().map(line).collect();
        format!(
            "# Memory while objects enter and leave the cache, {}\n\n\
             `cargo xtask {}` at commit {}, {} cores of {}, load {}.\n\n\
             Bound: (hot.capacity + fills at that moment + documented base of {:.1} MiB) x {MEMORY_RATIO_MAX}. \
             Met: no sample is above its bound. \"of bound\" is the largest share of its bound that a \
             sample reached. Fresh: the memory before the first request. Memory in MiB.\n\n\
             | objects, hot | fresh | median | p99 | peak | bound | of bound | met | MB/s | CPU s per GB |\n\
             |---|---|---|---|---|---|---|---|---|---|\n{}\n",
            machine["date"].as_str().unwrap_or_default(),
            machine["command"].as_str().unwrap_or_default(),
            machine["commit"].as_str().unwrap_or_default(),
            machine["cores"],
            machine["cpu"].as_str().unwrap_or_default(),
            machine["load_average"],
            base_bytes(self.workers) as f64 / f64::from(1 << 20),
            lines.join("\n"),
        )
    }
}

/// Waits until the admin server listens, which may be slightly later than the edge itself.
fn first_status(edge: &Edge) -> anyhow::Result<Value> {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        match edge.status() {
            Err(_) if Instant::now() < end => thread::sleep(SAMPLE_INTERVAL),
            answer => return answer,
        }
    }
}

fn line(cell: &Value) -> String {
    let number = |key: &str| cell[key].as_f64().unwrap_or(f64::NAN);
    let mib = |key: &str| number(key) / f64::from(1 << 20);
    let gigabytes = number("mb_per_second") * number("seconds") / 1e3;
    format!(
        "| {} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.3} | {} | {:.0} | {:.2} |",
        cell["cell"].as_str().unwrap_or_default(),
        mib("fresh"),
        mib("median"),
        mib("p99"),
        mib("peak"),
        mib("bound"),
        number("worst") / number("bound"),
        if cell["met"] == true { "yes" } else { "**no**" },
        number("mb_per_second"),
        number("cpu_seconds") / gigabytes,
    )
}

/// Requests objects until `is_over` is set. One request in sixteen is for a popular object, one in four is for the
/// object that was new ten objects ago, and the others are for new objects.
fn request_objects(
    port: u16,
    objects: Objects,
    client: u64,
    is_over: &AtomicBool,
    bytes: &AtomicU64,
) -> anyhow::Result<()> {
    let mut connection = Connection::open(port)?;
    let mut new = client << 32;
    for number in 0_u64.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let object = if number % 16 == 0 {
            1 + (share(number * client) * POPULAR as f64) as u64
        } else if number % 4 == 3 {
            new.saturating_sub(10).max((client << 32) + 1)
        } else {
            new += 1;
            new
        };
        let size = objects.size(object);
        connection.get(&format!("/o/{object}?size={size}"))?;
        bytes.fetch_add(size, Ordering::Relaxed);
    }
    Ok(())
}
