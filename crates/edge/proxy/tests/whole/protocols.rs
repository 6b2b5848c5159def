//! HTTP/1.1 and HTTP/2, with and without TLS, between client and edge and between edge and origin.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{TIMEOUT, TestBed, config_for, pattern, run};
use bytes::Bytes;
use edgeward_proxy::config::{
    AccessLogConfig, CertificateFiles, HostPolicy, ListenerConfig, ListenerTls, LogDestination,
    LogFormat, OriginProtocol,
};
use edgeward_testkit::client::metric;
use edgeward_testkit::{Answer, Gate};
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::ServerName;
use rustls_pki_types::pem::PemObject;
use tokio::net::{TcpListener, TcpStream};

fn get(uri: String) -> Request<Empty<Bytes>> {
    Request::get(uri)
        .body(Empty::new())
        .expect("the request is valid")
}

async fn collect(response: Response<Incoming>) -> (http::response::Parts, Bytes) {
    let (parts, body) = response.into_parts();
    let body = body
        .collect()
        .await
        .expect("the complete body arrives")
        .to_bytes();
    (parts, body)
}

async fn h2_client<S>(stream: S) -> http2::SendRequest<Empty<Bytes>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .expect("the HTTP/2 handshake succeeds");
    tokio::spawn(connection);
    sender
}

#[test]
fn http2_by_prior_knowledge_shares_the_cache_with_http1() {
    let bed = TestBed::start();
    bed.origin.on(
        "/page",
        Answer::pattern(300_000).header("cache-control", "max-age=60"),
    );
    assert!(bed.get("/page").body == pattern(0..300_000));
    // A hit, and a request whose head cannot be read.
    assert!(bed.get("/page").is_hit());
    let mut client = bed.connect();
    client.send("GET / HTTP/1.1\r\nhost: a b\r\n\r\n");
    assert_eq!(client.answer("GET").status, 400);
    run(async {
        let stream = TcpStream::connect(bed.addr())
            .await
            .expect("the edge listens");
        let mut sender = h2_client(stream).await;
        let uri = "http://test.example/page".to_owned();
        let response = sender
            .send_request(get(uri))
            .await
            .expect("a response arrives");
        let (parts, body) = collect(response).await;
        assert_eq!(parts.version, Version::HTTP_2);
        assert!(body == pattern(0..300_000));
        let cache_status = parts.headers["cache-status"]
            .to_str()
            .expect("the text is UTF-8");
        assert!(cache_status.starts_with("edgeward; hit"), "{cache_status}");
    });
    assert_eq!(bed.origin.requests("/page"), 1);
    assert_eq!(
        bed.metric("edgeward_client_connections_total{protocol=\"h2\"}"),
        1.0
    );
    let requests = |protocol: &str| {
        bed.metric(&format!(
            "edgeward_client_requests_total{{protocol=\"{protocol}\"}}"
        ))
    };
    assert_eq!(["http/1.1", "h2", "h3"].map(requests), [3.0, 1.0, 0.0]);
}

#[test]
fn streams_of_one_http2_connection_are_collapsed() {
    let bed = TestBed::start();
    let gate = Gate::new();
    bed.origin.on(
        "/page",
        Answer::ok("hello")
            .header("cache-control", "max-age=60")
            .wait_before_head(&gate),
    );
    run(async {
        let stream = TcpStream::connect(bed.addr())
            .await
            .expect("the edge listens");
        let sender = h2_client(stream).await;
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let mut sender = sender.clone();
                tokio::spawn(async move {
                    let uri = "http://test.example/page".to_owned();
                    collect(
                        sender
                            .send_request(get(uri))
                            .await
                            .expect("a response arrives"),
                    )
                    .await
                    .1
                })
            })
            .collect();
        gate.reached_by(1).await;
        gate.open();
        for task in tasks {
            assert_eq!(task.await.expect("the thread does not panic"), "hello");
        }
    });
    assert_eq!(bed.origin.requests("/page"), 1);
}

