//! Predicts how many bytes a link would send for some bodies.
//!
//! An [`Estimator`] runs the link's sender, and acknowledges every frame like a peer. Bodies are cut into
//! chunks, hashed, looked up, compressed alone or with similar chunks as a dictionary, and encoded as frames.
//! The compression is the strongest one, which the sender uses on a network that is slower than the processor.
//! The estimator counts the bytes of the frames. It counts neither the acknowledgements and credit of the reverse
//! direction (about ten bytes per 64 KiB) nor the overhead of TLS (22 bytes per record).

use std::collections::HashMap;
use std::sync::Arc;

use edgeward_dedup::Resources;
use edgeward_dedup::buffer::Pool;
use edgeward_dedup::chunker::ChunkerParams;
use edgeward_dedup::codec::{Codec, Method, Methods};
use edgeward_dedup::id::IdKey;
use edgeward_dedup::knowledge::Knowledge;
use edgeward_dedup::sender::{Lane, SendError, Sender, SenderConfig};
use edgeward_dedup::wire::{Frame, StreamAck, StreamId, StreamState, decode, frame_length};
use edgeward_store::disk::Device;

use crate::codec::Compressors;
use crate::{ChunkSettings, Chunks, OpenError};

/// The settings of the simulated link.
#[derive(Clone, Copy, Debug)]
pub struct EstimateSettings {
    /// The chunker's parameters.
    pub chunker: ChunkerParams,
    /// The compression methods.
    pub methods: Methods,
    /// True if new chunks are compressed with similar chunks as a dictionary.
    pub delta: bool,
    /// The highest number of bodies that are open at the same time.
    pub bodies_max: usize,
}

/// The bytes of the bodies, and the bytes that the link would send for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Savings {
    /// The number of bodies.
    pub bodies: u64,
    /// The total size of the bodies.
    pub bytes: u64,
    /// The total size of the frames that the link would send.
    pub wire: u64,
    /// For comparison, the size of the bodies if 256 KiB at a time are compressed with zstd at level 1.
    pub compressed: u64,
    /// The part of `bytes` in known chunks, which are sent as references. This field and the next three add up to
    /// `bytes` when no body is open.
    pub named: u64,
    /// The part of `bytes` in new chunks that are sent as deltas of similar chunks.
    pub delta: u64,
    /// The part of `bytes` in all other new chunks.
    pub literal: u64,
    /// The part of `literal` that looks encrypted or compressed.
    pub incompressible: u64,
    /// An estimate of the part of `delta` and `literal` in chunks that the store had evicted.
    pub evicted: u64,
    /// The part of `bytes` that was not looked up: the beginning of each body, and bodies without deduplication.
    pub plain: u64,
    /// The part of `plain` in bodies without deduplication.
    pub bypassed: u64,
}

impl Savings {
    /// Returns the sums of the counts of `self` and `other`.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.with(other, |one, other| one + other)
    }

    /// Returns the counts of `self` minus the counts of `before`, an earlier value.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        self.with(before, |now, before| now - before)
    }

    fn with(&self, other: &Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            bodies: combine(self.bodies, other.bodies),
            bytes: combine(self.bytes, other.bytes),
            wire: combine(self.wire, other.wire),
            compressed: combine(self.compressed, other.compressed),
            named: combine(self.named, other.named),
            delta: combine(self.delta, other.delta),
            literal: combine(self.literal, other.literal),
            incompressible: combine(self.incompressible, other.incompressible),
            evicted: combine(self.evicted, other.evicted),
            plain: combine(self.plain, other.plain),
            bypassed: combine(self.bypassed, other.bypassed),
        }
    }
}

/// Counts the bytes that a link would send.
#[derive(Debug)]
pub struct Estimator {
    sender: Sender,
    knowledge: Knowledge,
    id_key: IdKey,
    pool: Pool,
    store: Chunks,
    codec: Compressors,
    /// For each open body, the last bytes, which are not in [`Savings::compressed`] yet.
    uncompressed_parts: HashMap<StreamId, Vec<u8>>,
    counters: Savings,
    /// The buffer of `transmit`, kept for its allocation.
    frames: Vec<u8>,
    /// The buffer of `compress_alone`, kept for its allocation.
    packed: Vec<u8>,
}

