//! Runs the binary, with a bound on everything.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The binary, on a terminal of 80 columns that is none.
pub(crate) fn edgeward(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_edgeward"));
    command
        .args(args)
        .env("COLUMNS", "80")
        .env_remove("EDGEWARD_LOG")
        .stdin(Stdio::null());
    command
}

/// What it says and how it ends.
pub(crate) fn output(args: &[&str]) -> Output {
    edgeward(args).output().expect("the binary runs")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it speaks UTF-8")
}

/// A server under test. Killed when dropped, so that no test leaves one behind.
pub(crate) struct Server {
    child: Child,
    start_line: Value,
    lines: BufReader<ChildStdout>,
}

impl Server {
    /// Starts it and hears its start line out.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::from_command(edgeward(args))
    }

    /// The same of a command that was put together elsewhere.
    pub(crate) fn from_command(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it was asked for"));
        let (send, heard) = mpsc::channel();
        let reader = thread::spawn(move || {
            let mut line = String::new();
            let read = lines.read_line(&mut line);
            _ = send.send(read.map(|_| line));
            lines
        });
        let line = heard.recv_timeout(PATIENCE);
        if !matches!(&line, Ok(Ok(line)) if line.starts_with('{')) {
            _ = child.kill();
            let mut said = String::new();
            _ = child
                .stderr
                .take()
                .expect("it was asked for")
                .read_to_string(&mut said);
            panic!("no start line: {line:?}\n{said}");
        }
        let line = line.expect("checked above").expect("checked above");
        Self {
            child,
            start_line: serde_json::from_str(&line).expect("the start line is JSON"),
            lines: reader.join().expect("the reader ends"),
        }
    }

    /// What the start line says, by its JSON pointer.
    pub(crate) fn text(&self, pointer: &str) -> &str {
        let told = self.start_line.pointer(pointer).and_then(Value::as_str);
        told.unwrap_or_else(|| panic!("{} lacks {pointer}", self.start_line))
    }

    /// An address of the start line, by its JSON pointer.
    pub(crate) fn addr(&self, pointer: &str) -> SocketAddr {
        let told = self.text(pointer);
        let addr = told.split_once("://").map_or(told, |(_, addr)| addr);
        let addr = addr.split('/').next().unwrap_or(addr);
        addr.parse().expect("an address")
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Waits for its end; what it wrote after the start line, and its stderr.
    pub(crate) fn ended(mut self) -> (ExitStatus, String, String) {
        let status = wait(&mut self.child);
        let (mut out, mut err) = (String::new(), String::new());
        self.lines.read_to_string(&mut out).expect("UTF-8");
        let stderr = self.child.stderr.as_mut().expect("it was asked for");
        stderr.read_to_string(&mut err).expect("UTF-8");
        (status, out, err)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Waits for the child's end, and not forever.
pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    until("the process ends", || child.try_wait().expect("it is ours"))
}

/// Asks again until there is an answer, within the bound.
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited too long: {what}");
        thread::yield_now();
        thread::park_timeout(Duration::from_millis(2));
    }
}

/// For a machine that is busy with the other tests as well.
const PATIENCE: Duration = Duration::from_secs(60);
