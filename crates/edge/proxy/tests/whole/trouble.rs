//! Faulty origins and faulty clients. For each fault, the edge sends the right status or closes the connection,
//! and increments a counter.

use std::time::Duration;

use crate::support::{Client, TIMEOUT, TestBed, config_for, pattern};
use edgeward_testkit::{Answer, Gate, ScriptedOrigin, Step};
use edgeward_types::ByteSize;

#[test]
fn a_body_that_ended_early_is_not_stored_and_does_not_end_as_complete() {
    let bed = TestBed::start();
    let cacheable = |length| Answer::pattern(length).header("cache-control", "max-age=60");
    for (path, broken) in [
        ("/closed", cacheable(200_000).close_at(150_000)),
        ("/reset", cacheable(200_000).reset_at(150_000)),
        ("/lied", cacheable(150_000).claiming_length(200_000)),
        (
            "/chunked-closed",
            cacheable(200_000).chunked(1000).close_at(150_000),
        ),
        (
            "/chunked-reset",
            cacheable(200_000).chunked(1000).reset_at(150_000),
        ),
    ] {
        bed.origin.once(path, broken.clone());
        bed.origin.once(path, broken);
        bed.origin.on(path, cacheable(200_000));
        for _ in 0..2 {
            let got = bed.get(path);
            // If the fault happens before the edge has sent the head, the client gets a 502. If it happens
            // later, the client gets an incomplete 200.
            match got.status {
                502 => assert!(got.complete, "{path}"),
                200 => assert!(!got.complete, "{path}: {} bytes", got.body.len()),
                other => panic!("{path}: {other}"),
            }
        }
        assert_eq!(bed.origin.requests(path), 2, "{path}");
        let full = bed.get(path);
        assert!(full.complete && full.body == pattern(0..200_000), "{path}");
        assert!(bed.get(path).is_hit(), "{path}");
    }
    assert_eq!(
        bed.metric("edgeward_not_stored_total{reason=\"incomplete\"}"),
        10.0
    );
    assert_eq!(bed.status()["hot"]["objects"], 5);
}

#[test]
fn an_aborted_body_is_aborted_for_all_clients_that_share_it() {
    let bed = TestBed::start();
    let gate = Gate::new();
    bed.origin.on(
        "/page",
        Answer::pattern(200_000)
            .header("cache-control", "max-age=60")
            .wait_at(100_000, &gate)
            .reset_at(150_000),
    );
    let mut clients: Vec<_> = (0..3)
        .map(|_| {
            let mut client = bed.connect();
            client.send_head("GET", "/page", &[]);
            assert_eq!(client.head().status, 200);
            client
        })
        .collect();
    gate.open();
    for client in &mut clients {
        assert!(client.read_up_to(200_000).len() < 200_000);
    }
    assert_eq!(bed.origin.requests("/page"), 1);
}

#[test]
fn an_origin_that_is_down_is_a_502_and_counted() {
    let bed = TestBed::with_config(|config| {
        config.origins[0].servers[0] = format!("http://{}", ScriptedOrigin::unused_addr())
            .parse()
            .expect("the URL is valid");
    });
    let got = bed.get("/page");
    assert_eq!(got.status, 502);
    assert_eq!(
        got.cache_status(),
        "edgeward; fwd=uri-miss; detail=connection_refused"
    );
    assert_eq!(got.header("cache-control"), Some("no-store"));
    assert_eq!(
        bed.metric("edgeward_origin_errors_total{cause=\"connect\"}"),
        1.0
    );
    let passed = bed
        .connect()
        .request("POST", "/page", &[("content-length", "1")], b"x");
    assert_eq!(passed.status, 502);
}

#[test]
fn an_origin_that_never_answers_is_a_504() {
    let bed = TestBed::with_config(|config| {
        config.origins[0].first_byte_timeout = Duration::from_millis(100);
    });
    bed.origin.on("/page", Answer::never());
    let got = bed.get("/page");
    assert_eq!(got.status, 504);
    assert_eq!(
        got.cache_status(),
        "edgeward; fwd=uri-miss; detail=http_response_timeout"
    );
    assert_eq!(
        bed.metric("edgeward_origin_errors_total{cause=\"first-byte-timeout\"}"),
        1.0
    );
}

