//! nginx and Apache as origins: their access logs have no request that the edge did not send.
//!
//! The requests are those of the table, and random changes of them. The tests print the seed of the changes;
//! `EDGEWARD_MALFORMED_SEED` repeats them.

use std::fs;
use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use edgeward_proxy::Edge;
use edgeward_proxy::config::OriginUrl;
use edgeward_testkit::client::until;
use edgeward_testkit::programs::find_or_skip;
use edgeward_types::SplitMix64;
use tempfile::TempDir;

use super::{NEXT, exchange, fill, next_request, requests};
use crate::support::{TIMEOUT, TestBed, config_for};

/// A web server with a configuration of its own, and its access log.
struct Peer {
    child: Child,
    folder: TempDir,
    url: OriginUrl,
}

impl Drop for Peer {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Peer {
    /// Starts the program with the configuration that `configure` returns for a folder and a port. Returns `None` if
    /// the program is not installed.
    fn start(
        program: &str,
        arguments: &[&str],
        configure: impl Fn(&Path, u16) -> String,
    ) -> Option<Self> {
        let program = find_or_skip(program)?;
        // Another process may take the port between its choice and the start of the server.
        (0..5)
            .find_map(|_| Self::try_start(&program, arguments, &configure))
            .or_else(|| {
                panic!("{} does not start", program.display());
            })
    }

    fn try_start(
        program: &Path,
        arguments: &[&str],
        configure: &impl Fn(&Path, u16) -> String,
    ) -> Option<Self> {
        let folder = tempfile::tempdir().expect("the folder can be created");
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let addr = listener.local_addr().expect("the listener is bound");
        drop(listener);
        let path = folder.path().join("server.conf");
        fs::write(&path, configure(folder.path(), addr.port())).expect("the file can be written");
        let mut child = Command::new(program)
            .args(arguments)
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let deadline = Instant::now() + TIMEOUT;
        while TcpStream::connect(addr).is_err() {
            if child.try_wait().expect("the child exists").is_some() || Instant::now() > deadline {
                let mut error = String::new();
                let stderr = child.stderr.take();
                _ = child.kill();
                _ = stderr.map(|mut stderr| stderr.read_to_string(&mut error));
                eprintln!("{}: {error}", program.display());
                return None;
            }
            std::thread::yield_now();
        }
        let url = format!("http://{addr}").parse().expect("a URL");
        Some(Self { child, folder, url })
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("access.log")
    }

