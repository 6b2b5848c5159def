//! The user of a stream, as the task of the peer serves it: the pipes of a [`LinkStream`](crate::stream::LinkStream), or
//! a TCP connection. Bytes of a TCP connection are read into the buffers of the sender without a copy.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Buf as _, Bytes};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::budget::{BUDGET_BYTES, Budget};
use crate::core::{Core, DuplexId, Read, Written};
use crate::pipe::{Item, PipeReader, PipeWriter};
use crate::stream::{Pipes, StreamError};

/// The user of a stream.
pub(crate) enum User {
    Pipes(PipeUser),
    Socket(Box<SocketUser>),
}

/// The result of a turn of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Bytes were moved, or a direction has ended. The user may have more to do.
    Progress,
    /// The user waits.
    Wait,
    /// Both directions have ended, or the user has left.
    End,
}

impl User {
    /// Returns the user of a stream that was opened here.
    pub(crate) fn new(pipes: Pipes) -> Self {
        Self::with_pipes(pipes, true)
    }

    /// Returns the user of a stream that the peer has opened. It first accepts or refuses the stream.
    pub(crate) fn unanswered(pipes: Pipes) -> Self {
        Self::with_pipes(pipes, false)
    }

    fn with_pipes(pipes: Pipes, is_answered: bool) -> Self {
        Self::Pipes(PipeUser {
            is_answered,
            outgoing: Some(pipes.outgoing),
            unsent: Bytes::new(),
            incoming: Some(pipes.incoming),
            is_open: false,
        })
    }

    /// Moves bytes once in each direction.
    pub(crate) fn turn(
        &mut self,
        id: DuplexId,
        core: &mut Core,
        cx: &mut Context<'_>,
        budget: &mut Budget,
    ) -> Turn {
        match self {
            Self::Pipes(user) => match user.send(id, core, cx, budget) {
                Sent::Socket(socket) => {
                    *self = Self::Socket(socket);
                    Turn::Progress
                }
                Sent::Progress(has_sent) => {
                    let has_received = user.receive(id, core, cx, budget);
                    match user {
                        PipeUser {
                            outgoing: None,
                            incoming: None,
                            ..
                        } => Turn::End,
                        _ if has_sent || has_received => Turn::Progress,
                        _ => Turn::Wait,
                    }
                }
            },
            Self::Socket(user) => user.turn(id, core, cx, budget),
        }
    }
}

/// The pipes of a user. A direction is `None` after its end.
pub(crate) struct PipeUser {
    /// True if the user may send: it has accepted the stream, or has opened it.
    is_answered: bool,
    outgoing: Option<PipeReader>,
    /// Bytes of the user that the stream has not accepted yet.
    unsent: Bytes,
    incoming: Option<PipeWriter>,
    /// True after the user was told that the peer has accepted the stream.
    is_open: bool,
}

/// The result of [`PipeUser::send`].
enum Sent {
    /// True if bytes were moved, or the direction has ended.
    Progress(bool),
    /// The user has passed a TCP connection, which replaces its pipes.
    Socket(Box<SocketUser>),
}

impl PipeUser {
    /// Moves bytes from the user to the stream.
    fn send(
        &mut self,
        id: DuplexId,
        core: &mut Core,
        cx: &mut Context<'_>,
        budget: &mut Budget,
    ) -> Sent {
        let Some(outgoing) = &self.outgoing else {
            return Sent::Progress(false);
        };
        if !self.is_answered {
            let answer = match outgoing.poll_open(cx) {
                Poll::Pending => return Sent::Progress(false),
                Poll::Ready(answer) => answer.map(|()| core.accept(id)),
            };
            match answer {
                Ok(Ok(())) => self.is_answered = true,
                // The stream has ended meanwhile.
                Ok(Err(reason)) => self.fail(reason),
                Err(reason) => {
                    core.refuse(id, reason);
                    self.fail(reason);
                }
            }
            return Sent::Progress(true);
        }
        if outgoing.poll_failed(cx).is_ready() {
            // The user has left without ending the body. The stream is reset when its user is removed.
            (self.outgoing, self.incoming) = (None, None);
            return Sent::Progress(true);
        }
        if self.unsent.is_empty() {
            match outgoing.poll_item(cx) {
                Poll::Ready(Item::Bytes(bytes)) => self.unsent = bytes,
                Poll::Ready(Item::Socket(socket)) => {
                    let outgoing = self.outgoing.take().expect("the pipe is there");
                    return Sent::Socket(Box::new(SocketUser::new(socket, outgoing)));
                }
                Poll::Ready(Item::Failed(_)) => {
                    // The user has left since the check above.
                    (self.outgoing, self.incoming) = (None, None);
                    return Sent::Progress(true);
                }
                Poll::Ready(Item::End) => {
                    // If the peer has stopped the stream, its remaining bytes are not needed.
                    _ = core.close(id);
                    self.outgoing = None;
                    return Sent::Progress(true);
                }
                Poll::Pending => {
                    let is_flushed = outgoing.take_flush();
                    if is_flushed {
                        core.flush(id);
                    }
                    return Sent::Progress(is_flushed);
                }
            }
        }
        let facts = outgoing.take_facts();
        if let Some(content_type) = facts.content_type {
            core.set_content_type(id, &content_type);
        }
        if facts.bypasses {
            core.bypass(id);
        }
        let bytes = &self.unsent[..self.unsent.len().min(BUDGET_BYTES)];
        match core.write(id, bytes, Instant::now(), budget) {
            Written::Full => Sent::Progress(false),
            Written::Bytes(bytes) => {
                set_write_end(core, id);
                self.unsent.advance(bytes);
                Sent::Progress(true)
            }
            Written::Ended(reason) => {
                outgoing.refuse(reason);
                self.outgoing = None;
                Sent::Progress(true)
            }
        }
    }

