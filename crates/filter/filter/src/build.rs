//! Builds a static filter from a stream of ids.
//!
//! Hashes are gathered in pieces of 1 MiB, 8 bytes per id, including duplicates. At the end of the stream they
//! are distributed to shards; each piece is freed afterwards. To solve a shard is to compute the table of its ids, by
//! the equations that the module `fuse` describes. Each shard is solved independently:
//! [`StaticBuilder::finish`] solves them one after the other, and a caller of [`StaticBuilder::into_plan`] may
//! solve them in any order on any thread. Peak memory is 8 bytes per id, the finished shards, and 34 MB for
//! each shard that is being solved.

use std::hash::Hasher as _;

use edgeward_types::Timestamp;
use edgeward_types::xxh3::Xxh3;

use crate::filter::Filter;
use crate::format::{HEADER_BYTES, Header, Kind, SHARD_BYTES, ShardEntry};
use crate::fuse::{self, SHARD_IDS, Solved, Width, shard_of};
use crate::id::{IdHash, IdHasher};
use crate::rate::Rate;

/// The parameters of a static or updatable filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FilterParams {
    /// The largest share of absent ids that may get "maybe".
    pub rate: Rate,
    /// The form of the ids and the seed of their hash.
    pub hasher: IdHasher,
    /// The number of this build of the set.
    pub epoch: u64,
    /// The time at which the reading of the ids began, for reports.
    pub built: Option<Timestamp>,
    /// The largest number of ids, including duplicates. Protects against a faulty source that would take all memory.
    pub ids_max: u64,
}

impl FilterParams {
    /// Returns the parameters for text ids with this rate and defaults otherwise.
    pub fn with_rate(rate: Rate) -> Self {
        Self {
            rate,
            hasher: IdHasher::default(),
            epoch: 0,
            built: None,
            // The hashes of this many ids take 32 GiB. Larger sets need an explicit limit.
            ids_max: 1 << 32,
        }
    }
}

/// Gathers ids for a static filter.
#[derive(Clone, Debug)]
pub struct StaticBuilder {
    params: FilterParams,
    /// Full pieces of hashes.
    full_pieces: Vec<Vec<u64>>,
    /// The piece that receives further hashes.
    last_piece: Vec<u64>,
}

impl StaticBuilder {
    /// Creates an empty builder.
    pub fn new(params: FilterParams) -> Self {
        Self {
            params,
            full_pieces: Vec::new(),
            last_piece: Vec::new(),
        }
    }

    /// Adds an id. Duplicates are allowed.
    pub fn insert(&mut self, id: IdHash) -> Result<(), BuildError> {
        if self.last_piece.len() == PIECE_HASHES {
            self.close_piece()?;
        }
        self.last_piece.push(id.0);
        Ok(())
    }

    /// The number of ids added so far, including duplicates.
    pub fn ids_added(&self) -> u64 {
        (self.full_pieces.len() * PIECE_HASHES + self.last_piece.len()) as u64
    }

    fn close_piece(&mut self) -> Result<(), BuildError> {
        self.check_count()?;
        let next = Vec::with_capacity(PIECE_HASHES);
        self.full_pieces
            .push(std::mem::replace(&mut self.last_piece, next));
        Ok(())
    }

    fn check_count(&self) -> Result<(), BuildError> {
        let ids_max = self.params.ids_max;
        if self.ids_added() > ids_max {
            return Err(BuildError::TooMany { ids_max });
        }
        Ok(())
    }

    /// Distributes the ids to shards.
    pub fn into_plan(mut self) -> Result<Plan, BuildError> {
        self.check_count()?;
        let ids = self.ids_added();
        let shards = ids.div_ceil(SHARD_IDS).max(1);
        let shards = u32::try_from(shards).map_err(|_| BuildError::TooMany {
            ids_max: SHARD_IDS << 32,
        })?;
        let mut pieces = std::mem::take(&mut self.full_pieces);
        pieces.push(std::mem::take(&mut self.last_piece));
        let width = Width::for_rate(self.params.rate);
        let work = |number: u32, pieces: Vec<Vec<u64>>| ShardWork {
            number,
            pieces,
            width,
        };
        if shards == 1 {
            return Ok(Plan {
                params: self.params,
                work: vec![work(0, pieces)],
            });
        }
        let mut counts = vec![0usize; shards as usize];
        for &hash in pieces.iter().flatten() {
            counts[shard_of(hash, shards)] += 1;
        }
        let mut distributed: Vec<Vec<u64>> = counts.into_iter().map(Vec::with_capacity).collect();
        for piece in pieces.drain(..) {
            for hash in piece {
                distributed[shard_of(hash, shards)].push(hash);
            }
        }
        Ok(Plan {
            params: self.params,
            work: (0..)
                .zip(distributed)
                .map(|(n, ids)| work(n, vec![ids]))
                .collect(),
        })
    }

    /// Builds the filter, one shard after the other.
    pub fn finish(self) -> Result<Filter<Vec<u8>>, BuildError> {
        self.finish_with(BuildWorkspace::default())
    }

