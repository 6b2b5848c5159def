//! Requirements of RFC 9110, 9112 and 9113 for messages that an intermediary forwards.

use crate::codecs::{H2Request, for_hyper, send_h1, send_h2};
use crate::support::{Client, TestBed};
use edgeward_testkit::{Answer, Gate, Step};

/// RFC 9113 §8.2.3: HTTP/2 may split cookies into several lines, but HTTP/1.1 must not.
#[test]
fn cookie_crumbs_are_one_line_for_an_http1_origin() {
    let bed = TestBed::start();
    bed.origin.otherwise(|_| Answer::ok("x"));
    let request = H2Request {
        path: "/a",
        headers: &[("cookie", "a=1"), ("cookie", "b=2"), ("cookie", "c=3")],
        ..H2Request::default()
    };
    send_h2(bed.addr(), &request).expect("a response arrives");
    let forwarded = bed.origin.last("/a").expect("the origin got a request");
    let cookies: Vec<&str> = forwarded.headers_named("cookie").collect();
    assert_eq!(cookies, ["a=1; b=2; c=3"]);
}

/// RFC 9113 §8.3.1: a request whose `Host` differs from `:authority` is malformed.
#[test]
fn an_authority_that_differs_from_host_is_refused() {
    let bed = TestBed::start();
    bed.origin.otherwise(|_| Answer::ok("x"));
    for (host, expected) in [
        ("other.example", 400),
        ("shop.example:81", 400),
        ("shop.example", 200),
        ("SHOP.example.:80", 200),
    ] {
        let request = H2Request {
            headers: &[("host", host)],
            ..H2Request::default()
        };
        let status = send_h2(bed.addr(), &request).map_or(400, |answer| answer.status);
        assert_eq!(status, expected, "{host}");
    }
}

/// Origins of CGI and WSGI cannot read a body of unknown length. Trailers need the chunked coding.
#[test]
fn a_chunked_upload_that_is_complete_in_the_buffer_has_a_length_at_the_origin() {
    let bed = TestBed::start();
    bed.origin.otherwise(|_| Answer::ok("x"));
    for (path, body, length) in [
        ("/five", "5\r\nhello\r\n0\r\n\r\n", Some("5")),
        ("/empty", "0\r\n\r\n", Some("0")),
        ("/trailers", "5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n", None),
    ] {
        let request =
            format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        assert_eq!(send_h1(bed.addr(), &request).status, 200, "{path}");
        let forwarded = bed.origin.last(path).expect("the origin got a request");
        assert_eq!(forwarded.header("content-length"), length, "{path}");
        let coding = forwarded.header("transfer-encoding");
        assert_eq!(coding.is_some(), length.is_none(), "{path}");
    }
}

/// RFC 9110 §7.6.2: if `Max-Forwards` is zero, the edge answers the request and does not forward it.
#[test]
fn max_forwards_counts_down_for_options_and_ends_at_zero() {
    let bed = TestBed::start();
    bed.origin.otherwise(|_| Answer::ok("from the origin"));
    let send = |count: &str| {
        let head =
            format!("OPTIONS /a HTTP/1.1\r\nHost: shop.example\r\nMax-Forwards: {count}\r\n\r\n");
        send_h1(bed.addr(), &head)
    };
    let answer = send("0");
    assert_eq!((answer.status, answer.text()), (200, ""));
    assert!(answer.header("allow").is_some(), "{answer:?}");
    assert_eq!(bed.origin.requests_total(), 0);
    assert_eq!(send("3").text(), "from the origin");
    let forwarded = bed.origin.last("/a").expect("the origin got a request");
    assert_eq!(forwarded.header("max-forwards"), Some("2"));
    // The field has no meaning for other methods.
    bed.get_with("/b", &[("max-forwards", "0")]);
    let forwarded = bed.origin.last("/b").expect("the origin got a request");
    assert_eq!(forwarded.header("max-forwards"), Some("0"));
}