    /// Ends both directions for this reason.
    fn fail(&mut self, reason: u32) {
        if let Some((outgoing, incoming)) = self.outgoing.take().zip(self.incoming.take()) {
            Pipes { outgoing, incoming }.fail(reason);
        }
    }

    /// Moves received bytes to the user. Returns true if it moved bytes or ended the direction.
    fn receive(
        &mut self,
        id: DuplexId,
        core: &mut Core,
        cx: &mut Context<'_>,
        budget: &mut Budget,
    ) -> bool {
        let Some(incoming) = self.incoming.as_ref().filter(|_| self.is_answered) else {
            return false;
        };
        if incoming.poll_refused(cx).is_ready() {
            // The user has left. Bytes that it wrote before are still delivered.
            core.stop_reading(id);
            self.incoming = None;
            return true;
        }
        if !self.is_open {
            match core.accepted(id) {
                None => return false,
                Some(Ok(())) => {
                    self.is_open = true;
                    incoming.open();
                }
                Some(Err(reason)) => {
                    incoming.end(Err(reason));
                    self.incoming = None;
                    return true;
                }
            }
        }
        if incoming.poll_space(cx).is_pending() {
            return false;
        }
        let end = match core.read(id) {
            Read::Wait => return false,
            Read::Bytes(bytes) => {
                budget.spend(bytes.len());
                incoming.push(bytes);
                return true;
            }
            Read::End => Ok(()),
            Read::Failed(reason) => Err(reason),
        };
        incoming.end(end);
        self.incoming = None;
        true
    }
}

/// A TCP connection that the user of a stream passes to the task of the peer. It is reset when it is dropped, until
/// both directions have ended: its remote host must not treat a truncated body as complete.
#[derive(Debug)]
pub(crate) struct PassedSocket {
    pub(crate) tcp: TcpStream,
    /// The received bytes that the user has taken from the pipe and not used.
    pub(crate) unread: Bytes,
    /// The pipe with the received bytes that follow. Until the task of the peer takes the connection over, it adds
    /// bytes to this pipe.
    pub(crate) incoming: PipeReader,
    /// Gets the result when both directions have ended or one has failed.
    pub(crate) ended: oneshot::Sender<io::Result<()>>,
}

/// A TCP connection whose bytes the task of the peer moves. "Out" is the direction from TCP to the link.
pub(crate) struct SocketUser {
    tcp: TcpStream,
    /// Fails if the task that waits for the result was dropped.
    outgoing: PipeReader,
    /// Bytes from the link that are not written to TCP yet.
    unwritten: VecDeque<Bytes>,
    /// True if bytes were moved to the link since the last flush.
    out_unflushed: bool,
    out_done: bool,
    in_done: bool,
    ended: Option<oneshot::Sender<io::Result<()>>>,
}

impl SocketUser {
    fn new(socket: PassedSocket, outgoing: PipeReader) -> Self {
        let mut unwritten = socket.incoming.take_all();
        if !socket.unread.is_empty() {
            unwritten.push_front(socket.unread);
        }
        Self {
            tcp: socket.tcp,
            outgoing,
            unwritten,
            out_unflushed: false,
            out_done: false,
            in_done: false,
            ended: Some(socket.ended),
        }
    }

    fn turn(
        &mut self,
        id: DuplexId,
        core: &mut Core,
        cx: &mut Context<'_>,
        budget: &mut Budget,
    ) -> Turn {
        if let Poll::Ready(Item::Failed(_)) = self.outgoing.poll_item(cx) {
            return Turn::End;
        }
        let moved = self
            .copy_to_link(id, core, cx, budget)
            .and_then(|out| Ok(self.copy_to_tcp(id, core, cx, budget)? || out));
        match moved {
            Ok(_) if self.out_done && self.in_done => {
                self.report(Ok(()));
                Turn::End
            }
            Ok(true) => Turn::Progress,
            Ok(false) => Turn::Wait,
            Err(error) => {
                self.report(Err(error));
                Turn::End
            }
        }
    }

