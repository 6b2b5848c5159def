//! Counters of the bytes of each target host and each content type, and of the frames that carried them.

use std::collections::HashMap;

use edgeward_dedup::receiver::ReceiverCounters;
use edgeward_dedup::sender::SenderCounters;

use crate::label::Target;

/// The bytes of some bodies, and the bytes of the frames that carried them. The bodies are those of one host or of one
/// content type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyCounters {
    /// The number of streams.
    pub streams: u64,
    /// Bodies sent to the peer.
    pub sent: DirectionCounters,
    /// Bodies received from the peer.
    pub received: DirectionCounters,
}

/// The bytes of the bodies of one direction, by the form in which they were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionCounters {
    /// Bytes of bodies, before deduplication and compression.
    pub bytes: u64,
    /// Bytes of the frames that carried the bodies.
    pub wire: u64,
    /// The bytes of `bytes` that were replaced by references.
    pub referenced: u64,
    /// The bytes in new chunks that were sent as deltas of earlier chunks.
    pub delta: u64,
    /// The bytes in all other new chunks.
    pub literal: u64,
    /// The part of `literal` that looks encrypted or compressed.
    pub incompressible: u64,
    /// An estimate of the part of `literal` and `delta` that the store had evicted. A receiver does not know it.
    pub evicted: u64,
    /// The bytes that were sent without deduplication.
    pub plain: u64,
    /// The part of `plain` in bodies that were sent without deduplication as a whole.
    pub bypassed: u64,
}

/// The traffic counters of a peer: by host and by content type for limited numbers of them, and totals.
#[derive(Debug)]
pub(crate) struct TrafficCounters {
    hosts: Table,
    types: Table,
    /// The number of streams whose host or content type has no counters of its own, because its table is full.
    pub(crate) unlisted_streams: u64,
    /// The number of bodies that bypassed deduplication because their first bytes or headers show compressed or
    /// encrypted data.
    pub(crate) bypassed: u64,
    /// The number of frames that were parked until a disk read ended.
    pub(crate) parked_frames: u64,
    /// The number of times that an outgoing body waited for a disk read.
    pub(crate) stalled_bodies: u64,
    /// The number of times that a connection waited because the limit of parked frames was reached.
    pub(crate) parking_limit_hits: u64,
}

/// The counters of a stream: the rows of its host and of its content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamRows {
    host: usize,
    content_type: usize,
}

impl Default for TrafficCounters {
    fn default() -> Self {
        Self {
            hosts: Table::new(HOSTS_MAX),
            types: Table::new(TYPES_MAX),
            unlisted_streams: 0,
            bypassed: 0,
            parked_frames: 0,
            stalled_bodies: 0,
            parking_limit_hits: 0,
        }
    }
}

impl TrafficCounters {
    /// Counts a new stream to the target, whose content type is not known yet, and returns the rows of its counters.
    pub(crate) fn add_stream(&mut self, target: &Target) -> StreamRows {
        let rows = StreamRows {
            host: self.hosts.row(&target.to_string()),
            content_type: self.types.row(UNKNOWN),
        };
        self.hosts.rows[rows.host].1.streams += 1;
        self.types.rows[rows.content_type].1.streams += 1;
        self.unlisted_streams += u64::from(self.hosts.is_others(rows.host));
        rows
    }

    /// Counts a stream with this content type from now on, and returns the rows of its counters.
    pub(crate) fn set_content_type(&mut self, rows: StreamRows, content_type: &str) -> StreamRows {
        let content_type = self.types.row(content_type);
        if content_type != rows.content_type {
            self.types.rows[rows.content_type].1.streams -= 1;
            self.types.rows[content_type].1.streams += 1;
            self.unlisted_streams += u64::from(self.types.is_others(content_type));
        }
        StreamRows {
            content_type,
            ..rows
        }
    }

    /// Counts a frame that was encoded for a stream with these rows. `None` counts nothing. `before` and `after` are
    /// the sender's counters before and after the encoding.
    pub(crate) fn count_sent(
        &mut self,
        rows: Option<StreamRows>,
        wire_bytes: usize,
        before: &SenderCounters,
        after: &SenderCounters,
    ) {
        let sent = |counters: &SenderCounters| DirectionCounters {
            bytes: counters.plain + counters.literal + counters.delta + counters.referenced,
            wire: 0,
            referenced: counters.referenced,
            delta: counters.delta,
            literal: counters.literal,
            incompressible: counters.incompressible,
            evicted: counters.evicted,
            plain: counters.plain,
            bypassed: counters.bypassed,
        };
        let added = sent(after).minus(&sent(before));
        self.add(rows, wire_bytes, added, |counters| &mut counters.sent);
    }

    /// Counts a frame of a stream with these rows, and ignores a frame of an unknown stream (`None`). `before` and
    /// `after` are the receiver's counters before and after the frame was handled.
    pub(crate) fn count_received(
        &mut self,
        rows: Option<StreamRows>,
        wire_bytes: usize,
        before: &ReceiverCounters,
        after: &ReceiverCounters,
    ) {
        let received = |counters: &ReceiverCounters| DirectionCounters {
            bytes: counters.delivered,
            wire: 0,
            referenced: counters.from_store,
            delta: counters.delta,
            literal: counters.literal,
            incompressible: counters.incompressible,
            evicted: 0,
            plain: counters.plain,
            bypassed: counters.bypassed,
        };
        let added = received(after).minus(&received(before));
        self.add(rows, wire_bytes, added, |counters| &mut counters.received);
    }

