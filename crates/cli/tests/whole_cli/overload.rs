//! Tests that a process under overload sheds load and recovers, and that it logs panics and stuck workers.

use std::net::{SocketAddr, TcpStream};

use edgeward_testkit::client::{self, Client};

use super::descriptors::with_limits;
use super::run::{Server, get, until};

/// Method: the process may have 600 descriptors, and 300 of them must be free. 330 idle connections exceed this.
#[test]
fn scarce_descriptors_shed_load_until_idle_connections_are_closed() {
    let origin = Server::start(&["origin", "--json", "--listen=127.0.0.1:0"]);
    let args = args(
        &origin,
        &[
            "--set=overload.descriptors_free_min=300",
            "--set=overload.step=1ms",
            "--set=origin.connections_per_worker_max=8",
        ],
    );
    let edge = Server::from_command(with_limits(600, 600, &words(&args)));
    let (addr, admin) = (edge.addr("/listening/0"), edge.addr("/admin"));
    let idle: Vec<_> = (0..330)
        .map(|_| TcpStream::connect(addr).expect("the edge listens"))
        .collect();
    until("the level has risen", || {
        (metric(admin, "edgeward_overload_raised_total") > 0.0).then_some(())
    });
    until(
        "idle connections were closed and the overload is over",
        || {
            let closed = "edgeward_client_connections_closed_total{cause=\"crowded\"}";
            let is_over = metric(admin, "edgeward_overload_level") == 0.0;
            (is_over && metric(admin, closed) > 0.0).then_some(())
        },
    );
    wait_until_answered(addr);
    drop(idle);
}

/// Waits until the edge answers a request: on a busy machine, its workers lag, and it sheds requests for a while.
fn wait_until_answered(addr: SocketAddr) {
    until("a request is answered", || {
        let answer = get(addr, "/o/1?size=100");
        answer.starts_with("HTTP/1.1 200").then_some(())
    });
}

#[test]
fn a_panic_is_logged_with_file_and_line_and_the_process_goes_on() {
    let origin = Server::start(&["origin", "--json", "--listen=127.0.0.1:0"]);
    let args = args(&origin, &["--log-format=json"]);
    let edge = Server::start(&words(&args));
    let addr = edge.addr("/listening/0");
    fault(addr, "panic-request");
    until("the panic is counted", || {
        let panics = "edgeward_panics_total{task=\"connection\"}";
        (metric(edge.addr("/admin"), panics) == 1.0).then_some(())
    });
    wait_until_answered(addr);
    edge.signal(rustix::process::Signal::TERM);
    let (status, _, log) = edge.wait_for_end();
    assert!(status.success(), "{log}");
    let event = log
        .lines()
        .find(|line| line.contains("panic: a test asked"));
    let event = event.unwrap_or_else(|| panic!("the log has no panic:\n{log}"));
    let event: serde_json::Value = serde_json::from_str(event).expect("JSON");
    let file = event["file"].as_str().expect("a file");
    assert!(file.ends_with("debug_faults.rs"), "{event}");
    assert!(event["line"].as_u64() > Some(0), "{event}");
    assert_eq!(event["thread"], "edgeward-0");
}

#[test]
fn a_stuck_worker_ends_the_process_if_the_watchdog_aborts() {
    let origin = Server::start(&["origin", "--json", "--listen=127.0.0.1:0"]);
    let args = args(
        &origin,
        &["--set=watchdog.deadline=5s", "--set=watchdog.abort=true"],
    );
    let edge = Server::start(&words(&args));
    fault(edge.addr("/listening/0"), "block-60000");
    let (status, _, log) = edge.wait_for_end();
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    assert_eq!(
        signal,
        Some(rustix::process::Signal::ABORT.as_raw()),
        "{log}"
    );
    assert!(log.contains("a worker is stuck"), "{log}");
    assert!(log.contains("serving a request"), "{log}");
    assert!(log.contains("thread_state"), "{log}");
}

fn args(origin: &Server, more: &[&str]) -> Vec<String> {
    let origin = format!("--origin=http://{}", origin.addr("/listen"));
    let fixed = [
        "serve",
        "--json",
        "--listen=127.0.0.1:0",
        "--admin=127.0.0.1:0",
        "--workers=1",
        "--hot=8MiB",
        &origin,
    ];
    fixed
        .iter()
        .chain(more)
        .map(|&arg| arg.to_owned())
        .collect()
}

fn words(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// Sends a request that causes a fault in a debug build.
fn fault(addr: SocketAddr, fault: &str) {
    let mut client = Client::connect(addr);
    client.send_head("GET", "/x", &[("edgeward-debug-fault", fault)]);
    assert!(client.try_head().is_none(), "the edge has answered");
}

fn metric(admin: SocketAddr, series: &str) -> f64 {
    client::metric(&get(admin, "/metrics"), series)
}
