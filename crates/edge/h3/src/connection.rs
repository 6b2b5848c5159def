//! The state of a server's connection: unidirectional streams of the client, settings, GOAWAY, and the requests under
//! way.

use bytes::Bytes;

use crate::error::{ConnectionError, ErrorCode};
use crate::frame::{FrameDecoder, FrameEvent, FrameLimits, FrameType, StreamKind, push_frame_head};
use crate::priorities::Priorities;
use crate::priority::Priority;
use crate::qpack::instructions::{DecoderStream, check_encoder_bytes};
use crate::request_stream::{RequestLimits, RequestStream};
use crate::settings::Settings;
use crate::stream_id::StreamId;
use crate::varint::{VarintReader, push_varint, read_varint};

/// Limits of a connection and its requests, and the features that the server offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionConfig {
    /// Limits of each request. The settings state the limit of sections.
    pub request: RequestLimits,
    /// Requests under way. The transport parameter `initial_max_streams_bidi` must not be higher. Default 100, as for
    /// HTTP/2.
    pub requests_max: u32,
    /// Requests that the client resets, or that are malformed, within [`WINDOW_MS`]. Default 400, as for HTTP/2: a
    /// browser that leaves pages cancels a hundred streams at once. More are an error of the connection.
    pub cancellations_max: u32,
    /// Unidirectional streams, frames of the control stream, and bytes of QPACK's streams, within [`WINDOW_MS`].
    /// Default 2000, as for HTTP/2. More are an error of the connection.
    pub control_frames_max: u32,
    /// Priorities that arrive before their requests. Default 100, the number of requests. Further ones are dropped.
    pub early_priorities_max: usize,
    /// True if clients may send extended CONNECT.
    pub extended_connect: bool,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            request: RequestLimits::default(),
            requests_max: 100,
            cancellations_max: 400,
            control_frames_max: 2000,
            early_priorities_max: 100,
            extended_connect: true,
        }
    }
}

/// A unidirectional stream of the client. The driver keeps one for each, beside the stream of the transport.
#[derive(Debug, Default)]
pub struct UniStream(UniState);

#[derive(Debug)]
enum UniState {
    /// The type of the stream is incomplete.
    Type(VarintReader),
    Control(Box<FrameDecoder>),
    Encoder,
    Decoder(DecoderStream),
    /// The type is unknown. Bytes are ignored.
    Unknown,
}

impl Default for UniState {
    fn default() -> Self {
        Self::Type(VarintReader::default())
    }
}

/// An event of a unidirectional stream. Other content changes the state of the connection alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UniEvent {
    /// The settings of the client.
    Settings(Settings),
    /// The type of the stream is unknown. The driver asks the client to stop sending, with
    /// [`ErrorCode::H3_STREAM_CREATION_ERROR`] (RFC 9114 §6.2), and drops the stream.
    Unknown,
}

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// The response was sent, or the server has reset the stream without a fault of the client.
    Complete,
    /// The client has reset the stream, refused the response, or violated a rule, so that the server resets the stream.
    Cancelled,
}

/// The state of a connection. Times are milliseconds of any monotonic clock.
#[derive(Debug)]
pub struct Connection {
    config: ConnectionConfig,
    priorities: Priorities,
    requests: u32,
    /// The id after that of the last request, also if that was rejected.
    next_request: StreamId,
    /// The id of the last GOAWAY: later requests are rejected.
    goaway: Option<StreamId>,
    has_control: bool,
    has_encoder: bool,
    has_decoder: bool,
    has_settings: bool,
    push_id_max: Option<u64>,
    /// The id of the client's last GOAWAY.
    peer_goaway: Option<u64>,
    control_frames: Window,
    cancellations: Window,
}

impl Connection {
    /// Creates the state of a new connection.
    pub fn new(config: ConnectionConfig) -> Self {
        Self {
            config,
            priorities: Priorities::new(config.early_priorities_max),
            requests: 0,
            next_request: StreamId(0),
            goaway: None,
            has_control: false,
            has_encoder: false,
            has_decoder: false,
            has_settings: false,
            push_id_max: None,
            peer_goaway: None,
            control_frames: Window::default(),
            cancellations: Window::default(),
        }
    }

