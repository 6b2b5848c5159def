//! Finds the end of a request that hyper serves, so that the fast path can parse the next head.
//!
//! The scan follows the strict grammar of chunked bodies (RFC 9112 §7.1). hyper's parser is more lenient and may find
//! another end of a malformed body. hyper therefore gets no byte of a body after the first violation.

/// The state of the scan for the end of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestEndScan {
    /// The number of next bytes that the scan skips: the rest of the head, of a body with a length, or of a chunk.
    skip_bytes: u64,
    /// The element of a chunked body after the skipped bytes. `None` if the request ends with the skipped bytes.
    expected: Option<Expected>,
}

/// The element of a chunked body that the scan expects next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// A digit of a chunk's size, or the byte that ends the digits.
    Size { size: u64, digits: u8 },
    /// A byte of a chunk's extensions.
    Extension { size: u64 },
    /// The line feed after a chunk's size.
    SizeEnd { size: u64 },
    /// The carriage return after a chunk's data.
    DataReturn,
    /// The line feed after a chunk's data.
    DataEnd,
    /// A trailer line, or the empty line at the end.
    TrailerStart,
    /// A byte of a trailer line.
    Trailer,
    /// The line feed of a trailer line.
    TrailerEnd,
    /// The line feed of the empty line that ends the body.
    LastEnd,
    /// The body has ended.
    End,
}

/// The error for a body that violates the grammar: the end of the request is uncertain.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EndUncertain {
    /// The number of bytes of this call before the violation.
    pub(super) valid_bytes: usize,
}

impl RequestEndScan {
    /// Returns the scan of a request that consists of `head_bytes` and then `body_bytes`.
    pub(super) fn sized(head_bytes: usize, body_bytes: u64) -> Self {
        Self {
            skip_bytes: (head_bytes as u64).saturating_add(body_bytes),
            expected: None,
        }
    }

    /// Returns the scan of a request that consists of `head_bytes` and then a chunked body.
    pub(super) fn chunked(head_bytes: usize) -> Self {
        Self {
            skip_bytes: head_bytes as u64,
            expected: Some(CHUNK_SIZE),
        }
    }

    /// Returns true if the scan has passed all bytes of the request.
    pub(super) fn is_at_end(self) -> bool {
        self.skip_bytes == 0 && matches!(self.expected, None | Some(Expected::End))
    }

    /// Continues the scan. Returns how many of the next `bytes` belong to the request.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<usize, EndUncertain> {
        let mut taken = 0;
        while taken < bytes.len() && !self.is_at_end() {
            if self.skip_bytes > 0 {
                let skipped = usize::try_from(self.skip_bytes).unwrap_or(usize::MAX);
                let skipped = skipped.min(bytes.len() - taken);
                self.skip_bytes -= skipped as u64;
                taken += skipped;
            } else if let Some(expected) = self.expected {
                self.expected = Some(match (expected, bytes[taken]) {
                    (Expected::Size { size, digits }, byte) if byte.is_ascii_hexdigit() => {
                        if digits == SIZE_DIGITS_MAX {
                            return Err(EndUncertain { valid_bytes: taken });
                        }
                        let digit = (byte as char).to_digit(16).expect("a hexadecimal digit");
                        Expected::Size {
                            size: size << 4 | u64::from(digit),
                            digits: digits + 1,
                        }
                    }
                    (Expected::Size { digits: 0, .. }, _) => {
                        return Err(EndUncertain { valid_bytes: taken });
                    }
                    // White space may stand before the semicolon (§7.1.1). Servers accept it without a semicolon, too.
                    (Expected::Size { size, .. }, b';' | b' ' | b'\t') => {
                        Expected::Extension { size }
                    }
                    (Expected::Size { size, .. } | Expected::Extension { size }, b'\r') => {
                        Expected::SizeEnd { size }
                    }
                    (Expected::Extension { size }, byte) if is_field_byte(byte) => {
                        Expected::Extension { size }
                    }
                    (Expected::SizeEnd { size: 0 }, b'\n') | (Expected::TrailerEnd, b'\n') => {
                        Expected::TrailerStart
                    }
                    (Expected::SizeEnd { size }, b'\n') => {
                        self.skip_bytes = size;
                        Expected::DataReturn
                    }
                    (Expected::DataReturn, b'\r') => Expected::DataEnd,
                    (Expected::DataEnd, b'\n') => CHUNK_SIZE,
                    (Expected::TrailerStart, b'\r') => Expected::LastEnd,
                    (Expected::TrailerStart, byte) if byte.is_ascii_graphic() => Expected::Trailer,
                    (Expected::Trailer, b'\r') => Expected::TrailerEnd,
                    (Expected::Trailer, byte) if is_field_byte(byte) => Expected::Trailer,
                    (Expected::LastEnd, b'\n') => Expected::End,
                    _ => return Err(EndUncertain { valid_bytes: taken }),
                });
                taken += 1;
            }
        }
        Ok(taken)
    }
}

