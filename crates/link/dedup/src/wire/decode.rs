//! Decodes frames. The length of a payload is checked before the payload is read. The number of entries of a list is
//! checked before memory is allocated for the list.

use edgeward_types::xxh3::xxh3_64_with_seed;

use crate::codec::Method;
use crate::id::ChunkId;

use super::encode::kind;
use super::{
    CHUNKS_MAX, Checksum, Frame, HEADER_BYTES, Hello, LABEL_BYTES_MAX, NakCause, PAYLOAD_BYTES_MAX,
    PIECE_BYTES_MAX, Run, STREAMS_PER_FRAME, Span, StreamAck, StreamId, StreamState, WireError,
    header_check,
};

/// Returns the length of the frame at the start of `bytes`, including the header; `None` if the header is
/// incomplete.
pub fn frame_length(bytes: &[u8]) -> Result<Option<usize>, WireError> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    Ok(Some(HEADER_BYTES + Header::parse(header)?.payload_bytes))
}

/// Decodes one whole frame with a checksum of the whole payload.
pub fn decode(frame: &[u8]) -> Result<Frame<'_>, WireError> {
    decode_with(Checksum::Whole, frame)
}

/// Like [`decode`], with a checksum of the whole payload or only of its fields.
pub fn decode_with(checksum: Checksum, frame: &[u8]) -> Result<Frame<'_>, WireError> {
    let length_error = WireError::Length {
        kind: frame.get(4).copied().unwrap_or(0),
        bytes: frame.len(),
    };
    let (header, payload) = frame
        .split_first_chunk::<HEADER_BYTES>()
        .ok_or(length_error)?;
    let header = Header::parse(header)?;
    if payload.len() != header.payload_bytes {
        return Err(length_error);
    }
    let check = |bytes: &[u8]| {
        let sum = xxh3_64_with_seed(bytes, header.checksum_seed);
        (sum == header.checksum)
            .then_some(())
            .ok_or(WireError::Checksum)
    };
    if checksum == Checksum::Whole {
        check(payload)?;
    }
    let mut fields = Fields {
        kind: header.kind,
        payload_bytes: payload.len(),
        remaining: payload,
    };
    let frame = fields.frame()?;
    if !fields.remaining.is_empty() {
        return Err(fields.length_error());
    }
    if checksum == Checksum::Fields {
        check(&payload[..payload.len() - frame.tail().len()])?;
    }
    Ok(frame)
}

struct Header {
    kind: u8,
    payload_bytes: usize,
    /// The seed of the checksum: the first 8 bytes of the header.
    checksum_seed: u64,
    checksum: u64,
}

impl Header {
    fn parse(header: &[u8; HEADER_BYTES]) -> Result<Self, WireError> {
        let eight_bytes = |offset: usize| {
            u64::from_le_bytes(
                header[offset..offset + 8]
                    .try_into()
                    .expect("the range has eight bytes"),
            )
        };
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let kind = header[4];
        if length as usize > PAYLOAD_BYTES_MAX {
            return Err(WireError::TooLong(length));
        }
        if !(kind::HELLO..=kind::CREDIT).contains(&kind) {
            return Err(WireError::UnknownType(kind));
        }
        if header[5..8] != header_check(length, kind) {
            return Err(WireError::Header);
        }
        Ok(Self {
            kind,
            payload_bytes: length as usize,
            checksum_seed: eight_bytes(0),
            checksum: eight_bytes(8),
        })
    }
}

/// The undecoded rest of a payload.
pub(super) struct Fields<'a> {
    kind: u8,
    payload_bytes: usize,
    remaining: &'a [u8],
}

