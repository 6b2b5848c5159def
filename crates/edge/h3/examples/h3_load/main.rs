//! A client of HTTP/3 for benchmarks, on quinn: the loads of `bench/h3/plan.toml`.
//!
//! ```text
//! usage: h3_load LOAD ADDRESS CERTIFICATE PATH CONNECTIONS NUMBERS…
//!
//! requests  … STREAMS SECONDS  requests on kept connections, on each one this many at a time
//! downloads … SECONDS          one response after another on each connection, and the longest wait for bytes
//! moves     … MOVES            one request after another on each connection, each from a new port
//! idle      … PID              connections after one request, and the memory that they take of the server's process
//! ```
//!
//! The file CERTIFICATE has a certificate of `localhost`, the only one that is trusted. Each connection has a socket of
//! its own. Prints one line of JSON.
#![expect(clippy::print_stdout, reason = "it prints its result")]

mod loads;

use std::error::Error;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use loads::{Stats, Target};
use serde_json::{Value, json};
use tokio::task::LocalSet;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [load, address, certificate, path, connections, numbers @ ..] = &words[..] else {
        return Err("usage: h3_load LOAD ADDRESS CERTIFICATE PATH CONNECTIONS NUMBERS…".into());
    };
    let target = Rc::new(Target::new(address.parse()?, Path::new(certificate), path)?);
    let connections = connections.parse()?;
    let numbers = numbers.iter().map(|number| number.parse());
    let numbers: Vec<u32> = numbers.collect::<Result<_, _>>()?;
    let seconds = |number: u32| Duration::from_secs(number.into());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let run = async {
        Ok::<_, Box<dyn Error>>(match (load.as_str(), &numbers[..]) {
            ("requests", &[streams, length]) => {
                report(&loads::requests(&target, connections, streams, seconds(length)).await?)?
            }
            ("downloads", &[length]) => {
                report(&loads::downloads(&target, connections, seconds(length)).await?)?
            }
            ("moves", &[moves]) => report(&loads::moves(&target, connections, moves).await?)?,
            ("idle", &[pid]) => {
                let memory = || resident_bytes(pid);
                let (before, after) = loads::idle(&target, connections, memory).await?;
                json!({
                    "connections": connections,
                    "errors": 0,
                    "memory_before_bytes": before,
                    "memory_after_bytes": after,
                    "bytes_per_connection": after.saturating_sub(before) / u64::from(connections),
                })
            }
            _ => return Err(format!("{load} has other numbers, or there is no such load").into()),
        })
    };
    let result = LocalSet::new().block_on(&runtime, run)?;
    println!("{result}");
    Ok(())
}

fn report(stats: &Stats) -> Result<Value, Box<dyn Error>> {
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(json!({
        "requests": stats.requests,
        "errors": stats.errors,
        "refused": stats.refused,
        "stateless_resets": stats.stateless_resets,
        "connections": stats.connections,
        "client_bytes": stats.bytes,
        "seconds": stats.seconds,
        "client_cpu_seconds": cpu_seconds()?,
        "latency_p50_ms": milliseconds(stats.latency(50)),
        "latency_p90_ms": milliseconds(stats.latency(90)),
        "latency_p99_ms": milliseconds(stats.latency(99)),
        "stall_longest_ms": milliseconds(stats.longest_stall),
        "stalls": stats.stalls,
        "reset_wait_longest_ms": milliseconds(stats.longest_reset_wait),
    }))
}

/// Returns the CPU time of this process.
fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(") ").ok_or("not the format of proc(5)")?;
    let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? / TICKS_PER_SECOND)
}

/// Returns the resident memory of a process.
fn resident_bytes(pid: u32) -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.ok_or("the process has ended")?.trim_end_matches("kB");
    Ok(kilobytes.trim().parse::<u64>()? << 10)
}

/// The unit of CPU times in proc(5), on all architectures of Linux that the edge runs on.
const TICKS_PER_SECOND: f64 = 100.0;
