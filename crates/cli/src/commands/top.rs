//! `edgeward top`: the page of the admin server in a terminal.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use edgeward_types::ByteSize;
use edgeward_types::hidden::is_hidden;
use serde_json::Value;

use super::admin_api::{AdminServer, read_token};
use super::flag_values::duration;
use crate::output::{self, Column, Table};
use crate::signals::Signals;

/// Watch a running edge in a terminal
///
/// Shows what the page of the admin server shows: hit ratio, latency, errors with what to do, sites, origins, top URLs.
/// On a terminal the screen is renewed until Ctrl-C; in a pipe, or with --once, it is printed once.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    admin: AdminServer,

    /// File with a token of the edge, if its admin address is not local
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Time between two screens
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    interval: Duration,

    /// Print one screen and exit
    #[arg(long)]
    once: bool,
}

/// Prints one screen, or shows screens until a signal.
pub(crate) fn run(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let token = args.token_file.as_deref().map(read_token).transpose()?;
    let lines = || -> anyhow::Result<Vec<String>> {
        let page = args.admin.get("/status.json", token.as_deref())?;
        let state = serde_json::from_str(&page).context("/status.json is not JSON")?;
        Ok(lines(&state))
    };
    if args.once || !io::stdout().is_terminal() {
        let mut out = output::stdout();
        for line in lines()? {
            writeln!(out, "{line}")?;
        }
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    let first = lines()?;
    let mut signals = Signals::listen()?;
    let (stop, stopped) = mpsc::channel();
    // The thread ends with the process.
    std::thread::spawn(move || stop.send(signals.next()));
    let mut screen = Screen::open()?;
    screen.show(&first)?;
    loop {
        match stopped.recv_timeout(args.interval) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return Ok(ExitCode::SUCCESS),
        }
        match lines() {
            Ok(lines) => screen.show(&lines)?,
            // The edge may be starting again.
            Err(error) => screen.show(&[format!("{error:#}")])?,
        }
    }
}

/// The second screen of the terminal. Dropping it restores the first one.
struct Screen(output::Stdout);

impl Screen {
    fn open() -> io::Result<Self> {
        let mut screen = Self(output::stdout());
        screen.0.write_all(ENTER.as_bytes())?;
        Ok(screen)
    }

    /// Shows as many lines as fit.
    fn show(&mut self, lines: &[String]) -> io::Result<()> {
        let size = rustix::termios::tcgetwinsize(io::stdout());
        let (rows, columns) = size.map_or((24, 80), |size| (size.ws_row, size.ws_col));
        // A terminal that does not know its size reports 0.
        let (rows, columns) = (usize::from(rows.max(5)), usize::from(columns.max(40)));
        let shown = lines.iter().take(rows - 1);
        let cut = |line: &String| line.chars().take(columns).collect::<String>();
        let text: Vec<String> = shown
            .map(|line| format!("{}\x1b[K\r\n", cut(line)))
            .collect();
        // Each line is erased behind its text, so that the screen does not flicker.
        write!(self.0, "\x1b[H{}\x1b[J", text.concat())?;
        self.0.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        _ = self.0.write_all(LEAVE.as_bytes());
        _ = self.0.flush();
    }
}

/// Shows the second screen and hides the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";

