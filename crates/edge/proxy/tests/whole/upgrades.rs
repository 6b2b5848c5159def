//! Tunnels of WebSocket and other protocols over HTTP/1.1 (RFC 9110 §7.8).

use std::io::{Read, Write};
use std::net::Shutdown;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use crate::socket_origin::{SocketBed, SocketRequest};
use crate::support::{Client, TIMEOUT, TestBed};
use edgeward_proxy::config::{AccessLogConfig, Balance, LogDestination, LogFormat};
use edgeward_testkit::{Answer, ScriptedOrigin};

/// The key and the accepted value of RFC 6455 §1.3.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

const HANDSHAKE: [(&str, &str); 4] = [
    ("Connection", "keep-alive, Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", KEY),
];

/// Opens a tunnel. Returns its client's and its origin's connection.
fn open(bed: &SocketBed) -> (Client, SocketRequest) {
    let mut client = bed.bed.connect();
    client.send_head("GET", "/socket", &HANDSHAKE);
    let mut origin = bed.origin.request();
    origin.accept();
    assert_eq!(client.head().status, 101);
    (client, origin)
}

/// Returns the sum of the tunnels that ended by `cause`.
fn ended(bed: &SocketBed, cause: &str) -> f64 {
    let series = format!("edgeward_tunnels_ended_total{{cause=\"{cause}\"}}");
    bed.bed.metric(&series)
}

fn wait_until_ended(bed: &SocketBed, cause: &str) {
    let series = format!("edgeward_tunnels_ended_total{{cause=\"{cause}\"}}");
    bed.bed.wait_for_metric(&series, 1.0);
    bed.bed.wait_for_metric("edgeward_tunnels", 0.0);
}

#[test]
fn a_websocket_becomes_a_tunnel_in_both_directions() {
    let bed = SocketBed::start();
    let mut client = bed.bed.connect();
    client.send_head("GET", "/socket?room=1", &HANDSHAKE);
    let mut origin = bed.origin.request();
    assert!(origin.head.starts_with("GET /socket?room=1 HTTP/1.1\r\n"));
    for (name, value) in [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-key", KEY),
        ("sec-websocket-version", "13"),
        ("host", "test.example"),
        ("x-forwarded-for", "127.0.0.1"),
    ] {
        assert_eq!(origin.field(name), value, "{name} in {}", origin.head);
    }
    // The first bytes of the new protocol arrive in one piece with the head.
    origin.send(
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: upgrade\r\n\
             Sec-WebSocket-Accept: {ACCEPT}\r\nSec-WebSocket-Protocol: chat\r\n\r\nhello"
        )
        .as_bytes(),
    );
    let head = client.head();
    assert_eq!(head.status, 101);
    for (name, value) in [
        ("connection", "upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-accept", ACCEPT),
        ("sec-websocket-protocol", "chat"),
    ] {
        assert_eq!(head.header(name), Some(value), "{name}");
    }
    assert_eq!(head.header("content-length"), None);
    assert_eq!(client.read_up_to(5), b"hello");
    for text in ["one", "two"] {
        client.send(text.as_bytes());
        origin.expect(text);
        origin.send(text.as_bytes());
        assert_eq!(client.read_up_to(3), text.as_bytes());
    }
    assert_eq!(bed.bed.metric("edgeward_tunnels"), 1.0);
    drop(client);
    assert_eq!(origin.read_to_end(), "");
    drop(origin);
    wait_until_ended(&bed, "closed");
    for (series, value) in [
        ("edgeward_upgrades_total{result=\"switched\"}", 1.0),
        ("edgeward_tunnel_bytes_total{to=\"origin\"}", 6.0),
        ("edgeward_tunnel_bytes_total{to=\"client\"}", 11.0),
        ("edgeward_origin_connections", 0.0),
    ] {
        assert_eq!(bed.bed.metric(series), value, "{series}");
    }
}

