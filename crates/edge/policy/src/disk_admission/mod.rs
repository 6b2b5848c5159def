//! The disk admission rules. At each request that no tier could answer, a rule decides if the object is written to
//! disk.
//!
//! Most objects are never requested again, and writing them all wears and slows the disk. The rules therefore
//! count requests. [`NthHit`](AnyDiskAdmission::NthHit) writes an object at its Nth remembered request, by
//! default the second. [`SizeDensity`](AnyDiskAdmission::SizeDensity) requires more requests for larger
//! objects. An object needs one request per unit of its size. The unit is a fixed size or half of the [mean
//! size](MeanSize) of requested objects. A [`RequestCounter`] remembers past requests with a few bits per key.
//!
//! All methods need shared access only: one value serves all workers.
//!
//! Source of second-hit admission: Maggs and Sitaraman, "Algorithmic Nuggets in Content Delivery", CCR 2015,
//! section 4.

mod counter;
mod mean;
mod spec;

use std::io::{self, Read, Write};
use std::num::NonZeroU64;

use edgeward_types::KeyHash;

use crate::object::Object;
use crate::sketch::{RotatingBloomConfig, RotatingBloomStats, StateError};

pub use counter::RequestCounter;
pub use mean::MeanSize;
pub use spec::{DiskAdmissionSpec, ParseDiskAdmissionError, REQUESTS_MAX};

/// A disk admission rule with its memory of requests.
#[derive(Debug)]
pub enum AnyDiskAdmission {
    /// Writes every object.
    Always,
    /// Writes no object.
    Never,
    /// Writes an object at its Nth remembered request.
    NthHit(RequestCounter),
    /// Writes an object when it has one request per `bytes_per_request` bytes.
    SizeDensity {
        /// The number of bytes for which one more request is required.
        bytes_per_request: BytesPerRequest,
        /// Counts the requests that no tier could answer for objects larger than `bytes_per_request`, and all requests
        /// that the disk answered.
        counter: RequestCounter,
    },
}

/// The number of bytes for which one more request is required.
#[derive(Debug)]
pub enum BytesPerRequest {
    /// A fixed size.
    Fixed(NonZeroU64),
    /// Half of the mean size of requested objects.
    Measured(MeanSize),
}

/// The decision about one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskVerdict {
    /// The object is written to disk.
    Write,
    /// The object is not written to disk.
    Reject(DiskRejectReason),
}

/// Why an object is not written to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DiskRejectReason {
    /// The object has too few requests so far.
    TooFewRequests {
        /// Remembered requests, including this one.
        seen: u32,
        /// Required requests.
        needed: u32,
    },
    /// The rule never writes an object.
    Never,
    /// The object is already on disk.
    AlreadyOnDisk,
    /// The object is larger than the largest object that is written to disk.
    TooLarge,
    /// The object is evicted from memory without a hit. The rule has already decided about it at its miss.
    NotHit,
}

impl AnyDiskAdmission {
    /// Makes a rule with an empty memory. `memory` configures the false-positive rate and the number of keys in a
    /// period; a key is remembered for about one to two periods. A [`RequestCounter`] has one filter for the first
    /// requests of the keys, one for the second requests, and so on. All filters after the first together take at
    /// most as much memory as the first.
    pub fn new(spec: DiskAdmissionSpec, memory: RotatingBloomConfig) -> Self {
        match spec {
            DiskAdmissionSpec::Always => Self::Always,
            DiskAdmissionSpec::Never => Self::Never,
            DiskAdmissionSpec::SecondHit | DiskAdmissionSpec::NthHit(_) => {
                let past = spec.requests_needed_max() - 1;
                Self::NthHit(RequestCounter::new(past, memory))
            }
            DiskAdmissionSpec::MeasuredDensity | DiskAdmissionSpec::SizeDensity(_) => {
                Self::SizeDensity {
                    bytes_per_request: match spec {
                        DiskAdmissionSpec::SizeDensity(size) => BytesPerRequest::Fixed(size),
                        _ => BytesPerRequest::Measured(MeanSize::default()),
                    },
                    counter: RequestCounter::new(REQUESTS_MAX - 1, memory),
                }
            }
        }
    }

