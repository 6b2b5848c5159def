//! The gate through which the HTTP/2 frames of a peer reach hyper. It limits their rate and the memory of decoded heads,
//! and lets an error of one stream end that stream only.
//!
//! hyper decodes a header block as soon as the block arrives, and keeps the fields until the request is accepted. hyper
//! has no limit for the rate of frames that are not part of a request. The gate gets the bytes before hyper, and parses
//! the header of each frame (RFC 9113 §4.1) and the lengths inside header blocks.
//!
//! - A header block passes when it is complete, unless it has too many fields. A field may take a single byte in the
//!   block (RFC 7541 §6.1), so the number of fields limits the decoded size better than the length of the block.
//! - After `fields_max` fields the gate pauses, so that hyper accepts requests before it decodes further ones.
//! - A malformed header block is replaced by one that hyper refuses as an error of the stream ([`header_blocks`]).
//! - Consecutive small DATA frames of one stream are merged. Their padding is removed, and the peer gets its credit back
//!   by WINDOW_UPDATE. Empty frames are dropped. The payload and its order do not change. hyper would close a connection
//!   that has sent 100 empty frames in its lifetime, with or without padding.
//! - RST_STREAM, WINDOW_UPDATE and the other control frames are counted in windows of [`WINDOW_MILLIS`].

mod header_blocks;
mod huffman;

use std::ops::Range;

use header_blocks::BlockScreen;

/// The limits of one connection. Bytes sent to the client raise the limits of a window, see `SENT_PER_RESET`.
#[derive(Clone, Copy, Debug)]
pub struct FrameLimits {
    /// The most fields of a request's header block.
    pub fields_max: usize,
    /// The most bytes of a header block as it was sent, frame headers included.
    pub block_bytes_max: usize,
    /// The most RST_STREAM frames in a window of [`WINDOW_MILLIS`].
    pub resets_max: u64,
    /// The most PING, SETTINGS, PRIORITY, unknown and empty DATA frames in a window.
    pub control_max: u64,
    /// The most WINDOW_UPDATE frames in a window.
    pub window_updates_max: u64,
}

/// The limit that a client exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// Too many RST_STREAM frames.
    Resets,
    /// Too many PING, SETTINGS, PRIORITY or unknown frames.
    Control,
    /// Too many WINDOW_UPDATE frames.
    WindowUpdates,
    /// A header block with too many fields, bytes or CONTINUATION frames.
    HeaderBlock,
}

impl Excess {
    /// A short name for log lines.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Resets => "resets",
            Self::Control => "control frames",
            Self::WindowUpdates => "window updates",
            Self::HeaderBlock => "header block",
        }
    }
}

impl FrameLimits {
    /// The limits of a connection to a server, which answers requests of the edge: none.
    pub(crate) const UNLIMITED: Self = Self {
        fields_max: usize::MAX,
        block_bytes_max: usize::MAX,
        resets_max: u64::MAX,
        control_max: u64::MAX,
        window_updates_max: u64::MAX,
    };
}

/// The outcome of [`FrameGate::pass`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The number of bytes at the front of the buffer that hyper may read now.
    pub ready_bytes: usize,
    /// The number of bytes in the buffer after frames were merged. The caller passes bytes after `ready_bytes` again.
    pub buffer_bytes: usize,
    /// A frame that hyper reads after these bytes, in place of a malformed one, which is no longer in the buffer. If it
    /// is empty, no frame was replaced. Otherwise the caller passes the rest of the buffer again.
    pub replacement: Vec<u8>,
    /// True if the gate pauses until [`FrameGate::resume`], false if it needs more bytes.
    pub pause: bool,
    /// The number of frames in the ready bytes.
    pub frames: usize,
}

/// The gate of one connection.
#[derive(Debug)]
pub struct FrameGate {
    limits: FrameLimits,
    /// The number of further bytes of the preface or of the current frame, which pass without a check.
    unpassed_bytes: usize,
    /// The highest stream whose header block has passed.
    stream_max: u32,
    /// True if the peer is a server: its header blocks are responses, of streams in any order.
    is_server: bool,
    screen: BlockScreen,
    /// The streams and the bytes of padding that were removed and not returned to their flow-control windows.
    padding: Vec<(u32, u32)>,
    /// Fields that passed since the last pause.
    fields_passed: usize,
    /// The start of the window, in milliseconds.
    window_began: u64,
    resets: u64,
    control: u64,
    window_updates: u64,
    /// Bytes sent to the client in this window and in the previous one. More bytes allow more frames of the client.
    sent: u64,
    sent_in_last_window: u64,
}

