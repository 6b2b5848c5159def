//! Decides which payloads are compressed, and by which method.
//!
//! The fastest implementations of zstd and LZ4 are C libraries, but this crate must also compile for wasm32.
//! The user of this crate therefore implements compression as a [`Codec`]. The [`Effort`] in this crate chooses
//! the method. Compression is useful only if the link is slower than the compressor, and only for bytes that
//! become shorter.

use std::fmt;

/// How a payload is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// Uncompressed.
    None,
    /// LZ4's block format.
    Lz4,
    /// A Zstandard frame.
    Zstd,
}

impl Method {
    /// Returns the number of the method on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Lz4 => 1,
            Self::Zstd => 2,
        }
    }

    /// Returns the method with this number.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::None),
            1 => Some(Self::Lz4),
            2 => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// A set of methods. It always contains `None`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Methods(u8);

impl Methods {
    /// No compression.
    pub const NONE: Self = Self(1);
    /// All methods.
    pub const ALL: Self = Self(7);

    /// Returns the set with this method added.
    #[must_use]
    pub const fn with(self, method: Method) -> Self {
        Self(self.0 | 1 << method.code())
    }

    /// Returns the methods that are in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0 | 1)
    }

    /// Returns true if the method is in the set.
    pub const fn has(self, method: Method) -> bool {
        self.0 >> method.code() & 1 == 1
    }

    /// Returns the set as on the wire: one bit per method.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Reads a set from the wire. Unknown methods are ignored.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits).and(Self::ALL)
    }
}

impl fmt::Debug for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [Method::None, Method::Lz4, Method::Zstd];
        f.debug_set()
            .entries(all.into_iter().filter(|&method| self.has(method)))
            .finish()
    }
}

/// The payload cannot be decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecodable;

/// Compresses and decompresses payloads. The crate `edgeward_chunk_store` implements this trait.
pub trait Codec {
    /// Compresses `raw` and appends the result to `out`. `dictionary` contains bytes that the peer has and
    /// that may resemble `raw`. It may be empty. If compression fails or the result is not shorter than `raw`,
    /// returns false and leaves `out` unchanged.
    fn compress(
        &mut self,
        method: Method,
        dictionary: &[u8],
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> bool;

    /// Decompresses `packed` and appends the result to `out`. The result must have exactly `raw_bytes` bytes;
    /// another length is an error, and a longer result is never appended.
    fn decompress(
        &mut self,
        method: Method,
        dictionary: &[u8],
        packed: &[u8],
        raw_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Undecodable>;
}

/// Selects the compression method of each batch of bytes.
///
/// While the link is idle, bodies wait only for the compressor. The method then changes from zstd to LZ4 to no
/// compression. While frames wait for the link, the method changes back. If compression saves less than 1/32 of
/// a batch, it probably will not save more of the next batches: one batch is then sent uncompressed, and after
/// each further failure twice as many, at most 32.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    allowed: Methods,
    /// The method in use.
    method: Method,
    /// The number of bytes of consecutive batches while the link was idle.
    idle_bytes: usize,
    /// The number of consecutive batches while the link was busy.
    busy_batches: u8,
    /// The number of batches that are still sent uncompressed, because compression saved less than 1/32 of a
    /// batch.
    skip: u8,
    /// The value of `skip` after the next batch that compression shortens by less than 1/32.
    skip_next: u8,
}

impl Effort {
    /// The number of bytes sent over an idle link after which the method becomes weaker: eight batches of 256 KiB,
    /// which zstd compresses in 4 ms. The limit counts bytes, not batches, because eight short batches at the
    /// start of a body take almost no time.
    const IDLE_BYTES: usize = 2 << 20;
    /// The number of batches sent over a busy link after which the method becomes stronger.
    const BUSY_BATCHES: u8 = 2;
    const SKIP_MAX: u8 = 32;

    /// Returns an effort that begins with the strongest allowed method.
    pub fn new(allowed: Methods) -> Self {
        let mut effort = Self {
            allowed,
            method: Method::None,
            idle_bytes: 0,
            busy_batches: 0,
            skip: 0,
            skip_next: 1,
        };
        while let Some(stronger) = effort.stronger() {
            effort.method = stronger;
        }
        effort
    }

    /// Returns the method for the next batch of this length. `link_busy` is true while earlier bytes still wait for
    /// the link.
    pub fn choose(&mut self, link_busy: bool, raw_bytes: usize) -> Method {
        if link_busy {
            (self.idle_bytes, self.busy_batches) = (0, self.busy_batches + 1);
        } else {
            (self.idle_bytes, self.busy_batches) = (self.idle_bytes.saturating_add(raw_bytes), 0);
        }
        if self.busy_batches >= Self::BUSY_BATCHES {
            self.busy_batches = 0;
            self.method = self.stronger().unwrap_or(self.method);
        }
        if self.idle_bytes >= Self::IDLE_BYTES {
            self.idle_bytes = 0;
            self.method = self.weaker().unwrap_or(self.method);
        }
        if self.skip > 0 {
            self.skip -= 1;
            return Method::None;
        }
        self.method
    }

