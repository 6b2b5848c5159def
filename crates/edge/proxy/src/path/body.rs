//! The body of a response to a client, from memory, disk or the origin.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use edgeward_store::disk::Piece;
use http_body::{Body, Frame, SizeHint};

use super::delivery::Delivery;
use super::parts::Parts;
use super::sliced_body::{SliceError, SlicedBody};
use super::tunnel::Tunnel;
use super::worker::Worker;
use crate::cache::disk_body::DiskBody;
use crate::cache::fill::FillReader;
use crate::cache::pinned::{ClientBytes, PinnedPiece};
use crate::exchange::InFlight;
use crate::exchange::pieces::PieceMemory;
use crate::observe::observation::Observation;
use crate::origin::OriginBody;

/// The source of a body's bytes.
pub(crate) enum Source {
    /// The connection got all bytes, or the body is empty or was aborted.
    Empty,
    /// One piece in memory, and the owner of that memory.
    Whole(Bytes, PieceMemory),
    /// A fetch that several requests may share, and the number of bytes that remain if the length is known.
    Fill(FillReader, Option<u64>),
    /// An object on disk.
    Disk(Box<DiskBody>),
    /// Several ranges, with the text around them.
    Parts(Box<Parts>),
    /// Slices in memory, on disk and from the origin.
    Slices(Box<SlicedBody>),
    /// A response from the origin that no other request shares.
    Origin(Box<OriginBody>),
    /// A response from the origin that the worker's sweep watches, a periodic task that finds slow clients.
    Delivery(Rc<Delivery>),
    /// A tunnel, which the codec takes when it has sent the head of the response.
    Tunnel(Box<Tunnel>),
}

/// The body of a response to a client. It counts its bytes, and ends the record of the request when
/// it is dropped.
pub(crate) struct EdgeBody {
    source: Source,
    /// The number of bytes that the connection got.
    bytes_given: u64,
    /// True if the caller counts the bytes that the socket accepts. Otherwise the connection (hyper's HTTP/1.1) counts
    /// these bytes, or this body counts the given bytes (HTTP/2).
    writer_counts: bool,
    /// The owner of the last piece's memory: the cache, or this client alone.
    memory: PieceMemory,
    /// Pins the memory of a body that is given in several pieces, until the last piece was sent.
    pinned_piece: Option<Rc<PinnedPiece>>,
    worker: Rc<Worker>,
    /// Counts the request as under way until the body is dropped.
    in_flight: InFlight,
    /// The delivery that the sweep watches, if the body may have to wait for its client.
    delivery: Option<Rc<Delivery>>,
    /// `Some` until this value is dropped.
    observation: Option<Observation>,
}

type BodyError = Box<dyn std::error::Error + Send + Sync>;

impl EdgeBody {
    pub(crate) fn new(
        source: Source,
        worker: Rc<Worker>,
        in_flight: InFlight,
        observation: Observation,
    ) -> Self {
        let conn = in_flight.conn();
        let (source, delivery) = match source {
            Source::Whole(bytes, _) if bytes.is_empty() => (Source::Empty, None),
            // hyper may leave the body unpolled for a long time, so the sweep watches it from the start. The
            // fast path polls at once, and most bodies have then arrived completely.
            Source::Origin(body) if !conn.fast_path_writes() => {
                let delivery = Delivery::new_watched(&worker.deliveries, conn, Some(body));
                (Source::Delivery(Rc::clone(&delivery)), Some(delivery))
            }
            source
            @ (Source::Fill(..) | Source::Disk(_) | Source::Parts(_) | Source::Slices(_))
                if conn.is_multiplexed() =>
            {
                (
                    source,
                    Some(Delivery::new_watched(&worker.deliveries, conn, None)),
                )
            }
            source => (source, None),
        };
        let unsent_bytes = in_flight.conn().begin_response();
        worker.counters.response_bytes.add(unsent_bytes);
        Self {
            source,
            bytes_given: 0,
            writer_counts: false,
            memory: PieceMemory::Uncounted,
            pinned_piece: None,
            worker,
            in_flight,
            delivery,
            observation: Some(observation),
        }
    }

