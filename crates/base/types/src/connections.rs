//! The connections of a server with a bound, and the choice of the connection that a full server closes.
//!
//! If a full server only waited for a connection to end, clients that send nothing or read no response would
//! exclude all others. A full server therefore closes a connection that waits for its client, that is, a
//! connection whose client has to send or to read bytes.
//!
//! - Among the connections of the client with the most waiting connections, the server selects the one that has
//!   waited longest. If it has waited [`IDLE_AFTER`] or longer, it is closed.
//! - Otherwise the server closes the connection that has waited longest among all clients. An active client may
//!   have the most waiting connections, but each waits only for a moment. This rule keeps them open while many
//!   addresses open one connection after the other.
//!
//! Connections that have not sent a first request have a smaller bound of their own, so that they replace each other
//! and not the connections of clients that are served. Each call takes logarithmic time.

// This crate must not use sockets. `core::net` has addresses but no sockets, unlike `std::net`.
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use crate::Timestamp;

/// The unit in which the bounds count clients: an IPv4 address, or an IPv6 network with a prefix of 64 bits.
/// One host can use all addresses of such a network (RFC 4291 §2.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClientNet {
    /// An IPv4 address, or an IPv4-mapped IPv6 address.
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
    /// Returns the first address of the network, for logs.
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
    /// Bound of all connections.
    pub connections_max: usize,
    /// Bound of the connections that have not sent a first request or are not authenticated. The table may
    /// exceed this bound by one connection for each client that has `per_client_max` connections: a new connection
    /// of such a client replaces a served one if all its waiting connections are served.
    pub unserved_max: usize,
    /// Bound of the connections of one [`ClientNet`].
    pub per_client_max: usize,
}

/// The time after which a waiting connection counts as idle. It is several times the round-trip time of any
/// network path.
pub const IDLE_AFTER: Duration = Duration::from_secs(1);

/// Identifies a connection in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(u64);

/// The connections of a server.
#[derive(Debug)]
pub struct ConnectionTable {
    limits: ConnectionLimits,
    connections: HashMap<ConnectionId, Entry>,
    by_client: HashMap<ClientNet, usize>,
    unserved: usize,
    /// The connections that wait for their client.
    waiting: WaitOrder,
    /// The part of `waiting` that has not sent a first request.
    waiting_unserved: WaitOrder,
    /// Number of accepted connections and started waits so far. Each of these events increases it. The result is
    /// the id of the new connection or the number of the new wait.
    events: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    client: ClientNet,
    served: bool,
    /// The wait for the client. `None` while the server works for the connection.
    wait: Option<Wait>,
}

/// A connection that waits for its client.
#[derive(Clone, Copy, Debug)]
struct Wait {
    id: ConnectionId,
    client: ClientNet,
    /// The unique number of the event that started the wait.
    event: u64,
    since: Timestamp,
}

/// Waiting connections in the order in which their waits began: those of all clients, and those of each client.
#[derive(Debug, Default)]
struct WaitOrder {
    by_age: BTreeMap<u64, Wait>,
    by_client: HashMap<ClientNet, BTreeMap<u64, Wait>>,
    /// For each client: the number of its waiting connections, and the event of its longest wait. The client
    /// that loses a connection is the last in this order.
    ranks: BTreeSet<(usize, Reverse<u64>, ClientNet)>,
}

/// An accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The connection.
    pub id: ConnectionId,
    /// The connection that the server has to close in exchange. It is no longer in the table.
    pub closed: Option<ConnectionId>,
}

/// The reason why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptError {
    /// The table is full, and the server works for all connections.
    TableFull,
    /// The client has `per_client_max` connections, and the server works for all of them.
    ClientFull,
}

impl ConnectionTable {
    /// Returns an empty table. A bound of 0 counts as 1.
    pub fn new(limits: ConnectionLimits) -> Self {
        Self {
            limits: ConnectionLimits {
                connections_max: limits.connections_max.max(1),
                unserved_max: limits.unserved_max.max(1),
                per_client_max: limits.per_client_max.max(1),
            },
            connections: HashMap::new(),
            by_client: HashMap::new(),
            unserved: 0,
            waiting: WaitOrder::default(),
            waiting_unserved: WaitOrder::default(),
            events: 0,
        }
    }

    /// The number of connections.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Returns true if the table has no connection.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Returns true if a connection of a client that has no other would be accepted.
    pub fn has_room(&self) -> bool {
        self.len() < self.limits.connections_max || !self.waiting.by_age.is_empty()
    }

