//! Operation of an edge: start, shutdown, metrics, status, the admin listener and logs.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::time::Duration;

use crate::support::{Client, TIMEOUT, TestBed, config_for, pattern};
use edgeward_proxy::config::{
    AccessLogConfig, HostPolicy, ListenAddress, ListenerConfig, ListenerTls, LogDestination,
    LogFormat, Token,
};
use edgeward_proxy::{Edge, StartError};
use edgeward_testkit::{Answer, Gate, ScriptedOrigin};
use socket2::{Domain, Socket, Type};

#[test]
fn a_draining_edge_finishes_its_requests_and_accepts_no_others() {
    let TestBed { edge, origin } =
        TestBed::with_config(|config| config.workers = NonZeroUsize::MIN);
    let (head, body) = (Gate::new(), Gate::new());
    origin.on("/head", Answer::ok("late").wait_before_head(&head));
    origin.on("/body", Answer::pattern(100_000).wait_at(10, &body));
    let addr = edge.addrs()[0];
    let mut idle = Client::connect(addr);
    origin.on("/idle", Answer::ok("x"));
    assert_eq!(idle.get("/idle", &[]).text(), "x");
    let mut waiting = Client::connect(addr);
    waiting.send_head("GET", "/head", &[]);
    head.wait_reached(1);
    let mut reading = Client::connect(addr);
    reading.send_head("GET", "/body", &[]);
    body.wait_reached(1);
    assert_eq!(reading.head().status, 200);
    let stopping = std::thread::spawn(move || edge.shutdown(TIMEOUT));
    // At the beginning of the drain the edge closes its idle connections, so this close shows that the drain has
    // begun. The sockets are closed at the same time by another thread. If they stayed open until the end of the drain,
    // the two requests below would fail.
    assert!(idle.is_closed());
    while TcpStream::connect(addr).is_ok() {
        std::thread::yield_now();
    }
    head.open();
    let answer = waiting.answer("GET");
    assert_eq!(answer.text(), "late");
    assert!(waiting.is_closed());
    body.open();
    assert!(reading.read_up_to(100_000) == pattern(0..100_000));
    stopping.join().expect("the thread does not panic");
    origin.wait_until("the origin's connections close", |origin| {
        origin.open_connections() == 0
    });
}

/// Method: configure a second origin at a port without a server. No request goes there, so it counts as up.
#[test]
fn status_and_metrics_have_an_entry_for_each_origin() {
    let bed = TestBed::with_config(|config| {
        let mut second = config.origins[0].clone();
        second.name = "second".to_owned();
        second.servers[0] = "http://127.0.0.1:1".parse().expect("a URL");
        config.origins.push(second);
    });
    bed.origin.on("/page", Answer::ok("x"));
    assert_eq!(bed.get("/page").status, 200);
    let status = bed.status();
    assert_eq!(status["origins"][0]["name"], "default");
    assert_eq!(status["origins"][1]["url"], "http://127.0.0.1:1");
    for name in ["default", "second"] {
        let series = format!("edgeward_origin_up{{origin=\"{name}\"}}");
        assert_eq!(bed.metric(&series), 1.0, "{series}");
    }
}

#[test]
fn an_edge_without_an_origin_does_not_start() {
    let mut config = config_for(SocketAddr::from(([127, 0, 0, 1], 1)));
    config.origins.clear();
    let error = Edge::start(config).expect_err("there is no origin");
    assert!(matches!(error, StartError::OriginCount), "{error}");
}

#[test]
fn a_drain_ends_after_its_timeout() {
    let TestBed { edge, origin } = TestBed::start();
    origin.on("/never", Answer::never());
    let mut client = Client::connect(edge.addrs()[0]);
    client.send_head("GET", "/never", &[]);
    origin.wait_until("the origin gets the request", |origin| {
        origin.requests("/never") == 1
    });
    let start_time = std::time::Instant::now();
    edge.shutdown(Duration::from_millis(200));
    assert!(start_time.elapsed() < TIMEOUT / 2);
    assert!(client.is_closed());
}

