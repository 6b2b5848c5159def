//! Measures how much an attack slows down a well-behaved client.
//!
//! One edge on its own core serves a well-behaved client, which requests hits over persistent connections as fast as
//! possible and one miss after another. First the client is alone (the calm phase), then each attack runs
//! beside the client. There are three figures: the remaining hits per second, the 99th percentile of the
//! misses' latency, and the edge's peak memory.
//!
//! The attackers are threads of this process, which send to loopback only, from their own loopback addresses, and the
//! program slowhttptest, which has the address of the client. Connections, frames per second and duration are limited.

mod attacks;
pub(crate) mod client;
mod cpu_time;
mod h2;
mod kinds;
mod ordinary;
mod slowhttptest;
mod test_servers;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::bench_memory::MEMORY_RATIO_MAX;
use crate::bench_shared::facts;
use crate::options::{Options, edgeward_binary};
use crate::say;

use kinds::{Attack, Body, Strength};
use test_servers::TestServers;

pub(crate) const HELP: &str = "\
Measures hits, misses and memory of an edge during attacks.

usage: cargo xtask bench-attacks [options]

  --attacks LIST     pinned-h2, pinned-h1, hpack, slow-posts, closed-windows,
                     rapid-reset, frame-flood, idle, admin, publisher,
                     gateway, slowhttptest-headers, slowhttptest-body,
                     slowhttptest-read, slowhttptest-range [all]
  --strength WHAT    moderate: per second 70 MB of bodies, 20,000 frames, 100
                     new connections; strong: as many bodies as the edge can
                     fetch, 1,000,000 frames, 1,000 connections [moderate]
  --seconds N        duration of the calm phase and of each attack [20]
  --hot SIZE         capacity of the edge's memory tier [128MiB]
  --server-core N    core of the edge [0]
  --client-core N    core of the client, the origin and the attackers [1]
  --edgeward NAME    a cargo profile or a path to the binary [release]
  --origin-binary NAME  the binary of the origin, if the origin of --edgeward
                     does not support the query parameter `delay` [that of
                     --edgeward]
  --out FOLDER       for runs.jsonl and summary.md [bench/scratch/attacks]
";

struct Plan {
    attacks: Vec<Attack>,
    strength: Strength,
    seconds: u64,
    hot: String,
    server_core: u32,
    client_core: u32,
    edgeward: PathBuf,
    origin_binary: PathBuf,
    out: PathBuf,
}

/// The goal for hits per second of CPU time that was left to the client: at least this share of the same value in the
/// calm phase.
const HITS_SHARE_MIN: f64 = 0.9;
/// The goal for the p99 of the misses' latency: less than this multiple of its value in the calm phase.
const MISS_P99_RATIO_MAX: f64 = 2.0;

pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<bool> {
    let plan = Plan::parse(root, options)?;
    fs::create_dir_all(&plan.out).with_context(|| plan.out.display().to_string())?;
    test_servers::pin_this_process(plan.client_core)?;
    let machine = facts::common(root, &plan.edgeward);
    let mut raw = File::create(plan.out.join("runs.jsonl"))?;
    let mut rows = Vec::new();
    for &attack in &plan.attacks {
        // Each attack gets a fresh edge, so that the effects of one attack do not change the figures of the next.
        let test_servers = TestServers::start(&plan, attack)?;
        let seconds = Duration::from_secs(plan.seconds);
        let memory_bytes_bound = test_servers.memory_bytes_bound;
        client::fill(&test_servers)?;
        let calm = client::measure(&test_servers, seconds, || 0.0)?;
        let running = attacks::start(attack, plan.strength, &test_servers)?;
        let bytes_before = attack
            .body()
            .map(|_| test_servers.origin_bytes())
            .transpose()?;
        let attacked = client::measure(&test_servers, seconds, || running.cpu_seconds())?;
        let sent = running.stop();
        let bytes_after = attack
            .body()
            .map(|_| test_servers.origin_bytes())
            .transpose()?;
        let rate = bytes_before.zip(bytes_after);
        let rate = rate.map(|(before, after)| (after - before) / seconds.as_secs_f64());
        drop(test_servers);
        let ordinary = match attack.body().zip(rate) {
            Some((body, rate)) => beside_ordinary_traffic(&plan, attack, body, rate)?,
            None => Value::Null,
        };
        let row = json!({
            "attack": attack.name(),
            "calm": calm,
            "attacked": attacked,
            "hits_share": ratio(&attacked, &calm, "hits_per_client_second"),
            "hits_share_raw": ratio(&attacked, &calm, "hits_per_second"),
            "miss_p99_ratio": ratio(&attacked, &calm, "miss_p99_ms"),
            "memory_bytes_max": attacked["memory_bytes_max"],
            "memory_bytes_bound": memory_bytes_bound,
            "strength": plan.strength.name(),
            "sent": sent,
            "origin_bytes_per_second": rate,
            "ordinary": ordinary,
            "ordinary_hits_share": ratio(&ordinary, &calm, "hits_per_client_second"),
            "ordinary_miss_p99_ratio": ratio(&ordinary, &calm, "miss_p99_ms"),
            // CPU ticks since boot that the host took from this virtual machine.
            "stolen": facts::stolen().0,
        });
        eprintln!("  {}", line(&row));
        writeln!(raw, "{row}")?;
        rows.push(row);
    }
    let text = summary(&machine, &rows);
    fs::write(plan.out.join("summary.md"), &text)?;
    fs::write(plan.out.join("machine.json"), format!("{machine:#}\n"))?;
    say(&text);
    Ok(rows.iter().all(is_met))
}

