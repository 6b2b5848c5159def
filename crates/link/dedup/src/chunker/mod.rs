//! Content-defined chunking: divides a body into chunks at positions that depend only on the content.
//!
//! Equal bytes must be cut at the same positions, wherever they are in a body. Otherwise the endpoints would
//! compute different chunk hashes for these bytes. A cut therefore depends only on the [`WINDOW_BYTES`] before
//! the cut and on the length of the chunk. No cut makes a chunk shorter than a quarter of the average. Cuts are
//! rare up to the average and frequent after it, and a chunk always ends at eight times the average. An
//! insertion into a body moves only the cuts near the insertion.
//!
//! There are two tests for a position. The first test is cheap, because it is done at nearly every byte. Only
//! positions that pass it (candidates) get the second test:
//!
//! 1. **The prefilter.** Two adjacent bytes form a 16-bit number. Four such numbers, at fixed distances before
//!    the position, are each multiplied by a constant, and the products are added modulo 2^16. The position is
//!    a candidate if the sum is small. The sum depends only on the sixteen bytes before the position, so AVX2
//!    tests 64 positions at once (`simd`). On processors without AVX2, portable code (`scalar`) has the same
//!    results.
//! 2. **The cut test.** XXH3 over the whole window must be below a threshold, which sets the probability of a cut.
//!
//! An attacker can make a body in which every position is a candidate. Such a body is cut at the speed of the second
//! test, 0.1 GB/s.
//!
//! Cuts are sixteen times as likely after the average as before it. Most lengths are therefore close to the
//! average. This is the "normalized chunking" of FastCDC (Xia et al., USENIX ATC 2016, section 3.4). The tests
//! differ from FastCDC, because its rolling hash can only process one byte after the other.
//!
//! A [`Chunker`] takes a body in pieces. The cuts do not depend on the lengths of the pieces.

mod scalar;
#[cfg(target_arch = "x86_64")]
mod simd;

use std::fmt;
use std::ops::Range;

use thiserror::Error;

/// The number of bytes before a position that decide whether it is a cut.
pub const WINDOW_BYTES: usize = 64;

/// The parameters of a chunker. Both endpoints must use the same parameters, so they are part of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkerParams {
    average_log2: u8,
    seed: u64,
}

/// Why the parameters are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChunkerError {
    /// The average is out of range. With an average below 4 KiB, references cost more than they save. With an
    /// average above 64 KiB, few chunks are equal.
    #[error("invalid average chunk length {0}: use a power of two from 4096 to 65536")]
    Average(u32),
    /// The number of the peer's chunker is unknown: the peer is newer, or the bytes are not parameters of a chunker.
    #[error("unknown chunker {0}: upgrade the older endpoint")]
    Kind(u8),
}

impl ChunkerParams {
    /// The smallest average length.
    pub(crate) const AVERAGE_MIN: u32 = 4 << 10;
    /// The largest average length.
    pub(crate) const AVERAGE_MAX: u32 = 64 << 10;
    /// The number of this chunker on the wire: a prefilter of four pairs, then XXH3 over 64 bytes.
    pub const KIND: u8 = 1;

    /// Creates parameters for chunks of `average` bytes: a power of two from 4 to 64 KiB.
    ///
    /// Another seed moves most cuts. An observer of an encrypted link can see the lengths of chunks. Without
    /// the seed, the observer cannot compute the lengths of the chunks of a known file, so these lengths do not
    /// reveal the file.
    pub fn new(average: u32, seed: u64) -> Result<Self, ChunkerError> {
        let within = (Self::AVERAGE_MIN..=Self::AVERAGE_MAX).contains(&average);
        if !within || !average.is_power_of_two() {
            return Err(ChunkerError::Average(average));
        }
        let average_log2 = u8::try_from(average.ilog2()).expect("the logarithm is at most 16");
        Ok(Self { average_log2, seed })
    }

    /// Like [`new`](Self::new), with the fields of a handshake.
    pub(crate) fn from_wire(kind: u8, average_log2: u8, seed: u64) -> Result<Self, ChunkerError> {
        if kind != Self::KIND {
            return Err(ChunkerError::Kind(kind));
        }
        let average = 1_u32.checked_shl(u32::from(average_log2));
        Self::new(average.unwrap_or(0), seed)
    }

    /// Returns the binary logarithm of the average, as in the handshake.
    pub const fn average_log2(self) -> u8 {
        self.average_log2
    }

    /// Returns the average length of a chunk.
    pub const fn average(self) -> usize {
        1 << self.average_log2
    }

