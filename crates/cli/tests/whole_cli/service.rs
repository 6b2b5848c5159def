//! The service manager: messages to systemd and sockets from it. The test plays the service manager, so it runs without
//! systemd; `systemd.rs` runs the unit under a real one.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use edgeward_testkit::programs::find_or_skip;
use rustix::process::Signal;

use super::load::LoadOrigin;
use super::run::{Server, edgeward, get, text, until};
use super::upgrade::UpgradableEdge;

/// The socket to which services send messages.
struct Manager {
    socket: UnixDatagram,
    folder: tempfile::TempDir,
}

impl Manager {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = UnixDatagram::bind(folder.path().join("notify")).expect("bound");
        let timeout = Some(Duration::from_secs(30));
        socket
            .set_read_timeout(timeout)
            .expect("the timeout is set");
        Self { socket, folder }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = edgeward(args);
        command.env("NOTIFY_SOCKET", self.folder.path().join("notify"));
        command
    }

    /// Waits for a message with this line, and returns the whole message.
    fn wait_for(&self, line: &str) -> String {
        let mut bytes = [0; 4096];
        loop {
            let read = self.socket.recv(&mut bytes);
            let read = read.unwrap_or_else(|error| panic!("no {line}: {error}"));
            let message = text(&bytes[..read]);
            if message.lines().any(|sent| sent == line) {
                return message;
            }
        }
    }
}

#[test]
fn the_service_manager_learns_of_the_start_of_reloads_and_of_the_end() {
    let origin = LoadOrigin::start("a");
    let manager = Manager::start();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("edge.toml");
    let config = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n[origin]\nurl = \"{}\"\n[hot]\ncapacity = \"16MiB\"\n",
        origin.url()
    );
    std::fs::write(&file, &config).expect("written");
    let path = file.display().to_string();
    let mut command = manager.command(&["serve", "--json", "--config", &path]);
    command.env("WATCHDOG_USEC", "300000");
    let edge = Server::from_command(command);
    let ready = manager.wait_for("READY=1");
    assert!(ready.contains("STATUS=serving"), "{ready}");
    manager.wait_for("WATCHDOG=1");
    manager.wait_for("WATCHDOG=1");
    edge.signal(Signal::HUP);
    let reloading = manager.wait_for("RELOADING=1");
    let since = reloading
        .lines()
        .find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
    assert!(
        since.is_some_and(|since| since.parse::<u64>().is_ok()),
        "{reloading}"
    );
    manager.wait_for("READY=1");
    std::fs::write(&file, config.replace("16MiB", "much")).expect("written");
    edge.signal(Signal::HUP);
    manager.wait_for("RELOADING=1");
    let refused = manager.wait_for("READY=1");
    assert!(refused.contains("the last reload was refused"), "{refused}");
    edge.signal(Signal::QUIT);
    manager.wait_for("STOPPING=1");
    let (status, _, log) = edge.wait_for_end();
    assert_eq!(status.code(), Some(0), "{log}");
}

/// A file with errors makes `systemctl reload` fail, and is not passed to the edge.
///
/// Method: run the command of `ExecReload` like systemd, with the program and the file of this test.
#[test]
fn the_unit_reloads_no_file_with_errors() {
    let unit = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/edgeward.service"
    );
    let unit = std::fs::read_to_string(unit).expect("the unit exists");
    let script = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecReload=/bin/sh -c '"));
    let script = script.and_then(|script| script.strip_suffix('\''));
    let script = script.expect("the unit has a script for reloads");
    let manager = Manager::start();
    let file = manager.folder.path().join("edge.toml");
    let path = file.display().to_string();
    let script = script
        .replace("/usr/bin/edgeward", env!("CARGO_BIN_EXE_edgeward"))
        .replace("/etc/edgeward/edgeward.toml", &path)
        .replace("$$", "$");
    let config =
        "[[listener]]\naddress = \"127.0.0.1:0\"\n[origin]\nurl = \"http://127.0.0.1:1\"\n[hot]\n";
    let write = |capacity: &str| {
        std::fs::write(&file, format!("{config}capacity = \"{capacity}\"\n")).expect("written");
    };
    write("16MiB");
    let edge = Server::from_command(manager.command(&["serve", "--json", "--config", &path]));
    manager.wait_for("READY=1");
    let reload = || {
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]);
        let shell = shell.env("MAINPID", edge.process_id().to_string());
        shell.output().expect("the shell runs")
    };
    write("much");
    let refused = reload();
    let (printed, errors) = (text(&refused.stdout), text(&refused.stderr));
    assert_eq!((refused.status.code(), &printed[..]), (Some(1), ""));
    assert!(errors.contains("edge.toml, line 6"), "{errors}");
    write("32MiB");
    let reloaded = reload();
    assert!(reloaded.status.success(), "{}", text(&reloaded.stderr));
    manager.wait_for("RELOADING=1");
    let ready = manager.wait_for("READY=1");
    assert!(ready.contains("STATUS=serving\n"), "{ready}");
    edge.signal(Signal::TERM);
    let (_, _, log) = edge.wait_for_end();
    assert!(!log.contains("was not reloaded"), "{log}");
}

