//! A worker's open connections, and which of them can be closed to make room.

use std::rc::Rc;

use edgeward_types::Timestamp;

use crate::exchange::ConnState;
use crate::exchange::conn::CloseRank;

/// A worker's open connections, each at a place of its own.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    places: Vec<Option<Rc<ConnState>>>,
    free: Vec<usize>,
    /// Connections that can be spared, as of the last search; the best one last.
    spares: Vec<(CloseRank, usize)>,
    /// When a search last found fewer than it looked for.
    searched: Option<Timestamp>,
}

impl Connections {
    pub(crate) fn insert(&mut self, conn: Rc<ConnState>) -> usize {
        match self.free.pop() {
            Some(place) => {
                self.places[place] = Some(conn);
                place
            }
            None => {
                self.places.push(Some(conn));
                self.places.len() - 1
            }
        }
    }

    pub(crate) fn remove(&mut self, place: usize) {
        self.places[place] = None;
        self.free.push(place);
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// The connection to close next when room is needed.
    ///
    /// A search through all connections finds enough spares for the next newcomers, so that each newcomer costs a constant
    /// number of steps. A search that came to the end of what can be spared is not repeated within the same tick of the clock.
    pub(crate) fn take_spare(&mut self, now: Timestamp) -> Option<Rc<ConnState>> {
        loop {
            while let Some((rank, place)) = self.spares.pop() {
                if let Some(conn) = &self.places[place]
                    && conn.close_rank() == Some(rank)
                {
                    return Some(Rc::clone(conn));
                }
            }
            if self.searched == Some(now) {
                return None;
            }
            let wanted = self.len().div_ceil(SPARES_FRACTION);
            let ranked = self.places.iter().enumerate().filter_map(|(place, conn)| {
                let rank = conn.as_ref()?.close_rank()?;
                Some((rank, place))
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

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Rc<ConnState>> {
        self.places.iter().flatten()
    }
}

/// A search for connections to close keeps one in so many of those open.
const SPARES_FRACTION: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::CloseReason;

    use crate::base::clock::Ticker;

    #[test]
    fn the_connection_without_a_request_that_waits_longest_is_spared_first() {
        let ticker = Ticker::start().expect("a thread");
        let conns: Vec<_> = (0..200).map(|_| ConnState::new(ticker.clock())).collect();
        let mut open = Connections::default();
        for (n, conn) in conns.iter().enumerate() {
            conn.set_idle_since(Timestamp::from_secs(1000 - n as u64));
            open.insert(Rc::clone(conn));
        }
        // The last one waits longest; requests are under way on the four after it.
        let busy: Vec<_> = (195..199).map(|n| conns[n].begin()).collect();
        let now = Timestamp::from_secs(5000);
        for expected in [199, 194, 193, 192, 191, 190] {
            let spare = open.take_spare(now).expect("one without a request");
            assert!(Rc::ptr_eq(&spare, &conns[expected]), "not {expected}");
            spare.close(CloseReason::Crowded);
        }
        drop(busy);
    }

    #[test]
    fn connections_with_requests_under_way_are_never_spared() {
        let ticker = Ticker::start().expect("a thread");
        let conns: Vec<_> = (0..3).map(|_| ConnState::new(ticker.clock())).collect();
        let mut open = Connections::default();
        let busy: Vec<_> = conns
            .iter()
            .map(|conn| {
                open.insert(Rc::clone(conn));
                conn.begin()
            })
            .collect();
        assert!(open.take_spare(Timestamp::from_secs(1)).is_none());
        drop(busy);
        assert!(
            open.take_spare(Timestamp::from_secs(1)).is_none(),
            "the same tick"
        );
        assert!(open.take_spare(Timestamp::from_secs(2)).is_some());
    }
}