/// An HTTP/2 client can stall a stream by flow control, although its socket accepts bytes. `body_idle_timeout`
/// applies to such a stream too, and the edge closes the connection.
///
/// Method: a client reads no byte of a body of 8 MiB. The body is larger than the client's window, so the response
/// cannot complete, and only the edge can end the stream.
#[test]
fn an_http2_client_that_reads_nothing_is_closed() {
    let bed = TestBed::with_config(|config| {
        config.limits.body_idle_timeout = Duration::from_millis(300);
    });
    bed.origin.on(
        "/big",
        Answer::pattern(8 << 20).header("cache-control", "no-store"),
    );
    run(async {
        let stream = TcpStream::connect(bed.addr())
            .await
            .expect("the edge listens");
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .expect("the HTTP/2 handshake succeeds");
        let connection = tokio::spawn(connection);
        let uri = "http://test.example/big".to_owned();
        let response = sender
            .send_request(get(uri))
            .await
            .expect("a response arrives");
        _ = connection.await.expect("the thread does not panic");
        drop(response);
    });
    assert_eq!(
        bed.metric("edgeward_client_connections_closed_total{cause=\"body-timeout\"}"),
        1.0
    );
}

/// A self-signed certificate and its key in files. Clients and edges of these tests can trust the certificate
/// as a root.
pub(crate) struct Identity {
    _dir: tempfile::TempDir,
    pub(crate) certificate: PathBuf,
    key: PathBuf,
}

impl Identity {
    pub(crate) fn new() -> Self {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let generated =
            rcgen::generate_simple_self_signed(names).expect("the certificate is valid");
        let dir = tempfile::tempdir().expect("the folder can be created");
        let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
        std::fs::write(&certificate, generated.cert.pem()).expect("the file can be written");
        std::fs::write(&key, generated.signing_key.serialize_pem())
            .expect("the file can be written");
        Self {
            _dir: dir,
            certificate,
            key,
        }
    }

    fn files(&self) -> ListenerTls {
        ListenerTls {
            certificates: self.certificate.clone(),
            key: self.key.clone(),
            ocsp: None,
        }
    }

    fn connector(&self, alpn: &[&[u8]]) -> tokio_rustls::TlsConnector {
        let mut roots = rustls::RootCertStore::empty();
        let certificate = rustls_pki_types::CertificateDer::from_pem_file(&self.certificate);
        roots
            .add(certificate.expect("the certificate is valid"))
            .expect("the root certificate is valid");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider supports TLS 1.2 and 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        tokio_rustls::TlsConnector::from(Arc::new(config))
    }

    fn acceptor(&self) -> tokio_rustls::TlsAcceptor {
        self.acceptor_of(None, &[b"h2", b"http/1.1"])
    }

    /// Returns an acceptor that offers these protocols.
    pub(crate) fn acceptor_for(&self, alpn: &[&[u8]]) -> tokio_rustls::TlsAcceptor {
        self.acceptor_of(None, alpn)
    }

    fn client_verifier(&self) -> Arc<dyn ClientCertVerifier> {
        let mut roots = rustls::RootCertStore::empty();
        let certificate = rustls_pki_types::CertificateDer::from_pem_file(&self.certificate);
        roots
            .add(certificate.expect("the certificate is valid"))
            .expect("the root certificate is valid");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .expect("the root certificate is valid")
    }

    /// Returns an acceptor. With `clients`, it accepts only clients with this certificate.
    fn acceptor_of(&self, clients: Option<&Self>, alpn: &[&[u8]]) -> tokio_rustls::TlsAcceptor {
        let certificate = rustls_pki_types::CertificateDer::from_pem_file(&self.certificate);
        let key =
            rustls_pki_types::PrivateKeyDer::from_pem_file(&self.key).expect("the key is valid");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider supports TLS 1.2 and 1.3")
            .with_client_cert_verifier(match clients {
                None => WebPkiClientVerifier::no_client_auth(),
                Some(clients) => clients.client_verifier(),
            })
            .with_single_cert(vec![certificate.expect("the certificate is valid")], key)
            .expect("the key belongs to the certificate");
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        tokio_rustls::TlsAcceptor::from(Arc::new(config))
    }
}

