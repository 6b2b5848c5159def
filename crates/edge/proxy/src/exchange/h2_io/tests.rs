//! Tests of [`H2Io`] with a socket that accepts and returns bytes in given pieces.

use proptest::prelude::*;
use std::task::Waker;

use super::*;

use crate::rt::budget::MemoryBudget;
use crate::rt::clock::Ticker;

/// A client's stream. Each write takes the last of `write_sizes` and writes at most this many bytes, or none at 0.
#[derive(Debug, Default)]
struct SocketMock {
    /// The bytes that the peer has sent.
    inbound: Vec<u8>,
    write_sizes: Vec<usize>,
    writes: Vec<Vec<u8>>,
}

impl AsyncRead for SocketMock {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.inbound.is_empty() {
            return Poll::Pending;
        }
        let n = self.inbound.len().min(buffer.remaining());
        buffer.put_slice(&self.inbound[..n]);
        self.inbound.drain(..n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SocketMock {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let most = self.write_sizes.pop().unwrap_or(usize::MAX);
        if most == 0 {
            return Poll::Pending;
        }
        let taken = &bytes[..bytes.len().min(most)];
        self.writes.push(taken.to_vec());
        Poll::Ready(Ok(taken.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
        self.poll_write(cx, &all)
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Writes frames as the crate h2 does, each with a flush, and calls `poll_out` after every third frame. Returns
/// the writes that the client got.
fn writes_of(frames: &[Vec<u8>], write_sizes: Vec<usize>) -> Vec<Vec<u8>> {
    let clock = Ticker::start().expect("the thread starts").clock();
    let client = SocketMock {
        write_sizes,
        ..SocketMock::default()
    };
    let conn = ConnState::new(Arc::clone(&clock), MemoryBudget::new(u64::MAX, None));
    let io = H2Io::new(client, &LimitsConfig::default(), clock, &conn);
    let mut hyper_io = io.share();
    let mut cx = Context::from_waker(Waker::noop());
    for (n, frame) in frames.iter().enumerate() {
        let mut left = &frame[..];
        while !left.is_empty() {
            let (head, body) = left.split_at(left.len().min(9));
            let pieces = [head, body].map(io::IoSlice::new);
            match Pin::new(&mut hyper_io).poll_write_vectored(&mut cx, &pieces) {
                Poll::Ready(taken) => left = &left[taken.expect("the socket is open")..],
                Poll::Pending => {}
            }
        }
        assert!(Pin::new(&mut hyper_io).poll_flush(&mut cx).is_ready());
        if n % 3 == 2 {
            _ = io.poll_out(&mut cx);
        }
    }
    while io.poll_out(&mut cx).is_pending() {}
    drop(hyper_io);
    let (io, last_bytes) = io.into_stream_and_goaway().expect("whole frames");
    assert_eq!(last_bytes.len(), 17, "only GOAWAY remains");
    io.writes
}

#[test]
fn small_frames_of_one_poll_are_written_together() {
    let frames = [vec![1; 100], vec![2; 1033], vec![3; 1033]];
    assert_eq!(writes_of(&frames, Vec::new()), [frames.concat()]);
    let large = [vec![1; 100], vec![2; 20_000]];
    assert_eq!(writes_of(&large, Vec::new()), [large.concat()]);
}

/// Method: the peer sends frames of two streams in turn. hyper may answer each, and its answers are not written.
#[test]
fn frames_wait_until_the_answers_to_earlier_ones_are_written() {
    let clock = Ticker::start().expect("the thread starts").clock();
    let frames = 3 * UNANSWERED_FRAMES_MAX;
    let frame = |n: usize| [0, 0, 1, 0, 0, 0, 0, 0, 1 + 2 * (n as u8 % 2), b'x'];
    let mut inbound = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    inbound.extend((0..frames).flat_map(frame));
    let all = inbound.len();
    let client = SocketMock {
        inbound,
        ..SocketMock::default()
    };
    let conn = ConnState::new(Arc::clone(&clock), MemoryBudget::new(u64::MAX, None));
    let io = H2Io::new(client, &LimitsConfig::default(), clock, &conn);
    let mut hyper_io = io.share();
    let mut cx = Context::from_waker(Waker::noop());
    let mut read_all = || {
        let mut read = 0;
        loop {
            let mut space = [0; 1000];
            let mut space = ReadBuf::new(&mut space);
            match Pin::new(&mut hyper_io).poll_read(&mut cx, &mut space) {
                Poll::Ready(result) => result.expect("the frames are valid"),
                Poll::Pending => return read,
            }
            read += space.filled().len();
        }
    };
    let first = read_all();
    assert!(first > 10 * UNANSWERED_FRAMES_MAX && first < all, "{first}");
    assert_eq!(read_all(), 0);
    let mut cx = Context::from_waker(Waker::noop());
    let mut read = first;
    while read < all {
        assert!(io.poll_out(&mut cx).is_ready());
        read += read_all();
    }
    assert_eq!(read, all);
}

proptest! {
    /// The client gets all frames in their order, regardless of how many bytes it accepts at a time.
    #[test]
    fn frames_arrive_whole_and_in_order(
        sizes in prop::collection::vec(prop_oneof![1usize..2000, 16_000usize..40_000], 0..12),
        write_sizes in prop::collection::vec(prop_oneof![Just(0usize), 1usize..20_000], 0..20),
    ) {
        let frame = |(n, &bytes): (usize, &usize)| vec![n as u8; bytes];
        let frames: Vec<_> = sizes.iter().enumerate().map(frame).collect();
        prop_assert_eq!(writes_of(&frames, write_sizes).concat(), frames.concat());
    }
}