    /// Decides if `object`, which no tier has, is written to disk. Counts the request, so call this once per
    /// request.
    #[inline]
    pub fn request(&self, object: &Object) -> DiskVerdict {
        let (counter, needed) = match self {
            Self::Always => return DiskVerdict::Write,
            Self::Never => return DiskVerdict::Reject(DiskRejectReason::Never),
            Self::NthHit(counter) => (counter, counter.count_max() + 1),
            Self::SizeDensity {
                bytes_per_request,
                counter,
            } => {
                let needed = object
                    .size_bytes
                    .div_ceil(bytes_per_request.for_request(object).get());
                let needed = needed.clamp(1, u64::from(REQUESTS_MAX)) as u32;
                if needed == 1 {
                    return DiskVerdict::Write;
                }
                (counter, needed)
            }
        };
        let seen = counter.count(object.key) + 1;
        if seen >= needed {
            DiskVerdict::Write
        } else {
            DiskVerdict::Reject(DiskRejectReason::TooFewRequests { seen, needed })
        }
    }

    /// Counts a request that the disk answered. If the disk evicts the object later, the object needs fewer requests to
    /// be written again; with second-hit admission it needs one.
    pub fn record(&self, key: KeyHash) {
        if let Some(counter) = self.counter() {
            counter.count(key);
        }
    }

    /// Returns the number of remembered requests of this key without counting one.
    pub fn requests_seen(&self, key: KeyHash) -> u32 {
        self.counter().map_or(0, |counter| counter.remembered(key))
    }

    /// Returns how full each filter is, and its error rates. The first filter is for first requests, the second for
    /// second requests, and so on.
    pub fn filters(&self) -> Vec<RotatingBloomStats> {
        self.counter().map_or_else(Vec::new, RequestCounter::stats)
    }

    /// Bytes of memory of all filters.
    pub fn memory_bytes(&self) -> u64 {
        self.filters().iter().map(|stats| stats.memory_bytes).sum()
    }

    /// Saves the memory of requests. `tag` identifies the hash function of the keys.
    ///
    /// # Errors
    /// Returns the errors of `output`.
    pub fn write_to(&self, tag: u64, output: &mut impl Write) -> io::Result<()> {
        if let Self::SizeDensity {
            bytes_per_request: BytesPerRequest::Measured(mean),
            ..
        } = self
        {
            mean.write_to(output)?;
        }
        self.counter()
            .map_or(Ok(()), |counter| counter.write_to(tag, output))
    }

    /// Restores a rule from the state that [`write_to`](Self::write_to) saved with the same configuration.
    ///
    /// # Errors
    /// Returns the problem of the state. The caller then starts with an empty memory.
    pub fn read_from(
        spec: DiskAdmissionSpec,
        memory: RotatingBloomConfig,
        tag: u64,
        input: &mut impl Read,
    ) -> Result<Self, StateError> {
        let mut admission = Self::new(spec, memory);
        if let Self::SizeDensity {
            bytes_per_request: BytesPerRequest::Measured(mean),
            ..
        } = &mut admission
        {
            *mean = MeanSize::read_from(input)?;
        }
        if let Self::NthHit(counter) | Self::SizeDensity { counter, .. } = &mut admission {
            counter.resume_from(tag, input)?;
        }
        Ok(admission)
    }

    fn counter(&self) -> Option<&RequestCounter> {
        match self {
            Self::Always | Self::Never => None,
            Self::NthHit(counter) | Self::SizeDensity { counter, .. } => Some(counter),
        }
    }
}

impl BytesPerRequest {
    /// Returns the number of bytes for which one more request is required. Adds the object to the mean.
    #[inline]
    fn for_request(&self, object: &Object) -> NonZeroU64 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Measured(mean) => {
                mean.record(object.size_bytes);
                mean.bytes_per_request()
            }
        }
    }
}

/// Returns a memory of requests that suits a disk of this capacity: one key per [`BYTES_PER_KEY`], with at most
/// [`FALSE_POSITIVE_RATE_MAX`] of the first requests taken for repeated ones.
pub fn memory_for_disk(capacity_bytes: u64) -> RotatingBloomConfig {
    let keys = (capacity_bytes / BYTES_PER_KEY).max(KEYS_MIN);
    let keys = NonZeroU64::new(keys).expect("KEYS_MIN is above zero");
    RotatingBloomConfig::new(keys, FALSE_POSITIVE_RATE_MAX)
}

/// Bytes of disk for each distinct key that is expected in a period.
pub const BYTES_PER_KEY: u64 = 32 << 10;

/// The maximum share of first requests that are taken for repeated ones.
pub const FALSE_POSITIVE_RATE_MAX: f64 = 0.01;

/// The minimum number of keys. Fewer keys would save little memory: this many take about 200 KiB.
const KEYS_MIN: u64 = 1 << 16;

#[cfg(test)]
mod tests;
