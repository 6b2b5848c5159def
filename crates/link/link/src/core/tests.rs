//! Tests which frames are sent and when. Two cores exchange frames over a simulated network in virtual time.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use edgeward_chunk_store::{ChunkSettings, Chunks, ScratchDevice};
use edgeward_dedup::codec::{Method, Methods};
use edgeward_dedup::endpoint::Endpoint;
use edgeward_dedup::id::IdKey;
use edgeward_dedup::receiver::Sharing;
use edgeward_dedup::wire::{Frame, FrameSink as _, Role, Span, StreamId, decode, frame_length};

use edgeward_types::mix64;

use super::{ConnectionId, Core, CoreConfig, DuplexId, Read, Written};
use crate::budget::{BUDGET_BYTES, Budget};
use crate::config::{Encryption, LinkConfig};
use crate::knowledge_pages::KnowledgePages;
use crate::label::{Label, Target};
use crate::outbox::Outbox;
use crate::send_delay::ACK_DELAY;

/// The one-way delay of the network; the round-trip time is 80 ms. The bandwidth is unlimited.
const DELAY: Duration = Duration::from_millis(40);

const EDGE: usize = 0;
const GATEWAY: usize = 1;

/// Two cores, the simulated network between them, and the virtual time. Arrays are indexed by `EDGE` and `GATEWAY`.
struct Simulation {
    cores: [Core; 2],
    connections: [ConnectionId; 2],
    /// The bytes in transit, with their time of arrival and the index of the receiving endpoint.
    in_transit: VecDeque<(Instant, usize, Vec<u8>)>,
    now: Instant,
    /// The time at which each core must be called again if no frame arrives.
    next_calls: [Option<Instant>; 2],
    /// The number of bytes of frames that each endpoint has sent.
    sent: [u64; 2],
}

impl Simulation {
    fn new(configure: impl Fn(&mut LinkConfig)) -> Self {
        let mut cores = [1, 2].map(|number| {
            let device = ScratchDevice::new(&std::env::temp_dir(), 64 << 20)
                .expect("the file can be created");
            let store = Chunks::open(Arc::new(device), ChunkSettings::new(8 << 10, number));
            let store = store.expect("the store opens");
            let mut config = LinkConfig::new(Encryption::Off, IdKey::new([3; 32]), store.clone());
            configure(&mut config);
            let endpoint = config.endpoint(Sharing::Exchanged, true, number);
            let accepts = number == 2;
            let core = CoreConfig {
                accepts,
                dedup: true,
                probe: true,
                unacked_max: config.unacked_bytes_max,
            };
            Core::new(
                core,
                Endpoint::new(endpoint.expect("the configuration is valid")),
                store,
                KnowledgePages::new(usize::MAX, 1),
            )
        });
        let hellos = cores.each_mut().map(Core::hello);
        let [edge, gateway] = &mut cores;
        let connections = [
            edge.add_connection(Role::Connector, &hellos[EDGE], &hellos[GATEWAY]),
            gateway.add_connection(Role::Listener, &hellos[GATEWAY], &hellos[EDGE]),
        ];
        Self {
            cores,
            connections: connections
                .map(|connection| connection.expect("the endpoints are compatible")),
            in_transit: VecDeque::new(),
            now: Instant::now(),
            next_calls: [None; 2],
            sent: [0; 2],
        }
    }

    /// Opens a stream at the edge and accepts it at the gateway. Returns the id of the stream at each endpoint.
    fn open_stream(&mut self) -> [DuplexId; 2] {
        let edge_stream = self.cores[EDGE]
            .open(Target::Origin)
            .expect("the limit of streams is not reached");
        let gateway_stream = loop {
            self.step(None);
            if let Some((duplex, _)) = self.cores[GATEWAY].next_opened() {
                break duplex;
            }
        };
        self.cores[GATEWAY]
            .accept(gateway_stream)
            .expect("the stream can be accepted");
        [edge_stream, gateway_stream]
    }