/// Method: both sides send 8 MiB before they read. More bytes than all buffers have.
#[test]
fn a_tunnel_carries_much_data_in_both_directions_at_once() {
    const BYTES: usize = 8 << 20;
    let bed = SocketBed::start();
    let (client, origin) = open(&bed);
    let client = client.into_stream();
    let pump = |mut stream: std::net::TcpStream, seed: usize| {
        std::thread::spawn(move || {
            let sent: Vec<u8> = (0..BYTES).map(|n| (n * 7 + seed) as u8).collect();
            let mut writer = stream.try_clone().expect("the descriptor is copied");
            let writing = std::thread::spawn(move || {
                writer.write_all(&sent).expect("the tunnel reads");
                writer
                    .shutdown(Shutdown::Write)
                    .expect("the socket is open");
            });
            let mut received = Vec::new();
            stream
                .read_to_end(&mut received)
                .expect("the tunnel closes");
            writing.join().expect("all bytes are sent");
            received
        })
    };
    let (client, origin) = (pump(client, 1), pump(origin.peer.into_stream(), 2));
    let expected = |seed: usize| (0..BYTES).map(move |n| (n * 7 + seed) as u8);
    let received = client.join().expect("the client receives");
    assert!(received.into_iter().eq(expected(2)));
    let received = origin.join().expect("the origin receives");
    assert!(received.into_iter().eq(expected(1)));
    wait_until_ended(&bed, "closed");
}

/// A client may send bytes right after its request. They belong to the new protocol if the origin switches, and to the
/// next request if it does not.
#[test]
fn bytes_after_the_request_are_of_the_protocol_that_the_origin_chooses() {
    let bed = SocketBed::start();
    let early = "GET /next HTTP/1.1\r\nHost: test.example\r\n\r\n";
    let mut client = bed.bed.connect();
    let handshake = format!(
        "GET /socket HTTP/1.1\r\nHost: test.example\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: {KEY}\r\n\r\n{early}"
    );
    client.send(handshake.as_bytes());
    let mut origin = bed.origin.request();
    origin.accept();
    assert_eq!(client.head().status, 101);
    origin.expect(early);
    drop((client, origin));

    let mut client = bed.bed.connect();
    client.send(handshake.as_bytes());
    let mut refusing = bed.origin.request();
    refusing.send(
        b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nno",
    );
    let refused = client.answer("GET");
    assert_eq!((refused.status, refused.text()), (426, "no"));
    let mut next = bed.origin.request();
    assert!(
        next.head.starts_with("GET /next HTTP/1.1\r\n"),
        "{}",
        next.head
    );
    next.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext");
    assert_eq!(client.answer("GET").text(), "next");
    // The connection of the refused upgrade got the request alone, and is not used again.
    assert_eq!(refusing.read_to_end(), "");
    let answered = "edgeward_upgrades_total{result=\"answered\"}";
    assert_eq!(bed.bed.metric(answered), 1.0);
}

#[test]
fn a_101_that_does_not_belong_to_the_request_is_a_502() {
    let accept = format!("Sec-WebSocket-Accept: {ACCEPT}\r\n");
    for (what, head) in [
        (
            "no fields",
            "HTTP/1.1 101 Switching Protocols\r\n".to_owned(),
        ),
        (
            "no Connection",
            format!("HTTP/1.1 101 X\r\nUpgrade: websocket\r\n{accept}"),
        ),
        (
            "no Upgrade",
            format!("HTTP/1.1 101 X\r\nConnection: upgrade\r\n{accept}"),
        ),
        (
            "another protocol",
            format!("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: h2c\r\n{accept}"),
        ),
        (
            "no accept",
            "HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n".to_owned(),
        ),
        (
            "a wrong accept",
            "HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n"
                .to_owned(),
        ),
        (
            "two accepts",
            format!(
                "HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n{accept}{accept}"
            ),
        ),
        (
            "HTTP/1.0",
            format!("HTTP/1.0 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n{accept}"),
        ),
    ] {
        let bed = SocketBed::start();
        let mut client = bed.bed.connect();
        client.send_head("GET", "/socket", &HANDSHAKE);
        // Bytes that a server would parse as requests, if it has not switched.
        client.send(b"GET /secret HTTP/1.1\r\n\r\n");
        let mut origin = bed.origin.request();
        origin.send(format!("{head}\r\n").as_bytes());
        assert_eq!(client.answer("GET").status, 502, "{what}");
        assert_eq!(origin.read_to_end(), "", "{what}");
        let failed = bed.bed.metric("edgeward_upgrades_total{result=\"failed\"}");
        assert_eq!((failed, ended(&bed, "closed")), (1.0, 0.0), "{what}");
    }
}

