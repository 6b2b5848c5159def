//! Tests of local listeners, of the origin of a gateway, and of the admin server.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use edgeward_link::socks::ProxyUsers;
use edgeward_link::{Admin, Client, Gateway, ListenerTarget, LocalListener, OriginTls, Target};
use edgeward_testkit::{Answer, ScriptedOrigin, TcpServer};

use crate::bodies::Random;
use crate::test_bed::{TestBed, tcp, within};

/// The argument of `TestBed::new` for an encrypted link.
const ENCRYPTED: bool = true;

fn loopback() -> std::net::SocketAddr {
    "127.0.0.1:0".parse().expect("the address is valid")
}

/// Starts a gateway of this origin and connects a client.
async fn connected_to_origin(
    test_bed: &mut TestBed,
    origin: std::net::SocketAddr,
) -> (Gateway, Client) {
    let mut config = test_bed.gateway_config(origin);
    let origin = origin.to_string().parse();
    config.origin = Some(origin.expect("the text is a host and a port"));
    let gateway = Gateway::bind(config)
        .await
        .expect("the listener can be bound");
    let client = test_bed.client(gateway.local_addr());
    within(client.up()).await;
    (gateway, client)
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
    let target = TcpServer::echo();
    let forbidden_target = TcpServer::echo();
    let mut test_bed = TestBed::new(ENCRYPTED);
    let gateway = test_bed.gateway(target.addr()).await;
    let client = test_bed.client(gateway.local_addr());
    within(client.up()).await;
    let body = Random(3).text(300_000);

    // The last argument of `bind` is the maximum number of connections.
    let target_of_listener = ListenerTarget::Fixed(tcp(target.addr()));
    let forward = LocalListener::bind(client.clone(), loopback(), target_of_listener, 10).await;
    let forward = forward.expect("the listener can be bound");
    let tcp = TcpStream::connect(forward.local_addr())
        .await
        .expect("the port is open");
    assert_eq!(echo_over(tcp, &body).await, body);

    let proxy =
        LocalListener::bind(client.clone(), loopback(), ListenerTarget::Proxy(None), 10).await;
    let proxy = proxy.expect("the listener can be bound");
    let socks = |port: u16| [&[5, 1, 0, 1, 127, 0, 0, 1][..], &port.to_be_bytes()].concat();
    // Reply codes of SOCKS5: 0 is success, 2 is a connection that the rules do not allow (RFC 1928).
    for (to, code) in [(target.addr(), 0), (forbidden_target.addr(), 2)] {
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
    for (to, status) in [(target.addr(), "200"), (forbidden_target.addr(), "403")] {
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
    assert_eq!(gateway.status().await.counters.not_allowed, 2);
}

/// A proxy with users carries only the connections of clients that give the password of one of them.
#[tokio::test]
async fn a_proxy_with_users_requires_a_password() {
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(ENCRYPTED);
    let gateway = test_bed.gateway(target.addr()).await;
    let client = test_bed.client(gateway.local_addr());
    within(client.up()).await;
    let users = ProxyUsers::parse("ann:secret\n").expect("the list is valid");
    let users = ListenerTarget::Proxy(Some(Arc::new(users)));
    let proxy = LocalListener::bind(client.clone(), loopback(), users, 10).await;
    let proxy = proxy.expect("the listener can be bound");
    for (password, code) in [("secret", 0), ("guess", 1)] {
        let mut tcp = connect_and_send(proxy.local_addr(), &[5, 1, 2]).await;
        let mut two = [0; 2];
        within(tcp.read_exact(&mut two))
            .await
            .expect("the response is complete");
        assert_eq!(two, [5, 2]);
        let length = password.len() as u8;
        let message = [&[1, 3][..], b"ann", &[length], password.as_bytes()].concat();
        tcp.write_all(&message).await.expect("the bytes are sent");
        within(tcp.read_exact(&mut two))
            .await
            .expect("the response is complete");
        assert_eq!(two, [1, code]);
        if code != 0 {
            let end = within(tcp.read(&mut two)).await;
            assert_eq!(end.expect("the connection is closed"), 0);
            continue;
        }
        let request = [
            &[5, 1, 0, 1, 127, 0, 0, 1][..],
            &target.addr().port().to_be_bytes(),
        ]
        .concat();
        tcp.write_all(&request).await.expect("the bytes are sent");
        let mut reply = [0; 10];
        within(tcp.read_exact(&mut reply))
            .await
            .expect("the response is complete");
        assert_eq!(reply[1], 0);
        assert_eq!(echo_over(tcp, b"hello").await, b"hello");
    }
}

/// Starts an https origin for `localhost` that answers each request with `hello`. Returns its address and its
/// certificate in PEM.
async fn https_origin() -> (std::net::SocketAddr, JoinSet<()>, String) {
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]);
    let key = key.expect("the certificate can be created");
    let private = rustls_pki_types::PrivateKeyDer::Pkcs8(key.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the versions are supported")
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], private)
        .expect("the certificate is valid");
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(loopback())
        .await
        .expect("the listener can be bound");
    let addr = listener.local_addr().expect("the address is valid");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.expect("the listener accepts");
            let Ok(tls) = acceptor.accept(tcp).await else {
                continue;
            };
            let service = service_fn(|_: Request<Incoming>| async {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello"))))
            });
            let http = hyper::server::conn::http1::Builder::new();
            _ = http.serve_connection(TokioIo::new(tls), service).await;
        }
    });
    (addr, tasks, key.cert.pem())
}

