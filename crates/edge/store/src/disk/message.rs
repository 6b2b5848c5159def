//! The messages from callers to the thread that writes a device.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use bytes::Bytes;
use edgeward_types::KeyHash;

use super::error::SyncError;
use super::location::Location;
use super::write_state::WriteState;

/// A message to the writer.
#[derive(Debug)]
pub(crate) enum Message {
    /// Writes an object with its whole body.
    Object {
        write: Arc<WriteState>,
        body: Vec<Bytes>,
        body_bytes: u64,
    },
    /// Writes a piece of an object.
    Piece {
        write: Arc<WriteState>,
        body: Vec<Bytes>,
        body_bytes: u64,
    },
    /// Writes the commit record of an object in pieces.
    Commit { write: Arc<WriteState> },
    /// Replaces the head of the object at a location. The body stays the same.
    Rewrite {
        write: Arc<WriteState>,
        from: Location,
    },
    /// Purges a key.
    Tombstone { hash: KeyHash },
    /// Purges a key, and calls `done` when the purge is durable.
    Purge { hash: KeyHash, done: PurgeCallback },
    /// Sends a result to `done` when all earlier messages are durable.
    Sync {
        done: SyncSender<Result<(), SyncError>>,
    },
    /// Like `Sync`. The writer ends after this message.
    Close {
        done: SyncSender<Result<(), SyncError>>,
    },
}

/// The callback of a purge. It is called when the purge is durable or has failed. If the writer ends before
/// this, the callback is dropped without a call.
pub(crate) struct PurgeCallback(Box<dyn FnOnce(Result<(), SyncError>) + Send>);

impl PurgeCallback {
    pub(crate) fn new(done: impl FnOnce(Result<(), SyncError>) + Send + 'static) -> Self {
        Self(Box::new(done))
    }

    pub(crate) fn call(self, result: Result<(), SyncError>) {
        (self.0)(result);
    }
}

impl std::fmt::Debug for PurgeCallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PurgeCallback")
    }
}