/// The edge's own HTTP/1.1 client sends the GET, and hyper's client the POST.
#[test]
fn a_101_without_a_request_for_it_is_a_502() {
    let bed = SocketBed::start();
    for (method, body) in [("GET", ""), ("POST", "x")] {
        let mut client = bed.bed.connect();
        let length = body.len().to_string();
        client.send_head(method, "/page", &[("content-length", &length)]);
        client.send(body.as_bytes());
        let mut origin = bed.origin.request();
        origin.accept();
        assert_eq!(client.answer(method).status, 502, "{method}");
    }
    assert_eq!(bed.bed.metric("edgeward_tunnels"), 0.0);
}

#[test]
fn an_upgrade_without_a_get_an_allowed_protocol_or_http_1_1_is_ignored() {
    let allowed = |upgrades: &str| {
        let upgrades = upgrades.parse().expect("a list of protocols");
        TestBed::with_config(|config| config.forwarding.upgrades = upgrades)
    };
    let upgrade = "Connection: upgrade\r\nUpgrade";
    for (upgrades, request, content) in [
        (
            "websocket",
            format!("POST /a HTTP/1.1\r\n{upgrade}: websocket\r\n"),
            "",
        ),
        (
            "websocket",
            format!("POST /a HTTP/1.1\r\n{upgrade}: websocket\r\nContent-Length: 1\r\n"),
            "x",
        ),
        (
            "websocket",
            format!("GET /a HTTP/1.1\r\n{upgrade}: websocket\r\nContent-Length: 1\r\n"),
            "x",
        ),
        (
            "websocket",
            format!("GET /a HTTP/1.1\r\n{upgrade}: websocket\r\nTransfer-Encoding: chunked\r\n"),
            "0\r\n\r\n",
        ),
        (
            "websocket",
            format!("GET /a HTTP/1.1\r\n{upgrade}: foo\r\n"),
            "",
        ),
        (
            "websocket",
            format!("GET /a HTTP/1.1\r\n{upgrade}: TLS/1.2, HTTP/1.1\r\n"),
            "",
        ),
        (
            "websocket",
            format!("GET /a HTTP/1.1\r\n{upgrade}: h2, h2c\r\n"),
            "",
        ),
        (
            "none",
            format!("GET /a HTTP/1.1\r\n{upgrade}: websocket\r\n"),
            "",
        ),
        ("none", format!("GET /a HTTP/1.1\r\n{upgrade}: h2c\r\n"), ""),
        ("any", format!("GET /a HTTP/1.1\r\n{upgrade}: h2c\r\n"), ""),
        (
            "websocket",
            format!("GET /a HTTP/1.0\r\n{upgrade}: websocket\r\n"),
            "",
        ),
        (
            "websocket",
            "GET /a HTTP/1.1\r\nUpgrade: websocket\r\n".to_owned(),
            "",
        ),
    ] {
        let bed = allowed(upgrades);
        bed.origin.on("/a", Answer::ok("x"));
        let mut client = bed.connect();
        client.send(format!("{request}Host: test.example\r\n\r\n{content}").as_bytes());
        let answer = client.answer("GET");
        assert_eq!(answer.status, 200, "{upgrades}: {request}");
        let origin_got = bed.origin.last("/a").expect("a request");
        assert!(
            origin_got.header("upgrade").is_none(),
            "{upgrades}: {request}"
        );
    }
}

