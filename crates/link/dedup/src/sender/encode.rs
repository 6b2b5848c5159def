//! Encodes pieces as frames. A piece is a range of a body that is sent in one frame, as references or as bytes.
//! References to chunks that the peer has lost are replaced by bytes. Bytes may be compressed, some of them
//! against a base: stored chunks that the new chunks may resemble.

use bytes::Bytes;

use crate::Resources;
use crate::codec::{Codec, Effort, Method};
use crate::id::{BodyDigest, ChunkId, sequence_check};
use crate::store::{ChunkStore, bytes_of, load_verified};
use crate::wire::{Frame, FrameSink, Run, Span, StreamId};

use super::SenderCounters;
use super::piece::{Base, Piece, PieceEncoding};

/// Neither the peer nor the store has the bytes any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BytesLost;

/// Encodes a piece as a frame.
pub(super) struct FrameEncoder<'a> {
    pub(super) stream: StreamId,
    pub(super) effort: &'a mut Effort,
    pub(super) counters: &'a mut SenderCounters,
    /// A buffer for the bytes of the chunks against which a piece is compressed.
    pub(super) base: &'a mut Vec<u8>,
    /// A buffer for the compressed bytes.
    pub(super) packed: &'a mut Vec<u8>,
}

impl FrameEncoder<'_> {
    /// Appends the frame of a piece to `out`. The caller passes the body's `digest` if the piece contains the next
    /// bytes for it. The function then adds these bytes, if possible in one pass with the frame's checksum.
    /// `link_busy` is true while earlier bytes still wait for the link. Fails if the bytes of the piece were released
    /// and are needed again, but the store has lost them.
    pub(super) fn encode<S: ChunkStore, C: Codec>(
        &mut self,
        piece: &mut Piece,
        link_busy: bool,
        mut digest: Option<&mut BodyDigest>,
        resources: &mut Resources<'_, S, C>,
        out: &mut impl FrameSink,
    ) -> Result<(), BytesLost> {
        piece.waiting = false;
        let span = Span {
            stream: self.stream,
            offset: piece.offset,
            length: u32::try_from(piece.length).expect("the length of a piece is limited"),
        };
        let bytes = piece.length as u64;
        // The peer may have lost the chunks since the piece was made.
        if piece.is_reference() && !piece.is_known(resources.knowledge) {
            piece.send_as_bytes();
        }
        let raw = if piece.is_reference() {
            // The bytes are only needed for the digest. If they were released, the digest already contains them.
            piece.raw().cloned().unwrap_or_default()
        } else {
            let loaded = piece.load(resources.store, resources.id_key, resources.pool);
            loaded.ok_or(BytesLost)?
        };
        match &piece.encoding {
            PieceEncoding::Plain => {
                self.counters.plain += bytes;
                let method = self.pack(&raw, link_busy, resources.codec);
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
                let base = base.as_ref();
                let base = base.and_then(|base| self.pack_delta(base, &raw, resources));
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
                    piece.encoding = PieceEncoding::Literal { base: None };
                    let method = self.pack(&raw, link_busy, resources.codec);
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
                locations.for_each(|location| resources.knowledge.add(location));
            }
        }
        if let Some(digest) = digest {
            digest.update(&raw);
        }
        Ok(())
    }

    /// Compresses the bytes into `packed`, if `effort` chooses a method. Returns the method, or [`Method::None`] if
    /// the bytes are to be sent uncompressed.
    fn pack(&mut self, raw: &[u8], link_busy: bool, codec: &mut impl Codec) -> Method {
        if raw.len() < COMPRESSED_BYTES_MIN {
            return Method::None;
        }
        let method = self.effort.choose(link_busy, raw.len());
        if method == Method::None {
            return Method::None;
        }
        self.packed.clear();
        let is_packed = codec.compress(method, &[], raw, self.packed);
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

    /// Compresses the bytes into `packed` against a base. Returns the hashes of the base's chunks, or `None` if
    /// the peer or the store has lost a chunk of the base, or if the result is not shorter than the bytes.
    fn pack_delta<S: ChunkStore, C: Codec>(
        &mut self,
        base: &Base,
        raw: &[u8],
        resources: &mut Resources<'_, S, C>,
    ) -> Option<Vec<ChunkId>> {
        let locations = (0..base.entries.len()).map(|nth| base.location.plus(nth));
        let mut lost_locations = locations.filter(|&location| !resources.knowledge.has(location));
        if lost_locations.next().is_some() {
            return None;
        }
        self.packed.clear();
        // `self.base` never shrinks, so that its memory is zeroed only once.
        let bytes = bytes_of(&base.entries);
        self.base.resize(self.base.len().max(bytes), 0);
        let base_bytes = &mut self.base[..bytes];
        let is_loaded = load_verified(
            resources.store,
            resources.id_key,
            base.location,
            &base.entries,
            base_bytes,
        );
        let is_packed = is_loaded
            && resources
                .codec
                .compress(Method::Zstd, base_bytes, raw, self.packed);
        let is_shorter = is_packed && self.packed.len() < raw.len();
        is_shorter.then(|| base.entries.iter().map(|entry| entry.id).collect())
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
