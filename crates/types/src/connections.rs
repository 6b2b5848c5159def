//! Which connection a full server closes.
//!
//! A server has a bounded number of connections. If it only waits for one to end, clients that stay silent, or take no
//! response, keep everybody else out. So a full server closes a connection instead: one that waits for its
//! client, which owes the server bytes or has not taken the server's. The one that has waited longest goes first, and
//! the address with the most connections loses one before any other. An honest client sends its request within
//! milliseconds, so it is served however many silent connections come.
//!
//! Connections that have not sent a first request have a smaller bound of their own, so that they replace each other
//! and not the connections of clients that are served.

// Addresses alone: `core` has no sockets.
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::{BTreeMap, HashMap};

/// The client that an address stands for: an IPv4 address, or an IPv6 network of 64 bits, which one host can have to
/// itself (RFC 4291 §2.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClientNet {
    /// An IPv4 address, also one that was mapped into IPv6.
    V4(Ipv4Addr),
    /// The first 64 bits of an IPv6 address.
    V6(u64),
}

impl From<IpAddr> for ClientNet {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => Self::V6((address.to_bits() >> 64) as u64),
        }
    }
}

impl ClientNet {
    /// The network's first address, for logs.
    pub fn first(self) -> IpAddr {
        match self {
            Self::V4(address) => address.into(),
            Self::V6(net) => Ipv6Addr::from_bits(u128::from(net) << 64).into(),
        }
    }
}

/// Bounds of a [`ConnectionTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// All connections.
    pub connections_max: usize,
    /// Connections that have not sent a first request, or have not proved who they are.
    pub unserved_max: usize,
    /// Connections of one [`ClientNet`].
    pub per_client_max: usize,
}

/// The name of a connection in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(u64);

/// The connections of a server.
#[derive(Debug)]
pub struct ConnectionTable {
    limits: ConnectionLimits,
    connections: BTreeMap<ConnectionId, Entry>,
    by_client: HashMap<ClientNet, usize>,
    unserved: usize,
    /// Counts everything that happens: the order in which connections began to wait.
    clock: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    client: ClientNet,
    served: bool,
    /// Since when it has waited for its client. `None` while the server works for it.
    waits_since: Option<u64>,
}

/// A connection that got a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The connection.
    pub id: ConnectionId,
    /// The connection that has to be closed for it. It is no longer in the table.
    pub closed: Option<ConnectionId>,
}

/// Why a connection gets no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// Every place is taken by a connection that the server works for.
    Full,
    /// The client has its share, and the server works for all of its connections.
    ClientFull,
}

impl ConnectionTable {
    /// An empty table. Bounds of 0 are taken for 1.
    pub fn new(limits: ConnectionLimits) -> Self {
        Self {
            limits: ConnectionLimits {
                connections_max: limits.connections_max.max(1),
                unserved_max: limits.unserved_max.max(1),
                per_client_max: limits.per_client_max.max(1),
            },
            connections: BTreeMap::new(),
            by_client: HashMap::new(),
            unserved: 0,
            clock: 0,
        }
    }

    /// The number of connections.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Whether a connection of a client that has none would get a place.
    pub fn has_room(&self) -> bool {
        self.len() < self.limits.connections_max
            || self
                .connections
                .values()
                .any(|entry| entry.waits_since.is_some())
    }

    /// Gives a new connection a place. It waits for its client until [`serve`](Self::serve).
    pub fn accept(&mut self, from: IpAddr) -> Result<Accepted, NoPlace> {
        let client = ClientNet::from(from);
        let held = self.by_client.get(&client).copied().unwrap_or(0);
        let closed = if held >= self.limits.per_client_max {
            let own = self.longest_waiting(|entry| entry.client == client);
            Some(own.ok_or(NoPlace::ClientFull)?)
        } else if self.unserved >= self.limits.unserved_max {
            // One that is worked for already is about to be a served one.
            self.longest_waiting(|entry| !entry.served)
        } else {
            None
        };
        let closed = match closed {
            None if self.len() >= self.limits.connections_max => {
                Some(self.longest_waiting(|_| true).ok_or(NoPlace::Full)?)
            }
            closed => closed,
        };
        if let Some(id) = closed {
            self.leave(id);
        }
        self.clock += 1;
        let id = ConnectionId(self.clock);
        let entry = Entry {
            client,
            served: false,
            waits_since: Some(self.clock),
        };
        self.connections.insert(id, entry);
        *self.by_client.entry(client).or_default() += 1;
        self.unserved += 1;
        Ok(Accepted { id, closed })
    }

    /// The server works for the connection from now on: a whole request came.
    pub fn serve(&mut self, id: ConnectionId) {
        if let Some(entry) = self.connections.get_mut(&id) {
            entry.waits_since = None;
            if !std::mem::replace(&mut entry.served, true) {
                self.unserved -= 1;
            }
        }
    }

    /// The connection no longer waits for its client, who took bytes.
    pub fn resume(&mut self, id: ConnectionId) {
        if let Some(entry) = self.connections.get_mut(&id) {
            entry.waits_since = None;
        }
    }

    /// The connection waits for its client from now on, unless it does already.
    pub fn wait(&mut self, id: ConnectionId) {
        if let Some(entry) = self.connections.get_mut(&id)
            && entry.waits_since.is_none()
        {
            self.clock += 1;
            entry.waits_since = Some(self.clock);
        }
    }

