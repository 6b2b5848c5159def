//! Encodes the frames of the link protocol: a header, fields, and in some frames bytes of a body.

use std::hash::Hasher as _;

use bytes::Bytes;
use edgeward_types::xxh3::{Xxh3, xxh3_64_with_seed};

use crate::id::ChunkId;

use super::{
    Checksum, Frame, FrameSink, HEADER_BYTES, NakCause, PAYLOAD_BYTES_MAX, Run, Span, StreamId,
    StreamState, header_check,
};

/// The numbers of frame types.
pub(super) mod kind {
    pub(crate) const HELLO: u8 = 1;
    pub(crate) const OPEN: u8 = 2;
    pub(crate) const PLAIN: u8 = 3;
    pub(crate) const LITERAL: u8 = 4;
    pub(crate) const REF: u8 = 5;
    pub(crate) const REF_RUN: u8 = 6;
    pub(crate) const DELTA: u8 = 7;
    pub(crate) const CLOSE: u8 = 8;
    pub(crate) const RESET: u8 = 9;
    pub(crate) const STOP: u8 = 10;
    pub(crate) const ACK: u8 = 11;
    pub(crate) const NAK: u8 = 12;
    pub(crate) const EPOCH: u8 = 13;
    pub(crate) const CREDIT: u8 = 14;
}

impl Frame<'_> {
    /// Appends the frame to `out`, including the header, with a checksum of the whole payload.
    ///
    /// # Panics
    ///
    /// If the payload is longer than the limit of the protocol: [`decode`](super::decode()) would refuse the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_with(Checksum::Whole, out);
    }

    /// Like [`encode`](Self::encode), with this kind of checksum.
    ///
    /// # Panics
    ///
    /// Like [`encode`](Self::encode).
    pub fn encode_with(&self, checksum: Checksum, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + HEADER_BYTES, 0);
        let kind = self.encode_fields(out);
        let fields_end = out.len();
        out.extend_from_slice(self.tail());
        let header = header(kind, out.len() - start - HEADER_BYTES);
        let end = match checksum {
            Checksum::Whole => out.len(),
            Checksum::Fields => fields_end,
        };
        let sum = xxh3_64_with_seed(&out[start + HEADER_BYTES..end], header);
        put_header(&mut out[start..], header, sum);
    }

    /// Like [`encode_with`](Self::encode_with), but without the bytes of a body at the end of the frame. The
    /// caller sends these bytes directly from their buffer. `on_bytes` is called with the same bytes, so that the
    /// caller can compute a digest. With [`Checksum::Whole`], `on_bytes` gets them in parts that are still in the
    /// processor's cache.
    ///
    /// # Panics
    ///
    /// Like [`encode`](Self::encode).
    pub fn encode_apart(
        &self,
        checksum: Checksum,
        out: &mut Vec<u8>,
        mut on_bytes: impl FnMut(&[u8]),
    ) {
        let start = out.len();
        out.resize(start + HEADER_BYTES, 0);
        let kind = self.encode_fields(out);
        let fields = &out[start + HEADER_BYTES..];
        let tail = self.tail();
        let header = header(kind, fields.len() + tail.len());
        let sum = match checksum {
            Checksum::Whole => {
                let mut sum = Xxh3::with_seed(header);
                sum.write(fields);
                for bytes in tail.chunks(CACHED_BYTES) {
                    sum.write(bytes);
                    on_bytes(bytes);
                }
                sum.finish()
            }
            Checksum::Fields => {
                on_bytes(tail);
                xxh3_64_with_seed(fields, header)
            }
        };
        put_header(&mut out[start..], header, sum);
    }

    /// Returns the bytes of a body at the end of the frame. They may be compressed.
    pub(super) fn tail(&self) -> &[u8] {
        match self {
            Self::Plain { payload, .. }
            | Self::Literal { payload, .. }
            | Self::Delta { payload, .. } => payload,
            _ => &[],
        }
    }

    /// Encodes the payload without [`tail`](Self::tail). Returns the type of the frame.
    fn encode_fields(&self, out: &mut Vec<u8>) -> u8 {
        match self {
            Self::Hello(hello) => {
                hello.encode(out);
                kind::HELLO
            }
            Self::Open { stream, label } => {
                put_stream(out, *stream);
                out.extend_from_slice(label);
                kind::OPEN
            }
            Self::Plain { span, method, .. } => {
                put_span(out, *span);
                out.push(method.code());
                kind::PLAIN
            }
            Self::Literal {
                span, method, cuts, ..
            } => {
                put_span(out, *span);
                out.push(method.code());
                put_cuts(out, cuts);
                kind::LITERAL
            }
            Self::Ref { span, skip, ids } => {
                put_span(out, *span);
                out.extend_from_slice(&skip.to_le_bytes());
                put_ids(out, ids);
                kind::REF
            }
            Self::RefRun { span, run } => {
                put_span(out, *span);
                put_run(out, run);
                kind::REF_RUN
            }
            Self::Delta {
                span,
                method,
                base,
                cuts,
                ..
            } => {
                put_span(out, *span);
                out.push(method.code());
                put_ids(out, base);
                put_cuts(out, cuts);
                kind::DELTA
            }
            Self::Close {
                stream,
                length,
                digest,
            } => {
                put_stream(out, *stream);
                out.extend_from_slice(&length.to_le_bytes());
                out.extend_from_slice(&digest.to_le_bytes());
                kind::CLOSE
            }
            Self::Reset { stream, reason } => {
                put_stream(out, *stream);
                out.extend_from_slice(&reason.to_le_bytes());
                kind::RESET
            }
            Self::Stop { stream, reason } => {
                put_stream(out, *stream);
                out.extend_from_slice(&reason.to_le_bytes());
                kind::STOP
            }
            Self::Ack(streams) => {
                put_count(out, streams.len());
                for acked in streams {
                    put_stream(out, acked.stream);
                    out.push(match acked.state {
                        StreamState::Open => 0,
                        StreamState::Complete => 1,
                        StreamState::Ended => 2,
                    });
                    out.extend_from_slice(&acked.offset.to_le_bytes());
                }
                kind::ACK
            }
            Self::Nak {
                stream,
                offset,
                cause,
            } => {
                put_stream(out, *stream);
                out.extend_from_slice(&offset.to_le_bytes());
                out.push(match cause {
                    NakCause::Missing => 0,
                    NakCause::Order => 1,
                    NakCause::Unopened => 2,
                });
                kind::NAK
            }
            Self::Epoch(epoch) => {
                out.extend_from_slice(&epoch.to_le_bytes());
                kind::EPOCH
            }
            Self::Credit(streams) => {
                put_count(out, streams.len());
                for (stream, limit) in streams {
                    put_stream(out, *stream);
                    out.extend_from_slice(&limit.to_le_bytes());
                }
                kind::CREDIT
            }
        }
    }
}