/// Returns true if a chunk extension or a trailer line may contain the byte.
fn is_field_byte(byte: u8) -> bool {
    byte == b'\t' || byte >= b' ' && byte != 0x7f
}

const CHUNK_SIZE: Expected = Expected::Size { size: 0, digits: 0 };

/// The most hexadecimal digits of a chunk's size. A size of 15 digits is below 2^60, so it cannot overflow.
const SIZE_DIGITS_MAX: u8 = 15;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEAD: &str = "POST / HTTP/1.1\r\n\r\n";

    /// Scans bytes that arrive in pieces of `piece` bytes. Returns the request's length. `None` if it is incomplete.
    fn find_end(
        mut scan: RequestEndScan,
        wire: &[u8],
        piece: usize,
    ) -> Result<Option<usize>, EndUncertain> {
        let mut at = 0;
        for piece in wire.chunks(piece.max(1)) {
            let taken = scan.advance(piece)?;
            at += taken;
            if scan.is_at_end() {
                return Ok(Some(at));
            }
            assert_eq!(
                taken,
                piece.len(),
                "a request whose end is not reached takes all bytes"
            );
        }
        Ok(None)
    }

    #[test]
    fn a_body_with_a_length_ends_after_it() {
        let scan = RequestEndScan::sized(HEAD.len(), 5);
        let wire = format!("{HEAD}helloGET / HTTP/1.1");
        assert_eq!(find_end(scan, wire.as_bytes(), 7), Ok(Some(HEAD.len() + 5)));
        assert!(RequestEndScan::sized(0, 0).is_at_end());
        assert_eq!(RequestEndScan::sized(1, u64::MAX).skip_bytes, u64::MAX);
    }

    #[test]
    fn a_body_that_violates_the_grammar_has_an_uncertain_end() {
        for body in [
            "x",
            "\r\n",
            " 5\r\n",
            "5 \nhello",
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
            let scan = RequestEndScan::chunked(HEAD.len());
            assert!(find_end(scan, wire.as_bytes(), 1000).is_err(), "{body:?}");
        }
    }

    proptest! {
        /// The end of a well-formed body does not depend on how its bytes are split.
        #[test]
        fn a_chunked_request_ends_after_its_empty_line(
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
            let scan = RequestEndScan::chunked(HEAD.len());
            prop_assert_eq!(find_end(scan, wire.as_bytes(), piece), Ok(Some(length)));
        }

        /// The scan does not panic, and each end that it finds follows a line feed.
        #[test]
        fn no_bytes_make_the_scan_panic(bytes in "[0-9a-f;\r\n:]{0,60}", piece in 1_usize..9) {
            if let Ok(Some(at)) = find_end(RequestEndScan::chunked(0), bytes.as_bytes(), piece) {
                prop_assert!(bytes[..at].ends_with("\r\n"));
            }
        }
    }
}
