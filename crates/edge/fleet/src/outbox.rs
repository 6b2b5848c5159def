//! The purges that clients have sent to this node, until the stream has them and this node has applied them.
//!
//! A purge is acknowledged to its client when the stream has it, because the stream is durable, and when this node has
//! applied it, so that the client's next request sees its effect. A purge that the stream has not acknowledged is sent
//! again with the same id, by which the stream drops duplicates.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use edgeward_purge::Stamp;

/// The limits of an [`Outbox`].
#[derive(Clone, Copy, Debug)]
pub struct OutboxSettings {
    /// The most messages that wait. The driver bounds their bytes.
    pub pending_max: usize,
    /// The longest wait of a client for the stream and for this node.
    pub timeout: Duration,
    /// The maximum number of times that a message is sent.
    pub attempts_max: u32,
}

impl Default for OutboxSettings {
    fn default() -> Self {
        Self {
            pending_max: 1024,
            // A server answers within milliseconds, and a group of replicas elects a leader within seconds.
            timeout: Duration::from_secs(5),
            attempts_max: 3,
        }
    }
}

/// The messages that wait for the stream or for this node.
#[derive(Debug)]
pub struct Outbox {
    settings: OutboxSettings,
    pending: BTreeMap<u64, Pending>,
    next_id: u64,
    outcomes: VecDeque<Outcome>,
    /// The position up to which this node has applied the stream.
    position: Option<Stamp>,
}

/// The next step of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Send it, and call [`Outbox::sent`].
    Send(u64),
    /// The stream has it, and this node has applied it.
    Done(u64),
    /// The client gets an error.
    Refused(u64, PublishError),
}

/// The reason why a purge is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The node has no connection to the stream.
    #[error(
        "the stream of the fleet cannot be reached, and no node has the purge; send it again later"
    )]
    Disconnected,
    /// Too many purges wait, or the node takes over from an earlier process and does not follow the stream yet.
    #[error("this node cannot take a purge for the fleet at this moment; try again")]
    Busy,
    /// The stream has not acknowledged the purge in time. It may still have it.
    #[error("the stream of the fleet has not acknowledged the purge; send it again")]
    Unanswered,
    /// The stream has the purge, and this node has not applied and persisted it in time. It will.
    #[error("the fleet has the purge, but this node has not applied and persisted it yet")]
    NotApplied,
}

impl PublishError {
    /// All variants.
    pub const ALL: [Self; 4] = [
        Self::Disconnected,
        Self::Busy,
        Self::Unanswered,
        Self::NotApplied,
    ];

    /// Returns the name, for metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disconnected => "disconnected",
            Self::Busy => "busy",
            Self::Unanswered => "unanswered",
            Self::NotApplied => "not-applied",
        }
    }
}

#[derive(Debug)]
struct Pending {
    state: State,
    attempts: u32,
    deadline: Duration,
    /// The position of this node when its client sent the purge. A newer message has a greater number.
    after: Option<Stamp>,
}

#[derive(Debug)]
enum State {
    Sent,
    WaitsUntil(Duration),
    Stored(Stamp),
}

impl Outbox {
    /// Returns an outbox without messages.
    pub fn new(settings: OutboxSettings) -> Self {
        Self {
            settings,
            pending: BTreeMap::new(),
            next_id: 0,
            outcomes: VecDeque::new(),
            position: None,
        }
    }

    /// Returns the number of messages that wait.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Adds a message, and returns its id.
    pub fn submit(&mut self, now: Duration, is_connected: bool) -> Result<u64, PublishError> {
        if !is_connected {
            return Err(PublishError::Disconnected);
        }
        if self.pending.len() >= self.settings.pending_max {
            return Err(PublishError::Busy);
        }
        let id = self.next_id;
        self.next_id += 1;
        let pending = Pending {
            state: State::Sent,
            attempts: 1,
            deadline: now + self.settings.timeout,
            after: self.position,
        };
        self.pending.insert(id, pending);
        self.outcomes.push_back(Outcome::Send(id));
        Ok(id)
    }

    /// The stream has stored a message with this stamp, or has not: `None`. A stamp that is not newer than the position
    /// of this node at the submission is that of another stream, whose epoch is not known yet: the message is sent
    /// again, and the stream repeats its number.
    pub fn sent(&mut self, now: Duration, id: u64, stored: Option<Stamp>) {
        let Some(pending) = self.pending.get_mut(&id) else {
            return; // its client has got an error
        };
        let is_newer = |stamp: &Stamp| {
            let after = pending.after.filter(|after| after.epoch() == stamp.epoch());
            after.is_none_or(|after| *stamp > after)
        };
        match stored.filter(is_newer) {
            Some(stamp) => pending.state = State::Stored(stamp),
            None if pending.attempts < self.settings.attempts_max => {
                pending.state = State::WaitsUntil(now + RETRY_AFTER * pending.attempts);
            }
            None => self.refuse(id, PublishError::Unanswered),
        }
    }

    /// This node has applied the stream up to `position`.
    pub fn applied(&mut self, position: Stamp) {
        self.position = Some(position);
        let is_applied = |pending: &Pending| match pending.state {
            State::Stored(stamp) => stamp <= position && stamp.epoch() == position.epoch(),
            State::Sent | State::WaitsUntil(_) => false,
        };
        let outcomes = &mut self.outcomes;
        self.pending.retain(|id, pending| {
            let is_done = is_applied(pending);
            if is_done {
                outcomes.push_back(Outcome::Done(*id));
            }
            !is_done
        });
    }

