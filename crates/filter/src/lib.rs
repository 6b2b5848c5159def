//! Id filters: which ids certainly do not exist, small enough to hand to every client.
//!
//! A service where most lookups end in 404 answers the same question over and over: is there such an
//! id? A filter answers it beforehand. "Absent" is certain, "maybe" is wrong for a stated share of
//! the absent ids, and a million ids fit into a megabyte.
//!
//! - [`StaticBuilder`] gathers ids and makes a filter near the least possible size,
//!   [`UpdatableFilter`] one that ids can be added to. Both are chosen by what is to be done with
//!   them and take a [`Rate`].
//! - [`Filter`] opens what they made, over borrowed or mapped bytes, and answers. The bytes are
//!   described in `docs/reference/filter-format.md`.
//! - [`IdHasher`] says what an id is: one canonical form for text, integers and UUIDs.
//! - [`guava`] writes and reads the form of Guava's `BloomFilter`, for clients on the JVM.
//! - [`delta`], [`manifest`] and [`journal`] are what a publisher hands out between two builds, and
//!   [`client`] decides when an answer may still be relied on.
//!
//! Everything here is a decision: bytes and times come in as arguments.
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
pub mod manifest;
mod rate;
mod signed;
mod updatable;

pub use build::{Assembly, BuildError, Plan, Request, ShardPart, ShardWork, StaticBuilder, Tables};
pub use digest::{Digest, HexError, from_hex, from_hex_any, to_hex};
pub use filter::{Construction, Facts, Filter, bytes_limit};
pub use format::OpenError;
pub use id::{IdError, IdForm, IdHash, IdHasher, IdText};
pub use rate::{Rate, RateError};
pub use signed::{LINE_BYTES_MAX, PublicKey, SignedError, Signer, Trust};
pub use updatable::{Full, UpdatableFilter};
