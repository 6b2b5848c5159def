//! Two endpoints and a link between them in virtual time, with injected faults.
//!
//! A tick is about a hundredth of a round trip: the link delays frames by [`DELAY`] ticks in each direction.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use edgeward_dedup::Violation;
use edgeward_dedup::buffer::Pool;
use edgeward_dedup::chunker::ChunkerParams;
use edgeward_dedup::codec::Methods;
use edgeward_dedup::endpoint::{Endpoint, EndpointConfig, Event};
use edgeward_dedup::fingerprint::FingerprintKey;
use edgeward_dedup::id::IdKey;
use edgeward_dedup::reason;
use edgeward_dedup::receiver::{ReceiverConfig, ReceiverEvent, Sharing, TakeResult};
use edgeward_dedup::sender::{Lane, SendError, SenderConfig, SenderEvent};
use edgeward_dedup::store::{Request, RequestId};
use edgeward_dedup::wire::{Frame, Role, StreamId, decode, frame_length};

use super::store::{MemoryStore, PatchCodec};
use super::support::Random;

/// The delay in ticks from one endpoint to the other.
pub(crate) const DELAY: u64 = 50;

/// The largest piece of references in a test. The bytes of one such piece may exceed the limit of unacknowledged bytes.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

/// The settings of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// The number of bits of chunk hashes: 128, or few to make hashes collide.
    pub(crate) id_bits: u32,
    /// True if repeated chunks are recognised by fingerprints.
    pub(crate) fingerprints: bool,
    pub(crate) receiver: ReceiverConfig,
    /// The settings of the same names of [`SenderConfig`]; `unacked_max` is in bytes.
    pub(crate) unacked_max: usize,
    pub(crate) delta: bool,
    /// True if the sender stores the bytes of all new chunks, because the peer may send them back.
    pub(crate) keep_sent: bool,
    /// The number of containers of 32 KiB in each store.
    pub(crate) containers_max: usize,
    /// The maximum lengths of a write in bytes. Each write uses one of them, with equal probability.
    pub(crate) write_bytes_max: [usize; 3],
    /// A body that is being sent is flushed in one tick out of this many, on average; 0 for never.
    pub(crate) flush: usize,
    pub(crate) faults: Faults,
}

/// The frequency of faults. A number n means one fault in n frames, ticks or lookups on average; 0 means no faults.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// One frame in this many is delayed, so that later frames overtake it.
    pub(crate) reorder: usize,
    /// One frame in this many is delivered twice.
    pub(crate) duplicate: usize,
    /// One frame in this many has a flipped bit. The endpoint that detects this closes the connection.
    pub(crate) flip: usize,
    /// In one tick in this many, the connection breaks and its frames are lost.
    pub(crate) reset: usize,
    /// In one tick in this many, one of two connections breaks: half of the frames are lost, and each endpoint notices
    /// it after 0 to 60 ticks. Half of the frames that it sends until then are lost, too.
    pub(crate) half_reset: usize,
    /// In one tick in this many, a store is damaged in one of five ways.
    pub(crate) damage: usize,
    /// In one tick in this many, an endpoint restarts. Its store survives; its memory is lost.
    pub(crate) kill: usize,
    /// One request to a store in this many is performed late, after 1 to 60 ticks.
    pub(crate) slow: usize,
}

/// A frame that is on the link.
struct FrameInTransit {
    /// The tick in which the receiver handles the frame.
    at: u64,
    /// The order of frames that arrive in the same tick.
    sequence: u64,
    bytes: Vec<u8>,
}

impl Plan {
    pub(crate) fn without_faults(seed: u64) -> Self {
        Self {
            seed,
            id_bits: 128,
            fingerprints: true,
            receiver: ReceiverConfig {
                streams_max: 16,
                credit: 32 << 10,
                window_max: 256 << 10,
                budget: 1 << 20,
                sharing: Sharing::Exchanged,
            },
            unacked_max: 256 << 10,
            delta: true,
            keep_sent: true,
            containers_max: 1000,
            write_bytes_max: [100, 5000, 60_000],
            flush: 8,
            faults: Faults::default(),
        }
    }
}