impl FrameGate {
    /// Returns the gate of a new connection, whose first bytes are the client's preface.
    pub fn new(limits: FrameLimits) -> Self {
        Self {
            limits,
            unpassed_bytes: PREFACE_BYTES,
            stream_max: 0,
            is_server: false,
            screen: BlockScreen::new(),
            padding: Vec::new(),
            fields_passed: 0,
            window_began: 0,
            resets: 0,
            control: 0,
            window_updates: 0,
            sent: 0,
            sent_in_last_window: 0,
        }
    }

    /// Returns the gate of a new connection to a server, which sends no preface.
    pub(crate) fn of_server() -> Self {
        Self {
            unpassed_bytes: 0,
            is_server: true,
            ..Self::new(FrameLimits::UNLIMITED)
        }
    }

    /// Appends the WINDOW_UPDATE frames that the peer gets for removed padding.
    pub(crate) fn take_window_updates(&mut self, out: &mut impl Extend<u8>) {
        let total = self.padding.iter().map(|(_, bytes)| bytes).sum();
        if total == 0 {
            return;
        }
        let of_streams = self.padding.drain(..).filter(|&(stream, _)| stream != 0);
        for (stream, bytes) in of_streams.chain([(0, total)]) {
            out.extend([0, 0, 4, WINDOW_UPDATE, 0]);
            out.extend(stream.to_be_bytes().into_iter().chain(bytes.to_be_bytes()));
        }
    }

    /// Records bytes that were sent to the client.
    pub fn record_sent(&mut self, bytes: u64) {
        self.sent = self.sent.saturating_add(bytes);
    }

    /// Returns the highest stream of the header blocks that have passed.
    pub const fn last_stream(&self) -> u32 {
        self.stream_max
    }

    /// Ends a pause, because hyper has accepted the requests that passed.
    pub fn resume(&mut self) {
        self.fields_passed = 0;
    }

    /// Decides how many of the received `bytes` hyper may read, and merges small DATA frames in place. Bytes that were
    /// ready in an earlier call must not be passed again. `now` is in milliseconds.
    ///
    /// Returns an [`Excess`] if the client has exceeded a limit. The gate must not be used after this error.
    pub fn pass(&mut self, bytes: &mut [u8], now: u64) -> Result<Passed, Excess> {
        self.begin_window_if_due(now);
        let (mut read, mut write) = (0, 0);
        let (mut pause, mut frames) = (false, 0);
        let mut replacement = Vec::new();
        let mut last_data: Option<SmallData> = None;
        loop {
            if self.unpassed_bytes > 0 {
                let n = self.unpassed_bytes.min(bytes.len() - read);
                copy_down(bytes, &mut read, &mut write, n);
                self.unpassed_bytes -= n;
                if self.unpassed_bytes > 0 {
                    break;
                }
            }
            let rest = &bytes[read..];
            let Some(head) = FrameHead::parse(rest) else {
                break;
            };
            frames += 1;
            let is_whole = rest.len() >= head.frame_bytes();
            let data = last_data.take();
            if head.length > FRAME_BYTES_MAX {
                // hyper will refuse the frame because of its length.
                self.unpassed_bytes = head.frame_bytes();
                continue;
            }
            match head.kind {
                HEADERS => {
                    if self.fields_passed >= self.limits.fields_max {
                        pause = true;
                        break;
                    }
                    let Some(block) = self.block_end(rest)? else {
                        break;
                    };
                    replacement = self.check_block(&head, &rest[..block.bytes], block.is_whole)?;
                    if !replacement.is_empty() {
                        read += block.bytes;
                        break;
                    }
                    copy_down(bytes, &mut read, &mut write, block.bytes);
                    continue;
                }
                DATA if !is_whole && head.is_small_and_padded() => break,
                DATA if is_whole && let Some(payload) = head.small_data(rest) => {
                    let ends_stream = head.flags & END_STREAM != 0;
                    self.record_padding(&head, head.length - payload.len());
                    if payload.is_empty() && !ends_stream {
                        self.control += 1;
                        self.check_rates()?;
                        read += head.frame_bytes();
                        last_data = data;
                        continue;
                    }
                    let (start, end) = (read + payload.start, read + head.frame_bytes());
                    let data = data.filter(|data| data.can_merge(&head, payload.len()));
                    let data = data.unwrap_or_else(|| {
                        let offset = write;
                        copy_down(bytes, &mut read, &mut write, HEAD_BYTES);
                        SmallData {
                            offset,
                            stream: head.stream,
                            length: 0,
                        }
                    });
                    read = start;
                    copy_down(bytes, &mut read, &mut write, payload.len());
                    read = end;
                    let data = data.append(payload.len(), head.flags & END_STREAM, bytes);
                    last_data = (!ends_stream).then_some(data);
                    continue;
                }
                RST_STREAM => self.resets += 1,
                WINDOW_UPDATE => self.window_updates += 1,
                DATA | CONTINUATION => {}
                _ => self.control += 1,
            }
            self.check_rates()?;
            self.unpassed_bytes = head.frame_bytes();
        }
        bytes.copy_within(read.., write);
        Ok(Passed {
            ready_bytes: write,
            buffer_bytes: bytes.len() - (read - write),
            replacement,
            pause,
            frames,
        })
    }

