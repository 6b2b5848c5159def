//! Tests of two cores with a simulated network between them, in virtual time: which frames are sent, and when.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use edgeward_chunk_store::{ChunkSettings, Chunks, ScratchDevice};
use edgeward_dedup::endpoint::Endpoint;
use edgeward_dedup::id::IdKey;
use edgeward_dedup::receiver::Sharing;
use edgeward_dedup::wire::{FrameSink as _, Role, decode, frame_length};

use edgeward_types::mix64;

use super::{Core, CoreConfig, LineId, Read, TalkId, Written};
use crate::config::{Encryption, LinkConfig};
use crate::hold::HOLD_ANSWERS;
use crate::label::Target;
use crate::outbox::Outbox;
use crate::turn::Turn;

/// One way; a round trip takes 80 ms. Bandwidth is unlimited.
const DELAY: Duration = Duration::from_millis(40);

const EDGE: usize = 0;
const GATEWAY: usize = 1;

struct World {
    cores: [Core; 2],
    lines: [LineId; 2],
    /// Time of arrival, receiving side, and bytes.
    under_way: VecDeque<(Instant, usize, Vec<u8>)>,
    now: Instant,
    due: [Option<Instant>; 2],
    /// Bytes of frames that each side has sent.
    sent: [u64; 2],
}

impl World {
    fn new(change: impl Fn(&mut LinkConfig)) -> Self {
        let mut cores = [1, 2].map(|number| {
            let device = ScratchDevice::new(&std::env::temp_dir(), 64 << 20).expect("a file");
            let store = Chunks::open(Arc::new(device), ChunkSettings::new(8 << 10, number));
            let store = store.expect("a store");
            let mut config = LinkConfig::new(Encryption::Off, IdKey::new([3; 32]), store.clone());
            change(&mut config);
            let endpoint = config.endpoint(Sharing::Exchanged, true, number);
            let accepts = number == 2;
            let core = CoreConfig {
                accepts,
                dedup: true,
                probe: true,
                unacked_max: config.unacked_bytes_max,
            };
            Core::new(core, Endpoint::new(endpoint.expect("possible")), store)
        });
        let hellos = cores.each_mut().map(Core::hello);
        let [edge, gateway] = &mut cores;
        let lines = [
            edge.line_up(Role::Connector, &hellos[EDGE], &hellos[GATEWAY]),
            gateway.line_up(Role::Listener, &hellos[GATEWAY], &hellos[EDGE]),
        ];
        Self {
            cores,
            lines: lines.map(|line| line.expect("they agree")),
            under_way: VecDeque::new(),
            now: Instant::now(),
            due: [None; 2],
            sent: [0; 2],
        }
    }

    /// Opens a stream at the edge and accepts it at the gateway. Returns both endpoints' ids.
    fn converse(&mut self) -> [TalkId; 2] {
        let ours = self.cores[EDGE]
            .open(Target::Origin)
            .expect("there is room");
        let theirs = loop {
            self.step(None);
            if let Some((talk, _)) = self.cores[GATEWAY].accept(Waker::noop()) {
                break talk;
            }
        };
        self.cores[GATEWAY].answer(theirs).expect("it is awaited");
        [ours, theirs]
    }

