//! Which response is sent next (RFC 9218 §10).

use std::collections::{BTreeMap, BTreeSet};

use crate::priority::{Priority, URGENCY_MAX};
use crate::stream_id::StreamId;

/// The priorities of the streams of a connection, and the streams that have bytes to send.
///
/// The most urgent streams are served first. Among streams of one urgency, turns alternate between two groups:
/// non-incremental responses, one after the other in the order of their requests, and incremental ones in rotation.
#[derive(Debug)]
pub struct Scheduler {
    streams: BTreeMap<StreamId, Entry>,
    /// Priorities of streams that have not begun.
    early: BTreeMap<StreamId, Priority>,
    early_max: usize,
    levels: [Level; URGENCY_MAX as usize + 1],
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    priority: Priority,
    /// True if PRIORITY_UPDATE has set the priority. The field of the request then no longer counts.
    is_updated: bool,
    is_ready: bool,
}

/// The ready streams of one urgency.
#[derive(Debug, Default)]
struct Level {
    sequential: BTreeSet<StreamId>,
    incremental: BTreeSet<StreamId>,
    /// The incremental stream with this id or the next higher one has the next turn.
    turn: StreamId,
    incremental_is_next: bool,
}

impl Scheduler {
    /// Creates a scheduler that keeps the priorities of at most `early_max` streams that have not begun.
    pub(crate) fn new(early_max: usize) -> Self {
        Self {
            streams: BTreeMap::new(),
            early: BTreeMap::new(),
            early_max,
            levels: Default::default(),
        }
    }

    /// Adds the stream of a request. It is not ready.
    pub(crate) fn begin(&mut self, stream: StreamId) {
        let early = self.early.remove(&stream);
        let entry = Entry {
            priority: early.unwrap_or_default(),
            is_updated: early.is_some(),
            is_ready: false,
        };
        self.streams.insert(stream, entry);
    }

    /// Removes a stream. Returns false if it is unknown.
    pub(crate) fn end(&mut self, stream: StreamId) -> bool {
        self.set_ready(stream, false);
        self.streams.remove(&stream).is_some()
    }

    /// Applies a PRIORITY_UPDATE to a stream. `has_begun` is true for streams that are under way or have ended. If the
    /// table of other streams is full, the last of them to begin is dropped.
    pub(crate) fn update(&mut self, stream: StreamId, priority: Priority, has_begun: bool) {
        if self.streams.contains_key(&stream) {
            self.set(stream, priority, true);
        } else if !has_begun {
            self.early.insert(stream, priority);
            if self.early.len() > self.early_max {
                self.early.pop_last();
            }
        }
    }

    /// Sets the priority that the field of the request states, unless the client has sent PRIORITY_UPDATE (§7).
    pub fn set_from_request(&mut self, stream: StreamId, priority: Priority) {
        if self
            .streams
            .get(&stream)
            .is_some_and(|entry| !entry.is_updated)
        {
            self.set(stream, priority, false);
        }
    }

    /// Returns the priority of a stream, the default one if the stream is unknown. It changes with each
    /// PRIORITY_UPDATE.
    pub fn priority(&self, stream: StreamId) -> Priority {
        self.streams
            .get(&stream)
            .map_or_else(Priority::default, |entry| entry.priority)
    }

    /// States that a stream has bytes to send and may send them, or that it has none or is blocked by flow control.
    pub fn set_ready(&mut self, stream: StreamId, is_ready: bool) {
        let Some(entry) = self.streams.get_mut(&stream) else {
            return;
        };
        entry.is_ready = is_ready;
        let group = self.levels[usize::from(entry.priority.urgency)].group(entry.priority);
        if is_ready {
            group.insert(stream);
        } else {
            group.remove(&stream);
        }
    }

    /// Returns the stream that sends next; `None` if no stream is ready. It stays ready until [`Self::set_ready`].
    ///
    /// Writes should be small, for example one datagram or 16 KiB: the next call chooses again.
    pub fn next_stream(&mut self) -> Option<StreamId> {
        self.levels.iter_mut().find_map(Level::next_stream)
    }

    fn set(&mut self, stream: StreamId, priority: Priority, is_updated: bool) {
        let is_ready = self.streams[&stream].is_ready;
        self.set_ready(stream, false);
        let entry = Entry {
            priority,
            is_updated,
            is_ready: false,
        };
        self.streams.insert(stream, entry);
        self.set_ready(stream, is_ready);
    }
}

impl Level {
    fn group(&mut self, priority: Priority) -> &mut BTreeSet<StreamId> {
        match priority.incremental {
            true => &mut self.incremental,
            false => &mut self.sequential,
        }
    }

