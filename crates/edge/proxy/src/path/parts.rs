//! The body of a 206 with several ranges: the text around the parts, and the bytes of the ranges.
//!
//! The ranges share the memory of the whole body, or are read from disk or from a fill as the client accepts them.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use edgeward_semantics::range::ByteRange;
use edgeward_store::disk::{DiskObject, Piece};

use crate::cache::WorkerCache;
use crate::cache::disk_body::DiskBody;
use crate::cache::fill::FillReader;
use crate::exchange::pieces::PieceMemory;
use crate::path::sliced_body::SlicedBody;

/// The body whose ranges are sent.
pub(crate) enum RangeSource {
    Memory(Bytes, PieceMemory),
    Disk(DiskObject),
    /// A body that is arriving. The reader is at its start.
    Fill(FillReader),
    /// A body in slices. It has one range only.
    Slices(Box<SlicedBody>),
}

/// Returns the bytes of a range, which share the memory of the body.
pub(super) fn slice(body: &Bytes, part: ByteRange) -> Bytes {
    let index = |at: u64| usize::try_from(at).expect("a range lies within its body");
    body.slice(index(part.first)..=index(part.last))
}

/// The rest of a multipart body.
pub(crate) struct Parts {
    source: RangeSource,
    segments: VecDeque<Segment>,
    remaining: u64,
    /// The owner of the last piece's memory.
    memory: PieceMemory,
}

enum Segment {
    Text(Bytes),
    Memory(Bytes),
    Disk(Box<DiskBody>),
    /// A range of the fill. The reader moves to the range before its first byte is read.
    Fill(ByteRange, bool),
}

impl Parts {
    /// Returns an empty body whose ranges are those of `source`.
    pub(super) fn new(source: RangeSource) -> Self {
        Self {
            source,
            segments: VecDeque::new(),
            remaining: 0,
            memory: PieceMemory::Uncounted,
        }
    }

    pub(super) fn push_text(&mut self, text: Vec<u8>) {
        self.remaining += text.len() as u64;
        self.segments.push_back(Segment::Text(Bytes::from(text)));
    }

    pub(super) fn push_range(&mut self, part: ByteRange) {
        self.remaining += part.length();
        self.segments.push_back(match &self.source {
            RangeSource::Memory(body, _) => Segment::Memory(slice(body, part)),
            RangeSource::Disk(object) => {
                let range = part.first..part.last + 1;
                Segment::Disk(Box::new(DiskBody::part(object.clone(), range)))
            }
            RangeSource::Fill(_) => Segment::Fill(part, false),
            RangeSource::Slices(_) => {
                unreachable!("several ranges of slices get the whole response")
            }
        });
    }

    /// Returns the number of bytes that the client has not got yet, with the text around the parts.
    pub(crate) fn remaining_bytes(&self) -> u64 {
        self.remaining
    }

    pub(crate) fn is_on_disk(&self) -> bool {
        matches!(self.source, RangeSource::Disk(_))
    }

    /// Returns the owner of the last piece's memory.
    pub(crate) fn memory(&self) -> PieceMemory {
        self.memory
    }

    /// Returns the next piece, or `None` at the end. A piece from memory has at most `bytes_max` bytes. A piece from
    /// disk may be a [`Piece::Span`] if `spans` is true.
    pub(crate) fn poll_piece(
        &mut self,
        cache: &WorkerCache,
        cx: &mut Context<'_>,
        spans: bool,
        bytes_max: usize,
    ) -> Poll<Option<Result<Piece, Box<dyn std::error::Error + Send + Sync>>>> {
        loop {
            let Some(segment) = self.segments.front_mut() else {
                return Poll::Ready(None);
            };
            let next = match segment {
                Segment::Text(text) => {
                    self.memory = PieceMemory::Uncounted;
                    take(text, bytes_max).map(Piece::Bytes).map(Ok)
                }
                Segment::Memory(bytes) => {
                    if let RangeSource::Memory(_, memory) = self.source {
                        self.memory = memory;
                    }
                    take(bytes, bytes_max).map(Piece::Bytes).map(Ok)
                }
                Segment::Disk(body) => {
                    self.memory = PieceMemory::Private;
                    let next = ready!(body.poll_piece(cache, cx, spans));
                    next.map(|piece| piece.map_err(Into::into))
                }
                Segment::Fill(part, has_begun) => {
                    let RangeSource::Fill(reader) = &self.source else {
                        unreachable!("the segments were made from the source");
                    };
                    if !*has_begun {
                        reader.set_range(part.first..part.last + 1);
                        *has_begun = true;
                    }
                    let next = ready!(reader.poll_bytes(&cache.hot, cx));
                    next.map(|read| {
                        let (bytes, memory) = read?;
                        self.memory = memory;
                        Ok(Piece::Bytes(bytes))
                    })
                }
            };
            match next {
                Some(Ok(piece)) => {
                    self.remaining -= piece.len();
                    return Poll::Ready(Some(Ok(piece)));
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => _ = self.segments.pop_front(),
            }
        }
    }
}

/// Takes up to `bytes_max` bytes from the front. Returns `None` if no byte is left.
fn take(bytes: &mut Bytes, bytes_max: usize) -> Option<Bytes> {
    (!bytes.is_empty()).then(|| bytes.split_to(bytes.len().min(bytes_max)))
}
