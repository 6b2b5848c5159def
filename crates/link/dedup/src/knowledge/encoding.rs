//! Encodes and decodes knowledge, so that an endpoint can restart with its store.
//!
//! The format, with lengths in bytes and little-endian numbers: `EWknown\x01`, the epoch of the own store (8),
//! the epoch of the peer's store (8), the number of containers (4). Then for each container, in increasing
//! order: its number (4); 1 if the peer's store has its chunks in another order than the own store, 0 otherwise (1);
//! the number of words of 64 bits (2); the words (8 each), with one bit per chunk of the container. At the end,
//! XXH3-64 of all preceding bytes (8).

use edgeward_types::xxh3::xxh3_64;

use super::Knowledge;
use super::page::CONTAINERS_PER_PAGE;

const MAGIC: [u8; 8] = *b"EWknown\x01";

/// The largest number of words of a container. A slot number has 16 bits, so a container has at most 2^16 chunks. A
/// word has the bits of 64 chunks.
const WORDS_MAX: u16 = 1 << 10;

impl Knowledge {
    /// Encodes the knowledge of the containers with numbers below `end`.
    ///
    /// Only containers that are on the device may be encoded. If a container is lost in a crash, its number is
    /// used again for other chunks, and the restored knowledge would state that the peer has these other
    /// chunks.
    pub fn encode(&self, end: u32) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&self.own_epoch.to_le_bytes());
        out.extend_from_slice(&self.peer_epoch.to_le_bytes());
        let count_at = out.len();
        out.extend_from_slice(&[0; 4]);
        let mut count: u32 = 0;
        for (number, page) in self.numbered_pages() {
            let containers = page.containers();
            let containers = containers.map(|nth| number * CONTAINERS_PER_PAGE + nth);
            for container in containers.take_while(|container| *container < end) {
                out.extend_from_slice(&container.to_le_bytes());
                out.push(u8::from(page.is_disordered(container)));
                let words_at = out.len();
                out.extend_from_slice(&[0; 2]);
                let mut words: u16 = 0;
                for (word, bits) in page.words(container) {
                    // Words without a bit are not in the page.
                    (words..word).for_each(|_| out.extend_from_slice(&[0; 8]));
                    out.extend_from_slice(&bits.to_le_bytes());
                    words = word + 1;
                }
                out[words_at..words_at + 2].copy_from_slice(&words.to_le_bytes());
                count += 1;
            }
        }
        out[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
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
        let mut knowledge = Self::new(containers_max);
        knowledge.own_epoch = u64::from_le_bytes(take(&mut rest)?);
        knowledge.peer_epoch = u64::from_le_bytes(take(&mut rest)?);
        let count = u32::from_le_bytes(take(&mut rest)?);
        let mut last = None;
        for _ in 0..count {
            let container = u32::from_le_bytes(take(&mut rest)?);
            let [disordered] = take(&mut rest)?;
            let words = u16::from_le_bytes(take(&mut rest)?);
            let is_rising = last.replace(container).is_none_or(|last| last < container);
            if !is_rising || words > WORDS_MAX || disordered > 1 {
                return None;
            }
            knowledge.make_space_for(container);
            for word in 0..words {
                let bits = u64::from_le_bytes(take(&mut rest)?);
                if bits != 0 {
                    knowledge.change(container, |page| page.set_word(container, word, bits));
                }
            }
            if disordered == 1 {
                knowledge.set_disordered(container);
            }
        }
        // The file has these bits.
        knowledge.is_unsaved = false;
        rest.is_empty().then_some(knowledge)
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
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::*;
    use crate::store::ChunkLocation;

    /// Earlier versions have the same format. Method: two containers; the second container is disordered and has a word
    /// of zeros.
    #[test]
    fn the_format_is_stable() {
        let mut known = Knowledge::new(100);
        known.set_own_epoch(5);
        known.set_peer_epoch(6);
        known.add(ChunkLocation {
            container: 3,
            slot: 1,
        });
        known.add(ChunkLocation {
            container: 70,
            slot: 64,
        });
        known.set_disordered(70);
        let mut expected = b"EWknown\x01".to_vec();
        expected.extend([5, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([6, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([2, 0, 0, 0]);
        expected.extend([3, 0, 0, 0, /* order */ 0, /* words */ 1, 0]);
        expected.extend([2, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([70, 0, 0, 0, /* order */ 1, /* words */ 2, 0]);
        expected.extend([0; 8]);
        expected.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend(xxh3_64(&expected).to_le_bytes());
        assert_eq!(known.encode(u32::MAX), expected);
        let decoded = Knowledge::decode(&expected, 100).expect("the encoding is complete");
        assert_eq!(decoded.encode(u32::MAX), expected);
        assert!(
            { decoded }.take_unsaved(u32::MAX).is_none(),
            "the file has these bits"
        );
    }

    proptest! {
        /// Encoding and decoding restores the knowledge of the last `containers_max` containers before `end`.
        #[test]
        fn encoded_knowledge_is_decoded(
            locations in vec((0_u32..1000, any::<u16>()), 0..60),
            disordered in vec(0_u32..1000, 0..60),
            end in 0_u32..1200,
            containers_max in 1_usize..1200,
        ) {
            let locations = locations.into_iter().map(|(container, slot)| ChunkLocation { container, slot });
            let locations: Vec<ChunkLocation> = locations.collect();
            let mut known = Knowledge::new(1000);
            known.set_own_epoch(5);
            known.set_peer_epoch(6);
            locations.iter().for_each(|location| known.add(*location));
            disordered.iter().for_each(|container| known.set_disordered(*container));
            let mut again = Knowledge::decode(&known.encode(end), containers_max).expect("the encoding is complete");
            again.set_own_epoch(5);
            again.set_peer_epoch(6);
            let encoded = locations.iter().map(|location| location.container);
            let last = encoded.filter(|container| *container < end).max();
            for location in locations {
                let container = location.container;
                let age = last.and_then(|last| last.checked_sub(container));
                let is_remembered = age.is_some_and(|age| age < containers_max as u32);
                // Older containers may be remembered if their page has others.
                if is_remembered || container >= end {
                    prop_assert_eq!(again.has(location), is_remembered);
                    prop_assert_eq!(again.in_order(container), is_remembered && known.in_order(container));
                }
            }
            prop_assert!(again.containers() <= containers_max + 2 * CONTAINERS_PER_PAGE as usize);
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