    fn next_stream(&mut self) -> Option<StreamId> {
        let sequential = self.sequential.first().copied();
        let mut from_turn = self.incremental.range(self.turn..);
        let incremental = from_turn
            .next()
            .or_else(|| self.incremental.first())
            .copied();
        let takes_incremental = sequential.is_none() || self.incremental_is_next;
        match incremental.filter(|_| takes_incremental) {
            Some(stream) => {
                self.turn = stream.next();
                self.incremental_is_next = false;
                Some(stream)
            }
            None => {
                self.incremental_is_next = true;
                sequential
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    /// A scheduler of ready streams with these priorities, numbered from 0.
    fn ready(priorities: &[(u8, bool)]) -> Scheduler {
        let mut scheduler = Scheduler::new(8);
        for (number, &(urgency, incremental)) in (0..).zip(priorities) {
            scheduler.begin(stream(number));
            scheduler.set_from_request(stream(number), priority(urgency, incremental));
            scheduler.set_ready(stream(number), true);
        }
        scheduler
    }

    fn next(scheduler: &mut Scheduler, turns: usize) -> Vec<u64> {
        let turns = (0..turns).map_while(|_| scheduler.next_stream());
        turns.map(|stream| stream.0 / 4).collect()
    }

    #[test]
    fn urgent_streams_are_served_before_others() {
        let mut scheduler = ready(&[(7, false), (3, false), (0, true), (3, true)]);
        assert_eq!(next(&mut scheduler, 2), [2, 2]);
        scheduler.set_ready(stream(2), false);
        assert_eq!(next(&mut scheduler, 4), [1, 3, 1, 3]);
        scheduler.end(stream(1));
        scheduler.end(stream(3));
        assert_eq!(next(&mut scheduler, 2), [0, 0]);
        scheduler.end(stream(0));
        assert_eq!(next(&mut scheduler, 1), [0; 0]);
    }

    #[test]
    fn incremental_streams_rotate_and_others_follow_their_order() {
        assert_eq!(next(&mut ready(&[(3, true); 3]), 5), [0, 1, 2, 0, 1]);
        assert_eq!(next(&mut ready(&[(3, false); 3]), 3), [0, 0, 0]);
        let mut mixed = ready(&[(3, false), (3, true), (3, false), (3, true)]);
        assert_eq!(next(&mut mixed, 6), [0, 1, 0, 3, 0, 1]);
    }

    #[test]
    fn an_update_precedes_the_field_of_the_request() {
        let mut scheduler = Scheduler::new(8);
        scheduler.update(stream(0), priority(1, true), false);
        scheduler.begin(stream(0));
        scheduler.set_from_request(stream(0), priority(5, false));
        assert_eq!(scheduler.priority(stream(0)), priority(1, true));
        scheduler.begin(stream(1));
        scheduler.set_from_request(stream(1), priority(5, false));
        assert_eq!(scheduler.priority(stream(1)), priority(5, false));
        // A ready stream moves to the level of its new priority.
        scheduler.set_ready(stream(0), true);
        scheduler.set_ready(stream(1), true);
        scheduler.update(stream(1), priority(0, false), true);
        assert_eq!(next(&mut scheduler, 2), [1, 1]);
    }

    #[test]
    fn early_priorities_are_limited_to_the_first_streams() {
        let mut scheduler = Scheduler::new(2);
        for number in [5, 3, 4] {
            scheduler.update(stream(number), priority(0, true), false);
        }
        assert_eq!(scheduler.early.len(), 2);
        for (number, urgency) in [(3, 0), (4, 0), (5, 3)] {
            scheduler.begin(stream(number));
            assert_eq!(scheduler.priority(stream(number)).urgency, urgency);
        }
        assert!(scheduler.early.is_empty());
        // A stream that has ended keeps no priority.
        assert!(scheduler.end(stream(3)));
        scheduler.update(stream(3), priority(0, true), true);
        assert!(scheduler.early.is_empty());
    }

    proptest! {
        /// Method: any operations. A stream that is served is ready, and no ready stream is more urgent.
        #[test]
        fn the_next_stream_is_ready_and_most_urgent(
            operations in prop::collection::vec((0u64..6, 0u8..=7, any::<bool>(), 0u8..5), 0..60),
        ) {
            let mut scheduler = Scheduler::new(8);
            let mut model: BTreeMap<StreamId, (Priority, bool)> = BTreeMap::new();
            for (number, urgency, flag, operation) in operations {
                let id = stream(number);
                match operation {
                    0 if !model.contains_key(&id) => {
                        scheduler.begin(id);
                        model.insert(id, (scheduler.priority(id), false));
                    }
                    1 => prop_assert_eq!(scheduler.end(id), model.remove(&id).is_some()),
                    2 => {
                        scheduler.update(id, priority(urgency, flag), true);
                        if let Some(entry) = model.get_mut(&id) {
                            entry.0 = priority(urgency, flag);
                        }
                    }
                    _ => {
                        scheduler.set_ready(id, flag);
                        if let Some(entry) = model.get_mut(&id) {
                            entry.1 = flag;
                        }
                    }
                }
                let ready = model.values().filter(|entry| entry.1);
                let urgency_min = ready.map(|entry| entry.0.urgency).min();
                let next = scheduler.next_stream();
                prop_assert_eq!(next.map(|id| model[&id].0.urgency), urgency_min);
                prop_assert!(next.is_none_or(|id| model[&id].1));
            }
        }
    }
}
