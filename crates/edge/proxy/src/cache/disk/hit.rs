//! Responses that a lookup found on disk.

use std::num::NonZeroU64;
use std::sync::Arc;

use bytes::Bytes;
use edgeward_purge::Stamp;
use edgeward_semantics::StoredPolicy;
use edgeward_store::disk::DiskObject;
use http::StatusCode;

use super::head;
use crate::cache::key::CacheKey;
use crate::cache::stored::DiskPlan;
use crate::cache::stored::{
    Stored, StoredBody, StoredKind, StoredResponse, charge_bytes, has_length,
};
use crate::config::watch::RequestedObject;

/// A response on disk whose head was read. `policy` has its freshness (RFC 9111).
pub(crate) struct DiskHit {
    pub(crate) object: DiskObject,
    pub(crate) status: StatusCode,
    pub(crate) policy: StoredPolicy,
    /// The newest purge that does not cover the response.
    pub(crate) stamp: Stamp,
    /// `name: value\r\n` for each header field except `Content-Length`.
    pub(crate) fields: Bytes,
    /// See [`StoredResponse::generation`].
    pub(crate) generation: Option<NonZeroU64>,
}

impl DiskHit {
    /// Returns the length of the body.
    pub(crate) fn length(&self) -> u64 {
        self.object.length()
    }

    /// Returns the value of `Content-Length`, if the status allows this field.
    pub(crate) fn content_length(&self) -> Option<u64> {
        has_length(self.status).then(|| self.length())
    }

    /// Returns the response in the form of the memory tier. The body stays on disk.
    pub(crate) fn stored(&self, key: &CacheKey) -> Arc<Stored> {
        let response = StoredResponse {
            policy: self.policy,
            status: self.status,
            head: head::block(self.status, &self.fields, self.length()),
            body: StoredBody::Disk(self.object.clone()),
            generation: self.generation,
            disk_plan: DiskPlan::Decide,
        };
        Stored::new(&key.bytes, StoredKind::Response(response), self.stamp)
    }

    /// Returns the response with its body, for the memory tier.
    pub(crate) fn stored_in_memory(&self, key: &[u8], body: Bytes) -> Arc<Stored> {
        let response = StoredResponse {
            policy: self.policy,
            status: self.status,
            head: head::block(self.status, &self.fields, self.length()),
            body: StoredBody::Memory(body),
            generation: self.generation,
            disk_plan: DiskPlan::Decide,
        };
        Stored::new(key, StoredKind::Response(response), self.stamp)
    }

    /// Returns the number of bytes that the memory tier would charge for the response and its body, under a key of this
    /// length.
    pub(crate) fn charge_bytes(&self, key_bytes: usize) -> u64 {
        let head_bytes = head::block_bytes(self.status, &self.fields, self.length());
        charge_bytes(key_bytes, head_bytes, self.length())
    }

    /// Returns the object of the response for the watcher.
    pub(crate) fn seen_object(&self, key: &CacheKey) -> RequestedObject {
        let charge_bytes = self.charge_bytes(key.bytes.len());
        RequestedObject::new(key.hash, charge_bytes, Some(self.length()), &self.policy)
    }
}
