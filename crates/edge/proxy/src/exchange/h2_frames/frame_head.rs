//! The header of a frame (RFC 9113 §4.1), and the parts of HEADERS and DATA frames.

use std::ops::Range;

/// A frame's header (RFC 9113 §4.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameHead {
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl FrameHead {
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let head: &[u8; HEAD_BYTES] = bytes.first_chunk()?;
        let [a, b, c, kind, flags, stream @ ..] = *head;
        Some(Self {
            length: usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c),
            kind,
            flags,
            // The first bit is reserved.
            stream: u32::from_be_bytes(stream) & (u32::MAX >> 1),
        })
    }

    pub(super) const fn frame_bytes(&self) -> usize {
        HEAD_BYTES + self.length
    }

    pub(super) const fn is_small_and_padded(&self) -> bool {
        self.flags & PADDED != 0 && self.length <= SMALL_DATA_BYTES
    }

    /// Returns where the data of a DATA frame is, if it is short. `None` for frames that hyper refuses.
    pub(super) fn small_data(&self, frame: &[u8]) -> Option<Range<usize>> {
        let (mut start, mut end) = (HEAD_BYTES, self.frame_bytes());
        if self.flags & PADDED != 0 && self.length > 0 {
            start += 1;
            end = end.checked_sub(usize::from(frame[HEAD_BYTES]))?;
        }
        let is_small = start <= end && end - start <= SMALL_DATA_BYTES;
        (is_small && self.flags & !(END_STREAM | PADDED) == 0 && self.stream != 0)
            .then_some(start..end)
    }

    /// Returns true if the stream depends on itself. That is an error of the stream in RFC 7540 §5.3.1, and h2 does
    /// not decode the header block of such a frame.
    pub(super) fn depends_on_itself(&self, frame: &[u8]) -> bool {
        let start = HEAD_BYTES + usize::from(self.flags & PADDED != 0);
        let dependency = frame.get(start..).and_then(|rest| rest.first_chunk());
        self.flags & PRIORITY != 0
            && dependency.is_some_and(|&id| u32::from_be_bytes(id) & (u32::MAX >> 1) == self.stream)
    }

    /// Returns the frames of another header block in place of the one that begins with this frame. No frame but the
    /// last ends at one of `ends`: there, h2 would refuse a malformed block before it has got all frames.
    pub(super) fn frames_of(&self, mut block: &[u8], ends: &[usize]) -> Vec<u8> {
        let mut frames = Vec::with_capacity(block.len() + 4 * HEAD_BYTES);
        let (mut kind, mut flags, mut sent) = (HEADERS, self.flags & END_STREAM, 0);
        while !block.is_empty() {
            let mut length = block.len().min(FRAME_BYTES_MAX);
            if length == block.len() {
                flags |= END_HEADERS;
            } else if ends.binary_search(&(sent + length)).is_ok() {
                length -= 1; // Each representation has several bytes.
            }
            let (piece, rest) = block.split_at(length);
            let length = u32::try_from(length).expect("a frame is short");
            frames.extend(&length.to_be_bytes()[1..]);
            frames.extend([kind, flags]);
            frames.extend(self.stream.to_be_bytes());
            frames.extend_from_slice(piece);
            (kind, flags, sent) = (CONTINUATION, 0, sent + piece.len());
            block = rest;
        }
        frames
    }

    /// Returns the fragment of the header block in this frame, without padding and priority (RFC 9113 §6.2).
    pub(super) fn fragment<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        let mut payload = &frame[HEAD_BYTES..];
        if self.kind == HEADERS && self.flags & PADDED != 0 {
            let Some((&padding, rest)) = payload.split_first() else {
                return &[];
            };
            payload = &rest[..rest.len().saturating_sub(usize::from(padding))];
        }
        if self.kind == HEADERS && self.flags & PRIORITY != 0 {
            payload = payload.get(PRIORITY_BYTES..).unwrap_or_default();
        }
        payload
    }
}

/// Returns the header block that is split over several frames.
pub(super) fn fragments(mut frames: &[u8]) -> Vec<u8> {
    let mut block = Vec::with_capacity(frames.len());
    while let Some(head) = FrameHead::parse(frames)
        && let Some((frame, rest)) = frames.split_at_checked(head.frame_bytes())
    {
        block.extend_from_slice(head.fragment(frame));
        frames = rest;
    }
    block
}

/// The largest payload of a frame: SETTINGS_MAX_FRAME_SIZE of hyper, the minimum of RFC 9113 §6.5.2.
pub(super) const FRAME_BYTES_MAX: usize = 16 << 10;

/// DATA frames up to this payload are merged. h2 limits the number of unread DATA frames that are below 256 bytes.
pub(super) const SMALL_DATA_BYTES: usize = 1 << 10;

pub(super) const HEAD_BYTES: usize = 9;
pub(super) const PRIORITY_BYTES: usize = 5;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
pub(super) const PRIORITY: u8 = 0x20;