    fn report(&mut self, result: io::Result<()>) {
        if result.is_ok() {
            // Bytes that the kernel has not sent yet are still delivered.
            _ = SockRef::from(&self.tcp).set_linger(None);
        }
        if let Some(ended) = self.ended.take() {
            _ = ended.send(result);
        }
    }

    /// Moves bytes from TCP to the link. Returns true if this call moved bytes or ended the direction.
    fn copy_to_link(
        &mut self,
        id: DuplexId,
        core: &mut Core,
        cx: &mut Context<'_>,
        budget: &mut Budget,
    ) -> io::Result<bool> {
        if self.out_done {
            return Ok(false);
        }
        let tcp = &mut self.tcp;
        let written = core.write_from(id, Instant::now(), budget, |spare| {
            let mut buffer = ReadBuf::new(spare);
            match Pin::new(tcp).poll_read(cx, &mut buffer) {
                Poll::Ready(read) => read.map(|()| buffer.filled().len()),
                Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
            }
        });
        match written {
            Ok(Written::Full) => Ok(false),
            Ok(Written::Bytes(0)) => {
                self.out_done = true;
                core.close(id).map_err(to_io)?;
                Ok(true)
            }
            Ok(Written::Bytes(_)) => {
                set_write_end(core, id);
                self.out_unflushed = true;
                Ok(true)
            }
            Ok(Written::Ended(reason)) => Err(to_io(reason)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // The socket has no more bytes for now.
                let must_flush = std::mem::take(&mut self.out_unflushed);
                if must_flush {
                    core.flush(id);
                }
                Ok(must_flush)
            }
            Err(error) => Err(error),
        }
    }

    /// Moves bytes from the link to TCP. Returns true if this call received or wrote bytes, or ended the direction.
    fn copy_to_tcp(
        &mut self,
        id: DuplexId,
        core: &mut Core,
        cx: &mut Context<'_>,
        budget: &mut Budget,
    ) -> io::Result<bool> {
        if self.in_done {
            return Ok(false);
        }
        if self.unwritten.is_empty() {
            match core.read(id) {
                Read::Wait => return Ok(false),
                Read::Bytes(bytes) => self.unwritten.push_back(bytes),
                Read::End => {
                    self.in_done = true;
                    // An error means that the remote host has already closed the connection. All bytes were
                    // written, so the error is ignored.
                    _ = Pin::new(&mut self.tcp).poll_shutdown(cx);
                    return Ok(true);
                }
                Read::Failed(reason) => return Err(to_io(reason)),
            }
        }
        let Some(unwritten) = self.unwritten.front_mut() else {
            return Ok(false);
        };
        match Pin::new(&mut self.tcp).poll_write(cx, unwritten)? {
            Poll::Pending => Ok(false),
            Poll::Ready(bytes) => {
                budget.spend(bytes);
                unwritten.advance(bytes);
                // An empty slice would keep the memory of the whole buffer allocated.
                if unwritten.is_empty() {
                    self.unwritten.pop_front();
                }
                Ok(true)
            }
        }
    }
}

fn to_io(reason: u32) -> io::Error {
    StreamError { reason }.into_io()
}

/// Sets the time of the last write to the time at which its processing ended. An incomplete chunk is held until
/// [`SEND_DELAY`](crate::send_delay::SEND_DELAY) has passed since the last write. Processing a large write takes
/// longer. If the delay began before the processing, the chunk would be sent before the writer can continue.
fn set_write_end(core: &mut Core, id: DuplexId) {
    core.set_write_end(id, Instant::now());
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::pin::pin;
    use std::task::Waker;

    use tokio::net::TcpListener;

    use crate::stream::LinkStream;

    /// Bytes that the task of the peer receives between the moment at which the user passes its connection and the one
    /// at which the task takes it over reach the connection, in their order.
    #[tokio::test]
    async fn bytes_that_arrive_while_a_connection_is_passed_are_not_lost() {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port is free");
        let addr = listener.local_addr().expect("the address is valid");
        let tcp = TcpStream::connect(addr).await.expect("the port is open");
        let (stream, pipes) = LinkStream::new(&crate::pipe::PipeMemory::default());
        let cx = &mut Context::from_waker(Waker::noop());
        pipes.incoming.push(Bytes::from_static(b"one "));
        let mut pump = pin!(stream.pump(tcp));
        assert!(pump.as_mut().poll(cx).is_pending());
        pipes.incoming.push(Bytes::from_static(b"two "));
        let Poll::Ready(Item::Socket(socket)) = pipes.outgoing.poll_item(cx) else {
            panic!("the connection is passed");
        };
        pipes.incoming.push(Bytes::from_static(b"three"));
        let user = SocketUser::new(socket, pipes.outgoing);
        let bytes: Vec<u8> = user.unwritten.iter().flatten().copied().collect();
        assert_eq!(bytes, b"one two three");
    }
}