const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// Formats the state.
fn lines(state: &Value) -> Vec<String> {
    let mut all = head(state);
    let mut section = |title: &str, table: Table, is_empty: bool| {
        if !is_empty {
            all.push(String::new());
            all.push(title.to_owned());
            all.extend(table.to_string().lines().map(str::to_owned));
        }
    };
    let rows = |key: &str| state[key].as_array().cloned().unwrap_or_default();
    let errors = rows("errors");
    let mut table = Table::new([
        Column::figures("5 min"),
        Column::figures("1 h"),
        Column::words("error"),
        Column::words("what to do"),
    ]);
    for error in errors.iter().take(ROWS_MAX) {
        table.row([
            count(&error["five_minutes"]),
            count(&error["hour"]),
            text(&error["what"]),
            text(&error["hint"]),
        ]);
    }
    section("Recent errors", table, errors.is_empty());
    let sites = rows("sites");
    let mut table = Table::new([
        Column::words("site"),
        Column::figures("requests/s"),
        Column::figures("hits"),
        Column::figures("bytes hit"),
        Column::figures("misses"),
        Column::figures("passes"),
        Column::figures("5xx"),
        Column::figures("client p99"),
        Column::figures("origin p50"),
    ]);
    for site in sites.iter().take(ROWS_MAX) {
        let requests = site["requests"].as_f64().unwrap_or_default().max(1.0);
        let share = |outcome: &str| {
            let part = site["by_outcome"][outcome].as_f64().unwrap_or_default();
            percent(&Value::from(part / requests))
        };
        table.row([
            text(&site["site"]),
            rate(&site["requests_per_second"]),
            percent(&site["hit_ratio"]),
            percent(&site["byte_hit_ratio"]),
            share("miss"),
            share("pass"),
            count(&site["server_errors"]),
            time(&site["client_p99_seconds"]),
            time(&site["origin_p50_seconds"]),
        ]);
    }
    section("Sites, last 5 minutes", table, sites.is_empty());
    let origins = rows("origins");
    let mut table = Table::new([
        Column::words("origin"),
        Column::words("state"),
        Column::words("servers up"),
        Column::figures("responses/s"),
        Column::figures("5xx"),
        Column::figures("p50"),
        Column::figures("p90"),
        Column::figures("p99"),
    ]);
    for origin in origins.iter().take(ROWS_MAX) {
        let servers = origin["servers"].as_array().map_or(&[][..], Vec::as_slice);
        let up = servers.iter().filter(|server| server["state"] == "up");
        let state = match origin["up"].as_bool() {
            Some(true) => "up",
            _ => "down",
        };
        table.row([
            text(&origin["origin"]),
            state.to_owned(),
            format!("{} of {}", up.count(), servers.len()),
            rate(&origin["responses_per_second"]),
            count(&origin["server_errors"]),
            time(&origin["p50_seconds"]),
            time(&origin["p90_seconds"]),
            time(&origin["p99_seconds"]),
        ]);
    }
    section("Origins, last 5 minutes", table, origins.is_empty());
    for (key, title) in [
        ("requests", "URLs with the most requests"),
        ("misses", "URLs with the most misses"),
        ("bytes", "URLs with the most bytes"),
    ] {
        let urls = state["top"][key].as_array().cloned().unwrap_or_default();
        let mut table = Table::new([
            Column::figures("requests"),
            Column::figures("misses"),
            Column::figures("bytes"),
            Column::words("URL"),
        ]);
        for url in urls.iter().take(5) {
            table.row([
                count(&url["requests"]),
                count(&url["misses"]),
                bytes(&url["bytes"]),
                text(&url["url"]),
            ]);
        }
        section(title, table, urls.is_empty());
    }
    all
}

