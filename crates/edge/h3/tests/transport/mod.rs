//! Streams in memory, as `h3` expects them of a transport.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf as _, Bytes};
use h3::quic::{
    BidiStream, ConnectionErrorIncoming, OpenStreams, RecvStream, SendStream, StreamErrorIncoming,
    StreamId, WriteBuf,
};

/// Both directions of one connection of an endpoint of `h3`.
#[derive(Clone, Default)]
pub(crate) struct Network(Rc<RefCell<State>>);

#[derive(Default)]
struct State {
    opened: u64,
    /// Streams that the endpoint has opened.
    uni: Vec<Stream>,
    bidi: Vec<Stream>,
    /// Streams that the endpoint has not accepted.
    incoming_uni: VecDeque<Stream>,
    incoming_bidi: VecDeque<Stream>,
    /// The last unidirectional stream of the peer.
    peer_uni: Option<Stream>,
    close_code: Option<u64>,
}

/// One stream.
#[derive(Clone)]
pub(crate) struct Stream {
    id: u64,
    state: Rc<RefCell<StreamState>>,
}

#[derive(Default)]
struct StreamState {
    sent: Vec<u8>,
    incoming: VecDeque<Bytes>,
    incoming_ended: bool,
}

/// Returns the output of a future that never waits.
pub(crate) fn resolved<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future waits"),
    }
}

impl Network {
    fn stream(&self, direction: u64) -> Stream {
        let mut state = self.0.borrow_mut();
        state.opened += 1;
        Stream {
            id: 4 * (state.opened - 1) + direction,
            state: Rc::default(),
        }
    }

    /// The bytes that the endpoint has sent on its last request.
    pub(crate) fn sent_on_request(&self) -> Vec<u8> {
        let state = self.0.borrow();
        let stream = state.bidi.last().expect("a stream is open");
        stream.state.borrow().sent.clone()
    }

    /// The bytes that the endpoint has sent on each unidirectional stream.
    pub(crate) fn sent_on_uni(&self) -> Vec<Vec<u8>> {
        let state = self.0.borrow();
        state
            .uni
            .iter()
            .map(|stream| stream.state.borrow().sent.clone())
            .collect()
    }

    /// Sends all bytes of a response to the last request, and the end of the stream.
    pub(crate) fn answer(&self, bytes: Vec<u8>) {
        let state = self.0.borrow();
        let stream = state.bidi.last().expect("a stream is open");
        let mut stream = stream.state.borrow_mut();
        stream.incoming.push_back(bytes.into());
        stream.incoming_ended = true;
    }

    /// Opens a request with these bytes, and ends it.
    pub(crate) fn request(&self, bytes: Vec<u8>) {
        let stream = Stream {
            id: 0,
            state: Rc::default(),
        };
        stream.state.borrow_mut().incoming.push_back(bytes.into());
        stream.state.borrow_mut().incoming_ended = true;
        self.0.borrow_mut().incoming_bidi.push_back(stream);
    }

    /// Opens a unidirectional stream of the peer.
    pub(crate) fn open_uni(&self, bytes: Vec<u8>) {
        let stream = Stream {
            id: 3,
            state: Rc::default(),
        };
        let mut state = self.0.borrow_mut();
        state.peer_uni = Some(stream.clone());
        state.incoming_uni.push_back(stream);
        drop(state);
        self.continue_uni(bytes);
    }

    /// Sends more bytes on the unidirectional stream of the peer.
    pub(crate) fn continue_uni(&self, bytes: Vec<u8>) {
        let state = self.0.borrow();
        let stream = state.peer_uni.as_ref().expect("a stream is open");
        stream.state.borrow_mut().incoming.push_back(bytes.into());
    }

    /// Lets a client process what has arrived. Returns the error that ends the connection.
    pub(crate) fn poll_close(
        &self,
        connection: &mut h3::client::Connection<Self, Bytes>,
    ) -> Option<String> {
        match connection.poll_close(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(error) => Some(error.to_string()),
            Poll::Pending => None,
        }
    }

    /// The code by which the endpoint has closed the connection.
    pub(crate) fn close_code(&self) -> Option<u64> {
        self.0.borrow().close_code
    }
}

impl OpenStreams<Bytes> for Network {
    type BidiStream = Stream;
    type SendStream = Stream;

    fn poll_open_bidi(&mut self, _: &mut Context<'_>) -> Poll<Result<Stream, StreamErrorIncoming>> {
        let stream = self.stream(0);
        self.0.borrow_mut().bidi.push(stream.clone());
        Poll::Ready(Ok(stream))
    }

    fn poll_open_send(&mut self, _: &mut Context<'_>) -> Poll<Result<Stream, StreamErrorIncoming>> {
        let stream = self.stream(2);
        self.0.borrow_mut().uni.push(stream.clone());
        Poll::Ready(Ok(stream))
    }

    fn close(&mut self, code: h3::error::Code, _: &[u8]) {
        self.0.borrow_mut().close_code = Some(code.value());
    }
}

impl h3::quic::Connection<Bytes> for Network {
    type RecvStream = Stream;
    type OpenStreams = Self;

    fn poll_accept_recv(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<Result<Stream, ConnectionErrorIncoming>> {
        let stream = self.0.borrow_mut().incoming_uni.pop_front();
        stream.map_or(Poll::Pending, |stream| Poll::Ready(Ok(stream)))
    }

    fn poll_accept_bidi(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<Result<Stream, ConnectionErrorIncoming>> {
        let stream = self.0.borrow_mut().incoming_bidi.pop_front();
        stream.map_or(Poll::Pending, |stream| Poll::Ready(Ok(stream)))
    }

    fn opener(&self) -> Self {
        self.clone()
    }
}

impl SendStream<Bytes> for Stream {
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        let mut data = data.into();
        while data.has_remaining() {
            let chunk = data.chunk();
            self.state.borrow_mut().sent.extend_from_slice(chunk);
            let length = chunk.len();
            data.advance(length);
        }
        Ok(())
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        Poll::Ready(Ok(()))
    }

    fn reset(&mut self, _: u64) {}

    fn send_id(&self) -> StreamId {
        self.recv_id()
    }
}

impl RecvStream for Stream {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        let mut state = self.state.borrow_mut();
        match state.incoming.pop_front() {
            Some(bytes) => Poll::Ready(Ok(Some(bytes))),
            None if state.incoming_ended => Poll::Ready(Ok(None)),
            None => Poll::Pending,
        }
    }

    fn stop_sending(&mut self, _: u64) {}

    fn recv_id(&self) -> StreamId {
        StreamId::try_from(self.id).expect("a small number")
    }
}

impl BidiStream<Bytes> for Stream {
    type SendStream = Self;
    type RecvStream = Self;

    fn split(self) -> (Self, Self) {
        (self.clone(), self)
    }
}
