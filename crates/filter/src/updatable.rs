//! Filters that ids can be added to, up to the number they were made for.

use crate::bloom::{self, BLOCK_BYTES, Block};
use crate::build::{BuildError, Request, header, seal};
use crate::filter::Filter;
use crate::format::{HEADER_BYTES, Kind, Layout};
use crate::id::{IdHash, IdHasher};
use crate::rate::Rate;

/// A filter in memory that takes ids.
#[derive(Clone, Debug)]
pub struct UpdatableFilter {
    request: Request,
    capacity_ids: u64,
    ids: u64,
    blocks: Vec<Block>,
}

/// The filter holds as many ids as its rate allows. The id was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the filter is made for {capacity_ids} ids and holds them: more would break its false-positive rate"
)]
pub struct Full {
    /// Ids it is made for.
    pub capacity_ids: u64,
}

impl UpdatableFilter {
    /// Room for `capacity_ids` ids at the rate of `request`.
    ///
    /// All room is taken now: about 1.4 bytes an id at one in a hundred.
    pub fn new(request: Request, capacity_ids: u64) -> Result<Self, BuildError> {
        if request.rate.share() < bloom::RATE_MIN {
            return Err(BuildError::RateTooLow);
        }
        let too_many = BuildError::TooMany {
            ids_max: request.ids_max,
        };
        if capacity_ids > request.ids_max {
            return Err(too_many);
        }
        let blocks = bloom::blocks_for(capacity_ids, request.rate).ok_or(too_many)?;
        Ok(Self {
            request,
            capacity_ids,
            ids: 0,
            blocks: vec![Block::default(); blocks as usize],
        })
    }

    /// Goes on with one that was written. `None` for a static one.
    pub fn resume<B: AsRef<[u8]>>(filter: &Filter<B>) -> Option<Self> {
        let Layout::Bloom { .. } = filter.layout() else {
            return None;
        };
        let facts = filter.facts();
        let lanes = |block: &[u8; BLOCK_BYTES]| -> Block {
            std::array::from_fn(|n| {
                u32::from_le_bytes([
                    block[4 * n],
                    block[4 * n + 1],
                    block[4 * n + 2],
                    block[4 * n + 3],
                ])
            })
        };
        let area = &filter.bytes()[HEADER_BYTES..];
        Some(Self {
            request: Request {
                rate: Rate::new(facts.asked_rate).ok()?,
                hasher: facts.hasher,
                epoch: facts.epoch,
                built: facts.built,
                ids_max: facts.capacity_ids,
            },
            capacity_ids: facts.capacity_ids,
            ids: facts.ids,
            blocks: area.as_chunks().0.iter().map(lanes).collect(),
        })
    }

    /// Adds an id. True if it was not there, or not distinguishable from those that were.
    ///
    /// A full filter refuses what it does not already have.
    #[inline]
    pub fn insert(&mut self, id: IdHash) -> Result<bool, Full> {
        let at = bloom::block_of(id.0, self.blocks.len() as u32);
        let block = &mut self.blocks[at];
        let bits = bloom::bits_of(id.0);
        let mut fresh = 0;
        for (lane, bit) in block.iter().zip(bits) {
            fresh |= bit & !lane;
        }
        let fresh = fresh != 0;
        if fresh && self.ids >= self.capacity_ids {
            return Err(Full {
                capacity_ids: self.capacity_ids,
            });
        }
        for (lane, bit) in block.iter_mut().zip(bits) {
            *lane |= bit;
        }
        self.ids += u64::from(fresh);
        Ok(fresh)
    }

    /// False if the id is certainly absent.
    #[inline]
    pub fn contains(&self, id: IdHash) -> bool {
        let block = &self.blocks[bloom::block_of(id.0, self.blocks.len() as u32)];
        let mut missing = 0;
        for (lane, bit) in block.iter().zip(bloom::bits_of(id.0)) {
            missing |= bit & !lane;
        }
        missing == 0
    }

    /// Ids in it. Those that looked present when they came are not counted: at full load about half
    /// the rate times the ids.
    pub fn ids(&self) -> u64 {
        self.ids
    }

    /// Ids it is made for.
    pub fn capacity_ids(&self) -> u64 {
        self.capacity_ids
    }

    /// How ids become hashes.
    pub fn hasher(&self) -> IdHasher {
        self.request.hasher
    }

    /// The rate it has with the ids that are in it now.
    pub fn expected_rate(&self) -> f64 {
        bloom::expected_rate(self.ids as f64 / self.blocks.len() as f64)
    }

    /// As a filter to be written, of the given epoch.
    pub fn to_filter(&self, epoch: u64) -> Filter<Vec<u8>> {
        let request = Request {
            epoch,
            ..self.request
        };
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.blocks.len() * BLOCK_BYTES);
        bytes.resize(HEADER_BYTES, 0);
        for lane in self.blocks.as_flattened() {
            bytes.extend_from_slice(&lane.to_le_bytes());
        }
        let blocks = self.blocks.len() as u32;
        seal(
            header(&request, Kind::Bloom, self.ids, self.capacity_ids, blocks),
            bytes,
        )
    }
}
