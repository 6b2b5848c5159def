//! Segments in order: what each direction of each connection said.
//!
//! A direction's bytes are handed on as soon as all before them were, once each, whatever was sent again or came in another order.
//! What was not captured is waited for within bounds and then skipped. Connections end with FIN or RST, when their addresses
//! begin another, when there are too many, or with the capture.

use std::collections::{BTreeMap, HashMap};

use crate::packet::{Endpoints, Segment};

/// How much is held.
#[derive(Clone, Copy, Debug)]
pub struct FlowLimits {
    /// Connections at the same time; beyond it the one that was silent longest is taken to have ended.
    pub flows_max: usize,
    /// Bytes of one direction that wait for those before them.
    pub waiting_max: usize,
    /// Such bytes of all.
    pub waiting_all_max: usize,
}

/// A connection, numbered as they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(pub u64);

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// As the first packet that was captured of the connection.
    Forth,
    /// The other way.
    Back,
}

/// Something that was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard<'b> {
    /// A direction has its first bytes; they follow.
    Begins {
        /// Of which connection.
        flow: FlowId,
        /// Which way.
        direction: Direction,
        /// Who speaks to whom.
        endpoints: Endpoints,
    },
    /// The next bytes of a direction.
    Bytes {
        /// Of which connection.
        flow: FlowId,
        /// Which way.
        direction: Direction,
        /// What.
        bytes: &'b [u8],
    },
    /// A direction that began says no more.
    Ends {
        /// Of which connection.
        flow: FlowId,
        /// Which way.
        direction: Direction,
    },
}

/// What happened besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounters {
    /// Connections.
    pub flows: u64,
    /// Bytes that came again.
    pub repeated: u64,
    /// Bytes that were skipped because they were not captured, or too late.
    pub lost: u64,
    /// Connections that were given up to make room.
    pub evicted: u64,
}

/// Puts segments in order.
#[derive(Debug)]
pub struct Flows {
    limits: FlowLimits,
    flows: HashMap<Pair, Flow>,
    /// By when they last spoke.
    silent: BTreeMap<u64, Pair>,
    clock: u64,
    waiting: usize,
    counters: FlowCounters,
}

/// Both ends, the lesser first.
type Pair = Endpoints;

#[derive(Debug)]
struct Flow {
    id: FlowId,
    forth: Endpoints,
    spoke: u64,
    ways: [Way; 2],
}

/// A direction.
#[derive(Debug, Default)]
struct Way {
    /// The sequence number of the next byte, once one is known.
    next: Option<u32>,
    began: bool,
    ended: bool,
    /// The number behind the last byte, once FIN told it.
    end: Option<u32>,
    /// By where they begin, counted as `position`.
    waiting: BTreeMap<u64, Waiting>,
    waiting_bytes: usize,
    /// Bytes handed on or skipped.
    position: u64,
}

#[derive(Debug)]
struct Waiting {
    bytes: Vec<u8>,
    length: u32,
}

impl Flows {
    /// Nothing was heard yet.
    pub fn new(limits: FlowLimits) -> Self {
        Self {
            limits,
            flows: HashMap::new(),
            silent: BTreeMap::new(),
            clock: 0,
            waiting: 0,
            counters: FlowCounters::default(),
        }
    }

