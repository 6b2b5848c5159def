//! The outbox of a connection: the bytes of responses that are to be written to the socket. A body is in memory, in the
//! arena (memory that the kernel can send like a file), or in the page cache.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use edgeward_semantics::{CacheStatus, StoredPolicy};
use edgeward_store::arena::Arena;
use edgeward_store::disk::{Piece, Span};
use edgeward_types::{KeyHash, Timestamp};
use http::StatusCode;
use http::header::{CONTENT_LENGTH, HeaderName};

use crate::cache::DiskHit;
use crate::cache::stored::StoredResponse;
use crate::client::stream::{ClientStream, FilePart};
use crate::exchange::ConnState;
use crate::exchange::field_bytes::push_field;
use crate::exchange::pieces::PieceMemory;
use crate::path::worker::Worker;

/// The bytes of responses that the socket has not accepted.
#[derive(Default)]
pub(super) struct Outbox {
    /// Heads of responses, size lines of chunks, and small bodies.
    head: Vec<u8>,
    /// The bytes of `head` that the socket has accepted.
    head_written: usize,
    /// The range of `head` to which a small body was copied.
    copied: Range<usize>,
    /// Bytes of bodies that the socket has accepted since the last `take_body_written`.
    body_written: u64,
    body: Bytes,
    /// A body that the kernel sends from the page cache. `body` is then empty.
    span: Option<Span>,
    /// The owner of the memory of `body`.
    memory: PieceMemory,
    /// The line break after a chunk.
    tail: &'static [u8],
    /// The most bytes of the body that one system call writes.
    piece_bytes: usize,
    /// True if bytes were written but not flushed.
    unflushed: bool,
    /// True if the head of the next hit gets `Connection: close`.
    closes: bool,
}

impl Outbox {
    pub(super) fn set_closes(&mut self, closes: bool) {
        self.closes = closes;
    }

    /// Appends a hit from memory: its head, and the body if the response has one.
    pub(super) fn push(
        &mut self,
        worker: &Worker,
        key: KeyHash,
        response: &StoredResponse,
        body: Option<&Bytes>,
    ) {
        let now = worker.now();
        self.push_status(response.status);
        self.head.extend_from_slice(&response.head);
        let status = CacheStatus::hit(response.policy.ttl_secs(now));
        self.end_hit_head(worker, &response.policy, &status, now);
        if let Some(body) = body {
            self.push_body(body);
            self.memory = PieceMemory::Cached {
                key,
                body_bytes: body.len() as u64,
            };
        }
    }

    pub(super) fn push_disk_head(&mut self, worker: &Worker, hit: &DiskHit) {
        let now = worker.now();
        self.push_status(hit.status);
        self.head.extend_from_slice(&hit.fields);
        if let Some(length) = hit.content_length() {
            let mut digits = itoa::Buffer::new();
            self.push_field(&CONTENT_LENGTH, digits.format(length).as_bytes());
        }
        // RFC 9211 §2.8: the detail names the tier.
        let status = CacheStatus::hit(hit.policy.ttl_secs(now)).with_detail("disk");
        self.end_hit_head(worker, &hit.policy, &status, now);
    }

    fn end_hit_head(
        &mut self,
        worker: &Worker,
        policy: &StoredPolicy,
        status: &CacheStatus,
        now: Timestamp,
    ) {
        let head = &mut self.head;
        head.extend_from_slice(b"age: ");
        let mut digits = itoa::Buffer::new();
        head.extend_from_slice(digits.format(policy.age_secs(now)).as_bytes());
        head.extend_from_slice(b"\r\ncache-status: ");
        let mut line = worker.texts.cache_status_line.borrow_mut();
        line.clear();
        status.write(&worker.config().name, &mut line);
        head.extend_from_slice(line.as_bytes());
        head.extend_from_slice(if self.closes {
            b"\r\nconnection: close\r\n\r\n"
        } else {
            b"\r\n\r\n"
        });
    }