    /// Sends all ready frames. Then advances the time to the next event, or to `other` if `other` is earlier, and
    /// delivers the frames that arrive at that time.
    fn step(&mut self, other: Option<Instant>) {
        for side in [EDGE, GATEWAY] {
            perform_slow_requests(&mut self.cores[side]);
            loop {
                let mut outbox = Outbox::default();
                let core = &mut self.cores[side];
                let filled = core.fill(
                    self.connections[side],
                    self.now,
                    &mut outbox,
                    &mut Budget::default(),
                );
                self.next_calls[side] = filled.expect("the connection is up");
                drop(core.take_ready());
                let out = bytes_of(&outbox);
                if out.is_empty() {
                    break;
                }
                self.sent[side] += out.len() as u64;
                self.in_transit.push_back((self.now + DELAY, 1 - side, out));
            }
        }
        let arrival = self.in_transit.front().map(|(at, ..)| *at);
        let calls = self.next_calls.into_iter().flatten();
        let next = calls.chain(arrival).chain(other).min();
        self.now = next.expect("an event is scheduled").max(self.now);
        while let Some((_, side, bytes)) = self.in_transit.pop_front_if(|(at, ..)| *at <= self.now)
        {
            let mut rest = &bytes[..];
            while let Some(length) = frame_length(rest).expect("the frame is valid") {
                let (frame, others) = rest.split_at(length);
                let frame = decode(frame).expect("the frame is valid");
                let handled = self.cores[side].handle(
                    self.connections[side],
                    frame,
                    None,
                    length,
                    &mut Budget::default(),
                );
                handled
                    .expect("the connection is up")
                    .expect("the frame follows the protocol");
                perform_slow_requests(&mut self.cores[side]);
                rest = others;
            }
        }
    }