    /// Like [`Self::finish`], in memory that the caller provides.
    pub fn finish_with(self, mut workspace: BuildWorkspace) -> Result<Filter<Vec<u8>>, BuildError> {
        let plan = self.into_plan()?;
        let (assembly, work) = plan.split();
        let parts: Result<Vec<_>, _> = work
            .into_iter()
            .map(|work| work.solve(&mut workspace))
            .collect();
        drop(workspace);
        assembly.join(parts?)
    }
}

/// The shards of a filter, ready to be solved in any order.
#[derive(Debug)]
pub struct Plan {
    params: FilterParams,
    work: Vec<ShardWork>,
}

impl Plan {
    /// Splits the plan into the shards to solve and the assembly that joins them.
    pub fn split(self) -> (Assembly, Vec<ShardWork>) {
        let assembly = Assembly {
            params: self.params,
            shards: self.work.len(),
        };
        (assembly, self.work)
    }
}

/// The ids of one shard.
#[derive(Debug)]
pub struct ShardWork {
    number: u32,
    pieces: Vec<Vec<u64>>,
    width: Width,
}

impl ShardWork {
    /// The number of ids, including duplicates.
    pub fn ids_added(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }

    /// Solves the shard, in about 35 ns per id.
    pub fn solve(self, workspace: &mut BuildWorkspace) -> Result<ShardPart, BuildError> {
        let shard = self.number;
        let solved = fuse::build(&mut workspace.0, self.pieces, self.width, u64::from(shard))
            .map_err(|fuse::BuildError::Unsolvable| BuildError::Unsolvable { shard })?;
        Ok(ShardPart { shard, solved })
    }
}

/// Memory for solving shards, reused from one shard to the next.
#[derive(Debug, Default)]
pub struct BuildWorkspace(fuse::Workspace);

impl BuildWorkspace {
    /// The size in bytes that suffices for most shards.
    pub const BYTES: usize = 24 << 20;

    /// Solves shards in memory that the caller provides, with any contents. With pages larger than 4 KiB a build
    /// of a million ids takes a fifth less time, because there are fewer page faults. A shard that does not fit
    /// allocates its own memory.
    pub fn within(memory: impl AsMut<[u8]> + Send + 'static) -> Self {
        Self(fuse::Workspace::within(Box::new(memory)))
    }
}

/// The bytes and the seed of a shard after it was solved.
#[derive(Debug)]
pub struct ShardPart {
    shard: u32,
    solved: Solved,
}

/// Joins solved shards to a filter.
#[derive(Debug)]
pub struct Assembly {
    params: FilterParams,
    shards: usize,
}

impl Assembly {
    /// Returns the filter made of all parts of the plan, in any order.
    ///
    /// Panics if a part is missing or duplicate. This cannot happen if the caller solves each [`ShardWork`] of the
    /// plan once.
    pub fn join(self, mut parts: Vec<ShardPart>) -> Result<Filter<Vec<u8>>, BuildError> {
        parts.sort_by_key(|part| part.shard);
        let whole = parts
            .iter()
            .map(|part| part.shard as usize)
            .eq(0..self.shards);
        assert!(whole, "each shard of the plan appears once");
        let directory_bytes = parts.len() * SHARD_BYTES;
        // The area of a shard is its table of slots.
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
            // Each part is freed after it was copied, so that the shards are never in memory twice.
            bytes.extend_from_slice(&part.solved.area);
        }
        let header = header(&self.params, Kind::Fuse, ids, ids, self.shards as u32);
        Ok(seal(header, bytes))
    }
}

/// Returns a header for `params`, without the fields that [`seal`] fills in. The filter was sized for `capacity_ids`
/// ids. `parts` is the number of shards or blocks.
pub(crate) fn header(
    params: &FilterParams,
    kind: Kind,
    ids: u64,
    capacity_ids: u64,
    parts: u32,
) -> Header {
    Header {
        kind,
        hasher: params.hasher,
        epoch: params.epoch,
        built_ms: params.built.map_or(0, Timestamp::as_millis),
        ids,
        capacity_ids,
        rate: params.rate.share(),
        parts,
        payload_bytes: 0,
        payload_checksum: 0,
    }
}

/// Writes the header, with the length and the checksum of the payload, into the space reserved for it.
pub(crate) fn seal(mut header: Header, mut bytes: Vec<u8>) -> Filter<Vec<u8>> {
    let payload = &bytes[HEADER_BYTES..];
    header.payload_bytes = payload.len() as u64;
    let mut checksum = Xxh3::new();
    checksum.write(payload);
    header.payload_checksum = checksum.finish();
    bytes[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
    Filter::open_trusted(bytes).expect("a filter that was just written can be opened")
}

/// The number of hashes in a piece of 1 MiB.
const PIECE_HASHES: usize = 1 << 17;

/// Why a filter could not be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The source has more ids than allowed.
    #[error("the source has more than {ids_max} ids")]
    TooMany {
        /// The largest number allowed.
        ids_max: u64,
    },
    /// The rate is below the smallest rate of an updatable filter.
    #[error("an updatable filter cannot have a rate below 0.0001 %; use a static filter")]
    RateTooLow,
    /// A shard was not solvable in 64 attempts. With random ids this practically never happens, so the ids were
    /// probably chosen by an attacker.
    #[error(
        "shard {shard} cannot be solved: its ids seem chosen to prevent it; use another hash seed"
    )]
    Unsolvable {
        /// The index of the shard, from 0.
        shard: u32,
    },
}
