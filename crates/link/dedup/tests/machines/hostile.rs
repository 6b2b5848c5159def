//! Tests how an endpoint handles frames that a correct peer does not send.

use edgeward_dedup::buffer::Pool;
use edgeward_dedup::codec::Method;
use edgeward_dedup::id::{BodyDigest, ChunkId, IdKey, sequence_check};
use edgeward_dedup::knowledge::Knowledge;
use edgeward_dedup::receiver::{Receiver, ReceiverConfig, ReceiverEvent, Sharing, TakeResult};
use edgeward_dedup::sender::Lane;
use edgeward_dedup::wire::{
    Frame, NakCause, Role, Run, Span, StreamAck, StreamId, StreamState, decode,
};
use edgeward_dedup::{Resources, Violation, reason};

use super::link::{Plan, World};
use super::store::{MemoryStore, PatchCodec};
use super::support::Random;

/// A receiver that gets its frames from the test.
struct TestReceiver {
    machine: Receiver,
    store: MemoryStore,
    knowledge: Knowledge,
    id_key: IdKey,
}

const STREAM: StreamId = StreamId(0);

impl TestReceiver {
    fn new(config: ReceiverConfig) -> Self {
        Self {
            machine: Receiver::new(config),
            store: MemoryStore::new(1, 32 << 10, 100),
            knowledge: Knowledge::new(100),
            id_key: IdKey::new([1; 32]),
        }
    }

    fn opened(config: ReceiverConfig) -> Self {
        let mut receiver = Self::new(config);
        assert_eq!(
            receiver.take(Frame::Open {
                stream: STREAM,
                label: b""
            }),
            Ok(())
        );
        receiver
    }

    fn take(&mut self, frame: Frame<'_>) -> Result<(), Violation> {
        let mut resources = Resources {
            knowledge: &mut self.knowledge,
            id_key: &self.id_key,
            pool: &Pool::default(),
        };
        let (machine, codec) = (&mut self.machine, &mut PatchCodec);
        machine.handle(frame, None, codec, &mut resources)?;
        while let Some((id, request)) = machine.request() {
            if let Some(answer) = self.store.answer(request, &self.id_key) {
                machine.complete(id, answer, codec, &mut resources)?;
            }
        }
        Ok(())
    }

    /// Calls `look` with each frame that the receiver has to send, and returns the results.
    fn answers<T>(&mut self, look: impl Fn(&Frame<'_>) -> T) -> Vec<T> {
        let mut answers = Vec::new();
        loop {
            let mut bytes = Vec::new();
            if !self.machine.transmit(&mut bytes) {
                return answers;
            }
            answers.push(look(&decode(&bytes).expect("the frame is valid")));
        }
    }

    fn naks(&mut self) -> Vec<NakCause> {
        let cause = |frame: &Frame<'_>| match frame {
            Frame::Nak { cause, .. } => Some(*cause),
            _ => None,
        };
        self.answers(cause).into_iter().flatten().collect()
    }
}

fn small_limits() -> ReceiverConfig {
    ReceiverConfig {
        streams_max: 4,
        credit: 1000,
        window_max: 1000,
        budget: 4000,
        sharing: Sharing::Exchanged,
    }
}

fn plain(offset: u64, payload: &[u8]) -> Frame<'_> {
    Frame::Plain {
        span: span(offset, payload.len()),
        method: Method::None,
        payload,
    }
}

fn span(offset: u64, length: usize) -> Span {
    let length = u32::try_from(length).expect("the length fits");
    Span {
        stream: STREAM,
        offset,
        length,
    }
}

/// Bytes are accepted exactly up to the credit, also if a piece arrives before earlier bytes of the body.
#[test]
fn credit_is_a_limit() {
    for offset in [0, 500] {
        let mut receiver = TestReceiver::opened(small_limits());
        let rest = vec![0; 1000 - offset];
        assert_eq!(receiver.take(plain(offset as u64, &rest)), Ok(()));
        let mut receiver = TestReceiver::opened(small_limits());
        let more = vec![0; 1001 - offset];
        let beyond = Violation::Credit {
            stream: STREAM,
            end: 1001,
            limit: 1000,
        };
        assert_eq!(receiver.take(plain(offset as u64, &more)), Err(beyond));
    }
}

