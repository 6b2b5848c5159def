//! Tests the limit of unacknowledged bytes of an edge. The peer grants more credit (bytes that may be sent on a stream)
//! than the limit.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use edgeward_dedup::chunker::ChunkerParams;
use edgeward_dedup::wire::{Frame, Hello, StreamAck, StreamId, StreamState, decode, frame_length};
use edgeward_link::{Client, Target};

use crate::bodies::Random;
use crate::test_bed::{EDGE, TestBed, within};

/// A simulated gateway that reads frames, and acknowledges them only when the test sends an acknowledgement.
struct ScriptedPeer {
    tcp: TcpStream,
    /// The highest received offset of each stream.
    received: BTreeMap<StreamId, u64>,
    /// The received bytes that are not decoded yet.
    inbox: Vec<u8>,
    /// The number of received bytes.
    received_bytes: u64,
}

impl ScriptedPeer {
    async fn receive(&mut self) {
        let mut more = vec![0; 64 << 10];
        let read = within(self.tcp.read(&mut more)).await;
        let bytes = read.expect("the stream is open");
        assert!(bytes > 0, "the edge closed the connection");
        self.received_bytes += bytes as u64;
        self.inbox.extend_from_slice(&more[..bytes]);
        while let Some(length) = frame_length(&self.inbox).expect("the frames are valid")
            && length <= self.inbox.len()
        {
            match decode(&self.inbox[..length]).expect("the frame is valid") {
                Frame::Plain { span, .. } | Frame::Literal { span, .. } => {
                    let received = self.received.entry(span.stream).or_default();
                    *received = (*received).max(span.end());
                }
                _ => {}
            }
            self.inbox.drain(..length);
        }
    }

    async fn send(&mut self, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.tcp
            .write_all(&bytes)
            .await
            .expect("the stream is open");
    }
}

/// The length of the edge's HELLO frame in bytes. `status.sent.wire` does not count this frame.
const HELLO_BYTES: u64 = 84;

/// The unacknowledged bytes of a thousand bodies stay within the edge's limit, although the gateway grants more
/// credit. After an acknowledgement, the edge sends as many bytes as were acknowledged.
///
/// Method: grant every stream a megabyte of credit. Read all frames without acknowledging them until the edge's
/// limit is reached, and then acknowledge all of them. Repeat this four times.
#[tokio::test]
async fn unacknowledged_bodies_stay_within_the_limit() {
    const STREAMS: usize = 1000;
    const UNACKED_BYTES_MAX: usize = 8 << 20;
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("the listener can be bound");
    let addr = listener.local_addr().expect("the address is valid");
    // Without encryption, so that the simulated gateway can decode the frames.
    let mut test_bed = TestBed::new(false);
    let key = test_bed.folder.join("keys/edge/store.key");
    let id_key = edgeward_link::load_store_key(&key).expect("the key is valid");
    let mut config = test_bed.config(EDGE);
    config.unacked_bytes_max = UNACKED_BYTES_MAX;
    config.connections = 1;
    // Other processes may delay the test. The edge must not close its connection because of that.
    config.times.keep_alive = Duration::from_secs(3600);
    let client = Client::start(config, &addr.to_string()).expect("the client starts");
    let (tcp, _) = within(listener.accept())
        .await
        .expect("the client connects");
    let mut peer = ScriptedPeer {
        tcp,
        received: BTreeMap::new(),
        inbox: Vec::new(),
        received_bytes: 0,
    };
    let chunker = ChunkerParams::new(8 << 10, 0).expect("the size is supported");
    let hello = Hello {
        credit: 1 << 20,
        streams_max: STREAMS as u32,
        ..Hello::new(&id_key, chunker, 1, 1)
    };
    peer.send(&Frame::Hello(hello)).await;
    within(client.up()).await;

    let mut writers = JoinSet::new();
    for n in 0..STREAMS {
        let target = Target::Tcp("db:3306".parse().expect("the text is a host and a port"));
        let mut stream = client
            .open(target)
            .expect("the limit of streams is not reached");
        writers.spawn(async move {
            let body = Random(n as u64).noise(50_000);
            stream
                .write_all(&body)
                .await
                .expect("the stream accepts the bytes");
            // Keeps the stream open until the end of the test, because the peer never answers it.
            std::future::pending::<()>().await;
        });
    }
    assert!(
        client.open(Target::Origin).is_err(),
        "the limit of streams is reached"
    );
    let (mut written_before, mut acked_before) = (0, 0);
    for round in 0..4 {
        // Reads until the edge has sent new bytes, at most a tenth of the limit is free, and all bytes that the edge
        // has sent are received.
        let mut status = client.status().await;
        while status.sent.written <= written_before
            || status.unacked_bytes <= UNACKED_BYTES_MAX * 9 / 10
            || peer.received_bytes < HELLO_BYTES + status.sent.wire
            || peer.received.values().sum::<u64>() <= acked_before
        {
            peer.receive().await;
            status = client.status().await;
            let unacked = status.unacked_bytes;
            assert!(
                unacked <= UNACKED_BYTES_MAX,
                "round {round}: {unacked} bytes are unacknowledged"
            );
        }
        written_before = status.sent.written;
        acked_before = peer.received.values().sum();
        let acks = peer.received.iter().map(|(&stream, &offset)| StreamAck {
            stream,
            state: StreamState::Open,
            offset,
        });
        let acks: Vec<_> = acks.collect();
        peer.send(&Frame::Ack(acks)).await;
    }
    assert!(
        written_before < (STREAMS * 50_000) as u64,
        "the limit was never reached: the test shows nothing"
    );
}