#[test]
fn tls_offers_http2_and_http1_and_the_client_chooses() {
    let identity = Identity::new();
    let folder = tempfile::tempdir().expect("the folder can be created");
    let log = folder.path().join("log");
    let bed = TestBed::with_config(|config| {
        config.listeners[0].tls = Some(identity.files());
        let format = "$server_protocol $ssl_curve".parse();
        let format = LogFormat::Template(format.expect("two variables"));
        let destination = LogDestination::File(log.clone());
        config.access_log = Some(AccessLogConfig::new(destination, format));
    });
    bed.origin.on(
        "/page",
        Answer::pattern(200_000).header("cache-control", "max-age=60"),
    );
    run(async {
        for (alpn, version) in [
            (&[b"h2".as_slice(), b"http/1.1"][..], Version::HTTP_2),
            (&[b"http/1.1".as_slice()][..], Version::HTTP_11),
            (&[][..], Version::HTTP_11),
        ] {
            let tcp = TcpStream::connect(bed.addr())
                .await
                .expect("the edge listens");
            let name = ServerName::try_from("localhost").expect("the name is valid");
            let tls = identity
                .connector(alpn)
                .connect(name, tcp)
                .await
                .expect("the TLS handshake succeeds");
            let response = if version == Version::HTTP_2 {
                let uri = "https://localhost/page".to_owned();
                h2_client(tls).await.send_request(get(uri)).await
            } else {
                let (mut sender, connection) = http1::handshake(TokioIo::new(tls))
                    .await
                    .expect("the HTTP/1.1 handshake succeeds");
                tokio::spawn(connection);
                let mut request = get("/page".to_owned());
                request
                    .headers_mut()
                    .insert("host", "localhost".parse().expect("the value is valid"));
                sender.send_request(request).await
            };
            let (parts, body) = collect(response.expect("a response arrives")).await;
            assert_eq!(parts.version, version);
            assert!(body == pattern(0..200_000));
        }
    });
    assert_eq!(
        bed.origin.requests("/page"),
        1,
        "all three requests have one cache key"
    );
    let forwarded = bed.origin.last("/page").expect("the origin got a request");
    assert_eq!(forwarded.header("x-forwarded-proto"), Some("https"));
    let handshakes = "edgeward_client_tls_handshakes_total{key_exchange=\"X25519MLKEM768\"}";
    assert_eq!(bed.metric(handshakes), 3.0);
    bed.edge.shutdown(TIMEOUT);
    let log = std::fs::read_to_string(&log).expect("the log can be read");
    // The workers write their lines in any order.
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    let expected = ["1.1", "1.1", "2.0"].map(|version| format!("HTTP/{version} X25519MLKEM768"));
    assert_eq!(lines, expected);
}

/// If the socket does not accept all bytes, the TLS library buffers the rest, and the edge has to flush them
/// later.
#[test]
fn a_large_hit_over_tls_reaches_a_client_with_a_small_window_completely() {
    let identity = Identity::new();
    let bed = TestBed::with_config(|config| config.listeners[0].tls = Some(identity.files()));
    bed.origin.on(
        "/large",
        Answer::pattern(3_000_000).header("cache-control", "max-age=60"),
    );
    run(async {
        let socket = tokio::net::TcpSocket::new_v4().expect("the socket can be created");
        socket
            .set_recv_buffer_size(4096)
            .expect("the window size can be set");
        let tcp = socket.connect(bed.addr()).await.expect("the edge listens");
        let name = ServerName::try_from("localhost").expect("the name is valid");
        let tls = identity.connector(&[b"http/1.1"]).connect(name, tcp);
        let tls = tls.await.expect("the TLS handshake succeeds");
        let (mut sender, connection) = http1::handshake(TokioIo::new(tls))
            .await
            .expect("the HTTP/1.1 handshake succeeds");
        tokio::spawn(connection);
        for _ in 0..5 {
            let mut request = get("/large".to_owned());
            let host = "localhost".parse().expect("the value is valid");
            request.headers_mut().insert("host", host);
            let response = sender
                .send_request(request)
                .await
                .expect("a response arrives");
            let (_, body) = collect(response).await;
            assert!(body == pattern(0..3_000_000));
        }
    });
    assert_eq!(bed.origin.requests("/large"), 1, "the others were hits");
}

