//! A request as the scripted origin has read it, and the functions that read requests from a connection.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// A request that the origin received: its head, and the first MiB of its body.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    head: String,
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    body_len: u64,
    complete: bool,
}

impl RecordedRequest {
    /// Returns the method.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Returns the request target: path and query.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Returns the target without its query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Returns the head as received, with the empty line that ends it.
    pub fn head(&self) -> &str {
        &self.head
    }

    /// Returns the value of the first header line with this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers_named(name).next()
    }

    /// Returns the values of all header lines with this name, in order.
    pub fn headers_named(&self, name: &str) -> impl Iterator<Item = &str> {
        self.headers
            .iter()
            .filter(move |(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Returns all header lines in order, with names as received.
    pub fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// Returns the first MiB of the body. The chunked coding is removed.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Returns the number of bytes of the body that were read, also those beyond the first MiB.
    pub fn body_len(&self) -> u64 {
        self.body_len
    }

    /// Returns true if the body was read to its end.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    pub(crate) fn expects_continue(&self) -> bool {
        self.header("expect")
            .is_some_and(|value| value.eq_ignore_ascii_case("100-continue"))
    }

    pub(crate) fn wants_close(&self) -> bool {
        self.header("connection").is_some_and(|value| {
            value
                .split(',')
                .any(|token| token.trim().eq_ignore_ascii_case("close"))
        })
    }

    /// Removes a head from the beginning of `buffer` and parses it. Returns `None` if the buffer does not
    /// contain a complete head.
    pub(crate) fn take_head(buffer: &mut Vec<u8>) -> io::Result<Option<Self>> {
        let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else {
            if buffer.len() > HEAD_BYTES_MAX {
                return Err(invalid("the request's head is longer than a MiB"));
            }
            return Ok(None);
        };
        let head: Vec<u8> = buffer.drain(..end + 4).collect();
        let head = String::from_utf8_lossy(&head).into_owned();
        let mut lines = head.trim_end().split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some(_version)) =
            (words.next(), words.next(), words.next())
        else {
            return Err(invalid("the request line has fewer than three words"));
        };
        let (method, target) = (method.to_owned(), target.to_owned());
        let headers = lines
            .map(|line| match line.split_once(':') {
                Some((name, value)) => Ok((name.to_owned(), value.trim().to_owned())),
                None => Err(invalid("a header line has no colon")),
            })
            .collect::<io::Result<_>>()?;
        Ok(Some(Self {
            head,
            method,
            target,
            headers,
            body: Vec::new(),
            body_len: 0,
            complete: false,
        }))
    }

    /// Reads the body that follows the head. `buffer` contains bytes of the connection that were read together
    /// with the head.
    pub(crate) async fn read_body(
        &mut self,
        buffer: &mut Vec<u8>,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<()> {
        let chunked = self
            .header("transfer-encoding")
            .is_some_and(|coding| coding.to_ascii_lowercase().ends_with("chunked"));
        if chunked {
            loop {
                let line = read_line(buffer, stream).await?;
                let size = line.split(';').next().unwrap_or_default().trim();
                let size =
                    u64::from_str_radix(size, 16).map_err(|_| invalid("a chunk has no size"))?;
                if size == 0 {
                    while !read_line(buffer, stream).await?.is_empty() {}
                    break;
                }
                self.read_piece(size, buffer, stream).await?;
                read_line(buffer, stream).await?;
            }
        } else if let Some(length) = self.header("content-length") {
            let length = length
                .parse()
                .map_err(|_| invalid("the Content-Length is not a number"))?;
            self.read_piece(length, buffer, stream).await?;
        }
        self.complete = true;
        Ok(())
    }

    async fn read_piece(
        &mut self,
        mut remaining: u64,
        buffer: &mut Vec<u8>,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<()> {
        while remaining > 0 {
            if buffer.is_empty() {
                read_more(buffer, stream).await?;
            }
            let take = buffer
                .len()
                .min(usize::try_from(remaining).unwrap_or(usize::MAX));
            let recorded = take.min(BODY_BYTES_RECORDED.saturating_sub(self.body.len()));
            self.body.extend_from_slice(&buffer[..recorded]);
            self.body_len += take as u64;
            remaining -= take as u64;
            buffer.drain(..take);
        }
        Ok(())
    }
}

/// Reads more bytes into `buffer`. The end of the stream is an error.
async fn read_more(buffer: &mut Vec<u8>, stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    match stream.read_buf(buffer).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

async fn read_line(
    buffer: &mut Vec<u8>,
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<String> {
    loop {
        if let Some(end) = buffer.windows(2).position(|two| two == b"\r\n") {
            let line: Vec<u8> = buffer.drain(..end + 2).collect();
            return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
        }
        if buffer.len() > HEAD_BYTES_MAX {
            return Err(invalid("a chunk's line is longer than a MiB"));
        }
        read_more(buffer, stream).await?;
    }
}

fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// The maximum length of a head, and of a line between chunks.
const HEAD_BYTES_MAX: usize = 1 << 20;
/// The number of bytes of a body that are recorded. Further bytes are only counted.
const BODY_BYTES_RECORDED: usize = 1 << 20;
