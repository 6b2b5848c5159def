//! Decodes the chunked coding (RFC 9112 §7.1).
//!
//! The decoder is strict, because two lenient readers could see different bodies: lines must end in CRLF, and sizes
//! must consist of hexadecimal digits. The lengths of extensions and trailers are limited.

use bytes::{Bytes, BytesMut};
use http::header::HeaderMap;

use super::error::H1Error;
use crate::exchange::field_bytes::FieldSpans;

/// The decoder of one chunked body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chunked {
    state: State,
    /// The number of bytes of all extensions so far. It is limited, because a body could consist of extensions only.
    extension_bytes: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Size,
    Data {
        left: u64,
    },
    /// The line break after a chunk.
    LineBreak,
    Trailers,
    End,
}

/// The result of decoding the available bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// More bytes are needed.
    NeedMore,
    Data(Bytes),
    Trailers(HeaderMap),
    End,
}

impl Chunked {
    pub(super) fn has_ended(&self) -> bool {
        self.state == State::End
    }

    /// Decodes the next part of the body, and removes its bytes from `inbox`.
    pub(super) fn step(&mut self, inbox: &mut BytesMut) -> Result<Step, H1Error> {
        loop {
            match self.state {
                State::Size => {
                    let Some(line) = take_line(inbox)? else {
                        return Ok(Step::NeedMore);
                    };
                    let (size, extension_bytes) = parse_size(&line)?;
                    self.extension_bytes += extension_bytes;
                    if self.extension_bytes > LINE_BYTES_MAX {
                        return Err(H1Error::Framing("the chunk extensions are too large"));
                    }
                    self.state = match size {
                        0 => State::Trailers,
                        left => State::Data { left },
                    };
                }
                State::Data { .. } if inbox.is_empty() => return Ok(Step::NeedMore),
                State::Data { left } => {
                    let available = usize::try_from(left).unwrap_or(usize::MAX).min(inbox.len());
                    let left = left - available as u64;
                    self.state = if left == 0 {
                        State::LineBreak
                    } else {
                        State::Data { left }
                    };
                    return Ok(Step::Data(inbox.split_to(available).freeze()));
                }
                State::LineBreak => match &inbox[..inbox.len().min(2)] {
                    b"\r\n" => {
                        let _ = inbox.split_to(2);
                        self.state = State::Size;
                    }
                    b"" | b"\r" => return Ok(Step::NeedMore),
                    _ => return Err(H1Error::Framing("a chunk is longer than its size")),
                },
                State::Trailers => return self.trailers(inbox),
                State::End => return Ok(Step::End),
            }
        }
    }

    fn trailers(&mut self, inbox: &mut BytesMut) -> Result<Step, H1Error> {
        if inbox.starts_with(b"\r\n") {
            let _ = inbox.split_to(2);
            self.state = State::End;
            return Ok(Step::End);
        }
        let mut fields = [httparse::EMPTY_HEADER; TRAILERS_MAX];
        let (bytes, fields) = match httparse::parse_headers(inbox, &mut fields) {
            Ok(httparse::Status::Complete(parsed)) => parsed,
            Ok(httparse::Status::Partial) if inbox.len() < LINE_BYTES_MAX => {
                return Ok(Step::NeedMore);
            }
            Ok(httparse::Status::Partial) => {
                return Err(H1Error::Framing("the trailers are too large"));
            }
            Err(error) => return Err(H1Error::Head(error)),
        };
        let spans = FieldSpans::of(inbox, fields);
        let block = inbox.split_to(bytes).freeze();
        self.state = State::End;
        spans
            .read(&block, 0)
            .map(Step::Trailers)
            .map_err(H1Error::Head)
    }
}

/// Removes the next line from `inbox` and returns it without its line break. Returns `None` if the line is incomplete.
fn take_line(inbox: &mut BytesMut) -> Result<Option<Bytes>, H1Error> {
    let Some(end) = memchr::memchr(b'\n', inbox) else {
        return match inbox.len() {
            0..LINE_BYTES_MAX => Ok(None),
            _ => Err(H1Error::Framing("the line of a chunk's size is too long")),
        };
    };
    let line = inbox.split_to(end + 1).freeze();
    match line.strip_suffix(b"\r\n") {
        Some(text) => Ok(Some(line.slice_ref(text))),
        None => Err(H1Error::Framing(
            "the line of a chunk's size ends in a bare line feed",
        )),
    }
}

/// Parses a chunk's size line: hexadecimal digits, perhaps an extension. Returns the size and the extension's length.
fn parse_size(line: &[u8]) -> Result<(u64, usize), H1Error> {
    const INVALID: H1Error = H1Error::Framing("a chunk's size is not a hexadecimal number");
    let digits = line
        .iter()
        .position(|byte| !byte.is_ascii_hexdigit())
        .unwrap_or(line.len());
    let rest = line[digits..].trim_ascii_start();
    if digits == 0 || digits > SIZE_DIGITS_MAX || !(rest.is_empty() || rest[0] == b';') {
        return Err(INVALID);
    }
    let digits = std::str::from_utf8(&line[..digits]).map_err(|_| INVALID)?;
    let size = u64::from_str_radix(digits, 16).map_err(|_| INVALID)?;
    Ok((size, line.len() - digits.len()))
}

