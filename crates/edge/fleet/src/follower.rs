//! A node that applies the purges of a stream in order.
//!
//! **The law**: if the position of a node has the sequence number `n`, the node has applied all purges of the stream up
//! to `n`, or has purged all its objects after they were published. The position is persisted with the purges, so the
//! law holds after a crash, too.
//!
//! If the log of the node cannot be written, the purges apply in memory, and the position stays. The node applies later
//! purges, tries the write again after a pause that doubles, and applies nothing a second time: a repeated purge would
//! also cover the objects that were stored since the first one.
//!
//! A node purges all its objects when it cannot learn which purges it lacks: it joins the fleet, the stream has dropped
//! purges after the node's position, or the stream is another one.

use std::collections::VecDeque;
use std::time::Duration;

use edgeward_purge::{Delivery, Stamp};

/// The decisions of a node that follows a stream. `M` is a message of the stream.
#[derive(Debug)]
pub struct Follower<M> {
    /// The position that is applied and persisted. `None` before the node has joined.
    position: Option<Stamp>,
    /// The position that is applied, at least in memory.
    applied: Option<Stamp>,
    /// Present while applied purges are not persisted, because a write has failed.
    failed_write: Option<FailedWrite>,
    /// The newest purge that was received in order: it is applied, being applied, or in the queue.
    received: Option<Stamp>,
    /// The time at which a delivery moved `received` last.
    received_at: Option<Duration>,
    queue: VecDeque<Queued<M>>,
    /// The bytes of the messages in `queue`.
    queue_bytes: usize,
    queue_bytes_max: usize,
    /// The batch under way.
    applying: Option<Batch>,
    /// True until a purge of all objects is applied that does not follow from the stream.
    must_purge_all: bool,
    is_connected: bool,
    subscription: Option<Subscription>,
    subscriptions: u64,
    /// The newest statement of the stream about itself, and the time of the query.
    stated: Option<(StreamState, Duration)>,
    next_query_at: Duration,
    /// The earliest time of the next subscription.
    subscribe_at: Duration,
    /// The newest time at which the node is known to have applied all purges of the stream.
    current_at: Option<Duration>,
    actions: VecDeque<Action<M>>,
    counts: Counts,
}

/// A task for the driver.
#[derive(Debug, PartialEq, Eq)]
pub enum Action<M> {
    /// Ask the stream for its state, and call [`Follower::stated`].
    Query,
    /// End the subscription, and begin one that delivers all purges from this sequence number on.
    Subscribe {
        /// The number of the subscription, which its deliveries state.
        subscription: u64,
        /// The first sequence number to deliver.
        from: u64,
    },
    /// Apply the works in this order, persist them with the position, and call [`Follower::applied`]. Without works,
    /// persist those that are applied in memory only.
    Apply {
        /// The works, oldest first.
        works: Vec<Work<M>>,
        /// The position after them.
        position: Stamp,
        /// False if the last write has failed a short time ago. The driver then applies the works in memory, and need
        /// not write.
        writes: bool,
    },
}

/// The outcome of [`Action::Apply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The works and all works before them are applied and persisted, with the position.
    Persisted,
    /// The works are applied and not persisted.
    InMemory,
    /// The works are not applied.
    Failed,
}

/// One thing to apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work<M> {
    /// The purges of a message.
    Message(M),
    /// A purge of all objects.
    All,
}

/// The state of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamState {
    /// The epoch: another number after the stream was deleted and created again.
    pub epoch: u64,
    /// The sequence number of the oldest message. If the stream has no messages, the next number.
    pub first: u64,
    /// The sequence number of the newest message, or 0.
    pub last: u64,
}

/// The numbers of messages, deliveries, subscriptions and purges of all objects, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that were applied.
    pub applied: u64,
    /// Deliveries that were ignored because they were applied before.
    pub repeated: u64,
    /// Subscriptions that began again because deliveries were missing or failed.
    pub resubscribed: u64,
    /// Purges of all objects.
    pub purged_all: u64,
}