/// Writes the 16 bytes of the header: the number that [`header`] returns, and the checksum of the frame.
fn put_header(frame: &mut [u8], header: u64, sum: u64) {
    frame[..8].copy_from_slice(&header.to_le_bytes());
    frame[8..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
}

/// Returns the first eight bytes of a header as a number: the length of the payload, the type of the frame, and a check
/// of both.
fn header(kind: u8, payload: usize) -> u64 {
    assert!(payload <= PAYLOAD_BYTES_MAX, "a payload of {payload} bytes");
    let length = u32::try_from(payload).expect("the payload is below the maximum");
    let [first, second, third] = header_check(length, kind);
    let check = u64::from(u32::from_le_bytes([0, first, second, third]));
    u64::from(length) | (u64::from(kind) | check) << 32
}

impl FrameSink for Vec<u8> {
    fn head(&mut self) -> &mut Vec<u8> {
        self
    }

    fn payload(&mut self, payload: &Bytes) {
        self.extend_from_slice(payload);
    }

    fn bytes(&self) -> usize {
        self.len()
    }
}

/// The number of bytes that are added to the checksum and passed to the callback at a time: half of a
/// first-level cache.
const CACHED_BYTES: usize = 16 << 10;

fn put_stream(out: &mut Vec<u8>, stream: StreamId) {
    out.extend_from_slice(&stream.0.to_le_bytes());
}

fn put_span(out: &mut Vec<u8>, span: Span) {
    put_stream(out, span.stream);
    out.extend_from_slice(&span.offset.to_le_bytes());
    out.extend_from_slice(&span.length.to_le_bytes());
}

fn put_id(out: &mut Vec<u8>, id: &ChunkId) {
    out.extend_from_slice(&id.0);
}

fn put_ids(out: &mut Vec<u8>, ids: &[ChunkId]) {
    put_count(out, ids.len());
    ids.iter().for_each(|id| put_id(out, id));
}

fn put_run(out: &mut Vec<u8>, run: &Run) {
    put_id(out, &run.first);
    out.extend_from_slice(&run.chunks.to_le_bytes());
    out.extend_from_slice(&run.check.to_le_bytes());
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = u16::try_from(count).expect("the lists of a frame are limited");
    out.extend_from_slice(&count.to_le_bytes());
}

fn put_cuts(out: &mut Vec<u8>, cuts: &[u32]) {
    put_count(out, cuts.len());
    for cut in cuts {
        out.extend_from_slice(&cut.to_le_bytes());
    }
}
