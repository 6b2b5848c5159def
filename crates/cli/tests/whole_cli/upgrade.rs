//! `edgeward upgrade`: a new process replaces a running edge.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::Ordering::Relaxed;

use edgeward_testkit::{Answer, Gate, ScriptedOrigin};
use serde_json::Value;

use super::load::{Load, LoadOrigin};
use super::run::{Server, edgeward, get, output, send_request, text, until};

/// An edge with a configuration file, an admin token and a file of its process id.
pub(crate) struct UpgradableEdge {
    folder: tempfile::TempDir,
    server: Option<Server>,
    pub(crate) addr: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl UpgradableEdge {
    /// Starts an edge with these additional lines in its file.
    pub(crate) fn start(origin: &str, more: &str) -> Self {
        Self::start_with(origin, more, |_| ())
    }

    /// Like [`start`](Self::start), and changes the command that starts the edge.
    pub(crate) fn start_with(origin: &str, more: &str, change: impl FnOnce(&mut Command)) -> Self {
        Self::start_with_origins(&format!("[origin]\nurl = \"{origin}\"\n"), more, change)
    }

    /// Like [`start_with`](Self::start_with), with these lines for the origins.
    pub(crate) fn start_with_origins(
        origins: &str,
        more: &str,
        change: impl FnOnce(&mut Command),
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("token"), TOKEN).expect("written");
        let file = folder.path().join("edge.toml");
        let pid = folder.path().join("pid");
        let text = format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\n{origins}\
             [hot]\ncapacity = \"32MiB\"\n[admin]\naddress = \"127.0.0.1:0\"\n\
             [purge]\ntoken_file = \"{}\"\n\
             [server]\nworkers = 2\ndrain_timeout = \"20s\"\npid_file = \"{}\"\nupgrade_timeout = \"30s\"\n{more}\n",
            folder.path().join("token").display(),
            pid.display()
        );
        std::fs::write(&file, text).expect("written");
        let config = file.display().to_string();
        let mut command = edgeward(&["serve", "--json", "--log=info", "--config", &config]);
        change(&mut command);
        let server = Server::from_command(command);
        Self {
            addr: server.addr("/listening/0"),
            admin: server.addr("/admin"),
            server: Some(server),
            folder,
        }
    }

    /// Returns an address in the first line of the first process.
    pub(crate) fn announced(&self, pointer: &str) -> SocketAddr {
        self.server.as_ref().expect("the edge runs").addr(pointer)
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a command of the admin API.
    pub(crate) fn command(&self, args: &[&str]) -> Output {
        let admin = self.admin.to_string();
        let token = self.path("token").display().to_string();
        let mut command = edgeward(args);
        command.args(["--admin", &admin, "--token-file", &token]);
        command.output().expect("the binary runs")
    }

    /// Upgrades the edge, and returns the id of the new process.
    pub(crate) fn upgrade(&self) -> u32 {
        let out = self.command(&["upgrade"]);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        let printed = text(&out.stdout);
        let pid = printed.trim().strip_prefix("upgraded, process ");
        pid.and_then(|pid| pid.parse().ok()).expect(&printed)
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        self.server.as_ref().expect("the edge runs").signal(signal);
    }

    pub(crate) fn metric(&self, name: &str) -> f64 {
        let page = get(self.admin, "/metrics");
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|line| line.trim().parse().ok());
        value.unwrap_or_else(|| panic!("no {name} in {page}"))
    }

    /// Waits for the end of the first process, and returns its log and that of its successors.
    pub(crate) fn end(&mut self) -> String {
        let pid = std::fs::read_to_string(self.path("pid")).expect("the edge runs");
        terminate(pid.trim().parse().expect("a process id"));
        let server = self.server.take().expect("the edge is ended once");
        let (status, _, log) = server.wait_for_end();
        assert_eq!(status.code(), Some(0), "{log}");
        log
    }
}

impl Drop for UpgradableEdge {
    fn drop(&mut self) {
        let pid = std::fs::read_to_string(self.path("pid"));
        if let Some(pid) = pid.ok().and_then(|pid| pid.trim().parse().ok()) {
            terminate(pid);
        }
    }
}