#[test]
fn trace_is_refused_unless_allowed() {
    let bed = TestBed::start();
    bed.origin.otherwise(|_| Answer::ok("x"));
    let answer = send_h1(
        bed.addr(),
        "TRACE /a HTTP/1.1\r\nHost: shop.example\r\n\r\n",
    );
    assert_eq!(answer.status, 405);
    let allowed = answer
        .header("allow")
        .expect("a 405 has Allow (RFC 9110 §15.5.6)");
    assert!(!allowed.contains("TRACE"), "{allowed}");
    assert_eq!(bed.origin.requests_total(), 0);
}

/// RFC 9110 §10.1.4: the sender of `TE` must list it in `Connection`.
#[test]
fn te_is_sent_with_its_connection_option() {
    let bed = TestBed::start();
    bed.origin.otherwise(|_| Answer::ok("x"));
    bed.get_with("/a", &[("te", "trailers"), ("connection", "te")]);
    let forwarded = bed.origin.last("/a").expect("the origin got a request");
    assert_eq!(forwarded.header("te"), Some("trailers"));
    let options = forwarded.header("connection").unwrap_or_default();
    assert!(options.eq_ignore_ascii_case("te"), "{}", forwarded.head());
}

/// RFC 9112 §6.1: the only transfer coding that the edge implements is `chunked`.
#[test]
fn a_transfer_coding_that_is_not_understood_is_501() {
    let bed = TestBed::start();
    bed.origin.otherwise(|_| Answer::ok("x"));
    for coding in ["gzip, chunked", "gzip,chunked", "x, chunked"] {
        let request = format!(
            "POST /a HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: {coding}\r\n\r\n0\r\n\r\n"
        );
        assert_eq!(send_h1(bed.addr(), &request).status, 501, "{coding}");
    }
    assert_eq!(bed.origin.requests_total(), 0);
}

/// RFC 9112 §3. Method: send a target at the default limit of 32 KiB, a target one byte longer, and targets longer
/// than the limit of the whole head.
#[test]
fn a_target_that_is_too_long_is_414() {
    let bed = TestBed::start();
    bed.origin.otherwise(|_| Answer::ok("x"));
    for (length, expected) in [(32_768, 200), (32_769, 414), (60_000, 414), (100_000, 414)] {
        let target = format!("/{}", "a".repeat(length - 1));
        let request = format!("GET {target} HTTP/1.1\r\nHost: shop.example\r\n\r\n");
        let answer = send_h1(bed.addr(), &request);
        assert_eq!(answer.status, expected, "{length}");
        let request = for_hyper(&request);
        assert_eq!(send_h1(bed.addr(), &request).status, expected, "{length}");
    }
    let path = format!("/{}", "a".repeat(32_768));
    let request = H2Request {
        path: &path,
        ..H2Request::default()
    };
    assert_eq!(
        send_h2(bed.addr(), &request)
            .expect("a response arrives")
            .status,
        414
    );
}

/// RFC 9112 §3.2: an HTTP/1.0 request may have no `Host`, an HTTP/1.1 request must have it. Without a
/// setting, the default authority is the origin's address.
#[test]
fn an_http10_request_without_host_is_served_by_the_default_authority() {
    let bed = TestBed::start();
    let origin = bed.origin.addr().to_string();
    bed.origin.otherwise(|_| Answer::ok("x"));
    let answer = send_h1(bed.addr(), "GET /a HTTP/1.0\r\n\r\n");
    assert_eq!((answer.status, answer.text()), (200, "x"));
    let forwarded = bed.origin.last("/a").expect("the origin got a request");
    assert_eq!(forwarded.header("host"), Some(origin.as_str()));
    assert_eq!(send_h1(bed.addr(), "GET /a HTTP/1.1\r\n\r\n").status, 400);
}