/// A gateway verifies the certificate of an https origin: its CA and its name.
#[tokio::test]
async fn an_https_origin_is_verified() {
    let (addr, _tasks, certificate) = https_origin().await;
    for (host, is_trusted, status) in [
        ("localhost", true, 200),
        ("localhost", false, 502),
        ("127.0.0.1", true, 502),
    ] {
        let mut test_bed = TestBed::new(ENCRYPTED);
        let file = test_bed.folder.join("origin.pem");
        let authority = if is_trusted {
            certificate.clone()
        } else {
            let ca = test_bed.folder.join("keys/ca/ca.pem");
            std::fs::read_to_string(ca).expect("the file can be read")
        };
        std::fs::write(&file, authority).expect("the file can be written");
        let mut config = test_bed.gateway_config(addr);
        let origin = format!("{host}:{}", addr.port());
        config.origin = Some(origin.parse().expect("the text is a host and a port"));
        config.origin_tls = Some(OriginTls::new(Some(&file)).expect("the file is valid"));
        let gateway = Gateway::bind(config)
            .await
            .expect("the listener can be bound");
        let client = test_bed.client(gateway.local_addr());
        within(client.up()).await;
        let (head, _) = get(&client, "/").await;
        assert_eq!(head.status.as_u16(), status, "{host} {is_trusted}");
    }
}

