//! The memory available to this process: the memory of the machine, or the limit of a Linux control group if that is
//! lower.

use std::fmt;
use std::fs;
use std::path::Path;

use edgeward_types::ByteSize;

/// Logs a warning if the memory tier (`--hot`) exceeds the available memory: as soon as the cache is full, the system
/// would swap or kill the process.
pub(crate) fn warn_if_hot_exceeds_memory(hot: ByteSize) {
    if let Some(limit) = MemoryLimit::of_system(Path::new("/"))
        && hot.bytes() > limit.bytes
    {
        tracing::warn!(
            hot = %hot,
            limit = %ByteSize(limit.bytes),
            "--hot exceeds {}; the system may kill this process when the cache is full: lower --hot",
            limit.source
        );
    }
}

/// Returns the default bound of the process's memory: 90 % of the memory that is available to it.
pub(crate) fn bound_of_system() -> Option<ByteSize> {
    Some(ByteSize(available()?.bytes() / 10 * 9))
}

/// Returns the memory that is available to this process.
pub(crate) fn available() -> Option<ByteSize> {
    let limit = MemoryLimit::of_system(Path::new("/"))?;
    Some(ByteSize(limit.bytes))
}

/// The lowest limit of memory that applies to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MemoryLimit {
    bytes: u64,
    source: LimitSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LimitSource {
    Machine,
    ControlGroup,
}

impl fmt::Display for LimitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Machine => "the machine's memory",
            Self::ControlGroup => "the memory limit of the control group",
        })
    }
}

impl MemoryLimit {
    /// Reads the limits from the folders `proc` and `sys` below `root`. Returns `None` if they contain no limit.
    fn of_system(root: &Path) -> Option<Self> {
        let machine = fs::read_to_string(root.join("proc/meminfo"))
            .ok()
            .and_then(|text| machine_bytes(&text))
            .map(|bytes| Self {
                bytes,
                source: LimitSource::Machine,
            });
        let group = group_bytes(root).map(|bytes| Self {
            bytes,
            source: LimitSource::ControlGroup,
        });
        machine
            .into_iter()
            .chain(group)
            .min_by_key(|limit| limit.bytes)
    }
}

/// Parses the line `MemTotal:  8123456 kB` of `/proc/meminfo`.
fn machine_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The lowest limit of this process's control group and of its ancestors, for versions 1 and 2 of control groups.
fn group_bytes(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    groups.lines().filter_map(|line| limit_of(root, line)).min()
}

/// The lowest limit for one line of `/proc/self/cgroup`: `0::/path` for version 2, `4:memory:/path` for version 1.
fn limit_of(root: &Path, line: &str) -> Option<u64> {
    let (_, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    let (mount, file) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max"),
        _ if controllers
            .split(',')
            .any(|controller| controller == "memory") =>
        {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return None,
    };
    // In a container, `path` may be the path of the group on the host. Then only the root of the mount exists inside
    // the container, so the ancestors are read too.
    Path::new(path.trim_start_matches('/'))
        .ancestors()
        .filter_map(|group| fs::read_to_string(root.join(mount).join(group).join(file)).ok())
        // `max` means no limit.
        .filter_map(|text| text.trim().parse().ok())
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_lowest_of_the_memory_and_the_limits_of_the_control_groups() {
        let root = tempfile::tempdir().expect("the temporary folder is created");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("the path has a parent"))
                .expect("the folder is created");
            fs::write(path, text).expect("the file is written");
        };
        let limit = || MemoryLimit::of_system(root.path()).map(|limit| (limit.bytes, limit.source));
        assert_eq!(limit(), None);
        write("proc/meminfo", "MemTotal:        1000 kB\nMemFree: 5 kB\n");
        assert_eq!(limit(), Some((1_024_000, LimitSource::Machine)));
        write("proc/self/cgroup", "0::/a.slice/b.service\n");
        write("sys/fs/cgroup/a.slice/b.service/memory.max", "max\n");
        assert_eq!(limit(), Some((1_024_000, LimitSource::Machine)));
        write("sys/fs/cgroup/a.slice/memory.max", "4096\n");
        assert_eq!(limit(), Some((4096, LimitSource::ControlGroup)));
        write("proc/self/cgroup", "5:cpu,memory:/x\n");
        write("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "2048\n");
        assert_eq!(limit(), Some((2048, LimitSource::ControlGroup)));
    }
}
