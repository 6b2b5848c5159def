//! Tests the limit of open files: servers raise it at the start, the edge divides it between clients and other
//! uses, and the edge still works when the limit is reached.

use std::fs;
use std::io::Read as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use super::run::{Server, edgeward, get, output, until, wait};

#[test]
fn every_server_raises_its_soft_limit_of_open_files_to_the_hard_limit() {
    let dir = tempfile::tempdir().expect("the temporary folder is created");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let keygen = output(&["link", "keygen", "--out", &path("keys")]);
    assert!(keygen.status.success(), "{keygen:?}");
    fs::write(path("ids"), "1\n2\n").expect("the file is written");
    let (keys, store) = (path("keys/gateway"), path("store"));
    let gateway = [
        "gateway",
        "--json",
        "--listen=127.0.0.1:0",
        "--origin=http://127.0.0.1:9",
        "--keys",
        &keys,
        "--store",
        &store,
        "--store-size=64MiB",
    ];
    let serve = [
        "serve",
        "--json",
        "--listen=127.0.0.1:0",
        "--origin=http://127.0.0.1:9",
        "--hot=8MiB",
        "--log=off",
    ];
    let (ids, state) = (path("ids"), path("state"));
    let filter = [
        "filter",
        "serve",
        "--json",
        "--listen=127.0.0.1:0",
        "--set=r",
        "--ids=integer",
        "--unsigned",
        "--source",
        &ids,
        "--state",
        &state,
    ];
    for args in [&serve[..], &gateway[..], &filter[..]] {
        let server = Server::from_command(with_limits(300, 1500, args));
        assert_eq!(open_files_limit(&server), 1500, "{args:?}");
    }
}

#[test]
fn idle_connections_leave_descriptors_for_hits_misses_and_the_admin_server() {
    let (_origin, edge) = origin_and_edge(512, &["--log=info"]);
    let addr = edge.addr("/listening/0");
    assert!(get(addr, "/o/1?size=1000").starts_with("HTTP/1.1 200"));
    let idle_connections: Vec<TcpStream> = (0..700)
        .map(|_| TcpStream::connect(addr).expect("the server accepts the connection"))
        .collect();
    until("the response is a hit", || {
        get(addr, "/o/1?size=1000").contains("; hit").then_some(())
    });
    for n in 2..30 {
        let response = get(addr, &format!("/o/{n}?size=1000"));
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    }
    let metrics = get(edge.addr("/admin"), "/metrics");
    let value = |series: &str| -> f64 {
        let line = metrics.lines().find_map(|line| line.strip_prefix(series));
        let text = line.unwrap_or_else(|| panic!("no {series} in {metrics}"));
        text.trim().parse().expect("the value is a number")
    };
    let crowded = value("edgeward_client_connections_closed_total{cause=\"crowded\"}");
    assert!(crowded > 100.0, "{crowded} idle connections were closed");
    assert_eq!(
        value("edgeward_client_connections_closed_total{cause=\"connection-limit\"}"),
        0.0
    );
    assert_eq!(value("edgeward_accept_errors_total"), 0.0);
    assert_eq!(value("process_max_fds"), 512.0);
    let clients_max = value("edgeward_client_connections_max");
    assert!(
        (64.0..448.0).contains(&clients_max),
        "{clients_max} of 512 for clients"
    );
    drop(idle_connections);
    edge.signal(Signal::TERM);
    let (_, _, printed) = edge.wait_for_end();
    assert!(
        printed.contains("defaults are lowered to what the limit of open files leaves")
            && printed.contains("limits.connections_max"),
        "the lower limit is logged: {printed}"
    );
}

