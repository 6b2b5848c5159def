//! The destination of a response: the key under which it is stored, and the tiers that store it.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use edgeward_policy::RejectReason;
use edgeward_purge::Stamp;
use edgeward_semantics::{Storable, Vary};
use edgeward_sites::DiskPlacement;
use edgeward_store::hot::{Commit, Offer, Reservation};
use edgeward_store::versions::Version;
use edgeward_types::KeyHash;
use http::StatusCode;

use super::fetch_state::Fetch;
use super::role::ObjectRole;
use super::versions::KeyVersions;
use crate::cache::disk::fill::{DiskFill, FillRefusal};
use crate::cache::disk::{DiskTier, head};
use crate::cache::path_rules::PathMarker;
use crate::cache::stored::{self, DiskPlan, Selector, Stored, StoredKind, Variants};
use crate::exchange::request_settings::Placement;
use crate::observe::causes::CopyResult;
use crate::origin::as_origin_sees;
use crate::path::worker::Worker;

/// The key under which a response will be stored, and its reserved memory.
pub(super) struct Destination {
    pub(super) hash: KeyHash,
    pub(super) key: Vec<u8>,
    /// The Vary marker under the primary key, if the responses vary. Lookups find the variant through it.
    pub(super) marker: Option<Arc<Stored>>,
    /// The marker of the path, if the response is stored under the rule of its path.
    pub(super) path_marker: Option<PathMarker>,
    /// The versions of the response's key and of the primary key. A change of the stored response makes a new version.
    pub(super) versions: KeyVersions,
    /// True if lookups can find the stored response: it needs no marker, or its marker is already in memory or on disk.
    pub(super) is_findable: bool,
    pub(super) reservation: Option<Reservation<Stored>>,
    /// The time from the request to the head of the origin's response.
    pub(super) fetch_time: Duration,
    /// Present if the edge may encode the response.
    pub(super) generation: Option<NonZeroU64>,
    /// See [`StoredResponse::disk_plan`](crate::cache::stored::StoredResponse::disk_plan).
    pub(super) disk_plan: DiskPlan,
    /// The role of this node in its fleet.
    pub(super) role: ObjectRole,
    /// The tiers that may store the response by the rules of its site.
    pub(super) placement: Placement,
}

impl Destination {
    /// Records the key's version after an older response was removed; `None` if the key had changed before the removal.
    pub(super) fn set_removed(&mut self, version: Option<Version>) {
        let Some(version) = version else { return };
        if self.versions.primary.key() == version.key() {
            self.versions.primary = version;
        }
        self.versions.key = version;
    }

    /// Offers the response, whose body has `length` bytes, to memory. Then records the request for the tuner of the
    /// admission policy. The simulator does both steps in the same order.
    pub(super) fn offer(&mut self, worker: &Worker, charge: u64, length: u64) {
        if self.role == ObjectRole::Other {
            return worker.counters.not_stored_fleet.increment();
        }
        if !self.placement.memory {
            return worker.counters.not_stored_rule.increment();
        }
        if length > worker.config().limits.object_bytes_max.bytes() {
            worker.counters.not_stored_size.increment();
        } else {
            let (cache, counters) = (&worker.cache, &worker.counters);
            let fleet = worker.shared.fleet.as_ref();
            let copies = fleet.and_then(|fleet| fleet.copies.as_ref());
            let copies = copies.filter(|_| self.role == ObjectRole::Copy);
            let offer = match copies {
                Some(copies) => {
                    cache.offer_copy(self.hash, charge, copies.rule.peer_cost, counters)
                }
                None => cache.offer_to_ram(self.hash, charge, Some(self.fetch_time), counters),
            };
            if copies.is_some() {
                counters.fleet_copies[CopyResult::of(matches!(offer, Offer::Admit(_)))].increment();
            }
            match offer {
                Offer::Admit(reservation) => self.reservation = Some(reservation),
                Offer::Refuse(refusal) => count_refusal(worker, refusal),
                Offer::Pinned => counters.not_stored_pinned.increment(),
            }
        }
        worker.cache.record(self.hash, charge, false); // not a hit
    }
}