/// The most digits of a chunk's size, so that sizes are below 2^60 and sums of sizes do not overflow.
const SIZE_DIGITS_MAX: usize = 15;

/// The most bytes of one size line, of all chunk extensions of a body together, and of all its trailers together.
const LINE_BYTES_MAX: usize = 16 << 10;

const TRAILERS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A body, its trailers, and the bytes after the body.
    type DecodedBody = (Vec<u8>, Option<HeaderMap>, Vec<u8>);

    /// Reads a whole body that arrives in pieces of `piece` bytes.
    fn read(wire: &[u8], piece: usize) -> Result<DecodedBody, H1Error> {
        let mut chunked = Chunked::default();
        let mut inbox = BytesMut::new();
        let mut arriving = wire.chunks(piece.max(1));
        let (mut body, mut trailers) = (Vec::new(), None);
        loop {
            match chunked.step(&mut inbox)? {
                Step::Data(bytes) => body.extend_from_slice(&bytes),
                Step::Trailers(fields) => trailers = Some(fields),
                Step::End => {
                    let mut rest = inbox.to_vec();
                    arriving.for_each(|piece| rest.extend_from_slice(piece));
                    return Ok((body, trailers, rest));
                }
                Step::NeedMore => match arriving.next() {
                    Some(piece) => inbox.extend_from_slice(piece),
                    None => return Err(H1Error::Closed),
                },
            }
        }
    }

    #[test]
    fn extensions_are_ignored_and_trailers_kept() {
        let wire = b"5;a=b\r\nhello\r\n6 ; c=\"d\"\r\n world\r\n0\r\nX-Sum: 1\r\n\r\nnext";
        let (body, trailers, rest) = read(wire, 3).expect("a body");
        assert_eq!(body, b"hello world");
        assert_eq!(trailers.expect("trailers")["x-sum"], "1");
        assert_eq!(rest, b"next");
    }

    #[test]
    fn ambiguous_chunks_are_refused() {
        for wire in [
            &b"5\nhello\r\n0\r\n\r\n"[..],
            b"5\r\nhello0\r\n\r\n",
            b"5\r\nhello\n0\r\n\r\n",
            b"+5\r\nhello\r\n0\r\n\r\n",
            b"0x5\r\nhello\r\n0\r\n\r\n",
            b" 5\r\nhello\r\n0\r\n\r\n",
            b"\r\nhello",
            b"5 5\r\nhello\r\n0\r\n\r\n",
            b"ffffffffffffffff\r\nx",
            b"0\r\nX: a\r\n folded\r\n\r\n",
        ] {
            let read = read(wire, 100);
            assert!(
                matches!(read, Err(H1Error::Framing(_) | H1Error::Head(_))),
                "{:?} gave {read:?}",
                wire.escape_ascii().to_string()
            );
        }
    }

    #[test]
    fn extensions_and_trailers_above_the_limit_are_refused() {
        let wire = [b"5;".as_slice(), &vec![b'a'; LINE_BYTES_MAX + 1]].concat();
        assert!(matches!(read(&wire, 4096), Err(H1Error::Framing(_))));
        let wire = b"1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nx\r\n".repeat(LINE_BYTES_MAX / 32);
        assert!(matches!(read(&wire, 4096), Err(H1Error::Framing(_))));
        let wire = [b"0\r\nX: ".as_slice(), &vec![b'a'; LINE_BYTES_MAX + 1]].concat();
        assert!(matches!(read(&wire, 4096), Err(H1Error::Framing(_))));
    }

    #[test]
    fn a_body_may_have_any_number_of_small_chunks() {
        let wire = [
            b"1\r\nx\r\n".repeat(LINE_BYTES_MAX).as_slice(),
            b"0\r\n\r\n",
        ]
        .concat();
        let (body, ..) = read(&wire, 4096).expect("a body");
        assert_eq!(body.len(), LINE_BYTES_MAX);
    }

    proptest! {
        /// Method: write a body in chunks, and read it in pieces. The bytes after the body stay in the buffer.
        #[test]
        fn a_body_written_in_chunks_reads_back(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..200), 0..20),
            piece in 1_usize..300,
        ) {
            let mut wire = Vec::new();
            for chunk in &chunks {
                wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                wire.extend_from_slice(chunk);
                wire.extend_from_slice(b"\r\n");
            }
            wire.extend_from_slice(b"0\r\n\r\nHTTP/1.1 200");
            let (body, trailers, rest) = read(&wire, piece).expect("a body");
            prop_assert_eq!(body, chunks.concat());
            prop_assert!(trailers.is_none());
            prop_assert_eq!(rest, b"HTTP/1.1 200");
            // Without its last byte the body does not end.
            let cut = &wire[..wire.len() - b"\nHTTP/1.1 200".len()];
            prop_assert!(matches!(read(cut, piece), Err(H1Error::Closed)));
        }

        #[test]
        fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), piece in 1_usize..50) {
            _ = read(&bytes, piece);
        }
    }
}