/// Overlapping pieces could take more memory than the credit allows, so they violate the protocol.
#[test]
fn overlapping_pieces_do_not_fill_memory() {
    let mut receiver = TestReceiver::opened(small_limits());
    assert_eq!(receiver.take(plain(1, &[0; 400])), Ok(()));
    let taken = receiver.take(plain(2, &[0; 400]));
    assert_eq!(taken, Err(Violation::Overlap(STREAM)));
    // A repeated piece takes no additional memory.
    let mut receiver = TestReceiver::opened(small_limits());
    assert!((0..100).all(|_| receiver.take(plain(1, &[0; 400])).is_ok()));
}

/// A cut is the length of a chunk in a frame. Three frames are violations: a cut beyond the payload, a payload that
/// does not decompress, and an EPOCH frame, which no receiver handles.
#[test]
fn impossible_cuts_and_payloads_are_violations() {
    let literal = |cuts: Vec<u32>, method, length, payload: &'static [u8]| Frame::Literal {
        span: span(0, length),
        method,
        cuts,
        payload,
    };
    let mut receiver = TestReceiver::opened(small_limits());
    let longer = literal(vec![4], Method::None, 3, b"abc");
    assert_eq!(receiver.take(longer), Err(Violation::Cut(STREAM)));
    let mut receiver = TestReceiver::opened(small_limits());
    let packed = literal(vec![], Method::Zstd, 30, b"no codec made this");
    assert_eq!(receiver.take(packed), Err(Violation::Payload(STREAM)));
    let mut receiver = TestReceiver::opened(small_limits());
    assert_eq!(receiver.take(Frame::Epoch(1)), Err(Violation::Direction));
}

/// A reference to a chunk of another peer gets the same NAK as a reference to a missing chunk. With
/// [`Sharing::Everything`], the chunk is delivered.
#[test]
fn references_reveal_nothing_about_other_peers() {
    let others = [7; 900];
    for (sharing, delivered) in [(Sharing::Exchanged, false), (Sharing::Everything, true)] {
        let mut receiver = TestReceiver::opened(ReceiverConfig {
            sharing,
            ..small_limits()
        });
        let id = receiver.id_key.id(&others);
        receiver
            .store
            .insert(id, &others)
            .expect("the chunk is stored");
        let refer = |id| Frame::Ref {
            span: span(0, 900),
            skip: 0,
            ids: vec![id],
        };
        assert_eq!(receiver.take(refer(id)), Ok(()));
        let foreign_naks = receiver.naks();
        let taken = receiver.machine.take(STREAM);
        assert_eq!(
            taken == TakeResult::Bytes(others.to_vec().into()),
            delivered
        );
        if !delivered {
            assert_eq!(receiver.machine.counters().foreign, 1);
            assert_eq!(receiver.take(refer(ChunkId([9; 16]))), Ok(()));
            assert_eq!(receiver.naks(), foreign_naks);
            let run = Run {
                first: id,
                chunks: 1,
                check: sequence_check([&id]),
            };
            assert_eq!(
                receiver.take(Frame::RefRun {
                    span: span(0, 900),
                    run
                }),
                Ok(())
            );
            assert_eq!(receiver.naks(), foreign_naks);
        }
    }
}

/// A run that continues with a chunk of another peer gets the same NAK as a run that ends early.
///
/// Method: refer to a run of two chunks, of which the peer has sent the first. Then store the second one behind it, as
/// for another peer, and refer to the run again.
#[test]
fn runs_reveal_nothing_about_other_peers() {
    let (own, others) = ([5; 300], [7; 300]);
    let mut receiver = TestReceiver::opened(small_limits());
    let [own_id, other_id] = [own, others].map(|chunk| receiver.id_key.id(&chunk));
    let literal = Frame::Literal {
        span: span(0, 300),
        method: Method::None,
        cuts: vec![300],
        payload: &own,
    };
    assert_eq!(receiver.take(literal), Ok(()));
    let refer = || Frame::RefRun {
        span: span(300, 600),
        run: Run {
            first: own_id,
            chunks: 2,
            check: sequence_check([&own_id, &other_id]),
        },
    };
    assert_eq!(receiver.take(refer()), Ok(()));
    let naks = receiver.naks();
    assert_eq!(naks.len(), 1);
    assert_eq!(receiver.machine.counters().disordered, 1);
    receiver
        .store
        .insert(other_id, &others)
        .expect("the chunk is stored");
    assert_eq!(receiver.take(refer()), Ok(()));
    assert_eq!(receiver.machine.counters().foreign, 1);
    assert_eq!(receiver.naks(), naks);
}

