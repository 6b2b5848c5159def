//! Servers as child processes: pinned to a core, with timeouts and CPU accounting.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

const READY_TIMEOUT: Duration = Duration::from_secs(15);
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// `USER_HZ`, the unit of CPU times in `/proc`. It is 100 on all common Linux systems.
const TICKS_PER_SECOND: f64 = 100.0;

/// A server process. The process is terminated when this value is dropped or when this program is killed.
#[derive(Debug)]
pub(crate) struct Server {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts `program` on `core` and waits until it accepts connections on `port`.
    pub(crate) fn start(
        name: &str,
        program: &Path,
        arguments: &[String],
        core: u32,
        port: u16,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        Self::spawn(name, program, arguments, Some(core), port, folder)
    }

    /// Starts `program` without pinning it and waits until it accepts connections on `port`.
    pub(crate) fn start_unpinned(
        name: &str,
        program: &Path,
        arguments: &[String],
        port: u16,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        Self::spawn(name, program, arguments, None, port, folder)
    }

    fn spawn(
        name: &str,
        program: &Path,
        arguments: &[String],
        core: Option<u32>,
        port: u16,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let pin = core.map_or_else(Vec::new, |core| {
            ["taskset", "--cpu-list", &core.to_string()]
                .map(str::to_owned)
                .to_vec()
        });
        let log = folder.join(format!("{}.log", name.replace(' ', "-")));
        let out = File::create(&log).with_context(|| format!("{}", log.display()))?;
        // Ctrl-C kills this program without cleanup. `--pdeathsig` makes the kernel terminate the servers in
        // this case.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "--"])
            .args(pin)
            .arg(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .context("setpriv and taskset (util-linux) are needed")?;
        let mut server = Self {
            name: name.to_owned(),
            child,
            log,
        };
        server.wait_for(port)?;
        Ok(server)
    }

    /// Waits until the server accepts connections on `port`.
    pub(crate) fn wait_for(&mut self, port: u16) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Ok(());
            }
            let ended = self.child.try_wait()?;
            if ended.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                let why = ended.map_or_else(
                    || "it does not listen on its port".to_owned(),
                    |status| status.to_string(),
                );
                bail!("{} did not start: {why}\n{}", self.name, log.trim());
            }
            sleep(POLL);
        }
    }

    /// Returns the id of the main process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the CPU seconds of the process and its descendants.
    pub(crate) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        cpu_seconds_of(self.child.id()).with_context(|| format!("{} has ended", self.name))
    }

    /// Returns the ids of the process and its descendants.
    pub(crate) fn tree(&self) -> anyhow::Result<BTreeSet<u32>> {
        tree_of(self.child.id()).with_context(|| format!("{} has ended", self.name))
    }
}

/// Returns the CPU seconds of a process and its descendants.
pub(crate) fn cpu_seconds_of(pid: u32) -> anyhow::Result<f64> {
    let ticks = tree_ticks(&processes(pid)?, pid);
    Ok(ticks as f64 / TICKS_PER_SECOND)
}

/// Returns the ids of a process and its descendants.
pub(crate) fn tree_of(pid: u32) -> anyhow::Result<BTreeSet<u32>> {
    Ok(tree(&processes(pid)?, pid))
}

/// Reads all processes. Returns an error if `wanted` does not exist.
fn processes(wanted: u32) -> anyhow::Result<BTreeMap<u32, Process>> {
    let mut processes = BTreeMap::new();
    for entry in fs::read_dir("/proc").context("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process may end after it was listed.
        if let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat"))
            && let Some(process) = parse_stat(&stat)
        {
            processes.insert(pid, process);
        }
    }
    if !processes.contains_key(&wanted) {
        bail!("process {wanted} does not exist");
    }
    Ok(processes)
}