    /// The connection has ended. Returns whether it was in the table.
    pub fn leave(&mut self, id: ConnectionId) -> bool {
        let Some(entry) = self.connections.remove(&id) else {
            return false;
        };
        self.unserved -= usize::from(!entry.served);
        if let Some(held) = self.by_client.get_mut(&entry.client) {
            *held -= 1;
            if *held == 0 {
                self.by_client.remove(&entry.client);
            }
        }
        true
    }

    /// Of the connections that wait and fit, the one that has waited longest, of the client with the most connections.
    fn longest_waiting(&self, fits: impl Fn(&Entry) -> bool) -> Option<ConnectionId> {
        let waiting = self.connections.iter().filter(|(_, entry)| fits(entry));
        let ranked = waiting.filter_map(|(id, entry)| {
            let held = self.by_client.get(&entry.client).copied().unwrap_or(0);
            let since = entry.waits_since?;
            Some((std::cmp::Reverse(held), since, *id))
        });
        ranked.min().map(|(_, _, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(
        connections_max: usize,
        unserved_max: usize,
        per_client_max: usize,
    ) -> ConnectionTable {
        ConnectionTable::new(ConnectionLimits {
            connections_max,
            unserved_max,
            per_client_max,
        })
    }

    fn v4(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    /// An IPv6 client is its network of 64 bits; an IPv4 address stays itself when it is mapped into IPv6.
    #[test]
    fn a_client_is_an_ipv4_address_or_an_ipv6_network_of_64_bits() {
        let client = |text: &str| ClientNet::from(text.parse::<IpAddr>().expect("an address"));
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:0:1"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
        assert_eq!(
            client("2001:db8:1:2:3::4").first().to_string(),
            "2001:db8:1:2::"
        );
    }

    /// An honest client is served while silent connections fill the table again and again.
    #[test]
    fn silent_connections_replace_each_other() {
        let mut table = table(8, 4, 8);
        let served: Vec<_> = (0..4)
            .map(|n| {
                let id = table.accept(v4(n)).expect("a place").id;
                table.serve(id);
                id
            })
            .collect();
        let silent: Vec<_> = (0..4)
            .map(|_| table.accept(v4(99)).expect("a place").id)
            .collect();
        for nth in 0..100 {
            let accepted = table.accept(v4(99)).expect("a place");
            let closed = accepted.closed.expect("the silent ones have four places");
            assert!(!served.contains(&closed), "{nth}");
            if let Some(oldest) = silent.get(nth) {
                assert_eq!(closed, *oldest, "the oldest goes first");
            }
        }
        let honest = table.accept(v4(5)).expect("a place");
        table.serve(honest.id);
        assert_eq!(table.len(), 8);
        assert!(served.iter().all(|id| table.leave(*id)), "all are there");
    }

    /// The address with the most connections loses one before the others do, however long those have waited.
    #[test]
    fn the_client_with_the_most_connections_loses_one_first() {
        let mut table = table(4, 4, 4);
        let old = table.accept(v4(1)).expect("a place").id;
        let many: Vec<_> = (0..3)
            .map(|_| table.accept(v4(2)).expect("a place").id)
            .collect();
        let accepted = table.accept(v4(3)).expect("a place");
        assert_eq!(accepted.closed, Some(many[0]));
        assert!(table.leave(old));
    }

    /// A connection that the server works for is never closed; a client beyond its share closes only its own.
    #[test]
    fn what_is_worked_for_stays() {
        let mut table = table(3, 3, 2);
        let busy = table.accept(v4(1)).expect("a place").id;
        let idle = table.accept(v4(1)).expect("a place").id;
        table.serve(busy);
        table.serve(idle);
        table.wait(idle);
        let other = table.accept(v4(2)).expect("a place");
        assert_eq!(other.closed, None);
        let third = table.accept(v4(1)).expect("its own place");
        assert_eq!(third.closed, Some(idle));
        table.serve(third.id);
        assert_eq!(table.accept(v4(1)), Err(NoPlace::ClientFull));
        assert!(table.has_room(), "the other one waits");
        table.serve(other.id);
        assert!(!table.has_room());
        assert_eq!(table.accept(v4(3)), Err(NoPlace::Full));
        assert!(table.leave(busy) && !table.leave(busy));
        assert!(table.accept(v4(3)).expect("a place").closed.is_none());
    }

    /// Random events against the bounds: no bound is passed, and a place is refused only if nothing waits.
    #[test]
    fn no_bound_is_passed_by_random_events() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut roll = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let mut table = table(10, 4, 5);
        let mut live = Vec::new();
        for _ in 0..20_000 {
            let pick = (!live.is_empty()).then(|| roll(live.len() as u64) as usize);
            match (roll(4), pick) {
                (0, Some(at)) => table.serve(live[at]),
                (1, Some(at)) => table.wait(live[at]),
                (2, Some(at)) => assert!(table.leave(live.swap_remove(at))),
                _ => {
                    let room = table.has_room();
                    match table.accept(v4(roll(6) as u8)) {
                        Ok(accepted) => {
                            live.retain(|id| Some(*id) != accepted.closed);
                            live.push(accepted.id);
                        }
                        Err(NoPlace::Full) => assert!(!room),
                        Err(NoPlace::ClientFull) => {}
                    }
                }
            }
            assert_eq!(table.len(), live.len());
            assert!(table.len() <= 10 && table.unserved <= 4);
            assert!(table.by_client.values().all(|held| *held <= 5));
            let counted = table
                .connections
                .values()
                .filter(|entry| !entry.served)
                .count();
            assert_eq!(table.unserved, counted);
        }
    }
}