    /// Adds a new connection. It waits for its client until [`serve`](Self::serve).
    pub fn accept(&mut self, from: IpAddr, now: Timestamp) -> Result<Accepted, AcceptError> {
        let client = ClientNet::from(from);
        let connections = self.by_client.get(&client).copied().unwrap_or(0);
        let is_unserved_full = self.unserved >= self.limits.unserved_max;
        let closed = if connections >= self.limits.per_client_max {
            let unserved =
                is_unserved_full.then(|| self.waiting_unserved.longest_waiting_of(client));
            let replaced = unserved
                .flatten()
                .or_else(|| self.waiting.longest_waiting_of(client));
            Some(replaced.ok_or(AcceptError::ClientFull)?)
        } else if is_unserved_full {
            // The result may be `None`: if the server works for all unserved connections, they become served
            // soon, and no connection is closed for this bound.
            self.waiting_unserved.connection_to_close(now)
        } else {
            None
        };
        let closed = match closed {
            None if self.len() >= self.limits.connections_max => Some(
                self.waiting
                    .connection_to_close(now)
                    .ok_or(AcceptError::TableFull)?,
            ),
            closed => closed,
        };
        if let Some(id) = closed {
            self.leave(id);
        }
        self.events += 1;
        let id = ConnectionId(self.events);
        let entry = Entry {
            client,
            served: false,
            wait: None,
        };
        self.connections.insert(id, entry);
        *self.by_client.entry(client).or_default() += 1;
        self.unserved += 1;
        self.wait(id, now);
        Ok(Accepted { id, closed })
    }

    /// Records that the server works for the connection, because a complete request has arrived.
    pub fn serve(&mut self, id: ConnectionId) {
        self.resume(id);
        if let Some(entry) = self.connections.get_mut(&id)
            && !std::mem::replace(&mut entry.served, true)
        {
            self.unserved -= 1;
        }
    }

    /// Records that the connection no longer waits, because its client has read bytes.
    pub fn resume(&mut self, id: ConnectionId) {
        if let Some(entry) = self.connections.get_mut(&id)
            && let Some(wait) = entry.wait.take()
        {
            self.waiting.remove(wait);
            if !entry.served {
                self.waiting_unserved.remove(wait);
            }
        }
    }

    /// Records that the connection waits for its client, unless it waits already.
    pub fn wait(&mut self, id: ConnectionId, now: Timestamp) {
        if let Some(entry) = self.connections.get_mut(&id)
            && entry.wait.is_none()
        {
            self.events += 1;
            let wait = Wait {
                id,
                client: entry.client,
                event: self.events,
                since: now,
            };
            entry.wait = Some(wait);
            self.waiting.insert(wait);
            if !entry.served {
                self.waiting_unserved.insert(wait);
            }
        }
    }

    /// Removes a connection that has ended. Returns true if it was in the table.
    pub fn leave(&mut self, id: ConnectionId) -> bool {
        self.resume(id);
        let Some(entry) = self.connections.remove(&id) else {
            return false;
        };
        self.unserved -= usize::from(!entry.served);
        if let Some(connections) = self.by_client.get_mut(&entry.client) {
            *connections -= 1;
            if *connections == 0 {
                self.by_client.remove(&entry.client);
            }
        }
        true
    }
}

impl WaitOrder {
    fn insert(&mut self, wait: Wait) {
        self.by_age.insert(wait.event, wait);
        self.change_client(wait.client, |waits| _ = waits.insert(wait.event, wait));
    }

    fn remove(&mut self, wait: Wait) {
        self.by_age.remove(&wait.event);
        self.change_client(wait.client, |waits| _ = waits.remove(&wait.event));
    }

    /// Changes the waits of a client and updates its rank.
    fn change_client(&mut self, client: ClientNet, change: impl FnOnce(&mut BTreeMap<u64, Wait>)) {
        let rank = |waits: &BTreeMap<u64, Wait>| {
            let (first, _) = waits.first_key_value()?;
            Some((waits.len(), Reverse(*first), client))
        };
        let waits = self.by_client.entry(client).or_default();
        if let Some(old) = rank(waits) {
            self.ranks.remove(&old);
        }
        change(waits);
        match rank(waits) {
            Some(new) => _ = self.ranks.insert(new),
            None => _ = self.by_client.remove(&client),
        }
    }

