//! Test helpers that run other programs, with time limits.

use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(crate) use edgeward_testkit::programs::{find, skip};

/// The time limit of a program that [`run`] starts, in seconds. For example, wget copies the site through a debug
/// build of the edge in about ten seconds.
const TIMEOUT_SECS: &str = "120";

/// Returns true if all of `programs` are installed. Otherwise prints that the test is skipped, or fails the
/// test if the programs are required.
pub(crate) fn are_installed(programs: &[&str]) -> bool {
    let missing: Vec<_> = programs
        .iter()
        .filter(|program| find(program).is_none())
        .collect();
    if !missing.is_empty() {
        skip(&format!("not installed: {missing:?}"));
    }
    missing.is_empty()
}

/// The exit code and the output of a program.
pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Output {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The last lines of the output, for a message.
    pub(crate) fn tail(&self) -> String {
        let both = [self.stdout.as_slice(), self.stderr.as_slice()].concat();
        let text = String::from_utf8_lossy(&both).into_owned();
        let lines: Vec<_> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(30)..];
        format!("exit {}\n{}", self.code, last.join("\n"))
    }
}

/// Runs a program to its end, with coreutils' `timeout` as the limit.
pub(crate) fn run(program: &str, arguments: impl Iterator<Item = String>) -> Output {
    let output = Command::new("timeout")
        .args(["--kill-after=5", TIMEOUT_SECS])
        .arg(find(program).expect("the test checked that the program is installed"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("coreutils has timeout");
    Output {
        code: output.status.code().unwrap_or(-1),
        stdout: output.stdout,
        stderr: output.stderr,
    }
}

/// A running server. Dropping it stops the server.
pub(crate) struct Server {
    child: Child,
}

impl Server {
    /// Starts a server and waits until it accepts connections on each of `ports`.
    pub(crate) fn start(program: &Path, arguments: &[String], ports: &[u16]) -> Self {
        // If the test is killed, the kernel stops the server.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "--"])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let mut server = Self { child };
        let deadline = Instant::now() + Duration::from_secs(20);
        for &port in ports {
            while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
                let exit_status = server
                    .child
                    .try_wait()
                    .expect("the server is a child of the test");
                assert!(
                    exit_status.is_none(),
                    "{} ended: {exit_status:?}",
                    program.display()
                );
                assert!(
                    Instant::now() < deadline,
                    "{} does not listen",
                    program.display()
                );
                // nginx does not report when it is ready, so the test tries to connect.
                sleep(Duration::from_millis(10));
            }
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Sends SIGTERM, so that nginx's master stops its worker and the edge drains.
        _ = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            sleep(Duration::from_millis(10));
        }
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
