//! The decisions of one tier: which objects are resident, admitted and evicted. It stores no bodies.
//!
//! Both the server and the simulator use a [`Tier`]. The server holds a lock at a miss; the simulator needs no
//! lock. A hit needs shared access only, through [`HitRecorder`].

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::admission::rule::Admission;
use crate::object::{Evicted, Object, Verdict};
use crate::objective::Benefit;
use crate::slots::Slot;

/// A tier whose policy is selected at run time.
pub type AnyTier = Box<dyn Tier>;

/// One byte budget with an admission rule and an eviction order.
///
/// The budget is not divided into shards: a shard with its own budget would reject or thrash on objects that
/// are large compared to the shard.
pub trait Tier: Debug + Send {
    /// Offers an object after a miss. Appends the objects evicted for it to `evicted`. `benefit` is the benefit of each
    /// hit on the object; policies without an objective ignore it (see [`Objective`](crate::Objective)).
    ///
    /// The key must not be resident: to replace an object, call [`remove`](Self::remove) first. Takes O(log n)
    /// amortised per evicted object.
    fn offer(&mut self, object: &Object, benefit: Benefit, evicted: &mut Vec<Evicted>) -> Verdict;

    /// Admits an object that another tier has evicted by [`evict_next`](Self::evict_next), so that a cache can change
    /// its policy. The admission rule is not asked, and the object is not compared with its victims. If the object
    /// `was_hit`, it is entered as an object with one hit.
    ///
    /// Returns `None` if the object is larger than the tier, or if the tier holds the maximum number of objects.
    fn adopt(
        &mut self,
        object: &Object,
        benefit: Benefit,
        was_hit: bool,
        evicted: &mut Vec<Evicted>,
    ) -> Option<Slot>;

    /// Evicts the object that is worth the least. Returns `None` if no object is resident.
    fn evict_next(&mut self) -> Option<Evicted>;

    /// Removes the object in `slot` after a purge or a replacement. Returns false if the object was already
    /// removed or evicted.
    fn remove(&mut self, slot: Slot) -> bool;

    /// Changes the budget. A smaller budget evicts at once.
    fn resize(&mut self, capacity_bytes: u64, evicted: &mut Vec<Evicted>);

    /// See [`Admission::set_c`].
    fn set_c(&mut self, c_bytes: f64);

    /// Returns true if the object that was admitted into `slot` is still resident.
    fn holds(&self, slot: Slot) -> bool;

    /// Returns the handle that records hits. It is cheap to clone and takes no lock.
    fn hit_recorder(&self) -> HitRecorder;

    /// The admission rule with its state.
    fn admission(&self) -> &Admission;

    /// The charge of all resident objects, never above the capacity.
    fn used_bytes(&self) -> u64;

    /// The byte budget.
    fn capacity_bytes(&self) -> u64;

    /// The number of resident objects.
    fn residents(&self) -> usize;

    /// Returns a digest of all decisions. Equal requests, seeds and policies give equal digests.
    fn digest(&self) -> u64;

    /// The bytes that the tier itself takes, without the table of objects that the caller has.
    fn bookkeeping_bytes(&self) -> usize;

    /// The bytes of bookkeeping beyond [`BOOKKEEPING_BYTES_CHARGED`] per resident
    /// object, and the state of the admission rule. A cache whose capacity limits all its memory reduces the capacity
    /// of the tier by this number.
    fn uncharged_bytes(&self) -> u64;
}

/// The part of a tier that hits use. Cheap to clone, without locks.
#[derive(Clone, Debug)]
pub struct HitRecorder(Arc<dyn RecordHit>);

impl HitRecorder {
    pub(crate) fn new(hits: Arc<impl RecordHit>) -> Self {
        Self(hits)
    }

    /// Records a hit on the object that was admitted into `slot`.
    #[inline]
    pub fn hit(&self, slot: Slot) {
        self.0.hit(slot);
    }

    /// Records a hit as [`hit`](Self::hit), for a caller that alone records the hits of the tier. If several threads
    /// call this function, hits may be lost.
    ///
    /// No list of hits then needs an atomic increment. All later loads of a processor wait for such an increment.
    #[inline]
    pub fn hit_alone(&self, slot: Slot) {
        self.0.hit_alone(slot);
    }
}

/// The shared state of a tier in which hits are recorded.
pub(crate) trait RecordHit: Debug + Send + Sync + 'static {
    /// See [`HitRecorder::hit`].
    fn hit(&self, slot: Slot);

    /// See [`HitRecorder::hit_alone`].
    fn hit_alone(&self, slot: Slot) {
        self.hit(slot);
    }
}

/// Increments a counter that no other thread changes, and returns its value before.
#[inline]
pub(crate) fn increment_alone(counter: &AtomicU32) -> u32 {
    let before = counter.load(Relaxed);
    counter.store(before.wrapping_add(1), Relaxed);
    before
}

/// The bytes of bookkeeping that a cache adds to the charge of a resident object: in a [`RankedTier`](crate::RankedTier), the object's
/// entry (32 bytes), its entry in the queue (16) and its state in the ranking (8).
///
/// A tier with more bookkeeping reports the rest; see [`Tier::uncharged_bytes`].
pub const BOOKKEEPING_BYTES_CHARGED: u64 = 32 + 16 + 8;
