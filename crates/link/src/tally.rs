//! What was saved, and for whom.

use std::collections::HashMap;

use edgeward_dedup::receiver::ReceiverCounters;
use edgeward_dedup::sender::SenderCounters;

use crate::label::Target;

/// Bytes of one host's bodies, and what they took on the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Conversations.
    pub streams: u64,
    /// Bytes of bodies sent to the peer.
    pub sent: u64,
    /// Bytes of their frames.
    pub sent_wire: u64,
    /// Of what was sent: named instead.
    pub sent_named: u64,
    /// Of what was sent: new chunks, compressed against old ones.
    pub sent_delta: u64,
    /// Of what was sent: neither looked up nor kept.
    pub sent_plain: u64,
    /// Bytes of bodies that came from the peer.
    pub received: u64,
    /// Bytes of their frames.
    pub received_wire: u64,
    /// Of what was received: out of the store.
    pub received_named: u64,
}

/// Tallies by host, bounded.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    hosts: Vec<(String, Tally)>,
    by_name: HashMap<String, usize>,
    /// Bodies that were left alone because of how they began.
    pub(crate) bypassed: u64,
    /// Frames that waited for the disk, and how often a connection did since there were so many.
    pub(crate) late: u64,
    pub(crate) held_up: u64,
}

/// Of further ones nobody knows more than that they are others.
const HOSTS_MAX: usize = 256;

impl Tallies {
    /// Where a target is tallied.
    pub(crate) fn host(&mut self, target: &Target) -> usize {
        let name = target.to_string();
        let at = match self.by_name.get(&name) {
            Some(at) => *at,
            None => {
                let name = if self.hosts.len() < HOSTS_MAX {
                    name
                } else {
                    OTHERS.to_owned()
                };
                match self.by_name.get(&name) {
                    Some(at) => *at,
                    None => {
                        self.by_name.insert(name.clone(), self.hosts.len());
                        self.hosts.push((name, Tally::default()));
                        self.hosts.len() - 1
                    }
                }
            }
        };
        self.hosts[at].1.streams += 1;
        at
    }

    pub(crate) fn sent(
        &mut self,
        host: Option<usize>,
        wire_bytes: usize,
        before: &SenderCounters,
        after: &SenderCounters,
    ) {
        let Some((_, tally)) = host.and_then(|host| self.hosts.get_mut(host)) else {
            return;
        };
        let (named, delta) = (after.named - before.named, after.delta - before.delta);
        let (plain, literal) = (after.plain - before.plain, after.literal - before.literal);
        tally.sent += named + delta + plain + literal;
        tally.sent_wire += wire_bytes as u64;
        tally.sent_named += named;
        tally.sent_delta += delta;
        tally.sent_plain += plain;
    }

    pub(crate) fn received(
        &mut self,
        host: Option<usize>,
        wire_bytes: usize,
        before: &ReceiverCounters,
        after: &ReceiverCounters,
    ) {
        let Some((_, tally)) = host.and_then(|host| self.hosts.get_mut(host)) else {
            return;
        };
        tally.received += after.delivered - before.delivered;
        tally.received_wire += wire_bytes as u64;
        tally.received_named += after.from_store - before.from_store;
    }

    pub(crate) fn hosts(&self) -> &[(String, Tally)] {
        &self.hosts
    }
}

const OTHERS: &str = "(others)";

#[cfg(test)]
mod tests {
    use super::*;

    /// However many hosts there are, a bounded number is told apart, and nothing is lost.
    #[test]
    fn hosts_are_bounded() {
        let mut tallies = Tallies::default();
        for n in 0..1000 {
            let target = Target::Tcp(format!("host-{}:1", n % 500).parse().expect("a place"));
            let host = tallies.host(&target);
            let after = SenderCounters {
                named: 3,
                literal: 1,
                ..SenderCounters::default()
            };
            tallies.sent(Some(host), 2, &SenderCounters::default(), &after);
        }
        assert_eq!(tallies.hosts().len(), HOSTS_MAX + 1);
        assert_eq!(tallies.hosts()[HOSTS_MAX].0, OTHERS);
        let all = tallies.hosts().iter().map(|(_, tally)| tally);
        let sums = all.fold((0, 0, 0), |(streams, sent, wire), tally| {
            (
                streams + tally.streams,
                sent + tally.sent,
                wire + tally.sent_wire,
            )
        });
        assert_eq!(sums, (1000, 4000, 2000));
    }
}
