//! Makes nginx evict in time when a replay runs faster than real time.
//!
//! nginx has a cache manager, a process that checks the size of the cache, evicts files, and then sleeps for up
//! to ten seconds. In production a full cache is replaced much more slowly, so ten seconds do not matter. A
//! replay compresses hours into minutes and uses a small cache: within ten seconds nginx would store a hundred
//! times its capacity, and its hit ratio would be too high. When the cache folder is too large, the lab
//! therefore terminates the cache manager with SIGTERM. The cache manager handles the signal between the evictions
//! of two files. The master then starts a new cache manager, which evicts before it sleeps.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use edgeward_replay::monitor::children_of;

use crate::sampler::bytes_below;

/// Enforces the capacity of one nginx.
#[derive(Debug)]
pub(crate) struct CapacityEnforcer {
    /// The process id of nginx's master process.
    master: u32,
    folder: PathBuf,
    capacity_bytes: u64,
    /// The number of size checks, and the sum of the sizes that they found.
    checks: u64,
    bytes_sum: u128,
}

impl CapacityEnforcer {
    pub(crate) fn new(master: u32, folder: &Path, capacity_bytes: u64) -> Self {
        Self {
            master,
            folder: folder.to_owned(),
            capacity_bytes,
            checks: 0,
            bytes_sum: 0,
        }
    }

    /// Checks the folder until `is_over` is set. Returns a note if the cache was much larger than its capacity on
    /// average.
    pub(crate) fn enforce(mut self, is_over: &AtomicBool) -> Option<String> {
        while !is_over.load(Ordering::Relaxed) {
            let began = Instant::now();
            let size = bytes_below(&self.folder);
            self.checks += 1;
            self.bytes_sum += u128::from(size);
            if size > self.capacity_bytes {
                self.terminate_cache_managers();
            }
            // Measuring a large folder takes long. The pause is 20 times as long, at most 2 s. If measuring takes less
            // than 100 ms, it therefore uses at most 5 % of one core.
            let pause = (began.elapsed() * 20).clamp(INTERVAL_MIN, INTERVAL_MAX);
            thread::park_timeout(pause);
        }
        excess_note(self.bytes_sum, self.checks, self.capacity_bytes)
    }

    fn terminate_cache_managers(&self) {
        let children = children_of(self.master).into_iter();
        for pid in children.filter(|pid| is_manager(*pid) && is_sleeping(*pid)) {
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                // The process may have ended in the meantime.
                _ = kill_process(pid, Signal::TERM);
            }
        }
    }
}

/// Returns a note if the mean size of the cache exceeded the capacity so much that nginx had an advantage.
fn excess_note(bytes_sum: u128, checks: u64, capacity_bytes: u64) -> Option<String> {
    let mean = bytes_sum as f64 / checks.max(1) as f64;
    let times = mean / capacity_bytes.max(1) as f64;
    (times > 1.0 + EXCESS_TOLERATED).then(|| {
        format!(
            "its cache was {times:.1} times as large as its capacity, on average: it evicts more slowly than it \
             stores, so its hit ratio is too high"
        )
    })
}

/// Returns true if the process sleeps. A cache manager that runs is evicting or has just started, so it needs
/// no signal.
fn is_sleeping(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with('S'))
}

/// Returns true if the process is a cache manager: nginx replaces the command line of a process with its role.
fn is_manager(pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.starts_with(b"nginx: cache manager process")
}

const INTERVAL_MIN: Duration = Duration::from_millis(30);
const INTERVAL_MAX: Duration = Duration::from_secs(2);

/// A mean excess of up to this share of the capacity is not reported. A full cache exceeds its capacity between two
/// checks even in normal operation.
const EXCESS_TOLERATED: f64 = 0.15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_and_missing_processes_are_not_sleeping_cache_managers() {
        let own = std::process::id();
        assert!(!is_manager(own) && !is_manager(u32::MAX));
        assert!(!is_sleeping(u32::MAX));
    }

    #[test]
    fn a_large_excess_over_the_capacity_is_reported_and_a_small_one_is_not() {
        assert_eq!(excess_note(0, 0, 100), None);
        assert_eq!(excess_note(10 * 110, 10, 100), None);
        let note = excess_note(10 * 250, 10, 100).expect("the excess is reported");
        assert!(
            note.starts_with("its cache was 2.5 times as large as its capacity"),
            "{note}"
        );
    }
}
