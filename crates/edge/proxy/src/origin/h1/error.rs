//! The errors of responses.

use std::io;

/// The reason why a response cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum H1Error {
    /// The connection failed.
    #[error("the connection failed")]
    Io(#[from] io::Error),
    /// The connection was closed before the response was complete.
    #[error("the connection was closed early")]
    Closed,
    /// The head is invalid.
    #[error("the head is invalid: {0}")]
    Head(httparse::Error),
    /// The head exceeds its limits.
    #[error("the head is too large")]
    HeadTooLarge,
    /// The end or the kind of the response is ambiguous.
    #[error("{0}")]
    Framing(&'static str),
    /// The head did not arrive in time.
    #[error("no response arrived in time")]
    Timeout,
}

/// The error of an exchange. `response_began` is true if bytes of the response had arrived.
#[derive(Debug)]
pub(in crate::origin) struct ExchangeError {
    pub(in crate::origin) error: H1Error,
    pub(in crate::origin) response_began: bool,
}
