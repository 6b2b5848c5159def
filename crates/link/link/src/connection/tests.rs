//! Tests of a connection over a simulated socket.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use edgeward_chunk_store::{ChunkSettings, Chunks, ScratchDevice};
use edgeward_dedup::endpoint::Endpoint;
use edgeward_dedup::id::IdKey;
use edgeward_dedup::receiver::Sharing;
use edgeward_dedup::wire::{Frame, Role, decode, frame_length};
use edgeward_types::SplitMix64;

use super::*;
use crate::config::Encryption;
use crate::core::{Core, CoreConfig, Written};
use crate::knowledge_pages::KnowledgePages;
use crate::label::Target;

/// A simulated socket. It never delivers bytes, and it accepts bytes only while `accepts` is true.
#[derive(Clone, Default)]
struct Socket(Arc<Mutex<SocketState>>);

#[derive(Default)]
struct SocketState {
    accepts: bool,
    bytes: Vec<u8>,
    waker: Option<Waker>,
}

impl Socket {
    fn state(&self) -> std::sync::MutexGuard<'_, SocketState> {
        self.0.lock().expect("no thread panics")
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.state();
        if !state.accepts {
            state.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        state.bytes.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Counts the wake-ups of a task.
#[derive(Debug, Default)]
struct WakeCounter(AtomicU64);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns an endpoint with deduplication and a store for chunks of 8 KiB. `session` is its random number.
pub(crate) fn endpoint(session: u64) -> (Core, LinkConfig) {
    let device =
        ScratchDevice::new(&std::env::temp_dir(), 16 << 20).expect("the file can be created");
    let store = Chunks::open(Arc::new(device), ChunkSettings::new(8 << 10, session));
    let store = store.expect("the store opens");
    let config = LinkConfig::new(Encryption::Off, IdKey::new([3; 32]), store.clone());
    // `true`: the peer may also reference chunks that this endpoint has sent.
    let endpoint = config.endpoint(Sharing::Exchanged, true, session);
    let core = CoreConfig {
        accepts: false,
        dedup: true,
        probe: false,
        unacked_max: config.unacked_bytes_max,
    };
    let endpoint = Endpoint::new(endpoint.expect("the configuration is valid"));
    let pages = KnowledgePages::new(usize::MAX, 1);
    (Core::new(core, endpoint, store, pages), config)
}

/// The connection holds the end of a body back for up to 2 ms, so that more bytes can complete its last chunk. While
/// the socket is not writable, the timer of held bytes wakes the connection once and not repeatedly. When the socket is
/// writable again, the held bytes are sent, and the connection then keeps no memory of their frames.
///
/// Method: write a body of 6,000 bytes while the socket accepts no bytes, so that its beginning waits for the socket
/// and its end is held. Count the wake-ups for 20 ms, which is much longer than the holding time. Then let the socket
/// accept all bytes, and check that the whole body is sent.
#[tokio::test]
async fn a_timer_does_not_wake_a_blocked_connection_repeatedly() {
    let ((mut core, config), (mut other, _)) = (endpoint(1), endpoint(2));
    let (our_hello, peer_hello) = (core.hello(), other.hello());
    let id = core.add_connection(Role::Connector, &our_hello, &peer_hello);
    let id = id.expect("the endpoints are compatible");
    let duplex = core
        .open(Target::Origin)
        .expect("the limit of streams is not reached");
    // Bytes that no compression shortens.
    let mut numbers = SplitMix64(1);
    let body: Vec<u8> = (0..6000).map(|_| numbers.draw() as u8).collect();
    let written = core.write(duplex, &body, Instant::now(), &mut Budget::default());
    assert_eq!(written, Written::Bytes(body.len()));
    let socket = Socket::default();
    let connection = Connection::new(socket.clone(), Checksum::Whole, &config);
    let mut connection = connection.expect("the timer can be created");
    connection.set_id(id);
    let wakes = Arc::new(WakeCounter::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut polled_wakes = u64::MAX;
    // Polls the connection if it was woken since the last poll, like a runtime.
    let mut poll = |polls: &mut u64| {
        let wake_count = wakes.0.load(Ordering::Relaxed);
        if std::mem::replace(&mut polled_wakes, wake_count) != wake_count {
            *polls += 1;
            let (cx, mut budget) = (&mut Context::from_waker(&waker), Budget::default());
            while connection
                .turn(cx, &mut core, Instant::now(), &mut budget)
                .expect("the connection is up")
            {}
            connection
                .check_timers(cx, &core)
                .expect("the connection is up");
        }
    };
    let (mut polls, mut timer) = (0, Timer::new().expect("the timer can be created"));
    let after_hold = Instant::now() + Duration::from_millis(20);
    timer.set(Some(after_hold)).expect("the timer can be set");
    std::future::poll_fn(|cx| {
        poll(&mut polls);
        let expired = timer.poll(cx);
        // The runtime polls timers and sockets only while no task is ready.
        yield_now(cx);
        expired
    })
    .await
    .expect("the timer expires");
    assert!(
        (2..10).contains(&polls),
        "the connection was polled {polls} times"
    );
    assert!(socket.state().bytes.is_empty());
    socket.state().accepts = true;
    let waker = socket.state().waker.take();
    waker.expect("the connection waits for the socket").wake();
    std::future::poll_fn(|cx| {
        poll(&mut polls);
        let bytes = body_bytes(&socket.state().bytes);
        yield_now(cx);
        if bytes == body.len() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    assert!(polls < 20, "the connection was polled {polls} times");
    let kept = connection.out.allocated_bytes();
    assert!(kept <= 1 << 10, "{kept} bytes");
}

/// Returns the number of body bytes in these frames.
fn body_bytes(mut frames: &[u8]) -> usize {
    let mut bytes = 0;
    while let Ok(Some(length)) = frame_length(frames)
        && length <= frames.len()
    {
        let (frame, rest) = frames.split_at(length);
        bytes += match decode(frame).expect("the connection's frames are valid") {
            Frame::Plain { span, .. } | Frame::Literal { span, .. } => span.length as usize,
            _ => 0,
        };
        frames = rest;
    }
    bytes
}