#[test]
fn trace_that_is_allowed_is_forwarded_and_counted_down() {
    let bed = TestBed::with_config(|config| config.forwarding.trace = true);
    bed.origin.otherwise(|_| Answer::ok("from the origin"));
    let send = |count: u32| {
        let head = format!(
            "TRACE /a HTTP/1.1\r\nHost: shop.example\r\nCookie: a=1\r\nMax-Forwards: {count}\r\n\r\n"
        );
        send_h1(bed.addr(), &head)
    };
    assert_eq!(send(1).text(), "from the origin");
    let forwarded = bed.origin.last("/a").expect("the origin got a request");
    assert_eq!(forwarded.header("max-forwards"), Some("0"));
    let echo = send(0);
    assert_eq!(echo.header("content-type"), Some("message/http"));
    assert!(
        echo.text().starts_with("TRACE /a HTTP/1.1\r\n"),
        "{}",
        echo.text()
    );
    assert!(!echo.text().contains("a=1"), "{}", echo.text());
    assert_eq!(bed.origin.requests_total(), 1);
}

#[test]
fn the_target_limit_and_the_default_authority_are_configurable() {
    let bed = TestBed::with_config(|config| {
        config.limits.target_bytes_max = edgeward_types::ByteSize(300);
        config.forwarding.default_authority = Some("Shop.example:80".to_owned());
    });
    bed.origin.otherwise(|_| Answer::ok("x"));
    for (length, expected) in [(300, 200), (301, 414)] {
        let target = format!("/{}", "a".repeat(length - 1));
        assert_eq!(bed.get(&target).status, expected, "{length}");
    }
    bed.wait_for_metric("edgeward_requests_refused_total{status=\"414\"}", 1.0);
    send_h1(bed.addr(), "GET /old HTTP/1.0\r\n\r\n");
    let forwarded = bed.origin.last("/old").expect("the origin got a request");
    assert_eq!(forwarded.header("host"), Some("shop.example"));
}

/// RFC 9112 §9.3: HTTP/1.0 has no chunks, so the close of the connection marks the end of a body of unknown
/// length.
#[test]
fn an_http10_client_is_not_promised_keep_alive_for_a_body_of_unknown_length() {
    let bed = TestBed::start();
    bed.origin.on("/known", Answer::ok("hello"));
    bed.origin.on("/unknown", Answer::ok("hello").chunked(2));
    let request = |path: &str| {
        format!("GET {path} HTTP/1.0\r\nHost: shop.example\r\nConnection: keep-alive\r\n\r\n")
    };
    let mut wire = bed.connect();
    wire.send(request("/known"));
    let head = wire.read_until("\r\n\r\n").to_ascii_lowercase();
    assert!(head.contains("connection: keep-alive"), "{head}");
    wire.read_until("hello");
    wire.send(request("/unknown"));
    let head = wire.read_until("\r\n\r\n").to_ascii_lowercase();
    assert!(!head.contains("keep-alive"), "{head}");
    assert_eq!(wire.read_to_end(), "hello");
}

/// The edge sends the line end of a chunk together with the chunk, so that a client that waits for the line end does
/// not have to wait for the next chunk.
#[test]
fn the_end_of_a_chunk_is_sent_with_the_chunk() {
    let bed = TestBed::start();
    let gate = Gate::new();
    let answer = Answer::ok("helloworld")
        .header("cache-control", "no-store")
        .chunked(5)
        .wait_at(5, &gate);
    bed.origin.on("/a", answer);
    let mut wire = bed.connect();
    wire.send("GET /a HTTP/1.1\r\nHost: shop.example\r\n\r\n");
    wire.read_until("\r\n\r\n");
    assert_eq!(wire.read_until("hello\r\n"), "5\r\nhello\r\n");
    gate.open();
    assert_eq!(wire.read_until("0\r\n\r\n"), "5\r\nworld\r\n0\r\n\r\n");
}

