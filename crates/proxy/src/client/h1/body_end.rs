//! Where a request that hyper serves ends, so that the fast path sees the head behind it.
//!
//! The scan follows the strict grammar of RFC 9112 §7.1. Where a body leaves it, hyper may see another end than the
//! scan would, so the rest of the connection is hyper's.

/// How many bytes of the connection still belong to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BodyEnd {
    /// Bytes that belong to it whatever they are.
    left: u64,
    /// What follows these bytes, if the body is chunked.
    chunks: Option<At>,
}

/// What the scan expects next in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Digits of a chunk's size, or what ends them.
    Size { size: u64, digits: u8 },
    /// More of a chunk's extensions.
    Extension { size: u64 },
    /// The line feed behind a chunk's size.
    SizeEnd { size: u64 },
    /// The carriage return behind a chunk's data.
    DataReturn,
    /// The line feed behind a chunk's data.
    DataEnd,
    /// A trailer line, or the empty line at the end.
    TrailerStart,
    /// More of a trailer line.
    Trailer,
    /// The line feed of a trailer line.
    TrailerEnd,
    /// The line feed of the empty line.
    LastEnd,
    /// Nothing.
    End,
}

/// The body left the grammar: where the request ends is not certain.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Uncertain;

impl BodyEnd {
    /// A head, and a body of `body_bytes` behind it.
    pub(super) fn length(head_bytes: usize, body_bytes: u64) -> Self {
        Self {
            left: (head_bytes as u64).saturating_add(body_bytes),
            chunks: None,
        }
    }

    /// A head, and a chunked body behind it.
    pub(super) fn chunked(head_bytes: usize) -> Self {
        Self {
            left: head_bytes as u64,
            chunks: Some(SIZE),
        }
    }

    /// Whether all of the request has been taken.
    pub(super) fn is_reached(self) -> bool {
        self.left == 0 && matches!(self.chunks, None | Some(At::End))
    }

    /// How many of the next `bytes` belong to the request.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<usize, Uncertain> {
        let mut taken = 0;
        while taken < bytes.len() && !self.is_reached() {
            if self.left > 0 {
                let here = usize::try_from(self.left).unwrap_or(usize::MAX);
                let here = here.min(bytes.len() - taken);
                self.left -= here as u64;
                taken += here;
            } else if let Some(at) = self.chunks {
                self.chunks = Some(match (at, bytes[taken]) {
                    (At::Size { size, digits }, byte) if byte.is_ascii_hexdigit() => {
                        if digits == SIZE_DIGITS_MAX {
                            return Err(Uncertain);
                        }
                        let digit = (byte as char).to_digit(16).expect("a hexadecimal digit");
                        At::Size {
                            size: size << 4 | u64::from(digit),
                            digits: digits + 1,
                        }
                    }
                    (At::Size { digits: 0, .. }, _) => return Err(Uncertain),
                    (At::Size { size, .. }, b';') => At::Extension { size },
                    (At::Size { size, .. } | At::Extension { size }, b'\r') => At::SizeEnd { size },
                    (At::Extension { size }, byte) if is_field_byte(byte) => At::Extension { size },
                    (At::SizeEnd { size: 0 }, b'\n') | (At::TrailerEnd, b'\n') => At::TrailerStart,
                    (At::SizeEnd { size }, b'\n') => {
                        self.left = size;
                        At::DataReturn
                    }
                    (At::DataReturn, b'\r') => At::DataEnd,
                    (At::DataEnd, b'\n') => SIZE,
                    (At::TrailerStart, b'\r') => At::LastEnd,
                    (At::TrailerStart, byte) if byte.is_ascii_graphic() => At::Trailer,
                    (At::Trailer, b'\r') => At::TrailerEnd,
                    (At::Trailer, byte) if is_field_byte(byte) => At::Trailer,
                    (At::LastEnd, b'\n') => At::End,
                    _ => return Err(Uncertain),
                });
                taken += 1;
            }
        }
        Ok(taken)
    }
}

