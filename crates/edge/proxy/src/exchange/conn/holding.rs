//! The memory that a connection makes the edge hold.
//!
//! Everything that a client can make the edge keep without a byte budget of its own is charged here: the connection's
//! tasks and codecs, incomplete heads, the state of streams, and the futures of requests under way. The sum of all
//! connections is compared with `limits.connections_bytes_max` (see `path/relief.rs`). The constants are measured, see
//! `docs/explanation/memory.md`.

use std::rc::Rc;

use super::conn_state::ConnState;

impl ConnState {
    /// Charges `bytes` to this connection until the returned value is dropped.
    pub(crate) fn holding(self: &Rc<Self>, bytes: u64) -> Holding {
        Holding::new(self, bytes)
    }

    /// Returns the bytes of the connection's state.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.memory.held_bytes.get()
    }

    /// Returns the bytes of the decoded heads of HTTP/2 and HTTP/3 requests under way.
    pub(crate) fn head_bytes(&self) -> u64 {
        self.head_bytes.get()
    }

    /// Returns true if the held bytes have grown since the last call.
    pub(crate) fn take_growth(&self) -> bool {
        self.memory.has_grown.take()
    }

    /// Records bytes of content that a request or a tunnel has read.
    pub(crate) fn record_content_read(&self, bytes: u64) {
        self.memory
            .content_read
            .set(self.memory.content_read.get() + bytes);
    }

    pub(crate) fn content_read(&self) -> u64 {
        self.memory.content_read.get()
    }
}

/// A part of the memory that a connection holds, charged until dropped.
#[derive(Debug)]
pub(crate) struct Holding {
    conn: Rc<ConnState>,
    bytes: u64,
}

impl Holding {
    pub(super) fn new(conn: &Rc<ConnState>, bytes: u64) -> Self {
        let mut holding = Self {
            conn: Rc::clone(conn),
            bytes: 0,
        };
        holding.set(bytes);
        holding
    }

    /// Changes the charge.
    pub(crate) fn set(&mut self, bytes: u64) {
        let held = &self.conn.memory.held_bytes;
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            held.set(held.get() + more);
            self.conn.memory.budget.add(more);
            self.conn.memory.has_grown.set(true);
        } else if bytes < self.bytes {
            let less = self.bytes - bytes;
            held.set(held.get() - less);
            self.conn.memory.budget.subtract(less);
        }
        self.bytes = bytes;
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.set(0);
    }
}
