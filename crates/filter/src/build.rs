//! From a stream of ids to a static filter.
//!
//! Hashes are gathered in pieces of 1 MiB, 8 bytes an id, duplicates and all. When the stream ends
//! they are dealt to shards, each piece freed as soon as it is dealt, and every shard is solved by
//! itself: sequentially by [`StaticBuilder::finish`], or in any order and on any thread by whoever
//! takes [`StaticBuilder::into_plan`] apart. The most memory in use is therefore 8 bytes an id, the
//! finished shards, and 34 MB for each shard being solved.

use edgeward_types::Timestamp;
use xxhash_rust::xxh3::Xxh3Default;

use crate::filter::Filter;
use crate::format::{HEADER_BYTES, Header, Kind, SHARD_BYTES, ShardEntry};
use crate::fuse::{self, SHARD_IDS, Solved, Width, shard_of};
use crate::id::{IdHash, IdHasher};
use crate::rate::Rate;

/// What a filter is built for, whatever its construction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// The share of absent ids that may pass.
    pub rate: Rate,
    /// How ids are spelled and hashed.
    pub hasher: IdHasher,
    /// Which build of its set this is.
    pub epoch: u64,
    /// When it is built, for those who inspect it later.
    pub built: Option<Timestamp>,
    /// More ids than this are refused: a source gone wrong must not take all memory.
    pub ids_max: u64,
}

impl Request {
    /// One for text ids with a rate, nothing else said.
    pub fn with_rate(rate: Rate) -> Self {
        Self {
            rate,
            hasher: IdHasher::default(),
            epoch: 0,
            built: None,
            // 32 GiB of hashes. Who has more ids says so.
            ids_max: 1 << 32,
        }
    }
}

/// Gathers ids for a static filter.
#[derive(Clone, Debug)]
pub struct StaticBuilder {
    request: Request,
    full: Vec<Vec<u64>>,
    last: Vec<u64>,
}

impl StaticBuilder {
    /// Begins one.
    pub fn new(request: Request) -> Self {
        Self {
            request,
            full: Vec::new(),
            last: Vec::new(),
        }
    }

    /// Adds an id; one that is there already does no harm.
    pub fn insert(&mut self, id: IdHash) -> Result<(), BuildError> {
        if self.last.len() == PIECE {
            self.close_piece()?;
        }
        self.last.push(id.0);
        Ok(())
    }

    /// Ids added so far, duplicates included.
    pub fn gathered(&self) -> u64 {
        (self.full.len() * PIECE + self.last.len()) as u64
    }

    fn close_piece(&mut self) -> Result<(), BuildError> {
        self.check_count()?;
        let next = Vec::with_capacity(PIECE);
        self.full.push(std::mem::replace(&mut self.last, next));
        Ok(())
    }

    fn check_count(&self) -> Result<(), BuildError> {
        let ids_max = self.request.ids_max;
        if self.gathered() > ids_max {
            return Err(BuildError::TooMany { ids_max });
        }
        Ok(())
    }

    /// Deals the ids to shards.
    pub fn into_plan(mut self) -> Result<Plan, BuildError> {
        self.check_count()?;
        let ids = self.gathered();
        let shards = ids.div_ceil(SHARD_IDS).max(1);
        let shards = u32::try_from(shards).map_err(|_| BuildError::TooMany {
            ids_max: SHARD_IDS << 32,
        })?;
        let mut pieces = std::mem::take(&mut self.full);
        pieces.push(std::mem::take(&mut self.last));
        let width = Width::for_rate(self.request.rate);
        let work = |number: u32, pieces: Vec<Vec<u64>>| ShardWork {
            number,
            pieces,
            width,
        };
        if shards == 1 {
            return Ok(Plan {
                request: self.request,
                works: vec![work(0, pieces)],
            });
        }
        let mut counts = vec![0usize; shards as usize];
        for &hash in pieces.iter().flatten() {
            counts[shard_of(hash, shards)] += 1;
        }
        let mut dealt: Vec<Vec<u64>> = counts.into_iter().map(Vec::with_capacity).collect();
        for piece in pieces.drain(..) {
            for hash in piece {
                dealt[shard_of(hash, shards)].push(hash);
            }
        }
        Ok(Plan {
            request: self.request,
            works: (0..)
                .zip(dealt)
                .map(|(n, ids)| work(n, vec![ids]))
                .collect(),
        })
    }

    /// Builds the filter, one shard after the other.
    pub fn finish(self) -> Result<Filter<Vec<u8>>, BuildError> {
        self.finish_with(Tables::default())
    }

    /// [`Self::finish`] with tables of the caller's.
    pub fn finish_with(self, mut tables: Tables) -> Result<Filter<Vec<u8>>, BuildError> {
        let plan = self.into_plan()?;
        let (assembly, works) = plan.split();
        let parts: Result<Vec<_>, _> = works
            .into_iter()
            .map(|work| work.solve(&mut tables))
            .collect();
        drop(tables);
        assembly.join(parts?)
    }
}

/// The shards of a filter to be, ready to be solved in any order.
#[derive(Debug)]
pub struct Plan {
    request: Request,
    works: Vec<ShardWork>,
}

