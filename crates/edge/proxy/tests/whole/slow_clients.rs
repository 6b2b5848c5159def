//! Slow clients must not use up the connections to the origin: other clients still get connections.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::time::Duration;

use crate::closed_windows::ClosedWindows;
use crate::support::{Client, TestBed};
use edgeward_testkit::{Answer, Gate};

/// Starts an edge with one worker, which may open `connections` connections to the origin.
fn bed_with(connections: usize) -> TestBed {
    TestBed::with_config(|config| {
        config.workers = NonZeroUsize::MIN;
        config.origins[0].connections_per_worker_max =
            NonZeroUsize::new(connections).expect("the number is not zero");
    })
}

/// Connects a client from the loopback address 127.0.0.`last`.
fn connect_from(bed: &TestBed, last: u8) -> Client {
    let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0));
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let socket = socket.expect("the socket can be created");
    socket
        .bind(&from.into())
        .expect("the loopback address can be bound");
    socket
        .connect(&bed.addr().into())
        .expect("the edge listens");
    Client::over(TcpStream::from(socket))
}

fn no_store(body: &str) -> Answer {
    Answer::ok(body.to_owned()).header("cache-control", "no-store")
}

/// The edge buffers a small upload until it is complete, and only then takes a connection to the origin. Slow uploads
/// therefore leave the connections to misses.
#[test]
fn a_slow_small_upload_uses_no_connection_to_the_origin() {
    let bed = bed_with(2);
    bed.origin.otherwise(|_| no_store("x"));
    let mut slow: Vec<Client> = (0..8)
        .map(|_| {
            let mut client = bed.connect();
            client.send_head("POST", "/up", &[("content-length", "1000")]);
            client.send(b"the first bytes");
            client
        })
        .collect();
    // The status page counts requests by the reason for which they are forwarded. For POST the reason is `method`.
    bed.wait_until("the uploads begin", |status| {
        status["requests"]["method"] == 8
    });
    assert_eq!(bed.get("/page").status, 200);
    assert_eq!(bed.origin.requests("/up"), 0);
    // After a client has sent the rest, its body is forwarded unchanged.
    for client in &mut slow {
        client.send_rest(b"more of it ", 1000 - 15);
        assert_eq!(client.answer("POST").status, 200);
    }
    let last = bed.origin.last("/up").expect("the origin got a request");
    assert_eq!(last.body_len(), 1000);
    assert!(last.body().starts_with(b"the first bytesmore of it more"));
}

#[test]
fn one_address_cannot_take_every_connection_to_the_origin() {
    let bed = bed_with(10);
    let gate = Gate::new();
    bed.origin.otherwise({
        let gate = gate.clone();
        move |request| {
            if request.path() == "/page" {
                no_store("x")
            } else {
                no_store("slow").wait_before_head(&gate)
            }
        }
    });
    let mut greedy: Vec<Client> = (0..30)
        .map(|n| {
            let mut client = bed.connect();
            client.send_head("GET", &format!("/{n}"), &[]);
            client
        })
        .collect();
    gate.wait_reached(8);
    bed.wait_until("all requests are read", |status| {
        status["requests"]["uri-miss"] == 30
    });
    let mut other = connect_from(&bed, 2);
    assert_eq!(other.get("/page", &[]).text(), "x");
    assert_eq!(gate.reached(), 8, "four fifths of ten connections");
    gate.open();
    for client in &mut greedy {
        assert_eq!(client.answer("GET").text(), "slow");
    }
}

