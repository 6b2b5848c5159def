//! Starts a child process of the same binary and stops it.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A running child process. Dropping the value sends SIGTERM, and SIGKILL if the child does not end in time.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// The first line that the child wrote to stdout, as JSON.
    start_line: Value,
}

impl Process {
    /// Starts this binary with `args` and waits for its first line, which is JSON on stdout.
    pub(super) fn start(args: &[String]) -> anyhow::Result<Self> {
        let name = args.first().map_or("", String::as_str);
        let program = std::env::current_exe().context("cannot find the file of this program")?;
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // The child gets its own process group, so Ctrl-C reaches only the parent. The parent then stops the child.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start `edgeward {name}`"))?;
        let stdout = child.stdout.take().expect("stdout is piped");
        let (send, received) = mpsc::sync_channel(1);
        // The thread reads all lines, even after the first one, so that the child never blocks on a full pipe. The
        // thread ends when the child closes stdout.
        thread::Builder::new()
            .name("demo-reader".to_owned())
            .spawn(move || {
                let mut lines = BufReader::new(stdout).lines();
                // If the parent has timed out, the receiver is dropped and the error is ignored.
                _ = send.send(lines.next());
                lines.for_each(drop);
            })?;
        let mut process = Self {
            child,
            start_line: Value::Null,
        };
        let line = received
            .recv_timeout(START_TIME_MAX)
            .ok()
            .flatten()
            .with_context(|| format!("`edgeward {name}` did not start in time"))?
            .with_context(|| format!("cannot read the output of `edgeward {name}`"))?;
        process.start_line = serde_json::from_str(&line).with_context(|| {
            format!("the first line of `edgeward {name}` is not JSON: {line:?}")
        })?;
        Ok(process)
    }

    /// Returns the string at a JSON pointer in the first line.
    pub(super) fn first_line_text(&self, pointer: &str) -> anyhow::Result<&str> {
        self.start_line
            .pointer(pointer)
            .and_then(Value::as_str)
            .with_context(|| format!("{} has no string {pointer}", self.start_line))
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that the child has ended already.
        _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let deadline = Instant::now() + END_TIME_MAX;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(5)),
                _ => return,
            }
        }
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// The longest time that a child may take to start: far more than it needs, even on a busy machine.
const START_TIME_MAX: Duration = Duration::from_secs(20);

/// The time from SIGTERM to SIGKILL: longer than the drain timeout of the children.
const END_TIME_MAX: Duration = Duration::from_secs(5);
