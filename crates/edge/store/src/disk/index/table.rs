//! The buckets: a long array that grows at its end and never moves, so that readers need no lock.

use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use super::bucket::{BUCKET_BYTES, Bucket};
use super::geometry::Shape;

/// The buckets of an index, in chunks. A chunk is allocated when its first bucket is used.
#[derive(Debug)]
pub(super) struct Table {
    /// The number of buckets in one layer. The table is a stack of layers; `geometry` explains them.
    bases: u64,
    /// The largest number of buckets to which the table may grow.
    buckets_max: u64,
    /// A packed [`Shape`], which determines the number of buckets in use. Every lookup reads it.
    shape: AtomicU64,
    /// The binary logarithm of the number of buckets in a chunk.
    chunk_shift: u32,
    /// The directory: an entry for each chunk, allocated or not.
    chunks: Box<[OnceLock<Box<[Bucket]>>]>,
    chunks_allocated: AtomicU64,
}

impl Table {
    /// Returns a table of one layer of `bases` buckets that may grow to `buckets_max`.
    pub(super) fn new(bases: u64, buckets_max: u64) -> Self {
        Self::with_buckets(bases, bases, buckets_max)
    }

    /// Returns a table of `buckets` empty buckets that may grow to `buckets_max`.
    pub(super) fn with_buckets(bases: u64, buckets: u64, buckets_max: u64) -> Self {
        let buckets_max = buckets_max.max(buckets);
        // At most 1024 chunks, unless a chunk would exceed its maximum size: the directory of 24 KiB then stays in the
        // L1 cache of the CPU.
        let chunk_shift = buckets_max
            .div_ceil(CHUNKS_TARGET)
            .next_power_of_two()
            .ilog2()
            .clamp(CHUNK_SHIFT_MIN, CHUNK_SHIFT_MAX);
        let chunks = buckets_max.div_ceil(1 << chunk_shift);
        let table = Self {
            bases,
            buckets_max,
            shape: AtomicU64::new(Shape::from_buckets(buckets, bases).pack()),
            chunk_shift,
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
            chunks_allocated: AtomicU64::new(0),
        };
        for chunk in 0..buckets.div_ceil(1 << chunk_shift) {
            table.allocate(chunk);
        }
        table
    }

    #[inline]
    pub(super) fn shape(&self) -> Shape {
        Shape::unpack(self.shape.load(Acquire))
    }

    /// The number of buckets in use.
    pub(super) fn buckets(&self) -> u64 {
        self.shape().buckets(self.bases)
    }

    pub(super) fn is_at_limit(&self) -> bool {
        self.buckets() >= self.buckets_max
    }

    /// Returns a bucket that is in use, or that was allocated by `prepare_next`.
    #[inline]
    pub(super) fn bucket(&self, number: u64) -> &Bucket {
        let chunk = self.chunks[(number >> self.chunk_shift) as usize]
            .get()
            .expect("a shape is published after its buckets");
        &chunk[(number & ((1 << self.chunk_shift) - 1)) as usize]
    }

    /// Allocates the next bucket and returns it, empty. `publish_next` makes the bucket visible.
    pub(super) fn prepare_next(&self) -> &Bucket {
        let next = self.buckets();
        self.allocate(next >> self.chunk_shift);
        self.bucket(next)
    }

    /// Makes one more bucket visible to lookups.
    pub(super) fn publish_next(&self) {
        let shape = Shape::from_buckets(self.buckets() + 1, self.bases);
        self.shape.store(shape.pack(), Release);
    }

    /// The size in memory now: the allocated chunks and the directory.
    pub(super) fn bytes(&self) -> u64 {
        let chunks = self.chunks_allocated.load(Relaxed);
        chunks * self.chunk_bytes() + self.directory_bytes()
    }

    /// The size in memory when all chunks are allocated.
    pub(super) fn bytes_max(&self) -> u64 {
        self.chunks.len() as u64 * self.chunk_bytes() + self.directory_bytes()
    }

    const fn chunk_bytes(&self) -> u64 {
        (BUCKET_BYTES as u64) << self.chunk_shift
    }

    fn directory_bytes(&self) -> u64 {
        size_of_val(&*self.chunks) as u64
    }

    fn allocate(&self, chunk: u64) {
        self.chunks[chunk as usize].get_or_init(|| {
            self.chunks_allocated.fetch_add(1, Relaxed);
            (0..1_u64 << self.chunk_shift)
                .map(|_| Bucket::default())
                .collect()
        });
    }
}

/// The largest number of chunks, unless [`CHUNK_SHIFT_MAX`] makes more necessary.
const CHUNKS_TARGET: u64 = 1024;

/// The binary logarithm of the buckets in the smallest chunk, which takes 4 KiB.
const CHUNK_SHIFT_MIN: u32 = 6;

/// The binary logarithm of the buckets in the largest chunk, which takes 4 MiB. An insertion that allocates a
/// chunk of this size takes a millisecond longer.
const CHUNK_SHIFT_MAX: u32 = 16;
