//! Filters that accept ids at any time, up to a capacity that is fixed when they are created.

use crate::bloom::{self, BLOCK_BYTES, Block, Lanes};
use crate::build::{BuildError, FilterParams, header, seal};
use crate::filter::Filter;
use crate::format::{HEADER_BYTES, Kind, Layout};
use crate::id::{IdHash, IdHasher};
use crate::rate::Rate;

/// A Bloom filter in memory to which ids can be added.
#[derive(Clone, Debug)]
pub struct UpdatableFilter {
    params: FilterParams,
    capacity_ids: u64,
    ids: u64,
    blocks: Vec<Block>,
    /// The fastest code for queries and inserts that this processor supports.
    lanes: Lanes,
}

/// The error of an insert into a filter that holds as many ids as its false-positive rate allows. The id was
/// not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the filter is full: it holds the {capacity_ids} ids that its false-positive rate allows")]
pub struct Full {
    /// The number of ids that the filter can hold.
    pub capacity_ids: u64,
}

impl UpdatableFilter {
    /// Returns an empty filter for `capacity_ids` ids at the rate of `params`.
    ///
    /// The function allocates all memory of the filter: about 1.4 bytes per id at a rate of 1 %. It fails if
    /// the rate is too low for this construction or if `capacity_ids` is too large.
    pub fn new(params: FilterParams, capacity_ids: u64) -> Result<Self, BuildError> {
        if params.rate.share() < bloom::RATE_MIN {
            return Err(BuildError::RateTooLow);
        }
        let too_many = BuildError::TooMany {
            ids_max: params.ids_max,
        };
        if capacity_ids > params.ids_max {
            return Err(too_many);
        }
        let blocks = bloom::blocks_for(capacity_ids, params.rate).ok_or(too_many)?;
        Ok(Self {
            params,
            capacity_ids,
            ids: 0,
            blocks: vec![Block::default(); blocks as usize],
            lanes: Lanes::detect(),
        })
    }

    /// Restores an updatable filter from its file, so that more ids can be added. Returns `None` for a static
    /// filter, which is not a Bloom filter.
    pub fn resume<B: AsRef<[u8]>>(filter: &Filter<B>) -> Option<Self> {
        let Layout::Bloom { .. } = filter.layout() else {
            return None;
        };
        let info = filter.info();
        let area = &filter.bytes()[HEADER_BYTES..];
        Some(Self {
            params: FilterParams {
                rate: Rate::new(info.target_rate).ok()?,
                hasher: info.hasher,
                epoch: info.epoch,
                built: info.built,
                ids_max: info.capacity_ids,
            },
            capacity_ids: info.capacity_ids,
            ids: info.ids,
            blocks: area
                .as_chunks()
                .0
                .iter()
                .map(|&block| Block(block))
                .collect(),
            lanes: Lanes::detect(),
        })
    }

    /// Adds an id. Returns true if the filter did not answer "maybe" for the id before.
    ///
    /// Fails if the filter is full and answers "absent" for the id.
    #[inline]
    pub fn insert(&mut self, id: IdHash) -> Result<bool, Full> {
        if self.ids >= self.capacity_ids {
            return self.insert_when_full(id);
        }
        let is_fresh = self.lanes.set(id.0, &mut self.blocks);
        self.ids += u64::from(is_fresh);
        Ok(is_fresh)
    }

    #[cold]
    fn insert_when_full(&self, id: IdHash) -> Result<bool, Full> {
        if self.contains(id) {
            return Ok(false);
        }
        Err(Full {
            capacity_ids: self.capacity_ids,
        })
    }

    /// Adds several ids, faster than one by one. Returns the number of ids for which the filter did not already
    /// answer "maybe".
    ///
    /// Fails at the first id that a full filter does not accept; the ids before this id are added.
    pub fn insert_many(&mut self, ids: &[IdHash]) -> Result<u64, Full> {
        let before = self.ids;
        let mut rest = ids;
        while let Some((&first, others)) = rest.split_first() {
            let room = self.capacity_ids.saturating_sub(self.ids);
            if room == 0 {
                self.insert_when_full(first)?;
                rest = others;
                continue;
            }
            // The filter accepts these ids even if all of them are new.
            let step = usize::try_from(room).map_or(rest.len(), |room| room.min(rest.len()));
            let (now, later) = rest.split_at(step);
            self.ids += self.lanes.set_many(now, &mut self.blocks);
            rest = later;
        }
        Ok(self.ids - before)
    }

    /// Returns false if the id is certainly absent.
    #[inline]
    pub fn contains(&self, id: IdHash) -> bool {
        let Block(block) = &self.blocks[bloom::block_of(id.0, self.blocks.len() as u32)];
        self.lanes.are_set(id.0, block)
    }

    /// The number of ids in the filter. Ids for which the filter already answered "maybe" when they were added
    /// are not counted. The number is therefore slightly too small: in a full filter by about half the
    /// false-positive rate.
    pub fn ids(&self) -> u64 {
        self.ids
    }

    /// The number of ids that the filter can hold.
    pub fn capacity_ids(&self) -> u64 {
        self.capacity_ids
    }

    /// The hash function of the ids.
    pub fn hasher(&self) -> IdHasher {
        self.params.hasher
    }

    /// The expected false-positive rate with the ids that the filter holds now.
    pub fn expected_rate(&self) -> f64 {
        bloom::expected_rate(self.ids as f64 / self.blocks.len() as f64)
    }

    /// Returns a copy of the filter as the bytes of a file, with the given epoch in its header.
    pub fn to_filter(&self, epoch: u64) -> Filter<Vec<u8>> {
        let params = FilterParams {
            epoch,
            ..self.params
        };
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.blocks.len() * BLOCK_BYTES);
        bytes.resize(HEADER_BYTES, 0);
        for Block(block) in &self.blocks {
            bytes.extend_from_slice(block);
        }
        let blocks = self.blocks.len() as u32;
        seal(
            header(&params, Kind::Bloom, self.ids, self.capacity_ids, blocks),
            bytes,
        )
    }
}
