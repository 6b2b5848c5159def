//! Runs wrk, or h2load for HTTP/2, against one server.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::plan::{Plan, Transport, Workload};
use super::process::find;

/// The counts and latencies that the client measured.
#[derive(Debug, PartialEq)]
pub(crate) struct LoadResult {
    /// For wrk all completed requests, for h2load only those with a response of status 2xx or 3xx.
    pub(crate) requests: u64,
    pub(crate) duration: Duration,
    pub(crate) errors: u64,
    /// The p50, p90, p99, p99.9 and maximum latency in microseconds, as wrk's script prints them. Null for
    /// h2load, which reports no percentiles.
    pub(crate) latency_us: Value,
}

impl LoadResult {
    /// Returns the p99 in microseconds, or NaN for h2load.
    pub(crate) fn p99_us(&self) -> f64 {
        self.latency_us["p99"].as_f64().unwrap_or(f64::NAN)
    }
}

/// Sends the requests of a workload to `port` for `duration`. The client runs on its own core. `root` is the folder
/// of the repository. `tag` is part of the keys of misses and passes, so that no earlier run has used them.
pub(crate) fn run(
    plan: &Plan,
    root: &Path,
    workload: Workload,
    port: u16,
    duration: Duration,
    tag: u64,
) -> anyhow::Result<LoadResult> {
    let seconds = duration.as_secs().max(1);
    if workload.transport == Transport::H2 {
        return run_h2load(plan, workload, port, seconds);
    }
    let script = root.join("bench/hits/load.lua");
    let output = Command::new("taskset")
        .args(["--cpu-list", &plan.client_core.to_string()])
        .arg(find("wrk")?)
        .args(["--threads", "1", "--latency", "--timeout", "10s"])
        .args(["--connections", &plan.connections.to_string()])
        .args(["--duration", &format!("{seconds}s")])
        .arg("--script")
        .arg(script)
        .arg(format!(
            "{}://127.0.0.1:{port}/",
            scheme(workload.transport)
        ))
        .arg("--")
        .args([
            workload.kind.name(),
            &workload.size.to_string(),
            &plan.keys.to_string(),
        ])
        .arg(tag.to_string())
        .arg(if workload.transport.is_kept() {
            "kept"
        } else {
            "new"
        })
        .output()
        .context("wrk cannot be started")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!(
            "wrk: {}\n{}",
            text.trim(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    parse(&text)
}

fn scheme(transport: Transport) -> &'static str {
    if transport.is_tls() { "https" } else { "http" }
}

/// Runs h2load, which requests the hot keys in turn, with ten concurrent requests on each connection.
fn run_h2load(
    plan: &Plan,
    workload: Workload,
    port: u16,
    seconds: u64,
) -> anyhow::Result<LoadResult> {
    let authority = format!("https://127.0.0.1:{port}");
    let uris = (1..=plan.keys).map(|key| format!("{authority}/h/{}/{key}\n", workload.size));
    let list = std::env::temp_dir().join(format!("edgeward-h2load-{}", std::process::id()));
    fs::write(&list, uris.collect::<String>()).with_context(|| list.display().to_string())?;
    let output = Command::new("taskset")
        .args(["--cpu-list", &plan.client_core.to_string()])
        .arg(find("h2load")?)
        .args(["--threads", "1", "--max-concurrent-streams", "10"])
        .args(["--clients", &plan.connections.to_string()])
        .args(["--duration", &seconds.to_string()])
        // Flow-control windows of 1 GiB, which never fill.
        .args(["--window-bits", "30", "--connection-window-bits", "30"])
        .args(["--header", ":authority: bench"])
        .arg("--input-file")
        .arg(&list)
        .output()
        .context("h2load cannot be started");
    _ = fs::remove_file(&list);
    let output = output?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("h2load: {}\n{}", text.trim(), error.trim());
    }
    parse_h2load(&text, Duration::from_secs(seconds))
}

/// Parses `requests: 7 total, 7 started, 7 done, 6 succeeded, 1 failed, 0 errored, 0 timeout`.
fn parse_h2load(text: &str, duration: Duration) -> anyhow::Result<LoadResult> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("requests: "));
    let line = line.with_context(|| format!("h2load printed no requests:\n{text}"))?;
    let count = |name: &str| {
        let part = line.split(", ").find_map(|part| part.strip_suffix(name));
        let number = part.and_then(|number| number.trim().parse::<u64>().ok());
        number.with_context(|| format!("h2load did not count{name}: {line}"))
    };
    Ok(LoadResult {
        requests: count(" succeeded")?,
        duration,
        errors: count(" failed")? + count(" errored")? + count(" timeout")?,
        latency_us: Value::Null,
    })
}

/// Parses the line that begins with `result` in the output of wrk's script.
pub(crate) fn parse(text: &str) -> anyhow::Result<LoadResult> {
    let line = text.lines().find_map(|line| line.strip_prefix("result "));
    let line = line.with_context(|| format!("wrk's script printed no result:\n{text}"))?;
    let result: Value = serde_json::from_str(line).context("the result of wrk's script")?;
    let number = |value: &Value| value.as_u64().context("wrk's result lacks a number");
    let errors = result["errors"]
        .as_object()
        .context("wrk's result lacks the errors")?;
    Ok(LoadResult {
        requests: number(&result["requests"])?,
        duration: Duration::from_micros(number(&result["duration_us"])?),
        errors: errors.values().filter_map(Value::as_u64).sum(),
        latency_us: result["latency_us"].clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_line_is_found_in_the_output_of_wrk() {
        let text = "Running 1s test\n  1 threads\nresult {\"requests\":10,\"duration_us\":2000000,\
            \"bytes\":5,\"errors\":{\"connect\":1,\"read\":0,\"write\":0,\"status\":2,\"timeout\":0},\
            \"latency_us\":{\"p50\":1,\"p90\":2,\"p99\":3,\"p999\":4,\"max\":5}}\n";
        let load = parse(text).expect("the result is valid");
        assert_eq!((load.requests, load.errors), (10, 3));
        assert_eq!(load.duration, Duration::from_secs(2));
        assert_eq!(load.p99_us(), 3.0);
        assert!(parse("Running 1s test").is_err());
    }

    #[test]
    fn the_counts_of_h2load_are_parsed() {
        let text = "finished in 4.00s, 2.00 req/s, 3KB/s\n\
            requests: 12 total, 12 started, 10 done, 8 succeeded, 1 failed, 2 errored, 1 timeout\n\
            status codes: 8 2xx, 0 3xx, 1 4xx, 0 5xx\n";
        let load = parse_h2load(text, Duration::from_secs(4)).expect("the result is valid");
        assert_eq!((load.requests, load.errors), (8, 4));
        assert!(parse_h2load("finished in 4.00s", Duration::from_secs(4)).is_err());
    }
}
