//! What a link would send of some bodies, found out without a link: its very sender, with a peer that is content with everything.
//!
//! Bodies are cut, named, looked up, compressed alone or against what they resemble, and made into frames as on a line that is
//! slower than the processor; the frames are counted and thrown away. What is left out is what comes back (acknowledgements and
//! credit: some ten bytes for each 64 KiB) and TLS (22 bytes for each 16 KiB).

use std::collections::HashMap;
use std::sync::Arc;

use edgeward_dedup::Tools;
use edgeward_dedup::buffer::Pool;
use edgeward_dedup::chunker::ChunkerParams;
use edgeward_dedup::codec::{Codec, Method, Methods};
use edgeward_dedup::id::IdKey;
use edgeward_dedup::knowledge::Knowledge;
use edgeward_dedup::sender::{Lane, SendError, Sender, SenderConfig};
use edgeward_dedup::wire::{Acked, Frame, StreamId, StreamState, decode, frame_length};
use edgeward_store::disk::Device;

use crate::codec::Compressors;
use crate::{ChunkSettings, Chunks, OpenError};

/// How the link would be set up.
#[derive(Clone, Copy, Debug)]
pub struct EstimateSettings {
    /// Where bodies are cut.
    pub chunker: ChunkerParams,
    /// What is compressed with.
    pub methods: Methods,
    /// Whether new chunks are compressed against what they may resemble.
    pub delta: bool,
    /// Bodies at the same time.
    pub bodies_max: usize,
}

/// What there was, and what was sent of it; in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// How many bodies.
    pub bodies: u64,
    /// All of them.
    pub bytes: u64,
    /// Frames.
    pub wire: u64,
    /// The bodies, if each was compressed for itself, 256 KiB at a time, with zstd at level 1.
    pub compressed: u64,
    /// Of `bytes`: chunks that were there, and so only named.
    pub named: u64,
    /// Of `bytes`: new chunks that were compressed against others.
    pub delta: u64,
    /// Of `bytes`: other new chunks.
    pub literal: u64,
    /// Of `bytes`: what was not looked up, being the first of a body, or a body that was not to be.
    pub plain: u64,
}

impl Saved {
    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.with(other, |one, other| one + other)
    }

    /// What was counted after `before`, an earlier count.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        self.with(before, |now, before| now - before)
    }

    fn with(&self, other: &Self, of: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            bodies: of(self.bodies, other.bodies),
            bytes: of(self.bytes, other.bytes),
            wire: of(self.wire, other.wire),
            compressed: of(self.compressed, other.compressed),
            named: of(self.named, other.named),
            delta: of(self.delta, other.delta),
            literal: of(self.literal, other.literal),
            plain: of(self.plain, other.plain),
        }
    }
}

/// Counts what a link would send.
#[derive(Debug)]
pub struct Estimator {
    sender: Sender,
    knowledge: Knowledge,
    ids: IdKey,
    pool: Pool,
    store: Chunks,
    codec: Compressors,
    bodies: HashMap<StreamId, Vec<u8>>,
    counted: Saved,
    frames: Vec<u8>,
    packed: Vec<u8>,
}

impl Estimator {
    /// Nothing was sent yet. The device has what the other end would keep, and should be as large.
    ///
    /// # Errors
    ///
    /// If the device cannot be used.
    pub fn new(device: Arc<dyn Device>, settings: EstimateSettings) -> Result<Self, OpenError> {
        let average = u32::try_from(settings.chunker.average()).expect("at most 64 KiB");
        let containers_max = usize::try_from(device.len() >> 20).unwrap_or(usize::MAX);
        Ok(Self {
            sender: Sender::new(SenderConfig {
                delta: settings.delta,
                streams_max: settings.bodies_max,
                credit: u64::MAX,
                unacked_max: usize::MAX,
                ..SenderConfig::new(settings.chunker, settings.methods)
            }),
            knowledge: Knowledge::new(containers_max),
            // Nobody else sees these names.
            ids: IdKey::new([0; 32]),
            pool: Pool::default(),
            store: Chunks::open(device, ChunkSettings::new(average, 1))?,
            codec: Compressors::new(),
            bodies: HashMap::new(),
            counted: Saved::default(),
            frames: Vec::new(),
            packed: Vec::new(),
        })
    }