/// A stream beyond the limit is stopped. The other streams continue.
#[test]
fn streams_are_bounded() {
    let mut receiver = TestReceiver::new(small_limits());
    for number in 0..5 {
        let stream = StreamId(number);
        assert_eq!(receiver.take(Frame::Open { stream, label: b"" }), Ok(()));
    }
    let stopped = receiver.answers(|frame| {
        matches!(
            frame,
            Frame::Stop {
                stream: StreamId(4),
                reason: reason::TOO_MANY
            }
        )
    });
    assert_eq!(stopped.iter().filter(|stopped| **stopped).count(), 1);
    assert_eq!(receiver.take(plain(0, b"continues")), Ok(()));
}

/// The receiver must remember each range of ended stream numbers. A peer that skips numbers so often that there are
/// more than 2 · `streams_max` + 16 ranges violates the protocol.
#[test]
fn many_skipped_stream_numbers_are_a_violation() {
    let mut receiver = TestReceiver::new(small_limits());
    let mut reset = |number| {
        let stream = StreamId(number);
        receiver.take(Frame::Reset { stream, reason: 0 })
    };
    let taken = (0..1000)
        .take_while(|number| reset(number * 2).is_ok())
        .count();
    assert_eq!(taken, 2 * 4 + 16);
    // Any number of consecutive streams is accepted.
    let mut receiver = TestReceiver::new(small_limits());
    let mut reset = |number| {
        let stream = StreamId(number);
        receiver.take(Frame::Reset { stream, reason: 0 })
    };
    assert!((0..10_000).all(|number| reset(number).is_ok()));
}

/// If all frames of a body arrive a second time, no stream is opened and no bytes are delivered. The answers
/// are the same as the first time.
#[test]
fn a_replayed_body_is_not_delivered_again() {
    let mut receiver = TestReceiver::new(small_limits());
    let mut digest = BodyDigest::default();
    digest.update(b"body");
    let frames = [
        Frame::Open {
            stream: STREAM,
            label: b"once",
        },
        plain(0, b"body"),
        Frame::Close {
            stream: STREAM,
            length: 4,
            digest: digest.value(),
        },
    ];
    let complete = |frame: &Frame<'_>| match frame {
        Frame::Ack(acks) => {
            acks[..]
                == [StreamAck {
                    stream: STREAM,
                    state: StreamState::Complete,
                    offset: 0,
                }]
        }
        _ => false,
    };
    frames
        .iter()
        .for_each(|frame| assert_eq!(receiver.take(frame.clone()), Ok(())));
    assert_eq!(
        receiver.machine.take(STREAM),
        TakeResult::Bytes(b"body"[..].into())
    );
    assert_eq!(receiver.machine.take(STREAM), TakeResult::Complete);
    assert!(receiver.answers(complete).contains(&true));
    while receiver.machine.event().is_some() {}
    for frame in frames {
        assert_eq!(receiver.take(frame), Ok(()));
        assert!(receiver.answers(complete).contains(&true));
    }
    assert_eq!(receiver.machine.event(), None::<ReceiverEvent>);
    assert_eq!(receiver.machine.take(STREAM), TakeResult::Unknown);
}

/// The first acknowledgement is for a byte that was not sent, the second one for a body that was not closed.
#[test]
fn an_acknowledgement_of_unsent_bytes_is_a_violation() {
    let mut world = World::new(Plan::without_faults(1));
    let end = &mut world.endpoints[0];
    let stream = end
        .endpoint
        .open(b"", true)
        .expect("a stream can be opened");
    for (state, offset) in [(StreamState::Open, 1), (StreamState::Complete, 0)] {
        let acks = Frame::Ack(vec![StreamAck {
            stream,
            state,
            offset,
        }]);
        let handled = end.handle(acks, None);
        assert_eq!(handled, Err(Violation::Acknowledged(stream)));
    }
}