    fn begin_window_if_due(&mut self, now: u64) {
        // If the clock was set back, a new window begins too.
        if now.wrapping_sub(self.window_began) >= WINDOW_MILLIS {
            self.window_began = now;
            (self.resets, self.control, self.window_updates) = (0, 0, 0);
            self.sent_in_last_window = std::mem::take(&mut self.sent);
        }
    }

    fn check_rates(&self) -> Result<(), Excess> {
        let sent = self.sent.saturating_add(self.sent_in_last_window);
        let limits = &self.limits;
        if self.resets > limits.resets_max.saturating_add(sent / SENT_PER_RESET) {
            return Err(Excess::Resets);
        }
        if self.control > limits.control_max.saturating_add(sent / SENT_PER_CONTROL) {
            return Err(Excess::Control);
        }
        let window_updates_max = limits.window_updates_max;
        if self.window_updates > window_updates_max.saturating_add(sent / SENT_PER_WINDOW_UPDATE) {
            return Err(Excess::WindowUpdates);
        }
        Ok(())
    }

    /// Returns the header block at the front, or its part before a wrong frame. `None` if it is incomplete.
    fn block_end(&self, bytes: &[u8]) -> Result<Option<Block>, Excess> {
        let mut end = 0;
        for nth in 0..BLOCK_FRAMES_MAX {
            let Some(head) = FrameHead::parse(&bytes[end..]) else {
                return Ok(None);
            };
            if nth > 0 && (head.kind != CONTINUATION || head.length > FRAME_BYTES_MAX) {
                // hyper will refuse the next frame: it is not CONTINUATION, or it is too long.
                return Ok(Some(Block {
                    bytes: end,
                    is_whole: false,
                }));
            }
            end += head.frame_bytes();
            if end > self.limits.block_bytes_max {
                return Err(Excess::HeaderBlock);
            }
            if bytes.len() < end {
                return Ok(None);
            }
            if head.flags & END_HEADERS != 0 {
                return Ok(Some(Block {
                    bytes: end,
                    is_whole: true,
                }));
            }
        }
        Err(Excess::HeaderBlock)
    }

    /// Counts and checks the fields of a header block. Returns the frame that replaces the block if it is malformed,
    /// or no bytes.
    fn check_block(
        &mut self,
        head: &FrameHead,
        block: &[u8],
        is_whole: bool,
    ) -> Result<Vec<u8>, Excess> {
        let joined;
        let fields = if block.len() == head.frame_bytes() {
            head.fragment(block)
        } else {
            joined = fragments(block);
            &joined
        };
        // A second header block of a stream holds trailers (RFC 9113 §8.1).
        let is_trailers = head.stream <= self.stream_max && !self.is_server;
        self.count_fields(head, count_block_fields(fields), is_trailers)?;
        if !is_whole || head.stream == 0 {
            // hyper will end the connection.
            self.screen.lose();
            return Ok(Vec::new());
        }
        let is_refused = head.depends_on_itself(block);
        let replaced = self.screen.replacement(fields, is_trailers, is_refused);
        Ok(replaced.map_or_else(Vec::new, |(block, ends)| head.frames_of(&block, &ends)))
    }

