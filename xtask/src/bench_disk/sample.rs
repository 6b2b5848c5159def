//! Samples the counters of the process, the device, the edge and the origin once per second.

use std::fs;
use std::io::{IsTerminal as _, stderr};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::servers::{count, status, total};

/// Declares the fields of [`Sample`], its column names and its cells from one list.
macro_rules! figures {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A sample. All fields except `seconds` and the last three are counters: those from `/proc/diskstats` since
        /// the start of the machine, the others since the start of the processes.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub(crate) struct Sample {
            /// Seconds since the first sample.
            pub(crate) seconds: f64,
            $($(#[$doc])* pub(crate) $name: u64,)*
        }

        impl Sample {
            /// The column names of a table of samples.
            pub(crate) const COLUMNS: &[&str] = &["seconds", $(stringify!($name)),*];

            pub(crate) fn cells(&self) -> Vec<String> {
                vec![format!("{:.2}", self.seconds), $(self.$name.to_string()),*]
            }
        }
    };
}

figures! {
    /// Requests that the edge answered.
    requests,
    /// Hits from RAM or disk.
    hits,
    /// Hits from disk.
    disk_hits,
    /// Requests that reached the origin.
    origin_requests,
    /// Body bytes that the origin sent.
    origin_bytes,
    /// CPU time of all threads of the edge.
    cpu_ms,
    /// `/proc/PID/io`: bytes that the process read from a device.
    read_bytes,
    /// `/proc/PID/io`: bytes that the process wrote to files, counted when they enter the page cache.
    write_bytes,
    /// `/proc/PID/io`: write system calls, including those to sockets.
    write_calls,
    /// Bytes that the store wrote, by its own counter.
    store_written_bytes,
    /// Write operations of the store, by its own counter.
    store_write_ops,
    /// Syncs of the store.
    store_syncs,
    /// Objects that the store dropped because its queue was full.
    store_dropped,
    /// `/proc/diskstats`: writes that the device completed, including those of other programs.
    device_write_ops,
    /// `/proc/diskstats`: bytes of these writes.
    device_write_bytes,
    /// The current resident set of the edge.
    rss_bytes,
    /// The memory of the disk tier, as the edge reports it: the current memory of the index, the records of verified
    /// blocks and the admission, and the maximum memory of the queues.
    disk_memory_bytes,
    /// Bytes of bodies that are being fetched from the origin.
    fill_bytes,
}

/// The processes and the device to sample.
#[derive(Clone, Debug)]
pub(crate) struct SampleTargets {
    /// The admission rule of the run, for the progress line.
    pub(crate) label: String,
    /// The process of the edge.
    pub(crate) pid: u32,
    /// The port of the edge's `/status`.
    pub(crate) admin: u16,
    /// The port of the origin's `/status`.
    pub(crate) origin: u16,
    /// The major and minor number of the device, as in `/proc/diskstats`.
    pub(crate) device: Option<(u64, u64)>,
    /// The total number of requests, for the progress line.
    pub(crate) requests_total: Option<u64>,
}

/// A thread that takes samples.
#[derive(Debug)]
pub(crate) struct Sampler {
    stop: mpsc::Sender<()>,
    thread: thread::JoinHandle<anyhow::Result<Vec<Sample>>>,
}

