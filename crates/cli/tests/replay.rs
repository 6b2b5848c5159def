//! Tests `edgeward origin` and `edgeward replay` as a user runs them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

fn edgeward() -> Command {
    Command::new(env!("CARGO_BIN_EXE_edgeward"))
}

/// A running origin. Dropping it kills and reaps the process.
struct Origin {
    child: Child,
    stdout: BufReader<ChildStdout>,
    url: String,
}

impl Origin {
    fn start(options: &[&str]) -> Self {
        let mut child = edgeward()
            .args(["origin", "--listen", "127.0.0.1:0", "--json"])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut stdout = BufReader::new(child.stdout.take().expect("the stream is piped"));
        let mut line = String::new();
        stdout
            .read_line(&mut line)
            .expect("the process prints a line");
        let start_line: Value = serde_json::from_str(&line).expect("the text is JSON");
        let addr = start_line["listen"]
            .as_str()
            .expect("the address is a string");
        let url = format!("http://{addr}");
        Self { child, stdout, url }
    }

    /// Stops the origin with SIGTERM and returns its counts.
    fn stop(mut self) -> Value {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args(["-TERM", &id]).status();
        assert!(status.expect("kill runs").success());
        let mut line = String::new();
        self.stdout
            .read_line(&mut line)
            .expect("the process prints a line");
        assert!(self.child.wait().expect("the process ends").success());
        serde_json::from_str(&line).expect("the text is JSON")
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn replay(trace: &str, url: &str, options: &[&str]) -> Output {
    let mut child = edgeward()
        .args(["replay", "-", "--target", url])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdin = child.stdin.take().expect("the stream is piped");
    // A replay that rejects its arguments does not read stdin, so the write may fail.
    _ = stdin.write_all(trace.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("the process ends")
}

/// Four requests: the columns are the time in seconds, the id of the object, and its size in bytes.
const TRACE: &str = "0 1 1000\n0 2 50\n1 1 1000\n2 3 200000\n";

#[test]
fn every_byte_of_a_replayed_trace_is_correct() {
    let origin = Origin::start(&[]);
    let output = replay(TRACE, &origin.url, &["--json", "--connections", "2"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("the text is JSON");
    assert_eq!(report["requests"], 4);
    assert_eq!(report["body_bytes"], 202_050);
    assert_eq!(report["errors_total"], 0);
    assert_eq!(report["object_hit_ratio"], 0.0);
    assert_eq!(report["plan"]["connections"], 2);
    let counts = origin.stop();
    assert_eq!(counts["requests"], 4);
    assert_eq!(counts["body_bytes"], 202_050);
}

#[test]
fn failures_are_printed_and_the_exit_code_is_1() {
    let origin = Origin::start(&["--error-rate", "100%", "--error-status", "502"]);
    let output = replay(TRACE, &origin.url, &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("the output is UTF-8");
    assert!(text.contains("4 failed"), "{text}");
    assert!(text.contains("status 502"), "{text}");
    assert_eq!(origin.stop()["errors"], 4);
}

#[test]
fn a_page_with_the_results_is_written() {
    let origin = Origin::start(&[]);
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let page = folder.path().join("run.html");
    let name = page.display().to_string();
    let output = replay(TRACE, &origin.url, &["--report", &name]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let html = std::fs::read_to_string(page).expect("the page is written");
    assert!(
        html.contains("Every byte of every response was correct."),
        "{html}"
    );
}

#[test]
fn an_impossible_replay_is_an_error_with_exit_code_2() {
    let origin = Origin::start(&[]);
    let url = origin.url.as_str();
    let ftp = "ftp://127.0.0.1:1";
    for (trace, url, options, expected) in [
        (TRACE, "http://127.0.0.1:1", &[][..], "cannot connect"),
        (TRACE, ftp, &[], "http://HOST:PORT"),
        (TRACE, url, &["--ca", "ca.pem"], "the target has no TLS"),
        (TRACE, "https://127.0.0.1:1", &["--ca", "none"], "--ca"),
        (TRACE, url, &["--warmup", "20%"], "--warmup as a number"),
        (TRACE, url, &["--rate", "0"], "not a positive number"),
        (
            TRACE,
            url,
            &["--rate", "1", "--speedup", "2"],
            "cannot be used with",
        ),
        ("0 1 1\n1 2 x\n", url, &["--format", "text"], "line 2"),
    ] {
        let output = replay(trace, url, options);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{options:?}: {error}");
        assert!(error.contains(expected), "{options:?}: {error}");
        assert!(output.stdout.is_empty());
    }
}

/// An edge with TLS is between the replay and the origin. The certificate is accepted only with its own CA.
#[test]
fn a_target_with_https_is_replayed_with_the_given_ca() {
    let origin = Origin::start(&[]);
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]);
    let made = made.expect("the certificate is created");
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    std::fs::write(&certificate, made.cert.pem()).expect("the file is written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("the file is written");
    let mut edge = edgeward()
        .args([
            "serve",
            "--json",
            "--listen",
            "127.0.0.1:0",
            "--origin",
            &origin.url,
        ])
        .arg("--tls-cert")
        .arg(&certificate)
        .arg("--tls-key")
        .arg(&key)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let mut line = String::new();
    BufReader::new(edge.stdout.take().expect("the stream is piped"))
        .read_line(&mut line)
        .expect("the process prints a line");
    let start_line: Value = serde_json::from_str(&line).expect("the text is JSON");
    let url = start_line["listening"][0]
        .as_str()
        .expect("the URL is a string");
    assert!(url.starts_with("https://"), "{url}");
    let ca = certificate.display().to_string();
    let trusted = replay(TRACE, url, &["--ca", &ca, "--json"]);
    let untrusted = replay(TRACE, url, &["--ca", &key.display().to_string()]);
    edge.kill().expect("the process runs");
    edge.wait().expect("the process ends");
    assert_eq!(trusted.status.code(), Some(0), "{trusted:?}");
    let report: Value = serde_json::from_slice(&trusted.stdout).expect("the text is JSON");
    assert_eq!(
        (&report["requests"], &report["errors_total"]),
        (&4.into(), &0.into())
    );
    assert_eq!(untrusted.status.code(), Some(2), "{untrusted:?}");
}
