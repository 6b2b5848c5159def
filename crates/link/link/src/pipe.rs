//! A bounded queue of bytes in one direction, between the user of a stream and the link.
//!
//! Both ends may be used by different threads, and neither waits for the other: the lock is held only to add or remove
//! one piece. The work of the link on these bytes, such as hashing and compressing, takes place outside of the pipe.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use edgeward_dedup::buffer;
use edgeward_dedup::reason;

use crate::user::PassedSocket;

/// Creates a pipe. The writer waits while the pieces in the pipe take `memory_max` bytes or more. They are counted in
/// `total`.
pub(crate) fn pipe(memory_max: usize, total: &PipeMemory) -> (PipeWriter, PipeReader) {
    let pipe = Arc::new(Pipe {
        state: Mutex::default(),
        memory_max,
        total: total.clone(),
    });
    (PipeWriter(Arc::clone(&pipe)), PipeReader(pipe))
}

/// The memory of all pipes of a peer. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(crate) struct PipeMemory(Arc<AtomicU64>);

impl PipeMemory {
    /// Returns the number of bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Pipe {
    state: Mutex<State>,
    memory_max: usize,
    total: PipeMemory,
}

#[derive(Debug, Default)]
struct State {
    pieces: VecDeque<Bytes>,
    /// The memory of the pieces in bytes.
    memory_bytes: usize,
    /// True if the writer has flushed the pieces, and the reader does not know it yet.
    is_flushed: bool,
    /// True if the writer has declared the pipe open, see [`PipeWriter::open`].
    is_open: bool,
    /// The facts about the bytes that the reader has not taken yet.
    facts: Facts,
    /// A TCP connection that follows the pieces and replaces the pipe.
    socket: Option<PassedSocket>,
    /// The end of the body as the writer set it: complete, or failed with this reason.
    end: Option<Result<(), u32>>,
    /// The reason why the reader takes no further bytes.
    refusal: Option<u32>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// Facts about the bytes of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// True if the bytes bypass deduplication.
    pub(crate) bypasses: bool,
    /// The content type with which the bytes are counted.
    pub(crate) content_type: Option<Box<str>>,
}

/// The end of a pipe into which bytes are written. Dropping it before [`end`](Self::end) cancels the body.
#[derive(Debug)]
pub(crate) struct PipeWriter(Arc<Pipe>);

/// The end of a pipe from which bytes are read. Dropping it refuses all further bytes.
#[derive(Debug)]
pub(crate) struct PipeReader(Arc<Pipe>);

/// The next item of a pipe.
#[derive(Debug)]
pub(crate) enum Item {
    Bytes(Bytes),
    /// A TCP connection, from which all further bytes are read.
    Socket(PassedSocket),
    /// The body is complete.
    End,
    /// The body was aborted for this reason.
    Failed(u32),
}

impl Pipe {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the memory of the pieces.
    fn set_memory(&self, state: &mut State, bytes: usize) {
        // A sum that wraps around is a subtraction.
        let change = (bytes as u64).wrapping_sub(state.memory_bytes as u64);
        self.total.0.fetch_add(change, Ordering::Relaxed);
        state.memory_bytes = bytes;
    }

