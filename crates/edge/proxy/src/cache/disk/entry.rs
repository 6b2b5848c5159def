//! The result of a lookup on disk, read from the head of an object.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use edgeward_purge::Stamp;
use edgeward_store::disk::{Candidate, DiskObject};
use edgeward_store::versions::Version;

use super::head::{self, DiskHead};
use super::hit::DiskHit;
use crate::cache::slices::Slices;
use crate::cache::stored::DiskPlan;
use crate::cache::stored::{Selector, Stored, StoredBody, StoredKind, StoredResponse, Variants};

/// The result of a lookup on disk.
pub(crate) enum DiskEntry {
    Absent,
    Response(Box<DiskHit>),
    /// The responses are stored under other keys, which depend on more of the request.
    Marker(Arc<Stored>),
    /// The entry of a sliced response. Its slices are objects of their own.
    Sliced(Arc<Stored>),
    /// The head is not in the page cache, so it has to be read from the device.
    Pending(Candidate),
}

/// Returns the entry that an object's head describes, or `None` if the head cannot be parsed.
pub(super) fn parse(
    key: &[u8],
    object: DiskObject,
    version_of: impl FnOnce(&DiskObject) -> Option<Version>,
) -> Option<DiskEntry> {
    match head::parse(object.head()) {
        Ok(DiskHead::Response {
            status,
            policy,
            stamp,
            fields,
            slices: None,
            generation,
        }) => Some(DiskEntry::Response(Box::new(DiskHit {
            object,
            status,
            policy,
            stamp,
            fields,
            generation,
        }))),
        Ok(DiskHead::Response {
            status,
            policy,
            stamp,
            fields,
            slices: Some(on_disk),
            generation: _,
        }) => {
            let slices = Slices {
                on_disk: AtomicBool::new(true),
                version: version_of(&object),
                ..Slices::new(on_disk.slicing, on_disk.generation)
            };
            let response = StoredResponse {
                policy,
                status,
                head: head::block(status, &fields, on_disk.slicing.complete_length),
                body: StoredBody::Slices(Arc::new(slices)),
                generation: None,
                disk_plan: DiskPlan::Decide,
            };
            let kind = StoredKind::Response(response);
            Some(DiskEntry::Sliced(Stored::new(key, kind, stamp)))
        }
        Ok(DiskHead::Varies { fields, generation }) => {
            let selector = Selector::Fields(fields);
            Some(marker(key, selector, generation, version_of(&object)))
        }
        Ok(DiskHead::PathRule { rule, generation }) => {
            let selector = Selector::Query(rule);
            Some(marker(key, selector, generation, version_of(&object)))
        }
        Err(error) => {
            tracing::debug!(%error, "a head on disk cannot be parsed");
            None
        }
    }
}

/// Returns a marker that was read from disk.
fn marker(key: &[u8], selector: Selector, generation: u64, version: Option<Version>) -> DiskEntry {
    let variants = Variants {
        count: AtomicU32::new(0),
        on_disk: AtomicBool::new(true),
        version,
        ..Variants::new(selector, generation)
    };
    let kind = StoredKind::Varies(Box::new(variants));
    DiskEntry::Marker(Stored::new(key, kind, Stamp::NONE))
}
