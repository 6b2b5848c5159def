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
    next: Instant,
}

impl Janitor {
    pub(crate) fn new(master: u32, folder: &Path, capacity_bytes: u64) -> Self {
        Self {
            master,
            folder: folder.to_owned(),
            capacity_bytes,
            next: Instant::now(),
        }
    }

    /// Has a look if it is time for one.
    pub(crate) fn tend(&mut self) {
        let began = Instant::now();
        if began < self.next {
            return;
        }
        if bytes_below(&self.folder) > self.capacity_bytes {
            let children = children_of(self.master).into_iter();
            for pid in children.filter(|pid| is_manager(*pid) && sleeps(*pid)) {
                if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                    // It may just have ended.
                    _ = kill_process(pid, Signal::TERM);
                }
            }
        }
        // A large folder takes long to look at, and is not worth a processor.
        self.next = Instant::now() + INTERVAL_MIN.max(began.elapsed() * 20);
    }
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

const INTERVAL_MIN: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_cache_manager_that_sleeps_is_woken() {
        let own = std::process::id();
        assert!(!is_manager(own) && !is_manager(u32::MAX));
        assert!(!sleeps(u32::MAX));
    }
}
