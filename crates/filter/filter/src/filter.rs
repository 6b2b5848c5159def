//! An opened filter file that answers lookups.
//!
//! Opening decodes the header (128 bytes) and, for a static filter, a directory of 32 bytes per million ids. The other
//! bytes are not copied: `&[u8]`, `Vec<u8>`, `Arc<[u8]>` and a memory-mapped file all work. A lookup reads one cache
//! line of an updatable filter and four of a static one.

use edgeward_types::xxh3::xxh3_64;
use edgeward_types::{Seed, Timestamp};

use crate::bloom;
use crate::format::{HEADER_BYTES, Header, Kind, Layout, OpenError, open};
use crate::fuse::{BATCH, Shape, mix};
use crate::id::{IdHash, IdHasher};
use crate::rate::Rate;

/// An id filter. An id that gets "absent" was certainly not inserted. A share of the ids that were not inserted gets
/// "maybe": [`FilterInfo::expected_rate`].
#[derive(Clone, Debug)]
pub struct Filter<B> {
    bytes: B,
    header: Header,
    layout: Layout,
}

/// The contents of a filter's header, and the values computed from them.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct FilterInfo {
    /// The construction, which decides whether ids can be added.
    pub construction: Construction,
    /// The form of the ids and the seed of their hash.
    pub hasher: IdHasher,
    /// The number of the build. A later build of the same set has a higher number.
    pub epoch: u64,
    /// The time of the build, if the builder recorded one.
    pub built: Option<Timestamp>,
    /// The number of distinct ids in the filter.
    pub ids: u64,
    /// The number of ids that the filter can hold. An updatable filter refuses more.
    pub capacity_ids: u64,
    /// The false-positive rate that the builder was configured with.
    pub target_rate: f64,
    /// The expected false-positive rate: computed from the shape of a static filter, from the load of an
    /// updatable one.
    pub expected_rate: f64,
    /// The size of the whole file in bytes.
    pub bytes: u64,
    /// The smallest size in bytes of any filter with `expected_rate` and this number of ids (the information limit).
    pub bytes_limit: f64,
}

/// The construction of a filter, which decides whether ids can be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Construction {
    /// A binary fuse filter: close to the smallest size, built once.
    Static,
    /// A blocked Bloom filter: about 1.5 times as large as a static filter, and ids can be added.
    Updatable,
}

impl Construction {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "static (binary fuse)",
            Self::Updatable => "updatable (blocked Bloom)",
        }
    }
}

impl<B: AsRef<[u8]>> Filter<B> {
    /// Opens a filter and verifies the checksum of every byte.
    pub fn open(bytes: B) -> Result<Self, OpenError> {
        let (header, layout) = open(bytes.as_ref(), true)?;
        Ok(Self {
            bytes,
            header,
            layout,
        })
    }

    /// Opens a filter and reads only its header and directory. Use this for a mapped file whose checksum was
    /// verified when it was downloaded.
    ///
    /// If bytes have changed since then, the filter may answer "absent" for an id that exists.
    pub fn open_trusted(bytes: B) -> Result<Self, OpenError> {
        let (header, layout) = open(bytes.as_ref(), false)?;
        Ok(Self {
            bytes,
            header,
            layout,
        })
    }

    /// Returns false if the id is certainly absent, true if it may exist.
    // Without the attribute the compiler does not inline this function, because the code of both constructions
    // together exceeds its size limit. The call would cost 1 to 3 ns per lookup.
    #[inline(always)]
    pub fn contains(&self, id: IdHash) -> bool {
        let bytes = self.bytes.as_ref();
        match &self.layout {
            Layout::Fuse { shards } => shards.contains(id.0, bytes),
            Layout::Bloom { blocks, lanes } => bytes
                .get(HEADER_BYTES..)
                .is_none_or(|area| lanes.match_one(id.0, *blocks, area)),
        }
    }

    /// Writes the result of [`Self::contains`] for each of `ids` to `answers`, in the same order.
    ///
    /// In a static filter, an id in a batch takes about three quarters of the time of a single lookup. In an updatable
    /// filter, it takes two thirds. The gain is larger if the filter does not fit into the processor's cache, because
    /// several lookups run in parallel.
    ///
    /// Panics if `ids` and `answers` differ in length.
    pub fn contains_many(&self, ids: &[IdHash], answers: &mut [bool]) {
        assert_eq!(
            ids.len(),
            answers.len(),
            "`answers` has one place for each id"
        );
        match &self.layout {
            Layout::Fuse { shards } => shards.contains_many(ids, self.bytes.as_ref(), answers),
            Layout::Bloom { blocks, lanes } => {
                let area = self.bytes.as_ref().get(HEADER_BYTES..);
                lanes.match_many(ids, *blocks, area.unwrap_or_default(), answers);
            }
        }
    }

