//! Tests of fills with many readers, without sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use edgeward_purge::Stamp;
use edgeward_store::hot::{HotCache, HotConfig};
use edgeward_types::{ByteSize, KeyHash};
use http::{HeaderMap, StatusCode};

use super::reader::{CROWD_READERS, TURN_BYTES};
use super::shared_fill::WINDOW_BYTES;
use super::*;
use crate::cache::stored::Hot;
use crate::rt::budget::MemoryBudget;

/// Counts the wakes of a task.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Bed {
    hot: Arc<Hot>,
    fill: Arc<Fill>,
    readers: Vec<FillReader>,
    wakes: Arc<Wakes>,
    body: Vec<u8>,
    pushed: usize,
}

impl Bed {
    /// A fill with this number of readers, for a body that memory may store or for a list of pieces.
    fn new(readers: usize, buffer: BodyBuffer) -> Self {
        let (fill, leader) = Fill::new(FollowLimits {
            readers_max: readers,
            head_deadline: Instant::now() + Duration::from_secs(60),
        });
        let mut joined = vec![leader];
        joined.extend((1..readers).map(|_| fill.join().expect("the fill is not full")));
        assert_eq!(fill.join().err(), Some(JoinError::Full));
        let body: Vec<u8> = (0..4 << 20).map(|at| (at % 251) as u8).collect();
        let head = FillHead {
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            coverage: None,
            variant: None,
            length: Some(body.len() as u64),
            shareable: true,
            ignores_ranges: false,
            stored: true,
            stamp: Stamp::NONE,
            encodable: None,
            is_own: true,
            object: None,
        };
        let memory = MemoryBudget::new(64 << 20, None).reserve(body.len() as u64);
        fill.publish(Arc::new(head), buffer, memory.expect("a share"));
        Self {
            hot: HotCache::new(HotConfig::new(ByteSize::mib(64))),
            fill,
            readers: joined,
            wakes: Arc::default(),
            body,
            pushed: 0,
        }
    }

    fn push(&mut self, bytes: usize, length_max: u64) -> PushResult {
        let end = self.pushed + bytes;
        let piece = Bytes::copy_from_slice(&self.body[self.pushed..end]);
        self.pushed = end;
        self.fill.push(&piece, length_max)
    }

    /// Reads the next piece, and compares it with the body from `position` on.
    fn read(&self, reader: usize, position: &mut usize) -> Option<Bytes> {
        let waker = Waker::from(Arc::clone(&self.wakes));
        let cx = Context::from_waker(&waker);
        match self.readers[reader].poll_bytes(&self.hot, &cx) {
            Poll::Ready(Some(Ok((piece, _)))) => {
                assert_eq!(piece, self.body[*position..*position + piece.len()]);
                *position += piece.len();
                Some(piece)
            }
            Poll::Ready(Some(Err(error))) => panic!("{error}"),
            Poll::Ready(None) | Poll::Pending => None,
        }
    }

    fn wakes(&self) -> usize {
        self.wakes.0.load(Ordering::Relaxed)
    }
}

/// Method: five hundred readers read each piece when it has arrived, and send none of them, as slow clients do.
#[test]
fn five_hundred_readers_take_the_memory_of_one_body() {
    const BYTES: usize = 600_000;
    for buffer in [BodyBuffer::contiguous(BYTES), BodyBuffer::pieces()] {
        let mut bed = Bed::new(500, buffer);
        let mut positions = vec![0; 500];
        let mut unsent = Vec::new();
        while bed.pushed < BYTES {
            bed.push(10_000, u64::MAX);
            for (reader, position) in positions.iter_mut().enumerate() {
                unsent.extend(std::iter::from_fn(|| bed.read(reader, position)));
            }
        }
        // A reader that has had its turn reads the rest at its next poll.
        for (reader, position) in positions.iter_mut().enumerate() {
            unsent.extend(std::iter::from_fn(|| bed.read(reader, position)));
        }
        assert!(positions.iter().all(|&position| position == BYTES));
        let copied = bed.hot.pinned_bytes().0;
        assert!(copied <= BYTES as u64, "{copied} bytes of copies");
        drop(unsent);
        assert_eq!(bed.hot.pinned_bytes().0, 0);
    }
}

/// Method: all bytes have arrived, in a buffer or as the complete body. The first of many readers reads until it has to
/// wait, and is woken at once to continue after the others.
#[test]
fn each_of_many_readers_gets_a_bounded_number_of_bytes_per_turn() {
    for (readers, is_complete) in [(CROWD_READERS, false), (CROWD_READERS, true), (2, false)] {
        let mut bed = Bed::new(readers, BodyBuffer::contiguous(4 << 20));
        bed.push(4 << 20, u64::MAX);
        if is_complete {
            let (body, _memory) = bed.fill.finish().expect("the whole body");
            assert_eq!(body.as_ref().len(), 4 << 20);
            let body = Bytes::copy_from_slice(&bed.body);
            bed.fill.publish_body(body, KeyHash(1));
        }
        let mut position = 0;
        let mut turns = Vec::new();
        while position < 4 << 20 {
            let before = position;
            while bed.read(0, &mut position).is_some() {}
            turns.push(position - before);
        }
        if readers == 2 {
            assert_eq!((turns.len(), bed.wakes()), (1, 0));
        } else {
            assert_eq!(turns, vec![TURN_BYTES; 32], "complete: {is_complete}");
            assert!(bed.wakes() >= 31, "{}", bed.wakes());
        }
    }
}

/// Method: a hundred readers of a window read piece by piece, one after the other. A pump that waits for space is woken
/// once for each piece, by the last reader.
#[test]
fn the_pump_of_a_window_is_woken_by_the_slowest_reader_only() {
    let mut bed = Bed::new(100, BodyBuffer::pieces());
    let mut positions = vec![0; 100];
    let pump: Arc<Wakes> = Arc::default();
    let waker = Waker::from(Arc::clone(&pump));
    let cx = Context::from_waker(&waker);
    while bed.push(WINDOW_BYTES / 8, 0) == PushResult::Continue {}
    for wakes in 0..8 {
        assert!(bed.fill.poll_window_space(&cx).is_pending());
        for (reader, position) in positions.iter_mut().enumerate() {
            assert_eq!(pump.0.load(Ordering::Relaxed), wakes, "reader {reader}");
            // The first read may only end the reader's turn.
            let read = bed
                .read(reader, position)
                .or_else(|| bed.read(reader, position));
            assert_eq!(read.map(|piece| piece.len()), Some(WINDOW_BYTES / 8));
        }
        assert_eq!(pump.0.load(Ordering::Relaxed), wakes + 1);
        assert!(bed.fill.poll_window_space(&cx).is_ready());
        assert_eq!(bed.push(WINDOW_BYTES / 8, 0), PushResult::WindowFull);
    }
}

/// Method: the only reader waits for a range that has not arrived. The window releases all bytes before the range.
#[test]
fn a_reader_of_a_later_range_does_not_fill_the_window() {
    for buffer in [BodyBuffer::contiguous(0), BodyBuffer::pieces()] {
        let mut bed = Bed::new(1, buffer);
        let mut position = 3 << 20;
        bed.readers[0].set_range(3 << 20..(3 << 20) + 10);
        for _ in 0..33 {
            assert_eq!(bed.push(100_000, 0), PushResult::Continue);
        }
        assert_eq!(
            bed.read(0, &mut position).map(|piece| piece.len()),
            Some(10)
        );
        assert!(bed.read(0, &mut position).is_none(), "the end of the range");
    }
}
