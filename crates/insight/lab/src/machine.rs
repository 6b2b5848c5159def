//! Facts about the machine for the report, and its free space and memory.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;

use crate::outcome::Machine;

/// Returns the facts about the machine and its load average.
pub(crate) fn facts() -> Machine {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
    Machine {
        cores: thread::available_parallelism().map_or(1, usize::from),
        processor: named.map(|name| name.trim_start_matches([' ', '\t', ':']).to_owned()),
        kernel: kernel.map(|release| release.trim().to_owned()),
        load_before: load_average(),
        load_after: None,
    }
}

/// Returns the load average of the last minute.
pub(crate) fn load_average() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Returns the number of CPU ticks that the host took from this virtual machine, and the number of all ticks.
pub(crate) fn stolen() -> (u64, u64) {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    // Fields of proc(5): user nice system idle iowait irq softirq steal guest guest_nice. User and nice include the
    // last two.
    let ticks = line.split_whitespace().skip(1).take(8);
    let ticks: Vec<u64> = ticks.filter_map(|word| word.parse().ok()).collect();
    (ticks.get(7).copied().unwrap_or(0), ticks.iter().sum())
}

/// Returns the bytes available for new files below a folder.
pub(crate) fn free_bytes(folder: &Path) -> io::Result<u64> {
    let facts = rustix::fs::statvfs(folder)?;
    Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
}

/// Returns the bytes of memory available to programs.
pub(crate) fn free_memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_about_this_machine_can_be_read() {
        let facts = facts();
        assert!(facts.cores >= 1);
        assert!(facts.kernel.is_some_and(|release| release.contains('.')));
        assert!(facts.load_before.is_some());
        assert!(free_memory_bytes() > Some(1 << 20));
        assert!(free_bytes(Path::new("/")).is_ok());
    }
}
