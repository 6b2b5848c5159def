//! Tests the memory of a receiver whose peer sends frames of one byte, and of idle peers. These tests have a process of
//! their own and run one after the other, because they measure the memory of the process.

#[expect(dead_code, reason = "the other tests use the rest")]
#[path = "machines/store.rs"]
mod store;
#[expect(dead_code, reason = "the other tests use the rest")]
mod support;

use std::sync::Mutex;

use edgeward_dedup::buffer::Pool;
use edgeward_dedup::chunker::ChunkerParams;
use edgeward_dedup::codec::{Method, Methods};
use edgeward_dedup::id::IdKey;
use edgeward_dedup::knowledge::Knowledge;
use edgeward_dedup::receiver::{Receiver, ReceiverConfig, Sharing, TakeResult};
use edgeward_dedup::sender::{Lane, Sender, SenderConfig};
use edgeward_dedup::wire::{Frame, Span, StreamId};
use edgeward_dedup::{Resources, Violation, reason};

use store::PatchCodec;

/// The number of streams, and the window of each stream in bytes: together 8 MiB.
const STREAMS: u64 = 128;
const WINDOW: u64 = 64 << 10;

/// Held by the test that measures.
static MEASURED: Mutex<()> = Mutex::new(());

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
    let _measured = MEASURED.lock().expect("no test panics");
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

/// Answers that the peer does not read take at most 8 MiB of memory before its connection is closed.
///
/// Method: frames that cause only NAKs, only acknowledgements, or an acknowledgement and a STOP. All receivers are
/// kept, so that none has the memory of another.
#[test]
fn answers_that_are_not_read_take_little_memory() {
    type Make = fn(StreamId) -> Frame<'static>;
    let kinds: [(&str, Make); 3] = [
        ("NAKs", |stream| Frame::Close {
            stream,
            length: 0,
            digest: 0,
        }),
        ("acknowledgements", |stream| Frame::Reset {
            stream,
            reason: reason::CANCELLED,
        }),
        ("STOPs", |stream| Frame::Open { stream, label: b"" }),
    ];
    let _measured = MEASURED.lock().expect("no test panics");
    let mut kept = Vec::new();
    for (name, frame) in kinds {
        let before = resident_bytes();
        let mut receiver = Receiver::new(ReceiverConfig::default());
        let mut handle = |frame| {
            let mut resources = Resources {
                knowledge: &mut Knowledge::new(1),
                id_key: &IdKey::new([1; 32]),
                pool: &Pool::default(),
            };
            receiver.handle(frame, None, &mut PatchCodec, &mut resources)
        };
        let mut refused = (0..1 << 20).filter_map(|number| handle(frame(StreamId(number))).err());
        assert!(
            matches!(refused.next(), Some(Violation::Flood(_))),
            "{name}"
        );
        let memory = resident_bytes().saturating_sub(before);
        eprintln!("{name}: {} KiB", memory >> 10);
        assert!(memory <= 8 << 20, "{name}: {memory} bytes");
        kept.push(receiver);
    }
}

/// A peer whose streams have ended takes little memory: a gateway has thousands of them.
///
/// Method: each sender compresses 64 KiB to 48 KiB. Its stream then ends by a reset or by a restart of the peer.
#[test]
fn streams_that_have_ended_leave_little_memory() {
    const PEERS: u64 = 2_000;
    let chunker = ChunkerParams::new(4096, 1).expect("the average is a power of two");
    let mut body = support::Random(1).noise(48 << 10);
    body.resize(64 << 10, 0);
    let _measured = MEASURED.lock().expect("no test panics");
    let before = resident_bytes();
    let peers = (0..PEERS).map(|peer| {
        let mut resources = Resources {
            knowledge: &mut Knowledge::new(1),
            id_key: &IdKey::new([1; 32]),
            pool: &Pool::default(),
        };
        let mut sender = Sender::new(SenderConfig::new(chunker, Methods::ALL));
        // `false`: the body is compressed, and its chunks are not looked up.
        let stream = sender.open(b"", false).expect("a stream is free");
        let written = sender.write(stream, &body, &mut resources);
        assert_eq!(written, Ok(body.len()));
        sender.flush(stream, &mut resources);
        let mut sent = Vec::new();
        while sender.transmit(Lane::Any, true, &mut PatchCodec, &mut resources, &mut sent) {}
        assert!((48 << 10..49 << 10).contains(&sent.len()), "{}", sent.len());
        if peer % 2 == 0 {
            sender.reset(stream, reason::CANCELLED);
        } else {
            sender.handle_restart();
        }
        let mut receiver = Receiver::new(ReceiverConfig::default());
        let reset = Frame::Reset {
            stream,
            reason: reason::CANCELLED,
        };
        for frame in [Frame::Open { stream, label: b"" }, reset] {
            let handled = receiver.handle(frame, None, &mut PatchCodec, &mut resources);
            assert_eq!(handled, Ok(()));
        }
        let end = receiver.take(stream);
        assert_eq!(end, TakeResult::Failed(reason::CANCELLED));
        (sender, receiver)
    });
    let peers: Vec<_> = peers.collect();
    let memory = resident_bytes().saturating_sub(before) / PEERS;
    assert!(memory <= 6 << 10, "{memory} bytes for each peer");
    drop(peers);
}