    /// Returns the minimum length of a chunk; only the last chunk of a body may be shorter.
    pub const fn min(self) -> usize {
        self.average() / 4
    }

    /// Returns the maximum length of a chunk.
    pub const fn max(self) -> usize {
        self.average() * 8
    }

    /// Returns the seed.
    pub const fn seed(self) -> u64 {
        self.seed
    }
}

/// The implementation of the prefilter. All implementations find the same cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prefilter {
    /// Portable code for any processor. It is the reference: the other implementations must find the same cuts.
    Scalar,
    /// AVX2 code, 64 positions at a time.
    Avx2,
}

impl Prefilter {
    /// Returns the fastest implementation for this processor.
    pub fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        if simd::Avx2::detect().is_some() {
            return Self::Avx2;
        }
        Self::Scalar
    }
}

impl fmt::Display for Prefilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "AVX2",
        })
    }
}

/// Finds the cuts of a body that is passed in pieces.
#[derive(Clone, Debug)]
pub struct Chunker {
    params: ChunkerParams,
    rule: CutRule,
    scan: Scanner,
    /// The length of the chunk so far.
    length: usize,
    /// The last bytes of the chunk so far.
    tail: [u8; WINDOW_BYTES],
}

impl Chunker {
    /// Creates a chunker at the start of a body.
    pub fn new(params: ChunkerParams) -> Self {
        Self::with_prefilter(params, Prefilter::best())
    }

    /// Like [`new`](Self::new), with a chosen prefilter. The scalar prefilter is used if the processor lacks AVX2.
    pub fn with_prefilter(params: ChunkerParams, prefilter: Prefilter) -> Self {
        Self {
            params,
            rule: CutRule::new(params),
            scan: Scanner::new(prefilter),
            length: 0,
            tail: [0; WINDOW_BYTES],
        }
    }

    /// Searches `bytes` for the end of the current chunk. `bytes` follow the bytes of the previous calls.
    ///
    /// Returns `Some(n)` if the chunk ends after the first `n` bytes (at least 1). The next call must begin
    /// with the bytes after these. Returns `None` if all bytes belong to the chunk and the chunk continues.
    pub fn next_cut(&mut self, bytes: &[u8]) -> Option<usize> {
        let cut = self.search(bytes);
        match cut {
            Some(_) => self.length = 0,
            None => self.add_to_tail(bytes),
        }
        cut
    }

    /// Returns true if a chunk with these bytes, which starts at the current position, can end after its last
    /// byte. The function tests only this end, not whether the bytes have an earlier cut. The caller therefore
    /// passes only bytes that were cut as a chunk before, with the same parameters. Returns false if the current
    /// position is not the start of a chunk.
    pub fn may_end(&self, chunk: &[u8]) -> bool {
        let (length, params) = (chunk.len(), self.params);
        if self.length > 0 || !(params.min()..=params.max()).contains(&length) {
            return false;
        }
        if length == params.max() {
            return true;
        }
        let threshold = if length < params.average() {
            self.rule.before_average
        } else {
            self.rule.after_average
        };
        let window = &chunk[length - WINDOW_BYTES..];
        scalar::sum(window, WINDOW_BYTES) < self.rule.candidate_limit
            && self.rule.is_cut(window, WINDOW_BYTES, threshold)
    }

    /// Returns the length of the chunk so far.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns the parameters.
    pub fn params(&self) -> ChunkerParams {
        self.params
    }

    fn search(&self, bytes: &[u8]) -> Option<usize> {
        // A position is an index in `bytes`: the number of bytes before the possible cut.
        let first = self.params.min().saturating_sub(self.length).max(1);
        let limit = self.params.max() - self.length;
        let last = bytes.len().min(limit);
        if first > last {
            return None;
        }
        // The windows of the first positions begin in an earlier piece, so `tail` and `bytes` are joined.
        // `tail` is full at this time, because the minimum length of a chunk is longer than a window.
        if first < WINDOW_BYTES {
            let mut seam = [0; 2 * WINDOW_BYTES];
            let taken = last.min(WINDOW_BYTES - 1);
            seam[..WINDOW_BYTES].copy_from_slice(&self.tail);
            seam[WINDOW_BYTES..WINDOW_BYTES + taken].copy_from_slice(&bytes[..taken]);
            let positions = WINDOW_BYTES + first..WINDOW_BYTES + taken + 1;
            let cut = self.first_of(
                &seam[..WINDOW_BYTES + taken],
                positions,
                self.length + first,
            );
            if let Some(cut) = cut {
                return Some(cut - WINDOW_BYTES);
            }
        }
        let first = first.max(WINDOW_BYTES);
        let cut = self.first_of(&bytes[..last], first..last + 1, self.length + first);
        cut.or_else(|| (last == limit).then_some(limit))
    }

