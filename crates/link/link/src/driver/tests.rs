//! Tests of the task of a peer over simulated sockets.

use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use edgeward_dedup::reason;
use edgeward_dedup::wire::{Checksum, Hello, Role};

use super::*;
use crate::config::LinkConfig;
use crate::connection::tests::endpoint;
use crate::label::Target;
use crate::peer::{AddedConnection, Peer};
use crate::stream::LinkStream;

/// A socket that panics when it is read.
struct PanickingSocket;

impl AsyncRead for PanickingSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        panic!("a panic of a test")
    }
}

impl AsyncWrite for PanickingSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn open(peer: &Arc<Peer>) -> LinkStream {
    let (stream, pipes) = LinkStream::new(peer.pipe_memory());
    let slot = peer.reserve_stream().expect("a slot is free");
    let opened = peer.send(Message::Open {
        target: Target::Origin,
        pipes,
        slot,
    });
    opened.expect("the task takes the message");
    stream
}

/// Adds a connection over this socket to an edge. Its other endpoint is a core.
async fn connect(
    peer: &Peer,
    config: &LinkConfig,
    other: &mut Core,
    socket: impl crate::connection::Io + 'static,
) -> AddedConnection {
    let our_hello = peer.call(Core::hello).await.expect("the task runs");
    let connection = Connection::new(socket, Checksum::Whole, config);
    let connection = connection.expect("the timer can be created");
    let connected = peer.connect(connection, Role::Connector, our_hello, other.hello());
    connected.await.expect("the endpoints are compatible")
}

async fn open_streams(peer: &Peer) -> usize {
    let streams = peer.call(|core| core.open_streams()).await;
    streams.expect("the task runs")
}

/// A panic of the task of a peer ends the streams and connections of this peer, and of no other. The peer can then open
/// streams again.
#[tokio::test]
async fn a_panic_of_a_task_ends_the_streams_of_its_peer_alone() {
    let ((core, config), (mut remote, _), (other_core, _)) =
        (endpoint(1), endpoint(2), endpoint(3));
    let mut tasks = JoinSet::new();
    let [peer, other] = [core, other_core].map(|core| {
        let (peer, driver, _) = Peer::new(core);
        tasks.spawn(driver.run());
        peer
    });
    let (mut stream, mut other_stream) = (open(&peer), open(&other));
    let session = |hello: Option<Hello>| hello.expect("the task runs").session;
    let before = session(peer.call(Core::hello).await);
    let connection = connect(&peer, &config, &mut remote, PanickingSocket).await;
    let end = connection.ended().await;
    assert!(matches!(end, ConnectionError::Superseded), "{end:?}");
    assert_eq!(peer.state().connections, 0);
    let error = stream.chunk().await.expect_err("the stream has ended");
    let expected = crate::StreamError {
        reason: reason::RESTARTED,
    };
    assert_eq!(error.to_string(), expected.to_string());
    while stream.write_all(b"x").await.is_ok() {
        tokio::task::yield_now().await;
    }

    other_stream
        .write_all(b"x")
        .await
        .expect("the stream is open");
    let polled = other_stream.poll_chunk(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());

    assert_ne!(session(peer.call(Core::hello).await), before);
    assert_eq!(peer.state().connections, 0);
    let mut next = open(&peer);
    next.write_all(b"x").await.expect("the stream is open");
    drop(stream);
    while open_streams(&peer).await != 1 {
        tokio::task::yield_now().await;
    }
}

/// A violation that is found in the answer of the store ends the connections, and one of them reports it.
#[tokio::test]
async fn a_violation_in_a_late_answer_is_reported_once() {
    let ((core, config), (mut other, _), mut tasks) = (endpoint(1), endpoint(2), JoinSet::new());
    let (peer, driver, _) = Peer::new(core);
    tasks.spawn(driver.run());
    let (one, _remote) = tokio::io::duplex(1 << 20);
    let first = connect(&peer, &config, &mut other, one).await;
    let (two, _remote) = tokio::io::duplex(1 << 20);
    let second = connect(&peer, &config, &mut other, two).await;
    peer.call(|core| core.end_by_violation(edgeward_dedup::Violation::Direction))
        .await;
    let (first, second) = (first.ended().await, second.ended().await);
    let violations = [&first, &second].map(|end| matches!(end, ConnectionError::Violation(_)));
    assert_eq!(
        violations.iter().filter(|is| **is).count(),
        1,
        "{first:?}, {second:?}"
    );
    assert_eq!(peer.state().connections, 0);
}

/// If too many messages wait for the task of a peer, further streams are refused.
#[tokio::test]
async fn messages_to_a_task_are_bounded() {
    let (peer, _driver, _) = Peer::new(endpoint(1).0);
    let send = || peer.send(Message::Call(Box::new(|_| {})));
    assert!((0..crate::peer::MESSAGES_MAX).all(|_| send().is_ok()));
    assert!(send().is_err());
}

/// A TCP connection is reset if its stream fails, and if the task that waits for its end is dropped.
#[tokio::test]
async fn a_connection_whose_stream_fails_is_reset() {
    for is_dropped in [true, false] {
        let (peer, driver, _) = Peer::new(endpoint(1).0);
        let mut tasks = JoinSet::new();
        tasks.spawn(driver.run());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let addr = listener.local_addr().expect("the listener has an address");
        let mut client = TcpStream::connect(addr).await.expect("the port listens");
        let (tcp, _) = listener.accept().await.expect("a client has connected");
        let pump = tokio::spawn(open(&peer).pump(tcp));
        while open_streams(&peer).await == 0 {
            tokio::task::yield_now().await;
        }
        if is_dropped {
            pump.abort();
        } else {
            peer.call(Core::shut_down).await;
            let result = pump.await.expect("the task does not panic");
            assert!(result.is_err());
        }
        let read = client.read(&mut [0]).await;
        let kind = read.expect_err("the connection is reset").kind();
        assert_eq!(kind, io::ErrorKind::ConnectionReset);
        while open_streams(&peer).await != 0 {
            tokio::task::yield_now().await;
        }
    }
}