impl Fetch {
    /// Returns the destination of a response. If the response varies and this node stores it, its marker is inserted
    /// first, because lookups find a variant only through its marker. `None` if neither tier can store the marker.
    pub(super) fn choose_destination(
        &mut self,
        storable: &Storable,
        fetch_time: Duration,
        mut versions: KeyVersions,
        path_marker: Option<PathMarker>,
        role: ObjectRole,
    ) -> Option<Destination> {
        let (placement, stores) = (self.placement(role), role != ObjectRole::Other);
        let primary = self.key.primary().to_vec();
        let Vary::Fields(fields) = &storable.vary else {
            versions.key = versions.primary;
            if path_marker.is_some() {
                self.leader
                    .add_variant_key(versions.primary.key(), &primary);
            }
            return Some(Destination {
                hash: versions.primary.key(),
                key: primary,
                marker: None,
                path_marker,
                versions,
                is_findable: true,
                reservation: None,
                fetch_time,
                generation: None,
                disk_plan: plan_of(self.request.settings().placement, role),
                placement,
                role,
            });
        };
        let cache = &self.worker.cache;
        let primary_hash = versions.primary.key();
        let sent_fields =
            as_origin_sees(self.worker.edge_info(&self.request), &self.request, fields);
        let variants_max = self.worker.config().caching.variants_max.get();
        let known_marker = self.key.marker.clone().filter(|marker| {
            let StoredKind::Varies(variants) = &marker.kind else {
                return false;
            };
            let Selector::Fields(own) = &variants.selector else {
                return false;
            };
            if own != fields {
                return false;
            }
            let mut key = primary.clone();
            variants.write_key(fields, &sent_fields, &mut key);
            let has_space = variants.count.load(Ordering::Relaxed) < variants_max
                || cache.has(cache.hash(&key));
            if !has_space {
                self.worker.counters.variants_full.increment();
            }
            has_space
        });
        let is_known = known_marker.is_some();
        let marker = known_marker.unwrap_or_else(|| {
            let selector = Selector::Fields(fields.clone());
            // The generation is in the keys of variants, so older variants are not found.
            let variants = Variants::new(selector, cache.next_marker_generation());
            Stored::new(
                &primary,
                StoredKind::Varies(Box::new(variants)),
                Stamp::NONE,
            )
        });
        let is_present = || {
            let is_on_disk = |disk: &Arc<DiskTier>| disk.contains(primary_hash);
            let present = cache.hot.peek(primary_hash);
            present.is_some_and(|present| present.has_key(&primary))
                || cache.disk().is_some_and(is_on_disk)
        };
        // A node that does not store the response inserts a marker only in place of an older entry.
        let needs_marker = stores || cache.has(primary_hash);
        let mut is_findable = !needs_marker || (is_known && is_present());
        if !is_findable
            && let Offer::Admit(mut reservation) = cache.offer_to_ram(
                primary_hash,
                marker.charge_bytes(),
                None,
                &self.worker.counters,
            )
        {
            marker.attach_charge(reservation.take_charge());
            let commit = match is_known {
                // The marker was evicted and is inserted again, so that lookups find its variants.
                true => reservation.promote(Arc::clone(&marker), versions.primary),
                false => reservation.commit(Arc::clone(&marker), versions.primary),
            };
            if let Commit::Done(version) = commit {
                versions.primary = version;
                is_findable = true;
            }
        }
        if !is_findable && cache.disk().is_none() {
            return None;
        }
        let mut key = primary;
        if let StoredKind::Varies(variants) = &marker.kind {
            variants.write_key(fields, &sent_fields, &mut key);
            if stores {
                marker.set_stamp(versions.stamp);
            }
            if stores && !cache.has(cache.hash(&key)) {
                variants.count.fetch_add(1, Ordering::Relaxed);
                self.worker.counters.variants_new.increment();
            }
        }
        let hash = cache.hash(&key);
        if hash != versions.key.key() {
            // The variant's key is new to this fetch, so its version was not read yet.
            versions.key = cache.hot.version(hash);
        }
        self.leader.add_variant_key(hash, &key);
        Some(Destination {
            hash,
            key,
            marker: Some(marker),
            path_marker,
            versions,
            is_findable,
            reservation: None,
            fetch_time,
            generation: None,
            disk_plan: plan_of(self.request.settings().placement, role),
            placement,
            role,
        })
    }

