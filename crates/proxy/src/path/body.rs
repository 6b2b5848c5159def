//! The body of a response on its way to a client, whatever it comes from.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use edgeward_store::disk::Piece;
use http_body::{Body, Frame, SizeHint};

use crate::base::access_log::PendingLine;
use crate::cache::disk_body::DiskBody;
use crate::cache::fill::FillReader;
use crate::cache::pinned::{ClientBytes, Holding};
use crate::exchange::InFlight;
use crate::exchange::pieces::PieceMemory;
use crate::origin::OriginBody;
use crate::path::delivery::Delivery;
use crate::path::worker::Worker;

/// Where the bytes come from.
pub(crate) enum Source {
    /// None are left.
    Empty,
    /// One piece, all there, and whose memory it is.
    Whole(Bytes, PieceMemory),
    /// A fetch others may share.
    Fill(FillReader, Option<u64>),
    /// The disk.
    Disk(Box<DiskBody>),
    /// The origin itself.
    Origin(Box<OriginBody>),
    /// The same while the sweep watches it.
    Passed(Rc<Delivery>),
}

/// A source, with what has to happen when it is done or given up.
pub(crate) struct EdgeBody {
    source: Source,
    /// Bytes handed to the connection.
    bytes_given: u64,
    /// Whoever writes the body counts what the socket takes of it.
    writer_counts: bool,
    /// Whose memory the last piece is.
    memory: PieceMemory,
    /// Lists the memory of a body that is given in several pieces, for as long as any of it is here or under way.
    held: Option<Rc<Holding>>,
    worker: Rc<Worker>,
    /// The request counts as under way until the body is dropped.
    in_flight: InFlight,
    /// For the sweep; none of a body that is all in memory.
    delivery: Option<Rc<Delivery>>,
    log: Option<Box<PendingLine>>,
}

type BodyError = Box<dyn std::error::Error + Send + Sync>;

impl EdgeBody {
    pub(crate) fn new(
        source: Source,
        worker: Rc<Worker>,
        in_flight: InFlight,
        log: Option<Box<PendingLine>>,
    ) -> Self {
        let conn = in_flight.conn();
        let (source, delivery) = match source {
            Source::Whole(bytes, _) if bytes.is_empty() => (Source::Empty, None),
            // hyper may ask for nothing while it cannot write. The fast path asks at once, and most bodies are whole by then.
            Source::Origin(body) if !conn.fast_path_writes() => {
                let delivery = Delivery::watched(&worker.deliveries, conn, Some(body));
                (Source::Passed(Rc::clone(&delivery)), Some(delivery))
            }
            source @ (Source::Fill(..) | Source::Disk(_)) if conn.is_h2() => (
                source,
                Some(Delivery::watched(&worker.deliveries, conn, None)),
            ),
            source => (source, None),
        };
        if log.is_some() {
            in_flight.conn().begin_response();
        }
        Self {
            source,
            bytes_given: 0,
            writer_counts: false,
            memory: PieceMemory::Uncounted,
            held: None,
            worker,
            in_flight,
            delivery,
            log,
        }
    }

    /// The caller writes the body to the socket itself, and counts the bytes that it takes.
    pub(crate) fn leave_counting_to_writer(&mut self) {
        self.writer_counts = true;
    }

    fn given(&mut self, bytes: u64) {
        self.bytes_given += bytes;
        if !self.writer_counts {
            self.worker.counters.response_bytes.add(bytes);
        }
    }

