//! Limits the memory of the decoded heads of HTTP/2 and HTTP/3 requests.
//!
//! HPACK lets a client repeat a field of 4 KiB in one byte. Therefore the decoded sizes of the heads of requests
//! under way are counted, per connection and in total. A request that would exceed a limit is refused.

use std::rc::Rc;
use std::sync::Arc;

use http::{HeaderMap, Uri};

use super::conn::ConnState;
use crate::rt::budget::{MemoryBudget, MemoryShare};

/// A head that is charged to its connection and to the budget of all heads until it is dropped.
#[derive(Debug)]
pub(crate) struct HeadCharge {
    conn: Rc<ConnState>,
    bytes: u64,
    _share: MemoryShare,
}

impl HeadCharge {
    /// Charges a head of `bytes`. `None` if this would exceed `conn_bytes_max` or the budget.
    pub(crate) fn new(
        budget: &Arc<MemoryBudget>,
        conn: &Rc<ConnState>,
        conn_bytes_max: u64,
        bytes: u64,
    ) -> Option<Self> {
        let total = conn.head_bytes.get().saturating_add(bytes);
        if total > conn_bytes_max {
            return None;
        }
        let share = budget.reserve(bytes)?;
        conn.head_bytes.set(total);
        Some(Self {
            conn: Rc::clone(conn),
            bytes,
            _share: share,
        })
    }
}

impl Drop for HeadCharge {
    fn drop(&mut self) {
        let head_bytes = &self.conn.head_bytes;
        head_bytes.set(head_bytes.get() - self.bytes);
    }
}

/// Returns the size of a decoded head: target and authority, and names, values and map entries of the fields.
pub(crate) fn decoded_bytes(uri: &Uri, headers: &HeaderMap) -> u64 {
    let target = uri
        .path_and_query()
        .map_or(0, |target| target.as_str().len());
    let authority = uri
        .authority()
        .map_or(0, |authority| authority.as_str().len());
    let fields: usize = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + FIELD_BYTES)
        .sum();
    (target + authority + fields) as u64
}

/// The estimated bytes of a map entry: `http::HeaderMap` takes 104 bytes and an index slot, and grows by doubling.
const FIELD_BYTES: usize = 128;
