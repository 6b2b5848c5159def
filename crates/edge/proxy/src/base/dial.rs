//! The interface for connections to the origin that other crates open, such as streams of a link to a gateway.

use std::fmt;
use std::io;

use tokio::io::{AsyncRead, AsyncWrite};

/// Opens connections to the origin for HTTP/1.1. All workers call `dial`, so the method must not block.
pub trait Dial: Send + Sync + fmt::Debug {
    /// Opens a connection.
    fn dial(&self) -> io::Result<Box<dyn DialedStream>>;
}

/// A connection opened by [`Dial`].
pub trait DialedStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> DialedStream for S {}