    /// Begins a body; `dedup` is false for what would be recognised as useless to look up.
    ///
    /// # Errors
    ///
    /// If there are as many as there may be.
    pub fn begin(&mut self, label: &[u8], dedup: bool) -> Result<StreamId, SendError> {
        let stream = self.sender.open(label, dedup)?;
        self.bodies.insert(stream, Vec::new());
        self.counted.bodies += 1;
        Ok(stream)
    }

    /// The next bytes of a body.
    ///
    /// # Errors
    ///
    /// If it is not open.
    pub fn write(&mut self, stream: StreamId, bytes: &[u8]) -> Result<(), SendError> {
        for part in bytes.chunks(PART_BYTES) {
            let (sender, mut tools) = self.parts();
            let taken = sender.write(stream, part, &mut tools)?;
            debug_assert_eq!(
                taken,
                part.len(),
                "credit has no end, and all was acknowledged"
            );
            self.transmit();
        }
        self.counted.bytes += bytes.len() as u64;
        let Some(mut waiting) = self.bodies.remove(&stream) else {
            return Err(SendError::NoStream(stream));
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = rest.len().min(ALONE_BYTES - waiting.len());
            waiting.extend_from_slice(&rest[..taken]);
            rest = &rest[taken..];
            if waiting.len() == ALONE_BYTES {
                self.compress_alone(&waiting);
                waiting.clear();
            }
        }
        self.bodies.insert(stream, waiting);
        Ok(())
    }

    /// Nothing follows soon, so the link would let nothing wait.
    pub fn flush(&mut self, stream: StreamId) {
        let (sender, mut tools) = self.parts();
        sender.flush(stream, &mut tools);
        self.transmit();
    }

    /// The body is whole.
    ///
    /// # Errors
    ///
    /// If it is not open.
    pub fn end(&mut self, stream: StreamId) -> Result<(), SendError> {
        let (sender, mut tools) = self.parts();
        sender.close(stream, &mut tools)?;
        self.transmit();
        if let Some(waiting) = self.bodies.remove(&stream) {
            self.compress_alone(&waiting);
        }
        Ok(())
    }

    /// What was counted so far.
    pub fn saved(&self) -> Saved {
        let sent = self.sender.counters();
        Saved {
            wire: sent.wire,
            named: sent.named,
            delta: sent.delta,
            literal: sent.literal,
            plain: sent.plain,
            ..self.counted
        }
    }

    /// The chunks.
    pub fn store(&self) -> &Chunks {
        &self.store
    }

    /// Takes all frames and acknowledges what they bring.
    fn transmit(&mut self) {
        let mut frames = std::mem::take(&mut self.frames);
        loop {
            frames.clear();
            let (sender, mut tools) = self.parts();
            // The line is always busy: that is why one wants a link.
            if !sender.transmit(Lane::Any, true, &mut tools, &mut frames) {
                break;
            }
            let whole = frame_length(&frames).expect("our own frame");
            let frame = decode(&frames[..whole.unwrap_or(0)]).expect("our own frame");
            let acked = match frame {
                Frame::Plain { span, .. }
                | Frame::Literal { span, .. }
                | Frame::Ref { span, .. }
                | Frame::RefRun { span, .. }
                | Frame::Delta { span, .. } => Acked {
                    stream: span.stream,
                    state: StreamState::Open,
                    offset: span.end(),
                },
                Frame::Close { stream, length, .. } => Acked {
                    stream,
                    state: StreamState::Complete,
                    offset: length,
                },
                _ => continue,
            };
            let acked = self
                .sender
                .handle(&Frame::Ack(vec![acked]), &mut self.knowledge);
            acked.expect("only what was sent is acknowledged");
            while self.sender.event().is_some() {}
        }
        self.frames = frames;
    }