    /// Sends messages again whose pause has ended, and refuses those whose client has waited too long.
    pub fn tick(&mut self, now: Duration) {
        let mut expired = Vec::new();
        for (id, pending) in &mut self.pending {
            match pending.state {
                State::Stored(_) if now >= pending.deadline => {
                    expired.push((*id, PublishError::NotApplied));
                }
                _ if now >= pending.deadline => expired.push((*id, PublishError::Unanswered)),
                State::WaitsUntil(at) if now >= at => {
                    pending.state = State::Sent;
                    pending.attempts += 1;
                    self.outcomes.push_back(Outcome::Send(*id));
                }
                _ => {}
            }
        }
        for (id, refusal) in expired {
            self.refuse(id, refusal);
        }
    }

    /// Returns the time of the next call of [`tick`](Self::tick). `None` if no message waits.
    pub fn wake_at(&self) -> Option<Duration> {
        let times = self.pending.values().map(|pending| match pending.state {
            State::WaitsUntil(at) => at.min(pending.deadline),
            State::Sent | State::Stored(_) => pending.deadline,
        });
        times.min()
    }

    /// Returns the next outcome.
    pub fn poll(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    fn refuse(&mut self, id: u64, refusal: PublishError) {
        self.pending.remove(&id);
        self.outcomes.push_back(Outcome::Refused(id, refusal));
    }
}

/// The pause before the second attempt; twice as long before the third.
const RETRY_AFTER: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: OutboxSettings = OutboxSettings {
        pending_max: 2,
        timeout: Duration::from_secs(5),
        attempts_max: 3,
    };

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn stamp(sequence: u64) -> Stamp {
        Stamp::at(1, sequence)
    }

    fn outcomes(outbox: &mut Outbox) -> Vec<Outcome> {
        std::iter::from_fn(|| outbox.poll()).collect()
    }

    #[test]
    fn a_purge_is_done_when_the_stream_has_it_and_the_node_has_applied_it() {
        let mut outbox = Outbox::new(SETTINGS);
        let id = outbox.submit(at(0), true).expect("accepted");
        assert_eq!(outcomes(&mut outbox), [Outcome::Send(id)]);
        outbox.applied(stamp(9));
        outbox.sent(at(1), id, Some(stamp(10)));
        assert_eq!(outcomes(&mut outbox), []);
        outbox.applied(Stamp::at(2, 10));
        assert_eq!(outcomes(&mut outbox), [], "another stream");
        outbox.applied(stamp(10));
        assert_eq!(outcomes(&mut outbox), [Outcome::Done(id)]);
        assert_eq!(outbox.wake_at(), None);
    }

    #[test]
    fn a_number_of_a_stream_that_was_created_again_acknowledges_nothing() {
        let mut outbox = Outbox::new(SETTINGS);
        outbox.applied(stamp(9));
        let id = outbox.submit(at(0), true).expect("accepted");
        outbox.sent(at(1), id, Some(stamp(1)));
        outbox.applied(stamp(9));
        outbox.tick(at(201));
        assert_eq!(
            outcomes(&mut outbox),
            [Outcome::Send(id), Outcome::Send(id)]
        );
        // The epoch of the new stream is known now.
        outbox.sent(at(202), id, Some(Stamp::at(2, 1)));
        assert_eq!(outcomes(&mut outbox), []);
        outbox.applied(Stamp::at(2, 1));
        assert_eq!(outcomes(&mut outbox), [Outcome::Done(id)]);
    }

    #[test]
    fn without_a_connection_or_a_place_a_purge_is_refused_at_once() {
        let mut outbox = Outbox::new(SETTINGS);
        assert_eq!(outbox.submit(at(0), false), Err(PublishError::Disconnected));
        assert!(outbox.submit(at(0), true).is_ok());
        assert!(outbox.submit(at(0), true).is_ok());
        assert_eq!(outbox.submit(at(0), true), Err(PublishError::Busy));
    }

    #[test]
    fn a_purge_is_sent_three_times_and_then_refused() {
        let mut outbox = Outbox::new(SETTINGS);
        let id = outbox.submit(at(0), true).expect("accepted");
        for (failed_at, next_at) in [(10, 210), (220, 620)] {
            assert_eq!(outcomes(&mut outbox), [Outcome::Send(id)]);
            outbox.sent(at(failed_at), id, None);
            assert_eq!(outbox.wake_at(), Some(at(next_at)));
            outbox.tick(at(next_at - 1));
            assert_eq!(outcomes(&mut outbox), []);
            outbox.tick(at(next_at));
        }
        assert_eq!(outcomes(&mut outbox), [Outcome::Send(id)]);
        outbox.sent(at(630), id, None);
        assert_eq!(
            outcomes(&mut outbox),
            [Outcome::Refused(id, PublishError::Unanswered)]
        );
    }

    #[test]
    fn a_client_waits_no_longer_than_the_timeout() {
        let mut outbox = Outbox::new(SETTINGS);
        let unanswered = outbox.submit(at(0), true).expect("accepted");
        let stored = outbox.submit(at(0), true).expect("accepted");
        outbox.sent(at(1), stored, Some(stamp(3)));
        _ = outcomes(&mut outbox);
        outbox.tick(at(4999));
        assert_eq!(outcomes(&mut outbox), []);
        outbox.tick(at(5000));
        assert_eq!(
            outcomes(&mut outbox),
            [
                Outcome::Refused(unanswered, PublishError::Unanswered),
                Outcome::Refused(stored, PublishError::NotApplied)
            ]
        );
        // The late answer has no effect.
        outbox.sent(at(5001), unanswered, Some(stamp(4)));
        outbox.applied(stamp(4));
        assert_eq!(outcomes(&mut outbox), []);
    }
}