/// RFC 9112 §9.6: a client that has shut down its writing side may still wait for its response.
#[test]
fn a_client_that_half_closes_gets_its_response() {
    let bed = TestBed::start();
    let gate = Gate::new();
    let answer = Answer::ok("late").wait_before_head(&gate);
    bed.origin.otherwise(move |_| answer.clone());
    let get = "GET /a HTTP/1.1\r\nHost: shop.example\r\n\r\n";
    let post = "POST /a HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 5\r\n\r\nhello";
    let mut wires: Vec<Client> = [
        get.to_owned(),
        for_hyper(&get.replace("/a", "/c")),
        post.to_owned(),
    ]
    .iter()
    .map(|request| {
        let mut wire = bed.connect();
        wire.send(request);
        wire.shutdown_write();
        wire
    })
    .collect();
    bed.origin
        .wait_until("the origin gets all three requests", |origin| {
            origin.requests_total() == 3
        });
    gate.open();
    for wire in &mut wires {
        let all = wire.read_to_end();
        assert!(
            all.starts_with("HTTP/1.1 200 ") && all.ends_with("late"),
            "{all:?}"
        );
    }
}

/// Returns an answer with the interim responses 102 and 103. The final response follows when the gate is open.
fn early_hints(gate: &Gate) -> Answer {
    Answer::script(vec![
        Step::Send(
            "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"
                .into(),
        ),
        Step::Wait(gate.clone()),
        Step::Send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".into()),
    ])
}

/// An origin may send 16 interim responses before the final one, however slowly they arrive. If it sends another, the
/// edge answers 502.
///
/// Method: the origin sends each interim response after the client has received the one before.
#[test]
fn a_response_with_more_than_16_interim_responses_is_a_502() {
    for (interims, status) in [(16, "200"), (17, "502")] {
        let bed = TestBed::start();
        let gates: Vec<Gate> = (0..interims).map(|_| Gate::new()).collect();
        let interim = |gate: &Gate| {
            [
                Step::Send("HTTP/1.1 102 Processing\r\n\r\n".into()),
                Step::Wait(gate.clone()),
            ]
        };
        let mut steps: Vec<Step> = gates.iter().flat_map(interim).collect();
        steps.push(Step::Send(
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".into(),
        ));
        bed.origin.on("/slow", Answer::script(steps));
        let mut wire = bed.connect();
        wire.send("GET /slow HTTP/1.1\r\nHost: shop.example\r\n\r\n");
        for gate in gates.iter().take(16) {
            let head = wire.read_until("\r\n\r\n");
            assert!(head.starts_with("HTTP/1.1 102 "), "{head}");
            gate.open();
        }
        let head = wire.read_until("\r\n\r\n");
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")),
            "{interims}: {head}"
        );
        gates.iter().for_each(Gate::open);
    }
}

/// RFC 9110 §15.2. Method: send requests that the fast path serves, that hyper serves, that are passed, and
/// that have a body.
#[test]
fn interim_responses_reach_an_http1_client_before_the_final_one() {
    let get = "GET /a HTTP/1.1\r\nHost: shop.example\r\n\r\n";
    let requests = [
        get.to_owned(),
        "HEAD /b HTTP/1.1\r\nHost: shop.example\r\n\r\n".to_owned(),
        for_hyper(get),
        get.replace("Host", "Range: bytes=0-0\r\nHost"),
        get.replace("GET", "DELETE"),
        "POST /b HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 5\r\n\r\nhello".to_owned(),
        "POST /b HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
            .to_owned(),
    ];
    // First the origin sends the interim responses early, then together with the final response.
    for early in [true, false] {
        let bed = TestBed::start();
        // All requests use one connection. If one request left unread bytes, the next response would be wrong.
        let mut wire = bed.connect();
        for request in &requests {
            let gate = Gate::new();
            let answer = early_hints(&gate);
            bed.origin.otherwise(move |_| answer.clone());
            if !early {
                gate.open();
            }
            wire.send(request);
            let interim = wire.read_until("\r\n\r\n");
            assert!(interim.starts_with("HTTP/1.1 102 "), "{request}: {interim}");
            let interim = wire.read_until("\r\n\r\n").to_ascii_lowercase();
            assert!(interim.starts_with("http/1.1 103 "), "{request}: {interim}");
            assert!(interim.contains("link: </a.css>\r\n"), "{interim}");
            gate.open();
            let head = wire.read_until("\r\n\r\n");
            assert!(head.starts_with("HTTP/1.1 200 "), "{request}: {head}");
            assert!(!head.to_ascii_lowercase().contains("link"), "{head}");
            if !request.starts_with("HEAD") {
                wire.read_until("ok");
            }
        }
    }
}

