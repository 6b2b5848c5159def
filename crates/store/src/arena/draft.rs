//! A body that is being written: in the arena if it is large, on the heap otherwise.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;

use super::{Arena, Part, Place};

/// A body on its way in. What has come can be read at any time.
#[derive(Debug)]
pub struct Draft {
    lies: Lies,
}

#[derive(Debug)]
enum Lies {
    Heap(Vec<u8>),
    Arena { place: Arc<Place>, written: u64 },
}

impl Draft {
    /// For a body of `bytes`, if that is known, else zero: then it grows on the heap.
    pub fn new(arena: Option<&Arc<Arena>>, bytes: u64) -> Self {
        let place = arena
            .filter(|_| bytes >= Arena::BODY_BYTES_MIN)
            .and_then(|arena| arena.take(bytes));
        let lies = match place {
            Some(place) => Lies::Arena {
                place: Arc::new(place),
                written: 0,
            },
            None => Lies::Heap(Vec::with_capacity(usize::try_from(bytes).unwrap_or(0))),
        };
        Self { lies }
    }

    /// Bytes that have come.
    pub fn len(&self) -> usize {
        match &self.lies {
            Lies::Heap(bytes) => bytes.len(),
            Lies::Arena { written, .. } => to_usize(*written),
        }
    }

    /// Whether none have come.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts bytes behind the others. O(`bytes`), amortised.
    pub fn push(&mut self, bytes: &[u8]) {
        match &mut self.lies {
            Lies::Heap(heap) => heap.extend_from_slice(bytes),
            Lies::Arena { place, written } => {
                let fits = *written + bytes.len() as u64 <= place.bytes;
                let put = fits
                    && place
                        .arena
                        .file
                        .write_all_at(bytes, place.offset + *written)
                        .is_ok();
                if put {
                    *written += bytes.len() as u64;
                    return;
                }
                // No memory for pages, or more came than was announced: the heap goes on.
                let mut heap = self.all().to_vec();
                heap.extend_from_slice(bytes);
                self.lies = Lies::Heap(heap);
            }
        }
    }

    /// The bytes from `from` on, at most `most` of them; copied if they may still move.
    pub fn piece(&self, from: usize, most: usize) -> Bytes {
        match &self.lies {
            Lies::Heap(heap) => {
                let rest = heap.get(from..).unwrap_or_default();
                Bytes::copy_from_slice(&rest[..rest.len().min(most)])
            }
            Lies::Arena { place, written } => {
                let bytes = to_usize(*written).saturating_sub(from).min(most);
                part(place, from as u64, bytes)
            }
        }
    }

    /// Drops the first `bytes`: what comes after takes their place.
    pub fn drop_front(&mut self, bytes: usize) {
        match &mut self.lies {
            Lies::Heap(heap) => {
                heap.drain(..bytes);
            }
            Lies::Arena { .. } => {
                let rest = self.all().slice(bytes..).to_vec();
                self.lies = Lies::Heap(rest);
            }
        }
    }

    /// The whole body, without another copy if its length was known.
    pub fn freeze(self) -> Bytes {
        match self.lies {
            Lies::Heap(heap) => Bytes::from(heap.into_boxed_slice()),
            Lies::Arena { place, written } => part(&place, 0, to_usize(written)),
        }
    }

    fn all(&self) -> Bytes {
        self.piece(0, usize::MAX)
    }
}

fn part(place: &Arc<Place>, start: u64, bytes: usize) -> Bytes {
    if bytes == 0 {
        return Bytes::new();
    }
    Bytes::from_owner(Part {
        place: Arc::clone(place),
        start,
        bytes,
    })
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("what is mapped has addresses")
}
