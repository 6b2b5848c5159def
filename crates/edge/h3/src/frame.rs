//! Frames (RFC 9114 §7): their types, an incremental decoder, and the heads of frames that the server sends.

use bytes::{Buf as _, Bytes, BytesMut};

use crate::error::{ConnectionError, ErrorCode};
use crate::varint::{VarintReader, push_varint};

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameType(pub u64);

impl FrameType {
    /// Content of a message.
    pub const DATA: Self = Self(0x0);
    /// A field section.
    pub const HEADERS: Self = Self(0x1);
    /// A push is not needed.
    pub const CANCEL_PUSH: Self = Self(0x3);
    /// The settings of an endpoint.
    pub const SETTINGS: Self = Self(0x4);
    /// A request that a server has pushed.
    pub const PUSH_PROMISE: Self = Self(0x5);
    /// The sender accepts no further requests or pushes.
    pub const GOAWAY: Self = Self(0x7);
    /// The number of pushes that a server may use.
    pub const MAX_PUSH_ID: Self = Self(0xd);
    /// The priority of a request (RFC 9218 §7.2).
    pub const PRIORITY_UPDATE: Self = Self(0xf_0700);
    /// The priority of a push (RFC 9218 §7.2).
    pub const PRIORITY_UPDATE_PUSH: Self = Self(0xf_0701);
}

/// The kind of stream that frames are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// A bidirectional stream of a client.
    Request,
    /// The control stream of a client.
    Control,
}

/// Limits of the frames of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLimits {
    /// Bytes of an encoded field section. A longer HEADERS frame is skipped, and reported as [`FrameEvent::TooLarge`].
    pub headers_bytes_max: usize,
    /// Bytes of a frame on the control stream. A longer one is an error of the connection. Default 1 KiB: the settings
    /// of browsers take less than 50 bytes, a priority less than 20.
    pub control_bytes_max: usize,
    /// Frames of a request that carry nothing, in succession: DATA without content, and unknown types. Default 100:
    /// clients that send reserved types (RFC 9114 §7.2.8) send a few. More are an error of the connection.
    pub idle_frames_max: u32,
}

impl Default for FrameLimits {
    fn default() -> Self {
        Self {
            headers_bytes_max: 64 << 10,
            control_bytes_max: 1 << 10,
            idle_frames_max: 100,
        }
    }
}

/// A frame, or a part of a DATA frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameEvent {
    /// A DATA frame of this length begins.
    DataBegins(u64),
    /// The next bytes of a DATA frame: a part of the input, not a copy.
    Data(Bytes),
    /// A complete frame of another type, with its payload. The payload is a part of the input if it arrived in one
    /// piece.
    Frame(FrameType, Bytes),
    /// A HEADERS frame exceeds [`FrameLimits::headers_bytes_max`]. Its payload will be skipped.
    TooLarge,
    /// A frame of an unknown or reserved type begins. Its payload will be skipped, in any length and without a buffer.
    Skipped(FrameType),
}

/// Reads the frames of a stream from bytes that arrive in any pieces.
#[derive(Debug)]
pub struct FrameDecoder {
    kind: StreamKind,
    limits: FrameLimits,
    state: State,
    integer: VarintReader,
    /// The payload of an incomplete frame. It grows as bytes arrive, not by the stated length.
    buffer: BytesMut,
    idle_frames: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Type,
    Length(FrameType),
    /// The frame and the bytes of its payload that have not arrived.
    Payload(FrameType, usize),
    Data(u64),
    Skip(u64),
}

impl FrameDecoder {
    /// Creates a decoder at the start of a stream. On the control stream, frames begin after the type of the stream.
    pub fn new(kind: StreamKind, limits: FrameLimits) -> Self {
        Self {
            kind,
            limits,
            state: State::Type,
            integer: VarintReader::default(),
            buffer: BytesMut::new(),
            idle_frames: 0,
        }
    }

