//! Moves the bytes of a stream between the pipes of its user and the state of the peer, on the runtime of the link.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};

use edgeward_dedup::reason;

use crate::budget::{Budget, yield_now};
use crate::core_stream::CoreStream;
use crate::label::Target;
use crate::peer::{Peer, StreamSlot};
use crate::pipe::{Item, PipeReader, PipeWriter};
use crate::stream::Pipes;

/// Opens a stream in a slot that was reserved for it, and serves its user until both directions have ended or the user
/// has left.
pub(crate) async fn relay(peer: Arc<Peer>, target: Target, slot: StreamSlot, pipes: Pipes) {
    let opened = CoreStream::open(&peer, target);
    // The stream is open or refused, so it no longer needs the slot.
    drop(slot);
    match opened {
        Ok(stream) => {
            let mut relay = Relay::new(stream, pipes);
            std::future::poll_fn(|cx| relay.poll(cx)).await;
        }
        // The peer accepts fewer streams than before the reservation.
        Err(_) => {
            pipes.outgoing.refuse(reason::TOO_MANY);
            pipes.incoming.end(Err(reason::TOO_MANY));
        }
    }
}

/// A stream and the pipes of its user. A direction is `None` after its end.
struct Relay {
    stream: CoreStream,
    outgoing: Option<PipeReader>,
    /// Bytes of the user that the stream has not accepted yet.
    unsent: Bytes,
    incoming: Option<PipeWriter>,
    /// True after the user was told that the peer has accepted the stream.
    is_open: bool,
}

impl Relay {
    fn new(stream: CoreStream, pipes: Pipes) -> Self {
        Self {
            stream,
            outgoing: Some(pipes.outgoing),
            unsent: Bytes::new(),
            incoming: Some(pipes.incoming),
            is_open: false,
        }
    }

    /// Moves bytes until neither direction can continue or the [`Budget`] of one poll is spent. When it is spent, other
    /// tasks run before the next poll.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut budget = Budget::default();
        while !budget.is_spent() {
            let has_sent = self.send(cx, &mut budget);
            let has_received = self.receive(cx, &mut budget);
            if self.outgoing.is_none() && self.incoming.is_none() {
                return Poll::Ready(());
            }
            if !has_sent && !has_received {
                return Poll::Pending;
            }
        }
        yield_now(cx);
        Poll::Pending
    }

    /// Moves bytes from the user to the stream. Returns true if it moved bytes or ended the direction.
    fn send(&mut self, cx: &mut Context<'_>, budget: &mut Budget) -> bool {
        let Some(outgoing) = &self.outgoing else {
            return false;
        };
        if outgoing.has_failed() {
            // The user has left without ending the body. Dropping the stream resets it.
            (self.outgoing, self.incoming) = (None, None);
            return true;
        }
        if self.unsent.is_empty() {
            match outgoing.poll_item(cx) {
                Poll::Ready(Item::Bytes(bytes)) => self.unsent = bytes,
                Poll::Ready(Item::End | Item::Failed(_)) => {
                    // If the peer has stopped the stream, its remaining bytes are not needed.
                    _ = self.stream.close();
                    self.outgoing = None;
                    return true;
                }
                Poll::Pending => {
                    if outgoing.take_flush() {
                        self.stream.flush();
                    }
                    return false;
                }
            }
        }
        match self.stream.poll_send(cx.waker(), &self.unsent, budget) {
            Poll::Pending => false,
            Poll::Ready(Ok(bytes)) => {
                self.unsent.advance(bytes);
                true
            }
            Poll::Ready(Err(error)) => {
                outgoing.refuse(error.reason);
                self.outgoing = None;
                true
            }
        }
    }

    /// Moves received bytes to the user. Returns true if it moved bytes or ended the direction.
    fn receive(&mut self, cx: &mut Context<'_>, budget: &mut Budget) -> bool {
        let Some(incoming) = &self.incoming else {
            return false;
        };
        if incoming.poll_refused(cx).is_ready() {
            // The user has left. Bytes that it wrote before are still delivered.
            self.stream.stop_reading();
            self.incoming = None;
            return true;
        }
        if !self.is_open {
            match self.stream.poll_accepted(cx) {
                Poll::Pending => return false,
                Poll::Ready(Ok(())) => {
                    self.is_open = true;
                    incoming.open();
                }
                Poll::Ready(Err(error)) => {
                    incoming.end(Err(error.reason));
                    self.incoming = None;
                    return true;
                }
            }
        }
        if incoming.poll_space(cx).is_pending() {
            return false;
        }
        let end = match self.stream.poll_chunk(cx) {
            Poll::Pending => return false,
            Poll::Ready(Ok(Some(bytes))) => {
                budget.spend(bytes.len());
                incoming.push(bytes);
                return true;
            }
            Poll::Ready(Ok(None)) => Ok(()),
            Poll::Ready(Err(error)) => Err(error.reason),
        };
        incoming.end(end);
        self.incoming = None;
        true
    }
}
