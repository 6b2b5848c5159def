//! Resolves frames with references to bytes: looks the chunks up in the store, checks that the peer may refer to them,
//! and loads them. The frame waits for the answers of the store. Other frames are handled in the meantime, as if this
//! frame had arrived later.

use bytes::Bytes;

use crate::codec::{Codec, Method};
use crate::id::{ChunkId, sequence_check};
use crate::store::{Answer, LocatedChunk, Request, RequestId, bytes_of_located};
use crate::wire::{NakCause, PIECE_BYTES_MAX, Run, Span};
use crate::{Resources, Violation};

use super::stream::{PieceContent, ReceivedPiece};
use super::{Receiver, Sharing};

/// A frame that waits for an answer of the store.
#[derive(Debug)]
pub(super) struct PendingFrame {
    pub(super) span: Span,
    references: References,
}

/// The chunks that a frame refers to.
#[derive(Debug)]
enum References {
    /// Chunks. The first `skip` bytes of the first chunk were received before: they become the `prefix` of the piece.
    Chunks { ids: Vec<ChunkId>, skip: usize },
    /// Consecutive chunks.
    Run(Run),
    /// The chunks with which the payload is decompressed.
    Base {
        ids: Vec<ChunkId>,
        method: Method,
        cuts: Vec<u32>,
        payload: Bytes,
    },
}

impl Receiver {
    /// Requests the chunks of a REF frame.
    pub(super) fn look_up_chunks(&mut self, span: Span, skip: u32, ids: Vec<ChunkId>) {
        let skip = skip as usize;
        self.look_up(span, References::Chunks { ids, skip });
    }

    /// Requests the chunks of a REF-RUN frame.
    pub(super) fn look_up_run(&mut self, span: Span, run: Run) {
        self.look_up(span, References::Run(run));
    }

    /// Requests the base of a DELTA frame.
    pub(super) fn look_up_base(
        &mut self,
        span: Span,
        ids: Vec<ChunkId>,
        (method, cuts, payload): (Method, Vec<u32>, Bytes),
    ) {
        let base = References::Base {
            ids,
            method,
            cuts,
            payload,
        };
        self.look_up(span, base);
    }

    fn look_up(&mut self, span: Span, references: References) {
        if self.pending.len() >= PENDING_MAX {
            // The peer sends the bytes instead.
            self.counters.missing += 1;
            self.refuse(span.stream, span.offset, NakCause::Missing);
            return;
        }
        let request = match &references {
            References::Chunks { ids, .. } | References::Base { ids, .. } => {
                Request::Lookup(ids.clone())
            }
            References::Run(run) => Request::LookupRun {
                first: run.first,
                chunks: usize::from(run.chunks),
            },
        };
        let request = self.requests.push(request);
        self.pending
            .insert(request, PendingFrame { span, references });
    }

    /// Handles the answer to a request of a frame.
    pub(super) fn complete_frame<C: Codec>(
        &mut self,
        frame: PendingFrame,
        answer: Answer,
        codec: &mut C,
        resources: &mut Resources<'_>,
    ) -> Result<(), Violation> {
        let span = frame.span;
        let result = match answer {
            Answer::Located(chunks) => match self.check_located(&frame, &chunks, resources) {
                Ok(()) => {
                    let request = self.requests.push(Request::Load(chunks));
                    self.pending.insert(request, frame);
                    return Ok(());
                }
                Err(cause) => Err(cause),
            },
            Answer::Loaded(Some(bytes)) => self.resolve(frame, bytes, codec),
            _ => {
                self.counters.missing += 1;
                Err(NakCause::Missing)
            }
        };
        match result {
            Ok(piece) => self.add_piece(span, piece, resources),
            Err(cause) => {
                self.refuse(span.stream, span.offset, cause);
                Ok(())
            }
        }
    }