#[test]
fn an_upgrade_names_the_new_main_process() {
    let origin = LoadOrigin::start("a");
    let manager = Manager::start();
    let notify = manager.folder.path().join("notify");
    let edge = UpgradableEdge::start_with(&origin.url(), "", |command| {
        command.env("NOTIFY_SOCKET", &notify);
    });
    manager.wait_for("READY=1");
    let pid = edge.upgrade();
    manager.wait_for(&format!("MAINPID={pid}"));
    // From the new process, which the manager knows by then.
    let ready = manager.wait_for("READY=1");
    assert!(ready.contains("STATUS=serving"), "{ready}");
}

/// Method: a shell sets the variables of the protocol, because the process id must be that of the program.
#[test]
fn a_socket_of_the_service_manager_serves_the_listener_with_its_address() {
    let origin = LoadOrigin::start("a");
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = socket.local_addr().expect("bound");
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            "exec 3<&0 0</dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\"",
            "sh",
        ])
        .arg(env!("CARGO_BIN_EXE_edgeward"))
        .args([
            "serve",
            "--json",
            "--hot=16MiB",
            "--workers=2",
            "--log=info",
        ])
        .arg(format!("--listen={addr}"))
        .arg(format!("--origin={}", origin.url()))
        .stdin(Stdio::from(OwnedFd::from(socket)));
    let edge = Server::from_command(command);
    assert_eq!(edge.addr("/listening/0"), addr);
    for n in 0..20 {
        let response = get(addr, &format!("/page/{n}"));
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    }
    edge.signal(Signal::TERM);
    let (status, _, log) = edge.wait_for_end();
    assert_eq!(status.code(), Some(0), "{log}");
}

/// Method: Debian's logrotate moves the file and creates a new one, and then truncates a copied file.
#[test]
fn logrotate_loses_no_line() {
    if find_or_skip("logrotate").is_none() {
        return;
    }
    let origin = LoadOrigin::start("a");
    for mode in ["create", "copytruncate"] {
        let folder = tempfile::tempdir().expect("a folder");
        let in_folder = |name: &str| folder.path().join(name);
        let log = in_folder("access.log");
        let more = format!("[access_log]\npath = \"{}\"\n", log.display());
        let edge = UpgradableEdge::start(&origin.url(), &more);
        let reopen = match mode {
            "create" => format!(
                "create 0644\n  postrotate\n    kill -USR1 $(cat {})\n  endscript",
                edge.path("pid").display()
            ),
            _ => "copytruncate".to_owned(),
        };
        let rules = format!(
            "{}/access.log {{\n  su root root\n  rotate 10\n  nocompress\n  {reopen}\n}}\n",
            folder.path().display()
        );
        std::fs::write(in_folder("rules"), rules).expect("written");
        let lines = || -> usize {
            let files = std::fs::read_dir(folder.path())
                .expect("a folder")
                .flatten();
            let logs = files.filter(|f| f.file_name().to_string_lossy().starts_with("access.log"));
            logs.map(|f| {
                std::fs::read_to_string(f.path())
                    .unwrap_or_default()
                    .lines()
                    .count()
            })
            .sum()
        };
        let mut sent = 0;
        for _ in 0..4 {
            for n in 0..25 {
                get(edge.addr, &format!("/page/{n}"));
            }
            sent += 25;
            // Lines that are written during a copy and before the truncation would be lost: see the manual of
            // logrotate.
            until("the lines are written", || (lines() == sent).then_some(()));
            let status = Command::new("logrotate")
                .arg("--force")
                .arg("--state")
                .args([in_folder("state"), in_folder("rules")])
                .status();
            assert!(status.is_ok_and(|status| status.success()), "{mode}");
            if mode == "create" {
                until("the new log is open", || {
                    get(edge.addr, "/page/1");
                    sent += 1;
                    (std::fs::metadata(&log).ok()?.len() > 0).then_some(())
                });
            }
        }
        until("all lines are in the files", || {
            (lines() == sent).then_some(())
        });
    }
}
