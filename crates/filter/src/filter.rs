//! A filter that can be asked, over whatever holds its bytes.
//!
//! Opening reads the header (128 bytes) and, of a static filter, a directory of 32 bytes for each
//! million ids. Everything else stays where it is: `&[u8]`, `Vec<u8>`, `Arc<[u8]>` and a
//! memory-mapped file serve alike, and a question touches one cache line of an updatable filter and
//! four of a static one.

use edgeward_types::{Seed, Timestamp};
use xxhash_rust::xxh3::xxh3_64;

use crate::bloom;
use crate::format::{HEADER_BYTES, Header, Kind, Layout, OpenError, open};
use crate::fuse::{BATCH, Shape, mix};
use crate::id::{IdHash, IdHasher};
use crate::rate::Rate;

/// An id filter. "Absent" is certain for every id that was not put in before; "maybe" is wrong for
/// the share of absent ids that [`Facts::expected_rate`] tells.
#[derive(Clone, Debug)]
pub struct Filter<B> {
    bytes: B,
    header: Header,
    layout: Layout,
}

/// What a filter's header says of it, and what follows from that.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Facts {
    /// What may be done with it.
    pub construction: Construction,
    /// How its ids are spelled and hashed.
    pub hasher: IdHasher,
    /// Which build of its set it is; a later one has a higher number.
    pub epoch: u64,
    /// When it was built, if somebody said.
    pub built: Option<Timestamp>,
    /// Distinct ids in it.
    pub ids: u64,
    /// Ids it is made for: an updatable one refuses more.
    pub capacity_ids: u64,
    /// The false-positive rate asked for.
    pub asked_rate: f64,
    /// The rate it has. Of a static filter by its shape, of an updatable one by its load.
    pub expected_rate: f64,
    /// Bytes of the whole file.
    pub bytes: u64,
    /// Bytes that no filter of this rate with as many ids can do without.
    pub bytes_limit: f64,
}

/// How a filter is made, which decides whether ids can be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Construction {
    /// A binary fuse filter: near the least size, built once.
    Static,
    /// A blocked Bloom filter: half as large again, and ids can be added.
    Updatable,
}

impl Construction {
    /// As reports name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "static (binary fuse)",
            Self::Updatable => "updatable (blocked Bloom)",
        }
    }
}

impl<B: AsRef<[u8]>> Filter<B> {
    /// Opens a filter and checks every byte of it.
    pub fn open(bytes: B) -> Result<Self, OpenError> {
        let (header, layout) = open(bytes.as_ref(), true)?;
        Ok(Self {
            bytes,
            header,
            layout,
        })
    }

    /// Opens a filter without reading more than its header and directory, such as one mapped into
    /// memory whose checksum was verified when it was fetched.
    ///
    /// Bytes that changed since can make an id look absent; they cannot do worse.
    pub fn open_trusted(bytes: B) -> Result<Self, OpenError> {
        let (header, layout) = open(bytes.as_ref(), false)?;
        Ok(Self {
            bytes,
            header,
            layout,
        })
    }

    /// False if the id is certainly absent, true if it may be there.
    // Left to itself, the compiler takes both forms' code for too much to join to a caller's loop: 1 to 3 ns a question.
    #[inline(always)]
    pub fn contains(&self, id: IdHash) -> bool {
        let bytes = self.bytes.as_ref();
        match &self.layout {
            Layout::Fuse { shards } => shards.has(id.0, bytes),
            Layout::Bloom { blocks, lanes } => bytes
                .get(HEADER_BYTES..)
                .is_none_or(|area| lanes.match_one(id.0, *blocks, area)),
        }
    }

    /// What [`Self::contains`] says of each of `ids`, in their order.
    ///
    /// It takes about three quarters of the time an id, of an updatable filter two thirds, and less when the filter is larger
    /// than the processor's cache: questions are worked on side by side.
    ///
    /// # Panics
    /// When there are not as many answers as ids.
    pub fn contains_many(&self, ids: &[IdHash], answers: &mut [bool]) {
        assert_eq!(ids.len(), answers.len(), "an answer for each id");
        match &self.layout {
            Layout::Fuse { shards } => shards.have(ids, self.bytes.as_ref(), answers),
            Layout::Bloom { blocks, lanes } => {
                let area = self.bytes.as_ref().get(HEADER_BYTES..);
                lanes.match_many(ids, *blocks, area.unwrap_or_default(), answers);
            }
        }
    }

    /// False if no id is spelled like this, in whatever spelling its form allows.
    pub fn contains_spelled(&self, spelling: &[u8]) -> bool {
        self.contains(self.header.hasher.asked(spelling))
    }

    /// How the filter's ids become hashes.
    pub fn hasher(&self) -> IdHasher {
        self.header.hasher
    }

    /// What there is to know of it, without reading more of it.
    pub fn facts(&self) -> Facts {
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
        Facts {
            construction: match header.kind {
                Kind::Fuse => Construction::Static,
                Kind::Bloom => Construction::Updatable,
            },
            hasher: header.hasher,
            epoch: header.epoch,
            built: (header.built_ms != 0).then(|| Timestamp::from_millis(header.built_ms)),
            ids: header.ids,
            capacity_ids: header.capacity_ids,
            asked_rate: header.rate,
            expected_rate,
            bytes: self.bytes.as_ref().len() as u64,
            bytes_limit: bytes_limit(header.ids, expected_rate.max(Rate::MIN.share())),
        }
    }

    /// The rate with which hashes drawn at random pass, from `probes` of them.
    ///
    /// Of random 64-bit hashes none is likely to be an id's, so what passes passes wrongly.
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

    /// Of an updatable filter the rate that its very bits have; of a static one the expected rate.
    pub fn exact_rate(&self) -> f64 {
        match &self.layout {
            Layout::Fuse { .. } => self.facts().expected_rate,
            Layout::Bloom { .. } => bloom::rate_of(&self.bytes.as_ref()[HEADER_BYTES..]),
        }
    }

    /// A number that two filters share if and only if they hold the same bytes, but for an accident
    /// of 64 bits. Told by the header; see [`Self::open`] for whether it is true.
    pub fn fingerprint(&self) -> u64 {
        xxh3_64(&self.header.to_bytes())
    }

    /// The bytes it was opened from.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// Gives the bytes back.
    pub fn into_bytes(self) -> B {
        self.bytes
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }
}

/// Bytes below which no filter with `ids` ids and this rate can be.
pub fn bytes_limit(ids: u64, rate: f64) -> f64 {
    ids as f64 * -rate.log2() / 8.0
}

/// Keeps measuring streams apart from others with the same seed.
const MEASURE: u64 = 0x6d65_6173_7572_6521;

/// Random hashes that are asked for at once.
const MEASURE_STEP: usize = 8 * BATCH;
