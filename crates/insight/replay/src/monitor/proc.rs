//! Reads and parses `/proc/PID` (proc(5)).

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::param::{clock_ticks_per_second, page_size};
use serde::{Deserialize, Serialize};

use super::Sample;

/// The unit of `st_blocks`, in bytes (stat(2)).
const BLOCK_BYTES: u64 = 512;

/// A process, identified by its process id.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process(pub(super) u32);

/// The fields of `/proc/PID/stat` that the monitor uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    user_ticks: u64,
    system_ticks: u64,
    threads: u64,
    rss_pages: u64,
}

/// The bytes of all network interfaces except loopback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
}

impl Process {
    pub(super) fn stat(self) -> io::Result<Stat> {
        let text = self.read("stat")?;
        Stat::parse(&text)
            .ok_or_else(|| io::Error::other("/proc/PID/stat has an unexpected format"))
    }

    /// Writes the resource use into the sample. Fields that the monitor may not read stay `None`.
    pub(super) fn fill(self, stat: &Stat, sample: &mut Sample) {
        let per_second = clock_ticks_per_second() as f64;
        sample.cpu_user_seconds = Some(stat.user_ticks as f64 / per_second);
        sample.cpu_system_seconds = Some(stat.system_ticks as f64 / per_second);
        sample.threads = Some(stat.threads);
        let resident = stat.rss_bytes();
        sample.rss_bytes = Some(resident);
        let rollup = self.read("smaps_rollup").ok();
        sample.pss_bytes = rollup.and_then(|text| bytes_after(&text, "Pss:"));
        if let Ok(text) = self.read("io") {
            sample.disk_read_bytes = number_after(&text, "read_bytes:");
            sample.disk_write_bytes = number_after(&text, "write_bytes:");
        }
        if let Ok(entries) = fs::read_dir(self.path("fd")) {
            let (mut all, mut sockets, mut memory_files) = (0, 0, 0);
            // A descriptor may be closed after it was listed.
            for entry in entries.flatten() {
                all += 1;
                let Ok(target) = fs::read_link(entry.path()) else {
                    continue;
                };
                let target = target.as_os_str().as_encoded_bytes();
                sockets += u64::from(target.starts_with(b"socket:"));
                if target.starts_with(b"/memfd:") {
                    let blocks = fs::metadata(entry.path()).map_or(0, |file| file.blocks());
                    memory_files += blocks * BLOCK_BYTES;
                }
            }
            // The pages of a memfd occupy memory even if the process has not mapped them. Mapped and touched pages
            // are already part of the resident set.
            let status = self.read("status").ok();
            let mapped = status.and_then(|text| bytes_after(&text, "RssShmem:"));
            sample.rss_bytes = Some(resident + memory_files.saturating_sub(mapped.unwrap_or(0)));
            sample.descriptors = Some(all);
            sample.sockets = Some(sockets);
        }
        if self.has_own_network() {
            sample.network = self.read("net/dev").ok().map(|text| Network::parse(&text));
        }
    }

    /// Returns true if the process is in another network namespace than this process, as in a container.
    fn has_own_network(self) -> bool {
        match (
            fs::read_link(self.path("ns/net")),
            fs::read_link("/proc/self/ns/net"),
        ) {
            (Ok(theirs), Ok(ours)) => theirs != ours,
            _ => false,
        }
    }

    fn read(self, file: &str) -> io::Result<String> {
        fs::read_to_string(self.path(file))
    }

    fn path(self, file: &str) -> String {
        format!("/proc/{}/{file}", self.0)
    }
}

/// Returns the parent of a process, if the process exists.
pub(super) fn parent_of(pid: u32) -> Option<u32> {
    let text = Process(pid).read("stat").ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    // The state is field 3, the parent is field 4.
    rest.split_whitespace().nth(1)?.parse().ok()
}

impl Stat {
    /// Returns the size of the resident set in bytes.
    pub(super) fn rss_bytes(&self) -> u64 {
        self.rss_pages * page_size() as u64
    }

