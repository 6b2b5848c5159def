//! The slow part of accepting a snapshot, which needs no access to the client. For a snapshot of 100 MB this part takes
//! several tenths of a second.

use crate::digest::Digest;
use crate::filter::Filter;
use crate::format::OpenError;

/// A snapshot that was hashed and opened, usually on a thread that serves no requests.
#[derive(Clone, Debug)]
pub struct ReceivedSnapshot<B> {
    pub(super) digest: Digest,
    pub(super) filter: Result<Filter<B>, OpenError>,
}

impl<B: AsRef<[u8]>> ReceivedSnapshot<B> {
    /// Computes the digest and opens the filter. Each of these two steps reads every byte.
    pub fn open(bytes: B) -> Self {
        Self {
            digest: Digest::compute(bytes.as_ref()),
            filter: Filter::open(bytes),
        }
    }
}
