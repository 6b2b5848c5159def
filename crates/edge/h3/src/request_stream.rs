//! The state of one request stream: frames become a request (RFC 9114 §4.1).

use bytes::Bytes;
use http::{HeaderMap, Method};

use crate::error::{ConnectionError, Error, ErrorCode, StreamError};
use crate::frame::{FrameDecoder, FrameEvent, FrameLimits, FrameType, StreamKind};
use crate::qpack::decoder::SectionLimits;
use crate::request::{RequestHead, decode_request, decode_trailers};

/// Limits of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestLimits {
    /// Limits of its head, and of its trailers.
    pub section: SectionLimits,
    /// Frames in succession that carry nothing, see [`FrameLimits::idle_frames_max`]. `None` is the default.
    pub idle_frames_max: Option<u32>,
}

/// A part of a request.
#[derive(Debug)]
pub enum RequestEvent {
    /// The head, once and first.
    Head(Box<RequestHead>),
    /// The next bytes of the content, or those of a tunnel: a part of the input, not a copy.
    Data(Bytes),
    /// Trailers, after the content.
    Trailers(HeaderMap),
}

/// Reads a request from the bytes of its stream.
#[derive(Debug)]
pub struct RequestStream {
    decoder: FrameDecoder,
    section_limits: SectionLimits,
    has_extended_connect: bool,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Head,
    /// The bytes of the content that must still arrive, if the head states them.
    Content(Option<u64>),
    /// The content of CONNECT: the bytes of another protocol.
    Tunnel,
    /// Trailers have arrived.
    Trailed,
}

impl RequestStream {
    /// Creates the state of a new stream.
    pub fn new(limits: RequestLimits, has_extended_connect: bool) -> Self {
        let frame_limits = FrameLimits::default();
        let frame_limits = FrameLimits {
            // Strings are never longer in QPACK than their text, unless the encoder wastes space. Each field has one or
            // two bytes in addition to strings and their lengths, less than the 32 that the limit of sections counts.
            headers_bytes_max: limits.section.bytes_max,
            idle_frames_max: limits
                .idle_frames_max
                .unwrap_or(frame_limits.idle_frames_max),
            ..frame_limits
        };
        Self {
            decoder: FrameDecoder::new(StreamKind::Request, frame_limits),
            section_limits: limits.section,
            has_extended_connect,
            state: State::Head,
        }
    }

    /// Takes bytes from `input` and returns the next event; `None` if `input` is empty and more bytes are needed. After
    /// an error, the stream must not be used.
    pub fn receive(&mut self, input: &mut Bytes) -> Result<Option<RequestEvent>, Error> {
        while let Some(event) = self.decoder.decode(input)? {
            match (event, self.state) {
                (FrameEvent::Skipped(_), _) => {}
                (FrameEvent::TooLarge, _) => {
                    let reason = "an encoded field section has too many bytes";
                    return Err(StreamError::too_large(reason).into());
                }
                (FrameEvent::DataBegins(length), State::Content(Some(rest))) => {
                    let rest = rest.checked_sub(length);
                    let error = StreamError::malformed("more content than Content-Length");
                    self.state = State::Content(Some(rest.ok_or(error)?));
                }
                (FrameEvent::DataBegins(_), State::Content(None) | State::Tunnel) => {}
                (FrameEvent::Data(piece), _) => return Ok(Some(RequestEvent::Data(piece))),
                (FrameEvent::Frame(FrameType::HEADERS, section), State::Head) => {
                    let limits = self.section_limits;
                    let head = decode_request(&section, limits, self.has_extended_connect)?;
                    self.state = match head.method {
                        Method::CONNECT => State::Tunnel,
                        _ => State::Content(head.content_length),
                    };
                    return Ok(Some(RequestEvent::Head(Box::new(head))));
                }
                (FrameEvent::Frame(FrameType::HEADERS, section), State::Content(rest)) => {
                    check_end(rest)?;
                    let trailers = decode_trailers(&section, self.section_limits)?;
                    self.state = State::Trailed;
                    return Ok(Some(RequestEvent::Trailers(trailers)));
                }
                (FrameEvent::DataBegins(_), State::Head) => {
                    return Err(unexpected("a request begins with DATA"));
                }
                (FrameEvent::DataBegins(_) | FrameEvent::Frame(..), State::Trailed) => {
                    return Err(unexpected("a request continues after its trailers"));
                }
                // §4.4: a tunnel has no trailers.
                (FrameEvent::Frame(..), _) => return Err(unexpected("a tunnel has HEADERS")),
            }
        }
        Ok(None)
    }

    /// Checks that the request is complete when its stream ends. Not called for a stream that was reset.
    pub fn finish(&self) -> Result<(), Error> {
        self.decoder.finish()?;
        match self.state {
            State::Head => Err(Error::Stream(StreamError {
                code: ErrorCode::H3_REQUEST_INCOMPLETE,
                status: None,
                reason: "a request ends without a head",
            })),
            State::Content(rest) => Ok(check_end(rest)?),
            State::Tunnel | State::Trailed => Ok(()),
        }
    }

    /// The bytes that the stream holds for an incomplete frame, for the memory budget of the connection.
    pub fn buffered_bytes(&self) -> usize {
        self.decoder.buffered_bytes()
    }
}

/// Checks that the content has the length that the head states (RFC 9114 §4.1.2).
fn check_end(rest: Option<u64>) -> Result<(), StreamError> {
    match rest {
        None | Some(0) => Ok(()),
        Some(_) => Err(StreamError::malformed("less content than Content-Length")),
    }
}

fn unexpected(reason: &'static str) -> Error {
    ConnectionError::new(ErrorCode::H3_FRAME_UNEXPECTED, reason).into()
}

#[cfg(test)]
mod tests;
