//! Feeds a database's changes to the publisher.
//!
//! With each batch of ids a feed sends its position. The publisher replies when the ids are on the device. The
//! publisher stores the position next to the journal, so that the feed continues at this position after a restart.
//! A transaction may commit rows whose positions the feed has already passed. The feed finds them because it reads
//! again from a position somewhat earlier (its look-back).

use std::sync::Arc;
use std::sync::mpsc::{self as std_mpsc, SyncSender};
use std::time::Duration;

use edgeward_filter::{Digest, IdHash};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use crate::build::WakeReason;
use crate::counters::Counters;
use crate::writer::{Command, JournalError};

/// Sends a database's changes to the publisher. The queue is bounded: a feed that is faster than the device waits.
#[derive(Clone, Debug)]
pub struct Feed {
    commands: mpsc::WeakSender<Command>,
    /// The digest of the feed's name.
    name: Digest,
    position: Option<i64>,
    counters: Arc<Counters>,
    /// Wakes the builder, the thread that scans.
    wake: SyncSender<WakeReason>,
}

/// A batch of changes of a database. The publisher applies `removed` before `added`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Ids that were added.
    pub added: Vec<IdHash>,
    /// Ids that were removed. An id that was removed and added again is in both lists.
    pub removed: Vec<IdHash>,
    /// A time before the database was queried. After these changes, the feed has sent every change that was committed
    /// before this time. It is a time of the monotonic clock of [`PublishConfig::clock`](crate::PublishConfig::clock).
    /// `None` if more changes follow, or if some changes were refused.
    pub complete_until: Option<Duration>,
    /// The position at which this feed continues after a restart, in a unit that the feed chooses.
    pub position: Option<i64>,
}

impl Feed {
    pub(crate) fn new(
        commands: &mpsc::Sender<Command>,
        name: &str,
        counters: Arc<Counters>,
        wake: SyncSender<WakeReason>,
    ) -> Self {
        let name = Digest::compute(name.as_bytes());
        let (reply, position) = oneshot::channel();
        let sent = commands.blocking_send(Command::FeedPosition { feed: name, reply });
        // The command fails only if the publisher has stopped. The first batch of the feed then reports this error.
        let position = sent.ok().and_then(|()| position.blocking_recv().ok());
        Self {
            commands: commands.downgrade(),
            name,
            position: position.flatten(),
            counters,
            wake,
        }
    }

    /// Returns the stored position of the feed with this name, or `None` if no valid position is stored.
    pub fn position(&self) -> Option<i64> {
        self.position
    }

    /// Begins the feed. If [`position`](Self::position) returns a position, the feed must send all changes after
    /// this position. Otherwise it must send all changes that are committed after this call; a scan covers the
    /// earlier changes and is requested if necessary. Must be called from a thread without an async runtime.
    pub fn begin(&self) -> Result<(), FeedError> {
        let commands = self.commands.upgrade().ok_or(FeedError::Closed)?;
        let (feed, (reply, continues)) = (self.name, oneshot::channel());
        let sent = commands.blocking_send(Command::BeginFeed { feed, reply });
        sent.map_err(|_| FeedError::Closed)?;
        let continues = continues.blocking_recv().map_err(|_| FeedError::Closed)?;
        // If the queue is full, earlier messages wake the builder, so the error is ignored.
        let needs_scan = !continues;
        _ = self.wake.try_send(WakeReason::FeedBegan { needs_scan });
        Ok(())
    }

    /// Sends changes and waits until they are on the device and published. Refused changes must be sent again before
    /// the feed may set [`Changes::complete_until`] for later changes.
    ///
    /// Blocks the thread. The thread may run an async runtime, as database clients do while they read rows.
    pub fn blocking_send(&self, changes: Changes) -> Result<(), FeedError> {
        let (done, journaled) = std_mpsc::sync_channel(1);
        let mut command = Command::Changes { changes, done };
        loop {
            let commands = self.commands.upgrade().ok_or(FeedError::Closed)?;
            match commands.try_send(command) {
                Ok(()) => break,
                Err(TrySendError::Closed(_)) => return Err(FeedError::Closed),
                // The writer takes one command after another from the queue, so a later attempt succeeds.
                Err(TrySendError::Full(refused)) => command = refused,
            }
            drop(commands);
            std::thread::sleep(RETRY_PAUSE);
        }
        Ok(journaled.recv().map_err(|_| FeedError::Closed)??)
    }

    /// Counts rows of the database's changes that were skipped because they are malformed.
    pub fn count_malformed(&self, rows: u64) {
        self.counters.changes_malformed.add(rows);
    }

    /// Counts a failed query of the database.
    pub fn count_failed_poll(&self) {
        self.counters.polls_failed.increment();
    }
}

const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// Why changes were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FeedError {
    /// The publisher has stopped.
    #[error("the publisher has stopped")]
    Closed,
    /// The journal is full until the next snapshot.
    #[error("the journal is full until the next snapshot, which is being built")]
    Full,
    /// The device returned an error.
    #[error("cannot write the journal")]
    Device,
}

impl From<JournalError> for FeedError {
    fn from(why: JournalError) -> Self {
        match why {
            JournalError::Full => Self::Full,
            JournalError::Device => Self::Device,
        }
    }
}