    /// Returns the first cut in `positions` of `bytes`. If the cut is at the first position, the
    /// chunk has `length` bytes.
    fn first_of(&self, bytes: &[u8], positions: Range<usize>, length: usize) -> Option<usize> {
        let before_average = self.params.average().saturating_sub(length);
        let middle = (positions.start + before_average).min(positions.end.max(positions.start));
        let rule = &self.rule;
        self.scan
            .first(bytes, positions.start..middle, rule, rule.before_average)
            .or_else(|| {
                self.scan
                    .first(bytes, middle..positions.end, rule, rule.after_average)
            })
    }

    fn add_to_tail(&mut self, bytes: &[u8]) {
        self.length += bytes.len();
        let tail_bytes = bytes.len().min(WINDOW_BYTES);
        self.tail.copy_within(tail_bytes.., 0);
        self.tail[WINDOW_BYTES - tail_bytes..].copy_from_slice(&bytes[bytes.len() - tail_bytes..]);
    }
}

/// The thresholds of the prefilter and of the cut test.
#[derive(Clone, Copy, Debug)]
struct CutRule {
    /// Candidates have a smaller sum.
    candidate_limit: u16,
    seed: u64,
    /// The threshold of the cut test for chunks that are shorter than the average.
    before_average: u64,
    /// The threshold of the cut test for all other chunks.
    after_average: u64,
}

impl CutRule {
    /// The base-two logarithm of a factor: before the average length, cuts are four times rarer than on
    /// average; after it, four times more frequent.
    const NORMALIZATION_LOG2: u32 = 2;

    /// The base-two logarithm of a factor: candidates are eight times more frequent than cuts on average.
    ///
    /// This is twice the frequency of cuts after the average length. The cut test over the whole window then
    /// rejects at least half of the candidates. Otherwise the four pairs alone would decide, and their
    /// frequencies depend on the kind of text. With a factor of 16, deduplication finds 0.3 % more bytes, and
    /// the prefilter loses a tenth of its speed at an average of 8 KiB. With a factor of 4, deduplication finds
    /// 0.5 % fewer bytes.
    const CANDIDATES_LOG2: u32 = 3;

    fn new(params: ChunkerParams) -> Self {
        let average_log2 = u32::from(params.average_log2);
        let prefilter_log2 = average_log2 - Self::CANDIDATES_LOG2;
        // The prefilter passes one position in 2^prefilter_log2. The cut test passes one candidate in
        // 2^(log2 - prefilter_log2). Together, one position in 2^log2 is a cut.
        let threshold = |log2: u32| 1 << (u64::BITS - (log2 - prefilter_log2));
        Self {
            candidate_limit: 1 << (u16::BITS - prefilter_log2),
            seed: params.seed,
            before_average: threshold(average_log2 + Self::NORMALIZATION_LOG2),
            after_average: threshold(average_log2 - Self::NORMALIZATION_LOG2),
        }
    }

    /// Returns true if the candidate is a cut.
    #[inline]
    fn is_cut(&self, bytes: &[u8], position: usize, threshold: u64) -> bool {
        let window = &bytes[position - WINDOW_BYTES..position];
        edgeward_types::xxh3::xxh3_64_with_seed(window, self.seed) < threshold
    }
}

/// A [`Prefilter`] that this processor supports.
#[derive(Clone, Copy, Debug)]
enum Scanner {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2(simd::Avx2),
}

impl Scanner {
    fn new(prefilter: Prefilter) -> Self {
        match prefilter {
            Prefilter::Scalar => Self::Scalar,
            #[cfg(target_arch = "x86_64")]
            Prefilter::Avx2 => simd::Avx2::detect().map_or(Self::Scalar, Self::Avx2),
            #[cfg(not(target_arch = "x86_64"))]
            Prefilter::Avx2 => Self::Scalar,
        }
    }

    fn first(
        self,
        bytes: &[u8],
        positions: Range<usize>,
        rule: &CutRule,
        threshold: u64,
    ) -> Option<usize> {
        let mut is_cut = |position: usize| rule.is_cut(bytes, position, threshold);
        match self {
            Self::Scalar => scalar::first(bytes, positions, rule.candidate_limit, &mut is_cut),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(avx2) => avx2.first(bytes, positions, rule.candidate_limit, &mut is_cut),
        }
    }
}
