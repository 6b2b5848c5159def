//! Starts, loads, samples and stops the measured database.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::bench_shared::process::{cpu_seconds_of, tree_of};

use super::cassandra::Cassandra;
use super::plan::{Plan, Table};
use super::postgres::Postgres;

/// The kind of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Postgres,
    Cassandra,
}

/// A running database. The database is stopped when this value is dropped.
#[derive(Debug)]
pub(super) enum Database {
    Postgres(Postgres),
    Cassandra(Cassandra),
}

impl Kind {
    pub(super) const ALL: [Self; 2] = [Self::Postgres, Self::Cassandra];

    /// Returns the name in `--databases`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Cassandra => "cassandra",
        }
    }

    pub(super) fn start(self, root: &Path, plan: &Plan) -> anyhow::Result<Database> {
        Ok(match self {
            Self::Postgres => Database::Postgres(Postgres::start(&plan.folder)?),
            Self::Cassandra => Database::Cassandra(Cassandra::start(root, &plan.folder)?),
        })
    }
}

impl Database {
    /// Returns the name and version of the database.
    pub(super) fn version(&self) -> &str {
        match self {
            Self::Postgres(server) => server.version(),
            Self::Cassandra(node) => node.version(),
        }
    }

    /// Returns the address for `--source`.
    pub(super) fn address(&self) -> String {
        match self {
            Self::Postgres(server) => server.address(),
            Self::Cassandra(node) => node.address(),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        match self {
            Self::Postgres(server) => server.pid(),
            Self::Cassandra(node) => node.pid(),
        }
    }

    pub(super) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        cpu_seconds_of(self.pid())
    }

    /// Loads a table, if no earlier run has loaded it, and waits until the server is idle.
    pub(super) fn ensure_loaded(&self, root: &Path, table: Table) -> anyhow::Result<()> {
        let completion_file = self.folder().join(format!("loaded-{table}"));
        if !completion_file.exists() {
            let began = Instant::now();
            match self {
                Self::Postgres(server) => server.load(table)?,
                Self::Cassandra(node) => node.load(root, table)?,
            }
            let seconds = began.elapsed().as_secs_f64();
            eprintln!("{}: {table} loaded in {seconds:.0} s", self.version());
            fs::write(&completion_file, "")
                .with_context(|| completion_file.display().to_string())?;
        }
        self.settle()
    }

    fn folder(&self) -> PathBuf {
        match self {
            Self::Postgres(server) => server.folder().to_owned(),
            Self::Cassandra(node) => node.folder().to_owned(),
        }
    }

    /// Waits until compactions and similar work are over: until three seconds in a row use less than 0.1 s of CPU time
    /// each, or until [`SETTLE_TIMEOUT`] has passed.
    fn settle(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + SETTLE_TIMEOUT;
        let mut quiet = 0;
        let mut before = self.cpu_seconds()?;
        while quiet < 3 && Instant::now() < deadline {
            sleep(Duration::from_secs(1));
            let now = self.cpu_seconds()?;
            quiet = if now - before < 0.1 { quiet + 1 } else { 0 };
            before = now;
        }
        Ok(())
    }
}

/// A thread that samples the resident memory of a process and its children and keeps the largest value.
#[derive(Debug)]
pub(super) struct MemorySampler {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl MemorySampler {
    pub(super) fn sample(pid: u32) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let should_end = Arc::clone(&ended);
        let thread = thread::spawn(move || {
            let mut peak_bytes = 0;
            while !should_end.load(Ordering::Relaxed) {
                peak_bytes = peak_bytes.max(resident_bytes(pid));
                sleep(Duration::from_millis(50));
            }
            peak_bytes
        });
        Self { ended, thread }
    }

    /// Ends the thread and returns the largest value in bytes.
    pub(super) fn end(self) -> u64 {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().expect("the sampler does not panic")
    }
}

/// Returns the resident memory of a process and its children in bytes: the private pages of all processes, and the
/// shared pages of the process with most of them.
fn resident_bytes(pid: u32) -> u64 {
    let processes = tree_of(pid).unwrap_or_default();
    let (mut private, mut shared) = (0, 0);
    for pid in processes {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_ascii_whitespace().next());
            number.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0)
        };
        private += kib("RssAnon:");
        shared = shared.max(kib("RssFile:") + kib("RssShmem:"));
    }
    (private + shared) << 10
}

const SETTLE_TIMEOUT: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_memory_is_counted() {
        let before = resident_bytes(std::process::id());
        let touched = vec![1u8; 64 << 20];
        let after = resident_bytes(std::process::id());
        // The vector is used after the measurement, so that the compiler keeps its memory until then.
        assert!(touched[before as usize % touched.len()] == 1);
        assert!(after >= before + (60 << 20), "{before} {after}");
    }
}