/// The number of queued answers is limited. A peer that causes more of them without reading violates the protocol.
///
/// Method: frames that cause only NAKs, only acknowledgements, or an acknowledgement and a STOP.
#[test]
fn the_number_of_queued_answers_is_limited() {
    let close = |number| Frame::Close {
        stream: StreamId(number),
        length: 0,
        digest: 0,
    };
    let reset = |number| Frame::Reset {
        stream: StreamId(number),
        reason: 0,
    };
    let open = |number| Frame::Open {
        stream: StreamId(number),
        label: b"",
    };
    let frames: [fn(u64) -> Frame<'static>; 3] = [close, reset, open];
    for (nth, frame) in frames.into_iter().enumerate() {
        let mut receiver = TestReceiver::new(small_limits());
        let numbers = (0..100_000).take_while(|&number| receiver.take(frame(number)).is_ok());
        assert_eq!(numbers.count(), 1 << 16, "{nth}");
        let flood = Err(Violation::Flood(1 << 16));
        assert_eq!(receiver.take(frame(1 << 20)), flood, "{nth}");
        // A peer that reads the answers can continue.
        receiver.answers(|_| ());
        assert_eq!(receiver.take(frame(1 << 16)), Ok(()), "{nth}");
    }
}

/// Returns a well-formed frame with mostly invalid content. Its numbers are chosen from a few values, so that
/// several frames refer to the same stream and offset.
fn random_frame(random: &mut Random, chunks: &[ChunkId]) -> Vec<u8> {
    let stream_id = StreamId([0, 1, 2, 3, 4, 9, u64::MAX][random.below(7)]);
    let offsets = [0, 1, 100, 400, 900, 4096, 4500, (1 << 63) - 1];
    let offset = offsets[random.below(8)];
    let length = [1, 100, 300, 400, 900, 4096][random.below(6)];
    let span = Span {
        stream: stream_id,
        offset,
        length: length as u32,
    };
    let body = vec![random.below(3) as u8; length];
    let any = |random: &mut Random| chunks[random.below(chunks.len())];
    let cuts = |random: &mut Random| match random.below(3) {
        0 => vec![],
        1 => vec![[1, 100, 300, 900, 4096][random.below(5)]],
        _ => vec![
            1 + random.below(600) as u32,
            1 + random.below(length.max(2) - 1) as u32,
        ],
    };
    let number = [0, 1, 100, 400, 4096, 5000, u64::MAX][random.below(7)];
    let run = |random: &mut Random| {
        let first = any(random);
        let check = [sequence_check([&first]), 0][random.below(2)];
        Run {
            first,
            chunks: 1 + random.below(2) as u16,
            check,
        }
    };
    let mut bytes = Vec::new();
    match random.below(16) {
        0 | 1 => Frame::Open {
            stream: stream_id,
            label: b"x",
        },
        2 => Frame::Plain {
            span,
            method: Method::None,
            payload: &body,
        },
        3 | 4 => Frame::Literal {
            span,
            method: Method::None,
            cuts: cuts(random),
            payload: &body,
        },
        5 => Frame::Plain {
            span,
            method: Method::Zstd,
            payload: &body[..length - 1],
        },
        6 => Frame::Ref {
            span,
            skip: [0, 100][random.below(2)],
            ids: vec![any(random), any(random)],
        },
        7 => Frame::Ref {
            span,
            skip: 0,
            ids: vec![any(random)],
        },
        8 => Frame::RefRun {
            span,
            run: run(random),
        },
        9 => {
            let (base, payload) = (vec![any(random)], &body[..length - 1]);
            Frame::Delta {
                span,
                method: Method::Zstd,
                base,
                cuts: vec![],
                payload,
            }
        }
        10 => Frame::Close {
            stream: stream_id,
            length: number,
            digest: 0,
        },
        11 => Frame::Reset {
            stream: stream_id,
            reason: 9,
        },
        12 => Frame::Stop {
            stream: stream_id,
            reason: 9,
        },
        13 => {
            let state =
                [StreamState::Open, StreamState::Complete, StreamState::Ended][random.below(3)];
            Frame::Ack(vec![StreamAck {
                stream: stream_id,
                state,
                offset: number,
            }])
        }
        14 => {
            let cause = [NakCause::Missing, NakCause::Order, NakCause::Unopened][random.below(3)];
            Frame::Nak {
                stream: stream_id,
                offset: number,
                cause,
            }
        }
        _ => match random.below(3) {
            0 => Frame::Epoch(number),
            _ => Frame::Credit(vec![(stream_id, number)]),
        },
    }
    .encode(&mut bytes);
    bytes
}

/// For any sequence of frames, an endpoint does not panic and does not exceed its limits: 1 MiB of granted credit and
/// 256 KiB of unacknowledged bytes.
///
/// Method: pass hundreds of sequences of random frames to an endpoint with open bodies and stored chunks. After
/// a violation, a new connection begins. Arithmetic overflow would panic, because tests are compiled with
/// overflow checks.
#[test]
fn no_sequence_of_frames_breaks_an_endpoint() {
    let (mut violations, mut handled) = (0, 0);
    for seed in 0..super::runs(2) {
        let mut random = Random(seed);
        let mut world = World::new(Plan::without_faults(seed));
        let [end, other] = &mut world.endpoints;
        let hellos = [end.endpoint.hello(), other.endpoint.hello()];
        let chunks: Vec<_> = [100, 300, 400, 900]
            .map(|bytes| vec![1; bytes])
            .into_iter()
            .collect();
        let ids: Vec<_> = chunks
            .iter()
            .map(|chunk| IdKey::new([3; 32]).id(chunk))
            .collect();
        for (id, chunk) in ids.iter().zip(&chunks) {
            end.store.insert(*id, chunk).expect("the chunk is stored");
        }
        for step in 0..120 {
            match random.below(12) {
                0 => _ = end.endpoint.open(b"y", true),
                1 => {
                    let text = random.text(9000);
                    let stream_id = StreamId(random.below(4) as u64);
                    _ = end.write(stream_id, &text);
                    if random.below(2) == 0 {
                        end.flush(stream_id);
                    }
                }
                2 => {
                    _ = end.close(StreamId(random.below(4) as u64));
                }
                3 => end.endpoint.reset(StreamId(random.below(4) as u64), 1),
                4 => end.endpoint.stop(StreamId(random.below(4) as u64), 1),
                5 => _ = end.endpoint.take(StreamId(random.below(4) as u64)),
                6 => {
                    let mut out = Vec::new();
                    while end.transmit(Lane::Any, true, &mut out) {}
                }
                _ => {
                    let bytes = random_frame(&mut random, &ids);
                    let Ok(frame) = decode(&bytes) else { continue };
                    handled += 1;
                    if end.handle(frame, None).is_err() {
                        violations += 1;
                        let connected =
                            end.endpoint
                                .handle_hello(Role::Connector, &hellos[0], &hellos[1]);
                        connected.expect("the handshake succeeded before");
                    }
                }
            }
            assert!(
                end.endpoint.receiver().granted() <= 1 << 20,
                "seed {seed}, step {step}"
            );
            assert!(
                end.endpoint.sender().unacked() <= 256 << 10,
                "seed {seed}, step {step}"
            );
        }
    }
    assert!(
        handled > 5 * violations && violations > 100,
        "{violations} of {handled}"
    );
}

/// A request of an endpoint that was restarted has another identity than all requests before. A store that is slow may
/// answer a request from before the restart, and this answer must not become that of a new request.
#[test]
fn requests_after_a_restart_have_new_numbers() {
    let mut world = World::new(Plan::without_faults(1));
    let endpoint = &mut world.endpoints[0].endpoint;
    let mut identities = Vec::new();
    for _ in 0..3 {
        let open = Frame::Open {
            stream: STREAM,
            label: b"",
        };
        let refer = Frame::Ref {
            span: span(0, 900),
            skip: 0,
            ids: vec![IdKey::new([1; 32]).id(b"a chunk")],
        };
        for frame in [open, refer] {
            assert_eq!(endpoint.handle(frame, None, &mut PatchCodec), Ok(()));
        }
        let (identity, _) = endpoint.request().expect("the chunk is looked up");
        assert!(!identities.contains(&identity), "{identities:?}");
        identities.push(identity);
        endpoint.restart();
    }
}
