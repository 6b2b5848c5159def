//! The list of a worker's client connections, and the choice of the connection that is closed for a new one.

use std::rc::Rc;

use edgeward_types::Timestamp;

use crate::exchange::ConnState;
use crate::exchange::conn::CloseRank;

/// A worker's open client connections, each in a slot of its own.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    slots: Vec<Option<Rc<ConnState>>>,
    free: Vec<usize>,
    /// The number of connections that have ended.
    ended: u64,
    /// The candidates of the last search, with their slots. The last is closed first, unless its rank has changed.
    spares: Vec<(CloseRank, usize)>,
    /// The time of the last search that kept all candidates that it found.
    searched: Option<Timestamp>,
    /// True after [`leave`](Self::leave).
    are_leaving: bool,
    /// True after [`drain`](Self::drain).
    are_draining: bool,
}

impl Connections {
    pub(crate) fn insert(&mut self, conn: Rc<ConnState>) -> usize {
        if self.are_draining {
            conn.drain();
        } else if self.are_leaving {
            conn.leave();
        }
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot] = Some(conn);
                slot
            }
            None => {
                self.slots.push(Some(conn));
                self.slots.len() - 1
            }
        }
    }

    pub(crate) fn remove(&mut self, slot: usize) {
        self.slots[slot] = None;
        self.free.push(slot);
        self.ended += 1;
    }

    /// Returns the number of connections that have ended.
    pub(super) fn ended(&self) -> u64 {
        self.ended
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the connection to close when a new connection arrives at the limit of connections.
    ///
    /// A search through all connections finds candidates for many calls, so that a call takes a constant number of
    /// steps on average. A search that kept all candidates that it found is not repeated in the same clock tick.
    pub(crate) fn take_spare(&mut self, now: Timestamp) -> Option<Rc<ConnState>> {
        loop {
            while let Some((rank, slot)) = self.spares.pop() {
                if let Some(conn) = &self.slots[slot]
                    && conn.close_rank() == Some(rank)
                {
                    return Some(Rc::clone(conn));
                }
            }
            if self.searched == Some(now) {
                return None;
            }
            let wanted = self.len().div_ceil(SPARES_FRACTION);
            let ranked = self.slots.iter().enumerate().filter_map(|(slot, conn)| {
                let rank = conn.as_ref()?.close_rank()?;
                Some((rank, slot))
            });
            self.spares = ranked.collect();
            if self.spares.len() > wanted {
                self.spares.select_nth_unstable(wanted);
                self.spares.truncate(wanted);
            } else {
                self.searched = Some(now);
            }
            self.spares.sort_unstable_by(|a, b| b.cmp(a));
            if self.spares.is_empty() {
                return None;
            }
        }
    }

    /// Tells each connection that its next request is the last one. This includes connections that are inserted later:
    /// they were accepted before the worker stopped, and their tasks have not run yet.
    pub(crate) fn leave(&mut self) {
        self.are_leaving = true;
        self.iter().for_each(|conn| conn.leave());
    }

    /// Tells each connection to accept no further request, as [`leave`](Self::leave) does.
    pub(crate) fn drain(&mut self) {
        self.are_draining = true;
        self.iter().for_each(|conn| conn.drain());
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Rc<ConnState>> {
        self.slots.iter().flatten()
    }
}

/// A search keeps one candidate for closing for each 64 open connections.
const SPARES_FRACTION: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::CloseReason;

    use crate::rt::budget::MemoryBudget;
    use crate::rt::clock::Ticker;

    fn new_conn(ticker: &Ticker) -> Rc<ConnState> {
        ConnState::new(ticker.clock(), MemoryBudget::new(u64::MAX, None))
    }

    #[test]
    fn the_connection_that_is_idle_longest_is_closed_first() {
        let ticker = Ticker::start().expect("the thread starts");
        let conns: Vec<_> = (0..200).map(|_| new_conn(&ticker)).collect();
        let mut open = Connections::default();
        for (n, conn) in conns.iter().enumerate() {
            conn.set_idle_since(Timestamp::from_secs(1000 - n as u64));
            open.insert(Rc::clone(conn));
        }
        // The last connection has been idle for the longest time. The four before it have requests under way.
        let busy: Vec<_> = (195..199).map(|n| conns[n].begin_request()).collect();
        let now = Timestamp::from_secs(5000);
        for expected in [199, 194, 193, 192, 191, 190] {
            let spare = open.take_spare(now).expect("an idle connection exists");
            assert!(Rc::ptr_eq(&spare, &conns[expected]), "not {expected}");
            spare.close(CloseReason::Crowded);
        }
        drop(busy);
    }

    #[test]
    fn connections_whose_tasks_run_after_the_stop_end_like_the_others() {
        let ticker = Ticker::start().expect("the thread starts");
        let mut open = Connections::default();
        let add = |open: &mut Connections| {
            let conn = new_conn(&ticker);
            open.insert(Rc::clone(&conn));
            conn
        };
        let early = add(&mut open);
        assert!(!early.is_leaving() && !early.is_draining());
        open.leave();
        let late = add(&mut open);
        assert!(early.is_leaving() && late.is_leaving());
        assert!(!early.is_draining() && !late.is_draining());
        open.drain();
        let last = add(&mut open);
        assert!(early.is_draining() && late.is_draining() && last.is_draining());
    }

    #[test]
    fn connections_with_requests_under_way_are_never_chosen() {
        let ticker = Ticker::start().expect("the thread starts");
        let conns: Vec<_> = (0..3).map(|_| new_conn(&ticker)).collect();
        let mut open = Connections::default();
        let busy: Vec<_> = conns
            .iter()
            .map(|conn| {
                open.insert(Rc::clone(conn));
                conn.begin_request()
            })
            .collect();
        assert!(open.take_spare(Timestamp::from_secs(1)).is_none());
        drop(busy);
        assert!(
            open.take_spare(Timestamp::from_secs(1)).is_none(),
            "a search is repeated in the next tick"
        );
        assert!(open.take_spare(Timestamp::from_secs(2)).is_some());
    }
}
