//! The key of a stored response (RFC 9111 §2 and §4.1).
//!
//! Each target has a key of its own, `http://host/path?query`. Rules of a site may add the class of the request,
//! `http://host/path?query#:class`, for example the kind of device. If a response of the target's path had `No-Vary-Search`,
//! a marker under `http://host/path#` holds this rule. The response is stored under the rule's key,
//! `http://host/path?canonical-query#generation`, which is the same key for all targets that the rule calls equivalent.
//! A target contains no `#`, so none of these keys equals another.
//!
//! A lookup reads the target's own key first, so a rule costs nothing unless this key is absent.

use std::num::NonZeroU64;
use std::sync::Arc;

use edgeward_semantics::content_coding::Coding;
use edgeward_semantics::dictionary::DictionaryHash;
use edgeward_semantics::{NoVarySearch, VaryFields};
use edgeward_types::KeyHash;
use edgeward_types::xxh3::xxh3_64_with_seed;
use http::HeaderMap;

use super::key_parts::{key_under_rule, path_key, primary_of};
use super::key_parts::{write_delta_key, write_encoding_key};
use super::slices::write_slice_key;
use super::stored::{Stored, Variants};

/// Returns the hash of a key's bytes. Both tiers find the response by this hash.
pub(crate) fn hash_key(key: &[u8], seed: u64) -> KeyHash {
    KeyHash(xxh3_64_with_seed(key, seed))
}

/// The state of a key with regard to the rule of its path.
#[derive(Clone, Debug)]
pub(crate) enum PathRule {
    /// The marker of the path was not read. The key begins with the target's own key.
    Unread,
    /// The key is the marker's. Contains the target's own key.
    Reading(Box<[u8]>),
    /// The path has no rule. The key begins with the target's own key.
    Absent,
    /// The key was made by a rule that does not apply any more. The key begins with the target's own key.
    Left,
    /// The key begins with the key under the rule of `marker`. Contains the target's own key.
    Applied {
        marker: Arc<Stored>,
        target: Box<[u8]>,
    },
}

/// The keys of variants, one of which a lookup reads in place of the request's own variant.
#[derive(Clone, Debug)]
pub(crate) struct OtherVariants {
    /// The key of the request's own variant.
    own: Vec<u8>,
    /// The keys that were not read yet, the next one last.
    unread: Vec<Vec<u8>>,
}

/// The primary key of a target, followed by the secondary key of one variant if the target is known to vary.
#[derive(Clone, Debug)]
pub(crate) struct CacheKey {
    pub(crate) hash: KeyHash,
    pub(crate) bytes: Vec<u8>,
    /// The marker with the request fields by which the target varies. `None` if the key is only a primary key.
    pub(crate) marker: Option<Arc<Stored>>,
    pub(crate) path_rule: PathRule,
    /// The variants of other field values that may answer the request, if its own variant is absent.
    pub(crate) other_variants: Option<Box<OtherVariants>>,
    primary_len: usize,
    primary_hash: KeyHash,
}

impl CacheKey {
    /// Returns the key of a target from the bytes of its primary key.
    pub(crate) fn primary_of(bytes: Vec<u8>, seed: u64) -> Self {
        let hash = hash_key(&bytes, seed);
        Self {
            hash,
            primary_len: bytes.len(),
            primary_hash: hash,
            marker: None,
            path_rule: PathRule::Unread,
            other_variants: None,
            bytes,
        }
    }

    /// Returns the key of a slice. `entry` is the key of its entry: a primary key or the key of a variant.
    pub(crate) fn of_slice(entry: &[u8], generation: u64, index: u64, seed: u64) -> Self {
        let mut bytes = entry.to_vec();
        write_slice_key(generation, index, &mut bytes);
        Self::below(entry, bytes, seed)
    }

    /// Returns the key of the encoding of a response. `plain` is the key of the response without a coding.
    pub(crate) fn of_encoding(
        plain: &[u8],
        generation: NonZeroU64,
        coding: Coding,
        seed: u64,
    ) -> Self {
        let mut bytes = plain.to_vec();
        write_encoding_key(generation, coding, &mut bytes);
        Self::below(plain, bytes, seed)
    }

    /// Returns the key of the delta of a response by a dictionary.
    pub(crate) fn of_delta(
        plain: &[u8],
        generation: NonZeroU64,
        coding: Coding,
        dictionary: &DictionaryHash,
        seed: u64,
    ) -> Self {
        let mut bytes = plain.to_vec();
        write_delta_key(generation, coding, dictionary, &mut bytes);
        Self::below(plain, bytes, seed)
    }

    /// Calls `lookup` with the hash and the bytes of the key of an encoding of the response that has this key. Needs no
    /// allocation, because the bytes are in the buffer of this key meanwhile.
    pub(crate) fn with_encoding<T>(
        &mut self,
        generation: NonZeroU64,
        coding: Coding,
        seed: u64,
        lookup: impl FnOnce(KeyHash, &[u8]) -> T,
    ) -> T {
        let plain_bytes = self.bytes.len();
        write_encoding_key(generation, coding, &mut self.bytes);
        let result = lookup(hash_key(&self.bytes, seed), &self.bytes);
        self.bytes.truncate(plain_bytes);
        result
    }