    /// Takes bytes from `input` and returns the next event; `None` if `input` is empty and more bytes are needed. After
    /// an error, the decoder must not be used.
    pub fn decode(&mut self, input: &mut Bytes) -> Result<Option<FrameEvent>, ConnectionError> {
        loop {
            match self.state {
                State::Type => {
                    let Some(frame_type) = self.integer.read(input) else {
                        return Ok(None);
                    };
                    let frame_type = FrameType(frame_type);
                    self.check_type(frame_type)?;
                    self.state = State::Length(frame_type);
                }
                State::Length(frame_type) => {
                    let Some(length) = self.integer.read(input) else {
                        return Ok(None);
                    };
                    if let Some(event) = self.begin(frame_type, length)? {
                        return Ok(Some(event));
                    }
                }
                State::Data(0) | State::Skip(0) => self.state = State::Type,
                State::Data(rest) => {
                    let piece = take(input, rest);
                    self.state = State::Data(rest - piece.len() as u64);
                    return Ok((!piece.is_empty()).then_some(FrameEvent::Data(piece)));
                }
                State::Skip(rest) => {
                    let skipped = take(input, rest).len() as u64;
                    if skipped == 0 {
                        return Ok(None);
                    }
                    self.state = State::Skip(rest - skipped);
                }
                State::Payload(frame_type, rest) => {
                    let piece = take(input, rest as u64);
                    if piece.len() < rest {
                        self.buffer.extend_from_slice(&piece);
                        self.state = State::Payload(frame_type, rest - piece.len());
                        return Ok(None);
                    }
                    let payload = if self.buffer.is_empty() {
                        piece
                    } else {
                        self.buffer.extend_from_slice(&piece);
                        std::mem::take(&mut self.buffer).freeze()
                    };
                    self.state = State::Type;
                    return Ok(Some(FrameEvent::Frame(frame_type, payload)));
                }
            }
        }
    }

    /// Checks that the stream ends after a complete frame (RFC 9114 §7.1). Not called for a stream that was reset.
    pub fn finish(&self) -> Result<(), ConnectionError> {
        match self.state {
            State::Data(0) | State::Skip(0) => Ok(()),
            State::Type if self.integer.is_empty() => Ok(()),
            _ => Err(ConnectionError::new(
                ErrorCode::H3_FRAME_ERROR,
                "a stream ends within a frame",
            )),
        }
    }

    /// The bytes that the decoder holds for an incomplete frame.
    pub fn buffered_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// Refuses types that the stream must not have (RFC 9114 §7.2).
    fn check_type(&self, frame_type: FrameType) -> Result<(), ConnectionError> {
        let unexpected = |reason| Err(ConnectionError::new(ErrorCode::H3_FRAME_UNEXPECTED, reason));
        match (frame_type, self.kind) {
            (FrameType::DATA | FrameType::HEADERS, StreamKind::Control) => {
                unexpected("the control stream has a frame of a request")
            }
            (FrameType::PUSH_PROMISE, _) => unexpected("a client sends PUSH_PROMISE"),
            (frame_type, StreamKind::Request) if is_control(frame_type) => {
                unexpected("a request has a frame of the control stream")
            }
            // §7.2.8: PRIORITY, PING, WINDOW_UPDATE and CONTINUATION of HTTP/2.
            (FrameType(0x2 | 0x6 | 0x8 | 0x9), _) => unexpected("a frame of HTTP/2"),
            _ => Ok(()),
        }
    }

    /// Begins a frame whose type the stream may have.
    fn begin(
        &mut self,
        frame_type: FrameType,
        length: u64,
    ) -> Result<Option<FrameEvent>, ConnectionError> {
        let payload_bytes = |max| usize::try_from(length).ok().filter(|&length| length <= max);
        match frame_type {
            FrameType::DATA => {
                match length {
                    0 => self.count_idle()?,
                    // A stream may last for days, and each byte of content costs the client as much as an idle frame.
                    _ => self.idle_frames = 0,
                }
                self.state = State::Data(length);
                Ok(Some(FrameEvent::DataBegins(length)))
            }
            FrameType::HEADERS => match payload_bytes(self.limits.headers_bytes_max) {
                Some(length) => {
                    self.state = State::Payload(frame_type, length);
                    Ok(None)
                }
                None => {
                    self.state = State::Skip(length);
                    Ok(Some(FrameEvent::TooLarge))
                }
            },
            _ if is_control(frame_type) => {
                let length = payload_bytes(self.limits.control_bytes_max);
                self.state = State::Payload(frame_type, length.ok_or(CONTROL_TOO_LARGE)?);
                Ok(None)
            }
            _ => {
                if self.kind == StreamKind::Request {
                    self.count_idle()?;
                }
                self.state = State::Skip(length);
                Ok(Some(FrameEvent::Skipped(frame_type)))
            }
        }
    }

    fn count_idle(&mut self) -> Result<(), ConnectionError> {
        self.idle_frames += 1;
        if self.idle_frames > self.limits.idle_frames_max {
            return Err(ConnectionError::new(
                ErrorCode::H3_EXCESSIVE_LOAD,
                "a request has too many frames without content in succession",
            ));
        }
        Ok(())
    }
}

/// Appends the type and length of a frame. The payload of `length` bytes follows.
pub fn push_frame_head(out: &mut Vec<u8>, frame_type: FrameType, length: u64) {
    push_varint(out, frame_type.0);
    push_varint(out, length);
}