impl<'a> Fields<'a> {
    fn frame(&mut self) -> Result<Frame<'a>, WireError> {
        Ok(match self.kind {
            kind::HELLO => Frame::Hello(Hello::decode(self)?),
            kind::OPEN => {
                let stream = self.stream()?;
                let label = self.rest();
                self.check("label", label.len(), LABEL_BYTES_MAX)?;
                Frame::Open { stream, label }
            }
            kind::PLAIN => {
                let (span, method) = (self.span()?, self.method()?);
                Frame::Plain {
                    span,
                    method,
                    payload: self.packed(span, method)?,
                }
            }
            kind::LITERAL => {
                let (span, method) = (self.span()?, self.method()?);
                Frame::Literal {
                    span,
                    method,
                    cuts: self.cuts(span)?,
                    payload: self.packed(span, method)?,
                }
            }
            kind::REF => {
                let (span, skip) = (self.span()?, self.u32()?);
                self.check("skip", skip as usize, PIECE_BYTES_MAX)?;
                let ids = self.ids()?;
                Frame::Ref { span, skip, ids }
            }
            kind::REF_RUN => Frame::RefRun {
                span: self.span()?,
                run: self.run()?,
            },
            kind::DELTA => {
                let (span, method, base) = (self.span()?, self.method()?, self.ids()?);
                Frame::Delta {
                    span,
                    method,
                    base,
                    cuts: self.cuts(span)?,
                    payload: self.packed(span, method)?,
                }
            }
            kind::CLOSE => Frame::Close {
                stream: self.stream()?,
                length: self.u64()?,
                digest: u128::from_le_bytes(self.array()?),
            },
            kind::RESET => Frame::Reset {
                stream: self.stream()?,
                reason: self.u32()?,
            },
            kind::STOP => Frame::Stop {
                stream: self.stream()?,
                reason: self.u32()?,
            },
            kind::ACK => {
                let count = self.count("streams", STREAMS_PER_FRAME)?;
                Frame::Ack(
                    (0..count)
                        .map(|_| self.stream_ack())
                        .collect::<Result<_, _>>()?,
                )
            }
            kind::NAK => Frame::Nak {
                stream: self.stream()?,
                offset: self.u64()?,
                cause: match self.u8()? {
                    0 => NakCause::Missing,
                    1 => NakCause::Order,
                    2 => NakCause::Unopened,
                    other => return Err(self.field_error("cause", other)),
                },
            },
            kind::EPOCH => Frame::Epoch(self.u64()?),
            kind::CREDIT => {
                let count = self.count("streams", STREAMS_PER_FRAME)?;
                let decode_credit = |fields: &mut Self| Ok((fields.stream()?, fields.u64()?));
                Frame::Credit(
                    (0..count)
                        .map(|_| decode_credit(self))
                        .collect::<Result<_, _>>()?,
                )
            }
            other => return Err(WireError::UnknownType(other)),
        })
    }

    fn span(&mut self) -> Result<Span, WireError> {
        let span = Span {
            stream: self.stream()?,
            offset: self.u64()?,
            length: self.u32()?,
        };
        self.check("length", span.length as usize, PIECE_BYTES_MAX)?;
        // Every span has bytes, and every offset is below 2^63, so offset plus length does not overflow.
        if span.length == 0 || span.offset >= 1 << 63 {
            return Err(self.field_error("span", span.offset));
        }
        Ok(span)
    }

    fn run(&mut self) -> Result<Run, WireError> {
        let run = Run {
            first: self.id()?,
            chunks: u16::from_le_bytes(self.array()?),
            check: self.u64()?,
        };
        self.check("run", usize::from(run.chunks), CHUNKS_MAX)?;
        if run.chunks == 0 {
            return Err(self.field_error("run", 0_u8));
        }
        Ok(run)
    }

    fn ids(&mut self) -> Result<Vec<ChunkId>, WireError> {
        let count = self.count("chunks", CHUNKS_MAX)?;
        if count == 0 {
            return Err(self.field_error("chunks", 0_u8));
        }
        (0..count).map(|_| self.id()).collect()
    }

    /// Decodes the lengths of the chunks that end in the frame. Only the lengths after the first one are
    /// compared with the length of the span, because the first chunk may begin in an earlier frame.
    fn cuts(&mut self, span: Span) -> Result<Vec<u32>, WireError> {
        let count = self.count("chunks", CHUNKS_MAX)?;
        let mut cuts = Vec::with_capacity(count);
        for _ in 0..count {
            let cut = self.u32()?;
            self.check("cut", cut as usize, PIECE_BYTES_MAX)?;
            if cut == 0 {
                return Err(self.field_error("cut", 0_u8));
            }
            cuts.push(cut);
        }
        let later_cuts: u64 = cuts.iter().skip(1).map(|&cut| u64::from(cut)).sum();
        if later_cuts >= u64::from(span.length) {
            return Err(self.field_error("cuts", later_cuts));
        }
        Ok(cuts)
    }

    /// Returns the rest of the payload. An uncompressed rest must have the length of the span, and a compressed
    /// one must be shorter.
    fn packed(&mut self, span: Span, method: Method) -> Result<&'a [u8], WireError> {
        let payload = self.rest();
        let span_bytes = span.length as usize;
        let fits = match method {
            Method::None => payload.len() == span_bytes,
            Method::Lz4 | Method::Zstd => payload.len() < span_bytes,
        };
        if !fits {
            return Err(self.length_error());
        }
        Ok(payload)
    }

    fn stream_ack(&mut self) -> Result<StreamAck, WireError> {
        Ok(StreamAck {
            stream: self.stream()?,
            state: match self.u8()? {
                0 => StreamState::Open,
                1 => StreamState::Complete,
                2 => StreamState::Ended,
                other => return Err(self.field_error("state", other)),
            },
            offset: self.u64()?,
        })
    }

    fn count(&mut self, field: &'static str, most: usize) -> Result<usize, WireError> {
        let count = usize::from(u16::from_le_bytes(self.array()?));
        self.check(field, count, most)?;
        // In a frame of one of these two types, the list is empty if no chunk ends in the frame.
        if count == 0 && self.kind != kind::LITERAL && self.kind != kind::DELTA {
            return Err(self.field_error(field, 0_u8));
        }
        Ok(count)
    }

    fn method(&mut self) -> Result<Method, WireError> {
        let code = self.u8()?;
        Method::from_code(code).ok_or_else(|| self.field_error("method", code))
    }

    fn stream(&mut self) -> Result<StreamId, WireError> {
        self.u64().map(StreamId)
    }

    pub(super) fn id(&mut self) -> Result<ChunkId, WireError> {
        self.array().map(ChunkId)
    }

    pub(super) fn u8(&mut self) -> Result<u8, WireError> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (array, remaining) = self
            .remaining
            .split_first_chunk()
            .ok_or_else(|| self.length_error())?;
        self.remaining = remaining;
        Ok(*array)
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.remaining)
    }

    fn check(&self, field: &'static str, value: usize, most: usize) -> Result<(), WireError> {
        if value > most {
            return Err(self.field_error(field, value as u64));
        }
        Ok(())
    }

    pub(super) fn field_error(&self, field: &'static str, value: impl Into<u64>) -> WireError {
        WireError::Field {
            kind: self.kind,
            field,
            value: value.into(),
        }
    }

    fn length_error(&self) -> WireError {
        WireError::Length {
            kind: self.kind,
            bytes: self.payload_bytes,
        }
    }
}