#[test]
fn a_body_that_stops_at_the_origin_ends_with_a_read_timeout() {
    let bed = TestBed::with_config(|config| {
        config.origins[0].read_idle_timeout = Duration::from_millis(100);
    });
    for (path, cache_control) in [("/kept", "max-age=60"), ("/passed", "no-store")] {
        bed.origin.on(
            path,
            Answer::pattern(100_000)
                .header("cache-control", cache_control)
                .hang_at(50_000),
        );
        let got = bed.get(path);
        assert!(!got.complete, "{path}: {} bytes", got.body.len());
    }
    assert_eq!(
        bed.metric("edgeward_origin_errors_total{cause=\"read-timeout\"}"),
        2.0
    );
}

#[test]
fn a_response_head_of_a_hundred_megabytes_is_refused() {
    let bed = TestBed::start();
    bed.origin.on("/lines", Answer::endless_headers(100 << 20));
    bed.origin
        .on("/line", Answer::endless_header_line(100 << 20));
    for path in ["/lines", "/line"] {
        let got = bed.get(path);
        assert_eq!(got.status, 502, "{path}");
        assert_eq!(
            got.cache_status(),
            "edgeward; fwd=uri-miss; detail=http_response_header_section_size"
        );
    }
    assert_eq!(
        bed.metric("edgeward_origin_errors_total{cause=\"head-too-large\"}"),
        2.0
    );
    // The origin can fill only the kernel's socket buffers, which take up to 36 MiB.
    let written = bed.origin.bytes_written();
    assert!(written < 40 << 20, "the origin could write {written} bytes");
}

#[test]
fn a_response_that_is_not_http_is_a_502() {
    let bed = TestBed::start();
    bed.origin
        .on("/page", Answer::garbage("SSH-2.0-OpenSSH_9.2\r\n"));
    let got = bed.get("/page");
    assert_eq!(got.status, 502);
    assert_eq!(
        got.cache_status(),
        "edgeward; fwd=uri-miss; detail=http_protocol_error"
    );
}

#[test]
fn a_connection_that_closed_while_idle_is_replaced_by_a_retry() {
    let bed = TestBed::with_config(|config| config.workers = std::num::NonZeroUsize::MIN);
    bed.origin
        .otherwise(|_| Answer::ok("x").header("cache-control", "no-store"));
    let mut client = bed.connect();
    for n in 0..20 {
        assert_eq!(client.get(&format!("/{n}"), &[]).text(), "x");
        bed.origin.close_idle_connections();
    }
}

/// The origin closes its connection after each response, and does not announce this by `Connection: close`. If
/// the edge has not detected the close yet, it sends the next request on a closed connection and must retry.
#[test]
fn origins_that_close_after_each_answer_are_served() {
    let bed = TestBed::with_config(|config| config.workers = std::num::NonZeroUsize::MIN);
    bed.origin.otherwise(|_| {
        Answer::ok("x")
            .header("cache-control", "no-store")
            .then_close()
    });
    let mut client = bed.connect();
    for n in 0..50 {
        assert_eq!(client.get(&format!("/{n}"), &[]).status, 200);
    }
}

/// A POST may have had an effect at the origin before the connection was reset, so the edge must not send it
/// twice.
#[test]
fn a_post_is_not_repeated_after_its_connection_was_reset() {
    let bed = TestBed::with_config(|config| config.workers = std::num::NonZeroUsize::MIN);
    bed.origin
        .on("/warm", Answer::ok("x").header("cache-control", "no-store"));
    bed.origin.on("/pay", Answer::script(vec![Step::Reset]));
    bed.get("/warm");
    let got = bed
        .connect()
        .request("POST", "/pay", &[("content-length", "3")], b"now");
    assert_eq!(got.status, 502);
    assert_eq!(bed.origin.requests("/pay"), 1);
}

