//! Tunnels: connections of a client and the origin that have switched to another protocol, such as WebSocket. The edge
//! copies the bytes in both directions until both peers have closed.
//!
//! An idle tunnel has no buffer and no timer. Bytes are read to the stack and written at once; only bytes that the
//! other peer does not accept are kept, at most [`READ_BYTES`] for each direction. The worker's sweep ends tunnels that
//! are idle for too long.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::tunnels::Progress;
use super::worker::Worker;
use crate::exchange::InFlight;
use crate::observe::causes::TunnelEnd;
use crate::observe::observation::Observation;
use crate::origin::SwitchedConnection;

/// A tunnel before and while it runs. Dropping it closes the connection to the origin, and logs the request.
pub(crate) struct Tunnel {
    worker: Rc<Worker>,
    connection: SwitchedConnection,
    progress: Rc<Progress>,
    end: TunnelEnd,
    bytes_to_client: u64,
    /// The record of the request, from when the codec takes the tunnel.
    observation: Option<Observation>,
}

impl Tunnel {
    pub(super) fn new(worker: &Rc<Worker>, connection: SwitchedConnection) -> Self {
        worker.counters.tunnels.increment();
        let progress = Rc::new(Progress::new(Arc::clone(&worker.shared.clock)));
        worker.tunnels.watch(&progress);
        Self {
            worker: Rc::clone(worker),
            connection,
            progress,
            end: TunnelEnd::Stopped,
            bytes_to_client: 0,
            observation: None,
        }
    }

    pub(super) fn set_observation(&mut self, observation: Option<Observation>) {
        self.observation = observation;
    }

    /// Copies bytes between the origin and the client's `stream` until both have closed. `early` has the bytes that the
    /// client sent before the 101. `in_flight` keeps the client's connection from counting as idle.
    pub(crate) async fn run<C>(
        mut self: Box<Self>,
        mut stream: C,
        early: BytesMut,
        in_flight: InFlight,
    ) where
        C: AsyncRead + AsyncWrite + Unpin,
    {
        let received = std::mem::take(&mut self.connection.received);
        let mut to_origin = Direction::new(early);
        let mut to_client = Direction::new(received);
        let this = &mut *self;
        let counters = Arc::clone(&this.worker.counters);
        let conn = in_flight.conn();
        let mut held = conn.holding(0);
        let copying = std::future::poll_fn(|cx| {
            let progress = &this.progress;
            if progress.is_idle() {
                return Poll::Ready(TunnelEnd::Idle);
            }
            let origin = &mut this.connection.stream;
            let up = to_origin.poll(&mut stream, origin, progress, cx);
            let forwarded = to_origin.take_written();
            counters.tunnel_bytes_to_origin.add(forwarded);
            conn.record_content_read(forwarded);
            let down = to_client.poll(origin, &mut stream, progress, cx);
            let written = to_client.take_written();
            counters.tunnel_bytes_to_client.add(written);
            counters.response_bytes.add(written);
            this.bytes_to_client += written;
            held.set((to_origin.unsent.capacity() + to_client.unsent.capacity()) as u64);
            match (up, down) {
                (Poll::Ready(Err(_)), _) | (_, Poll::Ready(Err(_))) => {
                    Poll::Ready(TunnelEnd::Failed)
                }
                (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Poll::Ready(TunnelEnd::Closed),
                (up, down) => {
                    progress.set_half_closed(up.is_ready() || down.is_ready());
                    progress.register_task(cx);
                    Poll::Pending
                }
            }
        });
        let end = copying.await;
        self.end = end;
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        let counters = &self.worker.counters;
        counters.tunnels.decrement();
        counters.tunnels_ended[self.end].increment();
        if let Some(mut observation) = self.observation.take() {
            observation.set_body(self.bytes_to_client, self.end != TunnelEnd::Closed);
            self.worker.finish(observation);
        }
    }
}

/// One direction of a tunnel.
#[derive(Debug)]
struct Direction {
    /// Bytes that were read, but that the receiver has not accepted.
    unsent: BytesMut,
    /// Written bytes that [`take_written`](Self::take_written) has not returned.
    written: u64,
    /// True if bytes were written after the last flush. TLS keeps bytes until it is flushed.
    needs_flush: bool,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// The sender has closed, and the receiver has not been informed.
    Ended,
    Closed,
}

impl Direction {
    fn new(unsent: BytesMut) -> Self {
        Self {
            unsent,
            written: 0,
            needs_flush: false,
            stage: Stage::Open,
        }
    }

    fn take_written(&mut self) -> u64 {
        std::mem::take(&mut self.written)
    }