impl Estimator {
    /// Creates an estimator with an empty store on `device`. The device should have the size that the store of the
    /// real link will have, because old chunks are dropped when the store is full.
    ///
    /// # Errors
    ///
    /// Fails if the device cannot be used.
    pub fn new(device: Arc<dyn Device>, settings: EstimateSettings) -> Result<Self, OpenError> {
        let average = u32::try_from(settings.chunker.average()).expect("at most 64 KiB");
        // The default containers have 1 MiB.
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
            // The ids stay in this process, so they need no secret key.
            id_key: IdKey::new([0; 32]),
            pool: Pool::default(),
            // 1 is the epoch of the store, which only a real peer would compare.
            store: Chunks::open(device, ChunkSettings::new(average, 1))?,
            codec: Compressors::new(),
            uncompressed_parts: HashMap::new(),
            counters: Savings::default(),
            frames: Vec::new(),
            packed: Vec::new(),
        })
    }

    /// Begins a body. `label` is sent in the frame that opens the stream; its bytes count. `dedup` is false if the
    /// link would send the body without deduplication.
    ///
    /// # Errors
    ///
    /// Fails if the limit of open bodies is reached.
    pub fn begin(&mut self, label: &[u8], dedup: bool) -> Result<StreamId, SendError> {
        let stream = self.sender.open(label, dedup)?;
        self.uncompressed_parts.insert(stream, Vec::new());
        self.counters.bodies += 1;
        Ok(stream)
    }

    /// Adds the next bytes of a body.
    ///
    /// # Errors
    ///
    /// Fails if the body is not open.
    pub fn write(&mut self, stream: StreamId, bytes: &[u8]) -> Result<(), SendError> {
        for part in bytes.chunks(WRITE_BYTES) {
            let (sender, mut resources) = self.sender_and_resources();
            let taken = sender.write(stream, part, &mut resources)?;
            self.answer_requests();
            debug_assert_eq!(
                taken,
                part.len(),
                "credit is unlimited, and all bytes were acknowledged"
            );
            self.transmit();
        }
        self.counters.bytes += bytes.len() as u64;
        let Some(mut uncompressed) = self.uncompressed_parts.remove(&stream) else {
            return Err(SendError::NoStream(stream));
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = rest.len().min(COMPARISON_BYTES - uncompressed.len());
            uncompressed.extend_from_slice(&rest[..taken]);
            rest = &rest[taken..];
            if uncompressed.len() == COMPARISON_BYTES {
                self.compress_alone(&uncompressed);
                uncompressed.clear();
            }
        }
        self.uncompressed_parts.insert(stream, uncompressed);
        Ok(())
    }

    /// Sends the bytes that the sender has buffered. Called if no more bytes of the body follow soon.
    pub fn flush(&mut self, stream: StreamId) {
        let (sender, mut resources) = self.sender_and_resources();
        sender.flush(stream, &mut resources);
        self.answer_requests();
        self.transmit();
    }

    /// Ends a body.
    ///
    /// # Errors
    ///
    /// Fails if the body is not open.
    pub fn end(&mut self, stream: StreamId) -> Result<(), SendError> {
        let (sender, mut resources) = self.sender_and_resources();
        sender.close(stream, &mut resources)?;
        self.answer_requests();
        self.transmit();
        if let Some(uncompressed) = self.uncompressed_parts.remove(&stream) {
            self.compress_alone(&uncompressed);
        }
        Ok(())
    }

    /// Returns the counts so far.
    pub fn savings(&self) -> Savings {
        let sent = self.sender.counters();
        Savings {
            wire: sent.wire,
            named: sent.referenced,
            delta: sent.delta,
            literal: sent.literal,
            incompressible: sent.incompressible,
            evicted: sent.evicted,
            plain: sent.plain,
            bypassed: sent.bypassed,
            ..self.counters
        }
    }

    /// Returns the chunk store.
    pub fn store(&self) -> &Chunks {
        &self.store
    }

    /// Answers the requests of the sender to the store. Returns true if there was one.
    fn answer_requests(&mut self) -> bool {
        let mut has_answered = false;
        while let Some((id, request)) = self.sender.request() {
            let answer = self.store.answer(&request, &self.id_key, &self.pool);
            let (sender, mut resources) = self.sender_and_resources();
            answer.map(|answer| sender.complete(id, answer, &mut resources));
            has_answered = true;
        }
        has_answered
    }

    /// Takes all frames from the sender and acknowledges them.
    fn transmit(&mut self) {
        let mut frames = std::mem::take(&mut self.frames);
        loop {
            frames.clear();
            let Self {
                sender,
                knowledge,
                id_key,
                pool,
                codec,
                ..
            } = self;
            let mut resources = Resources {
                knowledge,
                id_key,
                pool,
            };
            // `Lane::Any`: frames of all lengths. `true`: earlier frames still wait for the network. The sender then
            // chooses a stronger compression, as it does on the slow networks for which links are made.
            if !sender.transmit(Lane::Any, true, codec, &mut resources, &mut frames) {
                if self.answer_requests() {
                    continue;
                }
                break;
            }
            let length = frame_length(&frames).expect("the sender's frame is valid");
            let frame =
                decode(&frames[..length.unwrap_or(0)]).expect("the sender's frame is valid");
            let acked = match frame {
                Frame::Plain { span, .. }
                | Frame::Literal { span, .. }
                | Frame::Ref { span, .. }
                | Frame::RefRun { span, .. }
                | Frame::Delta { span, .. } => StreamAck {
                    stream: span.stream,
                    state: StreamState::Open,
                    offset: span.end(),
                },
                Frame::Close { stream, length, .. } => StreamAck {
                    stream,
                    state: StreamState::Complete,
                    offset: length,
                },
                _ => continue,
            };
            let acked = self
                .sender
                .handle(&Frame::Ack(vec![acked]), &mut self.knowledge);
            acked.expect("the acknowledged frame was sent");
            while self.sender.event().is_some() {}
        }
        self.frames = frames;
    }

    /// Compresses these bytes without a dictionary, and adds their compressed size to [`Savings::compressed`].
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
        self.counters.compressed += bytes as u64;
    }

    fn sender_and_resources(&mut self) -> (&mut Sender, Resources<'_>) {
        let resources = Resources {
            knowledge: &mut self.knowledge,
            id_key: &self.id_key,
            pool: &self.pool,
        };
        (&mut self.sender, resources)
    }
}

