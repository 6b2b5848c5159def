//! Encodes and decodes knowledge, so that an endpoint can restart with its store.
//!
//! The format, with lengths in bytes and little-endian numbers: `EWknown\x01`, the epoch of the own store (8),
//! the epoch of the peer's store (8), the number of containers (4). Then for each container, in increasing
//! order: its number (4); 1 if the peer's store has its chunks in another order than the own store, 0 otherwise (1);
//! the number of words of 64 bits (2); the words (8 each), with one bit per chunk of the container. At the end,
//! XXH3-64 of all preceding bytes (8).

use std::collections::BTreeMap;

use edgeward_types::xxh3::xxh3_64;

use super::{Knowledge, KnownChunks};

const MAGIC: [u8; 8] = *b"EWknown\x01";

/// The largest number of words of a container. A slot number has 16 bits, so a container has at most 2^16 chunks. A
/// word has the bits of 64 chunks.
const WORDS_MAX: usize = 1 << 10;

impl Knowledge {
    /// Encodes the knowledge of the containers with numbers below `end`.
    ///
    /// Only containers that are on the device may be encoded. If a container is lost in a crash, its number is
    /// used again for other chunks, and the restored knowledge would state that the peer has these other
    /// chunks.
    pub fn encode(&self, end: u32) -> Vec<u8> {
        let containers = || self.containers.range(..end);
        let count = u32::try_from(containers().count()).expect("container numbers have 32 bits");
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&self.own_epoch.to_le_bytes());
        out.extend_from_slice(&self.peer_epoch.to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
        for (number, known) in containers() {
            let words = u16::try_from(known.chunks.len()).expect("a slot has 16 bits");
            out.extend_from_slice(&number.to_le_bytes());
            out.push(u8::from(known.disordered));
            out.extend_from_slice(&words.to_le_bytes());
            known
                .chunks
                .iter()
                .for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        }
        let checksum = xxh3_64(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Decodes the knowledge of the last `containers_max` containers. Returns `None` if the bytes are corrupt.
    pub fn decode(bytes: &[u8], containers_max: usize) -> Option<Self> {
        let (bytes, checksum) = bytes.split_last_chunk()?;
        if xxh3_64(bytes) != u64::from_le_bytes(*checksum) {
            return None;
        }
        let mut rest = bytes.strip_prefix(&MAGIC)?;
        let own_epoch = u64::from_le_bytes(take(&mut rest)?);
        let peer_epoch = u64::from_le_bytes(take(&mut rest)?);
        let count = u32::from_le_bytes(take(&mut rest)?);
        let mut containers = BTreeMap::new();
        for _ in 0..count {
            let number = u32::from_le_bytes(take(&mut rest)?);
            let [disordered] = take(&mut rest)?;
            let words = usize::from(u16::from_le_bytes(take(&mut rest)?));
            let rising = containers
                .last_key_value()
                .is_none_or(|(last, _)| *last < number);
            if !rising || words > WORDS_MAX || disordered > 1 {
                return None;
            }
            let chunks = (0..words).map(|_| take(&mut rest).map(u64::from_le_bytes));
            let known = KnownChunks {
                chunks: chunks.collect::<Option<_>>()?,
                disordered: disordered == 1,
            };
            containers.insert(number, known);
            if containers.len() > containers_max.max(1) {
                containers.pop_first();
            }
        }
        rest.is_empty().then_some(Self {
            containers,
            containers_max: containers_max.max(1),
            own_epoch,
            peer_epoch,
        })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::*;
    use crate::store::ChunkLocation;

    proptest! {
        /// Encoding and decoding restores the knowledge of the last `containers_max` containers before `end`.
        #[test]
        fn encoded_knowledge_is_decoded(
            locations in vec((0_u32..20, any::<u16>()), 0..60),
            disordered in vec(0_u32..20, 0..5),
            end in 0_u32..25,
            containers_max in 1_usize..25,
        ) {
            let locations = locations.into_iter().map(|(container, slot)| ChunkLocation { container, slot });
            let locations: Vec<ChunkLocation> = locations.collect();
            let mut known = Knowledge::new(100);
            known.set_own_epoch(5);
            known.set_peer_epoch(6);
            locations.iter().for_each(|location| known.add(*location));
            disordered.iter().for_each(|container| known.set_disordered(*container));
            let mut again = Knowledge::decode(&known.encode(end), containers_max).expect("the encoding is complete");
            again.set_own_epoch(5);
            again.set_peer_epoch(6);
            let containers = locations.iter().map(|location| location.container);
            let mut kept: Vec<u32> = containers.filter(|number| *number < end).collect();
            kept.sort_unstable();
            kept.dedup();
            let kept = &kept[kept.len().saturating_sub(containers_max)..];
            prop_assert_eq!(again.containers(), kept.len());
            for location in locations {
                let is_kept = kept.contains(&location.container);
                prop_assert_eq!(again.has(location), is_kept);
                prop_assert_eq!(again.in_order(location.container), is_kept && known.in_order(location.container));
            }
        }

        /// Method: truncate the encoded knowledge or change one byte. Decoding fails.
        #[test]
        fn corrupt_knowledge_is_refused(
            at in any::<proptest::sample::Index>(),
            bits in 1_u8..,
            missing in 0_usize..60,
        ) {
            let mut known = Knowledge::new(100);
            (0..5).for_each(|n| known.add(ChunkLocation { container: n, slot: 70 }));
            let mut bytes = known.encode(100);
            let short = &bytes[..bytes.len() - missing.min(bytes.len())];
            prop_assert_eq!(Knowledge::decode(short, 9).is_some(), missing == 0);
            let at = at.index(bytes.len());
            bytes[at] ^= bits;
            prop_assert_eq!(Knowledge::decode(&bytes, 9).is_some(), false);
        }
    }
}