#[test]
fn requests_beyond_the_origin_connections_wait() {
    let bed = TestBed::with_config(|config| {
        config.workers = std::num::NonZeroUsize::MIN;
        config.origins[0].connections_per_worker_max =
            std::num::NonZeroUsize::new(2).expect("the number is not zero");
    });
    let gate = Gate::new();
    bed.origin.otherwise({
        let gate = gate.clone();
        move |_| {
            Answer::ok("x")
                .header("cache-control", "no-store")
                .wait_before_head(&gate)
        }
    });
    let mut clients: Vec<_> = (0..6)
        .map(|n| {
            let mut client = bed.connect();
            client.send_head("GET", &format!("/{n}"), &[]);
            client
        })
        .collect();
    gate.wait_reached(2);
    bed.wait_until("all requests wait", |status| {
        status["requests"]["uri-miss"] == 6
    });
    assert_eq!(bed.origin.requests_total(), 2);
    assert_eq!(bed.status()["connections"]["origin"], 2);
    gate.open();
    for client in &mut clients {
        assert_eq!(client.answer("GET").text(), "x");
    }
}

#[test]
fn a_request_without_an_origin_connection_in_time_gets_a_503() {
    let bed = TestBed::with_config(|config| {
        config.workers = std::num::NonZeroUsize::MIN;
        config.origins[0].connections_per_worker_max = std::num::NonZeroUsize::MIN;
        config.origins[0].queue_timeout = Duration::from_millis(100);
    });
    let gate = Gate::new();
    bed.origin
        .on("/slow", Answer::ok("x").wait_before_head(&gate));
    let mut first = bed.connect();
    first.send_head("GET", "/slow", &[]);
    gate.wait_reached(1);
    let got = bed.get("/other");
    assert_eq!(got.status, 503);
    assert_eq!(
        got.cache_status(),
        "edgeward; fwd=uri-miss; detail=connection_limit_reached"
    );
    gate.open();
    assert_eq!(first.answer("GET").text(), "x");
}

#[test]
fn half_a_request_times_out_with_a_408() {
    let bed = TestBed::with_config(|config| {
        config.limits.request_head_timeout = Duration::from_millis(300);
    });
    let mut client = bed.connect();
    client.send(b"GET /page HTTP/1.1\r\nHost: exam");
    assert_eq!(client.answer("GET").status, 408);
    assert!(client.is_closed());
    // The same timeout applies to the second request of a connection.
    bed.origin.on(
        "/page",
        Answer::ok("x").header("cache-control", "max-age=60"),
    );
    let mut client = bed.connect();
    assert_eq!(client.get("/page", &[]).status, 200);
    client.send(b"GET /pa");
    assert_eq!(client.answer("GET").status, 408);
    assert!(client.is_closed());
    // The timeout also applies to a request that begins in the same packet as a request with a hit.
    let mut client = bed.connect();
    client.send(b"GET /page HTTP/1.1\r\nHost: example.com\r\n\r\nGET /pa");
    assert_eq!(client.answer("GET").status, 200);
    assert_eq!(client.answer("GET").status, 408);
    assert!(client.is_closed());
    assert_eq!(
        bed.metric("edgeward_client_connections_closed_total{cause=\"head-timeout\"}"),
        3.0
    );
}

#[test]
fn an_idle_connection_is_closed() {
    let bed =
        TestBed::with_config(|config| config.limits.idle_timeout = Duration::from_millis(300));
    let mut silent = bed.connect();
    assert!(silent.is_closed());
    bed.origin.on("/page", Answer::ok("x"));
    let mut client = bed.connect();
    assert_eq!(client.get("/page", &[]).status, 200);
    assert!(client.is_closed());
}

#[test]
fn a_client_that_reads_nothing_is_closed() {
    let bed =
        TestBed::with_config(|config| config.limits.body_idle_timeout = Duration::from_millis(300));
    bed.origin.on(
        "/big",
        Answer::pattern(256 << 20).header("cache-control", "no-store"),
    );
    let mut client = bed.connect();
    client.send_head("GET", "/big", &[]);
    bed.wait_until("the connection closes", |status| {
        status["connections"]["clients"] == 0 && status["requests"]["uri-miss"] == 1
    });
    assert_eq!(
        bed.metric("edgeward_client_connections_closed_total{cause=\"body-timeout\"}"),
        1.0
    );
    // The kernel's socket buffers take up to 36 MiB on each side of the edge.
    let written = bed.origin.bytes_written();
    assert!(
        written < 128 << 20,
        "{written} bytes were taken from the origin"
    );
}

