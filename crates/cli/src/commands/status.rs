//! `edgeward status`: shows the state of a running edge on one screen.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use edgeward_types::ByteSize;
use serde_json::{Map, Value, json};

use super::admin_api::{AdminServer, read_token};
use super::flag_values::duration;
use crate::output::{self, Column, Table};

/// Show the state of a running edge on one screen
///
/// Requests by outcome, now and since the start; connections, memory, disk, origins, purges and errors. The admin pages
/// /status and /metrics have more details.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    admin: AdminServer,

    /// File with a token of the edge, if it has admin.require_token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Time over which the rates are measured
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    interval: Duration,

    /// Print the state as JSON
    #[arg(long)]
    json: bool,
}

/// Reads the state twice and prints it.
pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let token = args.token_file.as_deref().map(read_token).transpose()?;
    let page = |path| args.admin.get(path, token.as_deref());
    let status = || -> anyhow::Result<Value> {
        serde_json::from_str(&page("/status")?).context("/status is not JSON")
    };
    let (first, started) = (status()?, Instant::now());
    std::thread::sleep(args.interval);
    let second = status()?;
    let seconds = started.elapsed().as_secs_f64();
    let state = state_of(&first, &second, seconds, &page("/metrics")?);
    if args.json {
        output::print_json(&state)?;
    } else {
        let mut out = output::stdout();
        write!(out, "{}", screen(&state))?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The classes of requests with the outcomes that belong to them. All other outcomes are answers of the edge itself:
/// refused requests, rules and id filters.
const CLASSES: [(&str, &[&str]); 3] = [
    ("hits", &["hit", "hit-stale"]),
    (
        "misses",
        &["uri-miss", "vary-miss", "partial", "request", "stale"],
    ),
    ("passes", &["bypass", "method"]),
];

/// Makes the state from two pages `/status` and the page `/metrics`. The two pages were read `seconds` apart.
fn state_of(first: &Value, second: &Value, seconds: f64, metrics: &str) -> Value {
    let count = |status: &Value, outcomes: &[&str]| -> u64 {
        let requests = outcomes.iter().map(|outcome| &status["requests"][*outcome]);
        requests.filter_map(Value::as_u64).sum()
    };
    let all: Vec<&str> = second["requests"]
        .as_object()
        .into_iter()
        .flat_map(|requests| requests.keys().map(String::as_str))
        .collect();
    let own: Vec<&str> = all
        .iter()
        .filter(|outcome| !CLASSES.iter().any(|(_, of)| of.contains(outcome)))
        .copied()
        .collect();
    let classes = [("all", &all[..])].into_iter().chain(CLASSES);
    let requests: Map<String, Value> = classes
        .chain([("answered_by_edge", &own[..])])
        .map(|(name, outcomes)| {
            let total = count(second, outcomes);
            let per_second = total.saturating_sub(count(first, outcomes)) as f64 / seconds;
            let row = json!({ "total": total, "per_second": per_second });
            (name.to_owned(), row)
        })
        .collect();
    let origin_errors = second["origin_errors"].as_object();
    let origin_errors = origin_errors.into_iter().flat_map(Map::values);
    let refused = |status: &str| sum_of(metrics, "edgeward_requests_refused_total", status);
    let devices = second["disk"]["devices"].as_array();
    let devices: Vec<Value> = devices
        .into_iter()
        .flatten()
        .map(|device| {
            json!({
                "device": device["device"],
                "state": device["state"],
                "capacity_bytes": device["capacity_bytes"],
                "used_bytes": device["used_bytes"],
                "objects": device["objects"],
            })
        })
        .collect();
    json!({
        "name": second["name"],
        "version": second["version"],
        "pid": second["pid"],
        "uptime_seconds": second["uptime_seconds"],
        "overload": second["overload"]["level"],
        "interval_seconds": seconds,
        "requests": requests,
        "hit_ratio": second["hit_ratio"],
        "byte_hit_ratio": second["byte_hit_ratio"],
        "connections": second["connections"],
        "memory": {
            "process_bytes": second["memory_bytes"],
            "process_bytes_max": second["overload"]["memory_bytes_max"],
            "cache_bytes": second["hot"]["used_bytes"],
            "cache_bytes_max": second["hot"]["capacity_bytes"],
            "cache_objects": second["hot"]["objects"],
            "fill_bytes": second["fills"]["bytes"],
            "fill_bytes_max": second["fills"]["bytes_max"],
        },
        "disk": devices,
        "disk_damaged": second["disk_damaged"],
        "origins": second["origins"],
        "purges": sum_of(metrics, "edgeward_purges_total", ""),
        "errors": {
            "origin": origin_errors.filter_map(Value::as_u64).sum::<u64>(),
            "refused_4xx": refused("status=\"4"),
            "refused_5xx": refused("status=\"5"),
            "aborted_responses": sum_of(metrics, "edgeward_responses_aborted_total", ""),
            "shed": sum_of(metrics, "edgeward_shed_total", ""),
        },
    })
}

/// Adds up the series of a metric whose labels contain a text.
fn sum_of(metrics: &str, name: &str, label: &str) -> u64 {
    let series = metrics.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (found, labels) = series.split_once('{').unwrap_or((series, ""));
        (found == name && labels.contains(label)).then(|| value.parse::<f64>().unwrap_or_default())
    });
    series.sum::<f64>() as u64
}

