//! Memory of decoded request heads.
//!
//! HPACK lets a client repeat a field of 4 KiB in one byte, so the heads of requests under way are charged as decoded,
//! per connection and in total. A request without room for its head is refused.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, Uri};

use super::conn::ConnState;

/// The bytes that the heads of all requests under way may take.
#[derive(Debug)]
pub(crate) struct HeadBudget {
    used: AtomicU64,
    bytes_max: u64,
}

impl HeadBudget {
    pub(crate) fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicU64::new(0),
            bytes_max,
        })
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Charges a head to its connection and to the total, until the returned value is dropped. `None` if one of the two
    /// has no room.
    pub(crate) fn charge(
        self: &Arc<Self>,
        conn: &Rc<ConnState>,
        conn_bytes_max: u64,
        bytes: u64,
    ) -> Option<HeadCharge> {
        if conn.head_bytes().saturating_add(bytes) > conn_bytes_max {
            return None;
        }
        let added = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.bytes_max);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, added)
            .ok()?;
        conn.set_head_bytes(conn.head_bytes() + bytes);
        Some(HeadCharge {
            budget: Arc::clone(self),
            conn: Rc::clone(conn),
            bytes,
        })
    }
}

/// One charged head.
#[derive(Debug)]
pub(crate) struct HeadCharge {
    budget: Arc<HeadBudget>,
    conn: Rc<ConnState>,
    bytes: u64,
}

impl Drop for HeadCharge {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.conn
            .set_head_bytes(self.conn.head_bytes() - self.bytes);
    }
}

/// The size of a decoded head: names, values and the entries that hold them.
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

/// An entry of `http::HeaderMap` takes 104 bytes and a place in the index, and the map grows by doubling.
const FIELD_BYTES: usize = 128;