/// A WebSocket passes a gateway: the origin gets the fields of the upgrade, and bytes are copied in both directions. An
/// origin that refuses the upgrade is an ordinary response.
#[tokio::test]
async fn an_upgrade_is_a_tunnel_to_the_origin() {
    let listener = TcpListener::bind(loopback())
        .await
        .expect("the listener can be bound");
    let addr = listener.local_addr().expect("the address is valid");
    let mut origins = JoinSet::new();
    origins.spawn(async move {
        let mut answers = [
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
        ]
        .into_iter();
        let mut connections = JoinSet::new();
        loop {
            let (mut tcp, _) = listener.accept().await.expect("the listener accepts");
            let answer = answers.next().expect("two requests are sent");
            connections.spawn(async move {
                let head = read_head(&mut tcp).await.to_ascii_lowercase();
                assert!(head.contains("upgrade: websocket\r\n"), "{head}");
                assert!(head.contains("connection: upgrade\r\n"), "{head}");
                assert!(head.contains("sec-websocket-key: x\r\n"), "{head}");
                tcp.write_all(answer.as_bytes())
                    .await
                    .expect("the bytes are sent");
                let (mut read, mut write) = tcp.split();
                _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    let mut test_bed = TestBed::new(ENCRYPTED);
    let (_gateway, client) = connected_to_origin(&mut test_bed, addr).await;
    let request = b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n\
        Upgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n";
    for status in ["101", "403"] {
        let mut stream = client.open(Target::Origin).expect("the link is up");
        stream.write_all(request).await.expect("the stream is open");
        stream.flush().await.expect("the stream is open");
        let head = read_head(&mut stream).await;
        assert_eq!(&head[9..12], status, "{head}");
        if status == "101" {
            assert!(
                head.to_ascii_lowercase().contains("upgrade: websocket\r\n"),
                "{head}"
            );
            for word in [&b"ping"[..], b"pong"] {
                stream.write_all(word).await.expect("the stream is open");
                stream.flush().await.expect("the stream is open");
                let mut back = [0; 4];
                within(stream.read_exact(&mut back))
                    .await
                    .expect("the bytes are returned");
                assert_eq!(back, word);
            }
        }
    }
}

/// Reads the head of a message, byte by byte.
async fn read_head(io: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(within(io.read_u8()).await.expect("the head is complete"));
    }
    String::from_utf8(head).expect("the head is text")
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
    let origin = ScriptedOrigin::start();
    let typed = |body: &Bytes, kind| Answer::ok(body.clone()).header("content-type", kind);
    origin.on("/0", typed(&text, "text/plain"));
    origin.on("/1", typed(&noise, "video/mp4"));
    let mut test_bed = TestBed::new(ENCRYPTED);
    let (gateway, client) = connected_to_origin(&mut test_bed, origin.addr()).await;
    let loaded_bytes = async |client: &Client| client.status().await.received.from_store;
    for round in 0..2 {
        let (head, body) = get(&client, "/0").await;
        assert_eq!((head.status.as_u16(), &body), (200, &text));
        assert_eq!(
            head.headers["connection"], "close",
            "one exchange on each stream"
        );
        // The chunks of the second response come from the store of the client.
        assert_eq!(loaded_bytes(&client).await > 350_000, round == 1);
    }
    for _ in 0..2 {
        let before = loaded_bytes(&client).await;
        let (_, body) = get(&client, "/1").await;
        assert_eq!(body, noise);
        assert_eq!(
            loaded_bytes(&client).await,
            before,
            "no chunk of the body is looked up"
        );
    }
    let status = &gateway.status().await.peers[0];
    assert_eq!(status.bypassed, 2);
    let sent = |content_type| {
        let found = status
            .content_types
            .iter()
            .find(|(name, _)| name == content_type);
        found.expect("the gateway counts the type").1.sent
    };
    let (text, video) = (sent("text/plain"), sent("video/mp4"));
    assert!(text.referenced > 350_000 && text.bypassed == 0, "{text:?}");
    assert!(
        video.bypassed > 800_000 && video.bypassed == video.bytes,
        "{video:?}"
    );
    for request in origin.recorded() {
        assert_eq!(request.header("host"), Some("site.example"));
        assert_eq!(request.header("accept-encoding"), Some("identity"));
        assert_eq!(request.header("te"), None);
    }
    let (requests, connections) = (origin.requests_total(), origin.accepted_connections());
    assert_eq!(requests, 4);
    assert!(connections < 4, "connections are used again");
}

/// If the origin does not answer, the client gets an HTTP error.
#[tokio::test]
async fn an_unreachable_origin_is_a_bad_gateway() {
    let mut test_bed = TestBed::new(ENCRYPTED);
    let (_gateway, client) =
        connected_to_origin(&mut test_bed, ScriptedOrigin::unused_addr()).await;
    let (head, _) = get(&client, "/0").await;
    assert_eq!(head.status.as_u16(), 502);
}

/// `/status` and `/metrics` show the bytes of a body that was echoed. `/healthz` answers 200, and other paths 404.
#[tokio::test]
async fn status_and_metrics_are_served() {
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(!ENCRYPTED);
    let gateway = Arc::new(test_bed.gateway(target.addr()).await);
    let client = test_bed.client(gateway.local_addr());
    let stream = client.open(tcp(target.addr())).expect("the link is up");
    let body = Random(4).noise(100_000);
    assert_eq!(
        within(crate::test_bed::echo(stream, &body))
            .await
            .expect("the body is echoed"),
        body
    );
    let admin = Admin::bind(loopback(), gateway.report())
        .await
        .expect("the listener can be bound");
    let fetch = async |path: &str| {
        let (addr, path) = (admin.local_addr(), path.to_owned());
        let text = tokio::task::spawn_blocking(move || edgeward_testkit::client::get(addr, &path));
        let text = text.await.expect("the server answers");
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
    // Renamed keys are also there under their old names.
    for (gateway, streams) in [("gateway", "streams"), ("door", "conversations")] {
        assert_eq!(status[gateway][streams], 1);
    }
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
