//! Encodes pieces as frames. A piece is a range of a body that is sent in one frame, as references or as bytes.
//! References to chunks that the peer has lost are replaced by bytes. Bytes may be compressed, some of them
//! against a base: stored chunks that the new chunks may resemble.

use bytes::Bytes;

use crate::codec::{Codec, Effort, Method};
use crate::id::{BodyDigest, ChunkId, sequence_check};
use crate::knowledge::Knowledge;
use crate::noise::is_noise;
use crate::wire::{Frame, FrameSink, Run, Span, StreamId};

use super::SenderCounters;
use super::piece::{Base, Piece, PieceEncoding};

/// Encodes a piece as a frame.
pub(super) struct FrameEncoder<'a, C> {
    pub(super) stream: StreamId,
    /// True if the whole body is sent without deduplication.
    pub(super) is_bypassed: bool,
    /// True while earlier bytes still wait for the link.
    pub(super) link_busy: bool,
    pub(super) codec: &'a mut C,
    pub(super) effort: &'a mut Effort,
    pub(super) counters: &'a mut SenderCounters,
    /// A buffer for the compressed bytes.
    pub(super) packed: &'a mut Vec<u8>,
}

impl<C: Codec> FrameEncoder<'_, C> {
    /// Appends the frame of a piece to `out`. The caller passes the body's `digest` if the piece contains the next
    /// bytes for it. The function then adds these bytes, if possible in one pass with the frame's checksum. The caller
    /// has loaded the piece's [missing](Piece::missing) bytes.
    pub(super) fn encode(
        &mut self,
        piece: &mut Piece,
        mut digest: Option<&mut BodyDigest>,
        knowledge: &mut Knowledge,
        out: &mut impl FrameSink,
    ) {
        piece.waiting = false;
        let span = Span {
            stream: self.stream,
            offset: piece.offset,
            length: u32::try_from(piece.length).expect("the length of a piece is limited"),
        };
        let bytes = piece.length as u64;
        // The bytes of a reference are only needed for the digest. If they were released, the digest already contains
        // them.
        let raw = piece.raw().cloned().unwrap_or_default();
        assert!(
            piece.is_reference() || raw.len() == piece.length,
            "the bytes are in memory"
        );
        match &mut piece.encoding {
            PieceEncoding::Plain => {
                self.counters.plain += bytes;
                self.counters.bypassed += if self.is_bypassed { bytes } else { 0 };
                let method = self.pack(&raw);
                let payload = self.payload(method, &raw);
                let frame = Frame::Plain {
                    span,
                    method,
                    payload,
                };
                put_frame(&frame, method, &raw, &mut digest, out);
            }
            PieceEncoding::Refs { skip } => {
                self.counters.referenced += bytes;
                let ids = piece.chunks.iter().map(|sent| sent.id).collect();
                Frame::Ref {
                    span,
                    skip: *skip,
                    ids,
                }
                .encode(out.head());
            }
            PieceEncoding::Run => {
                self.counters.referenced += bytes;
                let run = Run {
                    first: piece.chunks[0].id,
                    chunks: u16::try_from(piece.chunks.len())
                        .expect("the length of a run is limited"),
                    check: sequence_check(piece.chunks.iter().map(|sent| &sent.id)),
                };
                Frame::RefRun { span, run }.encode(out.head());
            }
            PieceEncoding::Literal { base } => {
                let cuts = piece.chunks.iter().map(|sent| sent.length).collect();
                self.counters.evicted += std::mem::take(&mut piece.evicted_bytes);
                let base = base.as_mut();
                let base = base.and_then(|base| self.pack_delta(base, &raw));
                if let Some(base) = base {
                    self.counters.delta += bytes;
                    let (method, payload) = (Method::Zstd, &self.packed[..]);
                    Frame::Delta {
                        span,
                        method,
                        base,
                        cuts,
                        payload,
                    }
                    .encode_with(out.checksum(), out.head());
                } else {
                    self.counters.literal += bytes;
                    self.counters.incompressible += if is_noise(&raw) { bytes } else { 0 };
                    piece.encoding = PieceEncoding::Literal { base: None };
                    let method = self.pack(&raw);
                    let payload = self.payload(method, &raw);
                    let frame = Frame::Literal {
                        span,
                        method,
                        cuts,
                        payload,
                    };
                    put_frame(&frame, method, &raw, &mut digest, out);
                }
                // Later frames on this link may refer to these chunks.
                let locations = piece.chunks.iter().filter_map(|sent| sent.location);
                locations.for_each(|location| knowledge.add(location));
            }
        }
        if let Some(digest) = digest {
            digest.update(&raw);
        }
    }

    /// Compresses the bytes into `packed`, if `effort` chooses a method. Returns the method, or [`Method::None`] if
    /// the bytes are to be sent uncompressed.
    fn pack(&mut self, raw: &[u8]) -> Method {
        if raw.len() < COMPRESSED_BYTES_MIN {
            return Method::None;
        }
        let method = self.effort.choose(self.link_busy, raw.len());
        if method == Method::None {
            return Method::None;
        }
        self.packed.clear();
        let is_packed = self.codec.compress(method, &[], raw, self.packed);
        let packed_bytes = if is_packed {
            self.packed.len()
        } else {
            raw.len()
        };
        self.effort.learn(raw.len(), packed_bytes);
        if packed_bytes < raw.len() {
            method
        } else {
            Method::None
        }
    }

    fn payload<'b>(&'b self, method: Method, raw: &'b [u8]) -> &'b [u8] {
        if method == Method::None {
            raw
        } else {
            self.packed
        }
    }

    /// Compresses the bytes into `packed` against a base. Returns the hashes of the base's chunks, or `None` if the
    /// result is not shorter than the bytes.
    fn pack_delta(&mut self, base: &mut Base, raw: &[u8]) -> Option<Vec<ChunkId>> {
        self.packed.clear();
        // The memory of a piece does not count its base, so the base is released at once.
        let dictionary = base.bytes.take()?;
        let is_packed = self
            .codec
            .compress(Method::Zstd, &dictionary, raw, self.packed);
        let is_shorter = is_packed && self.packed.len() < raw.len();
        is_shorter.then(|| base.chunks.iter().map(|chunk| chunk.entry.id).collect())
    }
}

/// Passes a frame to the sink. A long uncompressed payload is not copied.
fn put_frame(
    frame: &Frame<'_>,
    method: Method,
    raw: &Bytes,
    digest: &mut Option<&mut BodyDigest>,
    out: &mut impl FrameSink,
) {
    if method == Method::None && raw.len() >= UNCOPIED_BYTES_MIN {
        let mut digest = digest.take();
        frame.encode_apart(out.checksum(), out.head(), |bytes| {
            if let Some(digest) = &mut digest {
                digest.update(bytes);
            }
        });
        out.payload(raw);
    } else {
        frame.encode_with(out.checksum(), out.head());
    }
}

/// The smallest payload that is not copied. Copying fewer bytes costs less than another entry in the list of
/// payloads.
const UNCOPIED_BYTES_MIN: usize = 8 << 10;

/// The smallest piece that is compressed. For a shorter piece, setting up the compressor costs more than it saves.
const COMPRESSED_BYTES_MIN: usize = 128;
