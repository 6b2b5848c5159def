//! What a fill holds of its body, while its readers are at different places of it.

use std::collections::VecDeque;
use std::mem;

use bytes::Bytes;

use crate::base::budget::MemoryShare;

/// The bytes of a body from where the slowest reader is, or from its beginning, to the last that has come.
#[derive(Debug)]
pub(crate) struct Held {
    form: Form,
    /// Offset in the body of the first byte: above zero only after something was let go.
    base: u64,
    len: usize,
}

#[derive(Debug)]
enum Form {
    /// On its way to be kept in memory: readers copy.
    Buffer(Vec<u8>),
    /// As it came: readers share it. Short pieces are gathered in the tail, as each would keep the whole
    /// buffer that it was read into.
    Pieces {
        pieces: VecDeque<Piece>,
        tail: Vec<u8>,
    },
}

#[derive(Debug)]
struct Piece {
    /// Offset in the body.
    start: u64,
    bytes: Bytes,
}

impl Piece {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl Held {
    /// For a body that memory may keep. With its length as `capacity` it takes one exact allocation.
    pub(crate) fn to_keep(capacity: usize) -> Self {
        Self::empty(Form::Buffer(Vec::with_capacity(capacity)))
    }

    /// For one that memory will not keep.
    pub(crate) fn to_pass() -> Self {
        Self::empty(Form::Pieces {
            pieces: VecDeque::new(),
            tail: Vec::new(),
        })
    }

    fn empty(form: Form) -> Self {
        Self {
            form,
            base: 0,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn end(&self) -> u64 {
        self.base + self.len as u64
    }

    /// Puts bytes behind the others.
    pub(super) fn push(&mut self, more: &Bytes) {
        let end = self.end();
        self.len += more.len();
        match &mut self.form {
            Form::Buffer(buffer) => buffer.extend_from_slice(more),
            Form::Pieces { pieces, tail } => {
                if more.len() < SHARED_BYTES_MIN {
                    tail.extend_from_slice(more);
                    if tail.len() >= COPIED_BYTES_MAX {
                        pieces.extend(gathered(tail, end + more.len() as u64));
                    }
                } else {
                    pieces.extend(gathered(tail, end));
                    let bytes = more.clone();
                    pieces.push_back(Piece { start: end, bytes });
                }
            }
        }
    }

    /// Bytes from `position` on, as many as are worth a write; none if none have come yet.
    ///
    /// In time logarithmic in the number of pieces.
    pub(super) fn from(&self, position: u64) -> Bytes {
        match &self.form {
            Form::Buffer(buffer) => copied(buffer, position - self.base),
            Form::Pieces { pieces, tail } => {
                let at = pieces.partition_point(|piece| piece.end() <= position);
                match pieces.get(at) {
                    // It lies in memory, so its length is one of usize.
                    Some(piece) => piece.bytes.slice((position - piece.start) as usize..),
                    None => copied(tail, position - (self.end() - tail.len() as u64)),
                }
            }
        }
    }

    /// Drops what lies before `position`, or everything, where that is no work to speak of.
    pub(super) fn let_go(&mut self, position: Option<u64>) {
        let end = self.end();
        let position = position.unwrap_or(end);
        match &mut self.form {
            Form::Buffer(buffer) => {
                // It is in memory, so far.
                let read = (position - self.base) as usize;
                // What is left has to be moved.
                if read * 2 >= buffer.len() {
                    buffer.drain(..read);
                    self.base = position;
                }
            }
            Form::Pieces { pieces, tail } => {
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

    /// The whole body in one piece, out of here; nothing if it lies in several that are too long to be copied.
    ///
    /// Nothing may have been let go.
    pub(super) fn take_whole(&mut self) -> Option<Whole> {
        debug_assert_eq!(self.base, 0, "a window is no whole body");
        let whole = match &mut self.form {
            // With a known length the buffer is it already.
            Form::Buffer(buffer) => Whole::Buffer(mem::take(buffer).into_boxed_slice()),
            Form::Pieces { pieces, tail } => {
                pieces.extend(gathered(tail, self.len as u64));
                match pieces.len() {
                    0 => Whole::Piece(Bytes::new()),
                    1 => Whole::Piece(pieces.pop_front()?.bytes),
                    // A short one leaves in one write, with its head.
                    _ if self.len <= COPIED_BYTES_MAX => {
                        let mut whole = Vec::with_capacity(self.len);
                        for piece in pieces.drain(..) {
                            whole.extend_from_slice(&piece.bytes);
                        }
                        Whole::Buffer(whole.into_boxed_slice())
                    }
                    _ => return None,
                }
            }
        };
        self.len = 0;
        Some(whole)
    }
}

/// A whole body.
#[derive(Debug)]
pub(crate) enum Whole {
    /// In a buffer of its own.
    Buffer(Box<[u8]>),
    /// In a part of the buffer it was read into.
    Piece(Bytes),
}

impl Whole {
    /// The body as it is shared. `memory` is charged until the last reference is dropped.
    pub(crate) fn charged_to(self, memory: MemoryShare) -> Bytes {
        match self {
            Self::Buffer(bytes) => memory.charge(bytes),
            Self::Piece(bytes) => memory.charge(bytes),
        }
    }
}

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Buffer(bytes) => bytes,
            Self::Piece(bytes) => bytes,
        }
    }
}

/// The tail as a piece that ends at `end`.
fn gathered(tail: &mut Vec<u8>, end: u64) -> Option<Piece> {
    if tail.is_empty() {
        return None;
    }
    let bytes = Bytes::from(mem::take(tail));
    let start = end - bytes.len() as u64;
    Some(Piece { start, bytes })
}

fn copied(buffer: &[u8], from: u64) -> Bytes {
    let arrived = usize::try_from(from)
        .ok()
        .and_then(|from| buffer.get(from..));
    let arrived = arrived.unwrap_or_default();
    Bytes::copy_from_slice(&arrived[..arrived.len().min(COPIED_BYTES_MAX)])
}

/// What is copied at a time.
const COPIED_BYTES_MAX: usize = 64 << 10;

/// Pieces below this are copied: cheaper than to keep the buffers they came in, of 64 KiB each.
const SHARED_BYTES_MIN: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Act {
        Push(usize),
        /// One of the readers takes what it is given.
        Read(usize),
        LetGo,
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            4 => prop_oneof![0_usize..300, 0..100_usize << 10].prop_map(Act::Push),
            6 => (0_usize..3).prop_map(Act::Read),
            1 => Just(Act::LetGo),
        ];
        proptest::collection::vec(act, 0..40)
    }

