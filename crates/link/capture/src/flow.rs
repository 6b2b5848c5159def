//! Orders TCP segments and emits the bytes of each direction of each connection.
//!
//! Each byte is emitted once, as soon as all bytes before it were emitted. Retransmitted and reordered segments
//! do not change the result. Bytes behind a gap wait until the gap is filled. If a segment makes the waiting bytes
//! exceed a limit, all gaps of its direction are skipped. A connection ends with FIN in both directions, with RST, when
//! a new connection uses its addresses, when there are too many connections, or at the end of the capture.

use std::collections::{BTreeMap, HashMap};

use crate::packet::{Endpoints, Segment};

/// The limits of the memory that the reassembly uses.
#[derive(Clone, Copy, Debug)]
pub struct FlowLimits {
    /// The maximum number of open connections. A further connection ends the connection that has been idle for
    /// the longest time.
    pub flows_max: usize,
    /// The maximum number of bytes of one direction that wait behind a gap, plus 64 bytes of overhead per segment.
    pub waiting_max: usize,
    /// The maximum number of bytes of all directions that wait behind gaps, with the same overhead.
    pub waiting_all_max: usize,
}

/// The number of a connection. Connections are numbered in the order of their first segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(pub u64);

/// One of the two directions of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// The direction of the first captured packet of the connection.
    Forward,
    /// The direction opposite to [`Forward`](Self::Forward).
    Reverse,
}

/// A change of one direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEvent<'b> {
    /// The first bytes of a direction follow.
    Begins {
        /// The connection.
        flow: FlowId,
        /// The direction.
        direction: Direction,
        /// The sender and the receiver of the direction.
        endpoints: Endpoints,
    },
    /// The next bytes of a direction.
    Bytes {
        /// The connection.
        flow: FlowId,
        /// The direction.
        direction: Direction,
        /// The bytes that follow the previously emitted bytes of this direction.
        bytes: &'b [u8],
    },
    /// A direction that began has ended.
    Ends {
        /// The connection.
        flow: FlowId,
        /// The direction.
        direction: Direction,
    },
}

/// Counters of the reassembly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounters {
    /// The number of connections.
    pub flows: u64,
    /// The number of bytes that were discarded: duplicates, and bytes whose gap had been skipped.
    pub repeated: u64,
    /// The number of bytes that were skipped: the capture lacks them, or they arrived after their gap was skipped.
    pub lost: u64,
    /// The number of connections that were ended because there were too many.
    pub evicted: u64,
}

/// Orders the segments of all connections.
#[derive(Debug)]
pub struct Flows {
    limits: FlowLimits,
    flows: HashMap<AddressPair, Flow>,
    /// The connections, ordered by the value of `clock` at their last segment.
    by_activity: BTreeMap<u64, AddressPair>,
    /// The number of segments so far.
    clock: u64,
    /// The sum of `waiting_bytes` of all directions.
    waiting: usize,
    counters: FlowCounters,
}

/// The two addresses of a connection, the smaller one first, so that both directions have the same pair.
type AddressPair = Endpoints;

#[derive(Debug)]
struct Flow {
    id: FlowId,
    /// The sender and the receiver of the first captured packet.
    forward: Endpoints,
    /// The value of `Flows::clock` at the last segment.
    last_active: u64,
    /// The forward and the reverse direction.
    streams: [ByteStream; 2],
}

/// The state of one direction.
#[derive(Debug, Default)]
struct ByteStream {
    /// The sequence number of the next byte to emit, or `None` before the first segment.
    next: Option<u32>,
    began: bool,
    ended: bool,
    /// The sequence number after the last byte, or `None` before FIN has arrived.
    end: Option<u32>,
    /// Segments behind a gap, by the position of their first byte.
    waiting: BTreeMap<u64, WaitingSegment>,
    /// The captured bytes of the waiting segments, plus the overhead of each segment.
    waiting_bytes: usize,
    /// The number of bytes emitted or skipped.
    position: u64,
}

/// A segment that waits behind a gap.
#[derive(Debug)]
struct WaitingSegment {
    /// The captured bytes of the segment.
    bytes: Vec<u8>,
    /// The length of the segment as sent, in bytes. It is greater than `bytes.len()` if the capture truncated it.
    length: u32,
}

impl Flows {
    /// Creates a table without connections.
    pub fn new(limits: FlowLimits) -> Self {
        Self {
            limits,
            flows: HashMap::new(),
            by_activity: BTreeMap::new(),
            clock: 0,
            waiting: 0,
            counters: FlowCounters::default(),
        }
    }

