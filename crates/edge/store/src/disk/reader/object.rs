//! An object that can be read: its head, and the location of its body.

use std::sync::Arc;

use bytes::Bytes;
use edgeward_types::KeyHash;

use super::body::Body;
use crate::disk::format::Extent;
use crate::disk::location::Location;
use crate::disk::segment::Pin;
use crate::disk::unwritten;
use crate::disk::volume::Volume;
use crate::sync::Mutex;

/// An object that can be read. Cheap to clone. While a clone exists, the segments of the object are pinned. A pinned
/// segment is overwritten only if all free segments are pinned.
#[derive(Clone, Debug)]
pub struct DiskObject {
    pub(super) inner: Arc<Inner>,
}

/// The parts of an object that all clones of its [`DiskObject`] share.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) volume: Arc<Volume>,
    pub(super) hash: KeyHash,
    pub(super) location: Location,
    pub(super) head: Bytes,
    /// The length of the body in bytes.
    pub(super) length: u64,
    pub(super) layout: Layout,
    /// The pin of the segment with the object's only record or its commit record, which lists the pieces.
    pub(super) _pin: Pin,
    /// The pins of further segments that contain pieces of the object.
    pub(super) _pins: Vec<Pin>,
}

/// The location of the body.
#[derive(Debug)]
pub(super) enum Layout {
    /// The record is not written yet.
    Unwritten(unwritten::Body),
    /// The body is in the object's only record.
    Single(Body),
    /// The body is in pieces.
    Pieces {
        /// The number of the object, unique among all objects ever written to the device.
        object_id: u64,
        extents: Vec<Extent>,
        /// The offset of each piece in the body.
        starts: Vec<u64>,
        /// The number and the body of the piece that was read last, so that the next read of this piece does not
        /// read its metadata again.
        last: Mutex<Option<(usize, Body)>>,
    },
}

impl DiskObject {
    /// The metadata that the caller stored with the body.
    pub fn head(&self) -> &Bytes {
        &self.inner.head
    }

    /// The length of the body in bytes.
    pub fn length(&self) -> u64 {
        self.inner.length
    }

    pub(crate) fn hash(&self) -> KeyHash {
        self.inner.hash
    }

    pub(crate) fn location(&self) -> Location {
        self.inner.location
    }

    pub(crate) fn volume(&self) -> &Arc<Volume> {
        &self.inner.volume
    }
}
