//! Tests of local listeners, of the origin of a gateway, and of the admin server.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use edgeward_link::{
    Admin, Client, EndpointStatus, Gateway, ListenerTarget, LocalListener, Target,
};

use crate::bodies::Random;
use crate::test_bed::{Echo, TestBed, tcp, within};

/// The argument of `TestBed::new` for an encrypted link.
const ENCRYPTED: bool = true;

fn loopback() -> std::net::SocketAddr {
    "127.0.0.1:0".parse().expect("the address is valid")
}

/// Connects to a listener and sends these bytes.
async fn connect_and_send(listener: std::net::SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut tcp = TcpStream::connect(listener)
        .await
        .expect("the port is open");
    tcp.write_all(bytes).await.expect("the bytes are sent");
    tcp
}

/// Sends a body over a connection to an echo server, and returns the echo.
async fn echo_over(mut tcp: TcpStream, body: &[u8]) -> Vec<u8> {
    let (mut read, mut write) = tcp.split();
    let mut echoed = Vec::new();
    let send = async {
        write
            .write_all(body)
            .await
            .expect("the stream accepts the bytes");
        write.shutdown().await.expect("the stream can be ended");
    };
    let (_, received) = within(async { tokio::join!(send, read.read_to_end(&mut echoed)) }).await;
    received.expect("the bytes are returned");
    echoed
}

/// TCP clients reach a target through a port with a fixed target, with SOCKS5 and with CONNECT. Requests for a target
/// that is not permitted are refused in the protocol of the request.
#[tokio::test]
async fn tcp_clients_reach_a_target_by_every_listener() {
    let target = Echo::start().await;
    let forbidden_target = Echo::start().await;
    let mut test_bed = TestBed::new(ENCRYPTED);
    let gateway = test_bed.gateway(target.addr).await;
    let client = test_bed.client(gateway.local_addr());
    within(client.up()).await;
    let body = Random(3).text(300_000);

    // The last argument of `bind` is the maximum number of connections.
    let target_of_listener = ListenerTarget::Fixed(tcp(target.addr));
    let forward = LocalListener::bind(client.clone(), loopback(), target_of_listener, 10).await;
    let forward = forward.expect("the listener can be bound");
    let tcp = TcpStream::connect(forward.local_addr())
        .await
        .expect("the port is open");
    assert_eq!(echo_over(tcp, &body).await, body);

    let proxy = LocalListener::bind(client.clone(), loopback(), ListenerTarget::Proxy, 10).await;
    let proxy = proxy.expect("the listener can be bound");
    let socks = |port: u16| [&[5, 1, 0, 1, 127, 0, 0, 1][..], &port.to_be_bytes()].concat();
    // Reply codes of SOCKS5: 0 is success, 2 is a connection that the rules do not allow (RFC 1928).
    for (to, code) in [(target.addr, 0), (forbidden_target.addr, 2)] {
        let mut tcp = connect_and_send(proxy.local_addr(), &[5, 1, 0]).await;
        let mut method = [0; 2];
        within(tcp.read_exact(&mut method))
            .await
            .expect("the response is complete");
        assert_eq!(method, [5, 0]);
        tcp.write_all(&socks(to.port()))
            .await
            .expect("the bytes are sent");
        let mut reply = [0; 10];
        within(tcp.read_exact(&mut reply))
            .await
            .expect("the response is complete");
        assert_eq!(reply[..2], [5, code]);
        if code == 0 {
            assert_eq!(echo_over(tcp, &body).await, body);
        }
    }
    for (to, status) in [(target.addr, "200"), (forbidden_target.addr, "403")] {
        let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
        let mut tcp = connect_and_send(proxy.local_addr(), request.as_bytes()).await;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(
                within(tcp.read_u8())
                    .await
                    .expect("the response has a head"),
            );
        }
        assert_eq!(&head[9..12], status.as_bytes());
        if status == "200" {
            assert_eq!(echo_over(tcp, &body).await, body);
        }
    }
    assert_eq!(gateway.status().counters.not_allowed, 2);
}