    /// Takes the tunnel and the record of the request, if the response opens a tunnel.
    pub(crate) fn take_tunnel(&mut self) -> Option<Box<Tunnel>> {
        match std::mem::replace(&mut self.source, Source::Empty) {
            Source::Tunnel(mut tunnel) => {
                tunnel.set_observation(self.observation.take());
                Some(tunnel)
            }
            other => {
                self.source = other;
                None
            }
        }
    }

    /// Makes the caller responsible for counting the bytes that the socket accepts.
    pub(crate) fn let_writer_count(&mut self) {
        self.writer_counts = true;
    }

    /// Records that the caller has taken the first bytes of the body itself.
    pub(crate) fn record_front(&mut self, bytes: u64) {
        self.bytes_given += bytes;
    }

    fn count_given(&mut self, bytes: u64) {
        self.bytes_given += bytes;
        if !self.writer_counts && !self.in_flight.conn().counts_written(bytes) {
            self.worker.counters.response_bytes.add(bytes);
        }
    }

    /// Like [`poll_frame`](Body::poll_frame), for a caller that can send spans of the page cache. Drops trailers.
    pub(crate) fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        if let Source::Slices(body) = &mut self.source {
            let polled = body.poll_piece(&self.worker.cache, cx, true, usize::MAX); // with spans
            return self.record_slices(polled);
        }
        let Source::Disk(body) = &mut self.source else {
            loop {
                let next = ready!(self.poll_unpinned(cx));
                match next.map(|frame| frame.map(Frame::into_data)) {
                    Some(Ok(Ok(bytes))) => return Poll::Ready(Some(Ok(Piece::Bytes(bytes)))),
                    Some(Ok(Err(_))) => {}
                    Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    None => return Poll::Ready(None),
                }
            }
        };
        let polled = body.poll_piece(&self.worker.cache, cx, true); // with spans
        let polled = polled.map_err(Into::into);
        self.record_poll(&polled, Piece::len);
        self.memory = PieceMemory::Private;
        polled
    }

    /// Returns the next frame. The caller records which memory the connection pins.
    pub(crate) fn poll_unpinned(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self;
        let polled: Poll<Option<Result<Frame<Bytes>, BodyError>>> = match &mut this.source {
            Source::Empty | Source::Tunnel(_) => return Poll::Ready(None),
            Source::Whole(bytes, memory) => {
                // hyper buffers a frame of any size, but it polls for the next frame only after most earlier bytes
                // were sent. With small frames, the number of bytes given is close to the number of bytes sent.
                let piece_max = if this.writer_counts {
                    usize::MAX
                } else {
                    PIECE_BYTES
                };
                this.memory = *memory;
                let piece = bytes.split_to(bytes.len().min(piece_max));
                if bytes.is_empty() {
                    this.source = Source::Empty;
                } else {
                    this.in_flight.conn().begin_client_turn();
                }
                this.count_given(piece.len() as u64);
                this.digest(&piece);
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            Source::Parts(parts) => {
                let polled = parts.poll_piece(&this.worker.cache, cx, false, PIECE_BYTES); // without spans
                this.memory = parts.memory();
                polled.map_ok(|piece| Frame::data(bytes_of(piece)))
            }
            Source::Fill(reader, left) => {
                reader.poll_bytes(&this.worker.cache.hot, cx).map(|next| {
                    next.map(|bytes| {
                        let (bytes, memory) = bytes?;
                        this.memory = memory;
                        if let Some(left) = left {
                            *left -= bytes.len() as u64;
                        }
                        Ok(Frame::data(bytes))
                    })
                })
            }
            Source::Disk(body) => {
                this.memory = PieceMemory::Private;
                let polled = body.poll_piece(&this.worker.cache, cx, false); // without spans
                let frame = |piece| Frame::data(bytes_of(piece));
                polled.map_ok(frame).map_err(Into::into)
            }
            Source::Slices(body) => {
                let piece_max = if this.writer_counts {
                    usize::MAX
                } else {
                    PIECE_BYTES
                };
                let polled = body.poll_piece(&this.worker.cache, cx, false, piece_max);
                return this
                    .record_slices(polled)
                    .map_ok(|piece| Frame::data(bytes_of(piece)));
            }
            Source::Delivery(delivery) => {
                this.memory = PieceMemory::Private;
                delivery.poll_frame(cx).map_err(Into::into)
            }
            Source::Origin(body) => {
                this.memory = PieceMemory::Private;
                let polled = Pin::new(&mut **body).poll_frame(cx);
                if !body.is_end_stream() {
                    this.watch();
                }
                polled.map_err(Into::into)
            }
        };
        this.record_poll(&polled, |frame| {
            frame.data_ref().map_or(0, |bytes| bytes.len() as u64)
        });
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(bytes) = frame.data_ref()
        {
            this.digest(bytes);
        }
        polled
    }

    /// Adds bytes of the body to the hash that the watcher gets, if the request is in the sample of texts.
    fn digest(&mut self, bytes: &[u8]) {
        let observation = self.observation.as_mut();
        if let Some(text) = observation.and_then(|observation| observation.seen_text.as_mut()) {
            text.digest.write(bytes);
        }
    }

    /// Records the poll of a sliced body, and the owner of the piece's memory.
    fn record_slices(
        &mut self,
        polled: Poll<Option<Result<(Piece, PieceMemory), SliceError>>>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        let polled = polled.map_ok(|(piece, memory)| {
            self.memory = memory;
            piece
        });
        if let Poll::Ready(Some(Err(error))) = &polled {
            tracing::warn!(%error, "a response from slices ended early");
            if *error == SliceError::Changed {
                self.worker.counters.slices_changed_broken.increment();
            }
        }
        let polled = polled.map_err(Into::into);
        self.record_poll(&polled, Piece::len);
        polled
    }

    /// Makes the sweep watch a body from the origin that has not arrived completely.
    fn watch(&mut self) {
        if let Source::Origin(body) = std::mem::replace(&mut self.source, Source::Empty) {
            let conn = self.in_flight.conn();
            let delivery = Delivery::new_watched(&self.worker.deliveries, conn, Some(body));
            self.delivery = Some(Rc::clone(&delivery));
            self.source = Source::Delivery(delivery);
        }
    }

    /// Returns true if the sweep watches how fast the client accepts the body.
    pub(crate) fn is_watched(&self) -> bool {
        self.delivery.is_some()
    }

    pub(crate) fn memory(&self) -> PieceMemory {
        self.memory
    }

    /// Ends the body early, because bytes on disk could not be read or sent.
    pub(crate) fn cut(&mut self) {
        self.worker.counters.disk_body_cut.increment();
        self.abort();
    }

    fn reads_disk(&self) -> bool {
        match &self.source {
            Source::Disk(_) => true,
            Source::Parts(parts) => parts.is_on_disk(),
            _ => false,
        }
    }

    fn abort(&mut self) {
        if let Some(observation) = &mut self.observation {
            observation.set_aborted();
        }
        self.source = Source::Empty;
    }

    /// Records the result of a poll, and drops a source that has ended.
    fn record_poll<T>(
        &mut self,
        polled: &Poll<Option<Result<T, BodyError>>>,
        bytes_of: impl FnOnce(&T) -> u64,
    ) {
        match polled {
            Poll::Ready(Some(Ok(given))) => {
                let bytes = bytes_of(given);
                self.count_given(bytes);
                self.in_flight.conn().begin_client_turn(); // The body waits for the client.
                if let Some(delivery) = &self.delivery {
                    delivery.record_piece(bytes, self.worker.now());
                }
                if self.is_end_stream() {
                    self.source = Source::Empty;
                }
            }
            Poll::Ready(None) => self.source = Source::Empty,
            Poll::Ready(Some(Err(_))) if self.reads_disk() => self.cut(),
            Poll::Ready(Some(Err(_))) => {
                self.worker.counters.aborted_origin.increment();
                self.abort();
            }
            Poll::Pending => {
                self.in_flight.conn().end_client_turn(); // The body waits for the origin.
                if let Some(delivery) = &self.delivery {
                    delivery.record_origin_wait(self.worker.now());
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
        let next = ready!(self.poll_unpinned(cx));
        let this = &mut *self;
        let pinned = |bytes: Bytes| {
            let piece = this.pinned_piece.take().or_else(|| {
                let conn = this.in_flight.conn();
                PinnedPiece::new(&this.worker.cache.hot, conn, this.memory, &bytes).map(Rc::new)
            });
            if matches!(this.source, Source::Whole(..)) {
                this.pinned_piece.clone_from(&piece);
            }
            ClientBytes::new(bytes, piece)
        };
        Poll::Ready(next.map(|frame| frame.map(|frame| frame.map_data(pinned))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Empty | Source::Tunnel(_) | Source::Fill(_, Some(0)) => true,
            Source::Whole(..) | Source::Fill(..) => false,
            Source::Disk(body) => body.remaining_bytes() == 0,
            Source::Parts(parts) => parts.remaining_bytes() == 0,
            Source::Slices(body) => body.remaining_bytes() == 0,
            Source::Delivery(delivery) => delivery.is_end_stream(),
            Source::Origin(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Empty | Source::Tunnel(_) | Source::Fill(_, Some(0)) => SizeHint::with_exact(0),
            Source::Whole(bytes, _) => SizeHint::with_exact(bytes.len() as u64),
            Source::Fill(_, Some(left)) => SizeHint::with_exact(*left),
            Source::Fill(_, None) => SizeHint::default(),
            Source::Disk(body) => SizeHint::with_exact(body.remaining_bytes()),
            Source::Parts(parts) => SizeHint::with_exact(parts.remaining_bytes()),
            Source::Slices(body) => SizeHint::with_exact(body.remaining_bytes()),
            Source::Delivery(delivery) => delivery.size_hint(),
            Source::Origin(body) => body.size_hint(),
        }
    }
}

fn bytes_of(piece: Piece) -> Bytes {
    match piece {
        Piece::Bytes(bytes) => bytes,
        Piece::Span(_) => unreachable!("the reader was asked for bytes, not spans"),
    }
}

impl Drop for EdgeBody {
    fn drop(&mut self) {
        // Responses without a body never poll the source, so a body in memory is complete if no byte was taken
        // from it.
        let is_abandoned = match &self.source {
            Source::Empty | Source::Tunnel(_) => false,
            Source::Whole(..) => self.bytes_given > 0,
            Source::Fill(..)
            | Source::Disk(_)
            | Source::Parts(_)
            | Source::Slices(_)
            | Source::Delivery(_)
            | Source::Origin(_) => !self.is_end_stream(),
        };
        if is_abandoned {
            self.worker.counters.aborted_client.increment();
        }
        if let Some(delivery) = &self.delivery {
            delivery.abandon();
        }
        if let Some(mut observation) = self.observation.take() {
            observation.set_body(self.bytes_given, is_abandoned);
            // An HTTP/1.1 connection keeps the record until the socket has accepted the last byte.
            if let Some(observation) = self.in_flight.conn().hold(observation) {
                self.worker.finish(observation);
            }
        }
    }
}

/// The largest piece of a body in memory that hyper gets at once: half of HTTP/2's send buffer.
const PIECE_BYTES: usize = 128 << 10;
