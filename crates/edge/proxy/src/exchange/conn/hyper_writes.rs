//! The progress of the response that hyper writes, parsed from its bytes.

/// The status and the number of body bytes that hyper has written of the current response.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HyperWrites {
    /// The status of the response, or 0 before hyper has written the status line. The line must be in one piece.
    pub(super) status: u16,
    /// How many of the four bytes CR LF CR LF, which end a head, the last written bytes match. 4 after the head.
    end_matched: u8,
    /// The number of bytes written after the head.
    pub(super) body_bytes: u64,
}

impl HyperWrites {
    pub(super) fn record(&mut self, mut bytes: &[u8]) {
        if self.end_matched == 0
            && let Some(digits) = bytes
                .strip_prefix(b"HTTP/1.")
                .and_then(|rest| rest.get(2..5))
        {
            let number = digits
                .iter()
                .fold(0, |n, digit| n * 10 + u16::from(digit.wrapping_sub(b'0')));
            self.status = number;
        }
        // Nearly always the whole head is in one piece.
        if self.end_matched == 0
            && let Some(at) = memchr::memmem::find(bytes, b"\r\n\r\n")
        {
            self.end_matched = 4;
            bytes = &bytes[at + 4..];
        }
        while self.end_matched < 4 {
            let Some((&byte, rest)) = bytes.split_first() else {
                return;
            };
            bytes = rest;
            self.end_matched = match (self.end_matched, byte) {
                (0 | 2, b'\r') => self.end_matched + 1,
                (1 | 3, b'\n') => self.end_matched + 1,
                (_, b'\r') => 1,
                _ => 0,
            };
        }
        self.body_bytes += bytes.len() as u64;
    }
}
