//! Remembers which streams have ended, so that a repeated OPEN does not start a stream again.
//!
//! Senders number streams without gaps, so the ended streams form a few ranges of numbers. The streams between two
//! ranges are open, or their OPEN has not arrived yet.
//!
//! An ACK reports to the sender that a stream was delivered completely. Only the latest complete streams are
//! remembered as complete. After a lost connection, a sender repeats frames only of streams whose end was not
//! acknowledged. It has at most `streams_max` such streams, the permitted number of open streams. Twice as many
//! complete streams are remembered: half of them are a reserve.

use std::collections::{BTreeMap, VecDeque};

use crate::wire::{StreamId, StreamState};

#[derive(Debug)]
pub(super) struct EndedStreams {
    /// The first and the last number of each range.
    ranges: BTreeMap<u64, u64>,
    /// The latest streams that were delivered completely.
    complete: VecDeque<StreamId>,
    /// The maximum length of `complete`: twice `streams_max`.
    complete_max: usize,
}

impl EndedStreams {
    pub(super) fn new(streams_max: usize) -> Self {
        Self {
            ranges: BTreeMap::new(),
            complete: VecDeque::new(),
            complete_max: streams_max * 2,
        }
    }

    /// Returns how the stream ended, or `None` if it has not ended. A complete stream that is no longer in
    /// `complete` counts as [`StreamState::Ended`].
    pub(super) fn state(&self, stream: StreamId) -> Option<StreamState> {
        let (_, &last) = self.ranges.range(..=stream.0).next_back()?;
        if last < stream.0 {
            return None;
        }
        let complete = self.complete.contains(&stream);
        Some(if complete {
            StreamState::Complete
        } else {
            StreamState::Ended
        })
    }

    /// Records the end of a stream.
    pub(super) fn insert(&mut self, stream: StreamId, complete: bool) {
        if complete {
            self.complete.push_back(stream);
            if self.complete.len() > self.complete_max {
                self.complete.pop_front();
            }
        }
        let (mut first, mut last) = (stream.0, stream.0);
        if let Some((&before, &end)) = self.ranges.range(..=first).next_back() {
            if end >= first {
                return;
            }
            if end + 1 == first {
                first = before;
            }
        }
        if let Some(after) = last.checked_add(1)
            && let Some(end) = self.ranges.remove(&after)
        {
            last = end;
        }
        self.ranges.insert(first, last);
    }

    /// Returns the number of ranges.
    pub(super) fn ranges(&self) -> usize {
        self.ranges.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::{prop_assert_eq, proptest};

    proptest! {
        /// The ranges contain the same numbers as a set, and no two ranges are adjacent.
        #[test]
        fn the_ranges_match_a_set_of_ended_streams(ends in vec((0_u64..60, proptest::bool::ANY), 0..80)) {
            let mut ended = EndedStreams::new(100);
            let mut all = BTreeSet::new();
            let mut complete = BTreeSet::new();
            for (number, is_complete) in ends {
                ended.insert(StreamId(number), is_complete);
                all.insert(number);
                if is_complete {
                    complete.insert(number);
                }
            }
            for number in 0..60 {
                let state = all.contains(&number).then(|| {
                    if complete.contains(&number) { StreamState::Complete } else { StreamState::Ended }
                });
                prop_assert_eq!(ended.state(StreamId(number)), state);
            }
            let starts = all.iter().filter(|&&n| n == 0 || !all.contains(&(n - 1)));
            prop_assert_eq!(ended.ranges(), starts.count());
        }
    }

    #[test]
    fn the_largest_stream_number_can_end() {
        let mut ended = EndedStreams::new(1);
        ended.insert(StreamId(u64::MAX), true);
        ended.insert(StreamId(u64::MAX - 1), false);
        assert_eq!(ended.state(StreamId(u64::MAX)), Some(StreamState::Complete));
        assert_eq!(ended.ranges(), 1);
    }
}