#[test]
fn a_limit_too_low_for_any_client_is_an_error_at_the_start() {
    let args = [
        "serve",
        "--listen=127.0.0.1:0",
        "--origin=http://127.0.0.1:9",
        "--hot=8MiB",
        "--workers=1",
    ];
    let mut command = with_limits(40, 40, &args);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = KilledOnDrop(command.spawn().expect("the process starts"));
    assert_eq!(wait(&mut child.0).code(), Some(2));
    let mut printed = String::new();
    let stderr = child.0.stderr.as_mut().expect("stderr is piped");
    stderr
        .read_to_string(&mut printed)
        .expect("stderr is UTF-8");
    assert!(printed.contains("open files"), "{printed}");
    assert!(printed.contains("hint:"), "{printed}");
}

/// The edge reserves descriptors for new connections, but other parts of the process may take them.
///
/// Method: lower the limit of the running process below the number of its open files.
#[test]
fn an_edge_out_of_descriptors_closes_idle_clients_and_does_not_spin() {
    let (_origin, edge) = origin_and_edge(2048, &["--log=warn"]);
    let addr = edge.addr("/listening/0");
    assert!(get(addr, "/o/1?size=1000").starts_with("HTTP/1.1 200"));
    let idle_connections: Vec<TcpStream> = (0..50)
        .map(|_| TcpStream::connect(addr).expect("the server accepts the connection"))
        .collect();
    until("the edge has accepted the connections", || {
        (open_files(&edge) >= 50).then_some(())
    });
    let pid = Pid::from_raw(i32::try_from(edge.process_id()).expect("the process id fits"));
    let lowered = Rlimit {
        current: Some(open_files(&edge) - 10),
        maximum: Some(2048),
    };
    prlimit(pid, Resource::Nofile, lowered).expect("the limit is lowered");
    let before = cpu_ticks(&edge);
    for n in 0..20 {
        let response = get(addr, "/o/1?size=1000");
        assert!(response.contains("; hit"), "request {n}: {response:?}");
    }
    let used = cpu_ticks(&edge) - before;
    assert!(used < 300, "{used} hundredths of a second of CPU time");
    drop(idle_connections);
    edge.signal(Signal::TERM);
    let (_, _, printed) = edge.wait_for_end();
    let lines = printed.matches("could not be accepted").count();
    assert!(
        (1..10).contains(&lines),
        "{lines} lines about accepts: {printed}"
    );
}

/// A child process that is killed and reaped when dropped.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A command that runs the binary with these limits of open files.
pub(super) fn with_limits(soft: u64, hard: u64, args: &[&str]) -> Command {
    let binary = edgeward(&[]);
    let script = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command
        .args(["-c", &script])
        .arg(binary.get_program())
        .args(args)
        .env("COLUMNS", "80")
        .env_remove("EDGEWARD_LOG")
        .stdin(Stdio::null());
    command
}

/// Starts an origin and an edge. The edge begins with a soft limit of 256 open files, and `hard` is its hard limit.
fn origin_and_edge(hard: u64, args: &[&str]) -> (Server, Server) {
    let origin = Server::start(&["origin", "--json", "--listen=127.0.0.1:0", "--latency=0ms"]);
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
    let edge = Server::from_command(with_limits(256, hard, &all));
    (origin, edge)
}

/// The soft limit of open files of the process.
fn open_files_limit(server: &Server) -> u64 {
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.process_id()));
    let limits = limits.expect("the process runs");
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().nth(3));
    soft.expect("the line has a soft limit")
        .parse()
        .expect("the limit is a number")
}

fn open_files(server: &Server) -> u64 {
    let folder = format!("/proc/{}/fd", server.process_id());
    let files = fs::read_dir(Path::new(&folder)).expect("the process runs");
    files.count() as u64
}

/// The CPU time of the process in hundredths of a second.
fn cpu_ticks(server: &Server) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", server.process_id()));
    let stat = stat.expect("the process runs");
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .expect("the file has fields after the name")
        .split_whitespace()
        .collect();
    let number = |index: usize| -> u64 { fields[index].parse().expect("the value is a number") };
    // The time in user mode and in the kernel: fields 14 and 15 of the file. `fields` begins with field 3.
    number(11) + number(12)
}
