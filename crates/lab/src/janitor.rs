//! Keeps nginx to its bounds while time runs fast.
//!
//! nginx evicts in a process of its own, the cache manager, which looks at the size of the cache and then
//! sleeps for up to ten seconds. In production that is little beside the time a full cache takes to turn over. A
//! replay squeezes hours into minutes and a cache into some MiB: in ten seconds nginx would hold a hundred times
//! what it was given, and answer accordingly. So whenever its folder is too large the lab ends the cache
//! manager (politely, between two files), and the master starts another at once, which evicts first
//! and sleeps later.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use edgeward_replay::monitor::children_of;

use crate::look::bytes_below;

/// Looks after one nginx.
#[derive(Debug)]
pub(crate) struct Janitor {
    master: u32,
    folder: PathBuf,
    capacity_bytes: u64,
    /// Looks, and what the folder held at them.
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

    /// Looks again and again until it is over, and says how much more than its share nginx held, if that was much.
    pub(crate) fn tend(mut self, over: &AtomicBool) -> Option<String> {
        while !over.load(Ordering::Relaxed) {
            let began = Instant::now();
            let held = bytes_below(&self.folder);
            self.looks += 1;
            self.bytes += u128::from(held);
            if held > self.capacity_bytes {
                self.wake();
            }
            // A large folder takes long to look at, and is not worth a processor.
            let pause = (began.elapsed() * 20).clamp(INTERVAL_MIN, INTERVAL_MAX);
            thread::park_timeout(pause);
        }
        excess(self.bytes, self.looks, self.capacity_bytes)
    }

    fn wake(&self) {
        let children = children_of(self.master).into_iter();
        for pid in children.filter(|pid| is_manager(*pid) && sleeps(*pid)) {
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                // It may just have ended.
                _ = kill_process(pid, Signal::TERM);
            }
        }
    }
}

/// A sentence about what was held on average, where that flatters nginx.
fn excess(bytes: u128, looks: u64, capacity_bytes: u64) -> Option<String> {
    let mean = bytes as f64 / looks.max(1) as f64;
    let times = mean / capacity_bytes.max(1) as f64;
    (times > 1.0 + TOLERATED).then(|| {
        format!(
            "it held {times:.1} times what it was given, on average: it does not evict as fast as it stores, and \
             its hits are flattered by that"
        )
    })
}

/// Whether it waits for something. One that was just started, or is at work, is left alone.
fn sleeps(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with('S'))
}

/// nginx writes what a process is over its command line.
fn is_manager(pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.starts_with(b"nginx: cache manager process")
}

const INTERVAL_MIN: Duration = Duration::from_millis(30);
const INTERVAL_MAX: Duration = Duration::from_secs(2);

/// What a cache that is full most of the time exceeds its bounds by until it is looked at.
const TOLERATED: f64 = 0.15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_cache_manager_that_sleeps_is_woken() {
        let own = std::process::id();
        assert!(!is_manager(own) && !is_manager(u32::MAX));
        assert!(!sleeps(u32::MAX));
    }

    #[test]
    fn holding_more_than_its_share_is_told_and_a_little_is_not() {
        assert_eq!(excess(0, 0, 100), None);
        assert_eq!(excess(10 * 110, 10, 100), None);
        let told = excess(10 * 250, 10, 100).expect("much");
        assert!(
            told.starts_with("it held 2.5 times what it was given"),
            "{told}"
        );
    }
}