/// RFC 8297. Method: the origin sends two 103 and a response that is stored. The second client finds it in the cache.
#[test]
fn hits_have_the_links_of_early_hints() {
    let bed = TestBed::with_config(|config| {
        config.caching.early_links_bytes_max = edgeward_types::ByteSize(40);
    });
    bed.origin.otherwise(|_| {
        Answer::script(vec![Step::Send(
            "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nX-A: b\r\n\r\n\
             HTTP/1.1 103 Early Hints\r\nLink: </b.css>\r\nLink: </too-long-for-the-limit.css>\r\n\r\n\
             HTTP/1.1 200 OK\r\nContent-Length: 2\r\nCache-Control: max-age=60\r\nLink: </a.css>\r\n\r\nok"
                .into(),
        )])
    });
    let mut wire = bed.connect();
    let get = "GET /a HTTP/1.1\r\nHost: shop.example\r\n\r\n";
    wire.send(get);
    let all = wire.read_until("ok").to_ascii_lowercase();
    assert_eq!(all.matches("http/1.1 103 ").count(), 2, "{all}");
    wire.send(get);
    let hit = wire.read_until("ok").to_ascii_lowercase();
    assert!(
        hit.starts_with("http/1.1 200 ") && hit.contains("; hit; "),
        "{hit}"
    );
    assert_eq!(hit.matches("link: </a.css>\r\n").count(), 1, "{hit}");
    assert_eq!(hit.matches("link: </b.css>\r\n").count(), 1, "{hit}");
    assert_eq!(hit.matches("link: ").count(), 2, "{hit}");
    assert!(!hit.contains("\r\nx-a: "), "{hit}");
    let cut = bed.metric("edgeward_early_links_total{result=\"cut\"}");
    assert_eq!(cut, 1.0);
}

/// RFC 9110 §15.2: HTTP/1.0 has no interim responses. An HTTP/2 client gets only the final response, because
/// hyper cannot send interim responses.
#[test]
fn http10_and_http2_clients_get_only_the_final_response() {
    let bed = TestBed::start();
    let gate = Gate::new();
    gate.open();
    let answer = early_hints(&gate);
    bed.origin.otherwise(move |_| answer.clone());
    let fields = "Host: shop.example\r\n";
    for request in [
        format!("GET /c HTTP/1.0\r\n{fields}\r\n"),
        format!("POST /c HTTP/1.0\r\n{fields}Content-Length: 5\r\n\r\nhello"),
    ] {
        let mut wire = bed.connect();
        wire.send(&request);
        let all = wire.read_to_end();
        assert!(all.starts_with("HTTP/1.") && all.ends_with("ok"), "{all}");
        assert!(!all.contains("Early Hints"), "{all}");
    }
    // After a head with more than 64 fields, the fast path passes all bytes of the connection to hyper. The edge then
    // does not know where hyper's response begins, so it writes no interim response.
    let mut wire = bed.connect();
    for n in 0..3 {
        let many: String = (0..70).map(|n| format!("X-{n}: y\r\n")).collect();
        wire.send(format!("GET /c?{n} HTTP/1.1\r\n{fields}{many}\r\n"));
        let all = wire.read_until("ok");
        assert!(all.starts_with("HTTP/1.1 200 "), "{all}");
        assert!(!all.contains("Early Hints"), "{all}");
    }
    for method in ["GET", "POST"] {
        let request = H2Request {
            method,
            ..H2Request::default()
        };
        let answer = send_h2(bed.addr(), &request).expect("a response arrives");
        assert_eq!((answer.status, answer.text()), (200, "ok"), "{method}");
    }
}

