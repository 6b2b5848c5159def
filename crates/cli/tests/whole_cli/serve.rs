//! Tests `serve`: its first line, its responses, and its reaction to signals.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use edgeward_testkit::client::exchange;
use rustix::process::Signal;
use serde_json::Value;

use super::run::{Server, output, text, until};

#[test]
fn the_first_line_names_the_real_port_and_the_edge_serves_there() {
    let (_origin, edge) = origin_and_edge("0ms", &[]);
    let addr = edge.addr("/listening/0");
    assert_ne!(addr.port(), 0);
    let miss = get(addr, "/o/1?size=1000");
    let hit = get(addr, "/o/1?size=1000");
    assert!(miss.starts_with("HTTP/1.1 200"), "{miss}");
    assert!(hit.contains("cache-status: edgeward; hit"), "{hit}");
    let status = get(edge.addr("/admin"), "/status");
    assert!(status.contains("\"hot\""), "{status}");
    assert!(get(edge.addr("/admin"), "/metrics").contains("edgeward_"));
}

#[test]
fn without_json_the_first_line_is_text() {
    let mut child = super::run::edgeward(&[
        "serve",
        "--listen=127.0.0.1:0",
        "--origin=http://127.0.0.1:9",
        "--hot=8MiB",
        "--policy=lru",
        "--log=off",
    ])
    .stdout(std::process::Stdio::piped())
    .spawn()
    .expect("the binary starts");
    let mut out = std::io::BufReader::new(child.stdout.take().expect("stdout is piped"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).expect("the line is UTF-8");
    child.kill().expect("the process runs");
    child.wait().expect("the process ends");
    let port = line
        .strip_prefix("listening on http://127.0.0.1:")
        .and_then(|rest| rest.split(',').next())
        .and_then(|port| port.parse::<u16>().ok());
    assert!(port.is_some_and(|port| port > 0), "{line}");
    assert!(line.contains("8 MiB") && line.contains("lru"), "{line}");
}

/// A request that is in progress when the signal arrives gets its complete response before the edge ends.
#[test]
fn sigterm_lets_requests_in_progress_finish() {
    let (origin, edge) = origin_and_edge("700ms", &[]);
    let addr = edge.addr("/listening/0");
    let request = std::thread::spawn(move || get(addr, "/o/7?size=5000"));
    wait_until_origin_has_request(&origin);
    edge.signal(Signal::TERM);
    let response = request.join().expect("the request thread ends");
    let body = response
        .split_once("\r\n\r\n")
        .expect("the response has a head")
        .1;
    assert_eq!(body.chars().count(), 5000);
    let (status, _, printed) = edge.wait_for_end();
    assert_eq!(status.code(), Some(0), "{printed}");
    assert!(printed.contains("draining"), "{printed}");
}

#[test]
fn a_second_signal_stops_the_edge_at_once() {
    let (origin, edge) = origin_and_edge("50s", &[]);
    let addr = edge.addr("/listening/0");
    let request = std::thread::spawn(move || get(addr, "/o/7?size=5000"));
    wait_until_origin_has_request(&origin);
    let started = Instant::now();
    edge.signal(Signal::INT);
    until("the edge accepts no more connections", || {
        TcpStream::connect(addr).is_err().then_some(())
    });
    edge.signal(Signal::INT);
    let (status, _, printed) = edge.wait_for_end();
    assert_eq!(status.code(), Some(1), "{printed}");
    assert!(started.elapsed() < Duration::from_secs(30));
    _ = request.join();
}

#[test]
fn a_port_in_use_is_an_error_with_exit_code_2_and_a_hint() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let addr = listener
        .local_addr()
        .expect("the listener has an address")
        .to_string();
    let out = output(&["serve", "--listen", &addr, "--origin=http://127.0.0.1:9"]);
    assert_eq!(out.status.code(), Some(2));
    let printed = text(&out.stderr);
    assert!(
        printed.contains(&format!("error: cannot listen on {addr}")),
        "{printed}"
    );
    assert!(
        printed.contains("\n  hint: another program uses the address"),
        "{printed}"
    );
}

/// Method: send requests while the origin's port is closed, and again when it is open.
#[test]
fn an_origin_outage_is_logged_once_when_it_starts_and_once_when_it_ends() {
    let origin = SocketAddr::from(([127, 0, 0, 1], edgeward_testkit::programs::free_port()));
    let url = format!("--origin=http://{origin}");
    let edge = Server::start(&[
        "serve",
        "--json",
        "--listen=127.0.0.1:0",
        "--admin=127.0.0.1:0",
        "--hot=8MiB",
        "--log=info",
        &url,
    ]);
    let addr = edge.addr("/listening/0");
    for n in 0..20 {
        let response = get(addr, &format!("/{n}"));
        assert!(response.starts_with("HTTP/1.1 502"), "{response}");
        for secret in ["127.0.0.1", &origin.port().to_string()] {
            assert!(!response.contains(secret), "{secret} in {response}");
        }
    }
    let metric = |value| format!("\nedgeward_origin_up{{origin=\"default\"}} {value}\n");
    assert!(get(edge.addr("/admin"), "/metrics").contains(&metric(0)));
    let listen = format!("--listen={origin}");
    let _origin = Server::start(&["origin", "--json", &listen]);
    for n in 0..20 {
        let response = get(addr, &format!("/o/{n}?size=10"));
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    }
    assert!(get(edge.addr("/admin"), "/metrics").contains(&metric(1)));
    edge.signal(Signal::TERM);
    let (_, _, printed) = edge.wait_for_end();
    let lines = |what: &str| printed.lines().filter(|line| line.contains(what)).count();
    assert_eq!(lines("of the origin is down"), 1, "{printed}");
    assert_eq!(lines("of the origin is up again"), 1, "{printed}");
    let down = printed
        .lines()
        .find(|line| line.contains("of the origin is down"));
    assert!(
        down.is_some_and(|line| line.contains(&origin.to_string())),
        "{printed}"
    );
}