/// Returns the lines about the whole edge.
fn head(state: &Value) -> Vec<String> {
    let history = &state["history"];
    let row = &history["levels"][0]["rows"]
        .as_array()
        .and_then(|rows| rows.last());
    let columns = history["columns"].as_array();
    let newest = |name: &str| {
        let at = columns.and_then(|columns| columns.iter().position(|column| column == name));
        at.and_then(|at| row.and_then(|row| row.get(at)))
            .cloned()
            .unwrap_or_default()
    };
    let outcomes = [
        "hit",
        "hit_stale",
        "miss",
        "revalidated",
        "pass",
        "refused",
        "none",
    ];
    let requests = outcomes.iter().filter_map(|name| newest(name).as_f64());
    let requests: f64 = requests.sum();
    let hot = &state["hot"];
    let devices = state["disk"]["devices"].as_array();
    let disk = devices.map(|devices| {
        let used = devices
            .iter()
            .filter_map(|device| device["used_bytes"].as_u64());
        bytes(&Value::from(used.sum::<u64>()))
    });
    let hours = state["uptime_seconds"].as_u64().unwrap_or_default() / 60;
    let (hours, minutes) = (hours / 60, hours % 60);
    let ratio = |key: &str, window: &str| percent(&state[key][window]);
    vec![
        format!(
            "{}  edgeward {}  up {hours}:{minutes:02}  load {}",
            text(&state["name"]),
            text(&state["version"]),
            text(&state["overload"]["level"]),
        ),
        format!(
            "requests {requests:.1}/s  hits {} in 1 min, {} in 5 min, {} since the start  bytes hit {}",
            ratio("hit_ratio", "minute"),
            ratio("hit_ratio", "five_minutes"),
            ratio("hit_ratio", "since_start"),
            ratio("byte_hit_ratio", "five_minutes"),
        ),
        format!(
            "to clients {}/s  from origins {}/s  client p50 {} p99 {}  origin p50 {} p99 {}",
            bytes(&newest("bytes")),
            bytes(&newest("origin_bytes")),
            time(&newest("client_p50_seconds")),
            time(&newest("client_p99_seconds")),
            time(&newest("origin_p50_seconds")),
            time(&newest("origin_p99_seconds")),
        ),
        format!(
            "memory {} of {} with {}, {} objects  disk {}  connections {}",
            bytes(&hot["used_bytes"]),
            bytes(&hot["capacity_bytes"]),
            text(&hot["policy"]),
            count(&hot["objects"]),
            disk.as_deref().unwrap_or("none"),
            count(&state["connections"]["clients"]),
        ),
    ]
}

/// Returns a text whose characters do not control the terminal.
fn text(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default().chars();
    text.flat_map(|c| match is_hidden(c) {
        true => c.escape_unicode().collect::<Vec<_>>(),
        false => vec![c],
    })
    .collect()
}

fn count(value: &Value) -> String {
    value
        .as_f64()
        .map_or_else(|| "-".to_owned(), |n| output::count(n.round() as u64))
}

fn rate(value: &Value) -> String {
    value
        .as_f64()
        .map_or_else(|| "-".to_owned(), |n| format!("{n:.1}"))
}

fn percent(value: &Value) -> String {
    let ratio = value.as_f64();
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.1} %", ratio * 100.0))
}

fn bytes(value: &Value) -> String {
    let bytes = value.as_f64();
    bytes.map_or_else(
        || "-".to_owned(),
        |bytes| ByteSize(bytes as u64).to_string(),
    )
}

fn time(value: &Value) -> String {
    match value.as_f64() {
        None => "-".to_owned(),
        Some(seconds) if seconds < 0.001 => format!("{:.0} µs", seconds * 1e6),
        Some(seconds) if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        Some(seconds) => format!("{seconds:.2} s"),
    }
}

/// The rows of a table, so that the tables below it are on the screen.
const ROWS_MAX: usize = 8;

const EXAMPLES: &str = "\
Examples:
  edgeward top --admin 127.0.0.1:9900
  edgeward top --admin https://edge.example:9900 --token-file token --interval 5s
  edgeward top --admin unix:/run/edgeward/admin.sock --once | grep -A9 Sites";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A client chooses URLs and hosts, so their characters must not move the cursor or hide lines.
    #[test]
    fn texts_of_clients_do_not_control_the_terminal() {
        let hostile = "/\u{1b}[2Ja\u{202e}b\nc\r\u{9b}K";
        let state = json!({
            "name": hostile,
            "sites": [{ "site": hostile, "requests": 1, "by_outcome": { "miss": 1 } }],
            "errors": [{ "what": hostile, "hint": hostile, "hour": 1, "five_minutes": 1 }],
            "origins": [{ "origin": hostile, "up": false }],
            "top": { "misses": [{ "url": hostile, "misses": 12 }] },
        });
        let lines = lines(&state);
        for line in &lines {
            assert!(!line.chars().any(is_hidden), "{line:?}");
        }
        let shown = lines
            .iter()
            .filter(|line| line.contains("\\u{1b}[2Ja\\u{202e}b\\u{a}c"));
        assert_eq!(shown.count(), 5);
        assert!(lines.iter().any(|line| line.contains("100.0 %")));
    }

    #[test]
    fn a_state_without_traffic_has_the_lines_of_the_edge_only() {
        assert_eq!(lines(&json!({})).len(), 4);
    }
}