/// An endpoint, its store, and the users of its streams.
pub(crate) struct TestEndpoint {
    pub(crate) endpoint: Endpoint,
    pub(crate) store: MemoryStore,
    id_key: IdKey,
    /// The requests that the store performs late, with their ticks.
    late: Vec<(u64, RequestId, Request)>,
    /// The number of requests that were performed late.
    pub(crate) late_requests: u64,
    /// One request in this many is performed late; 0 for none.
    slow: usize,
    now: u64,
    random: Random,
    /// For each stream that is being sent: the number of its body, and the bytes written, plus one after the close.
    sending: BTreeMap<StreamId, (usize, usize)>,
    /// The numbers of the bodies to send. The boolean is true if the body is deduplicated.
    waiting: VecDeque<(usize, bool)>,
    /// For each stream that is being received: the number of its body, and the bytes received.
    receiving: BTreeMap<StreamId, (usize, Vec<u8>)>,
    /// The numbers of the bodies that were received completely and correctly.
    pub(crate) arrived: Vec<usize>,
    /// The reasons for which bodies of this endpoint were stopped.
    pub(crate) refused: Vec<u32>,
}

impl TestEndpoint {
    /// Performs the requests to the store, except those that are late. Returns true if there was one.
    fn serve(&mut self) -> Result<bool, Violation> {
        let mut has_served = false;
        while let Some((id, request)) = self.endpoint.request() {
            if self.slow > 0 && self.random.below(self.slow) == 0 {
                let at = self.now + 1 + self.random.below(60) as u64;
                self.late.push((at, id, request));
                self.late_requests += 1;
            } else {
                self.perform(id, request)?;
                has_served = true;
            }
        }
        Ok(has_served)
    }

    fn perform(&mut self, id: RequestId, request: Request) -> Result<(), Violation> {
        match self.store.answer(request, &self.id_key) {
            Some(answer) => self
                .endpoint
                .complete(id, answer, &mut PatchCodec)
                .map(|_| ()),
            None => Ok(()),
        }
    }

    /// Performs the late requests whose time has come.
    fn serve_late(&mut self) {
        let (due, later) = std::mem::take(&mut self.late)
            .into_iter()
            .partition(|(at, ..)| *at <= self.now);
        self.late = later;
        let due: Vec<_> = due;
        for (_, id, request) in due {
            self.perform(id, request).expect("the peer is correct");
            self.serve().expect("the peer is correct");
        }
    }

    pub(crate) fn handle(
        &mut self,
        frame: Frame<'_>,
        memory: Option<&Bytes>,
    ) -> Result<(), Violation> {
        self.endpoint.handle(frame, memory, &mut PatchCodec)?;
        self.serve().map(|_| ())
    }

    pub(crate) fn write(&mut self, stream: StreamId, bytes: &[u8]) -> Result<usize, SendError> {
        let written = self.endpoint.write(stream, bytes);
        self.serve().expect("the peer is correct");
        written
    }

    pub(crate) fn flush(&mut self, stream: StreamId) {
        self.endpoint.flush(stream);
        self.serve().expect("the peer is correct");
    }

    pub(crate) fn flush_whole(&mut self, stream: StreamId) {
        self.endpoint.flush_whole(stream);
        self.serve().expect("the peer is correct");
    }

    pub(crate) fn close(&mut self, stream: StreamId) -> Result<(), SendError> {
        let closed = self.endpoint.close(stream);
        self.serve().expect("the peer is correct");
        closed
    }

    pub(crate) fn transmit(&mut self, lane: Lane, link_busy: bool, out: &mut Vec<u8>) -> bool {
        loop {
            let codec = &mut PatchCodec;
            if self.endpoint.transmit(lane, link_busy, codec, out) {
                return true;
            }
            if !self.serve().expect("the peer is correct") {
                return false;
            }
        }
    }
}

/// Two endpoints, the link between them, and the bodies that they send.
pub(crate) struct World {
    plan: Plan,
    pub(crate) random: Random,
    pub(crate) endpoints: [TestEndpoint; 2],
    pub(crate) bodies: Vec<Vec<u8>>,
    /// The frames on their way to each endpoint.
    links: [Vec<FrameInTransit>; 2],
    /// For each endpoint: the tick in which it will notice the loss of a connection.
    losses: [Option<u64>; 2],
    /// The current time in ticks.
    pub(crate) now: u64,
    sequence: u64,
    /// Each restarted endpoint adds 1 and uses the sum as its session.
    sessions: u64,
    pub(crate) faults: u64,
    pub(crate) wire_bytes: u64,
}

