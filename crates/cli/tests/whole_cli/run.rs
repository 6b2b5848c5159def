//! Test helpers that run the binary. All of them except [`output`] have a time limit.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::thread;

use edgeward_testkit::client::{TIMEOUT, exchange};
pub(crate) use edgeward_testkit::client::{get, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A command that runs the binary without a terminal, with an output width of 80 columns.
pub(crate) fn edgeward(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_edgeward"));
    command
        .args(args)
        .env("COLUMNS", "80")
        .env_remove("EDGEWARD_LOG")
        .stdin(Stdio::null());
    command
}

/// Runs the binary to its end.
pub(crate) fn output(args: &[&str]) -> Output {
    edgeward(args).output().expect("the binary runs")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the output is UTF-8")
}

/// A server under test. Dropping it kills the process.
pub(crate) struct Server {
    child: Child,
    start_line: Value,
    lines: BufReader<ChildStdout>,
}

impl Server {
    /// Starts a server and reads the first line of its stdout, a JSON object.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::from_command(edgeward(args))
    }

    /// Starts a server by the given command and reads the first line of its stdout.
    pub(crate) fn from_command(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let (send, first_line) = mpsc::channel();
        let reader = thread::spawn(move || {
            let mut line = String::new();
            let read = lines.read_line(&mut line);
            _ = send.send(read.map(|_| line));
            lines
        });
        let line = first_line.recv_timeout(TIMEOUT);
        if !matches!(&line, Ok(Ok(line)) if line.starts_with('{')) {
            _ = child.kill();
            let mut printed = String::new();
            _ = child
                .stderr
                .take()
                .expect("stderr is piped")
                .read_to_string(&mut printed);
            panic!("no start line: {line:?}\n{printed}");
        }
        let line = line
            .expect("the line was checked")
            .expect("the line was checked");
        Self {
            child,
            start_line: serde_json::from_str(&line).expect("the start line is JSON"),
            lines: reader.join().expect("the reader ends"),
        }
    }

    /// A string of the first line, by its JSON pointer.
    pub(crate) fn text(&self, pointer: &str) -> &str {
        let text = self.start_line.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_else(|| panic!("{} has no string {pointer}", self.start_line))
    }

    /// An address of the first line, by its JSON pointer.
    pub(crate) fn addr(&self, pointer: &str) -> SocketAddr {
        let text = self.text(pointer);
        let addr = text.split_once("://").map_or(text, |(_, addr)| addr);
        let addr = addr.split('/').next().unwrap_or(addr);
        addr.parse().expect("the string is an address")
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the process runs");
    }

    /// Waits until the process ends. Returns the exit status, stdout after the first line, and stderr.
    pub(crate) fn wait_for_end(mut self) -> (ExitStatus, String, String) {
        let status = wait(&mut self.child);
        let (mut out, mut err) = (String::new(), String::new());
        self.lines
            .read_to_string(&mut out)
            .expect("stdout is UTF-8");
        let stderr = self.child.stderr.as_mut().expect("stderr is piped");
        stderr.read_to_string(&mut err).expect("stderr is UTF-8");
        (status, out, err)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Sends a request on a new connection and returns the whole response as text. The request must close the connection.
pub(crate) fn send_request(addr: SocketAddr, request: &str) -> String {
    String::from_utf8_lossy(&exchange(addr, request)).into_owned()
}

/// Requests `/status` of an admin server.
pub(crate) fn status(admin: SocketAddr) -> Value {
    let response = get(admin, "/status");
    let (_, body) = response
        .split_once("\r\n\r\n")
        .expect("the response has a head");
    serde_json::from_str(body).expect("the status is JSON")
}

/// Waits for the end of a child process, with a timeout.
pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    until("the process ends", || {
        child.try_wait().expect("the child can be waited for")
    })
}