/// Starts an origin that checks its requests and counts its connections. The path of a request is the index of
/// a body. Each body has a content type.
async fn origin(
    bodies: Arc<Vec<(&'static str, Bytes)>>,
) -> (std::net::SocketAddr, JoinSet<()>, Arc<AtomicU64>) {
    let listener = TcpListener::bind(loopback())
        .await
        .expect("the listener can be bound");
    let addr = listener.local_addr().expect("the address is valid");
    let connections = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&connections);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut all = JoinSet::new();
        loop {
            let (tcp, _) = listener.accept().await.expect("the listener accepts");
            counted.fetch_add(1, Ordering::Relaxed);
            let bodies = Arc::clone(&bodies);
            all.spawn(async move {
                let service = service_fn(move |request: Request<Incoming>| {
                    let bodies = Arc::clone(&bodies);
                    async move {
                        assert_eq!(request.headers()["accept-encoding"], "identity");
                        assert!(!request.headers().contains_key("te"));
                        let nth: usize = request.uri().path()[1..]
                            .parse()
                            .expect("the value is a number");
                        let (kind, body) = bodies[nth].clone();
                        let response = Response::builder().header("content-type", kind);
                        let response = response.header("x-host", &request.headers()["host"]);
                        Ok::<_, Infallible>(
                            response
                                .body(Full::new(body))
                                .expect("the response is valid"),
                        )
                    }
                });
                let http = hyper::server::conn::http1::Builder::new();
                _ = http.serve_connection(TokioIo::new(tcp), service).await;
            });
        }
    });
    (addr, tasks, connections)
}

/// Sends a GET request over the link, and returns head and body of the response.
async fn get(client: &Client, path: &str) -> (http::response::Parts, Bytes) {
    let stream = client.open(Target::Origin).expect("the link is up");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .expect("the handshake succeeds");
    let exchange = async {
        let request = Request::get(path)
            .header("host", "site.example")
            .header("accept-encoding", "gzip, br")
            .header("te", "trailers")
            .body(Empty::<Bytes>::new())
            .expect("the request is valid");
        let response = sender
            .send_request(request)
            .await
            .expect("the response is valid");
        let (head, body) = response.into_parts();
        (
            head,
            body.collect()
                .await
                .expect("the body is complete")
                .to_bytes(),
        )
    };
    let (_, answer) = within(async { tokio::join!(connection, exchange) }).await;
    answer
}

/// The gateway requests uncompressed bodies and reuses its connections to the origin; media bypass deduplication.
#[tokio::test]
async fn the_gateway_requests_uncompressed_bodies_of_its_origin() {
    let text = Bytes::from(Random(8).text(400_000));
    let noise = Bytes::from(Random(9).noise(400_000));
    let bodies = Arc::new(vec![
        ("text/plain", text.clone()),
        ("video/mp4", noise.clone()),
    ]);
    let (addr, _tasks, connections) = origin(bodies).await;
    let mut test_bed = TestBed::new(ENCRYPTED);
    let mut config = test_bed.gateway_config(addr);
    config.origin = Some(
        addr.to_string()
            .parse()
            .expect("the text is a host and a port"),
    );
    let gateway = Gateway::bind(config)
        .await
        .expect("the listener can be bound");
    let client = test_bed.client(gateway.local_addr());
    within(client.up()).await;
    let loaded_bytes = |client: &Client| client.status().received.from_store;
    for round in 0..2 {
        let (head, body) = get(&client, "/0").await;
        assert_eq!((head.status.as_u16(), &body), (200, &text));
        assert_eq!(head.headers["x-host"], "site.example");
        assert_eq!(
            head.headers["connection"], "close",
            "one exchange on each stream"
        );
        // The chunks of the second response come from the store of the client.
        assert_eq!(loaded_bytes(&client) > 350_000, round == 1);
    }
    for _ in 0..2 {
        let before = loaded_bytes(&client);
        let (_, body) = get(&client, "/1").await;
        assert_eq!(body, noise);
        assert_eq!(
            loaded_bytes(&client),
            before,
            "no chunk of the body is looked up"
        );
    }
    assert_eq!(gateway.status().peers[0].bypassed, 2);
    assert!(
        connections.load(Ordering::Relaxed) < 4,
        "connections are used again"
    );
}