    /// Changes the state, and then wakes the reader.
    fn wake_reader(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        let waker = state.reader.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Changes the state, and then wakes the writer.
    fn wake_writer(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        let waker = state.writer.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl PipeWriter {
    /// Waits until a piece can be written. Fails with the reason if the reader takes no further bytes.
    pub(crate) fn poll_space(&self, cx: &mut Context<'_>) -> Poll<Result<(), u32>> {
        let mut state = self.0.state();
        match state.refusal {
            Some(reason) => Poll::Ready(Err(reason)),
            None if state.memory_bytes < self.0.memory_max => Poll::Ready(Ok(())),
            None => {
                store_waker(&mut state.writer, cx);
                Poll::Pending
            }
        }
    }

    /// Waits until the reader takes no further bytes, and returns the reason.
    pub(crate) fn poll_refused(&self, cx: &mut Context<'_>) -> Poll<u32> {
        let mut state = self.0.state();
        match state.refusal {
            Some(reason) => Poll::Ready(reason),
            None => {
                store_waker(&mut state.writer, cx);
                Poll::Pending
            }
        }
    }

    /// Adds a piece. The caller has [waited](Self::poll_space) for space.
    pub(crate) fn push(&self, piece: Bytes) {
        let piece = compact(piece);
        self.0.wake_reader(|state| {
            if state.refusal.is_none() {
                self.0
                    .set_memory(state, state.memory_bytes + memory_bytes(&piece));
                state.pieces.push_back(piece);
            }
        });
    }

    /// Tells the reader that no further piece will follow soon.
    pub(crate) fn flush(&self) {
        self.0.wake_reader(|state| state.is_flushed = true);
    }

    /// Tells the reader that bytes will follow, or the end of a complete body.
    pub(crate) fn open(&self) {
        self.0.wake_reader(|state| state.is_open = true);
    }

    /// Tells the reader facts about the bytes that are written after this call.
    pub(crate) fn describe(&self, change: impl FnOnce(&mut Facts)) {
        self.0.wake_reader(|state| change(&mut state.facts));
    }

    /// Passes a TCP connection, from which all further bytes are read. Returns it if the reader takes no further bytes.
    pub(crate) fn pass(&self, socket: PassedSocket) -> Result<(), PassedSocket> {
        let mut returned = Ok(());
        self.0.wake_reader(|state| match state.refusal {
            Some(_) => returned = Err(socket),
            None => state.socket = Some(socket),
        });
        returned
    }

    /// Ends the body: it is complete, or has failed with this reason. Only the first call has an effect.
    pub(crate) fn end(&self, end: Result<(), u32>) {
        self.0.wake_reader(|state| _ = state.end.get_or_insert(end));
    }

    /// Returns true if the writer has ended the body, and it is complete.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.0.state().end, Some(Ok(())))
    }

    /// Returns the reason why the reader takes no further bytes.
    pub(crate) fn refusal(&self) -> Option<u32> {
        self.0.state().refusal
    }
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        self.end(Err(reason::CANCELLED));
    }
}

impl PipeReader {
    /// Waits for the next item. The end is returned at each further call, too.
    pub(crate) fn poll_item(&self, cx: &mut Context<'_>) -> Poll<Item> {
        let mut state = self.0.state();
        if let Some(piece) = state.pieces.pop_front() {
            let bytes = state.memory_bytes - memory_bytes(&piece);
            self.0.set_memory(&mut state, bytes);
            let waker = state.writer.take();
            drop(state);
            waker.into_iter().for_each(Waker::wake);
            return Poll::Ready(Item::Bytes(piece));
        }
        if let Some(socket) = state.socket.take() {
            return Poll::Ready(Item::Socket(socket));
        }
        match state.end {
            Some(Ok(())) => Poll::Ready(Item::End),
            Some(Err(reason)) => Poll::Ready(Item::Failed(reason)),
            None => {
                store_waker(&mut state.reader, cx);
                Poll::Pending
            }
        }
    }

    /// Waits until the writer has [opened](PipeWriter::open) the pipe or ended the body. Fails with the reason if the
    /// body has failed.
    pub(crate) fn poll_open(&self, cx: &mut Context<'_>) -> Poll<Result<(), u32>> {
        let mut state = self.0.state();
        match state.end {
            _ if state.is_open => Poll::Ready(Ok(())),
            Some(end) => Poll::Ready(end),
            None => {
                store_waker(&mut state.reader, cx);
                Poll::Pending
            }
        }
    }

    /// Returns true once after the writer has flushed, if all pieces before are read.
    pub(crate) fn take_flush(&self) -> bool {
        let mut state = self.0.state();
        state.pieces.is_empty() && std::mem::take(&mut state.is_flushed)
    }

    /// Returns the facts about the next bytes that are new since the last call.
    pub(crate) fn take_facts(&self) -> Facts {
        std::mem::take(&mut self.0.state().facts)
    }

    /// Removes all pieces.
    pub(crate) fn take_all(&self) -> VecDeque<Bytes> {
        let mut pieces = VecDeque::new();
        self.0.wake_writer(|state| {
            pieces = std::mem::take(&mut state.pieces);
            self.0.set_memory(state, 0);
        });
        pieces
    }

    /// Waits until the writer has aborted the body.
    pub(crate) fn poll_failed(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.state();
        if matches!(state.end, Some(Err(_))) {
            return Poll::Ready(());
        }
        store_waker(&mut state.reader, cx);
        Poll::Pending
    }