/// Method: rename the log file, send the signal, and expect the next line in a new file.
#[test]
fn hup_and_usr1_reopen_the_access_log() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let log = folder.path().join("access.log");
    let flag = format!("--access-log={}", log.display());
    let (_origin, edge) = origin_and_edge("0ms", &[&flag, "--log=info"]);
    let addr = edge.addr("/listening/0");
    let wait_for_line = |what: &str, path: &std::path::Path| {
        until(what, || {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.contains(what).then_some(text)
        })
    };
    get(addr, "/o/1?size=10");
    wait_for_line("/o/1?", &log);
    for (n, signal) in [(2, Signal::HUP), (3, Signal::USR1)] {
        let rotated = folder.path().join(format!("access.log.{n}"));
        std::fs::rename(&log, &rotated).expect("the log is renamed");
        edge.signal(signal);
        until("the edge opens the log again", || {
            log.exists().then_some(())
        });
        let path = format!("/o/{n}?");
        get(addr, &format!("{path}size=10"));
        let new = wait_for_line(&path, &log);
        assert_eq!(new.lines().count(), 1, "{new}");
    }
    edge.signal(Signal::TERM);
    let (status, _, printed) = edge.wait_for_end();
    assert_eq!(status.code(), Some(0), "{printed}");
    assert_eq!(
        printed.matches("reopening log files").count(),
        2,
        "{printed}"
    );
}

#[test]
fn a_second_edge_on_a_port_is_rejected_unless_it_shares_the_port() {
    let (_origin, first) = origin_and_edge("0ms", &[]);
    let addr = first.addr("/listening/0").to_string();
    let args = [
        "serve",
        "--origin=http://127.0.0.1:9",
        "--hot=8MiB",
        "--json",
        "--listen",
        &addr,
    ];
    let mut second = super::run::edgeward(&args)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut line = String::new();
    let mut out = std::io::BufReader::new(second.stdout.take().expect("stdout is piped"));
    std::io::BufRead::read_line(&mut out, &mut line).expect("the line is UTF-8");
    // A first line means that the second edge was not rejected. Then it must be killed here.
    if !line.is_empty() {
        second.kill().expect("the process runs");
    }
    let end = second.wait_with_output().expect("the process ends");
    let printed = text(&end.stderr);
    assert_eq!((end.status.code(), &*line), (Some(2), ""), "{printed}");
    assert!(
        printed.contains(&format!("error: cannot listen on {addr}")),
        "{printed}"
    );
    assert!(printed.contains("--share-ports"), "{printed}");
    let shared = Server::start(&[&args[..], &["--share-ports"]].concat());
    assert_eq!(shared.addr("/listening/0"), first.addr("/listening/0"));
}

#[test]
fn a_json_log_has_one_object_per_line() {
    let (_origin, edge) = origin_and_edge("0ms", &["--log-format=json", "--log=info"]);
    edge.signal(Signal::TERM);
    let (status, _, printed) = edge.wait_for_end();
    assert_eq!(status.code(), Some(0), "{printed}");
    let events: Vec<Value> = printed
        .lines()
        .map(|line| serde_json::from_str(line).expect("the line is a JSON object"))
        .collect();
    assert!(events.iter().any(|event| event["message"] == "draining"));
}

fn origin_and_edge(latency: &str, args: &[&str]) -> (Server, Server) {
    let latency = format!("--latency={latency}");
    let origin = Server::start(&["origin", "--json", "--listen=127.0.0.1:0", &latency]);
    let url = format!("--origin=http://{}", origin.addr("/listen"));
    let mut all = vec![
        "serve",
        "--json",
        "--listen=127.0.0.1:0",
        "--admin=127.0.0.1:0",
        "--workers=1",
        "--hot=8MiB",
        "--policy=lru",
        &url,
    ];
    all.extend(args);
    let edge = Server::start(&all);
    (origin, edge)
}

/// Waits until the edge has connected to the origin, which it does only for a request.
fn wait_until_origin_has_request(origin: &Server) {
    let addr = origin.addr("/listen");
    until("the request has reached the origin", || {
        let status = get(addr, "/status");
        let body = status.split_once("\r\n\r\n")?.1;
        let counts: Value = serde_json::from_str(body).ok()?;
        // One open connection is that of this status request, so a second one is that of the edge.
        (counts["connections"].as_u64()? > 0 && counts["open_connections"].as_u64()? > 1)
            .then_some(())
    });
}

/// Returns the complete response as text, with one character per byte, so that lengths are comparable.
fn get(addr: SocketAddr, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    exchange(addr, request)
        .into_iter()
        .map(char::from)
        .collect()
}
