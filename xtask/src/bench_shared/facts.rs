//! Collects facts that affect a measured figure besides edgeward's code: the machine and the versions of programs.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// Returns the facts that every benchmark records: machine, date, commit, and the versions of edgeward and rustc.
pub(crate) fn common(root: &Path, edgeward: &Path) -> Value {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = cpuinfo
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let changed = output(
        Command::new("git")
            .args(["status", "--porcelain"])
            .current_dir(root),
    );
    json!({
        "date": today(),
        "command": std::env::args().skip(1).collect::<Vec<_>>().join(" "),
        "cpu": model.map(|(_, name)| name.trim()),
        "cores": cores,
        "memory": memory.lines().next().map(|line| line.trim_start_matches("MemTotal:").trim()),
        "kernel": fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
        "hypervisor": cpuinfo.contains(" hypervisor"),
        "load_average": load_average(),
        "commit": output(Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root)),
        "uncommitted_changes": !changed.is_empty(),
        "versions": {
            "edgeward": output(Command::new(edgeward).arg("--version")),
            "rustc": output(Command::new("rustc").arg("--version")),
        },
    })
}

/// Returns the date in UTC, such as `2026-11-21`.
pub(crate) fn today() -> String {
    output(Command::new("date").args(["--utc", "+%F"]))
}

/// Returns the load average of the last minute.
pub(crate) fn load_average() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Returns the number of CPU ticks that the host took from this virtual machine, and the number of all ticks.
///
/// Fields of `/proc/stat` (proc(5)): user nice system idle iowait irq softirq steal guest guest_nice. The last two are
/// not added, because user and nice include them.
pub(crate) fn stolen() -> (u64, u64) {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks: Vec<u64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|word| word.parse().ok())
        .collect();
    (ticks.get(7).copied().unwrap_or(0), ticks.iter().sum())
}

fn output(command: &mut Command) -> String {
    let output = command
        .output()
        .map(|output| output.stdout)
        .unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_owned()
}