    fn body(range: std::ops::Range<usize>) -> Vec<u8> {
        range.map(|at| (at % 251) as u8).collect()
    }

    /// Three readers and the body they should see.
    fn run(mut held: Held, acts: &[Act]) -> (Held, Vec<u8>) {
        let mut whole = Vec::new();
        let mut readers = [0_usize; 3];
        for act in acts {
            match *act {
                Act::Push(bytes) => {
                    let more = body(whole.len()..whole.len() + bytes);
                    held.push(&Bytes::from(more.clone()));
                    whole.extend(more);
                }
                Act::Read(reader) => {
                    let at = &mut readers[reader];
                    let read = held.from(*at as u64);
                    assert_eq!(
                        read.is_empty(),
                        *at == whole.len(),
                        "reader {reader} at {at}"
                    );
                    assert_eq!(read, whole[*at..*at + read.len()]);
                    *at += read.len();
                }
                Act::LetGo => {
                    let slowest = readers.into_iter().min().unwrap_or(0);
                    held.let_go(Some(slowest as u64));
                    assert!(held.len() >= whole.len() - slowest);
                }
            }
        }
        for mut at in readers {
            while at < whole.len() {
                let read = held.from(at as u64);
                assert!(!read.is_empty());
                assert_eq!(read, whole[at..at + read.len()]);
                at += read.len();
            }
        }
        (held, whole)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn every_reader_sees_the_body_whatever_is_let_go_behind_it(acts in acts(), keep: bool) {
            let held = if keep { Held::to_keep(0) } else { Held::to_pass() };
            let (mut held, _) = run(held, &acts);
            held.let_go(None);
            prop_assert_eq!(held.len(), 0);
        }

        #[test]
        fn a_body_of_which_nothing_was_let_go_comes_out_as_it_is(mut acts in acts(), keep: bool) {
            acts.retain(|act| !matches!(act, Act::LetGo));
            let held = if keep { Held::to_keep(0) } else { Held::to_pass() };
            let (mut held, body) = run(held, &acts);
            match held.take_whole() {
                Some(whole) => prop_assert_eq!(whole.as_ref(), body),
                None => prop_assert!(!keep && body.len() > COPIED_BYTES_MAX),
            }
        }
    }

    #[test]
    fn pieces_worth_it_are_shared_and_short_ones_keep_no_large_buffer() {
        let large = Bytes::from(body(0..SHARED_BYTES_MIN));
        let mut held = Held::to_pass();
        held.push(&large);
        held.push(&large.slice(..100));
        assert_eq!(held.from(0).as_ptr(), large.as_ptr());
        let short = held.from(SHARED_BYTES_MIN as u64);
        assert_eq!(short, large[..100]);
        assert_ne!(short.as_ptr(), large.as_ptr());
    }
}