#[test]
fn a_fill_continues_without_its_client_and_ends_with_the_edge() {
    let TestBed { edge, origin } = TestBed::start();
    let gate = Gate::new();
    origin.on(
        "/page",
        Answer::pattern(50_000)
            .header("cache-control", "max-age=60")
            .wait_at(10, &gate),
    );
    let mut client = Client::connect(edge.addrs()[0]);
    client.send_head("GET", "/page", &[]);
    gate.wait_reached(1);
    client.reset();
    edge.shutdown(Duration::from_millis(200));
    gate.open();
    origin.wait_until("the connection closes", |origin| {
        origin.open_connections() == 0
    });
}

#[test]
fn metrics_declare_each_family_once_and_count_events() {
    let bed = TestBed::with_config(|config| {
        config.hot.policy = "adaptsize".parse().expect("the policy is valid");
    });
    bed.origin.on(
        "/page",
        Answer::ok("hello").header("cache-control", "max-age=60"),
    );
    bed.get("/page");
    bed.get("/page");
    assert_eq!(
        bed.metric("edgeward_requests_total{outcome=\"uri-miss\"}"),
        1.0
    );
    assert_eq!(bed.metric("edgeward_requests_total{outcome=\"hit\"}"), 1.0);
    // Bytes are counted after the socket has accepted them, possibly after the client has read them.
    bed.wait_for_metric("edgeward_response_bytes_total", 10.0);
    assert_eq!(bed.metric("edgeward_origin_bytes_total"), 5.0);
    assert_eq!(bed.metric("edgeward_hot_objects"), 1.0);
    assert!(bed.metric("edgeward_adaptsize_c_bytes") > 0.0);
    assert!(bed.metric("process_resident_memory_bytes") > 1e6);
    let metrics = bed.metrics();
    let mut declared = std::collections::HashSet::new();
    for line in metrics.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let name = rest
                .split(' ')
                .next()
                .expect("the name is valid")
                .to_owned();
            assert!(declared.insert(name), "{line} stands twice");
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().expect("the name is valid");
            let suffixes = ["_bucket", "_sum", "_count"];
            let of_histogram = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
            let is_declared = |name| declared.contains(name);
            assert!(
                is_declared(name) || of_histogram.is_some_and(is_declared),
                "{line} is not declared"
            );
        }
    }
}

/// The status and the metrics of an edge with AdaptSize have the hit ratios that its tuner predicted and measured. The
/// curve is the predicted hit ratio by size parameter.
#[test]
fn a_tuned_edge_shows_its_curve() {
    let bed = TestBed::with_config(|config| {
        config.hot.policy = "adaptsize".parse().expect("the policy is valid");
        // The cache has space for about a third of the requested bytes, so that the tuner has to choose a
        // threshold.
        config.hot.capacity = edgeward_types::ByteSize::kib(16);
        config.hot.window_requests = Some(200);
        config.workers = NonZeroUsize::MIN;
    });
    bed.origin.otherwise(|request| {
        let n: u64 = request.path()[1..].parse().expect("the value is a number");
        Answer::pattern(50 + 30 * n).header("cache-control", "max-age=60")
    });
    let mut client = bed.connect();
    for n in 0..450 {
        client.get(&format!("/{}", n % 50), &[]);
    }
    bed.wait_until("the tuner has made its second step", |status| {
        status["hot"]["tuning"]["windows"].as_u64() >= Some(2)
    });
    let status = bed.status();
    let tuning = &status["hot"]["tuning"];
    assert!(tuning["measured_ohr"].is_number(), "{tuning:#}");
    assert!(tuning["model_error"].is_number(), "{tuning:#}");
    assert!(
        tuning["curve"]
            .as_array()
            .expect("the status has a curve")
            .len()
            > 3,
        "{tuning:#}"
    );
    let metrics = bed.metrics();
    for family in [
        "edgeward_adaptsize_curve_ohr{c_bytes=",
        "edgeward_adaptsize_predicted_ohr ",
        "edgeward_adaptsize_measured_ohr ",
        "edgeward_adaptsize_model_error ",
    ] {
        assert!(metrics.contains(family), "no {family} in\n{metrics}");
    }
}