fn is_control(frame_type: FrameType) -> bool {
    matches!(
        frame_type,
        FrameType::CANCEL_PUSH
            | FrameType::SETTINGS
            | FrameType::GOAWAY
            | FrameType::MAX_PUSH_ID
            | FrameType::PRIORITY_UPDATE
            | FrameType::PRIORITY_UPDATE_PUSH
    )
}

/// Splits up to `length` bytes off the input.
fn take(input: &mut Bytes, length: u64) -> Bytes {
    let length = usize::try_from(length).map_or(input.len(), |length| length.min(input.len()));
    if length == input.len() {
        return std::mem::take(input);
    }
    let piece = input.slice(..length);
    input.advance(length);
    piece
}

const CONTROL_TOO_LARGE: ConnectionError = ConnectionError::new(
    ErrorCode::H3_EXCESSIVE_LOAD,
    "a frame of the control stream is too long",
);

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn frame(frame_type: FrameType, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        push_frame_head(&mut out, frame_type, payload.len() as u64);
        out.extend_from_slice(payload);
        out
    }

    /// The events of a stream that arrives in these pieces, with DATA joined, and its error.
    fn events<'a>(
        kind: StreamKind,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) -> (Vec<FrameEvent>, Result<(), ConnectionError>) {
        let limits = FrameLimits {
            headers_bytes_max: 40,
            control_bytes_max: 20,
            idle_frames_max: 3,
        };
        let mut decoder = FrameDecoder::new(kind, limits);
        let mut events = Vec::new();
        for piece in pieces {
            let mut piece = Bytes::copy_from_slice(piece);
            loop {
                match (decoder.decode(&mut piece), events.last_mut()) {
                    (Err(error), _) => return (events, Err(error)),
                    (Ok(None), _) => break,
                    (Ok(Some(FrameEvent::Data(more))), Some(FrameEvent::Data(data))) => {
                        *data = [&data[..], &more[..]].concat().into();
                    }
                    (Ok(Some(event)), _) => events.push(event),
                }
            }
            assert!(piece.is_empty());
            assert!(decoder.buffered_bytes() <= 2 * 40);
        }
        (events, decoder.finish())
    }

    fn at_once(kind: StreamKind, bytes: &[u8]) -> (Vec<FrameEvent>, Result<(), ConnectionError>) {
        events(kind, std::iter::once(bytes))
    }

    fn code(kind: StreamKind, bytes: &[u8]) -> Option<ErrorCode> {
        at_once(kind, bytes).1.err().map(|error| error.code)
    }

    #[test]
    fn a_payload_in_one_piece_is_not_copied() {
        let mut input = Bytes::from(
            [
                frame(FrameType::HEADERS, b"section"),
                frame(FrameType::DATA, b"content"),
            ]
            .concat(),
        );
        let (start, end) = (
            input.as_ptr() as usize,
            input.as_ptr() as usize + input.len(),
        );
        let mut decoder = FrameDecoder::new(StreamKind::Request, FrameLimits::default());
        let mut parts = 0;
        while let Some(event) = decoder.decode(&mut input).expect("the frames are valid") {
            if let FrameEvent::Data(part) | FrameEvent::Frame(_, part) = event {
                assert!((start..end).contains(&(part.as_ptr() as usize)));
                parts += 1;
            }
        }
        assert_eq!(parts, 2);
    }

    /// RFC 9114, table 1.
    #[test]
    fn each_type_is_allowed_on_its_stream_only() {
        use StreamKind::{Control, Request};
        let unexpected = Some(ErrorCode::H3_FRAME_UNEXPECTED);
        for (frame_type, on_request, on_control) in [
            (FrameType::DATA, None, unexpected),
            (FrameType::HEADERS, None, unexpected),
            (FrameType::CANCEL_PUSH, unexpected, None),
            (FrameType::SETTINGS, unexpected, None),
            (FrameType::PUSH_PROMISE, unexpected, unexpected),
            (FrameType::GOAWAY, unexpected, None),
            (FrameType::MAX_PUSH_ID, unexpected, None),
            (FrameType::PRIORITY_UPDATE, unexpected, None),
            (FrameType::PRIORITY_UPDATE_PUSH, unexpected, None),
            (FrameType(0x2), unexpected, unexpected),
            (FrameType(0x6), unexpected, unexpected),
            (FrameType(0x8), unexpected, unexpected),
            (FrameType(0x9), unexpected, unexpected),
            (FrameType(0x21), None, None),
            (FrameType(0xa), None, None),
        ] {
            let bytes = frame(frame_type, b"x");
            assert_eq!(code(Request, &bytes), on_request, "{frame_type:?}");
            assert_eq!(code(Control, &bytes), on_control, "{frame_type:?}");
        }
    }

    #[test]
    fn a_frame_cut_short_is_an_error_at_the_end() {
        for kind in [StreamKind::Request, StreamKind::Control] {
            let frame_type = match kind {
                StreamKind::Request => FrameType::DATA,
                StreamKind::Control => FrameType::GOAWAY,
            };
            let bytes = [frame(frame_type, b"xy"), frame(FrameType(0x4021), b"z")].concat();
            for length in 0..=bytes.len() {
                let is_whole = [0, 4, bytes.len()].contains(&length);
                let error = (!is_whole).then_some(ErrorCode::H3_FRAME_ERROR);
                assert_eq!(code(kind, &bytes[..length]), error, "{length}");
            }
        }
    }

    #[test]
    fn a_field_section_beyond_the_limit_is_skipped() {
        let sections = |length| {
            [
                frame(FrameType::HEADERS, &vec![0; length]),
                frame(FrameType::DATA, b"x"),
            ]
            .concat()
        };
        let (events, end) = at_once(StreamKind::Request, &sections(41));
        let data = [
            FrameEvent::DataBegins(1),
            FrameEvent::Data(Bytes::from_static(b"x")),
        ];
        assert_eq!(events, [&[FrameEvent::TooLarge], &data[..]].concat());
        assert_eq!(end, Ok(()));
        let (events, _) = at_once(StreamKind::Request, &sections(40));
        let section = FrameEvent::Frame(FrameType::HEADERS, Bytes::from_static(&[0; 40]));
        assert_eq!(events, [&[section], &data[..]].concat());
    }

    #[test]
    fn a_control_frame_beyond_the_limit_is_an_error() {
        let settings = |length| frame(FrameType::SETTINGS, &vec![0; length]);
        assert_eq!(code(StreamKind::Control, &settings(20)), None);
        assert_eq!(
            code(StreamKind::Control, &settings(21)),
            Some(ErrorCode::H3_EXCESSIVE_LOAD)
        );
    }

    #[test]
    fn frames_without_content_are_limited_in_succession() {
        let content = frame(FrameType::DATA, b"x");
        for idle in [frame(FrameType::DATA, b""), frame(FrameType(0x21), b"abc")] {
            let code = |parts: [Vec<u8>; 3]| code(StreamKind::Request, &parts.concat());
            assert_eq!(
                code([idle.repeat(3), content.clone(), idle.repeat(3)]),
                None
            );
            let excessive = Some(ErrorCode::H3_EXCESSIVE_LOAD);
            assert_eq!(code([idle.repeat(4), content.clone(), vec![]]), excessive);
            assert_eq!(
                code([content.clone(), idle.repeat(2), idle.repeat(2)]),
                excessive
            );
        }
    }

    /// Method: state a length of 2^62 - 1, and send a megabyte of it.
    #[test]
    fn an_unknown_frame_of_any_length_takes_no_memory() {
        let mut decoder = FrameDecoder::new(StreamKind::Request, FrameLimits::default());
        let mut head = Vec::new();
        push_frame_head(&mut head, FrameType(0x21), crate::varint::VARINT_MAX);
        let skipped = decoder.decode(&mut head.into());
        assert_eq!(skipped, Ok(Some(FrameEvent::Skipped(FrameType(0x21)))));
        assert_eq!(decoder.decode(&mut vec![0; 1 << 20].into()), Ok(None));
        assert_eq!(decoder.buffered_bytes(), 0);
        assert!(decoder.finish().is_err());
    }

    fn any_frames(kind: StreamKind) -> impl Strategy<Value = Vec<u8>> {
        let frame_type = prop_oneof![
            Just(match kind {
                StreamKind::Request => FrameType::HEADERS,
                StreamKind::Control => FrameType::SETTINGS,
            }),
            Just(match kind {
                StreamKind::Request => FrameType::DATA,
                StreamKind::Control => FrameType::PRIORITY_UPDATE,
            }),
            (0u64..1 << 20).prop_map(FrameType),
        ];
        let parts = (frame_type, prop::collection::vec(any::<u8>(), 0..50));
        let frames = parts.prop_map(|(frame_type, payload)| frame(frame_type, &payload));
        prop::collection::vec(frames, 0..8).prop_map(|frames| frames.concat())
    }

    proptest! {
        #[test]
        fn events_do_not_depend_on_the_pieces(
            (kind, bytes) in prop_oneof![Just(StreamKind::Request), Just(StreamKind::Control)]
                .prop_flat_map(|kind| (Just(kind), any_frames(kind))),
            cuts in prop::collection::vec(1usize..30, 1..20),
            length in 0usize..500,
        ) {
            let bytes = &bytes[..length.min(bytes.len())];
            let mut rest = bytes;
            let pieces = cuts.iter().cycle().map_while(|&cut| {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                rest = after;
                (!piece.is_empty()).then_some(piece)
            });
            prop_assert_eq!(events(kind, pieces), at_once(kind, bytes));
        }
    }
}
