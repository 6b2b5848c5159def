//! Tests of a connection over a simulated socket.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Wake, Waker};

use edgeward_chunk_store::{ChunkSettings, Chunks, ScratchDevice};
use edgeward_dedup::endpoint::Endpoint;
use edgeward_dedup::id::IdKey;
use edgeward_dedup::receiver::Sharing;
use edgeward_dedup::wire::{Frame, Role, decode, frame_length};

use super::*;
use crate::config::Encryption;
use crate::core::{Core, CoreConfig, Written};
use crate::label::Target;

/// A socket that delivers nothing, and accepts nothing until `takes` is true.
#[derive(Clone, Default)]
struct Socket(Arc<Mutex<Taken>>);

#[derive(Default)]
struct Taken {
    takes: bool,
    bytes: Vec<u8>,
    waker: Option<Waker>,
}

impl Socket {
    fn taken(&self) -> std::sync::MutexGuard<'_, Taken> {
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
        let mut taken = self.taken();
        if !taken.takes {
            taken.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        taken.bytes.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Counts how often it is woken.
#[derive(Debug, Default)]
struct Woken(AtomicU64);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn end(session: u64) -> (Core, LinkConfig) {
    let device = ScratchDevice::new(&std::env::temp_dir(), 16 << 20).expect("a file");
    let store = Chunks::open(Arc::new(device), ChunkSettings::new(8 << 10, session));
    let store = store.expect("a store");
    let config = LinkConfig::new(Encryption::Off, IdKey::new([3; 32]), store.clone());
    let endpoint = config.endpoint(Sharing::Exchanged, true, session);
    let core = CoreConfig {
        accepts: false,
        dedup: true,
        probe: false,
        unacked_max: config.unacked_bytes_max,
    };
    let endpoint = Endpoint::new(endpoint.expect("possible"));
    (Core::new(core, endpoint, store), config)
}

/// While the socket accepts nothing, bytes whose holding time has passed do not wake the task repeatedly. When the
/// socket accepts bytes again, they are sent as well.
///
/// Method: the beginning of a body waits for a blocked socket, and its rest waits for its holding time. The test
/// counts wake-ups until a timer fires that was set long after that time. Then the socket accepts everything.
#[tokio::test]
async fn an_alarm_before_a_blocked_socket_rings_once() {
    let ((mut core, config), (mut other, _)) = (end(1), end(2));
    let (ours, theirs) = (core.hello(), other.hello());
    let id = core.line_up(Role::Connector, &ours, &theirs);
    let id = id.expect("they agree");
    let talk = core.open(Target::Origin).expect("the first");
    let body = vec![7; 6000];
    let written = core.write(
        talk,
        &body,
        Instant::now(),
        Waker::noop(),
        &mut Turn::default(),
    );
    assert_eq!(written, Written::Bytes(body.len()));
    let (socket, peer) = (Socket::default(), Arc::new(Peer::new(core)));
    let line = Line::new(socket.clone(), peer, id, Checksum::Whole, &config);
    let mut line = line.expect("a timer");
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut seen = u64::MAX;
    // As a runtime does: the connection is polled after a wake-up.
    let mut poll = |times: &mut u64| {
        let now = woken.0.load(Ordering::Relaxed);
        if std::mem::replace(&mut seen, now) != now {
            *times += 1;
            assert!(line.poll(&mut Context::from_waker(&waker)).is_pending());
        }
    };
    let (mut times, mut alarm) = (0, Alarm::new().expect("a timer"));
    let late = Instant::now() + Duration::from_millis(20);
    alarm.set(Some(late)).expect("set");
    std::future::poll_fn(|cx| {
        poll(&mut times);
        let rings = alarm.poll(cx);
        // The reactor has to be polled, and no other task is ready meanwhile.
        step_aside(cx);
        rings
    })
    .await
    .expect("a ring");
    assert!((2..10).contains(&times), "it was woken {times} times");
    assert!(socket.taken().bytes.is_empty());
    socket.taken().takes = true;
    let waker = socket.taken().waker.take();
    waker.expect("the connection waits for it").wake();
    std::future::poll_fn(|cx| {
        poll(&mut times);
        let bytes = body_bytes(&socket.taken().bytes);
        step_aside(cx);
        if bytes == body.len() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    assert!(times < 20, "it was woken {times} times");
}

/// Returns the number of body bytes in these frames.
fn body_bytes(mut frames: &[u8]) -> usize {
    let mut bytes = 0;
    while let Ok(Some(length)) = frame_length(frames)
        && length <= frames.len()
    {
        let (frame, rest) = frames.split_at(length);
        bytes += match decode(frame).expect("our own") {
            Frame::Plain { span, .. } | Frame::Literal { span, .. } => span.length as usize,
            _ => 0,
        };
        frames = rest;
    }
    bytes
}
