//! Where one chunk ends and the next begins, decided by content alone.
//!
//! Two ends of a link know the same bytes by the same names only if they cut them at the same
//! places, wherever those bytes stand in a body. So a cut depends on the [`WINDOW_BYTES`] before it, and
//! on how far the chunk has come: not before a quarter of the average, reluctantly up to the
//! average, readily after it, at eight times the average at the latest. Something inserted
//! moves the cuts around it and no others.
//!
//! Two questions are asked of a place, the cheap one first, since nearly every byte is asked:
//!
//! 1. **The sieve.** Four pairs of bytes, spread over the sixteen before the place, are weighed and added
//!    up in 16 bits; a place is a candidate if the sum is small. Each sum needs its own bytes only,
//!    so 64 places are asked at once where the processor has AVX2 (`simd`), and in plain
//!    code elsewhere (`scalar`), with the same result to the bit.
//! 2. **The verdict.** XXH3 over the whole window, below a threshold: this is where the odds of a cut come from.
//!
//! Only what was made for it has candidates everywhere: such a body is cut at XXH3's speed, 0.1 GB/s.
//!
//! The odds before and after the average differ sixteenfold, which gathers the sizes around it: FastCDC's
//! "normalized chunking" (Xia et al., USENIX ATC 2016, section 3.4). The rest is not FastCDC: its hash rolls, and
//! what rolls goes byte by byte.
//!
//! A [`Chunker`] takes the body in pieces as they come and cuts at the same places however it
//! was cut up before.

mod scalar;
#[cfg(target_arch = "x86_64")]
mod simd;

use std::fmt;
use std::ops::Range;

use thiserror::Error;

/// How much lies before a cut that decides about it.
pub const WINDOW_BYTES: usize = 64;

/// What two ends must agree on to cut alike; goes into the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkerParams {
    average_log2: u8,
    seed: u64,
}

/// Why these cannot be parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChunkerError {
    /// Below 4 KiB ids outweigh what they save, above 64 KiB nothing matches.
    #[error("chunks of {0} bytes on average: not a power of two between 4096 and 65536")]
    Average(u32),
    /// The other end is newer, or these are no parameters.
    #[error("chunker {0} is not known here")]
    Kind(u8),
}

impl ChunkerParams {
    /// The least average.
    pub const AVERAGE_MIN: u32 = 4 << 10;
    /// The largest average.
    pub const AVERAGE_MAX: u32 = 64 << 10;
    /// What this chunker is called on the wire: a sieve of four pairs, then XXH3 over 64 bytes.
    pub const KIND: u8 = 1;

    /// Chunks of `average` bytes: a power of two, 4 to 64 KiB.
    ///
    /// The seed moves most cuts. Sizes of chunks can be guessed from outside even where their bytes are encrypted;
    /// without the seed one cannot tell which sizes a known file would give.
    pub fn new(average: u32, seed: u64) -> Result<Self, ChunkerError> {
        let within = (Self::AVERAGE_MIN..=Self::AVERAGE_MAX).contains(&average);
        if !within || !average.is_power_of_two() {
            return Err(ChunkerError::Average(average));
        }
        let average_log2 = u8::try_from(average.ilog2()).expect("at most 16");
        Ok(Self { average_log2, seed })
    }

    /// As [`new`](Self::new), from a handshake.
    pub fn from_wire(kind: u8, average_log2: u8, seed: u64) -> Result<Self, ChunkerError> {
        if kind != Self::KIND {
            return Err(ChunkerError::Kind(kind));
        }
        let average = 1_u32.checked_shl(u32::from(average_log2));
        Self::new(average.unwrap_or(0), seed)
    }

    /// The average's exponent, as handshakes have it.
    pub const fn average_log2(self) -> u8 {
        self.average_log2
    }

    /// Bytes of a chunk, on average.
    pub const fn average(self) -> usize {
        1 << self.average_log2
    }

    /// No chunk but a body's last is shorter.
    pub const fn min(self) -> usize {
        self.average() / 4
    }

    /// No chunk is longer.
    pub const fn max(self) -> usize {
        self.average() * 8
    }

    /// What moves the cuts.
    pub const fn seed(self) -> u64 {
        self.seed
    }
}

/// Which code asks the sieve. The cuts are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pace {
    /// Plain code for any processor: what defines the cuts.
    Scalar,
    /// 64 places at a time.
    Avx2,
}

impl Pace {
    /// The fastest this processor has.
    pub fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        if simd::Avx2::detect().is_some() {
            return Self::Avx2;
        }
        Self::Scalar
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "AVX2",
        })
    }
}

/// Cuts one body after the other, each taken in pieces.
#[derive(Clone, Debug)]
pub struct Chunker {
    params: ChunkerParams,
    rule: Rule,
    scan: Scan,
    /// Bytes of the chunk that were seen.
    length: usize,
    /// The last of them.
    tail: [u8; WINDOW_BYTES],
}

impl Chunker {
    /// At the beginning of a body.
    pub fn new(params: ChunkerParams) -> Self {
        Self::with_pace(params, Pace::best())
    }

    /// As [`new`](Self::new), with the code chosen; the scalar one where the processor lacks the other.
    pub fn with_pace(params: ChunkerParams, pace: Pace) -> Self {
        Self {
            params,
            rule: Rule::new(params),
            scan: Scan::new(pace),
            length: 0,
            tail: [0; WINDOW_BYTES],
        }
    }

    /// Looks for the end of the chunk in `bytes`, which follow those of the calls before.
    ///
    /// `Some(n)`: it ends after `n` of them, 1 at least; the next call begins with what follows. `None`:
    /// all of them belong to the chunk and it goes on.
    pub fn next_cut(&mut self, bytes: &[u8]) -> Option<usize> {
        let cut = self.search(bytes);
        match cut {
            Some(_) => self.length = 0,
            None => self.keep(bytes),
        }
        cut
    }