#[test]
fn addresses_that_wait_for_a_connection_take_turns() {
    let bed = bed_with(1);
    let gate = Gate::new();
    bed.origin.otherwise({
        let gate = gate.clone();
        move |_| no_store("x").wait_before_head(&gate)
    });
    let mut clients = Vec::new();
    for n in 0..20 {
        let mut client = bed.connect();
        client.send_head("GET", &format!("/many/{n}"), &[]);
        clients.push(client);
    }
    bed.wait_until("the requests wait", |status| {
        status["requests"]["uri-miss"] == 20
    });
    let mut other = connect_from(&bed, 2);
    other.send_head("GET", "/other", &[]);
    bed.wait_until("the request waits", |status| {
        status["requests"]["uri-miss"] == 21
    });
    gate.open();
    assert_eq!(other.answer("GET").text(), "x");
    for client in &mut clients {
        assert_eq!(client.answer("GET").text(), "x");
    }
    let order: Vec<_> = bed.origin.recorded();
    let position = order.iter().position(|request| request.path() == "/other");
    assert!(
        position.is_some_and(|position| position <= 2),
        "its position was {position:?} of {}",
        order.len()
    );
}

/// An HTTP/2 client requests ten bodies, but its stream windows of zero bytes let the edge send none of them. The edge
/// reads the bodies ahead into memory, so their connections to the origin become free.
#[test]
fn a_small_body_that_no_client_reads_frees_its_connection_to_the_origin() {
    let bed = bed_with(4);
    bed.origin.otherwise(|request| {
        if request.path() == "/page" {
            no_store("x")
        } else {
            Answer::pattern(400_000).header("cache-control", "no-store")
        }
    });
    let _client = ClosedWindows::request(&bed, 10);
    assert_eq!(bed.get("/page").text(), "x");
    // The memory of the fills shows that the edge has read most of the ten bodies.
    bed.wait_until("the bodies are read", |status| {
        let bytes = status["fills"]["bytes"].as_u64();
        bytes.is_some_and(|bytes| (10 * 250_000..=10 * 400_000).contains(&bytes))
    });
}

/// A client that begins to read after the edge has read ahead gets the complete body.
#[test]
fn a_body_that_was_read_ahead_arrives_completely() {
    let bed = bed_with(2);
    let answer = |length| Answer::pattern(length).header("cache-control", "no-store");
    bed.origin.on("/large", answer(24 << 20));
    bed.origin.on("/chunked", answer(24 << 20).chunked(10_000));
    for path in ["/large", "/chunked"] {
        let mut client = bed.connect();
        client.send_head("GET", path, &[]);
        let before = bed.metric("edgeward_read_ahead_total");
        let mut got = client.head();
        bed.wait_for_metric("edgeward_read_ahead_total", before + 1.0);
        client.body("GET", &mut got);
        assert!(got.complete, "{path}");
        assert!(got.body == crate::support::pattern(0..24 << 20), "{path}");
    }
}

/// A client may wait for the origin's response before it sends the rest of its body, so the edge must not wait
/// for the rest before it forwards the request.
#[test]
fn a_body_of_unknown_length_is_buffered_for_a_bounded_time() {
    let bed = bed_with(2);
    bed.origin
        .on("/talk", no_store("go on").before_reading_body());
    let mut client = bed.connect();
    client.send_head("POST", "/talk", &[("transfer-encoding", "chunked")]);
    client.send(b"5\r\nhello\r\n");
    assert_eq!(client.answer("POST").text(), "go on");
    _ = client.try_send(b"0\r\n\r\n");
}

#[test]
fn chunked_uploads_arrive_completely_with_any_number_of_chunks() {
    let bed = bed_with(2);
    bed.origin.on("/up", Answer::ok("thanks"));
    for pieces in [1, 3, 40, 4000] {
        let mut client = bed.connect();
        client.send_head("POST", "/up", &[("transfer-encoding", "chunked")]);
        let mut expected = Vec::new();
        let mut sent = Vec::new();
        for n in 0..pieces {
            let piece = vec![b'a' + u8::try_from(n % 26).expect("the result is a letter"); 40];
            write!(sent, "{:x}\r\n", piece.len()).expect("writing to memory does not fail");
            sent.extend_from_slice(&piece);
            sent.extend_from_slice(b"\r\n");
            expected.extend_from_slice(&piece);
        }
        sent.extend_from_slice(b"0\r\n\r\n");
        client.send(&sent);
        assert_eq!(client.answer("POST").text(), "thanks");
        let got = bed.origin.last("/up").expect("the origin got a request");
        assert_eq!(got.body_len(), expected.len() as u64, "{pieces} pieces");
        // The test's origin keeps only the first MiB of a body.
        assert!(expected.starts_with(got.body()) || got.body() == expected);
    }
}