impl Plan {
    fn parse(root: &Path, options: &Options) -> anyhow::Result<Self> {
        Ok(Self {
            attacks: options.choice("--attacks", &Attack::ALL, Attack::name)?,
            strength: {
                let name = options.text("--strength", "moderate");
                let known = Strength::ALL.into_iter().find(|one| one.name() == name);
                known.with_context(|| format!("--strength {name}: write moderate or strong"))?
            },
            seconds: options.number("--seconds", 20)?,
            hot: options.text("--hot", "128MiB"),
            server_core: options.number("--server-core", 0)?,
            client_core: options.number("--client-core", 1)?,
            edgeward: options.edgeward(root, "release")?,
            origin_binary: {
                let tested = options.text("--edgeward", "release");
                edgeward_binary(&options.text("--origin-binary", &tested), root)?
            },
            out: options.path("--out", root, "bench/scratch/attacks"),
        })
    }
}

/// Measures the client beside a second well-behaved client, which downloads as many bytes as the attack made the edge
/// fetch.
fn beside_ordinary_traffic(
    plan: &Plan,
    attack: Attack,
    body: Body,
    bytes_per_second: f64,
) -> anyhow::Result<Value> {
    let test_servers = TestServers::start(plan, attack)?;
    client::fill(&test_servers)?;
    let running = ordinary::start(body, bytes_per_second, test_servers.port());
    let length = Duration::from_secs(plan.seconds);
    let mut measured = client::measure(&test_servers, length, || running.cpu_seconds())?;
    measured["taken"] = running.stop();
    Ok(measured)
}

fn ratio(attacked: &Value, calm: &Value, key: &str) -> f64 {
    let number = |of: &Value| of[key].as_f64().unwrap_or(f64::NAN);
    number(attacked) / number(calm)
}

fn is_met(row: &Value) -> bool {
    let number = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
    number("hits_share") >= HITS_SHARE_MIN
        && number("miss_p99_ratio") < MISS_P99_RATIO_MAX
        && row["memory_bytes_bound"]
            .as_f64()
            .is_none_or(|bound| number("memory_bytes_max") <= bound)
        && row["attacked"]["errors"] == 0
}

fn line(row: &Value) -> String {
    let number = |of: &Value| of.as_f64().unwrap_or(f64::NAN);
    let ordinary = |key: &str| {
        row[key]
            .as_f64()
            .map_or_else(|| "–".to_owned(), |n| format!("{n:.2}"))
    };
    let mib = |key: &str| {
        let bytes = row[key].as_f64();
        bytes.map_or_else(
            || "–".to_owned(),
            |bytes| format!("{:.0}", bytes / f64::from(1 << 20)),
        )
    };
    format!(
        "| {} | {:.0} | {:.0} | {:.2} | {:.2} | {} | {:.1} | {:.1} | {:.2} | {} | {} of {} | {} | {} |",
        row["attack"].as_str().unwrap_or_default(),
        number(&row["calm"]["hits_per_second"]),
        number(&row["attacked"]["hits_per_second"]),
        number(&row["hits_share_raw"]),
        number(&row["hits_share"]),
        ordinary("ordinary_hits_share"),
        number(&row["calm"]["miss_p99_ms"]),
        number(&row["attacked"]["miss_p99_ms"]),
        number(&row["miss_p99_ratio"]),
        ordinary("ordinary_miss_p99_ratio"),
        mib("memory_bytes_max"),
        mib("memory_bytes_bound"),
        row["attacked"]["errors"],
        if is_met(row) { "yes" } else { "**no**" },
    )
}

fn summary(machine: &Value, rows: &[Value]) -> String {
    let lines: Vec<_> = rows.iter().map(line).collect();
    format!(
        "# A well-behaved client beside attacks, {}\n\n\
         `cargo xtask {}` at commit {}, {} cores of {}, load {}.\n\n\
         \"Of the client's time\": hits per second of the CPU time that was left to the client, divided by the same \
         value of the calm phase. The origin, the attackers and the client share one core.\n\n\
         Met: these hits are at least {HITS_SHARE_MIN} of those of the calm phase, the misses' p99 is below \
         {MISS_P99_RATIO_MAX} times its value in the calm phase, memory is within \
         (hot + fill budget + base) x {MEMORY_RATIO_MAX}, and no request of the client failed.\n\n\
         \"As ordinary traffic\": instead of the attack, a second client downloads as many bytes as the attack made \
         the edge fetch. The strength of the attacks is {}.\n\n\
         | attack | hits/s, calm | attacked | share | of the client's time | as ordinary traffic | miss p99 ms, calm | attacked | ratio \
         | as ordinary traffic | MiB, largest of allowed | errors | met |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|\n{}\n",
        machine["date"].as_str().unwrap_or_default(),
        machine["command"].as_str().unwrap_or_default(),
        machine["commit"].as_str().unwrap_or_default(),
        machine["cores"],
        machine["cpu"].as_str().unwrap_or_default(),
        machine["load_average"],
        rows.first()
            .map_or("", |row| row["strength"].as_str().unwrap_or_default()),
        lines.join("\n"),
    )
}