    /// Whether a chunk that begins here may end after `chunk`: its last bytes and its length ask for it. Not whether an earlier cut is asked
    /// for, so a chunk that was cut by these parameters elsewhere is cut alike here.
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
        scalar::sum(window, WINDOW_BYTES) < self.rule.sieve
            && self.rule.verdict(window, WINDOW_BYTES, threshold)
    }

    /// The body ended, and with it the chunk; the next one begins.
    pub fn restart(&mut self) {
        self.length = 0;
    }

    /// Bytes of the chunk so far.
    pub fn length(&self) -> usize {
        self.length
    }

    /// What it cuts by.
    pub fn params(&self) -> ChunkerParams {
        self.params
    }

    fn search(&self, bytes: &[u8]) -> Option<usize> {
        // A place is called by the bytes of `bytes` before it.
        let first = self.params.min().saturating_sub(self.length).max(1);
        let limit = self.params.max() - self.length;
        let last = bytes.len().min(limit);
        if first > last {
            return None;
        }
        // Places whose window begins in an earlier piece. The chunk's least length is many windows, so
        // where there is such a place, `tail` is full.
        if first < WINDOW_BYTES {
            let mut seam = [0; 2 * WINDOW_BYTES];
            let taken = last.min(WINDOW_BYTES - 1);
            seam[..WINDOW_BYTES].copy_from_slice(&self.tail);
            seam[WINDOW_BYTES..WINDOW_BYTES + taken].copy_from_slice(&bytes[..taken]);
            let places = WINDOW_BYTES + first..WINDOW_BYTES + taken + 1;
            let cut = self.first_of(&seam[..WINDOW_BYTES + taken], places, self.length + first);
            if let Some(cut) = cut {
                return Some(cut - WINDOW_BYTES);
            }
        }
        let first = first.max(WINDOW_BYTES);
        let cut = self.first_of(&bytes[..last], first..last + 1, self.length + first);
        cut.or_else(|| (last == limit).then_some(limit))
    }

    /// The first cut in `places` of `bytes`, whose first place is the chunk's `length`.
    fn first_of(&self, bytes: &[u8], places: Range<usize>, length: usize) -> Option<usize> {
        let reluctant = self.params.average().saturating_sub(length);
        let turn = (places.start + reluctant).min(places.end.max(places.start));
        let rule = &self.rule;
        self.scan
            .first(bytes, places.start..turn, rule, rule.before_average)
            .or_else(|| {
                self.scan
                    .first(bytes, turn..places.end, rule, rule.after_average)
            })
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.length += bytes.len();
        let kept = bytes.len().min(WINDOW_BYTES);
        self.tail.copy_within(kept.., 0);
        self.tail[WINDOW_BYTES - kept..].copy_from_slice(&bytes[bytes.len() - kept..]);
    }
}

/// The numbers behind the two questions.
#[derive(Clone, Copy, Debug)]
struct Rule {
    /// Candidates have a sum below this.
    sieve: u16,
    seed: u64,
    before_average: u64,
    after_average: u64,
}

impl Rule {
    /// How much rarer than the average cuts are before it, and more frequent after it: four times.
    const NORMALIZATION_LOG2: u32 = 2;

    /// How much more frequent than the average candidates are: eight times.
    ///
    /// Twice what cuts after the average need, so that the window and not four pairs has the last word: a cut that
    /// hung on four pairs alone would follow the habits of a text. At 16 instead of 8 dedup finds 0.3 % more and the sieve
    /// loses a tenth of its speed at 8 KiB; at 4 it finds 0.5 % less.
    const CANDIDATES_LOG2: u32 = 3;

    fn new(params: ChunkerParams) -> Self {
        let average_log2 = u32::from(params.average_log2);
        let sieve_log2 = average_log2 - Self::CANDIDATES_LOG2;
        // Of odds of one in 2^log2 the sieve has taken its share; the verdict takes the rest.
        let threshold = |log2: u32| 1 << (u64::BITS - (log2 - sieve_log2));
        Self {
            sieve: 1 << (u16::BITS - sieve_log2),
            seed: params.seed,
            before_average: threshold(average_log2 + Self::NORMALIZATION_LOG2),
            after_average: threshold(average_log2 - Self::NORMALIZATION_LOG2),
        }
    }

    /// Whether there is a cut at a candidate.
    #[inline]
    fn verdict(&self, bytes: &[u8], place: usize, threshold: u64) -> bool {
        let window = &bytes[place - WINDOW_BYTES..place];
        edgeward_types::xxh3::xxh3_64_with_seed(window, self.seed) < threshold
    }
}

#[derive(Clone, Copy, Debug)]
enum Scan {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2(simd::Avx2),
}

impl Scan {
    fn new(pace: Pace) -> Self {
        match pace {
            Pace::Scalar => Self::Scalar,
            #[cfg(target_arch = "x86_64")]
            Pace::Avx2 => simd::Avx2::detect().map_or(Self::Scalar, Self::Avx2),
            #[cfg(not(target_arch = "x86_64"))]
            Pace::Avx2 => Self::Scalar,
        }
    }

    fn first(
        self,
        bytes: &[u8],
        places: Range<usize>,
        rule: &Rule,
        threshold: u64,
    ) -> Option<usize> {
        let mut verdict = |place: usize| rule.verdict(bytes, place, threshold);
        match self {
            Self::Scalar => scalar::first(bytes, places, rule.sieve, &mut verdict),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(avx2) => avx2.first(bytes, places, rule.sieve, &mut verdict),
        }
    }
}
