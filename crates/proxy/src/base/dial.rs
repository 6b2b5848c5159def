//! Another way to the origin than TCP, which somebody else keeps.

use std::fmt;
use std::io;

use tokio::io::{AsyncRead, AsyncWrite};

/// Makes connections to the origin: each a stream on which HTTP/1.1 is spoken. Asked by all workers; it must not block.
pub trait Dial: Send + Sync + fmt::Debug {
    /// The next connection.
    fn dial(&self) -> io::Result<Box<dyn DialedStream>>;
}

/// What [`Dial`] makes.
pub trait DialedStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> DialedStream for S {}
