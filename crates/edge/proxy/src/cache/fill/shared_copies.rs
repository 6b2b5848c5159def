//! Copies of parts of a growing buffer, which readers share.
//!
//! The buffer of a body that memory may store moves when it grows, so readers cannot get slices of it. With a copy for
//! each reader, ten thousand readers would take 640 MB. Readers therefore share a copy while at least one of them has
//! it. Copies do not overlap: all copies together have at most the bytes of the body, and each is charged once.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use edgeward_store::hot::ChargeGuard;

use super::body_buffer::COPIED_BYTES_MAX;

/// The copies that readers have at present, by the offset in the body of their first byte.
#[derive(Debug, Default)]
pub(super) struct SharedCopies {
    by_start: BTreeMap<u64, Weak<Copied>>,
    /// The number of entries at which those without readers are removed.
    prune_at: usize,
}

#[derive(Debug)]
struct Copied {
    bytes: Box<[u8]>,
    _charge: ChargeGuard,
}

/// Keeps a copy in memory while a piece of it is unsent.
struct CopyHandle(Arc<Copied>);

impl AsRef<[u8]> for CopyHandle {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl SharedCopies {
    /// Returns bytes from `position` on. `arrived` has the bytes of the body from `position` on, at least one.
    /// `charge` charges the memory of a new copy.
    pub(super) fn read(
        &mut self,
        position: u64,
        arrived: &[u8],
        charge: impl FnOnce(u64) -> ChargeGuard,
    ) -> Bytes {
        let before = self.by_start.range(..=position).rev();
        // At most half of the entries beyond `ENTRIES_MIN` have no reader.
        let mut before = before.filter_map(|(start, copy)| Some((start, copy.upgrade()?)));
        if let Some((start, copy)) = before.next()
            // The copy is in memory, so an offset within it fits usize.
            && let at = (position - start) as usize
            && at < copy.bytes.len()
        {
            return Bytes::from_owner(CopyHandle(copy)).slice(at..);
        }
        let mut after = self.by_start.range(position + 1..);
        let next = after.find(|(_, copy)| copy.strong_count() > 0);
        let bytes_max = next.map_or(u64::MAX, |(&start, _)| start - position);
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let length = arrived.len().min(COPIED_BYTES_MAX).min(bytes_max);
        let copy = Arc::new(Copied {
            bytes: arrived[..length].into(),
            _charge: charge(length as u64),
        });
        if self.by_start.len() >= self.prune_at {
            self.by_start.retain(|_, copy| copy.strong_count() > 0);
            self.prune_at = 2 * self.by_start.len() + ENTRIES_MIN;
        }
        self.by_start.insert(position, Arc::downgrade(&copy));
        Bytes::from_owner(CopyHandle(copy))
    }
}

/// Up to this number of entries, those without readers stay in the map.
const ENTRIES_MIN: usize = 64;

#[cfg(test)]
mod tests {
    use edgeward_store::hot::{HotCache, HotConfig};
    use edgeward_types::ByteSize;
    use proptest::prelude::*;

    use super::*;

    fn body(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at % 251) as u8).collect()
    }

    /// Method: a hundred readers keep all pieces of a body that arrives in steps of 40,000 bytes.
    #[test]
    fn readers_share_the_copies_and_their_charge() {
        let cache: Arc<HotCache<()>> = HotCache::new(HotConfig::new(ByteSize::mib(64)));
        let pinned = || cache.pinned_bytes().0;
        let body = body(200_000);
        let mut copies = SharedCopies::default();
        let mut kept = Vec::new();
        for _ in 0..100 {
            let (mut position, mut arrived) = (0, 0);
            while position < body.len() {
                if position == arrived {
                    arrived = body.len().min(arrived + 40_000);
                }
                let charge = |bytes| cache.charge(bytes);
                let piece = copies.read(position as u64, &body[position..arrived], charge);
                assert_eq!(piece, body[position..position + piece.len()]);
                position += piece.len();
                kept.push(piece);
            }
        }
        assert_eq!(pinned(), 200_000);
        drop(kept);
        assert_eq!(pinned(), 0);
    }

    proptest! {
        /// Readers at random positions keep some of their pieces. The copies never exceed the body.
        #[test]
        fn all_copies_have_at_most_the_bytes_of_the_body(
            reads in proptest::collection::vec((0_usize..300_000, any::<bool>()), 1..300),
        ) {
            let cache: Arc<HotCache<()>> = HotCache::new(HotConfig::new(ByteSize::mib(64)));
            let body = body(300_000);
            let mut copies = SharedCopies::default();
            let mut kept = Vec::new();
            for (position, keeps) in reads {
                let charge = |bytes| cache.charge(bytes);
                let piece = copies.read(position as u64, &body[position..], charge);
                prop_assert!(!piece.is_empty());
                prop_assert_eq!(&piece, &body[position..position + piece.len()]);
                prop_assert!(cache.pinned_bytes().0 <= 300_000);
                if keeps {
                    kept.push(piece);
                }
            }
            prop_assert!(copies.by_start.len() <= 2 * kept.len() + ENTRIES_MIN + 1);
        }
    }
}
