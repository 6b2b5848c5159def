//! The `process_*` metrics of this process, read from `/proc` at each scrape.
//!
//! Their names are defined by the client libraries of Prometheus. The process collector of the `prometheus`
//! crate is not used, because it rounds the CPU time to whole seconds.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

crate::metrics! {
    pub(crate) const PROCESS: Process = |process| {
        Counter "process_cpu_seconds_total"
            "Total user and system CPU time of the process in seconds." { process.cpu_seconds }
        Gauge "process_start_time_seconds"
            "Start time of the process in seconds since the Unix epoch." { process.start_time_seconds }
        Gauge "process_open_fds" "Number of open file descriptors." { process.open_fds }
        Gauge "process_max_fds" "Maximum number of open file descriptors." { process.max_fds }
        Gauge "process_virtual_memory_bytes"
            "Virtual memory of the process in bytes." { process.virtual_memory_bytes }
        Gauge "process_resident_memory_bytes"
            "Resident memory of the process in bytes." { process.resident_memory_bytes }
    }
}

/// The resources that this process uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Process {
    cpu_seconds: f64,
    start_time_seconds: f64,
    open_fds: u64,
    /// The limit of open file descriptors, or `u64::MAX` if there is no limit, as in other client libraries.
    max_fds: u64,
    virtual_memory_bytes: u64,
    resident_memory_bytes: u64,
}

impl Process {
    /// Reads the resources. Returns `None` if `/proc` does not exist or cannot be read, for example because all
    /// file descriptors of the process are in use.
    pub(crate) fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let stat = Stat::parse(&stat)?;
        // `/proc/self/stat` has the CPU time too, but only in ticks of 10 ms.
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let ticks_per_second = clock_ticks_per_second() as f64;
        let boot = boot_time_seconds(&fs::read_to_string("/proc/stat").ok()?)?;
        // The folder includes the descriptor that reads it, which is subtracted.
        let open_fds = fs::read_dir("/proc/self/fd")
            .ok()?
            .count()
            .saturating_sub(1);
        Some(Self {
            cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            start_time_seconds: boot as f64 + stat.start_ticks as f64 / ticks_per_second,
            open_fds: open_fds as u64,
            max_fds: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
            virtual_memory_bytes: stat.virtual_bytes,
            resident_memory_bytes: stat.resident_pages * page_size() as u64,
        })
    }
}

/// Fields of `/proc/self/stat`, see proc_pid_stat(5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    /// The start of the process in clock ticks since the boot of the system.
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The second field is the program's name in parentheses, which may contain spaces and parentheses.
        let (_, after_name) = text.rsplit_once(')')?;
        let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
        // `number` is the number of a field in the manual page. `fields` begins with field 3, after the name.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

/// Returns the `btime` of `/proc/stat`.
fn boot_time_seconds(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let text = "7 (a ) b) S 1 7 7 0 -1 4194560 100 0 0 0 31 11 0 0 20 0 4 0 5000 8192000 300 18446744073709551615";
        let expected = Stat {
            start_ticks: 5000,
            virtual_bytes: 8_192_000,
            resident_pages: 300,
        };
        assert_eq!(Stat::parse(text), Some(expected));
        assert_eq!(Stat::parse("7 (a) S 1"), None);
    }

    #[test]
    fn the_boot_time_is_one_line_of_many() {
        assert_eq!(
            boot_time_seconds("cpu 1 2\nbtime 1700000000\nx 1\n"),
            Some(1_700_000_000)
        );
        assert_eq!(boot_time_seconds("cpu 1 2\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_plausible_figures() {
        let before = Process::read().expect("/proc exists on Linux");
        let _file = fs::File::open("/proc/self/stat").expect("the file can be opened");
        let after = Process::read().expect("/proc exists on Linux");
        assert!(after.resident_memory_bytes > 100_000, "{after:?}");
        assert!(
            after.virtual_memory_bytes > after.resident_memory_bytes,
            "{after:?}"
        );
        assert!(
            after.open_fds >= 4 && after.open_fds < after.max_fds,
            "{after:?}"
        );
        assert!(
            after.cpu_seconds >= before.cpu_seconds,
            "{before:?}, {after:?}"
        );
        let now = std::time::UNIX_EPOCH
            .elapsed()
            .expect("the clock is after 1970")
            .as_secs_f64();
        let age = now - after.start_time_seconds;
        assert!((-2.0..3600.0).contains(&age), "{age} s old");
    }
}
