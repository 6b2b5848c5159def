//! The resource use of a server with several processes: a master, workers and helpers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

use super::Sample;
use super::proc::{Process, parent_of};

/// The sum of the resources of a process and all its descendants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Usage {
    /// The number of processes.
    pub processes: u64,
    /// CPU time in user mode and kernel since the processes started. Processes that have ended are not included.
    pub cpu_seconds: f64,
    /// Memory of the processes: the proportional set size, or the resident set if the kernel does not report
    /// the former; plus the files in memory (`memfd_create`) of the processes.
    pub memory_bytes: u64,
    /// Bytes read from a device since the processes started (`read_bytes` of proc(5)).
    pub disk_read_bytes: u64,
    /// Bytes passed to a device for writing since the processes started (`write_bytes`).
    pub disk_write_bytes: u64,
    /// The number of open file descriptors.
    pub descriptors: u64,
    /// The descriptors that are sockets: connections and listeners.
    pub sockets: u64,
    /// The number of threads.
    pub threads: u64,
}

/// Returns the resource use of the process `root` and its descendants.
///
/// # Errors
///
/// Returns an error if `root` does not exist. A descendant that ends meanwhile is skipped.
pub fn usage_of_tree(root: u32) -> io::Result<Usage> {
    Process(root).stat()?;
    let mut usage = Usage::default();
    for pid in descendants(&parents(), root) {
        let process = Process(pid);
        let Ok(stat) = process.stat() else { continue };
        let mut sample = Sample::default();
        process.fill(&stat, &mut sample);
        usage.add(&sample, stat.rss_bytes());
    }
    Ok(usage)
}

/// Returns the child processes of `parent`.
pub fn children_of(parent: u32) -> Vec<u32> {
    let all = parents().into_iter();
    all.filter(|(_, its)| *its == parent)
        .map(|(pid, _)| pid)
        .collect()
}

impl Usage {
    fn add(&mut self, sample: &Sample, resident: u64) {
        self.processes += 1;
        self.cpu_seconds +=
            sample.cpu_user_seconds.unwrap_or(0.0) + sample.cpu_system_seconds.unwrap_or(0.0);
        // `resident` is the resident set alone. `sample.rss_bytes` is the resident set plus those pages of files in
        // memory (`memfd_create`) that the process has not mapped.
        let memory_files = sample
            .rss_bytes
            .unwrap_or(resident)
            .saturating_sub(resident);
        self.memory_bytes += sample.pss_bytes.unwrap_or(resident) + memory_files;
        self.disk_read_bytes += sample.disk_read_bytes.unwrap_or(0);
        self.disk_write_bytes += sample.disk_write_bytes.unwrap_or(0);
        self.descriptors += sample.descriptors.unwrap_or(0);
        self.sockets += sample.sockets.unwrap_or(0);
        self.threads += sample.threads.unwrap_or(0);
    }
}

/// Returns the parent of every process.
fn parents() -> BTreeMap<u32, u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return BTreeMap::new();
    };
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, parent_of(pid)?)))
        .collect()
}

/// Returns `root` and all its descendants.
fn descendants(parents: &BTreeMap<u32, u32>, root: u32) -> BTreeSet<u32> {
    let mut tree = BTreeSet::from([root]);
    // Process ids wrap around, so a child may be listed before its parent: repeat until no process is added.
    loop {
        let before = tree.len();
        for (&pid, parent) in parents {
            if tree.contains(parent) {
                tree.insert(pid);
            }
        }
        if tree.len() == before {
            return tree;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_tree_has_exactly_the_descendants() {
        let parents = BTreeMap::from([(3, 9), (5, 1), (7, 1), (9, 7), (1, 0)]);
        assert_eq!(descendants(&parents, 7), BTreeSet::from([3, 7, 9]));
        assert_eq!(descendants(&parents, 5), BTreeSet::from([5]));
    }

    /// Method: start a shell that waits for a child. The child ends when this test closes the child's input.
    #[test]
    fn children_are_counted_with_their_parent() {
        let mut shell = Command::new("sh")
            .args(["-c", "exec 3<&0; cat <&3 & echo up; wait"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell is installed");
        // The shell prints the line after it has started the child.
        let mut line = [0; 3];
        let stdout = shell.stdout.as_mut().expect("the output is a pipe");
        io::Read::read_exact(stdout, &mut line).expect("the shell prints a line");
        let found = (0..10_000)
            .map(|_| usage_of_tree(shell.id()).expect("the shell runs"))
            .find(|usage| usage.processes == 2);
        assert_eq!(children_of(shell.id()).len(), 1);
        _ = Command::new("kill").arg(shell.id().to_string()).status();
        drop(shell.stdin.take());
        shell.wait().expect("the shell ends");
        let usage = found.expect("the shell and its child are counted");
        assert!(usage.memory_bytes > 100_000, "{usage:?}");
        assert!(usage.threads >= 2);
        assert!(usage_of_tree(u32::MAX).is_err());
    }
}