/// Clients that use all connections of the admin server and read no response must not lock out other clients.
///
/// Method: open more connections than the server allows. Each client sends so many requests that their
/// responses do not fit in the socket buffers, and reads no response.
#[test]
fn connections_of_admin_clients_that_read_no_response_make_room_for_others() {
    let bed = TestBed::start();
    let admin = bed
        .edge
        .admin_addr()
        .expect("the admin listener is configured");
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let greedy: Vec<_> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(admin).expect("the server listens");
            stream
                .set_nonblocking(true)
                .expect("the socket option can be set");
            // Writes until the socket is full. The write may also fail, because the server may already have closed
            // this connection in favour of a newer one.
            _ = stream.write_all(&request.repeat(20_000));
            stream
        })
        .collect();
    let mut client = Client::connect(admin);
    assert_eq!(client.get("/healthz", &[]).status, 200);
    drop(greedy);
}

/// A connection waits for its client until the body of its request is complete, and the longest wait ends first.
///
/// Method: 40 clients with a token send the heads of their requests and one byte of the bodies. Then a new client of
/// the same address is served, and the newest of the 40 clients too.
#[test]
fn admin_requests_with_slow_bodies_make_room_for_newer_ones_of_their_address() {
    let token = "correct-horse-battery";
    let bed = TestBed::with_config(|config| config.purge.token = Token::new(token).ok());
    let admin = bed
        .edge
        .admin_addr()
        .expect("the admin listener is configured");
    let body = b"{\"tags\": [\"a\"]}";
    let length = body.len();
    let head = format!(
        "POST /purge HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}\r\n\r\n"
    );
    let mut slow: Vec<_> = (0..40)
        .map(|_| {
            let mut client = Client::connect(admin);
            client.try_send(head.as_bytes());
            client.try_send(&body[..1]);
            client
        })
        .collect();
    for _ in 0..3 {
        assert_eq!(Client::connect(admin).get("/healthz", &[]).status, 200);
    }
    let newest = slow.last_mut().expect("40 clients");
    newest.send(&body[1..]);
    assert_eq!(newest.answer("POST").status, 200);
}

/// Active clients of the admin server keep their connections, while clients from sixteen other addresses open
/// many connections, send many requests and read no response.
///
/// Method: open three times as many connections as the server allows. Before each new connection, the active
/// clients send a request.
#[test]
fn active_admin_clients_keep_their_connections() {
    let bed = TestBed::start();
    let admin = bed
        .edge
        .admin_addr()
        .expect("the admin listener is configured");
    let mut active: Vec<_> = (0..4).map(|_| Client::connect(admin)).collect();
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut greedy = Vec::new();
    for n in 0..96 {
        for client in &mut active {
            assert_eq!(client.get("/healthz", &[]).status, 200);
        }
        let socket =
            Socket::new(Domain::IPV4, Type::STREAM, None).expect("the socket can be created");
        socket
            .set_recv_buffer_size(4096)
            .expect("the buffer size can be set");
        let source = SocketAddr::from(([127, 0, 1, n % 16 + 1], 0));
        socket
            .bind(&source.into())
            .expect("the loopback address can be bound");
        socket.connect(&admin.into()).expect("the server listens");
        let mut stream = TcpStream::from(socket);
        stream
            .set_nonblocking(true)
            .expect("the socket option can be set");
        // Writes until the socket is full.
        _ = stream.write_all(&request.repeat(200));
        greedy.push(stream);
    }
}

#[test]
fn the_admin_listener_serves_its_pages_and_refuses_other_requests() {
    let bed = TestBed::start();
    let mut client = Client::connect(
        bed.edge
            .admin_addr()
            .expect("the admin listener is configured"),
    );
    assert_eq!(client.get("/healthz", &[]).text(), "ok\n");
    assert_eq!(client.get("/nothing", &[]).status, 404);
    assert_eq!(
        client
            .request("POST", "/status", &[("content-length", "0")], b"")
            .status,
        405
    );
    let status = bed.status();
    assert_eq!(status["hot"]["policy"], "lru");
    assert_eq!(status["pid"], std::process::id(), "the process to monitor");
}

fn log_lines_of(format: LogFormat, requests: impl FnOnce(&TestBed)) -> Vec<String> {
    let dir = tempfile::tempdir().expect("the folder can be created");
    let path = dir.path().join("access.log");
    let bed = TestBed::with_config(|config| {
        config.access_log = Some(AccessLogConfig::new(
            LogDestination::File(path.clone()),
            format,
        ));
    });
    requests(&bed);
    bed.edge.shutdown(TIMEOUT);
    let log = std::fs::read_to_string(&path).expect("the log can be read");
    log.lines().map(str::to_owned).collect()
}

