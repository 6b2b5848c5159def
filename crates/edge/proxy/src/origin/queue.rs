//! Requests that wait for a connection to the origin, and each client's share of the connections.
//!
//! A client is an IPv4 address or a /64 network of IPv6. Two rules prevent that one client takes all connections:
//!
//! - *Share*: a client gets a connection if it holds fewer than `share / (100 - share)` times the free ones (dynamic
//!   threshold of Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", 1998).
//!   A single client gets `share` percent of the pool. The more clients use the pool, the fewer connections each
//!   client gets, and some connections stay free for a client without a connection.
//! - *Turns*: waiting clients take turns, and the requests of one client are served in the order of their arrival.
//!   When the queue is full, a request of a client with few waiting requests replaces the newest one of the busiest.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use edgeward_types::ClientNet;

/// The connections in use by each client, and `share` in percent.
#[derive(Debug)]
pub(super) struct Shares {
    percent: u32,
    in_use: RefCell<BTreeMap<ClientNet, usize>>,
}

impl Shares {
    pub(super) fn new(percent: u32) -> Self {
        Self {
            percent,
            in_use: RefCell::default(),
        }
    }

    /// Returns true if a client may take one of `free` connections.
    pub(super) fn allows(&self, client: ClientNet, free: usize) -> bool {
        if free == 0 || self.percent >= 100 {
            return free > 0;
        }
        let in_use = self.in_use.borrow().get(&client).copied().unwrap_or(0);
        let percent = self.percent as usize;
        in_use * (100 - percent) < free * percent
    }

    pub(super) fn acquire(&self, client: ClientNet) {
        if self.percent < 100 {
            *self.in_use.borrow_mut().entry(client).or_default() += 1;
        }
    }

    pub(super) fn release(&self, client: ClientNet) {
        if self.percent >= 100 {
            return;
        }
        let mut in_use = self.in_use.borrow_mut();
        if let Some(count) = in_use.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                in_use.remove(&client);
            }
        }
    }
}

/// Waiting requests (tickets) by client, at most `max`. The first client in the list is served next.
#[derive(Debug)]
pub(super) struct Queue<T> {
    clients: VecDeque<(ClientNet, VecDeque<T>)>,
    len: usize,
    max: usize,
}

/// The result of [`Queue::push`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Queued<T> {
    Waits,
    /// The request waits, and the returned request was removed from the queue.
    Displaced(T),
    /// The queue is full, and no client has at least two more waiting requests than this client.
    Full,
}