/// If the origin does not answer, the client gets an HTTP error.
#[tokio::test]
async fn an_unreachable_origin_is_a_bad_gateway() {
    let listener = TcpListener::bind(loopback())
        .await
        .expect("the listener can be bound");
    let addr = listener.local_addr().expect("the address is valid");
    drop(listener);
    let mut test_bed = TestBed::new(ENCRYPTED);
    let mut config = test_bed.gateway_config(addr);
    config.origin = Some(
        addr.to_string()
            .parse()
            .expect("the text is a host and a port"),
    );
    let gateway = Gateway::bind(config)
        .await
        .expect("the listener can be bound");
    let client = test_bed.client(gateway.local_addr());
    within(client.up()).await;
    let (head, _) = get(&client, "/0").await;
    assert_eq!(head.status.as_u16(), 502);
}

/// `/status` and `/metrics` show the bytes of a body that was echoed. `/healthz` answers 200, and other paths 404.
#[tokio::test]
async fn status_and_metrics_are_served() {
    let target = Echo::start().await;
    let mut test_bed = TestBed::new(!ENCRYPTED);
    let gateway = Arc::new(test_bed.gateway(target.addr).await);
    let client = test_bed.client(gateway.local_addr());
    let stream = client.open(tcp(target.addr)).expect("the link is up");
    let body = Random(4).noise(100_000);
    assert_eq!(
        within(crate::test_bed::echo(stream, &body))
            .await
            .expect("the body is echoed"),
        body
    );
    let reported_gateway = Arc::clone(&gateway);
    let report = Arc::new(move || EndpointStatus::from(&*reported_gateway));
    let admin = Admin::bind(loopback(), report)
        .await
        .expect("the listener can be bound");
    let fetch = async |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let mut tcp = connect_and_send(admin.local_addr(), request.as_bytes()).await;
        let mut text = String::new();
        within(tcp.read_to_string(&mut text))
            .await
            .expect("the reply is text");
        let (head, body) = text
            .split_once("\r\n\r\n")
            .expect("the response has a head");
        (head[9..12].to_owned(), body.to_owned())
    };
    let (_, status) = fetch("/status").await;
    let status: serde_json::Value = serde_json::from_str(&status).expect("the text is JSON");
    assert_eq!(status["encrypted"], false);
    assert_eq!(status["peers"][0]["received"]["bytes"], 100_000);
    assert_eq!(status["peers"][0]["sent"]["bytes"], 100_000);
    // The key `door` has the counters of the gateway. Its `conversations` are streams.
    assert_eq!(status["door"]["conversations"], 1);
    let (_, metrics) = fetch("/metrics").await;
    let name = status["peers"][0]["peer"]
        .as_str()
        .expect("the name is a string");
    let line = format!(
        "edgeward_link_body_bytes_total{{peer=\"{name}\",direction=\"received\"}} 100000\n"
    );
    assert!(metrics.contains(&line), "{metrics}");
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("the line has a value");
        let is_common = name.starts_with("process_") || name.starts_with("edgeward_build_info");
        assert!(
            is_common || name.starts_with("edgeward_link_") && value.parse::<u64>().is_ok(),
            "{line}"
        );
    }
    assert_eq!(fetch("/healthz").await.0, "200");
    assert_eq!(fetch("/other").await.0, "404");
}