    fn parse(text: &str) -> Option<Self> {
        // The second field is the command in parentheses. It may contain spaces and parentheses; the fields after its
        // closing parenthesis are regular.
        let (_, rest) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // Field 3 of the manual page has index 0.
        let field = |number: usize| fields.get(number - 3)?.parse().ok();
        Some(Self {
            user_ticks: field(14)?,
            system_ticks: field(15)?,
            threads: field(20)?,
            rss_pages: field(24)?,
        })
    }
}

impl Network {
    fn parse(text: &str) -> Self {
        let mut sum = Self::default();
        for line in text.lines() {
            let Some((name, figures)) = line.split_once(':') else {
                continue;
            };
            if name.trim() == "lo" {
                continue;
            }
            let figures: Vec<u64> = figures
                .split_whitespace()
                .map_while(|figure| figure.parse().ok())
                .collect();
            // Each line has eight counters of received data, then eight of sent data. The first of each eight
            // counts bytes.
            sum.received_bytes += figures.first().copied().unwrap_or(0);
            sum.sent_bytes += figures.get(8).copied().unwrap_or(0);
        }
        sum
    }
}

/// Returns the number in the first line that begins with `name`.
fn number_after(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Like [`number_after`], for a number of KiB. Returns bytes.
fn bytes_after(text: &str, name: &str) -> Option<u64> {
    number_after(text, name).map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    #[test]
    fn a_command_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let text = "4242 (evil) name) 1 (x) S 1 4242 4242 0 -1 4194560 5120 0 3 0 \
                    123 45 0 0 20 0 7 0 81530 1234567 890 18446744073709551615 1 1 0\n";
        let expected = Stat {
            user_ticks: 123,
            system_ticks: 45,
            threads: 7,
            rss_pages: 890,
        };
        assert_eq!(Stat::parse(text), Some(expected));
        assert_eq!(Stat::parse("4242 (short) S 1"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn bytes_of_loopback_are_not_counted() {
        let text = "\
Inter-|   Receive                                                |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo: 999 9 0 0 0 0 0 0 999 9 0 0 0 0 0 0
  eth0: 100 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0
  eth1:20 1 0 0 0 0 0 0 3 1 0 0 0 0 0 0
";
        let expected = Network {
            received_bytes: 120,
            sent_bytes: 10,
        };
        assert_eq!(Network::parse(text), expected);
    }

    #[test]
    fn numbers_are_found_by_the_name_at_the_start_of_their_line() {
        let text = "rchar: 5\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 1\n";
        assert_eq!(number_after(text, "read_bytes:"), Some(4096));
        assert_eq!(number_after(text, "write_bytes:"), Some(8192));
        assert_eq!(number_after(text, "nothing:"), None);
        assert_eq!(bytes_after("Pss:      12 kB\n", "Pss:"), Some(12 << 10));
    }

    #[test]
    fn this_process_can_be_monitored() {
        let process = Process(std::process::id());
        let mut sample = Sample::default();
        let stat = process.stat().expect("this process exists");
        process.fill(&stat, &mut sample);
        assert!(sample.rss_bytes > Some(100_000));
        assert!(sample.threads >= Some(1));
        assert!(sample.descriptors >= Some(3));
        assert!(Process(u32::MAX).stat().is_err());
    }

    #[test]
    fn an_unmapped_file_in_memory_counts_as_memory() {
        let process = Process(std::process::id());
        let memory = || {
            let mut sample = Sample::default();
            process.fill(&process.stat().expect("this process exists"), &mut sample);
            sample
                .rss_bytes
                .expect("the memory of this process is known")
        };
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC);
        let file = fs::File::from(file.expect("the file in memory is created"));
        let before = memory();
        file.write_all_at(&[1; 16 << 20], 0)
            .expect("the file is written");
        // Other tests of this process allocate and free memory meanwhile.
        assert!(memory() > before + (8 << 20));
    }
}
