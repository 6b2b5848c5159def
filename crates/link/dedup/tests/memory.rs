//! Tests the memory of a receiver whose peer sends frames of one byte. The test is alone in its process, because it
//! measures the memory of the process.

#[expect(dead_code, reason = "the other tests use the rest")]
#[path = "machines/store.rs"]
mod store;
#[expect(dead_code, reason = "the other tests use the rest")]
mod support;

use edgeward_dedup::buffer::Pool;
use edgeward_dedup::codec::Method;
use edgeward_dedup::id::IdKey;
use edgeward_dedup::knowledge::Knowledge;
use edgeward_dedup::receiver::{Receiver, ReceiverConfig, Sharing};
use edgeward_dedup::wire::{Frame, Span, StreamId};
use edgeward_dedup::{Resources, Violation};

use store::PatchCodec;

/// The number of streams, and the window of each stream in bytes: together 8 MiB.
const STREAMS: u64 = 128;
const WINDOW: u64 = 64 << 10;

/// Returns the resident memory of this process in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has /proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kib: u64 = kib.and_then(|kib| kib.parse().ok()).expect("a number");
    kib << 10
}

/// Returns a frame with one byte of a body.
fn byte(stream: u64, offset: u64, is_plain: bool) -> Frame<'static> {
    let span = Span {
        stream: StreamId(stream),
        offset,
        length: 1,
    };
    let (method, payload) = (Method::None, &b"x"[..]);
    if is_plain {
        Frame::Plain {
            span,
            method,
            payload,
        }
    } else {
        let cuts = Vec::new();
        Frame::Literal {
            span,
            method,
            cuts,
            payload,
        }
    }
}

/// Windows of 8 MiB that are filled with frames of one byte take at most 20 MiB of memory: one and a half times the
/// windows, and 64 KiB for each stream.
///
/// Method: fill the windows with pieces that have gaps between them, that alternate in kind, that arrive in reverse
/// order, and that arrive in order and are not read. The receiver accepts them or reports a violation.
#[test]
fn frames_of_one_byte_take_little_more_memory_than_their_window() {
    type Order = fn(u64) -> (u64, bool);
    let orders: [(&str, Order, bool); 4] = [
        ("with gaps", |nth| (2 * nth + 1, true), false),
        ("alternating", |nth| (nth + 1, nth % 2 == 0), false),
        ("reversed", |nth| (WINDOW - 1 - nth, true), false),
        ("in order", |nth| (nth, nth % 2 == 0), true),
    ];
    let before = resident_bytes();
    for (name, order, accepts_all) in orders {
        let mut receiver = Receiver::new(ReceiverConfig {
            streams_max: STREAMS as usize,
            credit: WINDOW,
            window_max: WINDOW,
            budget: STREAMS * WINDOW,
            sharing: Sharing::Exchanged,
        });
        let mut knowledge = Knowledge::new(1);
        let mut handle = |frame| {
            let mut resources = Resources {
                knowledge: &mut knowledge,
                id_key: &IdKey::new([1; 32]),
                pool: &Pool::default(),
            };
            receiver.handle(frame, None, &mut PatchCodec, &mut resources)
        };
        for stream in (0..STREAMS).map(StreamId) {
            let label = b"";
            assert_eq!(handle(Frame::Open { stream, label }), Ok(()));
            let frames = (0..WINDOW / 2).map(order);
            let frames = frames.map(|(offset, is_plain)| byte(stream.0, offset, is_plain));
            let refused = frames.filter_map(|frame| handle(frame).err()).next();
            let expected = (!accepts_all).then_some(Violation::Pieces(stream));
            assert_eq!(refused, expected, "{name}");
        }
        // The allocator keeps freed memory for the next case, so the memory of all cases together is measured.
        let memory = resident_bytes() - before;
        let most = STREAMS * (WINDOW * 3 / 2 + (64 << 10));
        assert!(memory <= most, "{name}: {memory} bytes");
    }
}