#[test]
fn the_access_log_has_a_json_line_for_each_request() {
    let lines = log_lines_of(LogFormat::Json, |bed| {
        bed.origin.on(
            "/page",
            Answer::ok("hello").header("cache-control", "max-age=60"),
        );
        let mut client = bed.connect();
        client.get("/page?q=1", &[("user-agent", "a \"b\"")]);
        client.get("/page?q=1", &[]);
        client.get("/page?q=1", &[("if-none-match", "*")]);
        client.request("POST", "/gone", &[("content-length", "0")], b"");
    });
    let lines: Vec<serde_json::Value> = lines
        .iter()
        .map(|line| serde_json::from_str(line).expect("one JSON object per line"))
        .collect();
    let logged_fields: Vec<_> = lines
        .iter()
        .map(|line| {
            let text = |key: &str| line[key].as_str().expect("the text is UTF-8").to_owned();
            (
                text("target"),
                line["status"].as_u64().expect("the status is valid"),
                line["bytes"].as_u64(),
                text("cache"),
            )
        })
        .collect();
    let expected = [
        ("/page?q=1", 200, Some(5), "uri-miss"),
        ("/page?q=1", 200, Some(5), "hit"),
        ("/page?q=1", 304, Some(0), "hit"),
        ("/gone", 404, Some(0), "method"),
    ]
    .map(|(target, status, bytes, cache)| (target.to_owned(), status, bytes, cache.to_owned()));
    assert_eq!(logged_fields, expected);
    assert_eq!(lines[0]["user_agent"], "a \"b\"");
    assert_eq!(lines[0]["client"], "127.0.0.1");
    assert_eq!(lines[0]["host"], "test.example");
}

#[test]
fn the_access_log_has_an_ncsa_line_for_each_request() {
    let lines = log_lines_of(LogFormat::Combined, |bed| {
        bed.origin.on("/page", Answer::ok("hello"));
        bed.connect().get(
            "/page",
            &[("referer", "http://r/"), ("user-agent", "curl/8")],
        );
    });
    assert_eq!(lines.len(), 1);
    let line = &lines[0];
    assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
    assert!(
        line.ends_with("\"GET /page HTTP/1.1\" 200 5 \"http://r/\" \"curl/8\""),
        "{line}"
    );
}