/// Ends a process that is not a child of the test.
fn terminate(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a process id");
    _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    until("the process ends", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        let is_gone = stat.is_ok_and(|stat| !stat.contains(") Z "));
        (!is_gone).then_some(())
    });
}

const TOKEN: &str = "a-token-of-this-test";

#[test]
fn upgrades_under_load_fail_no_request_and_close_no_websocket_before_the_drain_timeout() {
    let origin = LoadOrigin::start("a");
    let mut edge = UpgradableEdge::start(&origin.url(), "");
    let load = Load::start(edge.addr);
    load.wait_for_responses(50);
    let first = std::fs::read_to_string(edge.path("pid")).expect("the file");
    for _ in 0..4 {
        let pid = edge.upgrade();
        let written = std::fs::read_to_string(edge.path("pid")).expect("the file");
        assert_eq!(written.trim(), pid.to_string());
        load.wait_for_responses(50);
    }
    assert_ne!(
        first,
        std::fs::read_to_string(edge.path("pid")).expect("the file")
    );
    assert_eq!(
        edge.metric("edgeward_process_upgrades_total{result=\"applied\"}"),
        1.0
    );
    let counts = load.finish();
    // Each process closes the connections of two clients at the end of its drain timeout.
    assert!(counts.websockets_closed.load(Relaxed) <= 8, "{counts:?}");
    edge.end();
    assert!(!edge.path("pid").exists());
}

/// Method: responses are stored before the upgrade. One is invalidated by a POST and one is purged after it. The last
/// process is restarted, so that only the disk has the responses.
#[test]
fn the_store_on_disk_survives_upgrades_and_purges_of_both_processes_apply() {
    let origin = Server::start(&["origin", "--json", "--listen=127.0.0.1:0"]);
    let disk = tempfile::tempdir().expect("a folder");
    let more = format!(
        "[[disk_device]]\npath = \"{}\"\ncapacity = \"64MiB\"\n[disk]\nadmission = \"always\"\n",
        disk.path().display()
    );
    let url = format!("http://{}", origin.addr("/listen"));
    let mut edge = UpgradableEdge::start(&url, &more);
    let path = |n: u32| format!("/o/{n}?size=3000");
    let is_hit = |n| get(edge.addr, &path(n)).contains("edgeward; hit");
    // The old process may answer the first requests after an upgrade.
    let has_store = |pid: u32| {
        let page = get(edge.admin, "/status");
        let status: Value = serde_json::from_str(page.split_once("\r\n\r\n")?.1).ok()?;
        (status["pid"] == pid && !status["disk"].is_null()).then_some(())
    };
    for n in 0..20 {
        get(edge.addr, &path(n));
    }
    for _ in 0..2 {
        let pid = edge.upgrade();
        // The store is free when the old process has closed it.
        until("the store is open", || has_store(pid));
        assert!((0..20).all(is_hit));
    }
    let pid = edge.upgrade();
    // The new process may not have the store yet.
    let purge = edge.command(&["purge", &format!("http://localhost{}", path(1))]);
    assert_eq!(purge.status.code(), Some(0), "{}", text(&purge.stderr));
    let tagged = edge.command(&["purge", "--prefix", "localhost/o/2?"]);
    assert_eq!(tagged.status.code(), Some(0), "{}", text(&tagged.stderr));
    let post = format!(
        "POST {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        path(3)
    );
    send_request(edge.addr, &post);
    until("the store is open", || has_store(pid));
    assert_eq!(
        (0..20).filter(|n| !is_hit(*n)).collect::<Vec<_>>(),
        [1, 2, 3]
    );
    edge.end();
}