    /// Checks that all chunks of a frame were found, have the expected length, and that the peer may refer to them.
    fn check_located(
        &mut self,
        frame: &PendingFrame,
        chunks: &[LocatedChunk],
        resources: &Resources<'_>,
    ) -> Result<(), NakCause> {
        let (bytes, length) = (bytes_of_located(chunks), frame.span.length as usize);
        let (is_complete, cause) = match &frame.references {
            References::Chunks { ids, skip } => (
                chunks.len() == ids.len() && bytes == length + skip,
                NakCause::Missing,
            ),
            References::Base { ids, .. } => (
                chunks.len() == ids.len() && bytes <= PIECE_BYTES_MAX,
                NakCause::Missing,
            ),
            // Without its first chunk, a run is missing. Otherwise other chunks follow the first one here.
            References::Run(_) if chunks.is_empty() => (false, NakCause::Missing),
            References::Run(run) => (
                chunks.len() == usize::from(run.chunks)
                    && bytes == length
                    && sequence_check(chunks.iter().map(|chunk| &chunk.entry.id)) == run.check,
                NakCause::Order,
            ),
        };
        let is_foreign = |chunk: &LocatedChunk| {
            self.config.sharing != Sharing::Everything && !resources.knowledge.has(chunk.location)
        };
        if let Some(at) = chunks.iter().position(is_foreign) {
            self.counters.foreign += 1;
            // The chunk is treated as absent. A run that ends after its first chunk is disordered.
            return Err(match frame.references {
                References::Run(_) if at > 0 => NakCause::Order,
                _ => NakCause::Missing,
            });
        }
        if is_complete {
            return Ok(());
        }
        match cause {
            NakCause::Order => self.counters.disordered += 1,
            _ => self.counters.missing += 1,
        }
        Err(cause)
    }

    /// Makes the piece of a frame from the loaded chunks.
    fn resolve<C: Codec>(
        &mut self,
        frame: PendingFrame,
        loaded: Bytes,
        codec: &mut C,
    ) -> Result<ReceivedPiece, NakCause> {
        let length = frame.span.length as usize;
        let skip = match frame.references {
            References::Chunks { skip, .. } => skip,
            References::Run(_) => 0,
            References::Base {
                method,
                cuts,
                payload,
                ..
            } => {
                self.counters.bases += loaded.len() as u64;
                // The base is verified. If the payload does not decompress with it, the sender used other chunks with
                // the same hashes.
                let payload_buffer = Some(&payload);
                let bytes = unpack(frame.span, method, &loaded, &payload, payload_buffer, codec);
                self.counters.delta += length as u64;
                let kind = PieceContent::Chunks { cuts };
                return bytes
                    .map(|bytes| ReceivedPiece { bytes, kind })
                    .map_err(|_| NakCause::Missing);
            }
        };
        self.counters.from_store += length as u64;
        let prefix = loaded[..skip].to_vec();
        Ok(ReceivedPiece {
            bytes: loaded.slice(skip..skip + length),
            kind: PieceContent::References { prefix },
        })
    }

    /// Returns the pending frame of a request.
    pub(super) fn take_pending(&mut self, request: RequestId) -> Option<PendingFrame> {
        self.pending.remove(&request)
    }
}

/// Decompresses a payload. `frame` is the buffer that contains the payload, or `None` if the result must not share
/// this buffer.
pub(super) fn unpack(
    span: Span,
    method: Method,
    dictionary: &[u8],
    payload: &[u8],
    frame: Option<&Bytes>,
    codec: &mut impl Codec,
) -> Result<Bytes, Violation> {
    if method == Method::None {
        return Ok(payload_bytes(payload, frame));
    }
    let length = span.length as usize;
    let mut bytes = Vec::with_capacity(length);
    let result = codec.decompress(method, dictionary, payload, length, &mut bytes);
    if result.is_err() || bytes.len() != length {
        return Err(Violation::Payload(span.stream));
    }
    Ok(bytes.into())
}

/// Returns the payload as a part of the frame's buffer. A short payload is copied, so that it does not keep a large
/// buffer in use.
pub(super) fn payload_bytes(payload: &[u8], frame: Option<&Bytes>) -> Bytes {
    let frame = frame.filter(|frame| payload.len() >= frame.len() / 2);
    frame.map_or_else(
        || Bytes::copy_from_slice(payload),
        |frame| frame.slice_ref(payload),
    )
}

/// The largest number of frames that wait for the store. Their payloads take at most 16 MiB.
const PENDING_MAX: usize = 32;
