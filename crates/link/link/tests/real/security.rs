//! Tests of peers that must be refused, and of peers that violate the protocol.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use edgeward_dedup::chunker::ChunkerParams;
use edgeward_dedup::codec::Method;
use edgeward_dedup::id::IdKey;
use edgeward_dedup::wire::{Frame, Hello, Span, StreamId, decode, frame_length};
use edgeward_link::{Client, Encryption, Gateway, Keys, LinkState};
use edgeward_testkit::TcpServer;

use crate::test_bed::{EDGE, TestBed, echo, tcp, within};

/// The gateway refuses an edge with a certificate of another CA, an edge with the gateway's certificate, and an edge
/// without encryption.
#[tokio::test]
async fn unknown_certificates_are_refused() {
    let target = TcpServer::echo();
    // `true`: the link is encrypted.
    let mut test_bed = TestBed::new(true);
    let gateway = test_bed.gateway(target.addr()).await;
    let other_ca = tempfile::tempdir().expect("the folder can be created");
    edgeward_link::generate_keys(other_ca.path()).expect("the keys can be generated");
    let load = |end: &str| {
        Keys::load(&other_ca.path().join(end))
            .expect("the keys are valid")
            .0
    };
    let gateway_keys = test_bed.folder.join("keys/gateway");
    let gateway_keys = Keys::load(&gateway_keys).expect("the keys are valid").0;
    let unaccepted = [
        Encryption::Tls(Arc::new(load("edge"))),
        Encryption::Tls(Arc::new(gateway_keys)),
        Encryption::Off,
    ];
    let mut config = test_bed.config(EDGE);
    for (nth, encryption) in unaccepted.into_iter().enumerate() {
        config.encryption = encryption;
        config.times.handshake = Duration::from_secs(2);
        let client = Client::start(config.clone(), &gateway.local_addr().to_string());
        let client = client.expect("the client starts");
        assert_eq!(
            within(client.settled()).await,
            LinkState::Down,
            "unknown peer {nth}"
        );
        drop(client);
    }
    let status = gateway.status().await;
    // The gateway counts a refusal after the connection was closed, so it may not have counted the third one yet.
    assert!(status.counters.refused >= 2, "{:?}", status.counters);
    assert!(status.peers.is_empty());
}

/// An edge refuses a gateway with a certificate of another CA, and a gateway with an edge's certificate.
#[tokio::test]
async fn edges_refuse_unknown_gateways() {
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(true);
    let other_ca = tempfile::tempdir().expect("the folder can be created");
    edgeward_link::generate_keys(other_ca.path()).expect("the keys can be generated");
    let folders = [
        other_ca.path().join("gateway"),
        test_bed.folder.join("keys/edge"),
    ];
    let client_config = test_bed.config(EDGE);
    let mut config = test_bed.gateway_config(target.addr());
    for folder in folders {
        let keys = Keys::load(&folder).expect("the keys are valid").0;
        config.link.encryption = Encryption::Tls(Arc::new(keys));
        let gateway = Gateway::bind(config.clone())
            .await
            .expect("the listener can be bound");
        let addr = gateway.local_addr().to_string();
        let client = Client::start(client_config.clone(), &addr).expect("the client starts");
        assert_eq!(within(client.settled()).await, LinkState::Down);
        assert!(gateway.status().await.peers.is_empty());
    }
}

