//! The order in which the responses of a connection are sent (RFC 9218 §10).

use std::collections::BTreeMap;

use crate::priority::{Priority, URGENCY_MAX};
use crate::stream_id::StreamId;

/// The priorities of the requests of a connection, under way or announced.
#[derive(Debug)]
pub struct Priorities {
    streams: BTreeMap<StreamId, Entry>,
    /// Priorities of streams that have not begun.
    early: BTreeMap<StreamId, Priority>,
    early_max: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// `None` if the client has stated no priority.
    stated: Option<Priority>,
    /// True if PRIORITY_UPDATE has set the priority. The field of the request then no longer counts.
    is_updated: bool,
}

impl Priorities {
    /// Creates a table that keeps the priorities of at most `early_max` streams that have not begun.
    pub(crate) fn new(early_max: usize) -> Self {
        Self {
            streams: BTreeMap::new(),
            early: BTreeMap::new(),
            early_max,
        }
    }

    /// Adds the stream of a request.
    pub(crate) fn begin(&mut self, stream: StreamId) {
        let stated = self.early.remove(&stream);
        let is_updated = stated.is_some();
        self.streams.insert(stream, Entry { stated, is_updated });
    }

    /// Removes a stream. Returns false if it is unknown.
    pub(crate) fn end(&mut self, stream: StreamId) -> bool {
        self.streams.remove(&stream).is_some()
    }

    /// Applies a PRIORITY_UPDATE to a stream. `has_begun` is true for streams that are under way or have ended. If the
    /// table of other streams is full, the last of them to begin is dropped.
    pub(crate) fn update(&mut self, stream: StreamId, priority: Priority, has_begun: bool) {
        if let Some(entry) = self.streams.get_mut(&stream) {
            entry.stated = Some(priority);
            entry.is_updated = true;
        } else if !has_begun {
            self.early.insert(stream, priority);
            if self.early.len() > self.early_max {
                self.early.pop_last();
            }
        }
    }

    /// Sets the priority that the field of the request states, unless the client has sent PRIORITY_UPDATE (§7).
    pub fn set_from_request(&mut self, stream: StreamId, priority: Priority) {
        if let Some(entry) = self.streams.get_mut(&stream)
            && !entry.is_updated
        {
            entry.stated = Some(priority);
        }
    }

    /// Returns the rank of a response for a transport that sends streams of a higher rank first, and streams of one
    /// rank by turns. It changes with each PRIORITY_UPDATE. It is negative.
    ///
    /// Urgent responses precede others (§10). Non-incremental responses precede incremental ones of the same urgency,
    /// which are useful before they are complete. They are sent one after the other, in the order of their requests.
    /// Incremental responses share the bandwidth, and responses to requests without a priority share it too: RFC 9218
    /// calls these non-incremental, but a client without priorities does not expect that a long download delays others.
    pub fn rank(&self, stream: StreamId) -> i32 {
        let entry = self.streams.get(&stream).copied().unwrap_or_default();
        let priority = entry.stated.unwrap_or(UNSTATED);
        let level = URGENCY_MAX - priority.urgency;
        let within_level = match priority.incremental {
            true => 0,
            // Requests above 2^28 share a rank. No connection has so many.
            false => LEVEL_RANKS - 1 - (stream.0 / 4).min(LEVEL_RANKS - 2),
        };
        let rank = u64::from(level) * LEVEL_RANKS + within_level;
        i32::MIN + i32::try_from(rank).expect("eight levels have 2^31 ranks")
    }

    #[cfg(test)]
    pub(crate) fn stated(&self, stream: StreamId) -> Option<Priority> {
        self.streams.get(&stream).and_then(|entry| entry.stated)
    }
}

/// The priority of a request without one.
const UNSTATED: Priority = Priority {
    urgency: 3,
    incremental: true,
};

/// The ranks of one urgency.
const LEVEL_RANKS: u64 = 1 << 28;

#[cfg(test)]
mod tests {
    use super::*;

    const fn stream(number: u64) -> StreamId {
        StreamId(4 * number)
    }

    const fn priority(urgency: u8, incremental: bool) -> Priority {
        Priority {
            urgency,
            incremental,
        }
    }

    /// Returns the rank of the stream with this number and priority.
    fn rank(number: u64, stated: Option<Priority>) -> i32 {
        let mut priorities = Priorities::new(0);
        priorities.begin(stream(number));
        if let Some(stated) = stated {
            priorities.set_from_request(stream(number), stated);
        }
        priorities.rank(stream(number))
    }

    /// Method: the order of the ranks of all priorities, of the first streams and of the last possible ones.
    #[test]
    fn ranks_follow_urgency_then_the_order_of_requests_then_share() {
        let last = StreamId::REQUEST_MAX.0 / 4;
        let mut ranks = Vec::new();
        for urgency in 0..=URGENCY_MAX {
            let sequential = Some(priority(urgency, false));
            ranks.extend([0, 1, last].map(|number| rank(number, sequential)));
            let shared = Some(priority(urgency, true));
            ranks.push(rank(0, shared));
            assert_eq!(rank(last, shared), rank(0, shared));
        }
        assert!(ranks.is_sorted_by(|a, b| a > b), "{ranks:?}");
        assert_eq!((ranks[0], ranks[31]), (-1, i32::MIN));
    }

    #[test]
    fn requests_without_a_priority_share_the_default_urgency() {
        assert_eq!(rank(5, None), rank(7, Some(priority(3, true))));
        assert_eq!(Priorities::new(0).rank(stream(5)), rank(5, None));
    }

    #[test]
    fn an_update_precedes_the_field_of_the_request() {
        let mut priorities = Priorities::new(8);
        priorities.update(stream(0), priority(1, true), false);
        priorities.begin(stream(0));
        priorities.set_from_request(stream(0), priority(5, false));
        assert_eq!(priorities.stated(stream(0)), Some(priority(1, true)));
        priorities.begin(stream(1));
        priorities.set_from_request(stream(1), priority(5, false));
        assert_eq!(priorities.stated(stream(1)), Some(priority(5, false)));
        priorities.update(stream(1), priority(0, false), true);
        assert_eq!(priorities.stated(stream(1)), Some(priority(0, false)));
    }

    #[test]
    fn early_priorities_are_limited_to_the_first_streams() {
        let mut priorities = Priorities::new(2);
        for number in [5, 3, 4] {
            priorities.update(stream(number), priority(0, true), false);
        }
        assert_eq!(priorities.early.len(), 2);
        for (number, is_stated) in [(3, true), (4, true), (5, false)] {
            priorities.begin(stream(number));
            assert_eq!(priorities.stated(stream(number)).is_some(), is_stated);
        }
        assert!(priorities.early.is_empty());
        // A stream that has ended keeps no priority.
        assert!(priorities.end(stream(3)));
        priorities.update(stream(3), priority(0, true), true);
        assert!(priorities.early.is_empty());
    }
}
