//! Id filters: a compact file that answers whether an id certainly does not exist.
//!
//! If most lookups of a service end in 404, clients can ask a filter first, before they send a request. The answer
//! "absent" is certain. The answer "maybe" is wrong for a known share of the absent ids. A filter of a million
//! ids takes about one megabyte.
//!
//! - [`StaticBuilder`] gathers ids and builds a filter close to the smallest possible size. [`UpdatableFilter`]
//!   is larger and accepts ids at any time. Both take a false-positive [`Rate`].
//! - [`Filter`] opens a filter file over borrowed or mapped bytes and answers lookups.
//!   `docs/reference/filter-format.md` describes the file.
//! - [`IdHasher`] defines what an id is: one canonical form for text, integers and UUIDs.
//! - [`guava`] writes and reads the format of Guava's `BloomFilter`, for clients on the JVM.
//! - [`delta`] and [`manifest`] are the documents with which a publisher distributes new ids between two builds.
//!   [`journal`] is the publisher's list of these ids. [`complete`] computes up to which time the published ids are
//!   complete. [`client`] decides how long a client may rely on its filter.
//!
//! This crate does no I/O and reads no clock: bytes and times are arguments.
#![deny(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
mod bloom;
mod build;
pub mod client;
pub mod complete;
pub mod delta;
mod digest;
mod filter;
mod format;
mod fuse;
pub mod guava;
mod id;
pub mod journal;
mod line;
pub mod manifest;
mod rate;
mod signed;
mod updatable;

pub use build::{
    Assembly, BuildError, BuildWorkspace, FilterParams, Plan, ShardPart, ShardWork, StaticBuilder,
};
pub use digest::{Digest, HexError, from_hex, from_hex_any, to_hex};
pub use filter::{Construction, Filter, FilterInfo, bytes_limit};
pub use format::OpenError;
pub use id::{IdError, IdForm, IdHash, IdHasher, IdText};
pub use line::{LineError, id_in_line};
pub use rate::{Rate, RateError};
pub use signed::{LINE_BYTES_MAX, PublicKey, SignedError, Signer, Trust};
pub use updatable::{Full, UpdatableFilter};
