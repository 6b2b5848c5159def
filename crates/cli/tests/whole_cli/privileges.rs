//! An edge that root starts becomes the user of `server.user`. The tests need root and the user `nobody`; without them
//! they say that they are skipped.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::Stdio;

use nix::unistd::{User, geteuid};
use rustix::process::Signal;

use super::load::LoadOrigin;
use super::run::{Server, edgeward, get, text, until, wait};

const USER: &str = "nobody";

/// Returns the user, if this process can become it.
fn user() -> Option<User> {
    let user = User::from_name(USER).ok().flatten();
    let user = user.filter(|_| geteuid().is_root());
    if user.is_none() {
        eprintln!("skipped: the test needs root and the user {USER}");
    }
    user
}

/// A folder that the user can use.
fn folder_of(user: &User) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
    chown(folder.path(), Some(uid), Some(gid)).expect("root gives the folder away");
    folder
}

fn write_config(folder: &Path, origin: &str, more: &str) -> String {
    let file = folder.join("edge.toml");
    let config = format!(
        "[server]\nuser = \"{USER}\"\nworkers = 2\npid_file = \"{}\"\n\
         [[listener]]\naddress = \"127.0.0.1:0\"\n[origin]\nurl = \"{origin}\"\n{more}",
        folder.join("pid").display()
    );
    std::fs::write(&file, config).expect("written");
    file.display().to_string()
}

/// Returns the values of a line of each thread's status file.
fn of_each_thread(process: u32, line: &str) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("the process runs");
    let read = |task: std::io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let mut lines = status.lines();
        let value = lines.find_map(|found| found.strip_prefix(line)?.strip_prefix(":\t"))?;
        Some(value.to_owned())
    };
    tasks.filter_map(read).collect()
}

/// `CAP_NET_BIND_SERVICE` alone, or nothing: the allocator's thread starts before the process becomes the user.
const LOW_PORTS: [&str; 2] = ["0000000000000400", "0000000000000000"];

fn assert_has_no_privileges(process: u32, user: &User) {
    let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
    for (line, id) in [("Uid", uid), ("Gid", gid)] {
        for ids in of_each_thread(process, line) {
            assert_eq!(ids, format!("{id}\t{id}\t{id}\t{id}"), "{line}");
        }
    }
    for line in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
        let sets = of_each_thread(process, line);
        assert!(
            sets.iter().all(|set| LOW_PORTS.contains(&&**set)),
            "{line}: {sets:?}"
        );
        assert!(
            sets.iter().any(|set| set == LOW_PORTS[0]),
            "{line}: {sets:?}"
        );
    }
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
}

#[test]
fn an_edge_of_root_serves_as_the_user_and_so_does_its_successor() {
    let Some(user) = user() else { return };
    let origin = LoadOrigin::start("a");
    let folder = folder_of(&user);
    let config = write_config(folder.path(), &origin.url(), "");
    let edge = Server::start(&["serve", "--json", "--config", &config]);
    let address = edge.addr("/listening/0");
    assert!(get(address, "/a").starts_with("HTTP/1.1 200"));
    let first = edge.process_id();
    assert_has_no_privileges(first, &user);
    edge.signal(Signal::HUP);
    edge.signal(Signal::USR2);
    let second: u32 = until("another process id in the file", || {
        let id = std::fs::read_to_string(folder.path().join("pid")).ok()?;
        id.trim().parse().ok().filter(|id| *id != first)
    });
    assert_has_no_privileges(second, &user);
    assert!(get(address, "/a").starts_with("HTTP/1.1 200"));
    let id = rustix::process::Pid::from_raw(second.cast_signed()).expect("an id");
    rustix::process::kill_process(id, Signal::TERM).expect("it runs");
    // Both processes write to the same pipe.
    let (status, _, log) = edge.wait_for_end();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("the configuration was reloaded"), "{log}");
}

/// Starts an edge that must not start, and returns its message.
fn refused(config: &str) -> String {
    let mut child = edgeward(&["serve", "--config", config])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let status = wait(&mut child);
    let mut printed = Vec::new();
    let mut stderr = child.stderr.take().expect("piped");
    std::io::Read::read_to_end(&mut stderr, &mut printed).expect("read");
    assert!(!status.success());
    text(&printed)
}

#[test]
fn a_file_that_the_user_cannot_read_is_an_error_at_the_start() {
    let Some(user) = user() else { return };
    let folder = folder_of(&user);
    let token = folder.path().join("token");
    std::fs::write(&token, "correct-horse-battery\n").expect("written");
    std::fs::set_permissions(&token, Permissions::from_mode(0o600)).expect("set");
    let more = format!(
        "[admin]\naddress = \"127.0.0.1:0\"\n[purge]\ntoken_file = \"{}\"\n",
        token.display()
    );
    let config = write_config(folder.path(), "http://127.0.0.1:9", &more);
    let message = refused(&config);
    assert!(message.contains("permission denied"), "{message}");
    assert!(message.contains("server.user"), "{message}");
}

#[test]
fn an_unknown_user_is_refused_with_the_command_that_creates_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = write_config(folder.path(), "http://127.0.0.1:9", "");
    let written = std::fs::read_to_string(&config).expect("read");
    let written = written.replace(USER, "no-such-user");
    std::fs::write(&config, written).expect("written");
    let message = refused(&config);
    assert!(
        message.contains("there is no user no-such-user"),
        "{message}"
    );
    assert!(message.contains("useradd"), "{message}");
}