impl Plan {
    /// What to solve, and what puts the solved together.
    pub fn split(self) -> (Assembly, Vec<ShardWork>) {
        let assembly = Assembly {
            request: self.request,
            shards: self.works.len(),
        };
        (assembly, self.works)
    }
}

/// One shard's ids.
#[derive(Debug)]
pub struct ShardWork {
    number: u32,
    pieces: Vec<Vec<u64>>,
    width: Width,
}

impl ShardWork {
    /// Ids in it, duplicates included.
    pub fn gathered(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }

    /// Solves it: some 35 ns an id.
    pub fn solve(self, tables: &mut Tables) -> Result<ShardPart, BuildError> {
        let shard = self.number;
        let solved = fuse::build(&mut tables.0, self.pieces, self.width, u64::from(shard))
            .map_err(|fuse::BuildError::Unsolvable| BuildError::Unsolvable { shard })?;
        Ok(ShardPart { shard, solved })
    }
}

/// What solving needs beside a shard's ids, kept from one shard to the next.
#[derive(Debug, Default)]
pub struct Tables(fuse::Room);

impl Tables {
    /// Memory that is enough for most shards.
    pub const BYTES: usize = 24 << 20;

    /// Tables in memory of the caller's, whatever is in it. Who has pages larger than 4 KiB saves a fifth of a build of
    /// a million ids, which otherwise the system takes to bring so many. Shards for which it is too small get other memory.
    pub fn within(memory: impl AsMut<[u8]> + Send + 'static) -> Self {
        Self(fuse::Room::within(Box::new(memory)))
    }
}

/// A solved shard.
#[derive(Debug)]
pub struct ShardPart {
    shard: u32,
    solved: Solved,
}

/// Puts solved shards together.
#[derive(Debug)]
pub struct Assembly {
    request: Request,
    shards: usize,
}

impl Assembly {
    /// The filter, from all parts of its plan in any order.
    ///
    /// # Panics
    /// When a part is missing or comes twice: parts are made by this plan's work alone.
    pub fn join(self, mut parts: Vec<ShardPart>) -> Result<Filter<Vec<u8>>, BuildError> {
        parts.sort_by_key(|part| part.shard);
        let whole = parts
            .iter()
            .map(|part| part.shard as usize)
            .eq(0..self.shards);
        assert!(whole, "each shard of the plan comes once");
        let directory_bytes = parts.len() * SHARD_BYTES;
        let areas_bytes: usize = parts.iter().map(|part| part.solved.area.len()).sum();
        let payload_bytes = directory_bytes + areas_bytes;
        let mut bytes = Vec::with_capacity(HEADER_BYTES + payload_bytes);
        bytes.resize(HEADER_BYTES, 0);
        let mut at = directory_bytes as u64;
        let mut ids = 0;
        for part in &parts {
            let entry = ShardEntry {
                shape: part.solved.shape,
                seed: part.solved.seed,
                at,
            };
            bytes.extend_from_slice(&entry.to_bytes());
            at += part.solved.area.len() as u64;
            ids += part.solved.ids as u64;
        }
        for part in parts {
            // Freed one by one: the shards never lie in memory twice.
            bytes.extend_from_slice(&part.solved.area);
        }
        let header = header(&self.request, Kind::Fuse, ids, ids, self.shards as u32);
        Ok(seal(header, bytes))
    }
}

/// A header for `request`, without what [`seal`] fills in.
pub(crate) fn header(
    request: &Request,
    kind: Kind,
    ids: u64,
    capacity_ids: u64,
    parts: u32,
) -> Header {
    Header {
        kind,
        hasher: request.hasher,
        epoch: request.epoch,
        built_ms: request.built.map_or(0, Timestamp::as_millis),
        ids,
        capacity_ids,
        rate: request.rate.share(),
        parts,
        payload_bytes: 0,
        payload_checksum: 0,
    }
}

/// Writes the header over the room left for it, with length and checksum of what follows.
pub(crate) fn seal(mut header: Header, mut bytes: Vec<u8>) -> Filter<Vec<u8>> {
    let payload = &bytes[HEADER_BYTES..];
    header.payload_bytes = payload.len() as u64;
    let mut checksum = Xxh3Default::new();
    checksum.update(payload);
    header.payload_checksum = checksum.digest();
    bytes[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
    Filter::open_trusted(bytes).expect("what was just written can be opened")
}

/// Hashes of a piece: 1 MiB.
const PIECE: usize = 1 << 17;

/// Why a filter could not be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The source has more ids than were allowed for.
    #[error("there are more than {ids_max} ids")]
    TooMany {
        /// How many were allowed.
        ids_max: u64,
    },
    /// The rate is below what an updatable filter keeps.
    #[error("an updatable filter keeps no rate below 0.0001 %")]
    RateTooLow,
    /// No solution in 64 attempts: chance does not do that.
    #[error(
        "shard {shard} cannot be solved: its ids seem chosen to prevent it; use another hash seed"
    )]
    Unsolvable {
        /// Which, counted from 0.
        shard: u32,
    },
}
