//! A server as a child process: starts it, waits until it answers, and terminates it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use edgeward_replay::load::Stop;

/// A server process. The process is terminated when this value is dropped or when the lab is killed.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    log: PathBuf,
}

/// Why a server did not start. In the messages, "it" is the server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("it cannot be started: {0}")]
    Spawn(#[source] io::Error),
    #[error("it ended at once, with {status}{output}")]
    Ended { status: ExitStatus, output: String },
    #[error("it sent no correct response within {} s{output}", READY_TIME_MAX.as_secs())]
    Silent { output: String },
    #[error("interrupted")]
    Interrupted,
}

impl Server {
    /// Starts `program` in `folder`, and waits until it is ready.
    ///
    /// Call this function on a thread that lives as long as the server: the kernel sends the parent-death
    /// signal to the server when the thread that started it ends.
    pub(crate) fn start(
        program: &Path,
        arguments: &[String],
        folder: &Path,
        core: Option<u64>,
        ready: &Ready,
        stop: &Stop,
    ) -> Result<Self, StartError> {
        let log = folder.join("lab-output.log");
        let out = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(StartError::Spawn)?;
        let child = command(program, arguments, core)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(out.try_clone().map_err(StartError::Spawn)?)
            .stderr(out)
            // With its own process group, the server does not receive Ctrl-C. The lab receives it and terminates the
            // servers in order.
            .process_group(0)
            .spawn()
            .map_err(StartError::Spawn)?;
        let mut server = Self { child, log };
        server.wait_until(ready, stop)?;
        Ok(server)
    }

    fn wait_until(&mut self, ready: &Ready, stop: &Stop) -> Result<(), StartError> {
        let deadline = Instant::now() + READY_TIME_MAX;
        loop {
            // Another program may listen on this port, so our server must be alive.
            if let Some(status) = self.exit_status() {
                let output = self.last_output();
                return Err(StartError::Ended { status, output });
            }
            if ready.is_reached() {
                return Ok(());
            }
            if stop.is_requested() {
                return Err(StartError::Interrupted);
            }
            if Instant::now() > deadline {
                let output = self.last_output();
                return Err(StartError::Silent { output });
            }
            thread::sleep(POLL);
        }
    }

    /// Returns the exit status if the process has ended.
    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the last lines that the process wrote, after a colon, or an empty string. The caller appends the
    /// result to a sentence.
    pub(crate) fn last_output(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        let tail = &lines[lines.len().saturating_sub(OUTPUT_LINES_MAX)..];
        if tail.is_empty() {
            return String::new();
        }
        let output: String = tail.join(" / ").chars().take(OUTPUT_CHARS_MAX).collect();
        format!(": {output}")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // On SIGTERM the nginx master terminates its workers, and an edge saves its index.
        _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let deadline = Instant::now() + STOP_TIME_MAX;
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(POLL);
        }
        // Kills remaining processes of the group; usually none are left.
        _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// How a server shows that it is ready.
#[derive(Clone, Debug)]
pub(crate) enum Ready {
    /// It accepts connections on a port.
    Accepts(u16),
    /// It answers a request on a port for a path with a status of 2xx.
    Answers(u16, String),
}

impl Ready {
    /// A path of the lab's origin. A server that answers it has reached the origin.
    pub(crate) const ORIGIN_PATH: &str = "/o/lab-is-it-there?size=1&cc=no-store";

    fn is_reached(&self) -> bool {
        let (port, path) = match self {
            Self::Accepts(port) => (*port, None),
            Self::Answers(port, path) => (*port, Some(path)),
        };
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let Ok(stream) = TcpStream::connect_timeout(&addr, RESPONSE_TIME_MAX) else {
            return false;
        };
        path.is_none_or(|path| answers(stream, addr, path).unwrap_or(false))
    }
}

fn answers(mut stream: TcpStream, addr: SocketAddr, path: &str) -> io::Result<bool> {
    stream.set_read_timeout(Some(RESPONSE_TIME_MAX))?;
    stream.set_write_timeout(Some(RESPONSE_TIME_MAX))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n"
    )?;
    let mut response = Vec::new();
    stream.take(4096).read_to_end(&mut response)?;
    Ok(response.starts_with(b"HTTP/1.1 2"))
}

/// Returns a command that the kernel terminates with SIGTERM if the lab is killed. The lab itself cannot do this.
/// `core` is the core to which the command is pinned.
pub(crate) fn command(program: &Path, arguments: &[String], core: Option<u64>) -> Command {
    let mut words: Vec<OsString> = Vec::new();
    if let Some(setpriv) = find_program("setpriv") {
        words.extend([setpriv.into(), "--pdeathsig".into(), "TERM".into()]);
        words.push("--".into());
    }
    if let Some((core, taskset)) = core.zip(find_program("taskset")) {
        words.extend([taskset.into(), "--cpu-list".into(), core.to_string().into()]);
    }
    words.push(program.into());
    words.extend(arguments.iter().map(OsString::from));
    let mut words = words.into_iter();
    let mut command = Command::new(words.next().expect("the program is a word"));
    command.args(words);
    command
}

