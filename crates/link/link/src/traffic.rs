//! Counters of the bytes of each target host, and of the frames that carried them.

use std::collections::HashMap;

use edgeward_dedup::receiver::ReceiverCounters;
use edgeward_dedup::sender::SenderCounters;

use crate::label::Target;

/// The bytes of one host's bodies, and the bytes of the frames that carried them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounters {
    /// The number of streams to the host.
    pub streams: u64,
    /// Bytes of bodies sent to the peer, before deduplication and compression.
    pub sent: u64,
    /// Bytes of the frames that carried the sent bodies.
    pub sent_wire: u64,
    /// The bytes of `sent` that were replaced by references.
    pub sent_referenced: u64,
    /// The bytes of `sent` in new chunks that were sent as deltas of earlier chunks.
    pub sent_delta: u64,
    /// The bytes of `sent` that were sent without deduplication.
    pub sent_plain: u64,
    /// Bytes of bodies received from the peer, after decompression.
    pub received: u64,
    /// Bytes of the frames that carried the received bodies.
    pub received_wire: u64,
    /// The bytes of `received` that were loaded from the store.
    pub received_referenced: u64,
}

/// The traffic counters of a peer: by host for a limited number of hosts, and totals.
#[derive(Debug, Default)]
pub(crate) struct TrafficCounters {
    hosts: Vec<(String, HostCounters)>,
    index_by_name: HashMap<String, usize>,
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

/// The highest number of hosts with separate counters. Further hosts share one entry.
const HOSTS_MAX: usize = 256;

impl TrafficCounters {
    /// Counts a new stream to the target, and returns the index of the target's counters in [`hosts`](Self::hosts).
    pub(crate) fn add_stream(&mut self, target: &Target) -> usize {
        let name = target.to_string();
        let index = match self.index_by_name.get(&name) {
            Some(index) => *index,
            None => {
                let name = if self.hosts.len() < HOSTS_MAX {
                    name
                } else {
                    OTHERS.to_owned()
                };
                match self.index_by_name.get(&name) {
                    Some(index) => *index,
                    None => {
                        self.index_by_name.insert(name.clone(), self.hosts.len());
                        self.hosts.push((name, HostCounters::default()));
                        self.hosts.len() - 1
                    }
                }
            }
        };
        self.hosts[index].1.streams += 1;
        index
    }

    /// Counts a frame that was encoded for a stream to the host with this index. `None` counts nothing.
    /// `before` and `after` are the sender's counters before and after the encoding. `literal` in these counters is
    /// the bytes of new chunks sent without a delta, and `plain` the bytes that bypassed deduplication.
    pub(crate) fn count_sent(
        &mut self,
        host_index: Option<usize>,
        wire_bytes: usize,
        before: &SenderCounters,
        after: &SenderCounters,
    ) {
        let Some((_, counters)) = host_index.and_then(|index| self.hosts.get_mut(index)) else {
            return;
        };
        let (referenced, delta) = (
            after.referenced - before.referenced,
            after.delta - before.delta,
        );
        let (plain, literal) = (after.plain - before.plain, after.literal - before.literal);
        counters.sent += referenced + delta + plain + literal;
        counters.sent_wire += wire_bytes as u64;
        counters.sent_referenced += referenced;
        counters.sent_delta += delta;
        counters.sent_plain += plain;
    }

    /// Counts a frame of a stream to the host with this index, and ignores a frame of an unknown stream (`None`).
    /// `before` and `after` are the receiver's counters before and after the frame was handled.
    pub(crate) fn count_received(
        &mut self,
        host_index: Option<usize>,
        wire_bytes: usize,
        before: &ReceiverCounters,
        after: &ReceiverCounters,
    ) {
        let Some((_, counters)) = host_index.and_then(|index| self.hosts.get_mut(index)) else {
            return;
        };
        counters.received += after.delivered - before.delivered;
        counters.received_wire += wire_bytes as u64;
        counters.received_referenced += after.from_store - before.from_store;
    }

    /// Returns the name and the counters of each host.
    pub(crate) fn hosts(&self) -> &[(String, HostCounters)] {
        &self.hosts
    }
}

const OTHERS: &str = "(others)";

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of hosts with separate counters is limited. The bytes of all further hosts are counted together.
    #[test]
    fn hosts_are_bounded() {
        let mut traffic = TrafficCounters::default();
        for n in 0..1000 {
            let target = Target::Tcp(
                format!("host-{}:1", n % 500)
                    .parse()
                    .expect("the text is a host and a port"),
            );
            let host_index = traffic.add_stream(&target);
            let after = SenderCounters {
                referenced: 3,
                literal: 1,
                ..SenderCounters::default()
            };
            traffic.count_sent(Some(host_index), 2, &SenderCounters::default(), &after);
        }
        assert_eq!(traffic.hosts().len(), HOSTS_MAX + 1);
        assert_eq!(traffic.hosts()[HOSTS_MAX].0, OTHERS);
        let all = traffic.hosts().iter().map(|(_, counters)| counters);
        let sums = all.fold((0, 0, 0), |(streams, sent, wire), counters| {
            (
                streams + counters.streams,
                sent + counters.sent,
                wire + counters.sent_wire,
            )
        });
        assert_eq!(sums, (1000, 4000, 2000));
    }
}