#[test]
fn a_client_without_tls_on_a_tls_port_is_closed_and_counted() {
    let identity = Identity::new();
    let bed = TestBed::with_config(|config| config.listeners[0].tls = Some(identity.files()));
    let mut client = bed.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    // The test waits for this counter. The number of open connections would not show the close, because it is
    // also 0 before the edge accepts the connection.
    bed.wait_for_metric(
        "edgeward_client_connections_closed_total{cause=\"tls-handshake\"}",
        1.0,
    );
}

#[test]
fn http_and_https_have_separate_keys_on_listeners_of_one_edge() {
    let identity = Identity::new();
    let bed = TestBed::with_config(|config| {
        let mut tls = ListenerConfig::plain(config.listeners[0].addr.clone());
        tls.tls = Some(identity.files());
        config.listeners.push(tls);
    });
    bed.origin.on(
        "/page",
        Answer::ok("x").header("cache-control", "max-age=60"),
    );
    assert_eq!(bed.edge.addrs().len(), 2);
    bed.get("/page");
    run(async {
        let tcp = TcpStream::connect(bed.edge.addrs()[1])
            .await
            .expect("the edge listens");
        let name = ServerName::try_from("localhost").expect("the name is valid");
        let tls = identity
            .connector(&[b"h2"])
            .connect(name, tcp)
            .await
            .expect("the TLS handshake succeeds");
        let uri = "https://test.example/page".to_owned();
        let response = h2_client(tls)
            .await
            .send_request(get(uri))
            .await
            .expect("a response arrives");
        assert!(
            !response.headers()["cache-status"]
                .to_str()
                .expect("the text is UTF-8")
                .contains("hit")
        );
    });
}

/// Starts an origin on hyper. Its response contains the protocol, the host and the body length of the request.
/// It counts accepted connections in `connections`.
async fn hyper_origin(
    tls: Option<tokio_rustls::TlsAcceptor>,
    connections: Arc<AtomicUsize>,
) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0))
        .await
        .expect("a port is free");
    let addr = listener.local_addr().expect("the address is valid");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            connections.fetch_add(1, Ordering::SeqCst);
            let tls = tls.clone();
            tokio::spawn(async move {
                let service = service_fn(|request: Request<Incoming>| async move {
                    let (version, host) = (request.version(), request.uri().authority().cloned());
                    let host = match host {
                        Some(host) => host.to_string(),
                        None => request.headers()["host"]
                            .to_str()
                            .expect("the text is UTF-8")
                            .to_owned(),
                    };
                    let body = request
                        .into_body()
                        .collect()
                        .await
                        .expect("the body arrives")
                        .to_bytes();
                    let text = format!("{version:?} {host} {}", body.len());
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(text))))
                });
                let http = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                match tls {
                    Some(tls) => {
                        let Ok(stream) = tls.accept(tcp).await else {
                            return;
                        };
                        _ = http.serve_connection(TokioIo::new(stream), service).await;
                    }
                    None => _ = http.serve_connection(TokioIo::new(tcp), service).await,
                }
            });
        }
    });
    addr
}

