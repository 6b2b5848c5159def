//! Error codes (RFC 9114 §8.1, RFC 9204 §6), and the errors that carry them.

use std::fmt;

use http::StatusCode;

/// A code that an endpoint sends when it closes a connection, resets a stream, or asks its peer to stop sending.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u64);

/// An error after which the driver closes the connection with this code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {reason}")]
pub struct ConnectionError {
    /// The code for CONNECTION_CLOSE.
    pub code: ErrorCode,
    /// The violated rule, for the log and for the reason phrase of CONNECTION_CLOSE.
    pub reason: &'static str,
}

/// An error that ends one request, and no other request of the connection.
///
/// A driver may answer with `status` first (RFC 9114 §4.1.2) if it has sent no head of a response. It then stops
/// reading with [`ErrorCode::H3_NO_ERROR`]. Otherwise it resets both directions of the stream with `code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {reason}")]
pub struct StreamError {
    /// The code for RESET_STREAM and STOP_SENDING.
    pub code: ErrorCode,
    /// The status of an answer, unless the request was incomplete.
    pub status: Option<StatusCode>,
    /// The violated rule, for the log.
    pub reason: &'static str,
}

/// An error of a request stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The connection must be closed.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The request must be answered with an error, or its stream be reset.
    #[error(transparent)]
    Stream(#[from] StreamError),
}

impl ConnectionError {
    pub(crate) const fn new(code: ErrorCode, reason: &'static str) -> Self {
        Self { code, reason }
    }
}

impl StreamError {
    /// Returns the error of a malformed request (RFC 9114 §4.1.2).
    pub(crate) const fn malformed(reason: &'static str) -> Self {
        Self {
            code: ErrorCode::H3_MESSAGE_ERROR,
            status: Some(StatusCode::BAD_REQUEST),
            reason,
        }
    }

    /// Returns the error of a field section that exceeds a limit (RFC 9114 §4.2.2).
    pub(crate) const fn too_large(reason: &'static str) -> Self {
        Self {
            code: ErrorCode::H3_EXCESSIVE_LOAD,
            status: Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
            reason,
        }
    }
}

impl Error {
    /// The code that the driver sends.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Connection(error) => error.code,
            Self::Stream(error) => error.code,
        }
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        impl ErrorCode {
            $($(#[$doc])* pub const $name: Self = Self($code);)*

            /// The name in the standard. `None` for other codes, which mean the same as H3_NO_ERROR (RFC 9114 §9).
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// The connection or stream ends without an error. The driver closes a drained connection with this code, and stops
    /// reading the content of a request with it after a complete response (RFC 9114 §4.1).
    H3_NO_ERROR = 0x100;
    /// The peer violated the protocol in a way that no other code names.
    H3_GENERAL_PROTOCOL_ERROR = 0x101;
    /// An error of this endpoint.
    H3_INTERNAL_ERROR = 0x102;
    /// The peer opened a stream that it must not open. Also the code for STOP_SENDING on streams of unknown types.
    H3_STREAM_CREATION_ERROR = 0x103;
    /// A control stream or a stream of QPACK was closed.
    H3_CLOSED_CRITICAL_STREAM = 0x104;
    /// A frame is not allowed here.
    H3_FRAME_UNEXPECTED = 0x105;
    /// The length of a frame contradicts its content.
    H3_FRAME_ERROR = 0x106;
    /// The peer causes excessive work.
    H3_EXCESSIVE_LOAD = 0x107;
    /// A stream id or push id is not allowed here.
    H3_ID_ERROR = 0x108;
    /// An error in the content of SETTINGS.
    H3_SETTINGS_ERROR = 0x109;
    /// The control stream does not begin with SETTINGS.
    H3_MISSING_SETTINGS = 0x10a;
    /// The request was not processed at all, so that the client may send it again on another connection.
    H3_REQUEST_REJECTED = 0x10b;
    /// The request or response was cancelled, and perhaps processed in part.
    H3_REQUEST_CANCELLED = 0x10c;
    /// The stream of a request ended before the request was complete.
    H3_REQUEST_INCOMPLETE = 0x10d;
    /// A message is malformed.
    H3_MESSAGE_ERROR = 0x10e;
    /// The connection of a tunnel (CONNECT) was reset or ended abnormally.
    H3_CONNECT_ERROR = 0x10f;
    /// The request must be sent again over HTTP/1.1.
    H3_VERSION_FALLBACK = 0x110;
    /// A field section cannot be decoded.
    QPACK_DECOMPRESSION_FAILED = 0x200;
    /// An instruction on the encoder stream is invalid.
    QPACK_ENCODER_STREAM_ERROR = 0x201;
    /// An instruction on the decoder stream is invalid.
    QPACK_DECODER_STREAM_ERROR = 0x202;
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#x}", self.0),
        }
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
