//! The state of a write that the caller, the writer and purges share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use bytes::Bytes;
use edgeward_types::KeyHash;

use super::error::WriteError;
use super::format::Extent;
use crate::sync::Mutex;

/// The state of a write that the caller, the writer and purges share.
#[derive(Debug)]
pub(crate) struct WriteState {
    pub(crate) hash: KeyHash,
    /// The id of the object, unique on the device.
    pub(crate) id: u64,
    pub(crate) key: Box<[u8]>,
    pub(crate) head: Bytes,
    /// The extents (location and length) of the pieces to which the writer has given a location so far.
    pub(crate) extents: Mutex<Vec<Extent>>,
    /// The length of the body. It is set when the caller has pushed the whole body.
    body_bytes: AtomicU64,
    /// The code of the cause for which the write was dropped, or 0; see [`CAUSES`].
    dropped: AtomicU8,
    /// True from the moment when lookups find the object. The record may be written later.
    is_visible: AtomicBool,
}

impl WriteState {
    pub(crate) fn new(hash: KeyHash, id: u64, key: &[u8], head: Bytes) -> Arc<Self> {
        Arc::new(Self {
            hash,
            id,
            key: key.into(),
            head,
            extents: Mutex::default(),
            body_bytes: AtomicU64::new(0),
            dropped: AtomicU8::new(0),
            is_visible: AtomicBool::new(false),
        })
    }

    /// Marks the write as dropped. If the write already has a cause, that cause stays.
    pub(crate) fn drop_as(&self, cause: WriteError) {
        let code = CAUSES.iter().position(|&other| other == cause);
        let code = code.expect("every cause is listed") + 1;
        let code = u8::try_from(code).expect("the causes are fewer than 256");
        _ = self
            .dropped
            .compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns the reason why the write was dropped, or `None` if the write was not dropped.
    pub(crate) fn dropped(&self) -> Option<WriteError> {
        let code = usize::from(self.dropped.load(Ordering::Relaxed));
        Some(CAUSES[code.checked_sub(1)?])
    }

    pub(crate) fn set_visible(&self) {
        self.is_visible.store(true, Ordering::Release);
    }

    /// Returns true if lookups do not find the object yet but may find it later, because it was not dropped.
    pub(crate) fn is_hidden(&self) -> bool {
        !self.is_visible.load(Ordering::Acquire) && self.dropped().is_none()
    }

    pub(crate) fn body_bytes(&self) -> u64 {
        self.body_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_body_bytes(&self, bytes: u64) {
        self.body_bytes.store(bytes, Ordering::Relaxed);
    }
}

/// The causes in the order of their codes in `WriteState::dropped`. See [`WriteError`] for each cause. The code
/// 0 means that the write was not dropped.
const CAUSES: [WriteError; 8] = [
    WriteError::QueueFull,
    WriteError::TooLong,
    WriteError::TooShort,
    WriteError::Purged,
    WriteError::NotWritable,
    WriteError::Gone,
    WriteError::KeyOrHeadTooLong,
    WriteError::Closed,
];