/// A client that reads a large body slowly but steadily must not be closed by the idle timeouts.
///
/// Method: read a body that is larger than the kernel's buffers, in 64 pieces over 3 s. Each timeout is 1 s.
#[test]
fn a_slow_client_that_continues_to_read_is_not_closed() {
    const LENGTH: usize = 64 << 20;
    let limit = Duration::from_secs(1);
    let bed = TestBed::with_config(|config| {
        config.hot.capacity = ByteSize::gib(1);
        config.limits.idle_timeout = limit;
        config.limits.body_idle_timeout = limit;
    });
    bed.origin.on(
        "/big",
        Answer::pattern(LENGTH as u64).header("cache-control", "max-age=60"),
    );
    assert_eq!(bed.get("/big").body.len(), LENGTH);
    let mut client = bed.connect();
    client.send_head("GET", "/big", &[]);
    assert!(client.head().is_hit());
    let began = std::time::Instant::now();
    for piece in 1..=64 {
        assert_eq!(client.read_up_to(1 << 20).len(), 1 << 20, "piece {piece}");
        while began.elapsed() < limit * 3 * piece / 64 {
            std::thread::yield_now();
        }
    }
    assert!(
        client.is_closed(),
        "the connection is idle after the response"
    );
}

#[test]
fn a_head_beyond_its_limits_is_a_431() {
    let bed = TestBed::start();
    let value = "a".repeat(100 << 10);
    let mut client = bed.connect();
    client.try_send(format!("GET / HTTP/1.1\r\nHost: a\r\nx-long: {value}\r\n\r\n").as_bytes());
    assert_eq!(client.answer("GET").status, 431);
    let mut client = bed.connect();
    let many: String = (0..101).map(|n| format!("x-{n}: y\r\n")).collect();
    client.try_send(format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n").as_bytes());
    assert_eq!(client.answer("GET").status, 431);
    assert_eq!(bed.origin.requests_total(), 0);
}

#[test]
fn a_malformed_request_is_a_400() {
    let bed = TestBed::start();
    for request in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n",
        "\x16\x03\x01 hello\r\n\r\n",
    ] {
        let mut client = bed.connect();
        client.send(request.as_bytes());
        let answer = client
            .try_head()
            .unwrap_or_else(|| panic!("no answer to {request:?}"));
        assert_eq!(answer.status, 400, "{request:?}");
        client.read_up_to(1000);
        assert!(client.is_closed(), "{request:?}");
    }
    assert_eq!(bed.origin.requests_total(), 0);
}