impl<T> Queue<T> {
    pub(super) fn new(max: usize) -> Self {
        Self {
            clients: VecDeque::new(),
            len: 0,
            max,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn push(&mut self, client: ClientNet, ticket: T) -> Queued<T> {
        let mut displaced = None;
        if self.len >= self.max {
            let waiting = self.clients.iter().find(|(net, _)| *net == client);
            let own_len = waiting.map_or(0, |(_, tickets)| tickets.len());
            let busiest = self
                .clients
                .iter_mut()
                .max_by_key(|(_, tickets)| tickets.len());
            match busiest {
                Some((_, tickets)) if tickets.len() > own_len + 1 => {
                    displaced = tickets.pop_back();
                    self.len -= 1;
                }
                _ => return Queued::Full,
            }
        }
        self.len += 1;
        match self.clients.iter_mut().find(|(net, _)| *net == client) {
            Some((_, tickets)) => tickets.push_back(ticket),
            None => self.clients.push_back((client, VecDeque::from([ticket]))),
        }
        displaced.map_or(Queued::Waits, Queued::Displaced)
    }

    /// Removes the request of `client` that `is_it` accepts. Returns `None` if the queue has no such request.
    pub(super) fn remove(&mut self, client: ClientNet, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let at = self.clients.iter().position(|(net, _)| *net == client)?;
        let tickets = &mut self.clients[at].1;
        let ticket = tickets.iter().position(is_it)?;
        let ticket = tickets.remove(ticket)?;
        if tickets.is_empty() {
            self.clients.remove(at);
        }
        self.len -= 1;
        Some(ticket)
    }

    /// Takes the oldest request of the first client in the list that `is_allowed` accepts.
    pub(super) fn next(&mut self, is_allowed: impl Fn(ClientNet) -> bool) -> Option<T> {
        let at = self
            .clients
            .iter()
            .position(|(client, _)| is_allowed(*client))?;
        let (client, mut tickets) = self.clients.remove(at)?;
        let ticket = tickets.pop_front()?;
        if !tickets.is_empty() {
            self.clients.push_back((client, tickets));
        }
        self.len -= 1;
        Some(ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(text: &str) -> ClientNet {
        ClientNet::V4(text.parse().expect("an address"))
    }

    /// Lets each client take all connections that it may. Returns each client's connections and the free connections.
    fn connections_of_each(clients: u32, pool: usize, percent: u32) -> (Vec<usize>, usize) {
        let shares = Shares::new(percent);
        let mut in_use = vec![0; clients as usize];
        let mut free = pool;
        loop {
            let before = free;
            for (n, in_use) in in_use.iter_mut().enumerate() {
                let client = ClientNet::V6(n as u64);
                if shares.allows(client, free) {
                    shares.acquire(client);
                    *in_use += 1;
                    free -= 1;
                }
            }
            if free == before {
                return (in_use, free);
            }
        }
    }

    #[test]
    fn one_client_gets_its_share_and_many_clients_leave_connections_free() {
        let (alone, free) = connections_of_each(1, 500, 80);
        assert_eq!((alone[0], free), (400, 100));
        for clients in 2..60 {
            let (in_use, free) = connections_of_each(clients, 500, 80);
            assert!(free > 0, "{clients} clients take everything");
            let (least, most) = (in_use.iter().min(), in_use.iter().max());
            assert!(most.expect("one") - least.expect("one") <= 4, "{in_use:?}");
        }
    }

    #[test]
    fn small_pools_can_be_used_and_a_share_of_100_is_no_bound() {
        assert_eq!(connections_of_each(1, 1, 80), (vec![1], 0));
        assert_eq!(connections_of_each(1, 2, 80), (vec![2], 0));
        assert_eq!(connections_of_each(1, 500, 100), (vec![500], 0));
    }

    #[test]
    fn a_released_connection_can_be_acquired_again() {
        let shares = Shares::new(50);
        let one = client("192.0.2.1");
        shares.acquire(one);
        assert!(!shares.allows(one, 1));
        shares.release(one);
        assert!(shares.allows(one, 1));
        assert!(shares.in_use.borrow().is_empty());
        assert!(!shares.allows(one, 0));
    }

    #[test]
    fn clients_take_turns_and_their_requests_keep_their_order() {
        let (a, b) = (client("192.0.2.1"), client("192.0.2.2"));
        let mut queue = Queue::new(10);
        for (client, ticket) in [(a, "a1"), (a, "a2"), (a, "a3"), (b, "b1"), (b, "b2")] {
            assert_eq!(queue.push(client, ticket), Queued::Waits);
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.next(|_| true)).collect();
        assert_eq!(order, ["a1", "b1", "a2", "b2", "a3"]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_client_above_its_share_does_not_delay_others() {
        let (a, b) = (client("192.0.2.1"), client("192.0.2.2"));
        let mut queue = Queue::new(10);
        _ = queue.push(a, "a1");
        _ = queue.push(b, "b1");
        assert_eq!(queue.next(|client| client != a), Some("b1"));
        assert_eq!(queue.next(|client| client != a), None);
        assert_eq!(queue.next(|_| true), Some("a1"));
    }

    #[test]
    fn a_full_queue_drops_the_newest_request_of_the_client_with_the_most_requests() {
        let (a, b) = (client("192.0.2.1"), client("192.0.2.2"));
        let mut queue = Queue::new(4);
        for ticket in ["a1", "a2", "a3", "a4"] {
            _ = queue.push(a, ticket);
        }
        assert_eq!(queue.push(a, "a5"), Queued::Full);
        assert_eq!(queue.push(b, "b1"), Queued::Displaced("a4"));
        assert_eq!(queue.push(b, "b2"), Queued::Displaced("a3"));
        assert_eq!(queue.push(b, "b3"), Queued::Full, "both have as many");
    }

    #[test]
    fn a_request_that_no_longer_waits_leaves_the_queue() {
        let a = client("192.0.2.1");
        let mut queue = Queue::new(1);
        assert_eq!(queue.push(a, "a1"), Queued::Waits);
        assert_eq!(queue.remove(a, |ticket| *ticket == "a1"), Some("a1"));
        assert_eq!(queue.remove(a, |ticket| *ticket == "a1"), None);
        assert!(queue.is_empty());
        assert_eq!(queue.push(a, "a2"), Queued::Waits);
    }
}
