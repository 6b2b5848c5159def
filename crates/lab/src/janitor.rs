//! Makes nginx evict in time when a replay runs faster than real time.
//!
//! nginx has a cache manager, a process that checks the size of the cache, evicts files, and then sleeps for up
//! to ten seconds. In production a full cache is replaced much more slowly, so ten seconds do not matter. A
//! replay compresses hours into minutes and uses a small cache: within ten seconds nginx would store a hundred
//! times its capacity, and its hit ratio would be too high. When the cache folder is too large, the lab
//! therefore terminates the cache manager with SIGTERM. nginx handles the signal between two files, and the
//! master starts a new cache manager, which evicts before it sleeps.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use edgeward_replay::monitor::children_of;

use crate::look::bytes_below;

/// Enforces the capacity of one nginx.
#[derive(Debug)]
pub(crate) struct Janitor {
    master: u32,
    folder: PathBuf,
    capacity_bytes: u64,
    /// The number of size checks, and the sum of the sizes that they found.
    looks: u64,
    bytes: u128,
}

impl Janitor {
    pub(crate) fn new(master: u32, folder: &Path, capacity_bytes: u64) -> Self {
        Self {
            master,
            folder: folder.to_owned(),
            capacity_bytes,
            looks: 0,
            bytes: 0,
        }
    }

    /// Checks the folder until `over` is set. Returns a note if the cache was much larger than its capacity on
    /// average.
    pub(crate) fn tend(mut self, over: &AtomicBool) -> Option<String> {
        while !over.load(Ordering::Relaxed) {
            let began = Instant::now();
            let held = bytes_below(&self.folder);
            self.looks += 1;
            self.bytes += u128::from(held);
            if held > self.capacity_bytes {
                self.wake();
            }
            // Measuring a large folder takes long. The pause is 20 times as long, so measuring uses 5 % of one core.
            let pause = (began.elapsed() * 20).clamp(INTERVAL_MIN, INTERVAL_MAX);
            thread::park_timeout(pause);
        }
        excess(self.bytes, self.looks, self.capacity_bytes)
    }

    fn wake(&self) {
        let children = children_of(self.master).into_iter();
        for pid in children.filter(|pid| is_manager(*pid) && sleeps(*pid)) {
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                // The process may have ended in the meantime.
                _ = kill_process(pid, Signal::TERM);
            }
        }
    }
}

/// Returns a note if the mean size of the cache exceeded the capacity so much that nginx had an advantage.
fn excess(bytes: u128, looks: u64, capacity_bytes: u64) -> Option<String> {
    let mean = bytes as f64 / looks.max(1) as f64;
    let times = mean / capacity_bytes.max(1) as f64;
    (times > 1.0 + TOLERATED).then(|| {
        format!(
            "its cache was {times:.1} times as large as its capacity, on average: it evicts more slowly than it \
             stores, so its hit ratio is too high"
        )
    })
}

/// Returns true if the process sleeps. A cache manager that runs is evicting or has just started, so it needs
/// no signal.
fn sleeps(pid: u32) -> bool {
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

/// The share by which a full cache exceeds its capacity between two checks in normal operation.
const TOLERATED: f64 = 0.15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sleeping_cache_manager_is_terminated() {
        let own = std::process::id();
        assert!(!is_manager(own) && !is_manager(u32::MAX));
        assert!(!sleeps(u32::MAX));
    }

    #[test]
    fn a_large_excess_over_the_capacity_is_reported_and_a_small_one_is_not() {
        assert_eq!(excess(0, 0, 100), None);
        assert_eq!(excess(10 * 110, 10, 100), None);
        let note = excess(10 * 250, 10, 100).expect("the excess is reported");
        assert!(
            note.starts_with("its cache was 2.5 times as large as its capacity"),
            "{note}"
        );
    }
}
