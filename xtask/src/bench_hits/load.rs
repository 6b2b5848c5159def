//! wrk: one run against one server.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::plan::{Plan, Workload};
use super::process::find;

/// What wrk saw.
#[derive(Debug, PartialEq)]
pub(crate) struct Load {
    pub(crate) requests: u64,
    pub(crate) duration: Duration,
    pub(crate) errors: u64,
    /// p50, p90, p99, p99.9 and the longest, in microseconds, as wrk's script writes them.
    pub(crate) latency_us: Value,
}

impl Load {
    pub(crate) fn p99_us(&self) -> f64 {
        self.latency_us["p99"].as_f64().unwrap_or(f64::NAN)
    }
}

/// Sends `workload` to `port` for `duration`, on the client's core.
pub(crate) fn run(
    plan: &Plan,
    root: &Path,
    workload: Workload,
    port: u16,
    duration: Duration,
    tag: u64,
) -> anyhow::Result<Load> {
    let script = root.join("bench/hits/load.lua");
    let output = Command::new("taskset")
        .args(["--cpu-list", &plan.client_core.to_string()])
        .arg(find("wrk")?)
        .args(["--threads", "1", "--latency", "--timeout", "10s"])
        .args(["--connections", &plan.connections.to_string()])
        .args(["--duration", &format!("{}s", duration.as_secs().max(1))])
        .arg("--script")
        .arg(script)
        .arg(format!("http://127.0.0.1:{port}/"))
        .arg("--")
        .args([
            workload.kind.name(),
            &workload.size.to_string(),
            &plan.keys.to_string(),
        ])
        .arg(tag.to_string())
        .output()
        .context("wrk does not start")?;
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

/// Reads the line that the script prints at the end.
pub(crate) fn parse(text: &str) -> anyhow::Result<Load> {
    let line = text.lines().find_map(|line| line.strip_prefix("result "));
    let line = line.with_context(|| format!("wrk's script printed no result:\n{text}"))?;
    let result: Value = serde_json::from_str(line).context("the result of wrk's script")?;
    let number = |value: &Value| value.as_u64().context("wrk's result lacks a number");
    let errors = result["errors"]
        .as_object()
        .context("wrk's result lacks the errors")?;
    Ok(Load {
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
    fn the_line_of_the_script_is_found_among_wrks_own() {
        let text = "Running 1s test\n  1 threads\nresult {\"requests\":10,\"duration_us\":2000000,\
            \"bytes\":5,\"errors\":{\"connect\":1,\"read\":0,\"write\":0,\"status\":2,\"timeout\":0},\
            \"latency_us\":{\"p50\":1,\"p90\":2,\"p99\":3,\"p999\":4,\"max\":5}}\n";
        let load = parse(text).expect("a well-formed result");
        assert_eq!((load.requests, load.errors), (10, 3));
        assert_eq!(load.duration, Duration::from_secs(2));
        assert_eq!(load.p99_us(), 3.0);
        assert!(parse("Running 1s test").is_err());
    }
}
