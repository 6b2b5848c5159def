//! Maps a key's hash to the location of its record, in less than eight bytes of RAM per object.
//!
//! A bucket is a cache line with nine slots. A slot takes seven bytes: a location, a tag and a hit counter of
//! two bits. A key may be in either of two buckets (cuckoo hashing), so more than nine of ten slots can be in
//! use. A lookup computes the addresses of both buckets at once and reads two cache lines. The modules:
//!
//! - `geometry`: maps a hash to two buckets and a tag, and defines how the table, a stack of layers of buckets, grows;
//! - `bucket`: the cache line, read without a lock;
//! - `table`: the buckets, allocated when they are first used;
//! - `config`: the settings; `locations`: the index itself;
//! - `insertion`: stores entries, and moves or displaces other entries if necessary; one thread at a time writes, with
//!   the state in `writer`;
//! - `checkpoint`: the serialised index that survives a restart.
//!
//! **The index is a hint.** It has a tag instead of the key, so it may return a record that belongs to another
//! key ([`Index::false_match_rate`] is the probability). The reader of the record compares the full key, and
//! counts reads of wrong records ([`Index::note_false_match`]). A lookup returns at most one record: entries
//! with the same tag and the same two buckets are the same entry for the index, and the later replaces the
//! earlier. A lookup therefore costs at most one read of the device.
//!
//! **The index grows with the objects**, one cache line at a time, up to its configured size. The operator
//! therefore need not estimate the mean object size, and no insertion waits long for growth. When the index has
//! its largest size, an insertion displaces one of the entries in its two buckets: the entry whose record the
//! circular log will overwrite next. Displaced entries are counted. Their records stay on the device but are no
//! longer found.
//!
//! ```
//! use edgeward_store::disk::{Index, IndexConfig, InsertOutcome, Location};
//! use edgeward_types::{ByteSize, KeyHash};
//!
//! let index = Index::new(IndexConfig::for_device(ByteSize::gib(1)));
//! let (key, at) = (KeyHash(7), Location::from_unit(8));
//! assert_eq!(index.insert(key, at), InsertOutcome::New);
//! assert_eq!(index.find(key), Some(at));
//! index.touch(key, at);
//! assert_eq!(index.hits(key, at), Some(1));
//! ```

mod bucket;
mod checkpoint;
mod config;
mod geometry;
mod insertion;
mod locations;
mod table;
#[cfg(test)]
mod tests;
mod writer;

pub use checkpoint::{CheckpointPart, LoadError, SaveSummary};
pub use config::IndexConfig;
pub use locations::{Index, IndexCounts};
pub use writer::InsertOutcome;
