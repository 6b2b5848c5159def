//! A fresh response on disk, as a request for all of it needs it.

use std::sync::Arc;

use bytes::Bytes;
use edgeward_semantics::StoredPolicy;
use edgeward_store::disk::DiskObject;
use http::StatusCode;

use super::disk::head;
use super::key::CacheKey;
use super::stored::{Stored, StoredBody, StoredKind, StoredResponse, charge_bytes, has_length};
use super::tiers::WorkerCache;

/// A fresh response on disk.
pub(crate) struct DiskHit {
    pub(crate) object: DiskObject,
    pub(crate) status: StatusCode,
    pub(crate) policy: StoredPolicy,
    /// `name: value\r\n` for each field but `Content-Length`.
    pub(crate) fields: Bytes,
}

impl DiskHit {
    /// Bytes of the body.
    pub(crate) fn length(&self) -> u64 {
        self.object.length()
    }

    /// What `Content-Length` says, where the status has one.
    pub(crate) fn content_length(&self) -> Option<u64> {
        has_length(self.status).then(|| self.length())
    }

    /// Nothing of the body was asked for.
    pub(crate) fn pass_by(&self, cache: &WorkerCache, key: &CacheKey) {
        if let Some(disk) = &cache.disk {
            disk.hit(key.hash, self.length());
        }
        cache.record(key.hash, self.charge_bytes(key), false);
    }

    /// The response as memory would have it, but for its body.
    pub(crate) fn stored(&self, key: &CacheKey) -> Arc<Stored> {
        let response = StoredResponse {
            policy: self.policy,
            status: self.status,
            head: head::block(self.status, &self.fields, self.length()),
            body: StoredBody::Disk(self.object.clone()),
        };
        Stored::new(&key.bytes, StoredKind::Response(response))
    }

    /// What memory would charge for it.
    pub(crate) fn charge_bytes(&self, key: &CacheKey) -> u64 {
        let head_bytes = head::block_bytes(self.status, &self.fields, self.length());
        charge_bytes(key.bytes.len(), head_bytes, self.length())
    }
}
