//! The memory of the state of client connections: its bound, and the connections that are closed to keep it.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::time::Duration;

use edgeward_proxy::EdgeConfig;
use edgeward_testkit::Answer;
use edgeward_types::ByteSize;
use socket2::{Domain, Socket, Type};

use super::frames::*;
use crate::support::{Client, TestBed};

const CLOSED: &str = "edgeward_client_connections_closed_total{cause=\"connection-memory\"}";

/// Bounds the connections of one worker to 4 MiB: eight with a hundred open uploads.
fn four_mebibytes(config: &mut EdgeConfig) {
    config.workers = NonZeroUsize::MIN;
    config.limits.connections_bytes_max = ByteSize::mib(4);
    config.overload.lag_max = Duration::ZERO; // a slow machine sheds no uploads
}

/// Lets the origin answer with a page that is fresh for ten minutes, except for the URL `/never`.
fn page(bed: &TestBed) {
    bed.origin.otherwise(|request| match request.target() {
        "/never" => Answer::never(),
        _ => Answer::ok("page").header("cache-control", "max-age=600"),
    });
}

/// Opens POSTs whose bodies do not arrive. Returns false if the edge closes the connection.
fn open_posts(client: &mut H2Client, count: u32) -> bool {
    let block = request("POST", "/never", &[]);
    let posts = (0..count).flat_map(|nth| frame(HEADERS, END_HEADERS, 2 * nth + 1, &block));
    client.try_send(&posts.collect::<Vec<_>>()) && client.try_ping()
}

/// Connects from another address of the loopback network.
fn connect_from(last: u8, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0));
    socket
        .bind(&from.into())
        .expect("loopback has all addresses");
    socket.connect(&to.into()).expect("the edge listens");
    socket.into()
}

#[test]
fn connections_with_open_uploads_are_closed_and_newcomers_are_served() {
    let bed = TestBed::with_config(four_mebibytes);
    page(&bed);
    let mut regular = bed.connect();
    assert_eq!(regular.get("/", &[]).status, 200);
    let mut holders = Vec::new();
    for nth in 0..30 {
        let mut holder = H2Client::connect(bed.addr());
        open_posts(&mut holder, 100);
        holders.push(holder);
        assert!(bed.get("/").is_hit(), "newcomer {nth}");
        assert!(regular.get("/", &[]).is_hit(), "request {nth}");
    }
    assert!(bed.metric(CLOSED) >= 20.0, "{}", bed.metric(CLOSED));
    assert!(bed.metric("edgeward_connections_bytes") <= f64::from(4 << 20));
    assert_eq!(
        bed.metric("edgeward_connections_bytes_max"),
        f64::from(4 << 20)
    );
}

/// Method: one client has the heaviest connection. Another one has connections that hold more together.
#[test]
fn the_address_that_holds_most_loses_its_connections() {
    let bed = TestBed::with_config(four_mebibytes);
    page(&bed);
    let mut regular = H2Client::connect(bed.addr());
    assert!(open_posts(&mut regular, 100));
    let settings = frame(SETTINGS, 0, 0, &[]);
    let connect = || H2Client::over(connect_from(2, bed.addr()), &settings);
    let mut others: Vec<_> = (0..60).map(|_| connect()).collect();
    for other in &mut others {
        open_posts(other, 40);
    }
    assert!(bed.metric(CLOSED) >= 10.0, "{}", bed.metric(CLOSED));
    regular.ping();
}

/// Method: the client's window is 0, so no byte of a body can be sent to it.
#[test]
fn stalled_responses_are_charged_until_their_connection_ends() {
    let bed = TestBed::with_config(|config| config.workers = NonZeroUsize::MIN);
    page(&bed);
    assert_eq!(bed.get("/").status, 200);
    for method in ["GET", "TRACE"] {
        bed.wait_for_metric("edgeward_connections_bytes", 0.0);
        let no_window = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
        let stream = TcpStream::connect(bed.addr()).expect("the edge listens");
        let mut client = H2Client::over(stream, &no_window);
        let block = request(method, "/", &[]);
        for nth in 0..100 {
            let headers = frame(HEADERS, END_STREAM | END_HEADERS, 2 * nth + 1, &block);
            client.send(&headers);
        }
        client.ping();
        let held = bed.metric("edgeward_connections_bytes");
        assert!((200e3..400e3).contains(&held), "{method}: {held} bytes");
    }
    bed.wait_for_metric("edgeward_connections_bytes", 0.0);
}

/// Method: the origin does not send the 100 that the request expects, so the edge does not read the content.
#[test]
fn content_that_no_request_reads_is_charged() {
    let bed = TestBed::with_config(|config| {
        config.workers = NonZeroUsize::MIN;
        config.origins[0].expect_timeout = Duration::from_secs(600);
    });
    bed.origin
        .otherwise(|_| Answer::ok("").ignores_expectation());
    let mut client = H2Client::connect(bed.addr());
    client.ping();
    let before = bed.metric("edgeward_connections_bytes");
    let block = request("POST", "/", &[("expect", "100-continue")]);
    client.send(&frame(HEADERS, END_HEADERS, 1, &block));
    for _ in 0..3 {
        client.send(&frame(DATA, 0, 1, &[0; 16 << 10]));
    }
    client.ping();
    let held = bed.metric("edgeward_connections_bytes") - before;
    assert!(held >= 49_152.0, "{held} of 49152 bytes");
}