/// An upgrade to h2c is ignored, because such clients also accept HTTP/1.1.
#[test]
fn connect_is_refused_and_an_upgrade_to_h2c_ignored() {
    let bed = TestBed::start();
    let mut client = bed.connect();
    client.send(b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n");
    let refused = client.answer("CONNECT");
    assert_eq!(refused.status, 501);
    bed.origin.on("/page", Answer::ok("x"));
    let h2c = [
        ("connection", "Upgrade, HTTP2-Settings"),
        ("upgrade", "h2c"),
        ("http2-settings", "AA"),
    ];
    assert_eq!(bed.get_with("/page", &h2c).status, 200);
    let forwarded = bed.origin.last("/page").expect("the origin got a request");
    assert_eq!(
        (
            forwarded.header("upgrade"),
            forwarded.header("http2-settings")
        ),
        (None, None)
    );
}

#[test]
fn an_upload_beyond_the_limit_is_a_413_with_and_without_a_length() {
    let bed =
        TestBed::with_config(|config| config.limits.request_body_bytes_max = Some(ByteSize(1000)));
    bed.origin.on("/up", Answer::ok("x"));
    let got = bed
        .connect()
        .request("POST", "/up", &[("content-length", "1001")], b"");
    assert_eq!(got.status, 413);
    // Two chunks of 600 bytes (hexadecimal 258), each below the limit.
    let chunk = format!("258\r\n{0}\r\n258\r\n{0}\r\n0\r\n\r\n", "a".repeat(600));
    let mut client = bed.connect();
    let got = client.request(
        "POST",
        "/up",
        &[("transfer-encoding", "chunked")],
        chunk.as_bytes(),
    );
    assert_eq!(got.status, 413);
    let got = bed
        .connect()
        .request("POST", "/up", &[("content-length", "3")], b"abc");
    assert_eq!(got.status, 200);
    assert_eq!(
        bed.metric("edgeward_requests_refused_total{status=\"413\"}"),
        2.0
    );
}

/// The edge does not accumulate an upload: if the origin does not read, the edge does not read from the client.
///
/// Method: the client writes until its socket is full, while the origin does not read. Then the origin reads
/// all bytes.
#[test]
fn an_upload_waits_for_the_origin_and_then_arrives_completely() {
    // The upload must be larger than the kernel's socket buffers, which take up to 36 MiB on each side.
    const LENGTH: usize = 192 << 20;
    let bed = TestBed::start();
    let gate = Gate::new();
    bed.origin
        .on("/up", Answer::ok("thanks").read_body_after(&gate));
    let mut client = bed.connect();
    client.send_head("PUT", "/up", &[("content-length", &LENGTH.to_string())]);
    let body = vec![7; 1 << 20];
    let sent = client.send_until_blocked(&body, LENGTH);
    assert!(
        sent < 128 << 20,
        "{sent} bytes were taken although the origin read none"
    );
    gate.open();
    client.send_rest(&body, LENGTH - sent);
    assert_eq!(client.answer("PUT").text(), "thanks");
    assert_eq!(
        bed.origin
            .last("/up")
            .expect("the origin got a request")
            .body_len(),
        LENGTH as u64
    );
}

#[test]
fn a_client_that_expects_100_gets_it_and_the_origin_gets_the_body() {
    let bed = TestBed::start();
    bed.origin.on("/up", Answer::ok("thanks"));
    let mut client = bed.connect();
    client.send_head(
        "POST",
        "/up",
        &[("content-length", "5"), ("expect", "100-continue")],
    );
    assert_eq!(client.head().status, 100);
    client.send(b"hello");
    assert_eq!(client.answer("POST").text(), "thanks");
    assert_eq!(
        bed.origin
            .last("/up")
            .expect("the origin got a request")
            .body(),
        b"hello"
    );
}

#[test]
fn an_upload_that_stops_is_closed_on_both_sides() {
    let bed =
        TestBed::with_config(|config| config.limits.body_idle_timeout = Duration::from_millis(300));
    bed.origin.on("/up", Answer::ok("thanks"));
    let mut client = bed.connect();
    client.send_head("POST", "/up", &[("content-length", "1000")]);
    client.send(b"half");
    assert!(client.is_closed());
    bed.origin
        .wait_until("the origin's connection closes", |origin| {
            origin.open_connections() == 0
        });
}

#[test]
fn a_connection_beyond_the_limit_replaces_an_idle_one() {
    let bed = TestBed::with_config(|config| {
        config.workers = std::num::NonZeroUsize::MIN;
        config.limits.connections_max =
            std::num::NonZeroUsize::new(3).expect("the number is not zero");
    });
    bed.origin.on("/page", Answer::ok("x"));
    // Two connections have sent no request, and ten are idle after a response. Nine of the twelve exceed the limit.
    let mut clients: Vec<Client> = (0..2).map(|_| bed.connect()).collect();
    for _ in 0..10 {
        let mut client = bed.connect();
        assert_eq!(client.get("/page", &[]).text(), "x");
        clients.push(client);
    }
    bed.wait_for_metric(
        "edgeward_client_connections_closed_total{cause=\"crowded\"}",
        9.0,
    );
    assert_eq!(
        bed.metric("edgeward_client_connections_closed_total{cause=\"connection-limit\"}"),
        0.0
    );
}

#[test]
fn connections_beyond_the_limit_are_closed_if_no_connection_is_idle() {
    let bed = TestBed::with_config(|config| {
        config.workers = std::num::NonZeroUsize::MIN;
        config.limits.connections_max =
            std::num::NonZeroUsize::new(3).expect("the number is not zero");
    });
    let origin_gate = Gate::new();
    let gate = origin_gate.clone();
    bed.origin
        .otherwise(move |_| Answer::ok("x").wait_before_head(&gate));
    let mut clients: Vec<Client> = (0..3)
        .map(|n| {
            let mut client = bed.connect();
            client.send_head("GET", &format!("/{n}"), &[]);
            client
        })
        .collect();
    bed.wait_until("three requests wait", |status| {
        status["requests"]["uri-miss"] == 3
    });
    assert!(bed.connect().is_closed());
    assert_eq!(
        bed.metric("edgeward_client_connections_closed_total{cause=\"connection-limit\"}"),
        1.0
    );
    origin_gate.open();
    for client in &mut clients {
        assert_eq!(
            client.answer("GET").text(),
            "x",
            "earlier connections stay open"
        );
    }
}

#[test]
fn fills_have_one_memory_budget_and_a_fill_beyond_it_is_not_shared() {
    let bed = TestBed::with_config(|config| {
        config.limits.fill_bytes_max = ByteSize::kib(100);
        // The cache admits no body of this size, so the bodies are charged to the budget of fills.
        config.hot.policy = "threshold:1KiB".parse().expect("the policy is valid");
    });
    let gate = Gate::new();
    bed.origin.on(
        "/first",
        Answer::pattern(80_000)
            .header("cache-control", "max-age=60")
            .wait_at(10, &gate),
    );
    bed.origin.on(
        "/second",
        Answer::pattern(80_000).header("cache-control", "max-age=60"),
    );
    let mut first = bed.connect();
    first.send_head("GET", "/first", &[]);
    gate.wait_reached(1);
    assert_eq!(first.head().status, 200);
    let second = bed.get("/second");
    assert!(second.body == pattern(0..80_000));
    assert!(
        !second.cache_status().contains("stored"),
        "{}",
        second.cache_status()
    );
    assert_eq!(
        bed.metric("edgeward_not_stored_total{reason=\"fill-memory\"}"),
        1.0
    );
    gate.open();
    assert!(first.read_up_to(80_000) == pattern(0..80_000));
    bed.wait_until("the memory is free", |status| status["fills"]["bytes"] == 0);
    assert!(bed.get("/second").body == pattern(0..80_000));
    assert_eq!(
        bed.metric("edgeward_not_stored_total{reason=\"fill-memory\"}"),
        1.0,
        "released memory is available again"
    );
}

#[test]
fn an_object_larger_than_the_cache_passes_through() {
    let bed = TestBed::with_config(|config| config.hot.capacity = ByteSize::mib(1));
    const LENGTH: u64 = 20 << 20;
    bed.origin.on(
        "/large",
        Answer::pattern(LENGTH).header("cache-control", "max-age=60"),
    );
    for _ in 0..2 {
        let got = bed.get("/large");
        assert!(got.complete && got.body == pattern(0..LENGTH));
        assert!(!got.is_hit());
    }
    assert_eq!(
        bed.metric("edgeward_not_stored_total{reason=\"object-size\"}"),
        2.0
    );
}

#[test]
fn a_request_in_a_forwarding_loop_is_refused() {
    let origin = ScriptedOrigin::start();
    // The origin of the edge is the edge itself. A first edge is started and stopped to find a free port.
    let probe = edgeward_proxy::Edge::start(config_for(origin.addr())).expect("the edge starts");
    let addr = probe.addrs()[0];
    probe.shutdown(TIMEOUT);
    let mut config = config_for(addr);
    config.listeners[0].addr = addr.into();
    let edge = edgeward_proxy::Edge::start(config).expect("the port is free again");
    let got = Client::connect(edge.addrs()[0]).get("/page", &[]);
    assert_eq!(got.status, 508);
}