    /// As [`poll_frame`](Body::poll_frame) for one who can send spans. Trailers are left out.
    pub(crate) fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        let Source::Disk(body) = &mut self.source else {
            loop {
                let next = ready!(self.poll_unlisted(cx));
                match next.map(|frame| frame.map(Frame::into_data)) {
                    Some(Ok(Ok(bytes))) => return Poll::Ready(Some(Ok(Piece::Bytes(bytes)))),
                    Some(Ok(Err(_))) => {}
                    Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    None => return Poll::Ready(None),
                }
            }
        };
        let polled = body
            .poll_piece(&self.worker.cache, cx, true)
            .map(|next| next.map(|piece| piece.map_err(Into::into)));
        self.settle(&polled, Piece::len);
        self.memory = PieceMemory::Private;
        polled
    }

    /// The next frame, for one who lists its bytes with the connection himself.
    pub(crate) fn poll_unlisted(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self;
        let polled: Poll<Option<Result<Frame<Bytes>, BodyError>>> = match &mut this.source {
            Source::Empty => return Poll::Ready(None),
            Source::Whole(bytes, memory) => {
                // hyper buffers what it is given, however much. In pieces it asks for the next one when the client has taken
                // most of those before, so that what was given is nearly what was sent.
                let most = if this.writer_counts {
                    usize::MAX
                } else {
                    PIECE_BYTES
                };
                this.memory = *memory;
                let piece = bytes.split_to(bytes.len().min(most));
                if bytes.is_empty() {
                    this.source = Source::Empty;
                } else {
                    this.in_flight.conn().begin_client_turn();
                }
                this.given(piece.len() as u64);
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            Source::Fill(reader, left) => reader.poll_bytes(cx).map(|next| {
                next.map(|bytes| {
                    let (bytes, memory) = bytes?;
                    this.memory = memory;
                    if let Some(left) = left {
                        *left -= bytes.len() as u64;
                    }
                    Ok(Frame::data(bytes))
                })
            }),
            Source::Disk(body) => {
                this.memory = PieceMemory::Private;
                body.poll_piece(&this.worker.cache, cx, false)
                    .map(|next| next.map(|piece| Ok(Frame::data(bytes_of(piece?)))))
            }
            Source::Passed(delivery) => {
                this.memory = PieceMemory::Private;
                delivery
                    .poll_frame(cx)
                    .map(|next| next.map(|frame| frame.map_err(Into::into)))
            }
            Source::Origin(body) => {
                this.memory = PieceMemory::Private;
                let polled = Pin::new(&mut **body).poll_frame(cx);
                if !body.is_end_stream() {
                    this.watch();
                }
                polled.map(|next| next.map(|frame| frame.map_err(Into::into)))
            }
        };
        this.settle(&polled, |frame| {
            frame.data_ref().map_or(0, |bytes| bytes.len() as u64)
        });
        polled
    }

    /// Lets the sweep watch a body that has not come whole from the origin.
    fn watch(&mut self) {
        if let Source::Origin(body) = std::mem::replace(&mut self.source, Source::Empty) {
            let conn = self.in_flight.conn();
            let delivery = Delivery::watched(&self.worker.deliveries, conn, Some(body));
            self.delivery = Some(Rc::clone(&delivery));
            self.source = Source::Passed(delivery);
        }
    }

    /// Whose memory the piece is that was given last.
    pub(crate) fn memory(&self) -> PieceMemory {
        self.memory
    }

    /// What was given of it could not be sent.
    pub(crate) fn cut(&mut self) {
        self.worker.counters.disk_body_cut.increment();
        if let Some(log) = &mut self.log {
            log.aborted = true;
        }
        self.source = Source::Empty;
    }

    /// Takes note of what was given.
    fn settle<T>(
        &mut self,
        polled: &Poll<Option<Result<T, BodyError>>>,
        bytes_of: impl FnOnce(&T) -> u64,
    ) {
        match polled {
            Poll::Ready(Some(Ok(given))) => {
                let bytes = bytes_of(given);
                self.given(bytes);
                self.in_flight.conn().begin_client_turn();
                if let Some(delivery) = &self.delivery {
                    delivery.gave(bytes, self.worker.now());
                }
                if self.is_end_stream() {
                    self.source = Source::Empty;
                }
            }
            Poll::Ready(None) => self.source = Source::Empty,
            Poll::Ready(Some(Err(_))) if matches!(self.source, Source::Disk(_)) => self.cut(),
            Poll::Ready(Some(Err(_))) => {
                self.worker.counters.aborted_origin.increment();
                if let Some(log) = &mut self.log {
                    log.aborted = true;
                }
                self.source = Source::Empty;
            }
            Poll::Pending => {
                self.in_flight.conn().end_client_turn();
                if let Some(delivery) = &self.delivery {
                    delivery.waits_for_origin(self.worker.now());
                }
            }
        }
    }
}

impl Body for EdgeBody {
    type Data = ClientBytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<ClientBytes>, BodyError>>> {
        let next = ready!(self.poll_unlisted(cx));
        let this = &mut *self;
        let listed = |bytes: Bytes| {
            let held = this.held.take().or_else(|| {
                let conn = this.in_flight.conn();
                Holding::new(&this.worker.cache.hot, conn, this.memory, &bytes).map(Rc::new)
            });
            if matches!(this.source, Source::Whole(..)) {
                this.held.clone_from(&held);
            }
            ClientBytes::new(bytes, held)
        };
        Poll::Ready(next.map(|frame| frame.map(|frame| frame.map_data(listed))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Empty | Source::Fill(_, Some(0)) => true,
            Source::Whole(..) | Source::Fill(..) => false,
            Source::Disk(body) => body.left() == 0,
            Source::Passed(delivery) => delivery.is_end_stream(),
            Source::Origin(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Empty | Source::Fill(_, Some(0)) => SizeHint::with_exact(0),
            Source::Whole(bytes, _) => SizeHint::with_exact(bytes.len() as u64),
            Source::Fill(_, Some(left)) => SizeHint::with_exact(*left),
            Source::Fill(_, None) => SizeHint::default(),
            Source::Disk(body) => SizeHint::with_exact(body.left()),
            Source::Passed(delivery) => delivery.size_hint(),
            Source::Origin(body) => body.size_hint(),
        }
    }
}

fn bytes_of(piece: Piece) -> Bytes {
    match piece {
        Piece::Bytes(bytes) => bytes,
        Piece::Span(_) => unreachable!("none was asked for"),
    }
}

impl Drop for EdgeBody {
    fn drop(&mut self) {
        // A whole body may go untaken; one that was begun was still wanted by the client.
        let given_up = match &self.source {
            Source::Empty => false,
            Source::Whole(..) => self.bytes_given > 0,
            Source::Fill(..) | Source::Disk(_) | Source::Passed(_) | Source::Origin(_) => {
                !self.is_end_stream()
            }
        };
        if given_up {
            self.worker.counters.aborted_client.increment();
        }
        if let Some(delivery) = &self.delivery {
            delivery.abandon();
        }
        if let Some(mut log) = self.log.take() {
            log.set_body(self.bytes_given, given_up);
            // On HTTP/1.1 it is known when the last byte has left; the line waits for that.
            if let Some(log) = self.in_flight.conn().hold_log(log) {
                self.worker.log(log.finish());
            }
        }
    }
}

/// The most of a body in memory that hyper is given at a time: two of HTTP/2's send buffer.
const PIECE_BYTES: usize = 128 << 10;