    /// Sends a body from the gateway to the edge in parts of `part_bytes` with a `pause` after each part. Returns the
    /// number of bytes of the frames, and the time until the edge has received the body.
    fn send(&mut self, body: &[u8], part_bytes: usize, pause: Duration) -> (u64, Duration) {
        let [reader, writer] = self.open_stream();
        let (sent, start) = (self.sent[GATEWAY], self.now);
        let (mut written, mut read, mut next) = (0, 0, self.now);
        let mut closed = false;
        while read < body.len() || !closed {
            if next <= self.now && written < body.len() {
                let end = body.len().min(written + part_bytes);
                let part = &body[written..end];
                match self.cores[GATEWAY].write(writer, part, self.now, &mut Budget::default()) {
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
                self.cores[GATEWAY]
                    .close(writer)
                    .expect("the stream is open");
                closed = true;
            }
            while let Read::Bytes(bytes) = self.cores[EDGE].read(reader) {
                assert!(body[read..].starts_with(&bytes), "at {read}");
                read += bytes.len();
            }
            let writes = written < body.len() && next > self.now;
            self.step(writes.then_some(next));
        }
        (self.sent[GATEWAY] - sent, self.now - start)
    }
}

/// Performs the requests to the store that need the device.
fn perform_slow_requests(core: &mut Core) {
    let (sender, answers) = std::sync::mpsc::channel();
    core.submit_slow_requests(move |id, is_awaited, answer| {
        _ = sender.send((id, is_awaited, answer));
    });
    // Ends when each request is answered.
    for (id, is_awaited, answer) in answers {
        core.complete(id, is_awaited, answer);
    }
}

fn bytes_of(outbox: &Outbox) -> Vec<u8> {
    let mut slices = [IoSlice::new(&[]); 64];
    let count = outbox.slices(&mut slices);
    let slices = slices[..count].iter();
    let bytes: Vec<u8> = slices.flat_map(|slice| slice.to_vec()).collect();
    assert_eq!(bytes.len(), outbox.bytes());
    bytes
}

fn noise(bytes: usize) -> Vec<u8> {
    (1..=bytes as u64 / 8)
        .flat_map(|n| mix64(n).to_le_bytes())
        .collect()
}

/// A body whose chunks are all known to the peer is sent only as references, even if its writer waits for credit
/// several times: while the writer waits, the beginning of an incomplete chunk is not sent.
#[test]
fn a_writer_without_credit_sends_no_incomplete_chunks() {
    let mut simulation = Simulation::new(|config| {
        // A stream starts with a credit of 32 KiB. The body has 4 MiB, so the writer waits several times.
        config.receive_bytes_max = 1 << 20;
        config.streams_max = 16;
    });
    let body = noise(4 << 20);
    let (first_bytes, _) = simulation.send(&body, 64 << 10, Duration::ZERO);
    assert!(first_bytes as usize > body.len());
    let (repeated_bytes, took) = simulation.send(&body, 64 << 10, Duration::ZERO);
    assert!(
        took > DELAY * 10,
        "the writer did not wait for credit: {took:?}"
    );
    // The references need 16 bytes for each chunk of about 9 KB, and one frame header for each window of credit.
    assert!(
        repeated_bytes < 20_000,
        "{repeated_bytes} bytes the second time"
    );
}

/// An incomplete chunk is sent when no frame of its stream is in transit. Otherwise a chunk longer than the credit
/// would never be sent: its writer waits for credit that the reader grants only after it has read bytes.
#[test]
fn a_chunk_that_exceeds_the_window_is_delivered() {
    let mut simulation = Simulation::new(|config| {
        // A stream starts with a credit of 16 KiB, which is smaller than the longest chunk.
        config.receive_bytes_max = 256 << 10;
        config.streams_max = 16;
    });
    // The chunker finds no cut before 64 KiB.
    let body = vec![7; 300_000];
    for _ in 0..2 {
        simulation.send(&body, 64 << 10, Duration::ZERO);
    }
}

/// A request of at most 1 MiB is acknowledged together with its response, at the latest `ACK_DELAY` after its arrival.
/// A longer body is acknowledged without delay.
///
/// Method: send a request from the edge. Then call `fill` of the gateway's core with several times after the arrival,
/// and check how many bytes `fill` appends.
#[test]
fn a_response_carries_the_acknowledgement() {
    let mut simulation = Simulation::new(|_| {});
    let [edge_stream, gateway_stream] = simulation.open_stream();
    // Gives the frames of `open_stream` time to arrive.
    simulation.step(Some(simulation.now + DELAY * 4));
    simulation.step(Some(simulation.now + DELAY * 4));
    let send_request = |simulation: &mut Simulation, bytes: usize| {
        let request = vec![7; bytes];
        let now = simulation.now;
        let edge = &mut simulation.cores[EDGE];
        let written = edge.write(edge_stream, &request, now, &mut Budget::default());
        assert_eq!(written, Written::Bytes(bytes));
        edge.flush(edge_stream);
        let mut read = 0;
        while read < bytes {
            simulation.step(None);
            while let Read::Bytes(more) = simulation.cores[GATEWAY].read(gateway_stream) {
                read += more.len();
            }
        }
    };
    let sent_after = |simulation: &mut Simulation, after: Duration| {
        let mut outbox = Outbox::default();
        let (connection, now) = (simulation.connections[GATEWAY], simulation.now + after);
        let core = &mut simulation.cores[GATEWAY];
        let budget = &mut Budget::default();
        let due = core.fill(connection, now, &mut outbox, budget);
        (outbox.bytes(), due.expect("the connection is up"))
    };
    send_request(&mut simulation, 200);
    let (bytes, due) = sent_after(&mut simulation, Duration::ZERO);
    assert_eq!((bytes, due), (0, Some(simulation.now + ACK_DELAY)));
    let written = simulation.cores[GATEWAY].write(
        gateway_stream,
        &[8; 100],
        simulation.now,
        &mut Budget::default(),
    );
    assert_eq!(written, Written::Bytes(100));
    simulation.cores[GATEWAY].flush(gateway_stream);
    let (response_bytes, due) = sent_after(&mut simulation, Duration::from_micros(300));
    assert_eq!(due, None, "no frame is delayed");

    send_request(&mut simulation, 200);
    assert_eq!(sent_after(&mut simulation, Duration::ZERO).0, 0);
    assert_eq!(sent_after(&mut simulation, ACK_DELAY / 2).0, 0);
    let (ack_bytes, _) = sent_after(&mut simulation, ACK_DELAY);
    assert!(
        ack_bytes > 0 && response_bytes > ack_bytes + 100,
        "{ack_bytes}, {response_bytes}"
    );

    // The acknowledgement of 120 kB is delayed too, because each acknowledgement costs the sender a wake-up.
    send_request(&mut simulation, 120_000);
    assert_eq!(sent_after(&mut simulation, ACK_DELAY / 2).0, 0);
    assert!(sent_after(&mut simulation, ACK_DELAY).0 > 0);

    // The acknowledgement of more than 1 MiB is not delayed. The test creates new cores, because the frames that
    // `sent_after` took from the gateway were never delivered.
    let mut simulation = Simulation::new(|_| {});
    let [edge_stream, gateway_stream] = simulation.open_stream();
    let (body, mut written, mut acked) = (noise(4 << 20), 0, 0);
    while acked < 2 << 20 {
        let now = simulation.now;
        let edge = &mut simulation.cores[EDGE];
        if let Written::Bytes(more) =
            edge.write(edge_stream, &body[written..], now, &mut Budget::default())
        {
            written += more;
        }
        simulation.step(None);
        while let Read::Bytes(_) = simulation.cores[GATEWAY].read(gateway_stream) {}
        let unacked = simulation.cores[EDGE].endpoint().sender().unacked();
        acked = written - unacked;
    }
}

/// Further connections do not make the frames of a body larger: a link with three connections sends text in as few
/// bytes as one with two.
///
/// Method: write text about as fast as the link can send its compressed bytes, so that the link is idle at times. Each
/// socket is blocked while it has 128 KiB, and the link takes bytes from the sockets in turn.
#[test]
fn further_connections_do_not_lower_the_compression() {
    let [two, three, five] = [2, 3, 5].map(bytes_of_text);
    let limit = two + two / 50;
    assert!(three <= limit && five <= limit, "{two} {three} {five}");
}

/// Returns the number of bytes in which a gateway with this many connections sends a text.
fn bytes_of_text(connections: usize) -> usize {
    /// In each step, the writer writes this many bytes, and the link sends this many. Compressed text is shorter.
    const STEP_BYTES: [usize; 2] = [256 << 10, 72 << 10];
    const STEP: Duration = Duration::from_millis(5);
    const SOCKET_BYTES: usize = 128 << 10;
    let zstd = Methods::NONE.with(Method::Zstd);
    let mut simulation = Simulation::new(|config| config.methods = zstd);
    let [reader, writer] = simulation.open_stream();
    let hellos = simulation.cores.each_mut().map(Core::hello);
    let gateway = &mut simulation.cores[GATEWAY];
    // The simulation serves the first connection, which has short frames.
    let mut sockets: Vec<(ConnectionId, Vec<u8>, usize)> = Vec::new();
    for _ in 1..connections {
        let added = gateway.add_connection(Role::Listener, &hellos[GATEWAY], &hellos[EDGE]);
        sockets.push((added.expect("the endpoints are compatible"), Vec::new(), 0));
    }
    let line = |nth: u64| format!("{nth} {:x} and {}\n", mix64(nth) % 512, mix64(nth) % 61);
    let text: String = (0..1_000_000).map(line).collect();
    let (text, mut written, mut read, mut sent) = (text.as_bytes(), 0, 0, 0);
    while read < text.len() {
        let gateway = &mut simulation.cores[GATEWAY];
        let part = &text[written..text.len().min(written + STEP_BYTES[0])];
        let now = simulation.now;
        if !part.is_empty() {
            match gateway.write(writer, part, now, &mut Budget::default()) {
                Written::Bytes(bytes) => written += bytes,
                Written::Full => {}
                Written::Ended(reason) => panic!("ended: {reason}"),
            }
            if written == text.len() {
                gateway.close(writer).expect("the stream is open");
            }
        }
        perform_slow_requests(gateway);
        for (id, socket, _) in &mut sockets {
            while socket.len() < SOCKET_BYTES {
                let mut outbox = Outbox::default();
                let filled = gateway.fill(*id, now, &mut outbox, &mut Budget::default());
                filled.expect("the connection is up");
                if outbox.bytes() == 0 {
                    break;
                }
                socket.extend_from_slice(&bytes_of(&outbox));
                if socket.len() >= SOCKET_BYTES {
                    gateway.set_blocked(*id);
                }
            }
        }
        // The link takes bytes from the sockets in turn. A frame is delivered when its last byte is taken.
        for _ in 0..STEP_BYTES[1] / 1024 {
            let next = sockets
                .iter()
                .position(|(_, socket, taken)| *taken < socket.len());
            let Some(next) = next else { break };
            sockets[next..].rotate_left(1);
            let (_, socket, taken) = sockets.last_mut().expect("a socket has bytes");
            *taken = socket.len().min(*taken + 1024);
            sent += 1024;
            while let Ok(Some(length)) = frame_length(socket)
                && length <= *taken
            {
                let frame = socket.drain(..length).collect();
                *taken -= length;
                simulation.in_transit.push_back((now + DELAY, EDGE, frame));
            }
        }
        while simulation.now < now + STEP {
            simulation.step(Some(now + STEP));
            while let Read::Bytes(bytes) = simulation.cores[EDGE].read(reader) {
                read += bytes.len();
            }
        }
    }
    sent
}

/// A writer that finds the limit of unacknowledged bytes reached several times is woken once.
#[test]
fn a_writer_at_the_limit_is_listed_once() {
    let mut simulation = Simulation::new(|config| config.unacked_bytes_max = 64 << 10);
    let [stream, _] = simulation.open_stream();
    let (now, body) = (simulation.now, noise(1 << 20));
    let edge = &mut simulation.cores[EDGE];
    let mut fulls = 0;
    while fulls < 3 {
        let budget = &mut Budget::default();
        match edge.write(stream, &body, now, budget) {
            Written::Full => fulls += 1,
            written => assert!(matches!(written, Written::Bytes(_)), "{written:?}"),
        }
    }
    assert_eq!(edge.writers_at_limit, [stream]);
}

/// A delta of one byte is charged the stored chunk that is loaded to decompress it.
#[test]
fn a_short_delta_is_charged_its_base() {
    let mut simulation = Simulation::new(|_| {});
    let (connection, core) = (
        simulation.connections[GATEWAY],
        &mut simulation.cores[GATEWAY],
    );
    let mut handle = |frame: Frame<'_>| {
        let mut budget = Budget::default();
        let handled = core.handle(connection, frame, None, 100, &mut budget);
        assert!(matches!(handled, Ok(Ok(()))), "{handled:?}");
        BUDGET_BYTES - budget.remaining_bytes()
    };
    let span = |offset, length| Span {
        stream: StreamId(0),
        offset,
        length,
    };
    let chunk = noise(100_000);
    let label = &Label::Open(Target::Origin).encode();
    let stream = StreamId(0);
    handle(Frame::Open { stream, label });
    handle(Frame::Literal {
        span: span(0, 100_000),
        method: Method::None,
        cuts: vec![100_000],
        payload: &chunk,
    });
    let charged = handle(Frame::Delta {
        span: span(100_000, 1),
        method: Method::None,
        base: vec![IdKey::new([3; 32]).id(&chunk)],
        cuts: Vec::new(),
        payload: b"x",
    });
    assert!(charged >= 100_000, "{charged}");
}
