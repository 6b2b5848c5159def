//! The buffer of a fill's body, from which readers read at different positions.

use std::collections::VecDeque;
use std::mem;

use bytes::Bytes;

use crate::rt::budget::MemoryShare;

/// The arrived bytes at a position of a body.
pub(super) enum Arrived<'a> {
    /// A piece that readers share.
    Piece(Bytes),
    /// Bytes of a buffer that moves when it grows, so readers need a copy. Empty at the end of the buffer.
    Buffered(&'a [u8]),
}

/// The bytes of a body that have arrived. Bytes that all readers have read may have been released.
#[derive(Debug)]
pub(crate) struct BodyBuffer {
    layout: Layout,
    /// The offset in the body of the first byte in the buffer. It is zero until bytes are released.
    base: u64,
    /// The number of bytes in the buffer.
    len: usize,
}

#[derive(Debug)]
enum Layout {
    /// One buffer that may become the cached body. Readers get copies of its bytes.
    Buffer(Vec<u8>),
    /// The pieces as they arrived, which readers share. Short pieces are copied to `tail`, because a short piece would
    /// pin the whole buffer into which it was read.
    Pieces {
        pieces: VecDeque<Piece>,
        tail: Vec<u8>,
    },
}

#[derive(Debug)]
struct Piece {
    /// The offset of the piece in the body.
    start: u64,
    bytes: Bytes,
}

impl Piece {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl BodyBuffer {
    /// Returns an empty buffer for a body that memory may store. `capacity` is 0 if the body's length is unknown.
    pub(crate) fn contiguous(capacity: usize) -> Self {
        Self::empty(Layout::Buffer(Vec::with_capacity(capacity)))
    }

    /// Returns an empty list of pieces for a body that memory will not store.
    pub(crate) fn pieces() -> Self {
        Self::empty(Layout::Pieces {
            pieces: VecDeque::new(),
            tail: Vec::new(),
        })
    }

    fn empty(layout: Layout) -> Self {
        Self {
            layout,
            base: 0,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn end_offset(&self) -> u64 {
        self.base + self.len as u64
    }

    pub(super) fn push(&mut self, more: &Bytes) {
        let end = self.end_offset();
        self.len += more.len();
        match &mut self.layout {
            Layout::Buffer(buffer) => buffer.extend_from_slice(more),
            Layout::Pieces { pieces, tail } => {
                if more.len() < SHARED_BYTES_MIN {
                    tail.extend_from_slice(more);
                    if tail.len() >= COPIED_BYTES_MAX {
                        pieces.extend(take_tail(tail, end + more.len() as u64));
                    }
                } else {
                    pieces.extend(take_tail(tail, end));
                    let bytes = more.clone();
                    pieces.push_back(Piece { start: end, bytes });
                }
            }
        }
    }

    /// Returns the bytes from `position` on, or the piece with the next of them. Takes time logarithmic in the number
    /// of pieces.
    pub(super) fn arrived_at(&self, position: u64) -> Arrived<'_> {
        match &self.layout {
            Layout::Buffer(buffer) => Arrived::Buffered(rest(buffer, position - self.base)),
            Layout::Pieces { pieces, tail } => {
                let at = pieces.partition_point(|piece| piece.end() <= position);
                match pieces.get(at) {
                    // The piece is in memory, so the offset fits usize.
                    Some(piece) => {
                        Arrived::Piece(piece.bytes.slice((position - piece.start) as usize..))
                    }
                    // A reader of a later range may wait beyond the end.
                    None => {
                        let tail_start = self.end_offset() - tail.len() as u64;
                        Arrived::Buffered(rest(tail, position - tail_start))
                    }
                }
            }
        }
    }

    /// Releases the bytes before `position`, or all bytes if `position` is `None`. A contiguous buffer releases bytes
    /// only if at most half of its bytes have to be moved.
    pub(super) fn release_before(&mut self, position: Option<u64>) {
        let end = self.end_offset();
        // A reader of a later range may wait beyond the end.
        let position = position.unwrap_or(end).min(end);
        match &mut self.layout {
            Layout::Buffer(buffer) => {
                // The bytes are in memory, so the offset fits usize.
                let read = (position - self.base) as usize;
                // `drain` moves the rest of the bytes.
                if read * 2 >= buffer.len() {
                    buffer.drain(..read);
                    self.base = position;
                }
            }
            Layout::Pieces { pieces, tail } => {
                while let Some(read) = pieces.pop_front_if(|piece| piece.end() <= position) {
                    self.base = read.end();
                }
                if position == end {
                    tail.clear();
                    self.base = end;
                }
            }
        }
        self.len = (end - self.base) as usize;
    }

    /// Takes the whole body in one piece. Returns `None` if the body has several pieces and more than 64 KiB. Must not
    /// be called after bytes were released.
    pub(super) fn take_complete(&mut self) -> Option<CompleteBody> {
        debug_assert_eq!(self.base, 0, "released bytes are missing");
        let whole = match &mut self.layout {
            // If the length was known, the buffer has its final size, and no bytes are moved.
            Layout::Buffer(buffer) => CompleteBody::Buffer(mem::take(buffer).into_boxed_slice()),
            Layout::Pieces { pieces, tail } => {
                pieces.extend(take_tail(tail, self.len as u64));
                match pieces.len() {
                    0 => CompleteBody::Piece(Bytes::new()),
                    1 => CompleteBody::Piece(pieces.pop_front()?.bytes),
                    // A short body is joined, so that it can be sent in one write with its head.
                    _ if self.len <= COPIED_BYTES_MAX => {
                        let mut whole = Vec::with_capacity(self.len);
                        for piece in pieces.drain(..) {
                            whole.extend_from_slice(&piece.bytes);
                        }
                        CompleteBody::Buffer(whole.into_boxed_slice())
                    }
                    _ => return None,
                }
            }
        };
        self.len = 0;
        Some(whole)
    }
}

/// A whole body in one piece.
#[derive(Debug)]
pub(crate) enum CompleteBody {
    /// A buffer that contains only the body.
    Buffer(Box<[u8]>),
    /// A slice of the buffer into which the body was read.
    Piece(Bytes),
}

impl CompleteBody {
    /// Returns the body as shared bytes. `memory` is charged until the last reference to these bytes is dropped.
    pub(crate) fn charged_to(self, memory: MemoryShare) -> Bytes {
        match self {
            Self::Buffer(bytes) => memory.charge(bytes),
            Self::Piece(bytes) => memory.charge(bytes),
        }
    }
}

impl AsRef<[u8]> for CompleteBody {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Buffer(bytes) => bytes,
            Self::Piece(bytes) => bytes,
        }
    }
}

