//! Samples the counters of a running contender: its processes, its status page, the device, the load and the origin.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use edgeward_replay::load::{Latencies, LiveCounts, Target};
use edgeward_replay::monitor::{fetch_status, usage_of_tree};
use edgeward_replay::origin::OriginStats;
use serde_json::Value;

use crate::sample::Sample;

/// The sources of one sample.
pub(crate) struct Sampler<'a> {
    /// The contender's process. Its descendants are sampled too.
    pub(crate) pid: u32,
    /// The status page that has the write operations of the disk cache.
    pub(crate) status: Option<Target>,
    /// A folder in memory (tmpfs). The size of its files is added to the memory of the contender.
    pub(crate) files_in_memory: Option<PathBuf>,
    /// The major and minor number of the device, as in `/proc/diskstats`.
    pub(crate) device: Option<(u64, u64)>,
    /// The counters of the replay that loads the contender.
    pub(crate) live: &'a LiveCounts,
    pub(crate) origin: &'a OriginStats,
    /// The time from which [`Sample::seconds`] counts.
    pub(crate) started: Instant,
    /// All latencies up to the previous sample. The next sample has the latencies since then.
    pub(crate) latencies: Latencies,
}

impl Sampler<'_> {
    /// Takes a sample of all sources.
    pub(crate) fn sample(&mut self) -> Sample {
        let origin = self.origin.counts();
        let latencies = self.live.latencies();
        let interval = latencies.since(&self.latencies);
        self.latencies = latencies;
        let quantile = |share| Some(interval.quantile(share)?.as_secs_f64() * 1e3);
        let mut sample = Sample {
            seconds: self.started.elapsed().as_secs_f64(),
            requests: self.live.requests(),
            hits: self.live.hits(),
            body_bytes: self.live.body_bytes(),
            hit_bytes: self.live.hit_bytes(),
            errors: self.live.errors(),
            origin_requests: origin.requests,
            origin_bytes: origin.body_bytes,
            origin_connections: origin.open_connections,
            latency_p50_ms: quantile(0.5),
            latency_p90_ms: quantile(0.9),
            latency_p99_ms: quantile(0.99),
            device_operations: self.device.and_then(operations_of),
            ..Sample::default()
        };
        if let Ok(usage) = usage_of_tree(self.pid) {
            let files = self.files_in_memory.as_deref().map_or(0, bytes_below);
            sample.cpu_seconds = Some(usage.cpu_seconds);
            sample.memory_bytes = Some(usage.memory_bytes + files);
            sample.disk_read_bytes = Some(usage.disk_read_bytes);
            sample.disk_write_bytes = Some(usage.disk_write_bytes);
            sample.sockets = Some(usage.sockets);
        }
        let page = self
            .status
            .as_ref()
            .and_then(|page| fetch_status(page).ok());
        sample.store_write_operations = page.as_ref().and_then(store_writes);
        sample
    }
}

/// Returns the sum of the write operations of all devices on the status page of an edge.
fn store_writes(page: &Value) -> Option<u64> {
    let devices = page.pointer("/disk/devices")?.as_array()?;
    let writes = devices
        .iter()
        .filter_map(|device| device.get("write_ops")?.as_u64());
    Some(writes.sum())
}

/// Returns the major and minor number of the device of a folder. Returns `None` if the folder is in memory (its major
/// number is then 0) or cannot be read.
pub(crate) fn device_of(folder: &Path) -> Option<(u64, u64)> {
    let number = fs::metadata(folder).ok()?.dev();
    // The layout of glibc's makedev(3): bits 8 to 19 are the low part of the major number, bits 0 to 7 the low part
    // of the minor number. The high parts follow in the upper bits.
    let major = ((number >> 8) & 0xfff) | ((number >> 32) & !0xfff);
    let minor = (number & 0xff) | ((number >> 12) & 0xfff00);
    (major != 0).then_some((major, minor))
}

fn operations_of(device: (u64, u64)) -> Option<u64> {
    operations_in(&fs::read_to_string("/proc/diskstats").ok()?, device)
}

/// Returns the number of completed reads and writes of a device (Documentation/admin-guide/iostats.rst).
fn operations_in(diskstats: &str, (major, minor): (u64, u64)) -> Option<u64> {
    diskstats.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let number = |n: usize| fields.get(n)?.parse::<u64>().ok();
        let matches = number(0) == Some(major) && number(1) == Some(minor);
        matches.then(|| Some(number(3)? + number(7)?))?
    })
}

/// Returns the bytes that the files below a folder occupy, counted in allocated blocks. Stops after
/// more than [`FILES_MAX`] files and folders.
pub(crate) fn bytes_below(folder: &Path) -> u64 {
    let mut folders = vec![folder.to_owned()];
    let (mut bytes, mut files) = (0, 0);
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(folder) else {
            continue;
        };
        for entry in entries.flatten() {
            // The contender may have deleted the file after it was listed.
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_dir() {
                folders.push(entry.path());
            } else {
                bytes += metadata.blocks() * 512;
            }
            files += 1;
            if files > FILES_MAX {
                return bytes;
            }
        }
    }
    bytes
}

/// The maximum number of files and folders to count. Reading the metadata of 200,000 files takes a third of a second.
const FILES_MAX: usize = 200_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_device_is_read_and_the_lines_of_its_partitions_are_not() {
        let text = "\
 254       1 vda1 9 9 9 9 9 9 9 9 0 0 0
 254       0 vda 100 1 800 7 20 2 4096 8 0 9 15
 7 0 loop0 1
";
        assert_eq!(operations_in(text, (254, 0)), Some(120));
        assert_eq!(operations_in(text, (7, 0)), None);
        assert_eq!(operations_in(text, (8, 0)), None);
    }

    #[test]
    fn writes_of_all_devices_are_added_and_a_page_without_devices_has_no_count() {
        let page = serde_json::json!({"disk": {"devices": [{"write_ops": 3}, {"write_ops": 4}]}});
        assert_eq!(store_writes(&page), Some(7));
        assert_eq!(store_writes(&serde_json::json!({"disk": null})), None);
    }

    #[test]
    fn the_size_of_files_is_counted_in_allocated_blocks() {
        let folder = tempfile::tempdir().expect("the folder is created");
        let inner = folder.path().join("a/b");
        fs::create_dir_all(&inner).expect("the folders are created");
        assert_eq!(bytes_below(folder.path()), 0);
        fs::write(inner.join("x"), vec![1; 10_000]).expect("the file is written");
        fs::write(folder.path().join("y"), [1]).expect("the file is written");
        let bytes = bytes_below(folder.path());
        // With delayed allocation a file may have no blocks yet, or more blocks than its length needs.
        assert!(bytes <= 64 << 10, "{bytes}");
        assert_eq!(bytes_below(Path::new("/nowhere/at/all")), 0);
    }
}