/// What may stand in a line besides its end.
fn is_field_byte(byte: u8) -> bool {
    byte == b'\t' || byte >= b' ' && byte != 0x7f
}

const SIZE: At = At::Size { size: 0, digits: 0 };

/// Below 2^60.
const SIZE_DIGITS_MAX: u8 = 15;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEAD: &str = "POST / HTTP/1.1\r\n\r\n";

    /// How many bytes belong to the request, of a connection whose bytes come in pieces.
    fn end_of(mut end: BodyEnd, wire: &[u8], piece: usize) -> Result<Option<usize>, Uncertain> {
        let mut at = 0;
        for piece in wire.chunks(piece.max(1)) {
            let taken = end.take(piece)?;
            at += taken;
            if end.is_reached() {
                return Ok(Some(at));
            }
            assert_eq!(taken, piece.len(), "a request without end takes all");
        }
        Ok(None)
    }

    #[test]
    fn a_length_ends_where_it_says() {
        let end = BodyEnd::length(HEAD.len(), 5);
        let wire = format!("{HEAD}helloGET / HTTP/1.1");
        assert_eq!(end_of(end, wire.as_bytes(), 7), Ok(Some(HEAD.len() + 5)));
        assert!(BodyEnd::length(0, 0).is_reached());
        assert_eq!(BodyEnd::length(1, u64::MAX).left, u64::MAX);
    }

    #[test]
    fn what_leaves_the_grammar_is_uncertain() {
        for body in [
            "x",
            "\r\n",
            " 5\r\n",
            "5 \r\nhello",
            "5\nhello",
            "5\r\nhello!",
            "5\r\nhello\n",
            "5;a\0\r\n",
            "5;a\nb\r\n",
            "1000000000000000\r\n",
            "0\r\nx: 1\n\r\n",
            "0\r\n x: 1\r\n\r\n",
            "0\r\n\rx",
            "0x5\r\nhello",
            "-1\r\n",
        ] {
            let wire = format!("{HEAD}{body}");
            let end = BodyEnd::chunked(HEAD.len());
            assert_eq!(
                end_of(end, wire.as_bytes(), 1000),
                Err(Uncertain),
                "{body:?}"
            );
        }
    }

    proptest! {
        /// A well-formed body ends at its end, however it is cut.
        #[test]
        fn chunks_end_where_the_empty_line_does(
            chunks in prop::collection::vec((1_usize..40, "(;[a-z]{0,3}(=\"[a-z ]{0,3}\")?)?"), 0..4),
            trailers in prop::collection::vec("[a-z]{1,4}: [a-z ]{0,4}", 0..3),
            piece in 1_usize..30,
        ) {
            let mut wire = HEAD.to_owned();
            for (size, extension) in &chunks {
                wire.push_str(&format!("{size:X}{extension}\r\n{}\r\n", "\r\n0\r\n\r\n".repeat(6)[..*size].to_owned()));
            }
            wire.push_str("0\r\n");
            for trailer in &trailers {
                wire.push_str(&format!("{trailer}\r\n"));
            }
            wire.push_str("\r\n");
            let length = wire.len();
            wire.push_str("GET /next HTTP/1.1\r\n\r\n");
            let end = BodyEnd::chunked(HEAD.len());
            prop_assert_eq!(end_of(end, wire.as_bytes(), piece), Ok(Some(length)));
        }

        /// Any bytes are survived, and none are taken behind an end.
        #[test]
        fn any_bytes_are_survived(bytes in "[0-9a-f;\r\n:]{0,60}", piece in 1_usize..9) {
            if let Ok(Some(at)) = end_of(BodyEnd::chunked(0), bytes.as_bytes(), piece) {
                prop_assert!(bytes[..at].ends_with("\r\n"));
            }
        }
    }
}