    /// Returns the lines of the access log, once it has `count` lines, one of which is the request for [`LAST`].
    fn lines(&self, count: u64) -> Vec<String> {
        until("the access log is complete", || {
            let text = fs::read(self.log()).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines = text.lines().count() as u64;
            (text.contains(LAST) && text.ends_with('\n') && lines >= count)
                .then(|| text.lines().map(str::to_owned).collect())
        })
    }
}

fn nginx() -> Option<Peer> {
    Peer::start("nginx", &["-c"], |folder, port| {
        let folder = folder.display();
        format!(
            "daemon off; master_process off; error_log /dev/null; pid {folder}/pid;\n\
             events {{ worker_connections 512; }}\n\
             http {{\n\
             log_format seen '$request|$http_via|$status';\n\
             access_log {folder}/access.log seen;\n\
             client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;\n\
             fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;\n\
             scgi_temp_path {folder}/scgi; large_client_header_buffers 8 64k;\n\
             server {{ listen 127.0.0.1:{port}; location / {{ return 200 ok; }} }}\n\
             }}\n"
        )
    })
}

fn apache() -> Option<Peer> {
    Peer::start("apache2", &["-X", "-f"], |folder, port| {
        let folder = folder.display();
        let modules = "/usr/lib/apache2/modules";
        format!(
            "ServerRoot {folder}\nServerName localhost\nPidFile {folder}/pid\nListen 127.0.0.1:{port}\n\
             LoadModule mpm_event_module {modules}/mod_mpm_event.so\n\
             LoadModule authz_core_module {modules}/mod_authz_core.so\n\
             DocumentRoot {folder}\nErrorLog /dev/null\nAllowEncodedSlashes On\n\
             LimitRequestLine 65536\nLimitRequestFieldSize 65536\n\
             LogFormat \"%r|%{{Via}}i|%>s\" seen\nCustomLog {folder}/access.log seen\n"
        )
    })
}

fn bed(peer: &Peer) -> TestBed {
    let mut bed = TestBed::start();
    let mut config = config_for(bed.origin.addr());
    config.origins[0].servers = vec![peer.url.clone()];
    config.forwarding.default_authority = Some("h.example".to_owned());
    bed.edge = Edge::start(config).expect("the edge starts on a free port");
    bed
}

/// The target of the last request of a test.
const LAST: &str = "/last";

/// Sends the last request. Returns the number of requests that the edge has sent to its origin.
fn send_last(bed: &TestBed) -> u64 {
    let request = format!("GET {LAST} HTTP/1.1\r\nHost: h.example\r\nConnection: close\r\n\r\n");
    exchange(bed, request.as_bytes());
    let sent = &bed.status()["origins"][0]["servers"][0]["requests"];
    sent.as_u64().expect("a number")
}

/// Returns the request lines that the table expects at the origin, without the version.
fn expected_lines() -> Vec<String> {
    let mut lines = Vec::new();
    for (number, row) in (1..).zip(requests::all()) {
        let Some((_, at_origin)) = row.expected.split_once(" <- ") else {
            continue;
        };
        for request in at_origin.split(", ") {
            let request = request.split(" of ").next().unwrap_or_default();
            let request = request.split(" \"").next().unwrap_or_default();
            let line = request.replace("next", &format!("GET {NEXT}"));
            let line = line.replace("{p}", &format!("/row/{number}"));
            let line = line.replace("{q}", &format!("row{number}"));
            lines.push(line.replace("{x}", &format!("/hidden/{number}")));
        }
    }
    lines
}

/// Method: all rows of the table in order. The log has exactly the requests that the table expects at the origin.
fn the_log_has_the_requests_of_the_table(peer: &Peer) {
    let bed = bed(peer);
    for (number, row) in (1..).zip(requests::all()) {
        let mut bytes = fill(row.bytes, number);
        bytes.extend_from_slice(&next_request());
        exchange(&bed, &bytes);
    }
    let sent = send_last(&bed);
    let lines = peer.lines(sent);
    let mut expected = expected_lines();
    expected.push("GET /last".to_owned());
    // The servers escape some bytes in their own way, and Apache's threads log in any order.
    let sorted = |lines: Vec<String>| {
        let beginning = |line: &String| {
            let line = line.split(" HTTP/").next().unwrap_or_default();
            let is_escaped = |c: char| matches!(c, '\\' | '"') || !c.is_ascii();
            let line = line.split(is_escaped).next().unwrap_or_default();
            line.chars().take(30).collect::<String>()
        };
        let mut lines: Vec<_> = lines.iter().map(beginning).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(sorted(lines), sorted(expected));
}

/// Method: change, remove or insert a few bytes of random rows. A request that the edge sent has its `Via`. A request
/// without it is one that the peer found within another, unless the peer refused the head and therefore did not read
/// `Via`. The edge has sent as many requests as the peer has seen.
fn every_request_in_the_log_was_sent_by_the_edge(peer: &Peer, cases: u64) {
    let seed = std::env::var("EDGEWARD_MALFORMED_SEED");
    let seed = seed
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(0, |now| u64::from(now.subsec_nanos()))
        });
    eprintln!("EDGEWARD_MALFORMED_SEED={seed}");
    let mut random = SplitMix64(seed);
    let mut below = |bound: usize| (random.draw() % bound.max(1) as u64) as usize;
    let bed = bed(peer);
    let rows: Vec<_> = requests::all()
        .filter(|row| row.bytes.len() < 1000)
        .collect();
    const BYTES: &[u8] = b"\r\n :;,\t\0\x0b0159afxGE/HTP.-_\"\\\xff";
    for number in 0..cases {
        let row = rows[below(rows.len())];
        let mut bytes = fill(row.bytes, usize::try_from(number).expect("a small number"));
        for _ in 0..=below(3) {
            let at = below(bytes.len());
            match below(3) {
                0 => bytes[at] = BYTES[below(BYTES.len())],
                1 => _ = bytes.remove(at),
                _ => bytes.insert(at, BYTES[below(BYTES.len())]),
            }
        }
        bytes.extend_from_slice(&next_request());
        exchange(&bed, &bytes);
    }
    let sent = send_last(&bed);
    let lines = peer.lines(sent);
    let is_foreign = |line: &&String| !line.contains("edgeward") && !line.ends_with("|400");
    let foreign: Vec<_> = lines.iter().filter(is_foreign).collect();
    assert!(foreign.is_empty(), "seed {seed}: {foreign:#?}");
    assert_eq!(lines.len() as u64, sent, "seed {seed}");
}

#[test]
fn nginx_sees_the_requests_that_the_edge_saw() {
    if let Some(peer) = nginx() {
        the_log_has_the_requests_of_the_table(&peer);
    }
}

#[test]
fn apache_sees_the_requests_that_the_edge_saw() {
    if let Some(peer) = apache() {
        the_log_has_the_requests_of_the_table(&peer);
    }
}

#[test]
fn nginx_sees_no_request_within_another() {
    if let Some(peer) = nginx() {
        every_request_in_the_log_was_sent_by_the_edge(&peer, 2000);
    }
}

#[test]
fn apache_sees_no_request_within_another() {
    if let Some(peer) = apache() {
        every_request_in_the_log_was_sent_by_the_edge(&peer, 2000);
    }
}
