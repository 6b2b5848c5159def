//! Remembers which streams have ended, so that a repeated OPEN does not start a stream again.
//!
//! Senders number streams without gaps, so the ended streams form a few ranges of numbers. The streams between two
//! ranges are open, or their OPEN has not arrived yet.
//!
//! An ACK reports to the sender how a stream has ended. Only the latest ends are remembered. After a lost connection, a
//! sender repeats frames only of streams whose end was not reported. It has at most `streams_max` such streams, the
//! permitted number of open streams. Twice as many ends are remembered: half of them are a reserve.

use std::collections::{BTreeMap, VecDeque};

use crate::wire::{StreamId, StreamState};

#[derive(Debug)]
pub(super) struct EndedStreams {
    /// The first and the last number of each range.
    ranges: BTreeMap<u64, u64>,
    /// The latest streams that have ended, in the order of their ends.
    latest: VecDeque<Ends>,
    /// The number of streams in `latest`, at most twice `streams_max`.
    latest_count: usize,
    latest_max: usize,
}

/// Consecutive streams that ended one after another in the same way. A list of their numbers would take 16 KiB for each
/// peer, with the default of 1024 open streams.
#[derive(Debug)]
struct Ends {
    /// The lower half of the first number. Two streams whose numbers have the same lower half are billions of streams
    /// apart.
    first: u32,
    count: u32,
    /// True if the bodies were delivered completely.
    complete: bool,
}

impl Ends {
    /// Returns the position of a stream from the first one on, if the stream could belong to the range.
    fn position(&self, stream: StreamId) -> u32 {
        (stream.0 as u32).wrapping_sub(self.first)
    }
}

impl EndedStreams {
    pub(super) fn new(streams_max: usize) -> Self {
        Self {
            ranges: BTreeMap::new(),
            latest: VecDeque::new(),
            latest_count: 0,
            latest_max: streams_max * 2,
        }
    }

    /// Returns how the stream ended, or `None` if it has not ended. A complete stream that is no longer in
    /// `latest` counts as [`StreamState::Ended`].
    pub(super) fn state(&self, stream: StreamId) -> Option<StreamState> {
        let (_, &last) = self.ranges.range(..=stream.0).next_back()?;
        if last < stream.0 {
            return None;
        }
        let contains = |ends: &Ends| ends.complete && ends.position(stream) < ends.count;
        Some(if self.latest.iter().any(contains) {
            StreamState::Complete
        } else {
            StreamState::Ended
        })
    }

    /// Returns the latest streams that have ended.
    pub(super) fn latest(&self) -> impl Iterator<Item = StreamId> {
        let highest = self.ranges.last_key_value().map_or(0, |(_, &last)| last);
        let number =
            move |low: u32| highest.wrapping_sub((highest as u32).wrapping_sub(low).into());
        let numbers = move |ends: &Ends| {
            let first = ends.first;
            (0..ends.count).map(move |at| StreamId(number(first.wrapping_add(at))))
        };
        self.latest.iter().flat_map(numbers)
    }

    /// Records the end of a stream.
    pub(super) fn insert(&mut self, stream: StreamId, complete: bool) {
        self.record_latest(stream, complete);
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

    fn record_latest(&mut self, stream: StreamId, complete: bool) {
        match self.latest.back_mut() {
            Some(last) if last.complete == complete && last.position(stream) == last.count => {
                last.count += 1;
            }
            _ => self.latest.push_back(Ends {
                first: stream.0 as u32,
                count: 1,
                complete,
            }),
        }
        self.latest_count += 1;
        if self.latest_count > self.latest_max
            && let Some(oldest) = self.latest.front_mut()
        {
            self.latest_count -= 1;
            (oldest.first, oldest.count) = (oldest.first.wrapping_add(1), oldest.count - 1);
            if oldest.count == 0 {
                self.latest.pop_front();
            }
        }
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
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    proptest! {
        /// The ranges contain the same numbers as a set, and no two ranges are adjacent. The latest ends are those of a
        /// list of them.
        #[test]
        fn the_ranges_match_a_set_of_ended_streams(
            ends in vec((0_u64..60, 1_u64..5, proptest::bool::ANY), 0..80),
            streams_max in 1_usize..100,
        ) {
            let mut ended = EndedStreams::new(streams_max);
            let mut all = BTreeSet::new();
            let mut latest = VecDeque::new();
            for (first, count, is_complete) in ends {
                for number in first..60.min(first + count) {
                    ended.insert(StreamId(number), is_complete);
                    all.insert(number);
                    latest.push_back((number, is_complete));
                }
            }
            latest.drain(..latest.len().saturating_sub(2 * streams_max));
            for number in 0..60 {
                let state = all.contains(&number).then(|| {
                    if latest.contains(&(number, true)) { StreamState::Complete } else { StreamState::Ended }
                });
                prop_assert_eq!(ended.state(StreamId(number)), state);
            }
            let starts = all.iter().filter(|&&n| n == 0 || !all.contains(&(n - 1)));
            prop_assert_eq!(ended.ranges(), starts.count());
            let numbers = latest.iter().map(|&(number, _)| StreamId(number));
            prop_assert!(ended.latest().eq(numbers));
        }
    }

    /// Streams that end in the order of their numbers take the memory of one entry.
    #[test]
    fn consecutive_streams_are_one_entry() {
        let mut ended = EndedStreams::new(1000);
        let first = u64::from(u32::MAX) - 1500;
        let streams = || (first..first + 3000).map(StreamId);
        streams().for_each(|stream| ended.insert(stream, true));
        assert_eq!(ended.latest.len(), 1);
        let complete =
            streams().filter(|stream| ended.state(*stream) == Some(StreamState::Complete));
        assert!(complete.eq(streams().skip(1000)));
        assert!(ended.latest().eq(streams().skip(1000)));
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
