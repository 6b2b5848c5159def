//! What is worth writing to disk: a verdict on each request that no tier could answer.
//!
//! Most objects a cache sees are never asked for again, and a disk that writes them all wears and stalls for
//! nothing. So the rules here count requests. [`NthHit`](AnyDiskAdmission::NthHit) writes an object at its Nth request
//! within memory, the second by default; [`SizeDensity`](AnyDiskAdmission::SizeDensity) asks more requests of larger
//! objects, by a fixed size or by the [mean](MeanSize) of what is asked for. What they remember of past requests is a [`RequestCounter`], a few bits a key.
//!
//! Everything is asked under shared access: one value serves all workers.
//!
//! Source for the second request: Maggs and Sitaraman, "Algorithmic Nuggets in Content Delivery", CCR 2015, section 4.

mod counter;
mod mean;
mod spec;

use std::io::{self, Read, Write};
use std::num::NonZeroU64;

use edgeward_types::KeyHash;

use crate::Object;
use crate::sketch::{RotatingBloomConfig, RotatingBloomStats, StateError};

pub use counter::RequestCounter;
pub use mean::MeanSize;
pub use spec::{DiskAdmissionSpec, ParseDiskAdmissionError, REQUESTS_MAX};

/// A rule of admission to disk, with what it remembers.
#[derive(Debug)]
pub enum AnyDiskAdmission {
    /// Everything is written.
    Always,
    /// Nothing is.
    Never,
    /// Written at the Nth request within memory.
    NthHit(RequestCounter),
    /// Written once its requests per byte reach one per `bytes_per_request`.
    SizeDensity {
        /// Bytes that one request pays for.
        bytes_per_request: Density,
        /// The requests of objects larger than that.
        counter: RequestCounter,
    },
}

/// Bytes that one request pays for.
#[derive(Debug)]
pub enum Density {
    /// Always the same.
    Fixed(NonZeroU64),
    /// By the mean size of what is asked for.
    Measured(MeanSize),
}

/// What becomes of an object as far as the disk is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskVerdict {
    /// It is written.
    Write,
    /// It passes by.
    Refuse(DiskRefusal),
}

/// Why an object was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DiskRefusal {
    /// Not asked for often enough so far.
    TooFewRequests {
        /// Requests remembered, this one included.
        seen: u32,
        /// Requests it takes.
        needed: u32,
    },
    /// However often it is asked for.
    Never,
    /// It is on disk already.
    AlreadyThere,
    /// Larger than the disk may hold.
    TooLarge,
    /// Nobody asked for it while it was in RAM, so there is nothing new to decide on.
    NotHit,
}

impl AnyDiskAdmission {
    /// A rule that remembers nothing yet. `memory` says how many keys a period and how sure to be; where several
    /// requests are counted, the later ones take half of it again at the most.
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
                        DiskAdmissionSpec::SizeDensity(size) => Density::Fixed(size),
                        _ => Density::Measured(MeanSize::default()),
                    },
                    counter: RequestCounter::new(REQUESTS_MAX - 1, memory),
                }
            }
        }
    }

    /// A request for `object` that no tier could answer: whether it is to be written now that it
    /// comes by. Counts the request; call it once for each.
    #[inline]
    pub fn request(&self, object: &Object) -> DiskVerdict {
        let (counter, needed) = match self {
            Self::Always => return DiskVerdict::Write,
            Self::Never => return DiskVerdict::Refuse(DiskRefusal::Never),
            Self::NthHit(counter) => (counter, counter.most() + 1),
            Self::SizeDensity {
                bytes_per_request,
                counter,
            } => {
                let needed = object
                    .size_bytes
                    .div_ceil(bytes_per_request.now(object).get());
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
            DiskVerdict::Refuse(DiskRefusal::TooFewRequests { seen, needed })
        }
    }

    /// Remembers a request that was answered from disk, so that the object, should it be evicted, comes back at its next
    /// request and not as a stranger.
    pub fn note(&self, key: KeyHash) {
        if let Some(counter) = self.counter() {
            counter.count(key);
        }
    }

    /// Requests of this key remembered. Counts nothing.
    pub fn requests_seen(&self, key: KeyHash) -> u32 {
        self.counter().map_or(0, |counter| counter.seen(key))
    }

    /// How full the filters are and how often they err: the first request's first, then the second's, …
    pub fn filters(&self) -> Vec<RotatingBloomStats> {
        self.counter().map_or_else(Vec::new, RequestCounter::stats)
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        self.filters().iter().map(|stats| stats.memory_bytes).sum()
    }

    /// Saves what is remembered. `tag` names what the keys were hashed with.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn write_to(&self, tag: u64, output: &mut impl Write) -> io::Result<()> {
        if let Self::SizeDensity {
            bytes_per_request: Density::Measured(mean),
            ..
        } = self
        {
            mean.write_to(output)?;
        }
        self.counter()
            .map_or(Ok(()), |counter| counter.write_to(tag, output))
    }

    /// Goes on from what [`write_to`](Self::write_to) saved of a rule of the same configuration.
    ///
    /// # Errors
    /// What is wrong with the state; begin with an empty memory then.
    pub fn read_from(
        spec: DiskAdmissionSpec,
        memory: RotatingBloomConfig,
        tag: u64,
        input: &mut impl Read,
    ) -> Result<Self, StateError> {
        let mut admission = Self::new(spec, memory);
        if let Self::SizeDensity {
            bytes_per_request: Density::Measured(mean),
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

impl Density {
    /// What holds for a request for `object`, which is counted.
    #[inline]
    fn now(&self, object: &Object) -> NonZeroU64 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Measured(mean) => {
                mean.note(object.size_bytes);
                mean.bytes_per_request()
            }
        }
    }
}

/// The memory of requests that suits a disk of this capacity: a period of one key for each
/// [`BYTES_PER_KEY`] of it, at most [`FALSE_SEEN_MAX`] of the first requests taken for later ones.
pub fn memory_for_disk(capacity_bytes: u64) -> RotatingBloomConfig {
    let keys = (capacity_bytes / BYTES_PER_KEY).max(KEYS_MIN);
    let keys = NonZeroU64::new(keys).expect("KEYS_MIN is above zero");
    RotatingBloomConfig::new(keys, FALSE_SEEN_MAX)
}

/// Bytes of disk for which one key a period is remembered.
pub const BYTES_PER_KEY: u64 = 32 << 10;

/// First requests that may be taken for later ones.
pub const FALSE_SEEN_MAX: f64 = 0.01;

/// A memory of fewer keys is no saving: this many take 200 KiB.
const KEYS_MIN: u64 = 1 << 16;

#[cfg(test)]
mod tests;