/// Method: each check is a connection of its own. Wait for three of them, and expect that none failed.
#[test]
fn health_checks_use_the_protocol_of_the_origin() {
    for protocol in [OriginProtocol::Http1, OriginProtocol::Http2] {
        run(async {
            let connections = Arc::new(AtomicUsize::new(0));
            let addr = hyper_origin(None, Arc::clone(&connections)).await;
            let mut config = config_for(addr);
            config.origins[0].protocol = protocol;
            config.origins[0].checks.path = Some("/health".to_owned());
            config.origins[0].checks.interval = Duration::from_millis(20);
            let edge = edgeward_proxy::Edge::start(config).expect("the edge starts");
            while connections.load(Ordering::SeqCst) < 3 {
                tokio::task::yield_now().await;
            }
            let admin = edge.admin_addr().expect("the admin listener is configured");
            let metrics = tokio::task::spawn_blocking(move || {
                crate::support::Client::connect(admin).get("/metrics", &[])
            });
            let metrics = metrics.await.expect("no panic");
            let series = format!(
                "edgeward_origin_server_failed_checks_total{{origin=\"default\",server=\"{addr}\"}} 0\n"
            );
            assert!(metrics.text().contains(&series), "{protocol:?}");
        });
    }
}

#[test]
fn an_origin_can_require_a_certificate_of_the_edge() {
    let (identity, client) = (Identity::new(), Identity::new());
    run(async {
        for (has_certificate, status) in [(true, 200), (false, 502)] {
            let acceptor = identity.acceptor_of(Some(&client), &[b"h2", b"http/1.1"]);
            let addr = hyper_origin(Some(acceptor), Arc::default()).await;
            let mut config = config_for(addr);
            let origin = &mut config.origins[0];
            let url = format!("https://localhost:{}", addr.port());
            origin.servers[0] = url.parse().expect("the URL is valid");
            origin.tls.roots = Some(identity.certificate.clone());
            origin.tls.client = has_certificate.then(|| CertificateFiles {
                certificates: client.certificate.clone(),
                key: client.key.clone(),
            });
            let edge = edgeward_proxy::Edge::start(config).expect("the edge starts");
            let got = tokio::task::spawn_blocking(move || {
                crate::support::Client::connect(edge.addrs()[0]).get("/a", &[])
            });
            let got = got.await.expect("no panic");
            assert_eq!(got.status, status);
            // The server refuses the missing certificate after the handshake of the edge.
            let is_refusal = got.cache_status().ends_with("detail=tls_alert_received");
            assert_eq!(is_refusal, !has_certificate, "{}", got.cache_status());
        }
    });
}

#[test]
fn an_origin_is_reached_by_http1_and_http2_with_and_without_tls() {
    let identity = Identity::new();
    run(async {
        for (tls, protocol, version) in [
            (false, OriginProtocol::Http1, "HTTP/1.1"),
            (false, OriginProtocol::Http2, "HTTP/2.0"),
            (true, OriginProtocol::Http1, "HTTP/1.1"),
            (true, OriginProtocol::Http2, "HTTP/2.0"),
        ] {
            let connections = Arc::new(AtomicUsize::new(0));
            let acceptor = tls.then(|| identity.acceptor());
            let addr = hyper_origin(acceptor, Arc::clone(&connections)).await;
            let mut config = config_for(addr);
            config.workers = std::num::NonZeroUsize::MIN;
            if tls {
                let url = format!("https://localhost:{}", addr.port());
                config.origins[0].servers[0] = url.parse().expect("the URL is valid");
                config.origins[0].tls.roots = Some(identity.certificate.clone());
            }
            config.origins[0].protocol = protocol;
            let edge = edgeward_proxy::Edge::start(config).expect("the edge starts");
            let edge_addr = edge.addrs()[0];
            let admin = edge.admin_addr().expect("the edge has an admin server");
            let answers = tokio::task::spawn_blocking(move || {
                let mut client = crate::support::Client::connect(edge_addr);
                let got = client.get("/a", &[]);
                let put = client.request("PUT", "/b", &[("content-length", "5")], b"hello");
                let metrics = crate::support::Client::connect(admin).get("/metrics", &[]);
                (got, put, metrics)
            });
            let (got, put, metrics) = answers.await.expect("the thread does not panic");
            let host = if tls {
                format!("localhost:{}", addr.port())
            } else {
                "test.example".to_owned()
            };
            let handshakes =
                "edgeward_origin_tls_handshakes_total{key_exchange=\"X25519MLKEM768\"}";
            assert_eq!(metric(metrics.text(), handshakes), f64::from(u8::from(tls)));
            assert_eq!(got.text(), format!("{version} {host} 0"), "tls: {tls}");
            assert_eq!(put.text(), format!("{version} {host} 5"), "tls: {tls}");
            assert_eq!(
                connections.load(Ordering::SeqCst),
                1,
                "the connection is reused"
            );
            tokio::task::spawn_blocking(move || edge.shutdown(TIMEOUT))
                .await
                .expect("the thread does not panic");
        }
    });
}

