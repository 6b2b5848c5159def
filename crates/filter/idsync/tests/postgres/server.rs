//! A PostgreSQL server for one test.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// A running PostgreSQL server. The server stops when this value is dropped, also after a panic of the test.
pub(crate) struct Server {
    folder: tempfile::TempDir,
    port: u16,
    process: Child,
    tls: bool,
}

impl Server {
    /// Starts a server. Returns `None` if PostgreSQL is not installed.
    pub(crate) fn start() -> Option<Self> {
        Self::new(false)
    }

    /// Starts a server with TLS for the name `localhost`.
    pub(crate) fn start_with_tls() -> Option<Self> {
        Self::new(true)
    }

    fn new(tls: bool) -> Option<Self> {
        if program("initdb").is_none() || program("postgres").is_none() {
            skip("PostgreSQL is not installed");
            return None;
        }
        let folder = tempfile::tempdir().expect("the folder is created");
        give_to_server_user(folder.path());
        let data = folder.path().join("data");
        let initialized = as_unprivileged_user("initdb")
            .args(["--auth=trust", "--username=edgeward", "--no-sync"])
            .args(["--encoding=UTF8", "--no-locale", "--pgdata"])
            .arg(&data)
            .output()
            .expect("initdb runs");
        assert!(initialized.status.success(), "{initialized:?}");
        if tls {
            let names = vec!["localhost".to_owned()];
            let generated =
                rcgen::generate_simple_self_signed(names).expect("the certificate is created");
            for (name, pem) in [
                ("server.crt", generated.cert.pem()),
                ("server.key", generated.signing_key.serialize_pem()),
            ] {
                let path = data.join(name);
                fs::write(&path, pem).expect("the file is written");
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
                    .expect("the permissions can be set");
                give_to_server_user(&path);
            }
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("the listener is bound").port();
        drop(listener);
        let process = run(folder.path(), port, tls);
        Some(Self {
            folder,
            port,
            process,
            tls,
        })
    }

    /// Returns the address of the server's Unix socket. This socket has small buffers, so a scan cannot read
    /// many rows in advance.
    pub(crate) fn address(&self) -> String {
        let folder = self.folder.path().display().to_string();
        let host = folder.replace('/', "%2F");
        format!("postgres://edgeward@{host}:{}/postgres", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Copies the server's certificate out of its data folder. Returns the path of the copy.
    pub(crate) fn certificate(&self) -> String {
        let readable = self.folder.path().join("root.pem");
        let data = self.folder.path().join("data");
        fs::copy(data.join("server.crt"), &readable).expect("the file is copied");
        readable.display().to_string()
    }

    fn psql(&self) -> Command {
        let mut command = Command::new(program("psql").expect("psql is part of PostgreSQL"));
        command
            .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"])
            .args(["--set=ON_ERROR_STOP=1", "--username=edgeward", "--host"])
            .arg(self.folder.path())
            .args(["--port", &self.port.to_string(), "--dbname=postgres"]);
        command
    }

    /// Executes SQL.
    pub(crate) fn sql(&self, sql: &str) {
        let done = self.psql().args(["--command", sql]).output();
        let done = done.expect("psql runs");
        assert!(done.status.success(), "{done:?}");
    }

    /// Executes SQL in a new session. The session stays open, and so does a transaction that the SQL begins.
    pub(crate) fn session(&self, sql: &str) -> Session {
        let mut process = self
            .psql()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("psql runs");
        let mut input = process.stdin.take().expect("the pipe is open");
        writeln!(input, "{sql}\n\\echo done").expect("psql reads");
        let mut output_text = String::new();
        let output = process.stdout.as_mut().expect("the pipe is open");
        BufReader::new(output)
            .read_line(&mut output_text)
            .expect("the output is text");
        assert_eq!(output_text, "done\n");
        Session { process, input }
    }

    /// Stops the server as a crash does: PostgreSQL writes no checkpoint, and the connections close.
    pub(crate) fn crash(&mut self) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::QUIT).expect("the process runs");
        self.process.wait().expect("the process ends");
    }

    /// Starts the server again with the same data.
    pub(crate) fn restart(&mut self) {
        self.process = run(self.folder.path(), self.port, self.tls);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.process.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.crash();
        }
    }
}

/// A running `psql`, whose transaction is open until [`commit`](Self::commit).
pub(crate) struct Session {
    process: Child,
    input: ChildStdin,
}

impl Session {
    pub(crate) fn commit(mut self) {
        writeln!(self.input, "COMMIT;").expect("psql reads");
        drop(self.input);
        let mut output_text = String::new();
        let mut output = self.process.stdout.take().expect("the pipe is open");
        output
            .read_to_string(&mut output_text)
            .expect("the output is text");
        assert!(
            self.process.wait().expect("the process ends").success(),
            "{output_text}"
        );
    }
}

/// Starts a server and waits until it is ready.
fn run(folder: &Path, port: u16, tls: bool) -> Child {
    let mut process = as_unprivileged_user("postgres")
        .arg("-D")
        .arg(folder.join("data"))
        .arg("-k")
        .arg(folder)
        .args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1"])
        .args(["-c", "fsync=off", "-c", "logging_collector=off"])
        .args(["-c", if tls { "ssl=on" } else { "ssl=off" }])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("postgres runs");
    let log = process.stderr.take().expect("the pipe is open");
    let lines = lines_of(log);
    let mut output_text = String::new();
    while !output_text.contains("ready to accept connections") {
        let Ok(line) = lines.recv_timeout(Duration::from_secs(60)) else {
            panic!("postgres does not start:\n{output_text}");
        };
        output_text.push_str(&line);
    }
    process
}

/// Returns the lines of a log. A thread reads the log to its end, because the server would block on a full pipe.
fn lines_of(log: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(log).lines().map_while(Result::ok) {
            _ = sender.send(line + "\n");
        }
    });
    lines
}

/// Returns a command for a PostgreSQL program. PostgreSQL refuses to run as root, so root runs the program as
/// an unprivileged user. The system kills the program when the thread that started it ends.
fn as_unprivileged_user(name: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if is_root() {
        command.args([
            format!("--reuid={UNPRIVILEGED_UID}"),
            format!("--regid={UNPRIVILEGED_UID}"),
            "--clear-groups".to_owned(),
        ]);
    }
    command.arg(program(name).expect("the program was found before"));
    command.current_dir("/");
    command
}

fn give_to_server_user(path: &Path) {
    if is_root() {
        chown(path, Some(UNPRIVILEGED_UID), Some(UNPRIVILEGED_UID))
            .expect("root may change the owner");
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

/// Finds a program. The folders of `PATH` do not suffice: Debian installs PostgreSQL's server programs elsewhere.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = env::var("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = path.split(':').map(PathBuf::from).collect();
    if let Ok(versions) = fs::read_dir("/usr/lib/postgresql") {
        folders.extend(versions.flatten().map(|version| version.path().join("bin")));
    }
    let mut candidates = folders.iter().map(|folder| folder.join(name));
    candidates.find(|candidate| candidate.is_file())
}

/// Prints why the test is skipped. Panics if `EDGEWARD_REQUIRE_TOOLS` is 1.
fn skip(why: &str) {
    let required = env::var("EDGEWARD_REQUIRE_TOOLS").is_ok_and(|value| value == "1");
    assert!(
        !required,
        "{why}\n  hint: run `scripts/ensure-debian test`, which installs what the tests need"
    );
    eprintln!("skipped: {why}");
}

const UNPRIVILEGED_UID: u32 = 65534;