    /// Adds a segment, and emits its bytes and waiting bytes that are now in order.
    pub fn take(&mut self, segment: &Segment<'_>, mut emit: impl FnMut(FlowEvent<'_>)) {
        let Endpoints { from, to } = segment.endpoints;
        let pair = AddressPair {
            from: from.min(to),
            to: from.max(to),
        };
        // A SYN after bytes of its direction begins a new connection, unless the byte after the SYN comes next.
        let reuses_addresses = segment.syn
            && self.flows.get(&pair).is_some_and(|flow| {
                let stream = &flow.streams[flow.stream_index(segment.endpoints)];
                let next = stream.next.filter(|_| stream.position > 0);
                next.is_some_and(|next| next != segment.sequence.wrapping_add(1))
            });
        if reuses_addresses {
            self.end(&pair, &mut emit);
        }
        self.clock += 1;
        if !self.flows.contains_key(&pair) {
            // A segment without bytes, for example an acknowledgement after the end of its connection, does not
            // open a connection.
            if segment.length == 0 && !segment.syn {
                return;
            }
            self.begin(pair, segment.endpoints, &mut emit);
        }
        let Some(flow) = self.flows.get_mut(&pair) else {
            return;
        };
        self.by_activity.remove(&flow.last_active);
        flow.last_active = self.clock;
        self.by_activity.insert(self.clock, pair);

        let direction_index = flow.stream_index(segment.endpoints);
        let mut sink = EventSink {
            flow: flow.id,
            direction: [Direction::Forward, Direction::Reverse][direction_index],
            endpoints: segment.endpoints,
            counters: &mut self.counters,
            emit: &mut emit,
        };
        let stream = &mut flow.streams[direction_index];
        self.waiting -= stream.waiting_bytes;
        stream.take(segment, &mut sink);
        let exceeds_bound = stream.waiting_bytes > self.limits.waiting_max
            || self.waiting + stream.waiting_bytes > self.limits.waiting_all_max;
        if exceeds_bound {
            stream.skip_gaps(&mut sink);
        }
        self.waiting += stream.waiting_bytes;
        if segment.rst || flow.streams.iter().all(|stream| stream.ended) {
            self.end(&pair, &mut emit);
        }
    }

    /// Ends all connections, at the end of the capture.
    pub fn finish(&mut self, mut emit: impl FnMut(FlowEvent<'_>)) {
        while let Some((_, pair)) = self.by_activity.first_key_value() {
            let pair = *pair;
            self.end(&pair, &mut emit);
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> FlowCounters {
        self.counters
    }

    /// Returns the number of bytes that wait behind gaps, including the overhead of storing them.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns the number of connections that have not ended.
    pub fn open(&self) -> usize {
        self.flows.len()
    }

    fn begin(
        &mut self,
        pair: AddressPair,
        forward: Endpoints,
        emit: &mut impl FnMut(FlowEvent<'_>),
    ) {
        while self.flows.len() >= self.limits.flows_max.max(1) {
            let Some((_, &idle)) = self.by_activity.first_key_value() else {
                break;
            };
            self.counters.evicted += 1;
            self.end(&idle, emit);
        }
        let flow = Flow {
            id: FlowId(self.counters.flows),
            forward,
            last_active: self.clock,
            streams: Default::default(),
        };
        self.counters.flows += 1;
        self.by_activity.insert(self.clock, pair);
        self.flows.insert(pair, flow);
    }

    fn end(&mut self, pair: &AddressPair, emit: &mut impl FnMut(FlowEvent<'_>)) {
        let Some(mut flow) = self.flows.remove(pair) else {
            return;
        };
        self.by_activity.remove(&flow.last_active);
        let reverse = Endpoints {
            from: flow.forward.to,
            to: flow.forward.from,
        };
        let streams = [
            (Direction::Forward, flow.forward),
            (Direction::Reverse, reverse),
        ];
        for (stream, (direction, endpoints)) in flow.streams.iter_mut().zip(streams) {
            let mut sink = EventSink {
                flow: flow.id,
                direction,
                endpoints,
                counters: &mut self.counters,
                emit,
            };
            self.waiting -= stream.waiting_bytes;
            stream.skip_gaps(&mut sink);
            stream.end(&mut sink);
        }
    }
}

impl Flow {
    fn stream_index(&self, endpoints: Endpoints) -> usize {
        usize::from(endpoints != self.forward)
    }
}

/// The receiver of the events of one direction.
struct EventSink<'a, F> {
    flow: FlowId,
    direction: Direction,
    endpoints: Endpoints,
    counters: &'a mut FlowCounters,
    emit: &'a mut F,
}

impl ByteStream {
    fn take(&mut self, segment: &Segment<'_>, sink: &mut EventSink<'_, impl FnMut(FlowEvent<'_>)>) {
        if self.ended {
            sink.counters.repeated += segment.payload.len() as u64;
            return;
        }
        let first = segment.sequence.wrapping_add(u32::from(segment.syn));
        let next = *self.next.get_or_insert(first);
        if segment.fin {
            self.end = Some(first.wrapping_add(segment.length));
        }
        // Sequence numbers wrap around, so a distance of 2^31 or more counts as negative (RFC 9293, section
        // 3.4).
        let distance = first.wrapping_sub(next).cast_signed();
        let (mut bytes, mut length, mut gap_bytes) = (segment.payload, segment.length, 0);
        if distance < 0 {
            let duplicate = distance.unsigned_abs().min(length);
            let skipped = bytes.len().min(duplicate as usize);
            sink.counters.repeated += skipped as u64;
            (bytes, length) = (&bytes[skipped..], length - duplicate);
        } else {
            gap_bytes = u64::from(distance.unsigned_abs());
        }
        if length > 0 && gap_bytes == 0 {
            self.emit_bytes(bytes, length, sink);
            self.drain(false, sink);
        } else if length > 0 {
            self.store_waiting(self.position + gap_bytes, bytes, length, sink);
        }
        if self.end.is_some() && self.end == self.next {
            self.end(sink);
        }
    }

    /// Stores bytes that lie behind a gap. If two segments begin at the same position, the longer one is
    /// stored.
    fn store_waiting(
        &mut self,
        at: u64,
        bytes: &[u8],
        length: u32,
        sink: &mut EventSink<'_, impl FnMut(FlowEvent<'_>)>,
    ) {
        if let Some(existing) = self.waiting.get(&at) {
            sink.counters.repeated += existing.bytes.len().min(bytes.len()) as u64;
            if existing.bytes.len() >= bytes.len() {
                return;
            }
            self.waiting_bytes -= existing.bytes.len() + SEGMENT_OVERHEAD_BYTES;
        }
        self.waiting_bytes += bytes.len() + SEGMENT_OVERHEAD_BYTES;
        let bytes = bytes.to_vec();
        self.waiting.insert(at, WaitingSegment { bytes, length });
    }

    /// Emits the waiting bytes up to the next gap. If `skip_gaps` is true, skips all gaps and emits all waiting
    /// bytes.
    fn drain(&mut self, skip_gaps: bool, sink: &mut EventSink<'_, impl FnMut(FlowEvent<'_>)>) {
        while let Some(first) = self.waiting.first_entry() {
            let at = *first.key();
            if at > self.position && !skip_gaps {
                break;
            }
            let WaitingSegment { bytes, length } = first.remove();
            self.waiting_bytes -= bytes.len() + SEGMENT_OVERHEAD_BYTES;
            if at > self.position {
                let gap = at - self.position;
                sink.counters.lost += gap;
                self.advance(gap);
            }
            let duplicate = self.position - at;
            if duplicate >= u64::from(length) {
                sink.counters.repeated += bytes.len() as u64;
                continue;
            }
            // `duplicate` is less than `length`, so it fits in a `u32`.
            let duplicate = duplicate as u32;
            let skipped = bytes.len().min(duplicate as usize);
            sink.counters.repeated += skipped as u64;
            self.emit_bytes(&bytes[skipped..], length - duplicate, sink);
        }
    }

    fn skip_gaps(&mut self, sink: &mut EventSink<'_, impl FnMut(FlowEvent<'_>)>) {
        self.drain(true, sink);
        if self.end.is_some() && self.end == self.next {
            self.end(sink);
        }
    }

    /// Emits `bytes` and advances by `length`. `bytes` is the captured part of the next `length` bytes.
    fn emit_bytes(
        &mut self,
        bytes: &[u8],
        length: u32,
        sink: &mut EventSink<'_, impl FnMut(FlowEvent<'_>)>,
    ) {
        let EventSink {
            flow,
            direction,
            endpoints,
            ..
        } = *sink;
        if !bytes.is_empty() {
            if !std::mem::replace(&mut self.began, true) {
                (sink.emit)(FlowEvent::Begins {
                    flow,
                    direction,
                    endpoints,
                });
            }
            (sink.emit)(FlowEvent::Bytes {
                flow,
                direction,
                bytes,
            });
        }
        let length = u64::from(length);
        sink.counters.lost += length - bytes.len() as u64;
        self.advance(length);
    }

    fn advance(&mut self, bytes: u64) {
        self.position += bytes;
        // Sequence numbers wrap around.
        self.next = self.next.map(|next| next.wrapping_add(bytes as u32));
    }

    fn end(&mut self, sink: &mut EventSink<'_, impl FnMut(FlowEvent<'_>)>) {
        if !std::mem::replace(&mut self.ended, true) && self.began {
            (sink.emit)(FlowEvent::Ends {
                flow: sink.flow,
                direction: sink.direction,
            });
        }
    }
}

/// The memory that a waiting segment takes besides its bytes.
const SEGMENT_OVERHEAD_BYTES: usize = 64;