    /// Begins to write the response to disk, if the disk admits it.
    pub(super) fn fill_disk(
        &self,
        destination: &mut Destination,
        storable: &Storable,
        status: StatusCode,
        length: Option<u64>,
    ) -> Option<DiskFill> {
        let worker = &self.worker;
        let tier = worker.cache.disk()?;
        let primary = destination.versions.primary.key();
        // An older response on disk is always replaced: lookups would find it after memory has evicted the new one.
        let writes = tier.admits(
            destination.placement.disk,
            destination.hash,
            &destination.key,
            length,
            &worker.counters,
        );
        // Even if the response is not written, an older marker on disk is replaced, so that no lookup finds it later.
        if let Some(marker) = &destination.marker
            && let StoredKind::Varies(variants) = &marker.kind
            && (writes || (!variants.on_disk.load(Ordering::Relaxed) && tier.contains(primary)))
        {
            if !destination.is_findable {
                // Memory has not stored the marker, so an older marker in memory is removed.
                let versions = &mut destination.versions;
                versions.primary = worker.cache.hot.remove(versions.primary)?;
            }
            let version = destination.versions.primary;
            if !tier.put_marker(primary, self.key.primary(), variants, version) {
                tier.remove(primary, self.key.primary());
                if !destination.is_findable {
                    return None;
                }
            }
        }
        if !writes {
            return None;
        }
        if let Some(marker) = &destination.path_marker {
            worker.cache.write_path_marker(marker);
        }
        let stamp = destination.versions.stamp;
        let head = head::write_response(
            status,
            &storable.policy,
            stamp,
            &storable.head,
            destination.generation,
        );
        let begun = DiskFill::begin(
            tier,
            &worker.counters,
            destination.hash,
            &destination.key,
            head,
            length,
        );
        if matches!(begun, Err(FillRefusal::QueueFull)) {
            destination.disk_plan = DiskPlan::Queued;
        }
        begun.ok()
    }
}

/// Returns the plan of a response that no tier has stored yet.
pub(super) const fn plan_of(placement: Placement, role: ObjectRole) -> DiskPlan {
    match (role, placement.disk) {
        (ObjectRole::Copy, disk) => DiskPlan::Copy {
            is_kept_off: matches!(disk, DiskPlacement::Never),
        },
        (ObjectRole::Other, _) | (_, DiskPlacement::Never) => DiskPlan::Never,
        (_, DiskPlacement::Normal | DiskPlacement::FirstRequest) => DiskPlan::Decide,
    }
}

/// Returns the bytes that memory will charge for the response.
pub(super) fn charge_of(
    destination: &Destination,
    storable: &Storable,
    status: StatusCode,
    length: u64,
) -> u64 {
    let head_bytes = stored::head_block_bytes(status, &storable.head, length);
    stored::charge_bytes(destination.key.len(), head_bytes, length)
}

fn count_refusal(worker: &Worker, refusal: RejectReason) {
    match refusal {
        RejectReason::Admission | RejectReason::LowRank => {
            worker.counters.not_stored_admission.increment();
        }
        RejectReason::LargerThanTier | RejectReason::ObjectLimit => {
            worker.counters.not_stored_size.increment();
        }
    }
}
