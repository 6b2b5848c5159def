//! The admin server by TLS and on a Unix socket, and an edge that listens on a Unix socket.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use rustix::process::Signal;

use super::load::LoadOrigin;
use super::run::{Server, edgeward, output, text, until};

/// Writes a configuration with these lines, and a token. Returns the path of the file.
fn write(folder: &Path, origin: &str, listener: &str, admin: &str) -> String {
    fs::write(folder.join("token"), "correct-horse-battery\n").expect("written");
    let file = folder.join("edge.toml");
    let config = format!(
        "[[listener]]\naddress = \"{listener}\"\n[origin]\nurl = \"{origin}\"\n[hot]\ncapacity = \"16MiB\"\n\
         [server]\npid_file = \"pid\"\nworkers = 2\n[purge]\ntoken_file = \"token\"\n[admin]\n{admin}\n"
    );
    fs::write(&file, config).expect("written");
    file.display().to_string()
}

/// Runs a command of the admin API.
fn command(folder: &Path, args: &[&str]) -> Output {
    let token = folder.join("token").display().to_string();
    let mut command = edgeward(args);
    command.args(["--token-file", &token]);
    command.output().expect("the binary runs")
}

fn assert_ok(out: &Output) {
    assert!(out.status.success(), "{}", text(&out.stderr));
}

/// Runs curl, and returns what it has received.
fn curl(args: &[&str]) -> String {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "30"]);
    let out = command.args(args).output().expect("curl runs");
    assert_ok(&out);
    text(&out.stdout)
}

#[test]
fn an_edge_on_unix_sockets_is_served_reloaded_and_upgraded() {
    let origin = LoadOrigin::start("a");
    let folder = tempfile::tempdir().expect("a folder");
    let socket = |name: &str| folder.path().join(name).display().to_string();
    let (edge, admin) = (socket("edge.sock"), socket("admin.sock"));
    let file = write(
        folder.path(),
        &origin.url(),
        &format!("unix:{edge}"),
        &format!("address = \"unix:{admin}\""),
    );
    let server = Server::start(&["serve", "--json", "--log=info", "--config", &file]);
    assert_eq!(server.text("/listening/0"), format!("unix:{edge}"));
    assert_eq!(server.text("/admin"), format!("unix:{admin}"));
    let page = || curl(&["--unix-socket", &edge, "http://test.example/a"]);
    let first = page();
    assert!(!first.is_empty());
    let metrics = curl(&["--unix-socket", &admin, "http://localhost/metrics"]);
    assert!(metrics.contains("edgeward_requests_total"), "{metrics}");
    let at = format!("unix:{admin}");
    let api = |args: &[&str]| command(folder.path(), &[args, &["--admin", &at]].concat());
    assert_ok(&api(&["reload"]));
    assert_ok(&api(&["cache", "get", "http://test.example/a"]));
    let upgraded = api(&["upgrade"]);
    assert_ok(&upgraded);
    let (status, _, _) = {
        let second = text(&upgraded.stdout);
        let id = second
            .trim()
            .rsplit(' ')
            .next()
            .and_then(|id| id.parse().ok());
        let id: i32 = id.expect("a process id");
        assert_eq!(page(), first);
        assert_ok(&until("the admin server of the new process", || {
            let out = api(&["reload"]);
            out.status.success().then_some(out)
        }));
        let id = rustix::process::Pid::from_raw(id).expect("an id");
        rustix::process::kill_process(id, Signal::TERM).expect("it runs");
        server.wait_for_end()
    };
    assert_eq!(status.code(), Some(0));
    // The file of the socket stays. The next start replaces it.
    assert!(folder.path().join("edge.sock").exists());
    let server = Server::start(&["serve", "--json", "--config", &file]);
    assert_eq!(page(), first);
    server.signal(Signal::TERM);
    assert_eq!(server.wait_for_end().0.code(), Some(0));
}

/// Writes a new certificate for 127.0.0.1 and its key.
fn new_certificate(folder: &Path) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]);
    let made = made.expect("a certificate");
    fs::write(folder.join("cert.pem"), made.cert.pem()).expect("written");
    fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).expect("written");
}

#[test]
fn the_admin_server_speaks_tls_with_the_certificate_of_its_files() {
    let folder = tempfile::tempdir().expect("a folder");
    new_certificate(folder.path());
    let file = write(
        folder.path(),
        "http://127.0.0.1:1",
        "127.0.0.1:0",
        "address = \"127.0.0.1:0\"\ntls_certificates = \"cert.pem\"\ntls_key = \"key.pem\"",
    );
    let server = Server::start(&["serve", "--json", "--log=info", "--config", &file]);
    let admin = server.text("/admin");
    assert!(admin.starts_with("https://127.0.0.1:"), "{admin}");
    let certificate = folder.path().join("cert.pem").display().to_string();
    let status = || curl(&["--cacert", &certificate, &format!("{admin}/status")]);
    assert!(status().contains("\"version\""));
    let screen = {
        let arguments = ["status", "--admin", admin, "--interval", "10ms"];
        output(&[&arguments[..], &["--admin-ca", &certificate]].concat())
    };
    assert_ok(&screen);
    let screen = text(&screen.stdout);
    for row in [
        "requests",
        "hits",
        "passes",
        "hit ratio",
        "memory",
        "origin",
        "purges",
        "errors",
    ] {
        assert!(
            screen
                .lines()
                .any(|line| line.trim_start().starts_with(row)),
            "{row}: {screen}"
        );
    }
    assert!(screen.lines().count() <= 24, "{screen}");
    let reload = |ca: &[&str]| {
        let args = [&["reload", "--admin", admin], ca].concat();
        command(folder.path(), &args)
    };
    assert_ok(&reload(&["--admin-ca", &certificate]));
    let out = reload(&[]);
    assert!(!out.status.success());
    let message = text(&out.stderr);
    assert!(message.contains("certificate"), "{message}");
    // Plain HTTP gets no answer.
    let plain = format!("http://{}/status", admin.trim_start_matches("https://"));
    let mut command = Command::new("curl");
    let out = command
        .args(["--silent", "--max-time", "30", &plain])
        .output();
    assert!(!out.expect("curl runs").status.success());
    // A reload reads the files again.
    let earlier = folder.path().join("earlier.pem");
    fs::copy(&certificate, &earlier).expect("copied");
    new_certificate(folder.path());
    assert_ok(&reload(&["--admin-ca", &earlier.display().to_string()]));
    assert!(status().contains("\"version\""));
    server.signal(Signal::TERM);
    assert_eq!(server.wait_for_end().0.code(), Some(0));
}