    /// Copies bytes from `sender` to `receiver`. Resolves when the sender has closed and the receiver was informed.
    fn poll<S, R>(
        &mut self,
        sender: &mut S,
        receiver: &mut R,
        progress: &Progress,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>>
    where
        S: AsyncRead + Unpin,
        R: AsyncWrite + Unpin,
    {
        let mut left = BYTES_PER_POLL;
        loop {
            while !self.unsent.is_empty() {
                let written = ready!(Pin::new(&mut *receiver).poll_write(cx, &self.unsent))?;
                self.record_write(written, progress)?;
                self.unsent.advance(written);
                if self.unsent.is_empty() {
                    self.unsent = BytesMut::new();
                }
            }
            match self.stage {
                Stage::Open => {}
                Stage::Ended => {
                    ready!(Pin::new(&mut *receiver).poll_shutdown(cx))?;
                    self.stage = Stage::Closed;
                    progress.record();
                    return Poll::Ready(Ok(()));
                }
                Stage::Closed => return Poll::Ready(Ok(())),
            }
            if left == 0 {
                // Other connections are served before this tunnel continues.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let mut space = [MaybeUninit::uninit(); READ_BYTES];
            let mut space = ReadBuf::uninit(&mut space);
            if Pin::new(&mut *sender)
                .poll_read(cx, &mut space)?
                .is_pending()
            {
                if self.needs_flush {
                    ready!(Pin::new(&mut *receiver).poll_flush(cx))?;
                    self.needs_flush = false;
                }
                return Poll::Pending;
            }
            let mut bytes = space.filled();
            if bytes.is_empty() {
                self.stage = Stage::Ended;
                continue;
            }
            left = left.saturating_sub(bytes.len());
            if let Poll::Ready(written) = Pin::new(&mut *receiver).poll_write(cx, bytes)? {
                self.record_write(written, progress)?;
                bytes = &bytes[written..];
            }
            self.unsent.extend_from_slice(bytes);
        }
    }

    fn record_write(&mut self, bytes: usize, progress: &Progress) -> io::Result<()> {
        if bytes == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.written += bytes as u64;
        self.needs_flush = true;
        progress.record();
        Ok(())
    }
}

/// The most bytes of one read: the size of a TLS record and of an HTTP/2 frame.
const READ_BYTES: usize = 16 << 10;

/// The most bytes that one direction copies before other connections of the worker are served.
const BYTES_PER_POLL: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::Waker;

    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;
    use crate::rt::clock::Ticker;

    fn progress() -> Progress {
        Progress::new(Ticker::start().expect("the thread starts").clock())
    }

    /// Copies all bytes of `sender` to `receiver`. Returns the number of bytes.
    async fn copy(early: &[u8], mut sender: DuplexStream, mut receiver: DuplexStream) -> u64 {
        let progress = progress();
        let mut direction = Direction::new(BytesMut::from(early));
        let copying =
            std::future::poll_fn(|cx| direction.poll(&mut sender, &mut receiver, &progress, cx));
        copying.await.expect("both streams are open");
        direction.take_written()
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("the runtime can be built")
            .block_on(future)
    }

    proptest! {
        /// A direction delivers the early bytes, then all bytes of the sender, and then the end; whatever the sizes of
        /// the socket buffers and of the writes.
        #[test]
        fn a_direction_keeps_all_bytes_and_their_order(
            early in prop::collection::vec(any::<u8>(), 0..100),
            writes in prop::collection::vec(1_usize..60_000, 0..20),
            buffers in (1_usize..40_000, 1_usize..40_000),
        ) {
            let sent: Vec<u8> = (0..writes.iter().sum()).map(|n: usize| (n % 251) as u8).collect();
            let (mut client, sender) = duplex(buffers.0);
            let (receiver, mut origin) = duplex(buffers.1);
            let writing = async {
                let mut rest = &sent[..];
                for bytes in &writes {
                    client.write_all(&rest[..*bytes]).await.expect("the tunnel reads");
                    rest = &rest[*bytes..];
                }
                client.shutdown().await.expect("the tunnel is open");
            };
            let mut received = Vec::new();
            let reading = async {
                _ = origin.read_to_end(&mut received).await.expect("the tunnel closes");
            };
            let (copied, (), ()) = block_on(async {
                tokio::join!(copy(&early, sender, receiver), writing, reading)
            });
            let expected = [&early[..], &sent[..]].concat();
            prop_assert_eq!(copied, expected.len() as u64);
            prop_assert!(received == expected);
        }
    }

    /// Method: the receiver reads no byte, so its buffer of 10 bytes fills, and the sender's writes stop.
    #[test]
    fn a_receiver_that_reads_nothing_stops_the_sender() {
        block_on(async {
            let (mut client, mut sender) = duplex(1 << 20);
            let (mut receiver, _origin) = duplex(10);
            client
                .write_all(&vec![7; 1 << 20])
                .await
                .expect("the buffer has space");
            let progress = progress();
            let mut direction = Direction::new(BytesMut::new());
            let mut cx = Context::from_waker(Waker::noop());
            for _ in 0..10 {
                let polled = direction.poll(&mut sender, &mut receiver, &progress, &mut cx);
                assert!(polled.is_pending());
            }
            assert_eq!(direction.take_written(), 10);
            assert_eq!(direction.unsent.len(), READ_BYTES - 10);
        });
    }
}