#[test]
fn the_origin_gets_forwarded_fields_and_no_hop_by_hop_fields_of_the_client() {
    let bed = TestBed::with_config(|config| config.forwarding.forwarded = true);
    bed.origin.on("/page", Answer::ok("x"));
    bed.get_with(
        "/page",
        &[
            ("x-forwarded-for", "192.0.2.1"),
            ("connection", "keep-alive, x-private"),
            ("x-private", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("proxy-authorization", "Basic x"),
            ("x-end-to-end", "2"),
        ],
    );
    let forwarded = bed.origin.last("/page").expect("the origin got a request");
    assert_eq!(forwarded.header("host"), Some("test.example"));
    assert_eq!(forwarded.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(forwarded.header("x-forwarded-proto"), Some("http"));
    assert_eq!(forwarded.header("x-forwarded-host"), Some("test.example"));
    assert_eq!(
        forwarded.header("forwarded"),
        Some("for=127.0.0.1;host=\"test.example\";proto=http")
    );
    assert!(
        forwarded
            .header("via")
            .expect("the request has Via")
            .starts_with("1.1 edgeward-")
    );
    assert_eq!(forwarded.header("x-end-to-end"), Some("2"));
    assert_eq!(
        forwarded.header("connection"),
        Some("te"),
        "the edge sends its own TE and lists it"
    );
    for gone in ["x-private", "keep-alive", "proxy-authorization"] {
        assert_eq!(forwarded.header(gone), None, "{gone}");
    }
}

#[test]
fn the_host_for_the_origin_is_configurable() {
    let origin = ScriptedOrigin::start();
    origin.on("/page", Answer::ok("x"));
    let addr = origin.addr().to_string();
    for (policy, expected) in [
        (HostPolicy::Forward, "test.example"),
        (HostPolicy::Origin, addr.as_str()),
        (
            HostPolicy::Fixed("inner.example".to_owned()),
            "inner.example",
        ),
    ] {
        let mut config = config_for(origin.addr());
        config.origins[0].host = Some(policy);
        let edge = Edge::start(config).expect("the edge starts");
        Client::connect(edge.addrs()[0]).get("/page", &[]);
        assert_eq!(
            origin
                .last("/page")
                .expect("the origin got a request")
                .header("host"),
            Some(expected)
        );
    }
}

/// Method: start an edge with a listener on all IPv4 addresses and a listener on 127.0.0.1, both on one port.
#[test]
fn listeners_of_one_edge_may_overlap() {
    let origin = ScriptedOrigin::start();
    origin.on("/page", Answer::ok("x"));
    let mut config = config_for(origin.addr());
    config.listeners[0].addr = "0.0.0.0:0".parse().expect("the address is valid");
    let port = {
        let edge = Edge::start(config.clone()).expect("the edge starts");
        edge.addrs()[0].port()
    };
    config.listeners = ["0.0.0.0", "127.0.0.1"]
        .map(|ip| {
            let addr: ListenAddress = format!("{ip}:{port}").parse().expect("an address");
            ListenerConfig::plain(addr)
        })
        .into();
    let edge = Edge::start(config).expect("the edge starts");
    let loopback = format!("127.0.0.1:{port}")
        .parse()
        .expect("the address is valid");
    assert_eq!(Client::connect(loopback).get("/page", &[]).text(), "x");
    drop(edge);
}

/// Protection against DNS rebinding: a web page whose host name resolves to the admin address must not be able
/// to read the admin pages.
#[test]
fn the_admin_server_answers_to_its_own_names_only() {
    let origin = ScriptedOrigin::start();
    let mut config = config_for(origin.addr());
    config.admin.hosts = vec!["edge-1.example".to_owned()];
    let edge = Edge::start(config).expect("the edge starts");
    let admin = edge.admin_addr().expect("the admin listener is configured");
    let port = admin.port();
    for (host, status) in [
        ("127.0.0.1", 200),
        (&*format!("127.0.0.1:{port}"), 200),
        (&*format!("[::1]:{port}"), 200),
        ("LocalHost:9", 200),
        ("edgeward", 200),
        ("Edge-1.example.", 200),
        ("edge-2.example", 421),
        (&*format!("evil.example:{port}"), 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
    ] {
        let mut client = Client::connect(admin);
        client.send(format!("GET /status HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes());
        let answer = client.answer("GET");
        assert_eq!(answer.status, status, "{host:?}: {}", answer.text());
        if status == 421 {
            let text = answer.text();
            assert!(
                text.contains("admin.hosts") && !text.contains("hot"),
                "{text}"
            );
        }
    }
}

#[test]
fn an_edge_that_cannot_start_reports_the_cause_and_the_address_or_file() {
    let origin = ScriptedOrigin::start();
    let start = |change: &dyn Fn(&mut edgeward_proxy::EdgeConfig)| {
        let mut config = config_for(origin.addr());
        change(&mut config);
        Edge::start(config).expect_err("the edge cannot start")
    };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let taken = taken
        .local_addr()
        .map(|addr| (addr, taken))
        .expect("the address is valid");
    let error = start(&|config| config.listeners[0].addr = taken.0.into());
    assert!(matches!(error, StartError::Listen { .. }), "{error:?}");
    assert!(error.to_string().contains(&taken.0.to_string()), "{error}");
    let error = start(&|config| config.listeners.clear());
    assert!(matches!(error, StartError::NoListener), "{error:?}");
    let error = start(&|config| config.name = "my edge".to_owned());
    assert!(matches!(error, StartError::Name { .. }), "{error:?}");
    let error = start(&|config| {
        config.listeners[0].tls = Some(ListenerTls {
            certificates: "/nonexistent/cert.pem".into(),
            key: "/nonexistent/key.pem".into(),
            ocsp: None,
        });
    });
    let source = std::error::Error::source(&error)
        .expect("the error has a cause")
        .to_string();
    assert!(source.contains("/nonexistent/"), "{source}");
    let error = start(&|config| {
        let path = LogDestination::File("/nonexistent/access.log".into());
        config.access_log = Some(AccessLogConfig::new(path, LogFormat::Json));
    });
    assert!(matches!(error, StartError::AccessLog(_)), "{error:?}");
}