    /// Returns the key of an object that lookups find through the entry with the key `entry`.
    fn below(entry: &[u8], bytes: Vec<u8>, seed: u64) -> Self {
        let primary = primary_of(entry);
        Self {
            hash: hash_key(&bytes, seed),
            primary_hash: hash_key(primary, seed),
            marker: None,
            path_rule: PathRule::Absent, // the entry, through which lookups find the slice, was found by the rule
            other_variants: None,
            primary_len: primary.len(),
            bytes,
        }
    }

    /// Turns this key into the key of the variant that `request` selects: appends the secondary key. `variants` and
    /// `fields` are the contents of `marker`; `request` has the header fields that the origin would get.
    pub(crate) fn select(
        &mut self,
        marker: &Arc<Stored>,
        variants: &Variants,
        fields: &VaryFields,
        request: &HeaderMap,
        seed: u64,
    ) {
        variants.write_key(fields, request, &mut self.bytes);
        self.hash = hash_key(&self.bytes, seed);
        self.marker = Some(Arc::clone(marker));
    }

    /// Begins to read other variants: `unread` has their keys, the first one last.
    pub(crate) fn begin_other_variants(&mut self, unread: Vec<Vec<u8>>) {
        let own = self.bytes.clone();
        self.other_variants = Some(Box::new(OtherVariants { own, unread }));
    }

    /// Turns this key into that of the next other variant, and returns true. If no one is left, turns it into the key
    /// of the request's own variant.
    pub(crate) fn read_other_variant(&mut self, seed: u64) -> bool {
        let Some(others) = &mut self.other_variants else {
            return false;
        };
        let next = others.unread.pop();
        let is_other = next.is_some();
        self.bytes = next.unwrap_or_else(|| others.own.clone());
        self.hash = hash_key(&self.bytes, seed);
        is_other
    }

    /// Returns the key of the request's own variant if this is the key of another variant.
    pub(crate) fn own_variant(&self) -> Option<&[u8]> {
        let others = self.other_variants.as_ref()?;
        (others.own != self.bytes).then_some(&others.own)
    }

    /// Turns the target's own key into the key of the marker that holds the rule of the path.
    pub(crate) fn read_path_rule(&mut self, seed: u64) {
        let target = std::mem::take(&mut self.bytes);
        self.set_primary(path_key(&target), seed);
        self.path_rule = PathRule::Reading(target.into());
    }

    /// Turns the marker's key into the target's own key, because the path has no rule.
    pub(crate) fn end_without_rule(&mut self, seed: u64) {
        if let PathRule::Reading(target) = std::mem::replace(&mut self.path_rule, PathRule::Absent)
        {
            self.set_primary(target.into(), seed);
        }
    }

    /// Turns this key into the key under the rule of `marker`.
    pub(crate) fn apply_path_rule(
        &mut self,
        marker: &Arc<Stored>,
        rule: &NoVarySearch,
        generation: u64,
        seed: u64,
    ) {
        let target: Box<[u8]> = self.target().into();
        self.set_primary(key_under_rule(&target, rule, generation), seed);
        let marker = Arc::clone(marker);
        self.path_rule = PathRule::Applied { marker, target };
    }

    /// Turns the key under a rule into the target's own key, because the response has no rule.
    pub(crate) fn leave_path_rule(&mut self, seed: u64) {
        let target = self.target().to_vec();
        self.set_primary(target, seed);
        self.path_rule = PathRule::Left;
    }

    fn set_primary(&mut self, bytes: Vec<u8>, seed: u64) {
        self.hash = hash_key(&bytes, seed);
        self.primary_hash = self.hash;
        self.primary_len = bytes.len();
        self.marker = None;
        self.bytes = bytes;
    }

    /// Returns the hash of [`target`](Self::target).
    pub(crate) fn target_hash(&self, seed: u64) -> KeyHash {
        match &self.path_rule {
            PathRule::Unread | PathRule::Absent | PathRule::Left => self.primary_hash,
            PathRule::Reading(target) | PathRule::Applied { target, .. } => hash_key(target, seed),
        }
    }

    /// Returns the target's own key, without a rule and without the fields of a variant.
    pub(crate) fn target(&self) -> &[u8] {
        match &self.path_rule {
            PathRule::Unread | PathRule::Absent | PathRule::Left => self.primary(),
            PathRule::Reading(target) | PathRule::Applied { target, .. } => target,
        }
    }

    /// Returns the rule under which this key was made.
    pub(crate) fn rule(&self) -> Option<&NoVarySearch> {
        match &self.path_rule {
            PathRule::Applied { marker, .. } => marker.rule().map(|(rule, _)| rule),
            _ => None,
        }
    }

    pub(crate) fn primary(&self) -> &[u8] {
        &self.bytes[..self.primary_len]
    }

    pub(crate) fn primary_hash(&self) -> KeyHash {
        self.primary_hash
    }
}