    /// Returns the connection of `client` that has waited longest.
    fn longest_waiting_of(&self, client: ClientNet) -> Option<ConnectionId> {
        let (_, wait) = self.by_client.get(&client)?.first_key_value()?;
        Some(wait.id)
    }

    /// Returns the connection that a new one replaces.
    fn connection_to_close(&self, now: Timestamp) -> Option<ConnectionId> {
        let (_, oldest) = self.by_age.first_key_value()?;
        let (_, Reverse(first), _) = self.ranks.last()?;
        let heaviest = self.by_age.get(first).unwrap_or(oldest);
        let is_idle = now.since(heaviest.since) >= IDLE_AFTER;
        Some(if is_idle { heaviest.id } else { oldest.id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitMix64;

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

    /// Returns the time at which a connection that waits since time zero counts as idle.
    fn idle_time() -> Timestamp {
        Timestamp::ZERO.after(IDLE_AFTER)
    }

    /// Accepts a connection. Panics if the table refuses it.
    fn accept(table: &mut ConnectionTable, client: IpAddr, now: Timestamp) -> Accepted {
        table.accept(client, now).expect("the table has room")
    }

    fn v4(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    /// All addresses of an IPv6 network with a prefix of 64 bits are one client. An IPv4-mapped IPv6 address is
    /// the same client as the IPv4 address.
    #[test]
    fn a_client_is_an_ipv4_address_or_an_ipv6_network_of_64_bits() {
        let client =
            |text: &str| ClientNet::from(text.parse::<IpAddr>().expect("the text is an address"));
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
                let id = accept(&mut table, v4(n), Timestamp::ZERO).id;
                table.serve(id);
                id
            })
            .collect();
        let silent: Vec<_> = (0..4)
            .map(|_| accept(&mut table, v4(99), Timestamp::ZERO).id)
            .collect();
        for nth in 0..100 {
            let accepted = accept(&mut table, v4(99), Timestamp::ZERO);
            let closed = accepted
                .closed
                .expect("four silent connections reach the bound");
            assert!(!served.contains(&closed), "{nth}");
            if let Some(oldest) = silent.get(nth) {
                assert_eq!(closed, *oldest, "the oldest goes first");
            }
        }
        let honest = accept(&mut table, v4(5), Timestamp::ZERO);
        table.serve(honest.id);
        assert_eq!(table.len(), 8);
        assert!(
            served.iter().all(|id| table.leave(*id)),
            "all served connections are still in the table"
        );
    }

    /// The address with the most connections loses one first, even if connections of other addresses have
    /// waited longer.
    #[test]
    fn the_client_with_the_most_connections_loses_one_first() {
        let mut table = table(4, 4, 4);
        let old = accept(&mut table, v4(1), Timestamp::ZERO).id;
        let many: Vec<_> = (0..3)
            .map(|_| accept(&mut table, v4(2), Timestamp::ZERO).id)
            .collect();
        let accepted = accept(&mut table, v4(3), idle_time());
        assert_eq!(accepted.closed, Some(many[0]));
        assert!(table.leave(old));
    }

    /// A connection for which the server works is never closed. A client with `per_client_max` connections can
    /// only replace its own connections.
    #[test]
    fn a_connection_that_the_server_works_for_is_not_closed() {
        let mut table = table(3, 3, 2);
        let busy = accept(&mut table, v4(1), Timestamp::ZERO).id;
        let idle = accept(&mut table, v4(1), Timestamp::ZERO).id;
        table.serve(busy);
        table.serve(idle);
        table.wait(idle, Timestamp::ZERO);
        let other = accept(&mut table, v4(2), Timestamp::ZERO);
        assert_eq!(other.closed, None);
        let third = table
            .accept(v4(1), Timestamp::ZERO)
            .expect("the client's idle connection is replaced");
        assert_eq!(third.closed, Some(idle));
        table.serve(third.id);
        assert_eq!(
            table.accept(v4(1), Timestamp::ZERO),
            Err(AcceptError::ClientFull)
        );
        assert!(table.has_room(), "the connection of the other client waits");
        table.serve(other.id);
        assert!(!table.has_room());
        assert_eq!(
            table.accept(v4(3), Timestamp::ZERO),
            Err(AcceptError::TableFull)
        );
        assert!(table.leave(busy) && !table.leave(busy));
        assert!(accept(&mut table, v4(3), Timestamp::ZERO).closed.is_none());
    }

    /// An active client keeps its five connections while sixteen addresses take turns and open one connection per
    /// millisecond.
    #[test]
    fn an_active_client_keeps_its_connections_beside_many_addresses_with_few_each() {
        let mut table = table(32, 32, 16);
        let now = |ms| Timestamp::from_millis(ms);
        let active: Vec<_> = (0..5)
            .map(|_| accept(&mut table, v4(200), now(0)).id)
            .collect();
        for ms in 0..3000 {
            for id in &active {
                table.serve(*id);
                table.wait(*id, now(ms));
            }
            let accepted = accept(&mut table, v4((ms % 16) as u8), now(ms));
            let closed = accepted.closed.is_none_or(|id| !active.contains(&id));
            assert!(closed, "an active connection was closed after {ms} ms");
        }
    }

    /// Returns the connection to close by a search of all connections, as the module's documentation defines it.
    fn searched_connection_to_close(
        table: &ConnectionTable,
        from: IpAddr,
        now: Timestamp,
    ) -> Option<ConnectionId> {
        let client = ClientNet::from(from);
        let connections_of = |client| {
            table
                .connections
                .values()
                .filter(move |entry| entry.client == client)
        };
        let select = |fits: &dyn Fn(&Entry) -> bool| {
            let waits = || {
                let fitting = table.connections.values().filter(|entry| fits(entry));
                fitting.filter_map(|entry| entry.wait)
            };
            let rank = |wait: &Wait| {
                let count = waits().filter(|other| other.client == wait.client).count();
                (Reverse(count), wait.event)
            };
            let heaviest = waits().min_by_key(rank)?;
            let is_idle = now.since(heaviest.since) >= IDLE_AFTER;
            let oldest = waits().min_by_key(|wait| wait.event)?;
            Some(if is_idle { heaviest.id } else { oldest.id })
        };
        let unserved = table.connections.values().filter(|entry| !entry.served);
        let is_unserved_full = unserved.count() >= table.limits.unserved_max;
        if connections_of(client).count() >= table.limits.per_client_max {
            let waiting = connections_of(client).filter(|entry| entry.wait.is_some());
            let rank = |entry: &&Entry| {
                let event = entry.wait.map(|wait| wait.event);
                (is_unserved_full && entry.served, event)
            };
            return waiting.min_by_key(rank)?.wait.map(|wait| wait.id);
        }
        let closed = is_unserved_full
            .then(|| select(&|entry| !entry.served))
            .flatten();
        let is_full = table.len() >= table.limits.connections_max;
        closed.or_else(|| is_full.then(|| select(&|_| true)).flatten())
    }

    /// After random events, no bound is exceeded. The closed connection is the one that a search of all
    /// connections finds, and a new connection is refused only if no other connection waits.
    #[test]
    fn random_events_close_the_connection_that_the_definition_names() {
        let mut random = SplitMix64(1);
        let mut roll = |below| random.below(below);
        let mut table = table(10, 4, 5);
        let mut live = Vec::new();
        let mut ms = 0;
        for _ in 0..20_000 {
            ms += roll(400);
            let now = Timestamp::from_millis(ms);
            let index = (!live.is_empty()).then(|| roll(live.len() as u64) as usize);
            match (roll(6), index) {
                (0, Some(index)) => table.serve(live[index]),
                // Only a served connection has a response that its client can read.
                (1, Some(index)) if table.connections[&live[index]].served => {
                    table.resume(live[index]);
                }
                (2, Some(index)) => table.wait(live[index], now),
                (3, Some(index)) => assert!(table.leave(live.swap_remove(index))),
                _ => {
                    let has_room = table.has_room();
                    let from = v4(roll(6) as u8);
                    let expected = searched_connection_to_close(&table, from, now);
                    match table.accept(from, now) {
                        Ok(accepted) => {
                            assert_eq!(accepted.closed, expected);
                            live.retain(|id| Some(*id) != accepted.closed);
                            live.push(accepted.id);
                        }
                        Err(AcceptError::TableFull) => assert!(!has_room),
                        Err(AcceptError::ClientFull) => {}
                    }
                }
            }
            assert_eq!(table.len(), live.len());
            // At most two clients can have `per_client_max` connections, and each may exceed `unserved_max` by one.
            assert!(table.len() <= 10 && table.unserved <= 4 + 2);
            assert!(
                table
                    .by_client
                    .values()
                    .all(|connections| *connections <= 5)
            );
            let counted = table
                .connections
                .values()
                .filter(|entry| !entry.served)
                .count();
            assert_eq!(table.unserved, counted);
        }
    }
}