/// Method: a request waits for a slow origin while the process is replaced. It is a POST, so it invalidates a response
/// that the new process has stored meanwhile.
#[test]
fn an_invalidation_in_the_old_process_reaches_the_new_one() {
    let (origin, gate) = (ScriptedOrigin::start(), Gate::new());
    let held = gate.clone();
    origin.on_call("/a", move |request| match request.method() {
        "POST" => Answer::ok("posted").wait_before_head(&held),
        _ => Answer::ok("page").header("cache-control", "max-age=600"),
    });
    let mut edge = UpgradableEdge::start(&format!("http://{}", origin.addr()), "");
    let addr = edge.addr;
    let post =
        "POST /a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let posting = std::thread::spawn(move || send_request(addr, post));
    gate.wait_reached(1);
    edge.upgrade();
    let is_hit = move || get(addr, "/a").contains("edgeward; hit");
    until("the new process has the response", || {
        is_hit().then_some(())
    });
    gate.open();
    posting.join().expect("the response arrives");
    let has_no_hit = || (!is_hit()).then_some(());
    // The message of the old process arrives shortly after the response.
    until("the response is invalidated", has_no_hit);
    edge.end();
}

#[test]
fn an_upgrade_whose_new_process_does_not_start_changes_nothing() {
    let origin = LoadOrigin::start("a");
    let mut edge = UpgradableEdge::start(&origin.url(), "");
    let before = std::fs::read_to_string(edge.path("pid")).expect("the file");
    let good = std::fs::read_to_string(edge.path("edge.toml")).expect("the file");
    std::fs::write(edge.path("edge.toml"), good.replace("32MiB", "much")).expect("written");
    let load = Load::start(edge.addr);
    let out = edge.command(&["upgrade"]);
    assert_eq!(out.status.code(), Some(2));
    let printed = text(&out.stderr);
    assert!(printed.contains("hot.capacity"), "{printed}");
    load.wait_for_responses(20);
    load.finish();
    assert_eq!(
        std::fs::read_to_string(edge.path("pid")).expect("the file"),
        before
    );
    assert_eq!(
        edge.metric("edgeward_process_upgrades_total{result=\"failed\"}"),
        1.0
    );
    std::fs::write(edge.path("edge.toml"), good).expect("written");
    edge.upgrade();
    edge.end();
}

/// Method: the program's path has a script that never answers.
#[test]
fn a_new_process_that_hangs_is_ended_at_the_deadline() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("edgeward");
    std::fs::copy(env!("CARGO_BIN_EXE_edgeward"), &program).expect("copied");
    let mut command = Command::new(&program);
    command.args([
        "serve",
        "--json",
        "--listen=127.0.0.1:0",
        "--admin=127.0.0.1:0",
        "--origin=http://127.0.0.1:9",
        "--hot=8MiB",
        "--set=server.upgrade_timeout=300ms",
        "--log=info",
    ]);
    let edge = Server::from_command(command);
    replace(&program, "#!/bin/sh\nexec sleep 100\n");
    edge.signal(rustix::process::Signal::USR2);
    let addr = edge.addr("/listening/0");
    assert!(get(addr, "/").starts_with("HTTP/1.1 502"));
    let (admin, failed) = (
        edge.addr("/admin"),
        "edgeward_process_upgrades_total{result=\"failed\"}",
    );
    until("the upgrade has failed", || {
        let page = get(admin, "/metrics");
        (edgeward_testkit::client::metric(&page, failed) == 1.0).then_some(())
    });
    edge.signal(rustix::process::Signal::TERM);
    let (status, _, log) = edge.wait_for_end();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(
        log.contains("within server.upgrade_timeout (0.3 s)"),
        "{log}"
    );
}

/// Replaces a program as a package manager does: the running process keeps its file.
fn replace(program: &Path, script: &str) {
    use std::os::unix::fs::PermissionsExt as _;

    let new = program.with_extension("new");
    std::fs::write(&new, script).expect("written");
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).expect("executable");
    std::fs::rename(&new, program).expect("replaced");
}

#[test]
fn without_a_token_the_upgrade_is_refused() {
    let edge = UpgradableEdge::start("http://127.0.0.1:9", "");
    std::fs::write(edge.path("token"), "another").expect("written");
    let out = edge.command(&["upgrade"]);
    assert_eq!(out.status.code(), Some(2));
    let help = output(&["upgrade", "-h"]);
    assert_eq!(help.status.code(), Some(0));
}