    /// Appends the first bytes of the server's control stream: its type, and SETTINGS. The server needs no streams for
    /// QPACK, because it never uses a dynamic table (RFC 9204 §4.2).
    pub fn push_preface(&self, out: &mut Vec<u8>) {
        let settings = Settings {
            field_section_bytes_max: Some(self.config.request.section.bytes_max as u64),
            extended_connect: self.config.extended_connect,
        };
        let mut payload = Vec::new();
        settings.push(&mut payload);
        push_varint(out, CONTROL_STREAM);
        push_frame_head(out, FrameType::SETTINGS, payload.len() as u64);
        out.extend_from_slice(&payload);
    }

    /// Counts a unidirectional stream that the client has opened: its end, and a type that is unknown, let the client
    /// open the next one, and cost the server an answer. After an error, the connection must not be used.
    pub fn begin_uni(&mut self, now_ms: u64) -> Result<(), ConnectionError> {
        self.count_control(now_ms)
    }

    /// Takes bytes of a unidirectional stream and returns the next event; `None` if `input` is empty. `now_ms` limits
    /// the rate of frames. After an error, neither the stream nor the connection must be used.
    pub fn receive_uni(
        &mut self,
        stream: &mut UniStream,
        input: &mut Bytes,
        now_ms: u64,
    ) -> Result<Option<UniEvent>, ConnectionError> {
        while !input.is_empty() {
            match &mut stream.0 {
                UniState::Type(reader) => {
                    let Some(stream_type) = reader.read(input) else {
                        return Ok(None);
                    };
                    stream.0 = self.set_type(stream_type)?;
                    if matches!(stream.0, UniState::Unknown) {
                        return Ok(Some(UniEvent::Unknown));
                    }
                }
                UniState::Control(decoder) => {
                    let Some(event) = decoder.decode(input)? else {
                        return Ok(None);
                    };
                    self.count_control(now_ms)?;
                    if let Some(event) = self.handle(event)? {
                        return Ok(Some(event));
                    }
                }
                UniState::Encoder => {
                    for byte in std::mem::take(input).chunks(1) {
                        check_encoder_bytes(byte)?;
                        self.count_control(now_ms)?;
                    }
                }
                UniState::Decoder(instructions) => {
                    for byte in std::mem::take(input).chunks(1) {
                        instructions.check(byte)?;
                        self.count_control(now_ms)?;
                    }
                }
                UniState::Unknown => input.clear(),
            }
        }
        Ok(None)
    }

    /// Handles the end of a unidirectional stream, by the client or by a reset. The control stream and those of QPACK
    /// must not end (RFC 9114 §6.2.1, RFC 9204 §4.2). A stream may end before its type is complete (§6.2).
    pub fn finish_uni(&self, stream: &UniStream) -> Result<(), ConnectionError> {
        match stream.0 {
            UniState::Type(_) | UniState::Unknown => Ok(()),
            UniState::Control(_) | UniState::Encoder | UniState::Decoder(_) => Err(CLOSED_CRITICAL),
        }
    }

    /// Returns the error of a client that asks the server to stop sending on its control stream.
    pub const fn control_stopped(&self) -> ConnectionError {
        CLOSED_CRITICAL
    }

    /// Returns the error of a client that allows the server no control stream.
    pub const fn control_refused(&self) -> ConnectionError {
        ConnectionError::new(
            ErrorCode::H3_GENERAL_PROTOCOL_ERROR,
            "the client must allow three unidirectional streams",
        )
    }

    /// Begins the request of a new bidirectional stream. Returns `None` if the request must be rejected: the driver
    /// then resets both directions of the stream with [`ErrorCode::H3_REQUEST_REJECTED`], so that the client may send
    /// the request again elsewhere (RFC 9114 §4.1.1, §5.2).
    ///
    /// # Panics
    ///
    /// If the client cannot have opened the stream as a bidirectional one.
    pub fn begin_request(&mut self, stream: StreamId) -> Option<RequestStream> {
        assert!(
            stream.is_request(),
            "stream {stream} is not one of requests"
        );
        self.next_request = self.next_request.max(stream.next());
        let is_refused = self.goaway.is_some_and(|goaway| stream >= goaway);
        if is_refused || self.requests >= self.config.requests_max {
            return None;
        }
        self.requests += 1;
        self.priorities.begin(stream);
        Some(RequestStream::new(
            self.config.request,
            self.config.extended_connect,
        ))
    }

