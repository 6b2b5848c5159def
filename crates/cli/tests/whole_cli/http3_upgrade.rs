//! Connections of HTTP/3 while a new process replaces the edge.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use edgeward_h3::{
    FrameDecoder, FrameEvent, FrameLimits, FrameType, StreamKind, begin_section, push_field,
    push_frame_head,
};
use edgeward_testkit::{Answer, Gate, ScriptedOrigin, pattern_byte};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, RecvStream};
use rustix::process::{Pid, Signal, kill_process};

use super::run::until;
use super::upgrade::UpgradableEdge;

/// An edge whose second listener has HTTP/3, and a client of it.
struct Http3Edge {
    edge: UpgradableEdge,
    addr: SocketAddr,
    client: Endpoint,
    _certificate: tempfile::TempDir,
}

impl Http3Edge {
    /// Call this function on a runtime, for the client.
    fn start(origin: &ScriptedOrigin) -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]);
        let made = made.expect("a certificate");
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("cert.pem"), made.cert.pem()).expect("written");
        std::fs::write(path("key.pem"), made.signing_key.serialize_pem()).expect("written");
        let listener = format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\nhttp3 = true\n\
             tls_certificates = \"{}\"\ntls_key = \"{}\"\n",
            path("cert.pem").display(),
            path("key.pem").display()
        );
        let edge = UpgradableEdge::start(&format!("http://{}", origin.addr()), &listener);
        Self {
            addr: edge.announced("/listening/1"),
            edge,
            client: client(made.cert.der().clone()),
            _certificate: folder,
        }
    }

    async fn connect(&self) -> Connection {
        let connecting = self.client.connect(self.addr, "localhost");
        let connection = connecting.expect("the settings are valid").await;
        connection.expect("the edge accepts the connection")
    }
}

fn client(certificate: rustls_pki_types::CertificateDer<'static>) -> Endpoint {
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(certificate)
        .expect("the certificate can be a root");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h3".to_vec()];
    let config = QuicClientConfig::try_from(config).expect("the provider has the first cipher");
    let any_port = "127.0.0.1:0".parse().expect("an address");
    let mut endpoint = Endpoint::client(any_port).expect("a port is free");
    endpoint.set_default_client_config(ClientConfig::new(Arc::new(config)));
    endpoint
}

/// Sends a GET, and returns the stream of the response.
async fn send(connection: &Connection, path: &str) -> RecvStream {
    let mut section = Vec::new();
    begin_section(&mut section);
    let fields = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", path),
    ];
    for (name, value) in fields {
        push_field(&mut section, name.as_bytes(), value.as_bytes(), false);
    }
    let mut frame = Vec::new();
    push_frame_head(&mut frame, FrameType::HEADERS, section.len() as u64);
    frame.extend_from_slice(&section);
    let (mut sending, receiving) = connection.open_bi().await.expect("a stream");
    sending
        .write_all(&frame)
        .await
        .expect("the request is sent");
    sending.finish().expect("the stream is open");
    receiving
}

/// A response whose first byte has arrived.
struct Response {
    first: [u8; 1],
    stream: RecvStream,
}

impl Response {
    /// Sends a GET, and waits for the first byte of the response.
    async fn new(connection: &Connection, path: &str) -> Self {
        let (mut first, mut stream) = ([0], send(connection, path).await);
        let begun = stream.read_exact(&mut first).await;
        begun.expect("the response begins");
        Self { first, stream }
    }

    /// Reads the rest of the response, and returns its body.
    async fn body(&mut self) -> Vec<u8> {
        let rest = self.stream.read_to_end(64 << 20).await;
        let rest = rest.expect("the response is complete");
        let mut bytes = Bytes::from([&self.first[..], &rest].concat());
        let mut decoder = FrameDecoder::new(StreamKind::Request, FrameLimits::default());
        let mut body = Vec::new();
        while let Some(event) = decoder.decode(&mut bytes).expect("the frames are valid") {
            if let FrameEvent::Data(data) = event {
                body.extend_from_slice(&data);
            }
        }
        body
    }
}

/// Returns the body of a response.
async fn get(connection: &Connection, path: &str) -> Vec<u8> {
    Response::new(connection, path).await.body().await
}

fn run(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    runtime.expect("the runtime can be built").block_on(future);
}

/// Method: the downloads begin before the upgrade, and their last bytes come after it. A further request of each
/// connection keeps it open until the client has read all bytes.
#[test]
fn downloads_over_http3_run_across_an_upgrade() {
    // All downloads together are less than what slow readers may keep of evicted objects.
    const BYTES: u64 = 500_000;
    let origin = ScriptedOrigin::start();
    let (gate, last) = (Gate::new(), Gate::new());
    let download = Answer::pattern(BYTES).wait_at(200_000, &gate);
    origin.on("/download", download);
    origin.on("/last", Answer::pattern(2000).wait_at(1000, &last));
    origin.on("/page", Answer::ok("hello"));
    let expected: Vec<u8> = (0..BYTES).map(pattern_byte).collect();
    run(async {
        let mut http3 = Http3Edge::start(&origin);
        let mut downloads = Vec::new();
        for _ in 0..8 {
            let connection = http3.connect().await;
            let begun = [
                Response::new(&connection, "/download").await,
                Response::new(&connection, "/last").await,
            ];
            downloads.push((connection, begun));
        }
        gate.reached_by(1).await;
        http3.edge.upgrade();
        let new = http3.connect().await;
        assert_eq!(get(&new, "/page").await, b"hello");
        gate.open();
        for (_, [download, _]) in &mut downloads {
            assert!(download.body().await == expected);
        }
        let forwarded = "edgeward_quic_datagrams_forwarded_total{to=\"process\"}";
        assert!(http3.edge.metric(forwarded) > 0.0);
        last.open();
        drop((new, downloads));
        http3.edge.end();
    });
}

/// Method: a download keeps the old process, which is then killed.
#[test]
fn clients_of_a_killed_process_get_a_stateless_reset_from_its_successor() {
    let (origin, gate) = (ScriptedOrigin::start(), Gate::new());
    origin.on("/download", Answer::pattern(100_000).wait_at(1000, &gate));
    origin.on("/page", Answer::ok("hello"));
    run(async {
        let http3 = Http3Edge::start(&origin);
        let connection = http3.connect().await;
        let download = send(&connection, "/download").await;
        gate.reached_by(1).await;
        let old = process_id(&http3.edge.path("pid"));
        http3.edge.upgrade();
        kill_process(old, Signal::KILL).expect("the process runs");
        until("the process has ended", || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", old.as_raw_nonzero()));
            (!stat.is_ok_and(|stat| !stat.contains(") Z "))).then_some(())
        });
        // The client sends this byte until it gets an answer. The reset may have come already.
        if let Ok(mut stream) = connection.open_uni().await {
            _ = stream.write_all(b"!").await;
        }
        assert_eq!(connection.closed().await, ConnectionError::Reset);
        drop(download);
        let new = http3.connect().await;
        assert_eq!(get(&new, "/page").await, b"hello");
    });
    gate.open();
}

fn process_id(file: &Path) -> Pid {
    let text = std::fs::read_to_string(file).expect("the edge runs");
    let id = text.trim().parse().expect("a process id");
    Pid::from_raw(id).expect("not zero")
}