#[test]
fn other_protocols_are_forwarded_if_they_are_allowed() {
    let bed = SocketBed::with_config(|config| {
        config.forwarding.upgrades = "any".parse().expect("any protocol");
    });
    let mut client = bed.bed.connect();
    let offer = [("connection", "upgrade"), ("upgrade", "foo/2, h2c, foo/1")];
    client.send_head("GET", "/", &offer);
    let mut origin = bed.origin.request();
    assert_eq!(origin.field("upgrade"), "foo/2, foo/1");
    origin.send(b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: foo/1\r\n\r\n");
    assert_eq!(client.head().header("upgrade"), Some("foo/1"));
    client.send(b"ping");
    origin.expect("ping");
}

/// A request for an upgrade is neither answered from the cache nor stored.
#[test]
fn upgrades_and_the_cache_do_not_meet() {
    let bed = TestBed::start();
    let page = Answer::ok("page").header("cache-control", "max-age=60");
    bed.origin.on("/page", page);
    for _ in 0..2 {
        let answer = bed.get_with("/page", &HANDSHAKE);
        assert_eq!(
            answer.cache_status(),
            "edgeward; fwd=bypass; fwd-status=200; detail=upgrade"
        );
    }
    assert_eq!(bed.get("/page").text(), "page");
    assert_eq!(bed.origin.requests("/page"), 3);
    assert!(bed.get("/page").is_hit());
    bed.get_with("/page", &HANDSHAKE);
    assert_eq!(bed.origin.requests("/page"), 4);
}

#[test]
fn a_peer_that_half_closes_still_receives() {
    let bed = SocketBed::start();
    let (mut client, mut origin) = open(&bed);
    client.send(b"last");
    client.shutdown_write();
    assert_eq!(origin.read_to_end(), "last");
    origin.send(b"reply");
    assert_eq!(client.read_up_to(5), b"reply");
    drop(origin);
    assert!(client.is_closed());
    wait_until_ended(&bed, "closed");

    let (mut client, mut origin) = open(&bed);
    origin.send(b"last");
    origin.shutdown_write();
    assert_eq!(client.read_up_to(5), b"last");
    client.send(b"reply");
    origin.expect("reply");
}

#[test]
fn a_reset_of_one_connection_closes_the_other() {
    let bed = SocketBed::start();
    let (mut client, origin) = open(&bed);
    origin.peer.reset();
    assert!(client.is_closed());
    wait_until_ended(&bed, "error");

    let bed = SocketBed::start();
    let (client, mut origin) = open(&bed);
    client.reset();
    assert!(origin.is_closed());
    wait_until_ended(&bed, "error");
}

#[test]
fn a_client_that_left_during_the_handshake_gets_no_tunnel() {
    let bed = SocketBed::start();
    let mut client = bed.bed.connect();
    client.send_head("GET", "/socket", &HANDSHAKE);
    let mut origin = bed.origin.request();
    client.reset();
    origin.accept();
    assert!(origin.is_closed());
    bed.bed.wait_for_metric("edgeward_tunnels", 0.0);
}

#[test]
fn tunnels_beyond_the_limit_get_503_and_requests_do_not() {
    let bed = SocketBed::with_config(|config| {
        config.limits.tunnels_max = NonZeroUsize::new(2).expect("not zero");
        config.origins[0].client_share_percent = 100;
        config.origins[0].connections_per_worker_max = NonZeroUsize::MIN;
    });
    let (mut client, origin) = open(&bed);
    // A request whose origin has not answered takes a slot too.
    let mut waiting = bed.bed.connect();
    waiting.send_head("GET", "/socket", &HANDSHAKE);
    let mut second = bed.origin.request();
    let refused = bed.bed.get_with("/socket", &HANDSHAKE);
    assert_eq!(refused.status, 503);
    assert!(refused.header("retry-after").is_some());
    assert_eq!(
        bed.bed.metric("edgeward_upgrades_total{result=\"limit\"}"),
        1.0
    );
    // The pool has one connection, and the tunnels have not taken it.
    let mut requesting = bed.bed.connect();
    requesting.send_head("GET", "/page", &[]);
    let mut page = bed.origin.request();
    page.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage");
    assert_eq!(requesting.answer("GET").text(), "page");
    // The end of a tunnel, and of an ordinary response, frees the slot.
    drop(origin);
    assert!(client.is_closed());
    drop(client);
    second.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    assert_eq!(waiting.answer("GET").status, 403);
    bed.bed.wait_for_metric("edgeward_tunnels", 0.0);
    let tunnels = [open(&bed), open(&bed)];
    assert_eq!(bed.bed.get_with("/socket", &HANDSHAKE).status, 503);
    drop(tunnels);
}

/// Method: all limits of slow clients and idle connections are shorter than the timeout of tunnels.
#[test]
fn an_idle_tunnel_outlives_all_other_timeouts_and_ends_after_its_own() {
    let short = Duration::from_millis(100);
    let timeout = Duration::from_millis(1500);
    let bed = SocketBed::with_config(|config| {
        config.limits.idle_timeout = short;
        config.limits.request_head_timeout = short;
        config.limits.body_idle_timeout = short;
        config.limits.rate_window = short;
        config.origins[0].first_byte_timeout = Duration::from_secs(5);
        config.origins[0].read_idle_timeout = short;
        config.origins[0].idle_timeout = short;
        config.limits.tunnel_idle_timeout = timeout;
    });
    let (mut client, mut origin) = open(&bed);
    let start = Instant::now();
    client.send(b"x");
    origin.expect("x");
    assert!(client.is_closed());
    // The edge's clock ticks every few milliseconds.
    let elapsed = start.elapsed();
    assert!(elapsed >= timeout - short, "{elapsed:?}");
    assert!(origin.is_closed());
    wait_until_ended(&bed, "idle");
}

#[test]
fn a_shutdown_keeps_tunnels_for_the_drain_time_and_then_closes_them() {
    let bed = SocketBed::start();
    let (mut client, mut origin) = open(&bed);
    let drain = Duration::from_secs(4);
    let edge = bed.bed.edge;
    let start = Instant::now();
    let stopping = std::thread::spawn(move || edge.shutdown(drain));
    while start.elapsed() < drain / 8 {
        client.send(b"ping");
        origin.expect("ping");
    }
    assert!(client.is_closed());
    assert!(start.elapsed() >= drain);
    assert!(origin.is_closed());
    stopping.join().expect("the edge stops");
}

/// Method: the first of two servers refuses connections. Round robin begins with it twice, because retries take a
/// turn too.
#[test]
fn a_tunnel_opens_at_another_server_if_one_cannot_be_connected_to() {
    let closed = ScriptedOrigin::unused_addr();
    let bed = SocketBed::with_config(|config| {
        let origin = &mut config.origins[0];
        let url = format!("http://{closed}").parse().expect("a URL");
        origin.servers.insert(0, url);
        origin.balance = Balance::RoundRobin;
    });
    let _tunnels = [open(&bed), open(&bed)];
    for (series, value) in [
        ("edgeward_origin_failovers_total", 2.0),
        ("edgeward_upgrades_total{result=\"switched\"}", 2.0),
        ("edgeward_upgrades_total{result=\"failed\"}", 0.0),
        ("edgeward_tunnels", 2.0),
    ] {
        assert_eq!(bed.bed.metric(series), value, "{series}");
    }
}

#[test]
fn the_access_log_has_a_tunnel_with_its_bytes_when_it_ends() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let path = folder.path().join("access.log");
    let bed = SocketBed::with_config(|config| {
        let destination = LogDestination::File(path.clone());
        config.access_log = Some(AccessLogConfig::new(destination, LogFormat::Json));
    });
    let (mut client, mut origin) = open(&bed);
    origin.send(b"twelve bytes");
    assert_eq!(client.read_up_to(12), b"twelve bytes");
    drop(origin);
    assert!(client.is_closed());
    drop(client);
    wait_until_ended(&bed, "closed");
    assert_eq!(bed.bed.metric("edgeward_response_bytes_total"), 12.0);
    bed.bed.edge.shutdown(TIMEOUT);
    let log = std::fs::read_to_string(&path).expect("the log exists");
    assert_eq!(log.lines().count(), 1, "{log}");
    let line: serde_json::Value = serde_json::from_str(&log).expect("the line is JSON");
    assert_eq!(line["status"], 101, "{line}");
    assert_eq!(line["bytes"], 12, "{line}");
    assert_eq!(line["cache"], "bypass", "{line}");
    assert_eq!(line["target"], "/socket", "{line}");
    assert_eq!(line.get("aborted"), None, "{line}");
}