/// RFC 9110 §15.2: a request with `Expect` gets the interim responses of the origin in their order, and `100
/// Continue` at most once.
#[test]
fn early_hints_and_100_continue_reach_the_client_in_order() {
    let bed = TestBed::start();
    let answer = Answer::script(vec![
        Step::Send("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n".into()),
        Step::Send("HTTP/1.1 102 Processing\r\n\r\n".into()),
        Step::Send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".into()),
    ])
    .before_reading_body();
    bed.origin.on("/up", answer);
    let mut wire = bed.connect();
    wire.send("PUT /up HTTP/1.1\r\nHost: shop.example\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello");
    let all = wire.read_until("ok");
    let statuses: Vec<&str> = all
        .split("HTTP/1.1 ")
        .filter_map(|head| head.get(..3))
        .collect();
    let (last, interim) = statuses.split_last().expect("a response arrives");
    assert_eq!(
        (*last, interim.iter().filter(|&&s| s == "103").count()),
        ("200", 1)
    );
    assert!(
        interim.iter().filter(|&&s| s == "100").count() <= 1,
        "{all}"
    );
}

/// RFC 9112 §9.6: the response has `close` too, and the edge closes the connection after it.
#[test]
fn a_request_with_close_gets_a_complete_response_and_the_connection_closes() {
    let bed = TestBed::start();
    let cacheable = |length| Answer::pattern(length).header("cache-control", "max-age=60");
    for (path, answer) in [
        ("/small", cacheable(100)),
        ("/large", cacheable(300_000)),
        ("/chunked", cacheable(70_000).chunked(1000)),
        (
            "/pass",
            Answer::pattern(3000).header("cache-control", "no-store"),
        ),
    ] {
        bed.origin.on(path, answer);
        // The first request is a miss. Later requests are hits, except for `/pass`: at first from the heap and then
        // from the arena, to which the memory tier moves large bodies with many hits.
        for _ in 0..12 {
            for method in ["GET", "HEAD"] {
                let mut client = bed.connect();
                let answer = client.request(method, path, &[("connection", "close")], b"");
                assert_eq!(answer.status, 200, "{method} {path}");
                assert_eq!(answer.header("connection"), Some("close"), "{path}");
                assert!(client.is_closed(), "{method} {path}");
                let forwarded = bed.origin.last(path).expect("the origin got a request");
                assert!(forwarded.header("connection") != Some("close"), "{path}");
            }
            let full = bed.get(path);
            let closed = bed.connect().get(path, &[("connection", "close")]);
            assert!(closed.body == full.body, "{path}");
        }
    }
}

/// If the edge closed the socket while it has unread bytes, the kernel would send a reset, and the client would
/// lose the bytes that it has not received.
#[test]
fn a_response_with_close_arrives_completely_although_the_client_has_sent_more() {
    let bed = TestBed::start();
    let length = 250_000;
    let answer = Answer::pattern(length).header("cache-control", "max-age=60");
    bed.origin.on("/a", answer);
    let full = bed.get("/a").body;
    let mut client = bed.connect();
    let request = "GET /a HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n";
    let next = "GET /b HTTP/1.1\r\nHost: shop.example\r\n\r\n".repeat(2000);
    client.send((request.to_owned() + &next).as_bytes());
    // The edge has now passed the complete response to its socket, whose buffer holds the bytes that the
    // client's socket cannot accept yet.
    bed.wait_for_metric("edgeward_response_bytes_total", 2.0 * length as f64);
    let answer = client.answer("GET");
    assert!(answer.body == full, "{} bytes", answer.body.len());
    assert!(client.is_closed());
    assert_eq!(
        bed.origin.requests("/b"),
        0,
        "no request is served after `close`"
    );
}
