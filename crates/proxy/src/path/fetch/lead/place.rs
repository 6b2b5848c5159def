//! Where a response will be kept: under which key, and which of RAM and disk take it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use edgeward_policy::Refusal;
use edgeward_semantics::{Storable, Vary};
use edgeward_store::hot::{Commit, Offer, Reservation};
use edgeward_types::KeyHash;
use http::StatusCode;

use super::Fetch;
use crate::cache::disk;
use crate::cache::disk::fill::DiskFill;
use crate::cache::stored::{self, Stored, StoredKind, Variants};
use crate::origin::as_origin_sees;
use crate::path::worker::Worker;

/// Where a response will be kept.
pub(super) struct Place {
    pub(super) hash: KeyHash,
    pub(super) key: Vec<u8>,
    /// What leads from the URI to it, if the URI varies.
    pub(super) marker: Option<Arc<Stored>>,
    /// The disk tier's count of changes of the primary key, from before the marker was looked up.
    marker_changes: u64,
    /// Whether the marker has a place without the disk's help.
    pub(super) findable: bool,
    pub(super) reservation: Option<Reservation<Stored>>,
}

impl Place {
    /// Asks for room for a body of `length`, and tells the tuner of the request: in this order, as
    /// the simulator does.
    pub(super) fn offer(&mut self, worker: &Worker, charge: u64, length: u64) {
        if length > worker.config().limits.object_bytes_max.bytes() {
            worker.counters.not_stored_size.one();
        } else {
            match worker
                .cache
                .offer_to_ram(self.hash, charge, &worker.counters)
            {
                Offer::Admit(reservation) => self.reservation = Some(reservation),
                Offer::Refuse(refusal) => count_refusal(worker, refusal),
                Offer::Pinned => worker.counters.not_stored_pinned.one(),
            }
        }
        worker.cache.record(self.hash, charge, false);
    }
}

impl Fetch {
    /// The key the response belongs under. Sees to the marker of a URI that varies; without one the
    /// variant could not be found, and so has no place.
    pub(super) fn place(&mut self, storable: &Storable) -> Option<Place> {
        let primary = self.key.primary().to_vec();
        let Vary::Fields(fields) = &storable.vary else {
            return Some(Place {
                hash: self.worker.cache.hash(&primary),
                key: primary,
                marker: None,
                marker_changes: 0,
                findable: true,
                reservation: None,
            });
        };
        let cache = &self.worker.cache;
        let primary_hash = cache.hash(&primary);
        let disk = cache.disk.as_ref();
        let marker_changes = disk.map_or(0, |disk| disk.changes(primary_hash));
        let says_so = |stored: &Arc<Stored>| {
            stored.is_of(&primary)
                && matches!(&stored.kind, StoredKind::Varies(v) if v.fields == *fields)
        };
        let in_ram = cache.hot.peek(primary_hash).filter(says_so);
        let mut findable = in_ram.is_some();
        let on_disk = || {
            // The one that led here, if nobody has taken it away meanwhile.
            let marker = self.key.marker.clone().filter(says_so)?;
            let disk = cache.disk.as_ref()?;
            let StoredKind::Varies(variants) = &marker.kind else {
                return None;
            };
            let is_there = variants.on_disk.load(Ordering::Relaxed) && disk.holds(primary_hash);
            is_there.then_some(marker)
        };
        let marker = match in_ram.or_else(on_disk) {
            Some(marker) => {
                findable |= cache.disk.is_some();
                marker
            }
            None => {
                let variants = Variants {
                    fields: fields.clone(),
                    generation: cache.next_generation(),
                    on_disk: AtomicBool::new(false),
                    hold: OnceLock::new(),
                };
                let charge = variants.charge_bytes(primary.len());
                let marker = Stored::new(&primary, StoredKind::Varies(Box::new(variants)));
                if let Offer::Admit(mut reservation) =
                    cache.offer_to_ram(primary_hash, charge, &self.worker.counters)
                {
                    marker.keep_hold(reservation.take_hold());
                    let fill = &self.lead.fill;
                    let commit = reservation.commit_if(Arc::clone(&marker), |_| !fill.is_doomed());
                    findable = commit == Commit::Done;
                }
                if !findable && cache.disk.is_none() {
                    return None;
                }
                marker
            }
        };
        let mut key = primary.clone();
        if let StoredKind::Varies(variants) = &marker.kind {
            let seen = as_origin_sees(self.worker.hop(), &self.request, &variants.fields);
            variants.write_key(&seen, &mut key);
        }
        let hash = cache.hash(&key);
        self.lead.also_known_as(hash, &key);
        Some(Place {
            hash,
            key,
            marker: Some(marker),
            marker_changes,
            findable,
            reservation: None,
        })
    }

    /// Asks whether the response is worth writing to disk, and begins to if so.
    pub(super) fn fill_disk(
        &self,
        place: &Place,
        storable: &Storable,
        status: StatusCode,
        length: Option<u64>,
    ) -> Option<DiskFill> {
        let worker = &self.worker;
        let tier = worker.cache.disk.as_ref()?;
        let primary = self.key.primary_hash();
        // What is there already is replaced, or it would outlive this response.
        let writes =
            tier.admits(place.hash, &place.key, length, &worker.counters) | tier.holds(place.hash);
        if let Some(marker) = &place.marker
            && let StoredKind::Varies(variants) = &marker.kind
            && (writes || (!variants.on_disk.load(Ordering::Relaxed) && tier.holds(primary)))
        {
            tier.put_marker(primary, self.key.primary(), variants, place.marker_changes);
        }
        if !writes {
            return None;
        }
        let head = disk::head_of(status, &storable.policy, &storable.head);
        DiskFill::begin(tier, &worker.counters, place.hash, &place.key, head, length)
    }
}

pub(super) fn charge_of(
    place: &Place,
    storable: &Storable,
    status: StatusCode,
    length: u64,
) -> u64 {
    let head_bytes = stored::head_block_bytes(status, &storable.head, length);
    stored::charge_bytes(place.key.len(), head_bytes, length)
}

fn count_refusal(worker: &Worker, refusal: Refusal) {
    match refusal {
        Refusal::Admission => worker.counters.not_stored_admission.one(),
        Refusal::LargerThanTier | Refusal::ObjectLimit => worker.counters.not_stored_size.one(),
    }
}