    /// Sends all ready frames. Then advances the time to the next event, or to `other` if that is earlier, and
    /// handles it.
    fn step(&mut self, other: Option<Instant>) {
        for side in [EDGE, GATEWAY] {
            loop {
                let mut outbox = Outbox::default();
                let core = &mut self.cores[side];
                let filled = core.fill(
                    self.lines[side],
                    false,
                    self.now,
                    Waker::noop(),
                    &mut outbox,
                    &mut Turn::default(),
                );
                self.due[side] = filled.expect("the line is up");
                drop(core.due_wakers());
                let mut slices = [IoSlice::new(&[]); 64];
                let count = outbox.slices(&mut slices);
                let out: Vec<u8> = slices[..count]
                    .iter()
                    .flat_map(|slice| slice.to_vec())
                    .collect();
                assert_eq!(out.len(), outbox.bytes());
                if out.is_empty() {
                    break;
                }
                self.sent[side] += out.len() as u64;
                self.under_way.push_back((self.now + DELAY, 1 - side, out));
            }
        }
        let arrival = self.under_way.front().map(|(at, ..)| *at);
        let due = self.due.into_iter().flatten();
        let next = due.chain(arrival).chain(other).min();
        self.now = next.expect("something happens").max(self.now);
        while let Some((_, side, bytes)) = self.under_way.pop_front_if(|(at, ..)| *at <= self.now) {
            let mut rest = &bytes[..];
            while let Some(length) = frame_length(rest).expect("a frame") {
                let (frame, others) = rest.split_at(length);
                let frame = decode(frame).expect("a frame");
                let handled = self.cores[side].handle(
                    self.lines[side],
                    frame,
                    None,
                    length,
                    u32::MAX,
                    &mut Turn::default(),
                );
                let wanted = handled.expect("the line is up").expect("no violation");
                assert!(
                    wanted.is_none(),
                    "a read is pending although reads may block"
                );
                rest = others;
            }
        }
    }

    /// The gateway sends a body with a `pause` between its parts. Returns the bytes of frames and the time until
    /// the edge has all of it.
    fn send(&mut self, body: &[u8], part_bytes: usize, pause: Duration) -> (u64, Duration) {
        let [reader, writer] = self.converse();
        let (sent, begun) = (self.sent[GATEWAY], self.now);
        let (mut written, mut read, mut next) = (0, 0, self.now);
        let mut closed = false;
        while read < body.len() || !closed {
            if next <= self.now && written < body.len() {
                let end = body.len().min(written + part_bytes);
                let part = &body[written..end];
                match self.cores[GATEWAY].write(
                    writer,
                    part,
                    self.now,
                    Waker::noop(),
                    &mut Turn::default(),
                ) {
                    Written::Bytes(bytes) => {
                        written += bytes;
                        next = self.now + pause;
                        if pause.is_zero() {
                            continue;
                        }
                    }
                    Written::Full => {}
                    Written::Ended(reason) => panic!("ended: {reason}"),
                }
            }
            if written == body.len() && !closed {
                self.cores[GATEWAY].close(writer).expect("it is open");
                closed = true;
            }
            while let Read::Bytes(bytes) = self.cores[EDGE].read(reader, Waker::noop()) {
                assert!(body[read..].starts_with(&bytes), "at {read}");
                read += bytes.len();
            }
            let writes = written < body.len() && next > self.now;
            self.step(writes.then_some(next));
        }
        (self.sent[GATEWAY] - sent, self.now - begun)
    }
}

fn noise(bytes: usize) -> Vec<u8> {
    (1..=bytes as u64 / 8)
        .flat_map(|n| mix64(n).to_le_bytes())
        .collect()
}

/// A body whose chunks are all known costs only references, however often its writer waits for credit: incomplete
/// chunks are not sent.
#[test]
fn a_writer_out_of_credit_sends_no_half_chunks() {
    let mut world = World::new(|config| {
        // The writer of 4 MiB waits several times.
        config.receive_bytes_max = 1 << 20;
        config.streams_max = 16;
    });
    let body = noise(4 << 20);
    let (first, _) = world.send(&body, 64 << 10, Duration::ZERO);
    assert!(first as usize > body.len());
    let (again, took) = world.send(&body, 64 << 10, Duration::ZERO);
    assert!(took > DELAY * 10, "it never waited: {took:?}");
    // 16 bytes for each chunk of 9 KB, and a frame for each window.
    assert!(again < 20_000, "{again} bytes the second time");
}