/// Returns a port of the loopback interface that is currently free and that was not returned before: a server may get
/// several ports before it uses them. It is below the ports that Linux gives to connections and to listeners without a
/// port, so that none of them takes it before its server has started.
pub(crate) fn free_port() -> io::Result<u16> {
    static RETURNED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut returned = RETURNED.lock().unwrap_or_else(PoisonError::into_inner);
    let random = RandomState::new();
    (0..1000)
        .map(|attempt| 10_000 + (random.hash_one(attempt) % 22_000) as u16)
        .find(|port| {
            let is_free = TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
            is_free && returned.insert(*port)
        })
        .ok_or_else(|| io::ErrorKind::AddrInUse.into())
}

/// Finds a program in `PATH` and in the `sbin` folders. An ordinary user's `PATH` does not contain the `sbin`
/// folders.
pub(crate) fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin_folders = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from);
    let candidates = std::env::split_paths(&path).chain(sbin_folders);
    let mut candidates = candidates.map(|folder| folder.join(program));
    candidates.find(|candidate| candidate.is_file())
}

/// Runs the program with `flag` and returns the version that it prints. Kills the program after two seconds.
pub(crate) fn version(program: &Path, flag: &str) -> Option<String> {
    let mut child = Command::new(program)
        .arg(flag)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let deadline = Instant::now() + RESPONSE_TIME_MAX;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        thread::sleep(POLL);
    }
    // A short output fits in the pipe, so the program can end without a reader. With a longer output, the program
    // waits for a reader until it is killed. Its output so far is used.
    _ = child.kill();
    let mut output = Vec::new();
    _ = child.stdout.take()?.take(4096).read_to_end(&mut output);
    _ = child.stderr.take()?.take(4096).read_to_end(&mut output);
    _ = child.wait();
    version_in(&String::from_utf8_lossy(&output))
}

/// Returns the first version number in the text, such as `1.22.1`.
fn version_in(text: &str) -> Option<String> {
    let words = text.split(|c: char| !(c.is_ascii_digit() || c == '.'));
    let mut words = words.map(|word| word.trim_matches('.'));
    let is_version = |word: &&str| word.contains('.') && !word.contains("..");
    words.find(is_version).map(str::to_owned)
}

/// On a busy machine Varnish needs some seconds to compile its VCL.
const READY_TIME_MAX: Duration = Duration::from_secs(30);

/// An edge that drains and saves its index may take ten seconds; nginx and Varnish take less.
const STOP_TIME_MAX: Duration = Duration::from_secs(20);

/// The maximum time to connect, to read or write, and to print a version.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(2);

const POLL: Duration = Duration::from_millis(20);

const OUTPUT_LINES_MAX: usize = 4;
const OUTPUT_CHARS_MAX: usize = 600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_the_output_of_servers() {
        for (output, version) in [
            ("nginx version: nginx/1.22.1\n", Some("1.22.1")),
            (
                "varnishd (varnish-7.1.1 revision 7cee1c)\nCopyright (c) 2006 X",
                Some("7.1.1"),
            ),
            (
                "Traffic Server 9.2.9 Apr  4 2026 14:52:39 localhost",
                Some("9.2.9"),
            ),
            ("hello.", None),
            ("", None),
        ] {
            assert_eq!(version_in(output).as_deref(), version, "{output}");
        }
    }

    #[test]
    fn the_error_for_a_program_that_ends_at_once_has_its_last_output() {
        let folder = tempfile::tempdir().expect("the folder is created");
        let program = find_program("sh").expect("a shell is installed");
        let arguments = ["-c", "echo first; echo it has no cheese >&2; exit 3"].map(str::to_owned);
        let port = free_port().expect("a port is free");
        let ready = Ready::Accepts(port);
        let stop = Stop::default();
        let error = Server::start(&program, &arguments, folder.path(), None, &ready, &stop);
        let message = error.expect_err("the program ends at once").to_string();
        assert!(
            message.contains("exit status: 3: first / it has no cheese"),
            "{message}"
        );
    }

    /// A server that never answers is ended when a stop is requested.
    ///
    /// Method: let the server write its process id to a file, wait until the file has a complete line, and
    /// request the stop. The shell creates the file before it writes the line, so the test ignores the file until
    /// it ends with a line feed.
    #[test]
    fn a_server_that_never_answers_is_ended_when_a_stop_is_requested() {
        let folder = tempfile::tempdir().expect("the folder is created");
        let program = find_program("sh").expect("a shell is installed");
        let arguments = ["-c", "echo $$ > pid; exec cat /dev/zero > /dev/null"].map(str::to_owned);
        let stop = Stop::default();
        let requester = {
            let (stop, path) = (stop.clone(), folder.path().join("pid"));
            thread::spawn(move || {
                let deadline = Instant::now() + READY_TIME_MAX / 2;
                let pid = loop {
                    let text = fs::read_to_string(&path).unwrap_or_default();
                    if let Some(pid) = text.strip_suffix('\n') {
                        break pid.parse::<u32>().ok();
                    }
                    if Instant::now() > deadline {
                        break None;
                    }
                    thread::sleep(POLL);
                };
                stop.request();
                pid
            })
        };
        let port = free_port().expect("a port is free");
        let ready = Ready::Accepts(port);
        let started = Server::start(&program, &arguments, folder.path(), None, &ready, &stop);
        assert!(
            matches!(started, Err(StartError::Interrupted)),
            "{started:?}"
        );
        let pid = requester.join().expect("the requester does not panic");
        let pid = pid.expect("the server wrote its process id");
        assert!(
            !Path::new("/proc").join(pid.to_string()).exists(),
            "process {pid} still runs"
        );
    }
}