impl Sampler {
    pub(crate) fn start(targets: SampleTargets) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || take_samples(&targets, &stopped));
        Self { stop, thread }
    }

    /// Takes a last sample and returns all samples.
    pub(crate) fn stop(self) -> anyhow::Result<Vec<Sample>> {
        drop(self.stop);
        match self.thread.join() {
            Ok(samples) => samples,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn take_samples(
    targets: &SampleTargets,
    stopped: &mpsc::Receiver<()>,
) -> anyhow::Result<Vec<Sample>> {
    let started = Instant::now();
    let mut samples = Vec::new();
    let mut next = started;
    loop {
        // The origin also counts the sampler's requests for `/status`, including the next one.
        let origin_polls = samples.len() as u64 + 1;
        let sample = take_sample(targets, started, origin_polls)?;
        progress(targets, &sample, samples.len());
        samples.push(sample);
        next = (next + INTERVAL).max(Instant::now());
        let wait = next.saturating_duration_since(Instant::now());
        let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(wait) else {
            break;
        };
    }
    samples.push(take_sample(targets, started, samples.len() as u64 + 1)?);
    if stderr().is_terminal() {
        eprintln!();
    }
    Ok(samples)
}

fn take_sample(
    targets: &SampleTargets,
    started: Instant,
    origin_polls: u64,
) -> anyhow::Result<Sample> {
    let edge = status(targets.admin).context("the edge's status")?;
    let origin = status(targets.origin).context("the origin's status")?;
    let process = |file| fs::read_to_string(format!("/proc/{}/{file}", targets.pid));
    let io = process("io").context("/proc/PID/io of the edge")?;
    let (cpu_ms, rss_bytes) = cpu_and_memory(&process("stat")?).context("/proc/PID/stat")?;
    let (device_write_ops, device_write_bytes) = targets
        .device
        .and_then(|device| completed_writes(&fs::read_to_string("/proc/diskstats").ok()?, device))
        .unwrap_or_default();
    let devices = &edge["disk"]["devices"];
    Ok(Sample {
        seconds: started.elapsed().as_secs_f64(),
        requests: total(&edge["requests"], ""),
        hits: count(&edge["requests"], "hit") + count(&edge["requests"], "hit-stale"),
        disk_hits: count(&edge["disk_lookups"], "hit") + count(&edge["disk_lookups"], "stale"),
        origin_requests: count(&origin, "requests").saturating_sub(origin_polls),
        origin_bytes: count(&origin, "body_bytes"),
        cpu_ms,
        rss_bytes,
        read_bytes: counter(&io, "read_bytes"),
        write_bytes: counter(&io, "write_bytes"),
        write_calls: counter(&io, "syscw"),
        store_written_bytes: total(devices, "written_bytes"),
        store_write_ops: total(devices, "write_ops"),
        store_syncs: total(devices, "syncs"),
        store_dropped: total(devices, "dropped_queue_full"),
        device_write_ops,
        device_write_bytes,
        disk_memory_bytes: total(&edge["disk"]["memory_bytes"], ""),
        fill_bytes: count(&edge["fills"], "bytes"),
    })
}

/// Prints the progress: on a terminal, one line that is overwritten; otherwise a new line every 20 samples.
fn progress(targets: &SampleTargets, sample: &Sample, samples_before: usize) {
    let done = targets.requests_total.map_or_else(String::new, |total| {
        let share = sample.requests as f64 / total.max(1) as f64;
        format!(" {:>3.0} %", share * 100.0)
    });
    let line = format!(
        "{:<12}{done} {:>9} requests {:>4.0} s  hits {:>4.1} % (disk {:>4.1} %)  written {:>7.1} MiB  RSS {:>4} MiB",
        targets.label,
        sample.requests,
        sample.seconds,
        share(sample.hits, sample.requests) * 100.0,
        share(sample.disk_hits, sample.requests) * 100.0,
        sample.write_bytes as f64 / f64::from(1 << 20),
        sample.rss_bytes >> 20,
    );
    if stderr().is_terminal() {
        eprint!("\r{line}");
    } else if samples_before.is_multiple_of(20) {
        eprintln!("{line}");
    }
}

pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64
}

/// Returns the major and minor number of the device of a folder, or `None` for tmpfs and similar file systems: their
/// major number is 0.
pub(crate) fn device_of(folder: &Path) -> Option<(u64, u64)> {
    let number = fs::metadata(folder).ok()?.dev();
    // The layout of glibc's makedev(3): bits 8 to 19 are the low part of the major number, bits 0 to 7 the low part
    // of the minor number. The high parts follow in the upper bits.
    let major = ((number >> 8) & 0xfff) | ((number >> 32) & !0xfff);
    let minor = (number & 0xff) | ((number >> 12) & 0xfff00);
    (major != 0).then_some((major, minor))
}

/// Returns the completed writes and the bytes written of a device. A sector has 512 bytes here for every device
/// (Documentation/admin-guide/iostats.rst).
fn completed_writes(diskstats: &str, (major, minor): (u64, u64)) -> Option<(u64, u64)> {
    let mut lines = diskstats.lines().map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let number = |n: usize| fields.get(n).and_then(|text| text.parse::<u64>().ok());
        [number(0), number(1), number(7), number(9)]
    });
    lines.find_map(|line| match line {
        [Some(a), Some(b), Some(writes), Some(sectors)] if (a, b) == (major, minor) => {
            Some((writes, sectors * 512))
        }
        _ => None,
    })
}

/// Returns the CPU time in milliseconds and the resident memory in bytes, from `/proc/PID/stat` (proc(5)).
fn cpu_and_memory(stat: &str) -> Option<(u64, u64)> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    // Field 3 of the manual page has index 0; a tick is 10 ms.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let page = rustix::param::page_size() as u64;
    Some(((field(14)? + field(15)?) * 10, field(24)? * page))
}

/// Returns the value of a key in `/proc/PID/io`, or 0 if the key is missing.
pub(crate) fn counter(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|line| {
            line.strip_prefix(name)?
                .strip_prefix(": ")?
                .trim()
                .parse()
                .ok()
        })
        .unwrap_or(0)
}

const INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_the_end_of_another_key_is_not_confused_with_it() {
        let io = "rchar: 1\nsyscw: 2\nread_bytes: 3\nwrite_bytes: 4\ncancelled_write_bytes: 5\n";
        assert_eq!((counter(io, "write_bytes"), counter(io, "syscw")), (4, 2));
        assert_eq!(counter(io, "bytes"), 0);
    }

    #[test]
    fn the_line_of_the_device_is_read_and_not_those_of_its_partitions() {
        let text = "\
 254       1 vda1 9 9 9 9 9 9 9 9 0 0 0
 254       0 vda 100 1 800 7 20 2 4096 8 0 9 15
";
        assert_eq!(completed_writes(text, (254, 0)), Some((20, 4096 * 512)));
        assert_eq!(completed_writes(text, (7, 0)), None);
    }

    #[test]
    fn the_memory_of_this_process_can_be_read() {
        let stat = fs::read_to_string("/proc/self/stat").expect("Linux has this file");
        let (_, memory) = cpu_and_memory(&stat).expect("the line has the format of proc(5)");
        assert!(memory > 100_000, "{stat}");
    }

    #[test]
    fn a_sample_has_one_cell_per_column() {
        assert_eq!(Sample::default().cells().len(), Sample::COLUMNS.len());
    }
}
