//! Where a database's changes are put.
//!
//! A feed tells how far it has come with the ids it brings, and is answered when they are on the device.
//! The publisher keeps the position beside its journal, so that the feed goes on there after a restart,
//! and what was complete then stays so: nothing was committed behind the position meanwhile but what the
//! feed's own overlap covers.

use std::sync::Arc;
use std::sync::mpsc::{self as std_mpsc, SyncSender};
use std::time::Duration;

use edgeward_filter::{Digest, IdHash};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use crate::build::Wake;
use crate::counters::Counters;
use crate::writer::{Command, NotJournaled};

/// Takes a database's changes. Bounded: a feed that is faster than the device waits.
#[derive(Clone, Debug)]
pub struct Feed {
    commands: mpsc::WeakSender<Command>,
    name: Digest,
    position: Option<i64>,
    counters: Arc<Counters>,
    wake: SyncSender<Wake>,
}

/// Changes of a database, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Ids that were added.
    pub added: Vec<IdHash>,
    /// Ids that were removed; one that was added again too stands in both.
    pub removed: Vec<IdHash>,
    /// The time up to which nothing is missing once these are in, by the monotonic clock of
    /// [`PublishConfig::clock`](crate::PublishConfig::clock): a moment before the database was queried for them. None
    /// if more are to come, or if some were refused.
    pub complete: Option<Duration>,
    /// Where this feed goes on after a restart, in whatever it counts.
    pub position: Option<i64>,
}

impl Feed {
    pub(crate) fn new(
        commands: &mpsc::Sender<Command>,
        name: &str,
        counters: Arc<Counters>,
        wake: SyncSender<Wake>,
    ) -> Self {
        let name = Digest::of(name.as_bytes());
        let (reply, position) = oneshot::channel();
        let asked = commands.blocking_send(Command::FeedAsks { feed: name, reply });
        // Refused only when the publisher is gone, which the feed's first batch will tell.
        let position = asked.ok().and_then(|()| position.blocking_recv().ok());
        Self {
            commands: commands.downgrade(),
            name,
            position: position.flatten(),
            counters,
            wake,
        }
    }

    /// Where a feed of this name stood when the publisher last ran.
    pub fn position(&self) -> Option<i64> {
        self.position
    }

    /// From now on changes are put in: all that are committed after this, or from
    /// [`position`](Self::position) on if there is one. What was committed before is for a scan to find,
    /// which is wished for where it is needed. From a thread without a runtime.
    pub fn begin(&self) -> Result<(), FeedError> {
        let commands = self.commands.upgrade().ok_or(FeedError::Closed)?;
        let (feed, (reply, continues)) = (self.name, oneshot::channel());
        let sent = commands.blocking_send(Command::FeedBegins { feed, reply });
        sent.map_err(|_| FeedError::Closed)?;
        let continues = continues.blocking_recv().map_err(|_| FeedError::Closed)?;
        // Full means that a scan is wished for already.
        let scan_wanted = !continues;
        _ = self.wake.try_send(Wake::FeedBegan { scan_wanted });
        Ok(())
    }

    /// Hands over changes, and waits until they are on the device and published. What is refused must be
    /// handed over again before anything is called complete.
    ///
    /// Blocks the thread, which may be one that drives a runtime of its own, as a database's client does
    /// while it reads rows.
    pub fn blocking_send(&self, changes: Changes) -> Result<(), FeedError> {
        let (done, journaled) = std_mpsc::sync_channel(1);
        let mut command = Command::Changes { changes, done };
        loop {
            let commands = self.commands.upgrade().ok_or(FeedError::Closed)?;
            match commands.try_send(command) {
                Ok(()) => break,
                Err(TrySendError::Closed(_)) => return Err(FeedError::Closed),
                // It has room for all that may wait, so that this ends with the next thing done.
                Err(TrySendError::Full(refused)) => command = refused,
            }
            drop(commands);
            std::thread::sleep(BETWEEN_TRIES);
        }
        Ok(journaled.recv().map_err(|_| FeedError::Closed)??)
    }

    /// Counts rows of the database's changes that were skipped because they are malformed.
    pub fn malformed(&self, rows: u64) {
        self.counters.changes_malformed.add(rows);
    }

    /// Counts a question to the database that came to no good end.
    pub fn failed(&self) {
        self.counters.polls_failed.one();
    }
}

const BETWEEN_TRIES: Duration = Duration::from_millis(1);

/// Why changes were not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FeedError {
    /// The publisher is gone.
    #[error("the publisher has stopped")]
    Closed,
    /// As many as allowed, until the next snapshot.
    #[error("the journal is full until the next snapshot, which is being built")]
    Full,
    /// The device.
    #[error("the journal cannot be written")]
    Device,
}

impl From<NotJournaled> for FeedError {
    fn from(why: NotJournaled) -> Self {
        match why {
            NotJournaled::Full => Self::Full,
            NotJournaled::Device => Self::Device,
        }
    }
}
