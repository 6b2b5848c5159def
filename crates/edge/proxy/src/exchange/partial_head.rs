//! Decides when to parse the head of a message that arrives in pieces.
//!
//! The first piece is always parsed, so that an invalid head is refused at once. Each later piece is only searched
//! for the empty line that ends a head. The work thus grows with the length of a head, not with the number of pieces.

/// The length of a head that was parsed and found incomplete.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PartialHead {
    parsed_len: usize,
}

impl PartialHead {
    /// Returns true if the head at the start of `bytes` may be complete. False means that it is certainly incomplete.
    pub(crate) fn may_be_complete(self, bytes: &[u8]) -> bool {
        // A head ends with LF LF or LF CR LF, and the first bytes of this end may be among the parsed bytes.
        let from = self.parsed_len.saturating_sub(LINE_END_LEN);
        self.parsed_len == 0 || bytes.get(from..).is_none_or(has_empty_line)
    }

    /// Records that the first `len` bytes are not a complete head.
    pub(crate) fn mark_incomplete(&mut self, len: usize) {
        self.parsed_len = len;
    }

    /// Starts again for the next head.
    pub(crate) fn reset(&mut self) {
        self.parsed_len = 0;
    }
}

fn has_empty_line(bytes: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', bytes).any(|at| {
        let rest = &bytes[at + 1..];
        rest.starts_with(b"\n") || rest.starts_with(b"\r\n")
    })
}

/// The most bytes that can precede the last line feed in the end of a head: LF and CR.
const LINE_END_LEN: usize = 2;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_complete(bytes: &[u8]) -> bool {
        let mut fields = [httparse::EMPTY_HEADER; 16];
        let parsed = httparse::Request::new(&mut fields).parse(bytes);
        !matches!(parsed, Ok(httparse::Status::Partial))
    }

    proptest! {
        /// A head is parsed as soon as its last piece arrives, for any division into pieces.
        ///
        /// Oracle: call httparse after each piece. Here, `is_complete` is also true for an invalid head.
        #[test]
        fn a_complete_head_is_never_missed(
            lines in prop::collection::vec(prop::sample::select(&["a: b", "", "c:d"][..]), 0..5),
            ends in prop::collection::vec(any::<bool>(), 6),
            pieces in prop::collection::vec(1usize..9, 1..40),
        ) {
            let mut head = b"GET / HTTP/1.1".to_vec();
            for (n, ends_with_cr) in ends.into_iter().enumerate() {
                head.extend_from_slice(if ends_with_cr { b"\r\n" } else { b"\n" });
                head.extend_from_slice(lines.get(n).unwrap_or(&"").as_bytes());
            }
            let mut partial = PartialHead::default();
            let mut len = 0;
            for piece in pieces {
                len = (len + piece).min(head.len());
                let bytes = &head[..len];
                if partial.may_be_complete(bytes) {
                    if is_complete(bytes) {
                        return Ok(());
                    }
                    partial.mark_incomplete(len);
                } else {
                    prop_assert!(!is_complete(bytes), "{:?}", String::from_utf8_lossy(bytes));
                }
            }
        }
    }

    /// Method: pass a head byte by byte, and count the parses. The first and the last byte cause one each.
    #[test]
    fn a_head_that_comes_byte_by_byte_is_parsed_twice() {
        let head = b"GET / HTTP/1.1\r\nhost: a\r\naccept: */*\r\n\r\n";
        let mut partial = PartialHead::default();
        let mut parsed = 0;
        for len in 1..=head.len() {
            if partial.may_be_complete(&head[..len]) {
                parsed += 1;
                partial.mark_incomplete(len);
            }
        }
        assert_eq!(parsed, 2);
    }
}