impl World {
    pub(crate) fn new(plan: Plan) -> Self {
        let mut world = Self {
            random: Random(plan.seed),
            endpoints: [0, 1].map(|side| TestEndpoint {
                endpoint: endpoint(&plan, side),
                store: MemoryStore::new(100 + side, 32 << 10, plan.containers_max),
                id_key: id_key(&plan),
                late: Vec::new(),
                late_requests: 0,
                slow: 0,
                now: 0,
                random: Random(plan.seed ^ side),
                sending: BTreeMap::new(),
                waiting: VecDeque::new(),
                receiving: BTreeMap::new(),
                arrived: Vec::new(),
                refused: Vec::new(),
            }),
            plan,
            bodies: Vec::new(),
            links: [Vec::new(), Vec::new()],
            losses: [None; 2],
            now: 0,
            sequence: 0,
            sessions: 2,
            faults: 0,
            wire_bytes: 0,
        };
        world.connect();
        world
    }

    /// Adds a body to be sent by the endpoint with the index `side`, 0 or 1. Returns the body's number.
    pub(crate) fn send(&mut self, side: usize, body: Vec<u8>) -> usize {
        self.bodies.push(body);
        self.endpoints[side]
            .waiting
            .push_back((self.bodies.len() - 1, true));
        self.bodies.len() - 1
    }

    /// Runs until every body is acknowledged and returns the number of ticks.
    pub(crate) fn run(&mut self) -> u64 {
        let start = self.now;
        while self
            .endpoints
            .iter()
            .any(|end| !(end.sending.is_empty() && end.waiting.is_empty()))
        {
            self.tick();
            // Some plans would never end with faults. After 8000 ticks there are no faults, and all bodies must arrive.
            assert!(
                self.now - start < 40_000,
                "seed {:#x}: the run does not end",
                self.plan.seed
            );
            if self.now - start > 8000 {
                self.plan.faults = Faults::default();
            }
        }
        self.now - start
    }

    pub(crate) fn tick(&mut self) {
        self.now += 1;
        for side in [0, 1] {
            let end = &mut self.endpoints[side];
            (end.now, end.slow) = (self.now, self.plan.faults.slow);
            end.endpoint.set_own_epoch(end.store.epoch());
            end.serve_late();
            if self.losses[side].is_some_and(|at| at <= self.now) {
                self.losses[side] = None;
                self.endpoints[side].endpoint.handle_connection_loss();
            }
            self.receive(side);
            self.use_streams(side);
            self.transmit(side);
        }
        let faults = self.plan.faults;
        if self.draw_fault(faults.reset) {
            self.connect();
        }
        if self.losses == [None; 2] && self.draw_fault(faults.half_reset) {
            for side in [0, 1] {
                self.losses[side] = Some(self.now + 1 + self.random.below(60) as u64);
                self.links[side].retain(|_| self.random.below(2) == 0);
            }
        }
        if self.draw_fault(faults.damage) {
            let side = self.random.below(2);
            self.damage(side);
        }
        if self.draw_fault(faults.kill) {
            let side = self.random.below(2);
            self.kill(side);
        }
    }

    fn draw_fault(&mut self, one_in: usize) -> bool {
        let is_fault = one_in > 0 && self.random.below(one_in) == 0;
        self.faults += u64::from(is_fault);
        is_fault
    }

    /// Replaces the connection: all frames on it are lost.
    pub(crate) fn connect(&mut self) {
        self.links = [Vec::new(), Vec::new()];
        self.losses = [None; 2];
        let [one, other] = &mut self.endpoints;
        let hellos = [one, other].map(|end| {
            end.endpoint.set_own_epoch(end.store.epoch());
            end.endpoint.hello()
        });
        let [one, other] = &mut self.endpoints;
        one.endpoint
            .handle_hello(Role::Connector, &hellos[0], &hellos[1])
            .expect("the handshake succeeds");
        other
            .endpoint
            .handle_hello(Role::Listener, &hellos[1], &hellos[0])
            .expect("the handshake succeeds");
    }

    fn damage(&mut self, side: usize) {
        let (kind, at) = (self.random.below(5), self.random.below(1 << 20));
        let store = &mut self.endpoints[side].store;
        match kind {
            0 => store.erase(),
            1 => store.truncate(1 + at % 3),
            2 => store.flip(at),
            3 => store.evict_oldest(),
            _ => store.shuffle(),
        }
    }