    /// Drops the unread pieces, and refuses further ones for this reason. Only the first call has an effect.
    pub(crate) fn refuse(&self, reason: u32) {
        let (mut pieces, mut socket) = (VecDeque::new(), None);
        self.0.wake_writer(|state| {
            state.refusal.get_or_insert(reason);
            pieces = std::mem::take(&mut state.pieces);
            self.0.set_memory(state, 0);
            socket = state.socket.take();
        });
    }
}

impl Drop for PipeReader {
    fn drop(&mut self) {
        self.refuse(reason::CANCELLED);
    }
}

fn store_waker(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *place = Some(cx.waker().clone()),
    }
}

/// Copies the bytes if they are short. They may occupy a buffer that is much longer.
fn compact(piece: Bytes) -> Bytes {
    if piece.len() <= COPIED_BYTES_MAX {
        Bytes::copy_from_slice(&piece)
    } else {
        piece
    }
}

/// Returns the memory that a piece may keep allocated: its own if it is short, otherwise a whole large buffer.
fn memory_bytes(piece: &Bytes) -> usize {
    let bytes = if piece.len() <= COPIED_BYTES_MAX {
        piece.len()
    } else {
        buffer::LARGE_BYTES[1].max(piece.len())
    };
    OVERHEAD_BYTES + bytes
}

/// The longest piece that is copied. Copying 64 KiB takes a few microseconds.
const COPIED_BYTES_MAX: usize = 64 << 10;