/// Incomplete uploads may use half of the four connections, here all from one address.
///
/// Method: open as many slow clients as origin connections. Their uploads have an unknown length or `Expect:
/// 100-continue`, so the edge cannot buffer them completely before it forwards them.
#[test]
fn incomplete_uploads_leave_connections_for_misses() {
    for (field, value) in [("transfer-encoding", "chunked"), ("expect", "100-continue")] {
        let bed = TestBed::with_config(|config| {
            config.workers = NonZeroUsize::MIN;
            config.origins[0].connections_per_worker_max =
                NonZeroUsize::new(4).expect("the number is not zero");
            config.origins[0].client_share_percent = 100;
            config.limits.upload_buffer_wait = Duration::from_millis(10);
        });
        bed.origin.otherwise(|_| no_store("x"));
        let mut slow: Vec<Client> = (0..4)
            .map(|_| {
                let mut client = bed.connect();
                let mut fields = vec![(field, value)];
                if field == "expect" {
                    fields.push(("content-length", "10"));
                }
                client.send_head("POST", "/up", &fields);
                if field != "expect" {
                    client.send(b"5\r\nhello\r\n");
                }
                client
            })
            .collect();
        bed.origin
            .wait_until("half of the uploads reach the origin", |origin| {
                origin.requests("/up") >= 2
            });
        for n in 0..100 {
            assert_eq!(bed.get("/page").status, 200, "{field}: request {n}");
        }
        // The other two uploads stay buffered.
        bed.wait_for_metric("edgeward_uploads_kept_total", 2.0);
        assert_eq!(bed.origin.requests("/up"), 2, "{field}");
        // After a client has sent the rest, its body is forwarded unchanged.
        for client in &mut slow {
            let rest: &[u8] = match field {
                "expect" => b"helloworld",
                _ => b"5\r\nworld\r\n0\r\n\r\n",
            };
            client.send(rest);
            assert_eq!(client.answer("POST").text(), "x", "{field}");
        }
        for request in bed.origin.recorded() {
            let body: &[u8] = match request.path() {
                "/up" => b"helloworld",
                _ => b"",
            };
            assert_eq!(request.body(), body, "{field}: {}", request.path());
        }
    }
}

/// A client that waits for the origin's response before it sends the rest of its body gets a connection,
/// although another address has many incomplete uploads.
#[test]
fn one_address_cannot_use_all_connections_of_incomplete_uploads() {
    let bed = TestBed::with_config(|config| {
        config.workers = NonZeroUsize::MIN;
        config.origins[0].connections_per_worker_max =
            NonZeroUsize::new(10).expect("the number is not zero");
        config.limits.upload_buffer_wait = Duration::from_millis(10);
    });
    bed.origin.on("/up", no_store("x"));
    bed.origin
        .on("/talk", no_store("go on").before_reading_body());
    let mut greedy: Vec<Client> = (0..8)
        .map(|_| {
            let mut client = bed.connect();
            client.send_head("POST", "/up", &[("transfer-encoding", "chunked")]);
            client.send(b"5\r\nhello\r\n");
            client
        })
        .collect();
    // Incomplete uploads may use half of the ten connections, and one address may use four fifths of this half. The
    // other four of the eight uploads stay buffered.
    bed.wait_for_metric("edgeward_uploads_kept_total", 4.0);
    let mut other = connect_from(&bed, 2);
    other.send_head("POST", "/talk", &[("transfer-encoding", "chunked")]);
    other.send(b"5\r\nhello\r\n");
    assert_eq!(other.answer("POST").text(), "go on");
    assert_eq!(bed.origin.requests("/up"), 4);
    for client in &mut greedy {
        client.send(b"0\r\n\r\n");
        assert_eq!(client.answer("POST").text(), "x");
    }
}