    /// Takes a segment and hands on what is in order with it.
    pub fn take(&mut self, segment: &Segment<'_>, mut heard: impl FnMut(Heard<'_>)) {
        let Endpoints { from, to } = segment.endpoints;
        let pair = Pair {
            from: from.min(to),
            to: from.max(to),
        };
        let begins_anew = segment.syn
            && self.flows.get(&pair).is_some_and(|flow| {
                let way = &flow.ways[flow.way(segment.endpoints)];
                let next = way.next.filter(|_| way.position > 0);
                next.is_some_and(|next| next != segment.sequence.wrapping_add(1))
            });
        if begins_anew {
            self.end(&pair, &mut heard);
        }
        self.clock += 1;
        if !self.flows.contains_key(&pair) {
            // A connection that says nothing more is none.
            if segment.length == 0 && !segment.syn {
                return;
            }
            self.begin(pair, segment.endpoints, &mut heard);
        }
        let Some(flow) = self.flows.get_mut(&pair) else {
            return;
        };
        self.silent.remove(&flow.spoke);
        flow.spoke = self.clock;
        self.silent.insert(self.clock, pair);

        let nth = flow.way(segment.endpoints);
        let mut said = Said {
            flow: flow.id,
            direction: [Direction::Forth, Direction::Back][nth],
            endpoints: segment.endpoints,
            counters: &mut self.counters,
            heard: &mut heard,
        };
        let way = &mut flow.ways[nth];
        self.waiting -= way.waiting_bytes;
        way.take(segment, &mut said);
        let too_much = way.waiting_bytes > self.limits.waiting_max
            || self.waiting + way.waiting_bytes > self.limits.waiting_all_max;
        if too_much {
            way.skip_gaps(&mut said);
        }
        self.waiting += way.waiting_bytes;
        if segment.rst || flow.ways.iter().all(|way| way.ended) {
            self.end(&pair, &mut heard);
        }
    }

    /// The capture ended, and with it all that was said in it.
    pub fn finish(&mut self, mut heard: impl FnMut(Heard<'_>)) {
        while let Some((_, pair)) = self.silent.first_key_value() {
            let pair = *pair;
            self.end(&pair, &mut heard);
        }
    }

    /// What happened so far.
    pub fn counters(&self) -> FlowCounters {
        self.counters
    }

    /// Bytes that wait for those before them, and what keeping them takes.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Connections that have not ended.
    pub fn open(&self) -> usize {
        self.flows.len()
    }

    fn begin(&mut self, pair: Pair, forth: Endpoints, heard: &mut impl FnMut(Heard<'_>)) {
        while self.flows.len() >= self.limits.flows_max.max(1) {
            let Some((_, &silent)) = self.silent.first_key_value() else {
                break;
            };
            self.counters.evicted += 1;
            self.end(&silent, heard);
        }
        let flow = Flow {
            id: FlowId(self.counters.flows),
            forth,
            spoke: self.clock,
            ways: Default::default(),
        };
        self.counters.flows += 1;
        self.silent.insert(self.clock, pair);
        self.flows.insert(pair, flow);
    }

    fn end(&mut self, pair: &Pair, heard: &mut impl FnMut(Heard<'_>)) {
        let Some(mut flow) = self.flows.remove(pair) else {
            return;
        };
        self.silent.remove(&flow.spoke);
        let back = Endpoints {
            from: flow.forth.to,
            to: flow.forth.from,
        };
        let ways = [(Direction::Forth, flow.forth), (Direction::Back, back)];
        for (way, (direction, endpoints)) in flow.ways.iter_mut().zip(ways) {
            let mut said = Said {
                flow: flow.id,
                direction,
                endpoints,
                counters: &mut self.counters,
                heard,
            };
            self.waiting -= way.waiting_bytes;
            way.skip_gaps(&mut said);
            way.end(&mut said);
        }
    }
}

impl Flow {
    fn way(&self, endpoints: Endpoints) -> usize {
        usize::from(endpoints != self.forth)
    }
}

/// Whom to tell, and of what.
struct Said<'a, F> {
    flow: FlowId,
    direction: Direction,
    endpoints: Endpoints,
    counters: &'a mut FlowCounters,
    heard: &'a mut F,
}

impl Way {
    fn take(&mut self, segment: &Segment<'_>, said: &mut Said<'_, impl FnMut(Heard<'_>)>) {
        if self.ended {
            said.counters.repeated += segment.payload.len() as u64;
            return;
        }
        let first = segment.sequence.wrapping_add(u32::from(segment.syn));
        let next = *self.next.get_or_insert(first);
        if segment.fin {
            self.end = Some(first.wrapping_add(segment.length));
        }
        // Distances of half the numbers there are and more lie behind (RFC 9293, section 3.4).
        let distance = first.wrapping_sub(next).cast_signed();
        let (mut bytes, mut length, mut ahead) = (segment.payload, segment.length, 0);
        if distance < 0 {
            let known = distance.unsigned_abs().min(length);
            let cut = bytes.len().min(known as usize);
            said.counters.repeated += cut as u64;
            (bytes, length) = (&bytes[cut..], length - known);
        } else {
            ahead = u64::from(distance.unsigned_abs());
        }
        if length > 0 && ahead == 0 {
            self.hand_on(bytes, length, said);
            self.drain(false, said);
        } else if length > 0 {
            self.wait(self.position + ahead, bytes, length, said);
        }
        if self.end.is_some() && self.end == self.next {
            self.end(said);
        }
    }

    /// Keeps bytes for later; of two that begin alike the longer.
    fn wait(
        &mut self,
        at: u64,
        bytes: &[u8],
        length: u32,
        said: &mut Said<'_, impl FnMut(Heard<'_>)>,
    ) {
        if let Some(there) = self.waiting.get(&at) {
            said.counters.repeated += there.bytes.len().min(bytes.len()) as u64;
            if there.bytes.len() >= bytes.len() {
                return;
            }
            self.waiting_bytes -= there.bytes.len() + WAITING_BYTES;
        }
        self.waiting_bytes += bytes.len() + WAITING_BYTES;
        let bytes = bytes.to_vec();
        self.waiting.insert(at, Waiting { bytes, length });
    }

    /// Hands on what waited for nothing but what came now; with `skip` also what waited for what never came.
    fn drain(&mut self, skip: bool, said: &mut Said<'_, impl FnMut(Heard<'_>)>) {
        while let Some(first) = self.waiting.first_entry() {
            let at = *first.key();
            if at > self.position && !skip {
                break;
            }
            let Waiting { bytes, length } = first.remove();
            self.waiting_bytes -= bytes.len() + WAITING_BYTES;
            if at > self.position {
                let gap = at - self.position;
                said.counters.lost += gap;
                self.advance(gap);
            }
            let known = self.position - at;
            if known >= u64::from(length) {
                said.counters.repeated += bytes.len() as u64;
                continue;
            }
            // Below a length, and so below 2^32.
            let known = known as u32;
            let cut = bytes.len().min(known as usize);
            said.counters.repeated += cut as u64;
            self.hand_on(&bytes[cut..], length - known, said);
        }
    }

    fn skip_gaps(&mut self, said: &mut Said<'_, impl FnMut(Heard<'_>)>) {
        self.drain(true, said);
        if self.end.is_some() && self.end == self.next {
            self.end(said);
        }
    }

    /// The next `length` bytes, of which `bytes` were captured.
    fn hand_on(&mut self, bytes: &[u8], length: u32, said: &mut Said<'_, impl FnMut(Heard<'_>)>) {
        let Said {
            flow,
            direction,
            endpoints,
            ..
        } = *said;
        if !bytes.is_empty() {
            if !std::mem::replace(&mut self.began, true) {
                (said.heard)(Heard::Begins {
                    flow,
                    direction,
                    endpoints,
                });
            }
            (said.heard)(Heard::Bytes {
                flow,
                direction,
                bytes,
            });
        }
        let length = u64::from(length);
        said.counters.lost += length - bytes.len() as u64;
        self.advance(length);
    }

    fn advance(&mut self, bytes: u64) {
        self.position += bytes;
        // Numbers wrap.
        self.next = self.next.map(|next| next.wrapping_add(bytes as u32));
    }

    fn end(&mut self, said: &mut Said<'_, impl FnMut(Heard<'_>)>) {
        if !std::mem::replace(&mut self.ended, true) && self.began {
            (said.heard)(Heard::Ends {
                flow: said.flow,
                direction: said.direction,
            });
        }
    }
}

/// What keeping something takes besides its bytes.
const WAITING_BYTES: usize = 64;