    /// Ends a request that has begun, when both directions of its stream have ended.
    pub fn end_request(
        &mut self,
        stream: StreamId,
        end: RequestEnd,
        now_ms: u64,
    ) -> Result<(), ConnectionError> {
        if self.priorities.end(stream) {
            self.requests -= 1;
        }
        if end == RequestEnd::Cancelled
            && self.cancellations.add(now_ms) > self.config.cancellations_max
        {
            let reason = "the client cancels too many requests, or sends too many malformed ones";
            return Err(ConnectionError::new(ErrorCode::H3_EXCESSIVE_LOAD, reason));
        }
        Ok(())
    }

    /// The priorities of the requests under way.
    pub fn priorities(&mut self) -> &mut Priorities {
        &mut self.priorities
    }

    /// Begins a graceful end: appends a GOAWAY for the control stream that announces it, and rejects no request that is
    /// on its way (RFC 9114 §5.2).
    pub fn push_first_goaway(&mut self, out: &mut Vec<u8>) {
        self.push_goaway(StreamId::REQUEST_MAX, out);
    }

    /// Continues a graceful end, a round trip or more after the first GOAWAY: appends a GOAWAY by which further
    /// requests are rejected. The driver closes the connection when it [is drained](Self::is_drained).
    pub fn push_final_goaway(&mut self, out: &mut Vec<u8>) {
        self.push_goaway(self.next_request.min(StreamId::REQUEST_MAX), out);
    }

    /// Returns true if the final GOAWAY was sent and no request is under way. The driver then closes the connection
    /// with [`ErrorCode::H3_NO_ERROR`].
    pub fn is_drained(&self) -> bool {
        let is_final = self
            .goaway
            .is_some_and(|goaway| goaway != StreamId::REQUEST_MAX);
        is_final && self.requests == 0
    }

    /// Returns true if a request is under way.
    pub const fn has_requests(&self) -> bool {
        self.requests > 0
    }

    /// Appends a frame without a meaning (RFC 9114 §7.2.8) for the control stream if a request is under way. The client
    /// acknowledges it, which restarts the idle timers of both endpoints (RFC 9000 §10.1.2).
    pub fn push_keep_alive(&self, out: &mut Vec<u8>) {
        if self.has_requests() {
            push_frame_head(out, RESERVED_FRAME, 0);
        }
    }

    /// Appends a GOAWAY, whose id never increases (§5.2).
    fn push_goaway(&mut self, stream: StreamId, out: &mut Vec<u8>) {
        if self.goaway.is_some_and(|goaway| stream >= goaway) {
            return;
        }
        self.goaway = Some(stream);
        let mut payload = Vec::new();
        push_varint(&mut payload, stream.0);
        push_frame_head(out, FrameType::GOAWAY, payload.len() as u64);
        out.extend_from_slice(&payload);
    }

    /// Returns the state of a stream of this type (RFC 9114 §6.2).
    fn set_type(&mut self, stream_type: u64) -> Result<UniState, ConnectionError> {
        let creation = |reason| ConnectionError::new(ErrorCode::H3_STREAM_CREATION_ERROR, reason);
        let (is_open, state) = match stream_type {
            CONTROL_STREAM => {
                let decoder = FrameDecoder::new(StreamKind::Control, FrameLimits::default());
                (&mut self.has_control, UniState::Control(Box::new(decoder)))
            }
            PUSH_STREAM => return Err(creation("a client opens a push stream")),
            ENCODER_STREAM => (&mut self.has_encoder, UniState::Encoder),
            DECODER_STREAM => (
                &mut self.has_decoder,
                UniState::Decoder(DecoderStream::default()),
            ),
            _ => return Ok(UniState::Unknown),
        };
        if std::mem::replace(is_open, true) {
            return Err(creation("a client opens two streams of one type"));
        }
        Ok(state)
    }