/// The memory of a piece in addition to its bytes: its place in the queue, and the header and the rounding of its
/// allocation. It limits the number of pieces.
const OVERHEAD_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    #[derive(Default)]
    struct WakeCounter(AtomicUsize);

    impl Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn noop() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    proptest! {
        /// Method: write and read pieces of all lengths in any order. The reader gets the bytes of the writer, the
        /// memory stays within the limit and one piece, and an empty pipe has no memory. The total counts it beside the
        /// memory of another pipe.
        #[test]
        fn a_pipe_passes_on_all_bytes_within_its_limit(
            steps in vec((any::<bool>(), 1_usize..200_000), 1..60),
            memory_max in 1_usize..1_000_000,
        ) {
            let total = PipeMemory::default();
            let (writer, reader) = pipe(memory_max, &total);
            let (other, _other_reader) = pipe(memory_max, &total);
            other.push(Bytes::from_static(b"x"));
            let other = total.bytes();
            let (mut written, mut read) = (Vec::new(), Vec::new());
            for (nth, (writes, bytes)) in steps.into_iter().enumerate() {
                if !writes {
                    if let Poll::Ready(Item::Bytes(piece)) = reader.poll_item(&mut noop()) {
                        read.extend_from_slice(&piece);
                    }
                    continue;
                }
                let memory = writer.0.state().memory_bytes;
                let has_space = writer.poll_space(&mut noop()).is_ready();
                prop_assert_eq!(has_space, memory < memory_max);
                if has_space {
                    let piece = vec![nth as u8; bytes];
                    written.extend_from_slice(&piece);
                    writer.push(Bytes::from(piece));
                }
                let piece_max = buffer::LARGE_BYTES[1] + OVERHEAD_BYTES;
                prop_assert!(writer.0.state().memory_bytes < memory_max + piece_max);
                prop_assert_eq!(total.bytes(), other + writer.0.state().memory_bytes as u64);
            }
            writer.end(Ok(()));
            while let Poll::Ready(Item::Bytes(piece)) = reader.poll_item(&mut noop()) {
                read.extend_from_slice(&piece);
            }
            prop_assert!(read == written);
            prop_assert!(matches!(reader.poll_item(&mut noop()), Poll::Ready(Item::End)));
            prop_assert_eq!(writer.0.state().memory_bytes, 0);
            prop_assert_eq!(total.bytes(), other);
        }
    }

    /// Pieces of one byte fill a pipe by their overhead, so their number is limited.
    #[test]
    fn short_pieces_are_counted_with_their_overhead() {
        let (writer, _reader) = pipe(64 << 10, &PipeMemory::default());
        let mut pieces = 0;
        while writer.poll_space(&mut noop()).is_ready() {
            writer.push(Bytes::from_static(b"x"));
            pieces += 1;
        }
        assert_eq!(pieces, (64_usize << 10).div_ceil(OVERHEAD_BYTES + 1));
    }

    /// A short piece of a long buffer does not keep the buffer allocated.
    #[test]
    fn a_short_piece_is_copied_out_of_its_buffer() {
        let (writer, reader) = pipe(1, &PipeMemory::default());
        let buffer = Bytes::from(vec![7; 500_000]);
        writer.push(buffer.slice(..COPIED_BYTES_MAX));
        assert!(buffer.is_unique());
        writer.push(buffer.slice(..COPIED_BYTES_MAX + 1));
        assert!(!buffer.is_unique());
        assert!(writer.0.state().memory_bytes > buffer::LARGE_BYTES[1]);
        drop(reader);
        assert!(buffer.is_unique(), "a refused piece is dropped");
        assert_eq!(writer.0.total.bytes(), 0);
    }

    /// Each event wakes the end that waits for it, once.
    #[test]
    fn the_end_that_waits_is_woken() {
        let [reads, writes] = [0, 1].map(|_| Arc::new(WakeCounter::default()));
        let (read_waker, write_waker) = (
            Waker::from(Arc::clone(&reads)),
            Waker::from(Arc::clone(&writes)),
        );
        let (mut reading, mut writing) = (
            Context::from_waker(&read_waker),
            Context::from_waker(&write_waker),
        );
        let woken = |counter: &WakeCounter| counter.0.swap(0, Ordering::Relaxed);
        let (writer, reader) = pipe(1, &PipeMemory::default());

        assert!(reader.poll_open(&mut reading).is_pending());
        writer.open();
        assert_eq!(woken(&reads), 1);
        assert_eq!(reader.poll_open(&mut reading), Poll::Ready(Ok(())));

        assert!(reader.poll_item(&mut reading).is_pending());
        writer.push(Bytes::from_static(b"x"));
        writer.push(Bytes::from_static(b"y"));
        assert_eq!(woken(&reads), 1);
        assert!(writer.poll_space(&mut writing).is_pending());
        let item = reader.poll_item(&mut reading);
        assert!(matches!(item, Poll::Ready(Item::Bytes(bytes)) if bytes == "x"));
        assert_eq!(woken(&writes), 1);

        writer.flush();
        assert!(!reader.take_flush(), "a piece before the flush is unread");
        assert!(reader.poll_item(&mut reading).is_ready());
        assert!(reader.take_flush());
        assert!(!reader.take_flush());

        assert!(reader.poll_item(&mut reading).is_pending());
        writer.flush();
        assert_eq!(woken(&reads), 1);

        assert!(writer.poll_refused(&mut writing).is_pending());
        reader.refuse(9);
        assert_eq!(woken(&writes), 1);
        assert_eq!(writer.poll_space(&mut writing), Poll::Ready(Err(9)));
        writer.push(Bytes::from_static(b"z"));
        assert_eq!(writer.0.state().memory_bytes, 0);
        drop(reader);
        assert_eq!(writer.refusal(), Some(9), "the first reason counts");
    }

    /// A dropped writer aborts its body, unless it has ended the body before.
    #[test]
    fn a_dropped_writer_aborts_its_body() {
        let (writer, reader) = pipe(1, &PipeMemory::default());
        writer.push(Bytes::from_static(b"x"));
        let counter = Arc::new(WakeCounter::default());
        let waker = Waker::from(Arc::clone(&counter));
        let cx = &mut Context::from_waker(&waker);
        assert!(reader.poll_failed(cx).is_pending());
        drop(writer);
        assert_eq!(counter.0.load(Ordering::Relaxed), 1, "the reader is woken");
        assert!(reader.poll_failed(cx).is_ready());
        assert!(matches!(
            reader.poll_item(&mut noop()),
            Poll::Ready(Item::Bytes(_))
        ));
        let end = reader.poll_item(&mut noop());
        assert!(matches!(end, Poll::Ready(Item::Failed(reason::CANCELLED))));

        let (writer, reader) = pipe(1, &PipeMemory::default());
        writer.end(Ok(()));
        drop(writer);
        assert!(matches!(
            reader.poll_item(&mut noop()),
            Poll::Ready(Item::End)
        ));
        assert_eq!(reader.poll_open(&mut noop()), Poll::Ready(Ok(())));
    }
}
