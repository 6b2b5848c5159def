//! nginx and Apache as origins: their access logs have no request that the edge did not send.
//!
//! The requests are those of the table, and random changes of them. The tests print the seed of the changes;
//! `EDGEWARD_MALFORMED_SEED` repeats them.

use std::fs;

use edgeward_proxy::Edge;
use edgeward_testkit::client::until;
use edgeward_testkit::programs::ServerProcess;
use edgeward_types::SplitMix64;

use super::{NEXT, exchange, fill, next_request, requests};
use crate::support::{TestBed, config_for};

/// A web server with an access log.
struct Peer(ServerProcess);

impl Peer {
    /// Returns the lines of the access log, once it has `count` lines, one of which is the request for [`LAST`].
    fn lines(&self, count: u64) -> Vec<String> {
        until("the access log is complete", || {
            let text = fs::read(self.0.folder().join("access.log")).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines = text.lines().count() as u64;
            (text.contains(LAST) && text.ends_with('\n') && lines >= count)
                .then(|| text.lines().map(str::to_owned).collect())
        })
    }
}

fn nginx() -> Option<Peer> {
    let server = ServerProcess::nginx(|folder, addr| {
        format!(
            "log_format seen '$request|$http_via|$status'; access_log {}/access.log seen;\n\
             large_client_header_buffers 8 64k;\n\
             server {{ listen {addr}; location / {{ return 200 ok; }} }}",
            folder.display()
        )
    });
    server.map(Peer)
}

fn apache() -> Option<Peer> {
    let server = ServerProcess::apache(&[], |folder| {
        format!(
            "AllowEncodedSlashes On\nLimitRequestLine 65536\nLimitRequestFieldSize 65536\n\
             LogFormat \"%r|%{{Via}}i|%>s\" seen\nCustomLog {}/access.log seen\n",
            folder.display()
        )
    });
    server.map(Peer)
}

fn bed(peer: &Peer) -> TestBed {
    let mut bed = TestBed::start();
    let mut config = config_for(bed.origin.addr());
    let url = format!("http://{}", peer.0.addr());
    config.origins[0].servers = vec![url.parse().expect("a URL")];
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