#[test]
fn an_https_origin_with_a_name_gets_its_own_host_and_other_origins_get_the_clients_host() {
    let identity = Identity::new();
    run(async {
        let cases = [
            (true, "localhost", None, true),
            (true, "127.0.0.1", None, false),
            (false, "localhost", None, false),
            (true, "localhost", Some(HostPolicy::Forward), false),
            (false, "localhost", Some(HostPolicy::Origin), true),
        ];
        for (tls, host, policy, sends_origin_host) in cases {
            let addr = hyper_origin(tls.then(|| identity.acceptor()), Arc::default()).await;
            let mut config = config_for(addr);
            let scheme = if tls { "https" } else { "http" };
            let url = format!("{scheme}://{host}:{}", addr.port());
            config.origins[0].servers[0] = url.parse().expect("the URL is valid");
            config.origins[0].tls.roots = Some(identity.certificate.clone());
            config.origins[0].tls.server_name = Some("localhost".to_owned());
            config.origins[0].host = policy.clone();
            let edge = edgeward_proxy::Edge::start(config).expect("the edge starts");
            let edge_addr = edge.addrs()[0];
            let got = tokio::task::spawn_blocking(move || {
                crate::support::Client::connect(edge_addr).get("/a", &[])
            });
            let expected_host = if sends_origin_host {
                format!("{host}:{}", addr.port())
            } else {
                "test.example".to_owned()
            };
            let got = got.await.expect("the thread does not panic");
            let text = got.text();
            assert_eq!(
                text,
                format!("HTTP/1.1 {expected_host} 0"),
                "{url}, {policy:?}"
            );
            tokio::task::spawn_blocking(move || edge.shutdown(TIMEOUT))
                .await
                .expect("the thread does not panic");
        }
    });
}

#[test]
fn an_untrusted_certificate_of_the_origin_is_accepted_only_if_configured() {
    let (identity, other_identity) = (Identity::new(), Identity::new());
    run(async {
        for (verify, status) in [(true, 502), (false, 200)] {
            let addr = hyper_origin(Some(identity.acceptor()), Arc::default()).await;
            let mut config = config_for(addr);
            config.origins[0].servers[0] = format!("https://localhost:{}", addr.port())
                .parse()
                .expect("the URL is valid");
            config.origins[0].tls.roots = Some(other_identity.certificate.clone());
            config.origins[0].tls.verify = verify;
            let edge = edgeward_proxy::Edge::start(config).expect("the edge starts");
            let edge_addr = edge.addrs()[0];
            let got = tokio::task::spawn_blocking(move || {
                crate::support::Client::connect(edge_addr).get("/a", &[])
            });
            let got = got.await.expect("the thread does not panic");
            assert_eq!(got.status, status, "verify: {verify}");
            let is_refusal = got.cache_status().ends_with("detail=tls_certificate_error");
            assert_eq!(is_refusal, verify, "{}", got.cache_status());
            tokio::task::spawn_blocking(move || edge.shutdown(TIMEOUT))
                .await
                .expect("the thread does not panic");
        }
    });
}