#[test]
fn incomplete_heads_are_charged_and_the_heaviest_are_closed() {
    let bed = TestBed::with_config(four_mebibytes);
    page(&bed);
    assert_eq!(bed.get("/").status, 200);
    bed.wait_for_metric("edgeward_connections_bytes", 0.0);
    let mut small = bed.connect();
    small.send(b"GET / HTTP/1.1\r\nhost: edge.test\r\n");
    let mut large: Vec<_> = (0..100).map(|_| bed.connect()).collect();
    let head = [
        "GET / HTTP/1.1\r\nhost: edge.test\r\nx: ",
        &"a".repeat(60_000),
    ]
    .concat();
    for client in &mut large {
        client.try_send(head.as_bytes());
    }
    bed.wait_until("the heads above the bound are closed", |status| {
        status["connections"]["bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes <= 7 << 19)
            && status["connections"]["clients"]
                .as_u64()
                .is_some_and(|open| open < 60)
    });
    assert!(bed.get("/").is_hit());
    small.send(b"\r\n");
    assert_eq!(small.answer("GET").status, 200, "a small head stays");
}

#[test]
fn incomplete_header_blocks_are_charged() {
    let bed = TestBed::with_config(|config| config.workers = NonZeroUsize::MIN);
    let mut client = H2Client::connect(bed.addr());
    client.ping();
    let before = bed.metric("edgeward_connections_bytes");
    client.send(&frame(HEADERS, END_STREAM, 1, &[0x40; 16_000]));
    client.send(&frame(CONTINUATION, 0, 1, &[0x40; 16_000]));
    bed.wait_until("the blocks have arrived", |status| {
        status["connections"]["bytes"]
            .as_f64()
            .is_some_and(|bytes| bytes - before >= 32e3)
    });
}

/// Method: each head takes a fortieth of the budget, and the origin does not answer.
#[test]
fn clients_with_large_heads_are_closed_and_newcomers_are_served() {
    let bed = TestBed::with_config(|config| {
        config.workers = NonZeroUsize::MIN;
        config.limits.heads_bytes_max = ByteSize::kib(640);
    });
    bed.origin.otherwise(|request| match request.target() {
        "/never" => Answer::never(),
        _ => Answer::ok("page"),
    });
    let value = "v".repeat(14_000);
    let mut holders = Vec::new();
    for _ in 0..80 {
        let mut holder = H2Client::connect(bed.addr());
        holder.get(1, "/never", &[("a", &value)]);
        _ = holder.try_ping();
        holders.push(holder);
        let mut newcomer = H2Client::connect(bed.addr());
        newcomer.get(1, "/", &[]);
        assert_eq!(newcomer.status(1), 200);
    }
    assert!(bed.metric(CLOSED) >= 30.0, "{}", bed.metric(CLOSED));
}

/// Method: the process is always above its bound. The client with a hundred uploads holds most.
#[test]
fn memory_above_its_bound_closes_the_heaviest_connection_and_no_idle_one() {
    let bed = TestBed::with_config(|config| {
        config.workers = NonZeroUsize::MIN;
        config.overload.memory_max = Some(ByteSize(1));
    });
    page(&bed);
    let mut regular = Client::connect(bed.addr());
    assert_eq!(regular.get("/", &[]).status, 200);
    let mut holder = H2Client::connect(bed.addr());
    assert!(open_posts(&mut holder, 100));
    _ = holder.read_to_goaway();
    assert_eq!(bed.metric(CLOSED), 1.0);
    assert!(regular.get("/", &[]).is_hit());
}

/// Method: the preface of HTTP/2 arrives byte by byte, with pauses that are shorter than the timeout of a head.
#[test]
fn a_partial_preface_has_the_time_of_a_head_in_all() {
    let bed = TestBed::with_config(|config| {
        config.limits.request_head_timeout = Duration::from_millis(300);
    });
    let mut client = TcpStream::connect(bed.addr()).expect("the edge listens");
    client
        .set_read_timeout(Some(Duration::from_millis(100)))
        .expect("the timeout can be set");
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let mut sent = 0;
    for byte in &preface[..20] {
        if client.write_all(&[*byte]).is_err() {
            break;
        }
        sent += 1;
        // Waits for 100 ms, unless the edge closes the connection.
        let mut piece = [0; 1];
        match std::io::Read::read(&mut client, &mut piece) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            _ => break,
        }
    }
    assert!(sent < 10, "{sent} bytes in {} ms", sent * 100);
    let closed = "edgeward_client_connections_closed_total{cause=\"head-timeout\"}";
    assert_eq!(bed.metric(closed), 1.0);
}