    fn count_fields(
        &mut self,
        head: &FrameHead,
        fields: usize,
        is_trailers: bool,
    ) -> Result<(), Excess> {
        let fields_max = if is_trailers {
            TRAILER_FIELDS_MAX.min(self.limits.fields_max)
        } else {
            self.limits.fields_max
        };
        self.stream_max = self.stream_max.max(head.stream);
        self.fields_passed = self.fields_passed.saturating_add(fields);
        if fields > fields_max {
            return Err(Excess::HeaderBlock);
        }
        Ok(())
    }

    /// Records bytes that were removed from a DATA frame. A stream that has ended needs no further credit.
    fn record_padding(&mut self, head: &FrameHead, bytes: usize) {
        let bytes = u32::try_from(bytes).expect("a frame is short");
        let stream = if head.flags & END_STREAM == 0 {
            head.stream
        } else {
            0
        };
        match self.padding.last_mut() {
            _ if bytes == 0 => {}
            Some((last, credit)) if *last == stream => *credit += bytes,
            _ => self.padding.push((stream, bytes)),
        }
    }
}

/// A header block in one or several frames.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// The length of its frames.
    bytes: usize,
    is_whole: bool,
}

/// Copies the next `n` bytes from the offset `read` to the offset `write`, and advances both.
fn copy_down(bytes: &mut [u8], read: &mut usize, write: &mut usize, n: usize) {
    if read != write {
        bytes.copy_within(*read..*read + n, *write);
    }
    *read += n;
    *write += n;
}

/// A small DATA frame among the passed bytes, into which the next DATA frame may be merged.
#[derive(Clone, Copy, Debug)]
struct SmallData {
    offset: usize,
    stream: u32,
    length: usize,
}

impl SmallData {
    fn can_merge(&self, head: &FrameHead, length: usize) -> bool {
        self.stream == head.stream && self.length + length <= FRAME_BYTES_MAX
    }

    /// Updates the header of this frame after a payload of this length was appended.
    fn append(mut self, length: usize, flags: u8, bytes: &mut [u8]) -> Self {
        self.length += length;
        let length = u32::try_from(self.length).expect("at most FRAME_BYTES_MAX");
        bytes[self.offset..self.offset + 3].copy_from_slice(&length.to_be_bytes()[1..]);
        bytes[self.offset + 4] = flags;
        self
    }
}