/// An incomplete chunk is sent once no frame is under way. Its writer may be waiting for an answer, or for credit
/// that the reader grants only after reading the chunk.
#[test]
fn what_fills_the_window_arrives() {
    let mut world = World::new(|config| {
        // Less than the maximum length of a chunk.
        config.receive_bytes_max = 256 << 10;
        config.streams_max = 16;
    });
    // The chunker finds no cut before 64 KiB.
    let body = vec![7; 300_000];
    for _ in 0..2 {
        world.send(&body, 64 << 10, Duration::ZERO);
    }
}

/// A small request is acknowledged together with its response, or a millisecond later. A large body is acknowledged
/// without delay.
///
/// Method: the edge sends a request; the test then asks the gateway's core at several times how many bytes it would
/// send.
#[test]
fn an_answer_takes_the_acknowledgement_along() {
    let mut world = World::new(|_| {});
    let [ours, theirs] = world.converse();
    world.step(Some(world.now + DELAY * 4));
    world.step(Some(world.now + DELAY * 4));
    let ask = |world: &mut World, bytes: usize| {
        let question = vec![7; bytes];
        let now = world.now;
        let edge = &mut world.cores[EDGE];
        let written = edge.write(ours, &question, now, Waker::noop(), &mut Turn::default());
        assert_eq!(written, Written::Bytes(bytes));
        edge.flush(ours);
        let mut read = 0;
        while read < bytes {
            world.step(None);
            while let Read::Bytes(more) = world.cores[GATEWAY].read(theirs, Waker::noop()) {
                read += more.len();
            }
        }
    };
    let leaves = |world: &mut World, after: Duration| {
        let mut outbox = Outbox::default();
        let (line, now) = (world.lines[GATEWAY], world.now + after);
        let core = &mut world.cores[GATEWAY];
        let turn = &mut Turn::default();
        let due = core.fill(line, false, now, Waker::noop(), &mut outbox, turn);
        (outbox.bytes(), due.expect("the line is up"))
    };
    ask(&mut world, 200);
    let (bytes, due) = leaves(&mut world, Duration::ZERO);
    assert_eq!((bytes, due), (0, Some(world.now + HOLD_ANSWERS)));
    let answered = world.cores[GATEWAY].write(
        theirs,
        &[8; 100],
        world.now,
        Waker::noop(),
        &mut Turn::default(),
    );
    assert_eq!(answered, Written::Bytes(100));
    world.cores[GATEWAY].flush(theirs);
    let (both, due) = leaves(&mut world, Duration::from_micros(300));
    assert_eq!(due, None, "nothing waits any more");

    ask(&mut world, 200);
    assert_eq!(leaves(&mut world, Duration::ZERO).0, 0);
    assert_eq!(leaves(&mut world, HOLD_ANSWERS / 2).0, 0);
    let (alone, _) = leaves(&mut world, HOLD_ANSWERS);
    assert!(alone > 0 && both > alone + 100, "{alone}, {both}");

    // A frame of a longer body waits as well: each acknowledgement wakes its sender.
    ask(&mut world, 120_000);
    assert_eq!(leaves(&mut world, HOLD_ANSWERS / 2).0, 0);
    assert!(leaves(&mut world, HOLD_ANSWERS).0 > 0);

    // More than a MiB does not wait. The test starts with new cores, because the frames taken from the gateway
    // above were never delivered.
    let mut world = World::new(|_| {});
    let [ours, theirs] = world.converse();
    let (body, mut written, mut heard) = (noise(4 << 20), 0, 0);
    while heard < 2 << 20 {
        let now = world.now;
        let edge = &mut world.cores[EDGE];
        if let Written::Bytes(more) = edge.write(
            ours,
            &body[written..],
            now,
            Waker::noop(),
            &mut Turn::default(),
        ) {
            written += more;
        }
        world.step(None);
        while let Read::Bytes(_) = world.cores[GATEWAY].read(theirs, Waker::noop()) {}
        let unacked = world.cores[EDGE].endpoint().sender().unacked();
        heard = written - unacked;
    }
}