    fn compress_alone(&mut self, raw: &[u8]) {
        self.packed.clear();
        let shorter = self
            .codec
            .compress(Method::Zstd, &[], raw, &mut self.packed);
        let bytes = if shorter {
            self.packed.len()
        } else {
            raw.len()
        };
        self.counted.compressed += bytes as u64;
    }

    fn parts(&mut self) -> (&mut Sender, Tools<'_, Chunks, Compressors>) {
        let tools = Tools {
            store: &mut self.store,
            codec: &mut self.codec,
            knowledge: &mut self.knowledge,
            ids: &self.ids,
            pool: &self.pool,
        };
        (&mut self.sender, tools)
    }
}

/// Written at once: less than a stream may have under way.
const PART_BYTES: usize = 1 << 20;

/// Compressed at once where there is no link.
const ALONE_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use crate::scratch::ScratchDevice;

    use super::*;

    fn estimator(delta: bool) -> Estimator {
        let device = ScratchDevice::new(&std::env::temp_dir(), 64 << 20).expect("room");
        let settings = EstimateSettings {
            chunker: ChunkerParams::new(8 << 10, 1).expect("a power of two"),
            methods: Methods::ALL,
            delta,
            bodies_max: 4,
        };
        Estimator::new(Arc::new(device), settings).expect("a new store")
    }

    fn send(estimator: &mut Estimator, body: &[u8]) -> Saved {
        let before = estimator.saved();
        let stream = estimator.begin(b"", true).expect("one at a time");
        // Cut where nothing else is.
        for part in body.chunks(70_001) {
            estimator.write(stream, part).expect("it is open");
        }
        estimator.end(stream).expect("it is open");
        estimator.saved().since(&before)
    }

    fn noise(bytes: usize, mut word: u64) -> Vec<u8> {
        let mut next = || {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (word >> 56) as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    /// Noise is sent as it is, the second time by name, and an edited copy by name and difference.
    #[test]
    fn what_was_sent_once_is_hardly_sent_again() {
        let mut estimator = estimator(true);
        let body = noise(3_000_000, 7);
        let first = send(&mut estimator, &body);
        assert!(first.wire > first.bytes && first.wire < first.bytes / 100 * 101);
        assert_eq!(first.compressed, first.bytes);
        let again = send(&mut estimator, &body);
        assert!(again.wire < 10_000, "{again:?}");
        let mut edited = body.clone();
        edited.splice(1_500_000..1_500_010, *b"edited");
        let next = send(&mut estimator, &edited);
        assert!(next.wire < 15_000 && next.delta > 0, "{next:?}");
        let all = estimator.saved();
        assert_eq!(all.named + all.delta + all.literal + all.plain, all.bytes);
        assert_eq!(all.bodies, 3);
    }

    /// What would be recognised as encrypted is neither looked up nor kept.
    #[test]
    fn what_is_not_looked_up_is_sent_each_time() {
        let mut estimator = estimator(true);
        let body = noise(100_000, 8);
        for _ in 0..2 {
            let stream = estimator.begin(b"", false).expect("one at a time");
            estimator.write(stream, &body).expect("it is open");
            estimator.end(stream).expect("it is open");
        }
        let saved = estimator.saved();
        assert_eq!((saved.plain, saved.named), (200_000, 0));
        assert!(saved.wire > 200_000);
    }

    #[test]
    fn bodies_have_a_bound() {
        let mut estimator = estimator(false);
        for _ in 0..4 {
            estimator.begin(b"", true).expect("four may be open");
        }
        assert_eq!(
            estimator.begin(b"", true),
            Err(SendError::TooManyStreams(4))
        );
    }
}