    fn kill(&mut self, side: usize) {
        self.sessions += 1;
        let end = &mut self.endpoints[side];
        end.endpoint = endpoint(&self.plan, self.sessions);
        let lost = std::mem::take(&mut end.sending).into_values();
        end.waiting.extend(lost.map(|(body, _)| (body, true)));
        end.receiving.clear();
        end.late.clear();
        self.connect();
    }

    fn receive(&mut self, side: usize) {
        let now = self.now;
        let link = std::mem::take(&mut self.links[side]);
        let (mut due, later): (Vec<_>, Vec<_>) =
            link.into_iter().partition(|frame| frame.at <= now);
        self.links[side] = later;
        due.sort_unstable_by_key(|frame| (frame.at, frame.sequence));
        for FrameInTransit { bytes, .. } in due {
            let end = &mut self.endpoints[side];
            // For half of the frames, the receiver may keep the buffer of the frame.
            let bytes = Bytes::from(bytes);
            let shared_buffer = (self.random.below(2) == 0).then_some(&bytes);
            let frame = match frame_length(&bytes) {
                Ok(Some(length)) if length == bytes.len() => decode(&bytes).ok(),
                _ => None,
            };
            // A corrupt frame closes the connection. A violation is an error of the endpoints and fails the test.
            let Some(frame) = frame else {
                self.connect();
                return;
            };
            end.handle(frame, shared_buffer)
                .unwrap_or_else(|violation| panic!("seed {:#x}: {violation}", self.plan.seed));
        }
    }

    fn transmit(&mut self, side: usize) {
        let mut bytes_left = 100_000_usize;
        while bytes_left > 0 {
            let mut bytes = Vec::new();
            let end = &mut self.endpoints[side];
            let link_busy = self.random.below(3) > 0;
            // Act as one connection for all frames (`Any`, twice because the array has two elements), or as one
            // connection for short and one for long frames. The first lane with a frame to send sends it.
            let lanes = [[Lane::Any, Lane::Any], [Lane::Short, Lane::Long]][self.random.below(2)];
            let sent = lanes
                .into_iter()
                .any(|lane| end.transmit(lane, link_busy, &mut bytes));
            if !sent {
                return;
            }
            bytes_left = bytes_left.saturating_sub(bytes.len());
            self.wire_bytes += bytes.len() as u64;
            let faults = self.plan.faults;
            if self.draw_fault(faults.duplicate) {
                let extra_delay = 1 + self.random.below(200) as u64;
                self.put_on_link(1 - side, DELAY + extra_delay, bytes.clone());
            }
            if self.draw_fault(faults.flip) {
                let at = self.random.below(bytes.len());
                bytes[at] ^= 1 << self.random.below(8);
            }
            let extra_delay = if self.draw_fault(faults.reorder) {
                1 + self.random.below(40) as u64
            } else {
                0
            };
            self.put_on_link(1 - side, DELAY + extra_delay, bytes);
        }
    }

    fn put_on_link(&mut self, side: usize, delay: u64, bytes: Vec<u8>) {
        if self.losses[1 - side].is_some() && self.random.below(2) == 0 {
            return;
        }
        self.sequence += 1;
        self.links[side].push(FrameInTransit {
            at: self.now + delay,
            sequence: self.sequence,
            bytes,
        });
    }