/// Formats the state for a terminal.
fn screen(state: &Value) -> String {
    let number = |value: &Value| output::count(value.as_u64().unwrap_or_default());
    let bytes = |value: &Value| match value.as_u64() {
        Some(bytes) => ByteSize(bytes).to_string(),
        None => "no limit".to_owned(),
    };
    let percent = |value: &Value| match value.as_f64() {
        Some(ratio) => format!("{:.1} %", ratio * 100.0),
        None => "-".to_owned(),
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut requests = Table::new([
        Column::words("requests"),
        Column::figures("per second"),
        Column::figures("since start"),
    ]);
    let names = [("all", "all")].into_iter();
    let names = names.chain(CLASSES.map(|(name, _)| (name, name)));
    for (key, name) in names.chain([("answered_by_edge", "answered by the edge")]) {
        let row = &state["requests"][key];
        let per_second = row["per_second"].as_f64().unwrap_or_default();
        requests.row([
            name.to_owned(),
            format!("{per_second:.1}"),
            number(&row["total"]),
        ]);
    }
    let ratios = |key: &str| {
        let ratio = &state[key];
        let (minute, five) = (percent(&ratio["minute"]), percent(&ratio["five_minutes"]));
        let start = percent(&ratio["since_start"]);
        format!("{minute} in 1 min, {five} in 5 min, {start} since the start")
    };
    let (connections, memory, errors) = (&state["connections"], &state["memory"], &state["errors"]);
    let mut facts = Table::new([Column::words(""), Column::words("")]);
    let mut fact = |name: &str, value: String| facts.row([name.to_owned(), value]);
    fact("hit ratio", ratios("hit_ratio"));
    fact("byte hit ratio", ratios("byte_hit_ratio"));
    let clients = (
        number(&connections["clients"]),
        number(&connections["clients_max"]),
    );
    let to_origin = number(&connections["origin"]);
    fact(
        "connections",
        format!(
            "{} of {} of clients, {to_origin} to origins",
            clients.0, clients.1
        ),
    );
    for (name, key, extra) in [
        ("memory", "process_bytes", String::new()),
        (
            "  cache",
            "cache_bytes",
            format!(", {} objects", number(&memory["cache_objects"])),
        ),
        ("  fills", "fill_bytes", String::new()),
    ] {
        let max = bytes(&memory[format!("{key}_max")]);
        fact(name, format!("{} of {max}{extra}", bytes(&memory[key])));
    }
    for device in state["disk"].as_array().into_iter().flatten() {
        let (used, capacity) = (
            bytes(&device["used_bytes"]),
            bytes(&device["capacity_bytes"]),
        );
        let objects = number(&device["objects"]);
        let (name, state) = (text(&device["device"]), text(&device["state"]));
        fact(
            "disk",
            format!("{used} of {capacity}, {objects} objects, {state}: {name}"),
        );
    }
    for damaged in state["disk_damaged"].as_array().into_iter().flatten() {
        fact("disk", format!("damaged, not used: {}", text(damaged)));
    }
    for origin in state["origins"].as_array().into_iter().flatten() {
        let servers = origin["servers"]
            .as_array()
            .map_or(&[][..], |servers| servers);
        let up = servers
            .iter()
            .filter(|server| server["state"] == "up")
            .count();
        let down = servers.iter().filter(|server| server["state"] != "up");
        let down: Vec<_> = down
            .take(4)
            .map(|server| format!("{} {}", text(&server["server"]), text(&server["state"])))
            .collect();
        let down = match down.is_empty() {
            true => String::new(),
            false => format!("; {}", down.join(", ")),
        };
        let (name, servers) = (text(&origin["name"]), servers.len());
        fact(
            "origin",
            format!("{name}: {up} of {servers} servers up{down}"),
        );
    }
    fact("purges", number(&state["purges"]));
    fact(
        "errors",
        format!(
            "{} of origins, {} and {} refused with 4xx and 5xx, {} aborted, {} shed",
            number(&errors["origin"]),
            number(&errors["refused_4xx"]),
            number(&errors["refused_5xx"]),
            number(&errors["aborted_responses"]),
            number(&errors["shed"]),
        ),
    );
    let (name, version) = (text(&state["name"]), text(&state["version"]));
    let (pid, level) = (&state["pid"], text(&state["overload"]));
    let uptime = state["uptime_seconds"].as_u64().unwrap_or_default();
    let uptime = format!(
        "{}:{:02}:{:02}",
        uptime / 3600,
        uptime / 60 % 60,
        uptime % 60
    );
    // The table of facts has no headings, so its first line is empty.
    format!("{name} {version}, process {pid}, up for {uptime}, load: {level}\n\n{requests}{facts}")
}

const EXAMPLES: &str = "\
Examples:
  edgeward status --admin 127.0.0.1:9900
  edgeward status --admin 127.0.0.1:9900 --interval 10s --json | jq .requests
  watch -n 2 edgeward status --admin 127.0.0.1:9900";

#[cfg(test)]
mod tests {
    use super::*;

    /// Every outcome counts in exactly one class, and a rate is the difference of two counts in a time.
    #[test]
    fn rates_are_differences_and_classes_contain_each_outcome_once() {
        let status = |hits: u64, misses: u64| {
            json!({
                "requests": {
                    "hit": hits, "hit-stale": 1, "uri-miss": misses, "bypass": 2, "refused": 3, "rule": 4,
                },
                "origin_errors": { "connect": 5, "incomplete": 1 },
            })
        };
        let metrics = "# HELP\nedgeward_purges_total{scope=\"url\"} 2\nedgeward_purges_total{scope=\"tag\"} 3\n\
                       edgeward_requests_refused_total{status=\"404\"} 1\n\
                       edgeward_requests_refused_total{status=\"503\"} 7\n";
        let state = state_of(&status(10, 5), &status(30, 6), 2.0, metrics);
        let total = |class: &str| state["requests"][class]["total"].as_u64();
        let totals = ["all", "hits", "misses", "passes", "answered_by_edge"].map(total);
        assert_eq!(totals, [46, 31, 6, 2, 7].map(Some));
        assert_eq!(state["requests"]["hits"]["per_second"], 10.0);
        assert_eq!(state["requests"]["misses"]["per_second"], 0.5);
        assert_eq!(
            (&state["purges"], &state["errors"]["origin"]),
            (&json!(5), &json!(6))
        );
        assert_eq!(state["errors"]["refused_5xx"], 7);
    }
}