    fn add(
        &mut self,
        rows: Option<StreamRows>,
        wire_bytes: usize,
        added: DirectionCounters,
        direction: fn(&mut BodyCounters) -> &mut DirectionCounters,
    ) {
        let Some(rows) = rows else { return };
        let added = DirectionCounters {
            wire: wire_bytes as u64,
            ..added
        };
        for (table, row) in [
            (&mut self.hosts, rows.host),
            (&mut self.types, rows.content_type),
        ] {
            if let Some((_, counters)) = table.rows.get_mut(row) {
                let counters = direction(counters);
                *counters = counters.plus(&added);
            }
        }
    }

    /// Returns the name and the counters of each host.
    pub(crate) fn hosts(&self) -> &[(String, BodyCounters)] {
        &self.hosts.rows
    }

    /// Returns the name and the counters of each content type.
    pub(crate) fn content_types(&self) -> &[(String, BodyCounters)] {
        &self.types.rows
    }
}

impl DirectionCounters {
    fn plus(&self, other: &Self) -> Self {
        self.with(other, |one, other| one + other)
    }

    fn minus(&self, other: &Self) -> Self {
        self.with(other, |one, other| one - other)
    }

    fn with(&self, other: &Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            bytes: combine(self.bytes, other.bytes),
            wire: combine(self.wire, other.wire),
            referenced: combine(self.referenced, other.referenced),
            delta: combine(self.delta, other.delta),
            literal: combine(self.literal, other.literal),
            incompressible: combine(self.incompressible, other.incompressible),
            evicted: combine(self.evicted, other.evicted),
            plain: combine(self.plain, other.plain),
            bypassed: combine(self.bypassed, other.bypassed),
        }
    }
}

/// A table of counters by name. The names beyond the limit share one row.
#[derive(Debug)]
struct Table {
    rows: Vec<(String, BodyCounters)>,
    row_by_name: HashMap<String, usize>,
    /// The highest number of names with rows of their own.
    names_max: usize,
}

impl Table {
    fn new(names_max: usize) -> Self {
        Self {
            rows: Vec::new(),
            row_by_name: HashMap::new(),
            names_max,
        }
    }

    /// Returns the row of a name.
    fn row(&mut self, name: &str) -> usize {
        if let Some(row) = self.row_by_name.get(name) {
            return *row;
        }
        if self.rows.len() < self.names_max {
            return self.add_row(name);
        }
        match self.row_by_name.get(OTHERS) {
            Some(row) => *row,
            None => self.add_row(OTHERS),
        }
    }

    fn add_row(&mut self, name: &str) -> usize {
        self.row_by_name.insert(name.to_owned(), self.rows.len());
        self.rows.push((name.to_owned(), BodyCounters::default()));
        self.rows.len() - 1
    }

    fn is_others(&self, row: usize) -> bool {
        self.rows.get(row).is_some_and(|(name, _)| name == OTHERS)
    }
}

/// The highest number of hosts with separate counters.
const HOSTS_MAX: usize = 256;

/// The highest number of content types with separate counters. Most sites have fewer than twenty.
const TYPES_MAX: usize = 64;

const OTHERS: &str = "(others)";

/// The content type of a stream until a response states it.
const UNKNOWN: &str = "(unknown)";

#[cfg(test)]
mod tests {
    use super::*;

    fn target(host: usize) -> Target {
        let address = format!("host-{host}:1").parse();
        Target::Tcp(address.expect("the text is a host and a port"))
    }

    fn send(traffic: &mut TrafficCounters, rows: StreamRows, referenced: u64) {
        let after = SenderCounters {
            referenced,
            literal: 1,
            ..SenderCounters::default()
        };
        traffic.count_sent(Some(rows), 2, &SenderCounters::default(), &after);
    }

    fn sums(rows: &[(String, BodyCounters)]) -> (u64, u64, u64) {
        rows.iter()
            .fold((0, 0, 0), |(streams, bytes, wire), (_, counters)| {
                let sent = counters.sent;
                (
                    streams + counters.streams,
                    bytes + sent.bytes,
                    wire + sent.wire,
                )
            })
    }

    /// The number of hosts and of content types with separate counters is limited. The bytes of all others are counted
    /// together, and their streams are counted.
    #[test]
    fn hosts_and_content_types_are_bounded() {
        let mut traffic = TrafficCounters::default();
        for n in 0..1000 {
            let rows = traffic.add_stream(&target(n % 500));
            let rows = traffic.set_content_type(rows, &format!("type/{}", n % 100));
            send(&mut traffic, rows, 3);
        }
        assert_eq!(traffic.hosts().len(), HOSTS_MAX + 1);
        assert_eq!(traffic.hosts()[HOSTS_MAX].0, OTHERS);
        assert_eq!(traffic.content_types().len(), TYPES_MAX + 1);
        assert_eq!(sums(traffic.hosts()), (1000, 4000, 2000));
        assert_eq!(sums(traffic.content_types()), (1000, 4000, 2000));
        // 244 of 500 hosts, and 37 of 100 types: the type of a new stream takes one row.
        assert_eq!(traffic.unlisted_streams, 2 * 244 + 10 * 37);
    }

    /// Bytes that were sent before the content type was known are counted as unknown.
    #[test]
    fn a_stream_is_counted_with_its_current_content_type() {
        let mut traffic = TrafficCounters::default();
        let rows = traffic.add_stream(&target(1));
        send(&mut traffic, rows, 3);
        let rows = traffic.set_content_type(rows, "text/html");
        send(&mut traffic, rows, 7);
        let shown = traffic.content_types().iter();
        let shown: Vec<_> = shown
            .map(|(name, counters)| (name.as_str(), counters.streams, counters.sent.referenced))
            .collect();
        assert_eq!(shown, [(UNKNOWN, 0, 3), ("text/html", 1, 7)]);
        assert_eq!(traffic.hosts()[0].1.sent.referenced, 10);
    }
}