/// A frame's header (RFC 9113 §4.1).
#[derive(Clone, Copy, Debug)]
struct FrameHead {
    length: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl FrameHead {
    fn parse(bytes: &[u8]) -> Option<Self> {
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

    const fn frame_bytes(&self) -> usize {
        HEAD_BYTES + self.length
    }

    const fn is_small_and_padded(&self) -> bool {
        self.flags & PADDED != 0 && self.length <= SMALL_DATA_BYTES
    }

    /// Returns where the data of a DATA frame is, if it is short. `None` for frames that hyper refuses.
    fn small_data(&self, frame: &[u8]) -> Option<Range<usize>> {
        let (mut start, mut end) = (HEAD_BYTES, self.frame_bytes());
        if self.flags & PADDED != 0 && self.length > 0 {
            start += 1;
            end = end.checked_sub(usize::from(frame[HEAD_BYTES]))?;
        }
        let is_small = start <= end && end - start <= SMALL_DATA_BYTES;
        (is_small && self.flags & !(END_STREAM | PADDED) == 0 && self.stream != 0)
            .then_some(start..end)
    }

    /// Returns true if the stream depends on itself. That is an error of the stream in RFC 7540 §5.3.1, and h2 does not
    /// decode the header block of such a frame.
    fn depends_on_itself(&self, frame: &[u8]) -> bool {
        let start = HEAD_BYTES + usize::from(self.flags & PADDED != 0);
        let dependency = frame.get(start..).and_then(|rest| rest.first_chunk());
        self.flags & PRIORITY != 0
            && dependency.is_some_and(|&id| u32::from_be_bytes(id) & (u32::MAX >> 1) == self.stream)
    }

    /// Returns the frames of another header block in place of the one that begins with this frame. No frame but the last
    /// ends at one of `ends`: there, h2 would refuse a malformed block before it has got all frames.
    fn frames_of(&self, mut block: &[u8], ends: &[usize]) -> Vec<u8> {
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
    fn fragment<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
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
fn fragments(mut frames: &[u8]) -> Vec<u8> {
    let mut block = Vec::with_capacity(frames.len());
    while let Some(head) = FrameHead::parse(frames)
        && let Some((frame, rest)) = frames.split_at_checked(head.frame_bytes())
    {
        block.extend_from_slice(head.fragment(frame));
        frames = rest;
    }
    block
}

/// Returns the number of fields in a header block (RFC 7541 §6), up to a malformed field: hyper's decoder stops there.
fn count_block_fields(mut block: &[u8]) -> usize {
    let mut fields = 0;
    while let Some(&first) = block.first() {
        let rest = match first {
            0x80.. => parse_integer(block, 7).map(|(_, rest)| rest),
            0x20..0x40 => {
                // An update of the dynamic table's size is not a field.
                match parse_integer(block, 5) {
                    Some((_, rest)) => block = rest,
                    None => return fields,
                }
                continue;
            }
            0x40..0x80 => parse_integer(block, 6).and_then(skip_literal),
            _ => parse_integer(block, 4).and_then(skip_literal),
        };
        fields += 1;
        match rest {
            Some(rest) => block = rest,
            None => return fields,
        }
    }
    fields
}

/// Skips the strings of a literal field: its name, unless the name is in a table, and its value.
fn skip_literal((name, rest): (usize, &[u8])) -> Option<&[u8]> {
    let rest = if name == 0 { skip_string(rest)? } else { rest };
    skip_string(rest)
}

fn skip_string(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = parse_integer(bytes, 7)?;
    rest.get(length..)
}

/// Parses an integer (RFC 7541 §5.1). Returns its value and the bytes after the integer.
fn parse_integer(bytes: &[u8], prefix_bits: u32) -> Option<(usize, &[u8])> {
    let (&first, mut rest) = bytes.split_first()?;
    let mask = (1usize << prefix_bits) - 1;
    let mut value = usize::from(first) & mask;
    if value < mask {
        return Some((value, rest));
    }
    for shift in (0..usize::BITS - 8).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        value = value.checked_add(usize::from(byte & 0x7f) << shift)?;
        if byte & 0x80 == 0 {
            return Some((value, rest));
        }
    }
    None
}

/// The length of the windows in which frames are counted. A browser that cancels all requests of a page stays below the
/// limit of a window. A client that cancels requests continuously exceeds it.
pub const WINDOW_MILLIS: u64 = 10_000;

/// The number of bytes sent to the client that allow one frame above the limit. The answer to a PING has only 17 bytes,
/// so PINGs hardly raise their own limit.
const SENT_PER_RESET: u64 = 16 << 10;
const SENT_PER_CONTROL: u64 = 4 << 10;
const SENT_PER_WINDOW_UPDATE: u64 = 32;

/// The most fields of trailers. hyper keeps the trailers in memory until the body before them was read.
const TRAILER_FIELDS_MAX: usize = 32;

/// The most frames of a header block. The largest block of a well-behaved client has five frames of 16 KiB.
const BLOCK_FRAMES_MAX: usize = 64;

/// The largest payload of a frame: SETTINGS_MAX_FRAME_SIZE of hyper, the minimum of RFC 9113 §6.5.2.
const FRAME_BYTES_MAX: usize = 16 << 10;

/// DATA frames up to this payload are merged. h2 limits the number of unread DATA frames that are below 256 bytes.
const SMALL_DATA_BYTES: usize = 1 << 10;

const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;
const PRIORITY_BYTES: usize = 5;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

#[cfg(test)]
mod tests;
