//! The gate through which the HTTP/2 frames of a peer reach hyper. It limits their rate and the memory of decoded
//! heads, and lets an error of one stream end that stream only.
//!
//! hyper decodes a header block as soon as the block arrives, and keeps the fields until the request is accepted. hyper
//! has no limit for the rate of frames that are not part of a request. The gate gets the bytes before hyper, and parses
//! the header of each frame (RFC 9113 §4.1) and the lengths inside header blocks.
//!
//! - A header block passes when it is complete, unless it has too many fields. A field may take a single byte in the
//!   block (RFC 7541 §6.1), so the number of fields limits the decoded size better than the length of the block.
//! - After `fields_max` fields the gate pauses, so that hyper accepts requests before it decodes further ones.
//! - A malformed header block is replaced by one that hyper refuses as an error of the stream (`header_blocks`).
//! - Consecutive small DATA frames of one stream are merged. Their padding is removed, and the peer gets its credit
//!   back by WINDOW_UPDATE. Empty frames are dropped. The payload and its order do not change. hyper would close a
//!   connection that has sent 100 empty frames in its lifetime, with or without padding.
//! - RST_STREAM, WINDOW_UPDATE and the other control frames are counted in windows of [`WINDOW_MILLIS`].

mod frame_head;
mod header_blocks;
mod representations;

use frame_head::*;
pub(crate) use header_blocks::take_path;
use header_blocks::{BlockKind, BlockScreen};
use representations::count_block_fields;

pub use crate::observe::causes::Excess;

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

    /// Returns the bytes of text that the gate keeps.
    pub(crate) const fn text_bytes(&self) -> usize {
        self.screen.path_bytes()
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
        let kind = if head.depends_on_itself(block) {
            BlockKind::RefusedRequest
        } else if is_trailers || self.is_server {
            BlockKind::Pathless
        } else {
            BlockKind::Request
        };
        let replaced = self.screen.replacement(fields, kind);
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

const PREFACE_BYTES: usize = 24;
#[cfg(test)]
mod tests;