    /// Records the result of compressing a batch.
    pub fn learn(&mut self, raw_bytes: usize, packed_bytes: usize) {
        // Saving less than 1/32 of the bytes does not justify the decompression.
        if packed_bytes > raw_bytes - raw_bytes / 32 {
            self.skip = self.skip_next;
            self.skip_next = (self.skip_next * 2).min(Self::SKIP_MAX);
        } else {
            self.skip_next = 1;
        }
    }

    /// Returns true if a compression method is in use, and it saved at least 1/32 of the last compressed batch.
    /// Before the first compressed batch, a method counts as saving.
    pub fn saves(&self) -> bool {
        self.method != Method::None && self.skip_next == 1
    }

    /// Returns true if the strongest allowed method is in use: at the start, and after frames had to wait for the
    /// link. Returns false if no compression is allowed.
    pub(crate) fn is_strongest(&self) -> bool {
        self.method != Method::None && self.stronger().is_none()
    }

    fn stronger(&self) -> Option<Method> {
        let all = [Method::Lz4, Method::Zstd].into_iter();
        all.filter(|&method| method > self.method)
            .find(|&method| self.allowed.has(method))
    }

    fn weaker(&self) -> Option<Method> {
        let all = [Method::Lz4, Method::None].into_iter();
        all.filter(|&method| method < self.method)
            .find(|&method| self.allowed.has(method))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH: usize = 256 << 10;

    /// Compression steps down while the link is idle and steps up again when it is busy.
    #[test]
    fn compression_follows_the_load_of_the_link() {
        let mut effort = Effort::new(Methods::ALL);
        let mut take = |busy, batches: usize| {
            let batches = (0..batches).map(|_| effort.choose(busy, BATCH));
            batches.last()
        };
        assert_eq!(take(false, 7), Some(Method::Zstd));
        assert_eq!(take(false, 1), Some(Method::Lz4));
        assert_eq!(take(false, 8), Some(Method::None));
        assert_eq!(take(false, 100), Some(Method::None));
        assert_eq!(take(true, 2), Some(Method::Lz4));
        assert_eq!(take(true, 2), Some(Method::Zstd));
        assert_eq!(take(true, 100), Some(Method::Zstd));
    }

    /// An idle link makes the method weaker. Without an allowed method, `is_strongest` returns false.
    #[test]
    fn the_strongest_method_is_an_allowed_one() {
        let lz4 = Methods::NONE.with(Method::Lz4);
        let strongest = |methods, busy: bool| {
            let mut effort = Effort::new(methods);
            (0..30).for_each(|_| _ = effort.choose(busy, BATCH));
            effort.is_strongest()
        };
        assert!(strongest(Methods::ALL, true) && strongest(lz4, true));
        assert!(!strongest(Methods::ALL, false) && !strongest(lz4, false));
        assert!(!strongest(Methods::NONE, true));
        let mut effort = Effort::new(Methods::ALL);
        (0..8).for_each(|_| _ = effort.choose(false, BATCH));
        assert!(!effort.is_strongest());
    }

    /// The method becomes weaker after a number of bytes, not after a number of batches.
    #[test]
    fn short_batches_do_not_count_as_long_ones() {
        let mut effort = Effort::new(Methods::ALL);
        let last = (0..2047).map(|_| effort.choose(false, 1 << 10)).last();
        assert_eq!(last, Some(Method::Zstd));
        assert_eq!(effort.choose(false, 1 << 10), Method::Lz4);
    }

    /// Methods that are not allowed are skipped.
    #[test]
    fn methods_that_are_not_allowed_are_skipped() {
        let mut effort = Effort::new(Methods::NONE.with(Method::Zstd));
        assert_eq!(effort.choose(true, BATCH), Method::Zstd);
        let idle: Vec<_> = (0..8).map(|_| effort.choose(false, BATCH)).collect();
        assert_eq!(idle.last(), Some(&Method::None));
        assert_eq!(Effort::new(Methods::NONE).choose(true, BATCH), Method::None);
    }

    /// If bytes are incompressible, compression is tried more and more rarely, but at least once in 33 batches.
    #[test]
    fn incompressible_bytes_are_tried_rarely() {
        let mut effort = Effort::new(Methods::ALL);
        let mut tries = 0;
        for _ in 0..330 {
            if effort.choose(true, BATCH) != Method::None {
                tries += 1;
                effort.learn(1000, 1000);
            }
        }
        // Between the first six tries, 1 + 2 + 4 + 8 + 16 = 31 batches are uncompressed. Then one batch in 33 is tried.
        assert_eq!(tries, 6 + (330 - 6 - 31) / 33);
        while effort.choose(true, BATCH) == Method::None {}
        assert!(!effort.saves());
        effort.learn(1000, 500);
        assert!(effort.saves());
        assert_eq!(effort.choose(true, BATCH), Method::Zstd);
    }

    #[test]
    fn sets_of_methods_keep_common_methods() {
        let ours = Methods::NONE.with(Method::Lz4);
        assert_eq!(Methods::from_bits(0xff).and(ours), ours);
        assert!(Methods::from_bits(0).has(Method::None));
        for code in 0..=255 {
            assert!(Method::from_code(code).is_none_or(|method| method.code() == code));
        }
    }
}