/// Empties `tail` and returns its bytes as a piece that ends at the offset `end`.
fn take_tail(tail: &mut Vec<u8>, end: u64) -> Option<Piece> {
    if tail.is_empty() {
        return None;
    }
    let bytes = Bytes::from(mem::take(tail));
    let start = end - bytes.len() as u64;
    Some(Piece { start, bytes })
}

fn rest(buffer: &[u8], from: u64) -> &[u8] {
    let arrived = usize::try_from(from)
        .ok()
        .and_then(|from| buffer.get(from..));
    arrived.unwrap_or_default()
}

/// The most bytes that one read copies, or that a body joined from pieces has. A `tail` of this size becomes a piece.
pub(super) const COPIED_BYTES_MAX: usize = 64 << 10;

/// Pieces below this size are copied: a copy takes less memory than the buffer of 64 KiB that the piece would pin.
const SHARED_BYTES_MIN: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push(usize),
        /// One of the readers reads.
        Read(usize),
        Release,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => prop_oneof![0_usize..300, 0..100_usize << 10].prop_map(Step::Push),
            6 => (0_usize..3).prop_map(Step::Read),
            1 => Just(Step::Release),
        ];
        proptest::collection::vec(step, 0..40)
    }

    impl BodyBuffer {
        fn read_at(&self, position: u64) -> Bytes {
            match self.arrived_at(position) {
                Arrived::Piece(piece) => piece,
                Arrived::Buffered(arrived) => {
                    Bytes::copy_from_slice(&arrived[..arrived.len().min(COPIED_BYTES_MAX)])
                }
            }
        }
    }

    fn body(range: std::ops::Range<usize>) -> Vec<u8> {
        range.map(|at| (at % 251) as u8).collect()
    }

    /// Runs the steps with three readers, and checks the bytes that they read. Returns the buffer and the whole body.
    fn run(mut buffer: BodyBuffer, steps: &[Step]) -> (BodyBuffer, Vec<u8>) {
        let mut whole = Vec::new();
        let mut readers = [0_usize; 3];
        for step in steps {
            match *step {
                Step::Push(bytes) => {
                    let more = body(whole.len()..whole.len() + bytes);
                    buffer.push(&Bytes::from(more.clone()));
                    whole.extend(more);
                }
                Step::Read(reader) => {
                    let at = &mut readers[reader];
                    let read = buffer.read_at(*at as u64);
                    assert_eq!(
                        read.is_empty(),
                        *at == whole.len(),
                        "reader {reader} at {at}"
                    );
                    assert_eq!(read, whole[*at..*at + read.len()]);
                    *at += read.len();
                }
                Step::Release => {
                    let slowest = readers.into_iter().min().unwrap_or(0);
                    buffer.release_before(Some(slowest as u64));
                    assert!(buffer.len() >= whole.len() - slowest);
                }
            }
        }
        for mut at in readers {
            while at < whole.len() {
                let read = buffer.read_at(at as u64);
                assert!(!read.is_empty());
                assert_eq!(read, whole[at..at + read.len()]);
                at += read.len();
            }
        }
        (buffer, whole)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn every_reader_reads_the_whole_body_despite_released_bytes(steps in steps(), contiguous: bool) {
            let buffer = if contiguous { BodyBuffer::contiguous(0) } else { BodyBuffer::pieces() };
            let (mut buffer, _) = run(buffer, &steps);
            buffer.release_before(None);
            prop_assert_eq!(buffer.len(), 0);
        }

        #[test]
        fn a_body_without_released_bytes_is_taken_unchanged(mut steps in steps(), contiguous: bool) {
            steps.retain(|step| !matches!(step, Step::Release));
            let buffer = if contiguous { BodyBuffer::contiguous(0) } else { BodyBuffer::pieces() };
            let (mut buffer, body) = run(buffer, &steps);
            match buffer.take_complete() {
                Some(whole) => prop_assert_eq!(whole.as_ref(), body),
                None => prop_assert!(!contiguous && body.len() > COPIED_BYTES_MAX),
            }
        }
    }

    #[test]
    fn large_pieces_are_shared_and_short_pieces_pin_no_large_buffer() {
        let large = Bytes::from(body(0..SHARED_BYTES_MIN));
        let mut buffer = BodyBuffer::pieces();
        buffer.push(&large);
        buffer.push(&large.slice(..100));
        assert_eq!(buffer.read_at(0).as_ptr(), large.as_ptr());
        let short = buffer.read_at(SHARED_BYTES_MIN as u64);
        assert_eq!(short, large[..100]);
        assert_ne!(short.as_ptr(), large.as_ptr());
    }
}
