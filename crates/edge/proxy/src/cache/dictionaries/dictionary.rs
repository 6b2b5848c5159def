//! A dictionary: the body, its hash and terms, and the response that purges find.

use std::num::NonZeroU64;
use std::sync::Arc;

use bytes::Bytes;
use edgeward_semantics::dictionary::{DictionaryHash, DictionaryTerms};

use crate::cache::key_parts::primary_of;
use crate::cache::stored::{Stored, StoredBody, StoredKind, StoredResponse};

/// A dictionary.
#[derive(Debug)]
pub(crate) struct Dictionary {
    pub(crate) hash: DictionaryHash,
    /// Scheme, host and port of its URL.
    pub(crate) origin: Box<str>,
    pub(crate) terms: DictionaryTerms,
    pub(crate) body: Bytes,
    /// Its response without the body, by which purges find it.
    pub(crate) response: Arc<Stored>,
    pub(super) generation: NonZeroU64,
}

/// The origin of a dictionary, and its hash. The same bytes at two origins are two dictionaries.
pub(super) type Id = (Box<str>, DictionaryHash);

impl Dictionary {
    /// `stored` is the response whose body is the dictionary.
    pub(crate) fn new(
        stored: &Stored,
        generation: NonZeroU64,
        origin: Box<str>,
        terms: DictionaryTerms,
        hash: DictionaryHash,
        body: Bytes,
    ) -> Self {
        let response = StoredResponse {
            body: StoredBody::Memory(Bytes::new()),
            ..stored.response().clone()
        };
        Self {
            hash,
            origin,
            terms,
            body,
            response: stored.renewed(StoredKind::Response(response)),
            generation,
        }
    }

    /// The key of its response without the key of a variant.
    pub(crate) fn primary(&self) -> &[u8] {
        primary_of(self.response.key())
    }

    pub(super) fn id(&self) -> Id {
        (self.origin.clone(), self.hash)
    }

    pub(super) fn charge(&self) -> u64 {
        self.body.len() as u64 + self.response.charge_bytes() + ENTRY_BYTES
    }
}

/// The memory of a dictionary beside its body and its response: entries of four tables, and its terms.
pub(super) const ENTRY_BYTES: u64 = 2048;