/// The highest number of bytes of one write to the sender, which buffers the bytes until their chunks are looked up.
const WRITE_BYTES: usize = 256 << 10;

/// The number of bytes that are compressed at a time for the comparison.
const COMPARISON_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use crate::scratch::ScratchDevice;

    use super::*;

    fn estimator(delta: bool) -> Estimator {
        estimator_of(delta, 64 << 20)
    }

    fn estimator_of(delta: bool, store_bytes: u64) -> Estimator {
        let device = ScratchDevice::new(&std::env::temp_dir(), store_bytes)
            .expect("the file can be created");
        // Chunks have 8 KiB on average, and the seed of their cuts is 1.
        let settings = EstimateSettings {
            chunker: ChunkerParams::new(8 << 10, 1).expect("the size is supported"),
            methods: Methods::ALL,
            delta,
            bodies_max: 4,
        };
        Estimator::new(Arc::new(device), settings).expect("the store opens")
    }

    fn send(estimator: &mut Estimator, body: &[u8]) -> Savings {
        let before = estimator.savings();
        let stream = estimator
            .begin(b"", true)
            .expect("the limit of bodies is not reached");
        // Chunk boundaries depend on the content, so most of these parts end within a chunk.
        for part in body.chunks(70_001) {
            estimator.write(stream, part).expect("the stream is open");
        }
        estimator.end(stream).expect("the stream is open");
        estimator.savings().since(&before)
    }

    fn noise(bytes: usize, mut word: u64) -> Vec<u8> {
        let mut next = || {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (word >> 56) as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    /// A body of random bytes is sent uncompressed the first time and as references the second time. An edited
    /// copy is sent as references and a delta.
    #[test]
    fn a_repeated_body_costs_only_references() {
        let mut estimator = estimator(true);
        let body = noise(3_000_000, 7);
        let first = send(&mut estimator, &body);
        assert!(first.wire > first.bytes && first.wire < first.bytes / 100 * 101);
        assert_eq!(first.compressed, first.bytes);
        let repeated = send(&mut estimator, &body);
        assert!(repeated.wire < 10_000, "{repeated:?}");
        let mut edited = body.clone();
        edited.splice(1_500_000..1_500_010, *b"edited");
        let next = send(&mut estimator, &edited);
        assert!(next.wire < 15_000 && next.delta > 0, "{next:?}");
        let all = estimator.savings();
        assert_eq!(all.named + all.delta + all.literal + all.plain, all.bytes);
        assert_eq!(all.bodies, 3);
    }

    /// A body that is larger than the store is evicted before it is sent again. The sender counts its bytes.
    #[test]
    fn evicted_bytes_are_counted() {
        let mut estimator = estimator_of(true, 8 << 20);
        let body = noise(12_000_000, 9);
        assert_eq!(send(&mut estimator, &body).evicted, 0);
        let again = send(&mut estimator, &body);
        assert!(again.literal > 11_000_000, "{again:?}");
        assert!(again.evicted.abs_diff(again.literal) < 100_000, "{again:?}");
        assert_eq!(again.incompressible, again.literal);
    }

    /// Bodies without deduplication are neither looked up nor stored.
    #[test]
    fn a_body_without_dedup_is_sent_each_time() {
        let mut estimator = estimator(true);
        let body = noise(100_000, 8);
        for _ in 0..2 {
            let stream = estimator
                .begin(b"", false)
                .expect("the limit of bodies is not reached");
            estimator.write(stream, &body).expect("the stream is open");
            estimator.end(stream).expect("the stream is open");
        }
        let savings = estimator.savings();
        assert_eq!((savings.plain, savings.named), (200_000, 0));
        assert!(savings.wire > 200_000);
    }

    #[test]
    fn the_number_of_open_bodies_is_limited() {
        let mut estimator = estimator(false);
        for _ in 0..4 {
            estimator
                .begin(b"", true)
                .expect("the limit is four bodies");
        }
        assert_eq!(estimator.begin(b"", true), Err(SendError::TooManyStreams));
    }
}