/// The gateway refuses a client that supports only TLS 1.2.
#[tokio::test]
async fn tls_1_2_is_refused() {
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(true);
    let gateway = test_bed.gateway(target.addr()).await;
    // A ClientHello of TLS 1.2, with signature_algorithms and without supported_versions (RFC 5246, section
    // 7.4.1.2).
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0],
        &[0, 4, 0xc0, 0x2b, 0xc0, 0x2f],
        &[1, 0],
        &[0, 8, 0, 13, 0, 4, 0, 2, 4, 3],
    ]
    .concat();
    let handshake = [&[1, 0, 0, body.len() as u8][..], &body].concat();
    let record = [&[0x16, 3, 1, 0, handshake.len() as u8][..], &handshake].concat();
    let mut tcp = TcpStream::connect(gateway.local_addr())
        .await
        .expect("the port is open");
    tcp.write_all(&record).await.expect("the bytes are sent");
    let mut answer = Vec::new();
    within(tcp.read_to_end(&mut answer))
        .await
        .expect("the connection is closed");
    // The gateway sends the fatal alert `protocol_version` (RFC 8446, section 6.2).
    assert_eq!(answer, [0x15, 3, 3, 0, 2, 2, 70]);
    // The gateway counts the refusal when the client has closed the connection, or after a second.
    drop(tcp);
    within(async {
        while gateway.status().await.counters.refused != 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// A simulated edge without encryption that sends the frames of a test.
struct ScriptedEdge {
    tcp: TcpStream,
}

impl ScriptedEdge {
    async fn connect(gateway: &Gateway) -> Self {
        let tcp = TcpStream::connect(gateway.local_addr())
            .await
            .expect("the port is open");
        Self { tcp }
    }

    async fn send(&mut self, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        // The gateway may have closed the connection already.
        _ = self.tcp.write_all(&bytes).await;
    }

    /// Sends HELLO. Returns the gateway's HELLO, or `None` if the gateway closes the connection instead.
    async fn hello(&mut self, hello: Hello) -> Option<Hello> {
        self.send(&Frame::Hello(hello)).await;
        match self.receive().await.map(|frame| {
            decode(&frame).map(|frame| match frame {
                Frame::Hello(hello) => Some(hello),
                _ => None,
            })
        }) {
            Some(Ok(hello)) => hello,
            _ => None,
        }
    }

    /// Receives a frame. Returns `None` if the connection is closed.
    async fn receive(&mut self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 16];
        within(self.tcp.read_exact(&mut frame)).await.ok()?;
        let length = frame_length(&frame).ok()??;
        frame.resize(length, 0);
        within(self.tcp.read_exact(&mut frame[16..])).await.ok()?;
        Some(frame)
    }

    /// Waits for the gateway to close the connection.
    async fn wait_for_close(&mut self) {
        while self.receive().await.is_some() {}
    }
}

fn hello(id_key: &IdKey, session: u64, epoch: u64) -> Hello {
    let chunker = ChunkerParams::new(8 << 10, 0).expect("the size is supported");
    Hello::new(id_key, chunker, session, epoch)
}

/// Starts a target and a gateway without encryption. Returns them with the key of the chunk ids.
async fn test_bed() -> (TestBed, Gateway, IdKey, TcpServer) {
    let target = TcpServer::echo();
    let mut test_bed = TestBed::new(false);
    let gateway = test_bed.gateway(target.addr()).await;
    let key = test_bed.folder.join("keys/edge/store.key");
    let id_key = edgeward_link::load_store_key(&key).expect("the key is valid");
    (test_bed, gateway, id_key, target)
}

/// The gateway closes and counts a connection of a peer that has another store key or another version, that does not
/// begin with HELLO, or that sends HELLO twice.
#[tokio::test]
async fn a_peer_with_another_key_or_version_or_without_hello_is_refused() {
    let (_test_bed, gateway, id_key, _target) = test_bed().await;
    let other = IdKey::new([9; 32]);
    let valid = hello(&id_key, 1, 1);
    let mut edge = ScriptedEdge::connect(&gateway).await;
    assert_eq!(
        edge.hello(hello(&other, 1, 1)).await,
        None,
        "the gateway reveals nothing"
    );
    // An edge of versions 1 and 2 gets the version of the gateway, so that both can report the two versions.
    let mut edge = ScriptedEdge::connect(&gateway).await;
    let older = Hello {
        version_min: 1,
        version_max: 2,
        ..valid
    };
    let answer = edge.hello(older).await.expect("the gateway answers");
    assert_eq!((answer.version_min, answer.version_max), (3, 3));
    edge.wait_for_close().await;
    let mut edge = ScriptedEdge::connect(&gateway).await;
    edge.send(&Frame::Epoch(1)).await;
    edge.wait_for_close().await;
    let mut edge = ScriptedEdge::connect(&gateway).await;
    edge.tcp
        .write_all(b"GET / HTTP/1.1\r\n\r\n")
        .await
        .expect("the bytes are sent");
    edge.wait_for_close().await;
    assert_eq!(gateway.status().await.counters.refused, 4);
    assert!(
        gateway.status().await.peers.is_empty(),
        "no peer is created for them"
    );

    let mut edge = ScriptedEdge::connect(&gateway).await;
    assert!(edge.hello(valid).await.is_some());
    edge.send(&Frame::Hello(valid)).await;
    edge.wait_for_close().await;
    assert_eq!(gateway.status().await.counters.violations, 1);
}

/// The gateway closes a connection if the peer sends a frame that is too long, corrupt, or beyond its credit.
#[tokio::test]
async fn a_peer_that_violates_the_protocol_is_disconnected() {
    let (_test_bed, gateway, id_key, target) = test_bed().await;
    // A label of kind 1 has the address of a TCP target.
    let label = [&[1][..], target.addr().to_string().as_bytes()].concat();
    let stream = StreamId(0);
    let span = |offset, length| Span {
        stream,
        offset,
        length,
    };
    let mut session = 0;
    let mut connect = async || {
        session += 1;
        let mut edge = ScriptedEdge::connect(&gateway).await;
        let gateway_hello = edge.hello(hello(&id_key, session, 7)).await;
        edge.send(&Frame::Open {
            stream,
            label: &label,
        })
        .await;
        (edge, gateway_hello.expect("the gateway accepts the HELLO"))
    };

    let (mut edge, _) = connect().await;
    // The header of a PLAIN frame (type 3) with a payload of 600 KiB, which is longer than `PAYLOAD_BYTES_MAX`.
    let mut header = [0; 16];
    header[..4].copy_from_slice(&(600_u32 << 10).to_le_bytes());
    header[4] = 3;
    edge.tcp
        .write_all(&header)
        .await
        .expect("the bytes are sent");
    edge.wait_for_close().await;

    let (mut edge, _) = connect().await;
    let mut bytes = Vec::new();
    let plain = |payload| Frame::Plain {
        span: span(0, 5),
        method: Method::None,
        payload,
    };
    plain(&b"hello"[..]).encode(&mut bytes);
    *bytes.last_mut().expect("the frame has bytes") ^= 1;
    edge.tcp
        .write_all(&bytes)
        .await
        .expect("the bytes are sent");
    edge.wait_for_close().await;
    assert_eq!(gateway.status().await.counters.malformed, 2);
    assert_eq!(gateway.status().await.counters.violations, 0);

    let (mut edge, gateway_hello) = connect().await;
    let beyond = Frame::Plain {
        span: span(gateway_hello.credit - 1, 2),
        method: Method::None,
        payload: b"hi",
    };
    edge.send(&beyond).await;
    edge.wait_for_close().await;
    assert_eq!(gateway.status().await.counters.violations, 1);

    // A repeated frame has no effect: its offset shows that the bytes were already received.
    let (mut edge, _) = connect().await;
    edge.send(&plain(b"hello")).await;
    edge.send(&plain(b"hello")).await;
    let mut echoed = Vec::new();
    while echoed.len() < 5 {
        let frame = edge.receive().await.expect("the response is complete");
        if let Ok(Frame::Plain { payload, .. }) = decode(&frame) {
            echoed.extend_from_slice(payload);
        }
    }
    assert_eq!(echoed, b"hello", "the repeated frame has no effect");
}

/// An edge that sends requests and reads no answers is disconnected, and another edge is served meanwhile.
///
/// Method: send CLOSE of unknown streams, each of which causes a NAK, until the gateway closes the connection.
#[tokio::test]
async fn a_flood_of_an_edge_that_reads_nothing_ends_its_connection_alone() {
    let (mut test_bed, gateway, id_key, target) = test_bed().await;
    let client = test_bed.client(gateway.local_addr());
    assert!(matches!(within(client.settled()).await, LinkState::Up(_)));
    let mut flooding = ScriptedEdge::connect(&gateway).await;
    let greeted = flooding.hello(hello(&id_key, 1, 7)).await;
    greeted.expect("the gateway accepts the HELLO");
    let closes = (0..1024).map(StreamId).map(|stream| Frame::Close {
        stream,
        length: 0,
        digest: 0,
    });
    let mut frames = Vec::new();
    closes.for_each(|close| close.encode(&mut frames));
    let flood = within(async { while flooding.tcp.write_all(&frames).await.is_ok() {} });
    let others = async {
        let mut exchanges = 0_u64;
        while gateway.status().await.counters.violations == 0 {
            let stream = client.open(tcp(target.addr())).expect("the link is up");
            let back = within(echo(stream, b"hello")).await;
            assert_eq!(back.expect("the body returns"), b"hello");
            exchanges += 1;
        }
        exchanges
    };
    let ((), exchanges) = tokio::join!(flood, others);
    assert!(exchanges > 0);
    assert_eq!(gateway.status().await.counters.violations, 1);
}

/// A peer that knows only the hash of a chunk cannot read the chunk if another peer sent it.
#[tokio::test]
async fn a_hash_alone_does_not_reveal_a_chunk() {
    let (mut test_bed, gateway, id_key, target) = test_bed().await;
    let secret = crate::bodies::Random(5).text(40_000);
    let client = test_bed.client(gateway.local_addr());
    let stream = client.open(tcp(target.addr())).expect("the link is up");
    let back = within(echo(stream, &secret)).await;
    assert_eq!(back.expect("the target echoes the body"), secret);

    let mut edge = ScriptedEdge::connect(&gateway).await;
    let gateway_hello = edge
        .hello(hello(&id_key, 99, 99))
        .await
        .expect("the gateway accepts the HELLO");
    // Computes the hash of the body's first chunk, which begins at 4 KiB: the first 4 KiB of a stream bypass
    // deduplication. An attacker with the store key who guesses the content can compute it too.
    let mut chunker = edgeward_dedup::chunker::Chunker::new(gateway_hello.chunker);
    let rest = &secret[4096..];
    let length = chunker
        .next_cut(rest)
        .expect("the body has a chunk boundary");
    let id = id_key.id(&rest[..length]);
    let label = [&[1][..], target.addr().to_string().as_bytes()].concat();
    let stream = StreamId(0);
    edge.send(&Frame::Open {
        stream,
        label: &label,
    })
    .await;
    let span = Span {
        stream,
        offset: 0,
        length: length as u32,
    };
    edge.send(&Frame::Ref {
        span,
        skip: 0,
        ids: vec![id],
    })
    .await;
    loop {
        let frame = edge.receive().await.expect("the response is complete");
        match decode(&frame).expect("the frame is valid") {
            Frame::Nak { stream, offset, .. } => {
                assert_eq!((stream, offset), (StreamId(0), 0));
                break;
            }
            Frame::Plain { .. } | Frame::Literal { .. } => panic!("the chunk was delivered"),
            _ => {}
        }
    }
    let status = gateway.status().await;
    let refused_references: u64 = status.peers.iter().map(|peer| peer.received.foreign).sum();
    assert_eq!(refused_references, 1);
}
