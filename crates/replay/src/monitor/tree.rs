//! What a server of several processes uses: a master, its workers, their helpers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

use super::Sample;
use super::proc::{Process, parent_of};

/// What a process and all its descendants use, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Usage {
    /// How many processes there are.
    pub processes: u64,
    /// CPU since they began, in user mode and in the kernel; what ended since is missing.
    pub cpu_seconds: f64,
    /// Memory: proportional shares of what they share, where the kernel tells, else resident sets; and
    /// files in memory that belong to them.
    pub memory_bytes: u64,
    /// Bytes fetched from a device since they began (`read_bytes` of proc(5)).
    pub disk_read_bytes: u64,
    /// Bytes handed over to be written to a device since they began (`write_bytes`).
    pub disk_write_bytes: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// Of these, sockets: connections and listeners.
    pub sockets: u64,
    /// Threads.
    pub threads: u64,
}

/// What the process `root` and its descendants use.
///
/// # Errors
///
/// If `root` is gone. A descendant that ends meanwhile is left out.
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

/// The processes that `parent` started and that are still its own.
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
        // Beyond the resident set a sample counts files in memory.
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

/// The parent of every process there is.
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

/// `root` and all below it.
fn descendants(parents: &BTreeMap<u32, u32>, root: u32) -> BTreeSet<u32> {
    let mut tree = BTreeSet::from([root]);
    // Numbers wrap around, so a child may come before its parent: again until nobody joins.
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
    fn a_tree_holds_all_descendants_and_nobody_else() {
        let parents = BTreeMap::from([(3, 9), (5, 1), (7, 1), (9, 7), (1, 0)]);
        assert_eq!(descendants(&parents, 7), BTreeSet::from([3, 7, 9]));
        assert_eq!(descendants(&parents, 5), BTreeSet::from([5]));
    }

    /// Method: a shell that waits for a child which waits for us.
    #[test]
    fn children_are_counted_with_their_parent() {
        let mut shell = Command::new("sh")
            .args(["-c", "exec 3<&0; cat <&3 & echo up; wait"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        // The child is there before the line, and ends when its input does.
        let mut line = [0; 3];
        let stdout = shell.stdout.as_mut().expect("a pipe");
        io::Read::read_exact(stdout, &mut line).expect("a line");
        let found = (0..10_000)
            .map(|_| usage_of_tree(shell.id()).expect("it runs"))
            .find(|usage| usage.processes == 2);
        assert_eq!(children_of(shell.id()).len(), 1);
        _ = Command::new("kill").arg(shell.id().to_string()).status();
        drop(shell.stdin.take());
        shell.wait().expect("it ends");
        let usage = found.expect("a shell and its child");
        assert!(usage.memory_bytes > 100_000, "{usage:?}");
        assert!(usage.threads >= 2);
        assert!(usage_of_tree(u32::MAX).is_err());
    }
}
