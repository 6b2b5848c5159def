//! Encoded frames that wait to be written to a connection. The heads of all frames are in one buffer. Payloads are
//! referenced and not copied.

use std::io::IoSlice;

use bytes::Bytes;

use edgeward_dedup::wire::{Checksum, FrameSink};

/// The frames that wait to be written. They may need several writes to the socket. New frames are added only when all
/// bytes are written.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    heads: Vec<u8>,
    /// Each payload, with the number of bytes of `heads` that are written before it.
    payloads: Vec<(usize, Bytes)>,
    /// The length of all payloads in bytes.
    payload_bytes: usize,
    /// The number of bytes of heads and payloads that are written already.
    written: usize,
    checksum: Checksum,
}

impl Outbox {
    /// Creates an empty outbox for a connection that uses this kind of checksum.
    pub(crate) fn new(checksum: Checksum) -> Self {
        Self {
            checksum,
            ..Self::default()
        }
    }

    /// Returns true if all bytes are written.
    pub(crate) fn is_written(&self) -> bool {
        self.written == self.bytes()
    }

    /// Removes all frames and releases the payloads.
    pub(crate) fn clear(&mut self) {
        self.heads.clear();
        self.payloads.clear();
        (self.payload_bytes, self.written) = (0, 0);
    }

    /// Releases the memory, unless it is small. Called while the connection has nothing to send.
    pub(crate) fn release(&mut self) {
        if self.heads.capacity() > IDLE_BYTES_MAX {
            self.heads = Vec::new();
        }
        self.payloads = Vec::new();
    }

    /// Records that this many more bytes were written.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.written += bytes;
        debug_assert!(self.written <= self.bytes());
    }

    /// Fills the slices with the bytes to be written next, and returns how many slices were filled.
    pub(crate) fn slices<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let (mut skip, mut count, mut start) = (self.written, 0, 0);
        let payloads = self
            .payloads
            .iter()
            .map(|(heads_before, payload)| (*heads_before, &payload[..]));
        for (end, payload) in payloads.chain([(self.heads.len(), &[][..])]) {
            for bytes in [&self.heads[start..end], payload] {
                if skip >= bytes.len() {
                    skip -= bytes.len();
                } else if count < into.len() {
                    into[count] = IoSlice::new(&bytes[skip..]);
                    (count, skip) = (count + 1, 0);
                }
            }
            start = end;
        }
        count
    }

    /// Returns the bytes of memory that the frames take, without their payloads.
    #[cfg(test)]
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.heads.capacity() + self.payloads.capacity() * size_of::<(usize, Bytes)>()
    }

    /// Returns the bytes of the heads from this offset on.
    pub(crate) fn heads(&self, start: usize) -> &[u8] {
        &self.heads[start..]
    }

    /// Returns the length of all heads in bytes.
    pub(crate) fn heads_bytes(&self) -> usize {
        self.heads.len()
    }
}

impl FrameSink for Outbox {
    fn head(&mut self) -> &mut Vec<u8> {
        &mut self.heads
    }

    fn payload(&mut self, payload: &Bytes) {
        self.payload_bytes += payload.len();
        self.payloads.push((self.heads.len(), payload.clone()));
    }

    fn bytes(&self) -> usize {
        self.heads.len() + self.payload_bytes
    }

    fn checksum(&self) -> Checksum {
        self.checksum
    }
}

/// The memory that an idle connection keeps for heads: enough for acknowledgements.
const IDLE_BYTES_MAX: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// All bytes are written in order, whatever the length of each write.
    ///
    /// Method: append frames with heads and payloads of 0 to 5 bytes in every combination, then drain the outbox with
    /// writes of every length.
    #[test]
    fn bytes_are_written_in_order() {
        let (mut outbox, mut expected) = (Outbox::default(), Vec::new());
        let mut next = 0_u8..;
        for (head, payload) in (0..6).flat_map(|head| (0..6).map(move |payload| (head, payload))) {
            let head: Vec<u8> = next.by_ref().take(head).collect();
            let payload: Vec<u8> = next.by_ref().take(payload).collect();
            outbox.head().extend_from_slice(&head);
            outbox.payload(&Bytes::from(payload.clone()));
            expected.extend(head);
            expected.extend(payload);
        }
        assert_eq!(outbox.bytes(), expected.len());
        for write_bytes_max in 1..=expected.len() {
            let mut written: Vec<u8> = Vec::new();
            while !outbox.is_written() {
                let mut slices = [IoSlice::new(&[]); 3];
                let count = outbox.slices(&mut slices);
                let bytes: Vec<u8> = slices[..count]
                    .iter()
                    .flat_map(|slice| slice.to_vec())
                    .collect();
                assert!(!bytes.is_empty());
                let bytes = &bytes[..bytes.len().min(write_bytes_max)];
                written.extend(bytes);
                outbox.advance(bytes.len());
            }
            assert_eq!(written, expected, "writes of {write_bytes_max} bytes");
            outbox.written = 0;
        }
        outbox.clear();
        assert!(outbox.is_written());
        outbox.head().extend_from_slice(&[0; IDLE_BYTES_MAX + 1]);
        outbox.clear();
        outbox.release();
        assert_eq!(outbox.allocated_bytes(), 0);
    }
}