#[derive(Debug)]
struct Queued<M> {
    /// The position after the work.
    position: Stamp,
    work: Work<M>,
    /// The bytes of the message.
    bytes: usize,
}

/// Works that are being applied.
#[derive(Clone, Copy, Debug)]
struct Batch {
    /// The position of the node after the batch.
    position: Stamp,
    writes: bool,
    bytes: usize,
    messages: u64,
    purges_of_all: u64,
}

#[derive(Clone, Copy, Debug)]
struct FailedWrite {
    retry_at: Duration,
    /// The pause before `retry_at`.
    pause: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Subscription {
    number: u64,
    /// True until its first delivery. That delivery is the first message that the stream still has.
    is_fresh: bool,
    /// The time of its start or its newest delivery.
    delivered_at: Duration,
}

impl StreamState {
    /// Returns the stamp of the newest message.
    fn end(self) -> Stamp {
        Stamp::at(self.epoch, self.last)
    }
}

impl<M> Follower<M> {
    /// Returns a node with this persisted position. At most `queue_bytes_max` bytes of messages, and one message more,
    /// wait to be applied or are being applied.
    pub fn new(position: Option<Stamp>, queue_bytes_max: usize) -> Self {
        Self {
            position,
            applied: position,
            failed_write: None,
            received: position,
            received_at: None,
            queue: VecDeque::new(),
            queue_bytes: 0,
            queue_bytes_max,
            applying: None,
            must_purge_all: false,
            is_connected: false,
            subscription: None,
            subscriptions: 0,
            stated: None,
            next_query_at: Duration::ZERO,
            subscribe_at: Duration::ZERO,
            current_at: None,
            actions: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// Returns the position that is applied and persisted.
    pub fn position(&self) -> Option<Stamp> {
        self.position
    }

    /// Returns true if applied purges are not persisted, because the last write has failed.
    pub fn has_failed_write(&self) -> bool {
        self.failed_write.is_some()
    }

    /// Returns the number of messages that the stream has and that are not applied, as far as the node knows. `None`
    /// before the stream has stated its state.
    pub fn behind(&self) -> Option<u64> {
        let (state, _) = self.stated?;
        let position = self.applied.filter(|p| p.epoch() == state.end().epoch());
        let applied = position.map_or(0, Stamp::sequence);
        Some(state.last.saturating_sub(applied))
    }

    /// Returns the newest time at which the node is known to have applied all purges that were acknowledged before.
    /// `None` if the node was never current.
    pub fn current_at(&self) -> Option<Duration> {
        self.current_at
    }

    /// Returns the counts.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns true if the queue is full. The driver then takes no further delivery.
    pub fn is_full(&self) -> bool {
        self.queue.len() >= QUEUE_MAX || self.queued_bytes() >= self.queue_bytes_max
    }

    /// Returns the bytes of the messages that wait to be applied or are being applied.
    pub fn queued_bytes(&self) -> usize {
        self.queue_bytes + self.applying.map_or(0, |batch| batch.bytes)
    }

    /// Returns the next action.
    pub fn poll(&mut self) -> Option<Action<M>> {
        self.actions.pop_front()
    }

    /// Returns the time of the next call of [`tick`](Self::tick).
    pub fn wake_at(&self) -> Duration {
        self.next_query_at
    }

    /// The connection to the stream is established.
    pub fn connected(&mut self, now: Duration) {
        self.is_connected = true;
        self.subscription = None;
        self.next_query_at = now;
        self.tick(now);
    }

    /// The connection to the stream is lost. The node still applies the messages that it received in order.
    pub fn disconnected(&mut self) {
        self.is_connected = false;
        self.subscription = None;
    }

    /// Queries the stream at intervals. Begins a subscription again that delivers nothing though the stream has more.
    /// Tries a failed write again.
    pub fn tick(&mut self, now: Duration) {
        if now < self.next_query_at {
            return;
        }
        self.next_query_at = now + QUERY_INTERVAL;
        self.apply_next(now);
        if !self.is_connected {
            return;
        }
        self.actions.push_back(Action::Query);
        let received = self.received.map_or(0, Stamp::sequence);
        let has_more = self.stated.is_some_and(|(state, _)| state.last > received);
        if let Some(subscription) = self.subscription
            && has_more
            && !self.is_full()
            && now >= subscription.delivered_at + STALL_MAX
        {
            self.resubscribe(now);
        }
    }

    /// The stream has stated its state, as an answer to a query at `asked_at`.
    pub fn stated(&mut self, now: Duration, asked_at: Duration, state: StreamState) {
        if self.stated.is_some_and(|(_, known_at)| known_at > asked_at) {
            return; // a later query was answered first
        }
        self.stated = Some((state, asked_at));
        let last = state.end();
        // A message that was delivered after the query may be newer than the answer.
        let is_ahead = self.received_at.is_some_and(|at| at >= asked_at);
        let is_known = self.received.is_some_and(|received| {
            received.epoch() == last.epoch()
                && (received <= last || is_ahead)
                && received.sequence() + 1 >= state.first
        });
        if !is_known {
            // A purge of all objects covers the messages up to `last`.
            self.purge_all(last);
            self.subscription = None;
        }
        self.notice_current();
        if self.subscription.is_none() && now >= self.subscribe_at {
            self.subscribe(now);
        }
        self.apply_next(now);
    }

    /// The stream has delivered a message of this many bytes.
    pub fn delivered(
        &mut self,
        now: Duration,
        subscription: u64,
        sequence: u64,
        message: M,
        bytes: usize,
    ) {
        let (Some(current), Some(received)) = (&mut self.subscription, self.received) else {
            return;
        };
        if current.number != subscription {
            return;
        }
        let was_fresh = std::mem::replace(&mut current.is_fresh, false);
        current.delivered_at = now;
        let stamp = Stamp::at(received.epoch(), sequence);
        match Delivery::at(received, stamp) {
            Delivery::Next => {}
            Delivery::Repeated => {
                self.counts.repeated += 1;
                return;
            }
            // The stream no longer has the messages before its first delivery.
            Delivery::Gap if was_fresh => self.purge_all(Stamp::at(received.epoch(), sequence - 1)),
            Delivery::Gap => {
                self.resubscribe(now);
                return;
            }
        }
        self.received = Some(stamp);
        self.received_at = Some(now);
        self.queue.push_back(Queued {
            position: stamp,
            work: Work::Message(message),
            bytes,
        });
        self.queue_bytes += bytes;
        self.apply_next(now);
    }

    /// A subscription has failed or ended. The next one begins after a pause.
    pub fn ended(&mut self, now: Duration, subscription: u64) {
        if self.subscription.is_some_and(|s| s.number == subscription) {
            self.counts.resubscribed += 1;
            self.subscription = None;
            self.subscribe_at = now + RETRY_AFTER;
        }
    }

    /// The batch under way has this outcome. If it was not applied, the node asks the stream for its messages again.
    pub fn applied(&mut self, now: Duration, outcome: Applied) {
        let Some(batch) = self.applying.take() else {
            return;
        };
        match outcome {
            Applied::Persisted => {
                self.position = Some(batch.position);
                self.failed_write = None;
            }
            Applied::InMemory if batch.writes => {
                let pause = self.failed_write.map_or(RETRY_AFTER, |failed| {
                    (2 * failed.pause).min(WRITE_AFTER_MAX)
                });
                let retry_at = now + pause;
                self.failed_write = Some(FailedWrite { retry_at, pause });
            }
            Applied::InMemory => {}
            Applied::Failed => {
                self.received = self.applied;
                self.clear_queue();
                self.subscription = None;
                self.subscribe_at = now + RETRY_AFTER;
                if self.must_purge_all {
                    self.queue_all();
                }
                return;
            }
        }
        self.applied = Some(batch.position);
        self.counts.applied += batch.messages;
        self.counts.purged_all += batch.purges_of_all;
        let is_all = |queued: &Queued<M>| matches!(queued.work, Work::All);
        self.must_purge_all &= self.queue.iter().any(is_all);
        self.notice_current();
        self.apply_next(now);
    }

    /// Other nodes may have invalidated objects of this one without telling it: all its objects count as purged. A node
    /// that has not joined the stream purges them when it does.
    pub fn purge_own(&mut self, now: Duration) {
        self.must_purge_all = self.received.is_some();
        self.queue_all();
        self.apply_next(now);
    }

    /// Adds a purge of all objects behind the queued messages.
    fn queue_all(&mut self) {
        if let Some(position) = self.received {
            self.queue.push_back(Queued {
                position,
                work: Work::All,
                bytes: 0,
            });
        }
    }

    /// Adds a purge of all objects, which replaces the queued messages.
    fn purge_all(&mut self, position: Stamp) {
        self.clear_queue();
        self.received = Some(position);
        self.received_at = None;
        self.queue.push_back(Queued {
            position,
            work: Work::All,
            bytes: 0,
        });
    }

    fn clear_queue(&mut self) {
        self.queue.clear();
        self.queue_bytes = 0;
    }

    fn resubscribe(&mut self, now: Duration) {
        self.counts.resubscribed += 1;
        self.subscribe(now);
    }

    fn subscribe(&mut self, now: Duration) {
        let Some(received) = self.received.filter(|_| self.is_connected) else {
            return;
        };
        self.subscriptions += 1;
        self.subscription = Some(Subscription {
            number: self.subscriptions,
            is_fresh: true,
            delivered_at: now,
        });
        self.actions.push_back(Action::Subscribe {
            subscription: self.subscriptions,
            from: received.sequence() + 1,
        });
    }

    fn apply_next(&mut self, now: Duration) {
        if self.applying.is_some() {
            return;
        }
        let writes = self
            .failed_write
            .is_none_or(|failed| now >= failed.retry_at);
        let count = self.queue.len().min(BATCH_MAX);
        let position = match count.checked_sub(1) {
            Some(last) => self.queue[last].position,
            None => match self.applied {
                Some(applied) if writes && self.failed_write.is_some() => applied,
                _ => return,
            },
        };
        let mut bytes = 0;
        let works = self.queue.drain(..count).map(|queued| {
            bytes += queued.bytes;
            queued.work
        });
        let works: Vec<_> = works.collect();
        self.queue_bytes -= bytes;
        let messages = works.iter().filter(|work| matches!(work, Work::Message(_)));
        let messages = messages.count() as u64;
        self.applying = Some(Batch {
            position,
            writes,
            bytes,
            messages,
            purges_of_all: works.len() as u64 - messages,
        });
        self.actions.push_back(Action::Apply {
            works,
            position,
            writes,
        });
    }

    /// Notes the time of the newest query if all messages that the stream had then are applied.
    fn notice_current(&mut self) {
        let (Some((state, asked_at)), Some(position)) = (self.stated, self.position) else {
            return;
        };
        let last = state.end();
        if position >= last && position.epoch() == last.epoch() {
            self.current_at = self.current_at.max(Some(asked_at));
        }
    }
}

/// The time between two queries of the stream's state: a node is current if it has what the stream had a second ago.
const QUERY_INTERVAL: Duration = Duration::from_secs(1);

/// The longest time without a delivery while the stream has more. A server delivers within milliseconds.
const STALL_MAX: Duration = Duration::from_secs(3);

/// The pause after a failed subscription, after purges that could not be applied, and after the first failed write.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The longest pause between two attempts to write. An attempt writes the whole table of purges: up to 24 MB with the
/// default of `purge.entries_max`.
const WRITE_AFTER_MAX: Duration = Duration::from_secs(30);

/// The most messages that wait to be applied. A message has 200 bytes typically.
const QUEUE_MAX: usize = 512;

/// The most messages that are applied and synced at once.
const BATCH_MAX: usize = 256;

#[cfg(test)]
mod tests;
