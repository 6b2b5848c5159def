//! Reads the output of wrk with a script.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;

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