impl Drop for Server {
    fn drop(&mut self) {
        // On SIGTERM the nginx master terminates its workers. After SIGKILL the workers would continue to run.
        _ = Command::new("kill")
            .args(["-TERM", &self.child.id().to_string()])
            .status();
        let deadline = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            sleep(POLL);
        }
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    parent: u32,
    /// User and system time of the process and of the children that it waited for, in ticks.
    ticks: u64,
}

/// Parses `/proc/PID/stat` (proc(5)). The name in parentheses may contain any character.
fn parse_stat(stat: &str) -> Option<Process> {
    let (_, after_name) = stat.rsplit_once(')')?;
    // The state is field 3, the parent is field 4, utime to cstime are fields 14 to 17.
    let fields: Vec<_> = after_name.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Process {
        parent: u32::try_from(field(4)?).ok()?,
        ticks: field(14)? + field(15)? + field(16)? + field(17)?,
    })
}

fn tree_ticks(processes: &BTreeMap<u32, Process>, root: u32) -> u64 {
    let tree = tree(processes, root);
    let members = tree.iter().filter_map(|pid| processes.get(pid));
    members.map(|process| process.ticks).sum()
}

fn tree(processes: &BTreeMap<u32, Process>, root: u32) -> BTreeSet<u32> {
    let mut tree = BTreeSet::from([root]);
    // Process ids wrap around, so a child may be listed before its parent: repeat until no process is added.
    loop {
        let joined = processes
            .iter()
            .filter(|(pid, process)| !tree.contains(*pid) && tree.contains(&process.parent));
        let joined: Vec<_> = joined.map(|(pid, _)| *pid).collect();
        if joined.is_empty() {
            return tree;
        }
        tree.extend(joined);
    }
}

/// Returns a port of the loopback interface that is currently free.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    Ok(listener.local_addr()?.port())
}

/// Finds a program in `PATH` and in the `sbin` folders. An ordinary user's `PATH` does not contain the `sbin`
/// folders.
pub(crate) fn find(program: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':')
        .chain(["/usr/sbin", "/usr/local/sbin"])
        .map(|folder| Path::new(folder).join(program))
        .find(|candidate| candidate.is_file())
        .with_context(|| format!("{program} is not installed\n  hint: scripts/ensure-debian bench"))
}

/// A temporary folder, removed when this value is dropped. Before a new folder is created, the folders of killed runs
/// are removed.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) path: PathBuf,
}

impl Scratch {
    const PREFIX: &str = "edgeward-bench-";

    pub(crate) fn new(parent: &Path) -> anyhow::Result<Self> {
        for entry in fs::read_dir(parent)
            .with_context(|| parent.display().to_string())?
            .flatten()
        {
            let name = entry.file_name();
            let pid = name
                .to_str()
                .and_then(|name| name.strip_prefix(Self::PREFIX));
            if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                _ = fs::remove_dir_all(entry.path());
            }
        }
        let path = parent.join(format!("{}{}", Self::PREFIX, std::process::id()));
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(Self { path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_parsed_after_any_process_name() {
        let stat = "42 (ngi) nx (x)) S 7 42 42 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0";
        assert_eq!(
            parse_stat(stat),
            Some(Process {
                parent: 7,
                ticks: 100
            })
        );
        assert_eq!(parse_stat("42 (cut"), None);
    }

    #[test]
    fn the_ticks_of_a_tree_are_those_of_its_root_and_descendants() {
        let process = |parent, ticks| Process { parent, ticks };
        let processes = BTreeMap::from([
            (3, process(9, 1)),
            (5, process(1, 100)),
            (7, process(1, 10)),
            (9, process(7, 1000)),
        ]);
        assert_eq!(tree_ticks(&processes, 7), 10 + 1000 + 1);
    }

    #[test]
    fn the_cpu_time_of_this_process_can_be_read() {
        let stat = fs::read_to_string("/proc/self/stat").expect("Linux has this file");
        assert!(parse_stat(&stat).is_some(), "{stat}");
    }
}