    /// Looks up an id in any text form that its [`IdForm`](crate::IdForm) allows, such as an upper-case UUID.
    /// Returns false if the id is certainly absent, and true for text that is not an id which every origin reads
    /// alike ([`IdHasher::hash_query`]).
    pub fn contains_spelling(&self, spelling: &[u8]) -> bool {
        let hash = self.header.hasher.hash_query(spelling);
        hash.map_or(true, |id| self.contains(id))
    }

    /// The hash function of the filter's ids.
    pub fn hasher(&self) -> IdHasher {
        self.header.hasher
    }

    /// The contents of the header, and the values computed from them. Reads no other part of the file.
    pub fn info(&self) -> FilterInfo {
        let header = &self.header;
        let expected_rate = match &self.layout {
            Layout::Fuse { shards } => {
                let shapes = shards.shapes();
                let count = shapes.len();
                shapes.map(Shape::rate).sum::<f64>() / count as f64
            }
            Layout::Bloom { blocks, .. } => {
                bloom::expected_rate(header.ids as f64 / f64::from(*blocks))
            }
        };
        FilterInfo {
            construction: match header.kind {
                Kind::Fuse => Construction::Static,
                Kind::Bloom => Construction::Updatable,
            },
            hasher: header.hasher,
            epoch: header.epoch,
            built: (header.built_ms != 0).then(|| Timestamp::from_millis(header.built_ms)),
            ids: header.ids,
            capacity_ids: header.capacity_ids,
            target_rate: header.rate,
            expected_rate,
            bytes: self.bytes.as_ref().len() as u64,
            bytes_limit: bytes_limit(header.ids, expected_rate.max(Rate::MIN.share())),
        }
    }

    /// Measures the false-positive rate: the share of `probes` random hashes for which the filter answers
    /// "maybe".
    ///
    /// A random 64-bit hash is practically never the hash of an inserted id, so each "maybe" is a false
    /// positive.
    pub fn measured_rate(&self, probes: u64, seed: Seed) -> f64 {
        let start = mix(seed.0, MEASURE);
        let mut answers = [false; MEASURE_STEP];
        let mut passed = 0;
        for from in (0..probes).step_by(MEASURE_STEP) {
            let step = (probes - from).min(MEASURE_STEP as u64) as usize;
            let ids: [IdHash; MEASURE_STEP] = std::array::from_fn(|n| {
                IdHash(mix(start.wrapping_add(from).wrapping_add(n as u64), 0))
            });
            self.contains_many(&ids[..step], &mut answers[..step]);
            passed += answers[..step].iter().filter(|&&maybe| maybe).count();
        }
        passed as f64 / probes.max(1) as f64
    }

    /// Returns the false-positive rate that follows from the bits set in an updatable filter. For a static
    /// filter this is the expected rate.
    pub fn exact_rate(&self) -> f64 {
        match &self.layout {
            Layout::Fuse { .. } => self.info().expected_rate,
            Layout::Bloom { .. } => bloom::rate_of(&self.bytes.as_ref()[HEADER_BYTES..]),
        }
    }

    /// Returns a hash of the header. Two filters with equal fingerprints hold the same bytes, except with a
    /// probability of 2⁻⁶⁴. The header contains the checksum of the payload, which only [`Self::open`]
    /// verifies.
    pub fn fingerprint(&self) -> u64 {
        xxh3_64(&self.header.to_bytes())
    }

    /// The bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// Returns the bytes of the file.
    pub fn into_bytes(self) -> B {
        self.bytes
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }
}

/// Returns the smallest size in bytes of any filter with `ids` ids and this rate (the information limit).
pub fn bytes_limit(ids: u64, rate: f64) -> f64 {
    ids as f64 * -rate.log2() / 8.0
}

/// Separates the random numbers of measurements from other streams with the same seed.
const MEASURE: u64 = 0x6d65_6173_7572_6521;

/// The number of random hashes in one call of [`Filter::contains_many`].
const MEASURE_STEP: usize = 8 * BATCH;