    /// Handles a frame of the control stream.
    fn handle(&mut self, event: FrameEvent) -> Result<Option<UniEvent>, ConnectionError> {
        let is_settings = matches!(event, FrameEvent::Frame(FrameType::SETTINGS, _));
        if is_settings == self.has_settings {
            let (code, reason) = match is_settings {
                true => (ErrorCode::H3_FRAME_UNEXPECTED, "a second SETTINGS"),
                false => (
                    ErrorCode::H3_MISSING_SETTINGS,
                    "the first frame is not SETTINGS",
                ),
            };
            return Err(ConnectionError::new(code, reason));
        }
        let FrameEvent::Frame(frame_type, payload) = event else {
            return Ok(None); // an unknown frame
        };
        match frame_type {
            FrameType::SETTINGS => {
                self.has_settings = true;
                return Settings::parse(&payload)
                    .map(|settings| Some(UniEvent::Settings(settings)));
            }
            FrameType::GOAWAY => {
                let id = integer(&payload)?;
                if self.peer_goaway.replace(id).is_some_and(|last| id > last) {
                    return Err(id_error("the id of GOAWAY increases"));
                }
            }
            FrameType::MAX_PUSH_ID => {
                let id = integer(&payload)?;
                if self.push_id_max.replace(id).is_some_and(|last| id < last) {
                    return Err(id_error("the id of MAX_PUSH_ID decreases"));
                }
            }
            FrameType::CANCEL_PUSH => {
                integer(&payload)?;
                return Err(id_error("CANCEL_PUSH of a push that was not promised"));
            }
            FrameType::PRIORITY_UPDATE => self.update_priority(&payload)?,
            _ => {
                // RFC 9218 §7.2. FrameDecoder passes no other type.
                read_varint(&payload).ok_or(INVALID_PAYLOAD)?;
                return Err(id_error("the priority of a push that was not promised"));
            }
        }
        Ok(None)
    }

    /// Handles a PRIORITY_UPDATE of a request (RFC 9218 §7.2).
    fn update_priority(&mut self, payload: &[u8]) -> Result<(), ConnectionError> {
        let (id, id_bytes) = read_varint(payload).ok_or(INVALID_PAYLOAD)?;
        let stream = StreamId(id);
        // The transport lets a client open a stream only when an earlier one has ended. All streams that have ended
        // have begun, so this is the least upper bound that is known here.
        let limit = self.next_request.0 + 4 * u64::from(self.config.requests_max);
        if !stream.is_request() || id >= limit {
            return Err(id_error(
                "the priority of a stream that the client cannot open",
            ));
        }
        let priority = Priority::default().with(&payload[id_bytes..]);
        self.priorities
            .update(stream, priority, stream < self.next_request);
        Ok(())
    }

    /// Counts a unidirectional stream, a frame of the control stream, or a byte of a stream of QPACK.
    fn count_control(&mut self, now_ms: u64) -> Result<(), ConnectionError> {
        let frames = self.control_frames.add(now_ms);
        if frames > self.config.control_frames_max {
            let reason =
                "the client sends too many control frames, or opens too many streams for them";
            return Err(ConnectionError::new(ErrorCode::H3_EXCESSIVE_LOAD, reason));
        }
        Ok(())
    }
}

/// The events within the current window of time.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    begun_ms: u64,
    events: u32,
}

impl Window {
    /// Adds an event. Returns the number within the window.
    fn add(&mut self, now_ms: u64) -> u32 {
        if now_ms.saturating_sub(self.begun_ms) >= WINDOW_MS {
            *self = Self {
                begun_ms: now_ms,
                events: 0,
            };
        }
        self.events = self.events.saturating_add(1);
        self.events
    }
}

/// Reads a payload that is one integer (RFC 9114 §7.2).
fn integer(payload: &[u8]) -> Result<u64, ConnectionError> {
    match read_varint(payload) {
        Some((value, length)) if length == payload.len() => Ok(value),
        _ => Err(INVALID_PAYLOAD),
    }
}

const fn id_error(reason: &'static str) -> ConnectionError {
    ConnectionError::new(ErrorCode::H3_ID_ERROR, reason)
}

/// The window of the limits of rates: ten seconds.
pub const WINDOW_MS: u64 = 10_000;

/// Types of unidirectional streams (RFC 9114 §6.2, RFC 9204 §4.2).
const CONTROL_STREAM: u64 = 0x0;
const PUSH_STREAM: u64 = 0x1;
const ENCODER_STREAM: u64 = 0x2;
const DECODER_STREAM: u64 = 0x3;

/// The first type that every endpoint ignores (RFC 9114 §7.2.8).
const RESERVED_FRAME: FrameType = FrameType(0x21);

const CLOSED_CRITICAL: ConnectionError = ConnectionError::new(
    ErrorCode::H3_CLOSED_CRITICAL_STREAM,
    "the control stream or a stream of QPACK was closed",
);

const INVALID_PAYLOAD: ConnectionError = ConnectionError::new(
    ErrorCode::H3_FRAME_ERROR,
    "the payload of a frame contradicts its type",
);

#[cfg(test)]
mod tests;
