//! Where a response will be kept: under which key, and which of RAM and disk take it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use edgeward_policy::Refusal;
use edgeward_semantics::{Storable, Vary};
use edgeward_store::hot::{Commit, Offer, Reservation};
use edgeward_store::versions::Version;
use edgeward_types::KeyHash;
use http::StatusCode;

use super::{Fetch, Seen};
use crate::cache::disk::fill::DiskFill;
use crate::cache::disk::{self, DiskTier};
use crate::cache::stored::{self, Stored, StoredKind, Variants};
use crate::origin::as_origin_sees;
use crate::path::worker::Worker;

/// Where a response will be kept.
pub(super) struct Place {
    pub(super) hash: KeyHash,
    pub(super) key: Vec<u8>,
    /// What leads from the URI to it, if the URI varies.
    pub(super) marker: Option<Arc<Stored>>,
    /// The versions of the key and of its URL's key.
    pub(super) seen: Seen,
    /// Whether the marker has a place without the disk's help.
    pub(super) findable: bool,
    pub(super) reservation: Option<Reservation<Stored>>,
}

impl Place {
    /// Goes on with the version that the removal of an older response made. `None` if the key had changed before.
    pub(super) fn removed(&mut self, made: Option<Version>) {
        let Some(made) = made else { return };
        if self.seen.url.key() == made.key() {
            self.seen.url = made;
        }
        self.seen.key = made;
    }

    /// Asks for room for a body of `length`, and tells the tuner of the request: in this order, as
    /// the simulator does.
    pub(super) fn offer(&mut self, worker: &Worker, charge: u64, length: u64) {
        if length > worker.config().limits.object_bytes_max.bytes() {
            worker.counters.not_stored_size.increment();
        } else {
            match worker
                .cache
                .offer_to_ram(self.hash, charge, &worker.counters)
            {
                Offer::Admit(reservation) => self.reservation = Some(reservation),
                Offer::Refuse(refusal) => count_refusal(worker, refusal),
                Offer::Pinned => worker.counters.not_stored_pinned.increment(),
            }
        }
        worker.cache.record(self.hash, charge, false);
    }
}

impl Fetch {
    /// The key the response belongs under. Sees to the marker of a URI that varies; without one the
    /// variant could not be found, and so has no place.
    pub(super) fn place(&mut self, storable: &Storable, mut seen: Seen) -> Option<Place> {
        let primary = self.key.primary().to_vec();
        let Vary::Fields(fields) = &storable.vary else {
            seen.key = seen.url;
            return Some(Place {
                hash: seen.url.key(),
                key: primary,
                marker: None,
                seen,
                findable: true,
                reservation: None,
            });
        };
        let cache = &self.worker.cache;
        let primary_hash = seen.url.key();
        let known = self.key.marker.clone().filter(|marker| {
            matches!(&marker.kind, StoredKind::Varies(variants) if variants.fields == *fields)
        });
        let is_known = known.is_some();
        let marker = known.unwrap_or_else(|| {
            let variants = Variants {
                fields: fields.clone(),
                generation: cache.next_generation(),
                on_disk: AtomicBool::new(false),
                seen: None,
                hold: OnceLock::new(),
            };
            Stored::new(&primary, StoredKind::Varies(Box::new(variants)))
        });
        let mut findable = is_known && {
            let is_on_disk = |disk: &Arc<DiskTier>| disk.holds(primary_hash);
            let present = cache.hot.peek(primary_hash);
            present.is_some_and(|present| present.is_of(&primary))
                || cache.disk.as_ref().is_some_and(is_on_disk)
        };
        if !findable
            && let Offer::Admit(mut reservation) =
                cache.offer_to_ram(primary_hash, marker.charge_bytes(), &self.worker.counters)
        {
            marker.keep_hold(reservation.take_hold());
            let commit = match is_known {
                // It had to leave meanwhile, and its variants would no longer be found.
                true => reservation.promote(Arc::clone(&marker), seen.url),
                false => reservation.commit(Arc::clone(&marker), seen.url),
            };
            if let Commit::Done(version) = commit {
                seen.url = version;
                findable = true;
            }
        }
        if !findable && cache.disk.is_none() {
            return None;
        }
        let mut key = primary;
        if let StoredKind::Varies(variants) = &marker.kind {
            let request = as_origin_sees(self.worker.hop(), &self.request, &variants.fields);
            variants.write_key(&request, &mut key);
        }
        let hash = cache.hash(&key);
        if hash != seen.key.key() {
            // Nobody saw anything under a new generation.
            seen.key = cache.hot.version(hash);
        }
        self.lead.also_known_as(hash, &key);
        Some(Place {
            hash,
            key,
            marker: Some(marker),
            seen,
            findable,
            reservation: None,
        })
    }

    /// Asks whether the response is worth writing to disk, and begins to if so.
    pub(super) fn fill_disk(
        &self,
        place: &mut Place,
        storable: &Storable,
        status: StatusCode,
        length: Option<u64>,
    ) -> Option<DiskFill> {
        let worker = &self.worker;
        let tier = worker.cache.disk.as_ref()?;
        let primary = place.seen.url.key();
        // What is there already is replaced, or it would outlive this response.
        let writes =
            tier.admits(place.hash, &place.key, length, &worker.counters) | tier.holds(place.hash);
        if let Some(marker) = &place.marker
            && let StoredKind::Varies(variants) = &marker.kind
            && (writes || (!variants.on_disk.load(Ordering::Relaxed) && tier.holds(primary)))
        {
            if !place.findable {
                // It is new, and RAM has no room for it.
                place.seen.url = worker.cache.hot.remove(place.seen.url)?;
            }
            if !tier.put_marker(primary, self.key.primary(), variants, place.seen.url) {
                tier.remove(primary, self.key.primary());
                if !place.findable {
                    return None;
                }
            }
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
        Refusal::Admission => worker.counters.not_stored_admission.increment(),
        Refusal::LargerThanTier | Refusal::ObjectLimit => {
            worker.counters.not_stored_size.increment();
        }
    }
}
