//! The bytes that a client has sent and that no request has taken, and the charge for them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::ReadBuf;

use super::{FastPath, Mode};
use crate::client::stream::ClientStream;

impl FastPath {
    /// Reads from the client into the inbox.
    pub(super) fn poll_inbox<S: ClientStream>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read_ended {
            return Poll::Ready(Ok(()));
        }
        if self.inbox.is_empty() && self.held.bytes() > 0 && self.mode == Mode::Boundary {
            // A large head was here.
            self.inbox = BytesMut::new();
            self.charge(0);
        }
        // Bytes are read to the stack and copied, so that an idle connection has no buffer.
        let mut space = [std::mem::MaybeUninit::uninit(); READ_BYTES];
        let mut space = ReadBuf::uninit(&mut space);
        ready!(Pin::new(stream).poll_read(cx, &mut space))?;
        if space.filled().is_empty() {
            self.read_ended = true;
            self.client.conn.record_half_closed();
        } else {
            self.inbox.extend_from_slice(space.filled());
            self.client.conn.record_received();
            let held = usize::try_from(self.held.bytes()).unwrap_or(usize::MAX);
            self.charge(held.max(self.inbox.capacity() + self.hyper_bytes));
        }
        Poll::Ready(Ok(()))
    }

    /// Charges the bytes of heads and of the inbox, unless they are so few that each connection has them.
    pub(super) fn charge(&mut self, bytes: usize) {
        let bytes = if bytes > UNCHARGED_BYTES { bytes } else { 0 } as u64;
        if bytes != self.held.bytes() {
            self.held.set(bytes);
        }
    }

    /// Charges bytes that hyper got: it keeps a head until its request has ended, but not a body.
    pub(super) fn charge_given(&mut self, bytes: usize) {
        let head_max = self.worker.config().limits.head_len_max();
        self.hyper_bytes = (self.hyper_bytes + bytes).min(head_max);
        self.charge(self.hyper_bytes + self.inbox.capacity());
    }
}

/// The bytes of a head and an inbox that are part of each connection's charge.
const UNCHARGED_BYTES: usize = 2 * 1024;

/// The most bytes of one read. The head of a browser's request has about 2 KiB.
const READ_BYTES: usize = 8 * 1024;