    pub(super) fn push_status(&mut self, status: StatusCode) {
        let head = &mut self.head;
        if status == StatusCode::OK {
            head.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        } else {
            let reason = status.canonical_reason().unwrap_or("");
            head.extend_from_slice(b"HTTP/1.1 ");
            head.extend_from_slice(status.as_str().as_bytes());
            head.extend_from_slice(b" ");
            head.extend_from_slice(reason.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
    }

    pub(super) fn push_field(&mut self, name: &HeaderName, value: &[u8]) {
        push_field(&mut self.head, name, value);
    }

    /// Appends lines that are already formatted.
    pub(super) fn push_lines(&mut self, lines: &[u8]) {
        self.head.extend_from_slice(lines);
    }

    pub(super) fn end_head(&mut self) {
        self.head.extend_from_slice(b"\r\n");
    }

    /// Appends a chunk with its size line, and the line break that a client may wait for (RFC 9112 §7.1).
    pub(super) fn push_chunk(&mut self, piece: Piece) {
        self.head
            .extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        self.push_piece(piece);
        if self.body.is_empty() && self.span.is_none() {
            self.head.extend_from_slice(b"\r\n");
        } else {
            self.tail = b"\r\n";
        }
    }

    pub(super) fn push_last_chunk(&mut self) {
        self.head.extend_from_slice(b"0\r\n\r\n");
    }

    pub(super) fn push_body(&mut self, body: &Bytes) {
        if body.len() <= COPIED_BYTES_MAX {
            let start = self.head.len();
            self.head.extend_from_slice(body);
            self.copied = start..self.head.len();
            return;
        }
        self.piece_bytes = piece_bytes(body.len() as u64);
        self.body = body.clone();
    }

    pub(super) fn push_piece(&mut self, piece: Piece) {
        match piece {
            Piece::Bytes(bytes) => self.push_body(&bytes),
            Piece::Span(span) => {
                self.piece_bytes = piece_bytes(span.len());
                self.span = Some(span);
            }
        }
    }

    /// Sets the owner of the last piece's memory.
    pub(super) fn set_memory(&mut self, memory: PieceMemory) {
        self.memory = memory;
    }

    /// Returns the unsent bytes of the body in memory, and the owner of their memory.
    pub(super) fn unsent_body(&self) -> (&Bytes, PieceMemory) {
        (&self.body, self.memory)
    }

    /// Writes until the outbox is empty. Each form of body (memory, arena, page cache) has its own system call.
    pub(super) fn poll_write<S: ClientStream>(
        &mut self,
        stream: &mut S,
        state: &ConnState,
        arena: Option<&Arena>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.is_written() {
            let head = &self.head[self.head_written..];
            if let Some(span) = &mut self.span {
                let most = self.piece_bytes as u64;
                let written = Pin::new(&mut *stream).poll_send_span(cx, head, span, most);
                state.record_write(&written);
                let written = ready!(written)?;
                self.unflushed = true;
                let head_bytes = written.min(head.len());
                let span_bytes = (written - head_bytes) as u64;
                span.advance(span_bytes);
                self.body_written += span_bytes;
                if span.is_empty() {
                    self.span = None;
                }
                self.advance_head(head_bytes);
                continue;
            }
            let body = &self.body[..self.body.len().min(self.piece_bytes)];
            let stream = Pin::new(&mut *stream);
            let file = arena.filter(|_| S::SENDS_FILES && body.len() >= SENDFILE_BYTES_MIN);
            let location = file.and_then(|arena| Some((arena.file(), arena.offset_of(body)?)));
            let written = if let Some((file, offset)) = location {
                let bytes = body.len();
                let part = FilePart {
                    file,
                    offset,
                    bytes,
                };
                stream.poll_send_file(cx, head, part)
            } else if !self.tail.is_empty() && body.len() == self.body.len() {
                let pieces = [head, body, self.tail].map(IoSlice::new);
                stream.poll_write_vectored(cx, &pieces)
            } else if head.is_empty() {
                stream.poll_write(cx, body)
            } else if body.is_empty() {
                stream.poll_write(cx, head)
            } else {
                stream.poll_write_vectored(cx, &[IoSlice::new(head), IoSlice::new(body)])
            };
            state.record_write(&written);
            let mut written = ready!(written)?;
            self.unflushed = true;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let head_bytes = written.min(head.len());
            self.advance_head(head_bytes);
            written -= head_bytes;
            let body_bytes = written.min(self.body.len());
            self.body.advance(body_bytes);
            self.tail = &self.tail[written - body_bytes..];
            self.body_written += body_bytes as u64;
            if self.body.is_empty() {
                // The empty slice is dropped too, because it would keep the memory of the whole body.
                self.body = Bytes::new();
            }
        }
        // TLS buffers bytes that the socket did not accept, and sends them only if it is flushed.
        ready!(Pin::new(stream).poll_flush(cx))?;
        self.head.clear();
        self.head_written = 0;
        self.copied = 0..0;
        self.unflushed = false;
        Poll::Ready(Ok(()))
    }

    fn advance_head(&mut self, bytes: usize) {
        let before = self.unsent_copied();
        self.head_written += bytes;
        self.body_written += (before - self.unsent_copied()) as u64;
    }

    /// Returns the unsent bytes of a copied body.
    fn unsent_copied(&self) -> usize {
        let Range { start, end } = self.copied;
        end.saturating_sub(self.head_written.max(start))
    }

    /// Returns the bytes of bodies that the socket accepted since the last call.
    pub(super) fn take_body_written(&mut self) -> u64 {
        std::mem::take(&mut self.body_written)
    }

    /// Returns the bytes of bodies that the socket has not accepted.
    pub(super) fn unsent_body_bytes(&self) -> u64 {
        let span_bytes = self.span.as_ref().map_or(0, Span::len);
        (self.unsent_copied() + self.body.len()) as u64 + span_bytes
    }

    fn is_written(&self) -> bool {
        self.head_written == self.head.len()
            && self.body.is_empty()
            && self.span.is_none()
            && self.tail.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.is_written() && !self.unflushed
    }
}

/// Returns the most bytes of a body in one system call.
fn piece_bytes(body_bytes: u64) -> usize {
    if body_bytes <= MEDIUM_BODY_BYTES_MAX {
        MEDIUM_PIECE_BYTES
    } else {
        LARGE_PIECE_BYTES
    }
}

/// A body of at most this size is copied to its head's end, which costs less than a system call with two slices.
const COPIED_BYTES_MAX: usize = 2 * 1024;

/// The fewest unsent bytes of a body that are sent from the arena's file. Fewer bytes are copied into the socket.
const SENDFILE_BYTES_MIN: usize = 32 * 1024;

/// Bodies up to this size are sent in pieces of 64 KiB, larger ones in pieces of 1 MiB.
///
/// Thousands of hits per CPU-second on loopback, medians of two to four runs. By copies to the socket, 128 KiB: 24.0 in
/// pieces of 32 KiB, 26.1 of 64 KiB, 16.9 in one piece; 1 MiB: 2.7 in pieces of 64 KiB, 3.2 of 256 KiB, 3.5 in one
/// piece. By `sendfile` from the arena, in pieces of 64 KiB / in one piece: 28.1 / 28.1 for 128 KiB, 15.8 / 11.7 for
/// 256 KiB, 8.6 / 11.6 for 384 KiB, 6.8 / 8.7 for 512 KiB, 3.8 / 6.0 for 1 MiB.
const MEDIUM_BODY_BYTES_MAX: u64 = 256 * 1024;
const MEDIUM_PIECE_BYTES: usize = 64 * 1024;
const LARGE_PIECE_BYTES: usize = 1024 * 1024;