    /// Acts for the users of the streams: opens streams, writes bodies and reads them.
    fn use_streams(&mut self, side: usize) {
        let end = &mut self.endpoints[side];
        while let Some(event) = end.endpoint.event() {
            match event {
                Event::Sent(SenderEvent::Complete(stream)) => _ = end.sending.remove(&stream),
                Event::Sent(SenderEvent::Stopped { stream, reason }) => {
                    if let Some((body, _)) = end.sending.remove(&stream) {
                        end.refused.push(reason);
                        // After a wrong digest, the body is sent again without deduplication.
                        end.waiting.push_back((body, reason != reason::DIGEST));
                    }
                }
                Event::Received(ReceiverEvent::Opened { stream, label }) => {
                    let number = usize::from(u16::from_le_bytes([label[0], label[1]]));
                    end.receiving.insert(stream, (number, Vec::new()));
                }
                Event::Received(ReceiverEvent::Ready(_)) => {}
            }
        }
        while let Some(&(body, dedup)) = end.waiting.front() {
            let label = u16::try_from(body)
                .expect("there are few bodies")
                .to_le_bytes();
            let Ok(stream) = end.endpoint.open(&label, dedup) else {
                break;
            };
            end.waiting.pop_front();
            end.sending.insert(stream, (body, 0));
        }
        let streams: Vec<_> = end
            .sending
            .iter()
            .map(|(&stream, sent)| (stream, *sent))
            .collect();
        for (stream, (body, mut written)) in streams {
            let body = &self.bodies[body];
            if written > body.len() {
                continue;
            }
            let bytes_max = self.plan.write_bytes_max[self.random.below(3)];
            let wanted = 1 + self.random.below(bytes_max);
            let piece = &body[written..body.len().min(written + wanted)];
            // The user calls either `write`, or `spare` and `filled`. The stream may have ended in this tick: its body
            // cannot be sent again if the store has lost it. The user then gets an event in the next tick.
            let result = if self.random.below(2) == 0 {
                end.write(stream, piece)
            } else {
                let spare = end.endpoint.spare(stream);
                let bytes = spare.map(|spare| {
                    let spare = spare.unwrap_or_default();
                    let bytes = piece.len().min(spare.len());
                    spare[..bytes].copy_from_slice(&piece[..bytes]);
                    bytes
                });
                end.endpoint.filled(stream, bytes.unwrap_or(0));
                end.serve().expect("the peer is correct");
                bytes
            };
            let Ok(bytes) = result else {
                continue;
            };
            written += bytes;
            // `flush` sends all written bytes. `flush_whole` sends complete chunks; a partial chunk waits.
            if self.plan.flush > 0 && self.random.below(self.plan.flush) == 0 {
                end.flush(stream);
            } else if self.plan.flush > 0 && self.random.below(self.plan.flush) == 0 {
                end.flush_whole(stream);
            }
            if written == body.len() {
                _ = end.close(stream);
                written += 1;
            }
            if let Some(sent) = end.sending.get_mut(&stream) {
                sent.1 = written;
            }
        }
        let streams: Vec<_> = end.receiving.keys().copied().collect();
        for stream in streams {
            // The user reads at most three times per tick, so some bytes wait.
            for _ in 0..self.random.below(4) {
                match end.endpoint.take(stream) {
                    TakeResult::Bytes(bytes) => {
                        let (_, body) = end
                            .receiving
                            .get_mut(&stream)
                            .expect("the stream was opened");
                        body.extend_from_slice(&bytes);
                    }
                    TakeResult::Wait => break,
                    TakeResult::Complete => {
                        let (number, body) = end
                            .receiving
                            .remove(&stream)
                            .expect("the stream was opened");
                        // This is the main property: the received body equals the sent body.
                        assert!(
                            body == self.bodies[number],
                            "seed {:#x}: body {number} is wrong",
                            self.plan.seed
                        );
                        end.arrived.push(number);
                        break;
                    }
                    TakeResult::Failed(_) | TakeResult::Unknown => {
                        end.receiving.remove(&stream);
                        break;
                    }
                }
            }
        }
        let granted = end.endpoint.receiver().granted();
        assert!(
            granted <= self.plan.receiver.budget,
            "seed {:#x}: {granted} bytes granted",
            self.plan.seed
        );
        let unacked = end.endpoint.sender().unacked();
        assert!(
            unacked <= self.plan.unacked_max + PIECE_BYTES,
            "seed {:#x}: {unacked} unacknowledged bytes",
            self.plan.seed
        );
    }
}

fn id_key(plan: &Plan) -> IdKey {
    let ids = IdKey::new([3; 32]).weakened(plan.id_bits);
    if plan.fingerprints {
        ids.with_fingerprints(Arc::new(FingerprintKey::new(&[4; 32])))
    } else {
        ids
    }
}

fn endpoint(plan: &Plan, session: u64) -> Endpoint {
    let chunker = ChunkerParams::new(4096, 9).expect("the average is a power of two");
    Endpoint::new(EndpointConfig {
        id_key: id_key(plan),
        sender: SenderConfig {
            batch_bytes: 32 << 10,
            unacked_max: plan.unacked_max,
            delta: plan.delta,
            keep_sent: plan.keep_sent,
            stream_unacked_max: plan.unacked_max / 2,
            ..SenderConfig::new(chunker, Methods::ALL)
        },
        receiver: plan.receiver,
        // The number of containers for which the endpoint remembers which chunks the peer has.
        containers_max: 1000,
        session,
        pool: Pool::default(),
    })
}
