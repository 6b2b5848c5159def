//! Measures how many bytes the link sends for some folders or files. Both endpoints run in this process with their
//! stores and compressors, without a network.
//!
//! ```sh
//! cargo run --release --package edgeward-chunk-store --example link_savings -- [--json] [--average 8192] OLD NEW…
//! ```
//!
//! Each file is one body. The files of the first path are sent first, so that later paths benefit from their
//! chunks. `--average` is the average chunk size in bytes. Times are the CPU time of both endpoints together.
//!
//! The bytes of the bodies are divided into four parts: bytes replaced by references (`named`), new chunks compressed
//! against old chunks (`delta`), other new chunks (`literal`), and bytes sent without deduplication (`plain`). For
//! comparison, zstd compresses each file alone in pieces of 256 KiB. `bench/link/tool.py` reads the JSON. Its `wire` is
//! the bytes of all frames in both directions; `naks` is the number of frames that the receiver refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use edgeward_chunk_store::codec::Compressors;
use edgeward_chunk_store::{ChunkSettings, Chunks};
use edgeward_dedup::buffer::Pool;
use edgeward_dedup::chunker::ChunkerParams;
use edgeward_dedup::codec::{Codec, Method, Methods};
use edgeward_dedup::endpoint::{Endpoint, EndpointConfig, Event};
use edgeward_dedup::id::IdKey;
use edgeward_dedup::receiver::{ReceiverConfig, ReceiverEvent, TakeResult};
use edgeward_dedup::sender::{Lane, SenderConfig};
use edgeward_dedup::wire::{Role, decode, frame_length};
use edgeward_store::disk::FileDevice;

/// The highest number of bytes of one write.
const WRITE_BYTES: usize = 256 << 10;

/// An endpoint of the link with its store.
struct Peer {
    endpoint: Endpoint,
    store: Chunks,
    codec: Compressors,
}

impl Peer {
    /// Creates an endpoint with an empty store. `number` is the endpoint's session and the epoch of its store.
    fn new(folder: &Path, name: &str, average: u32, number: u64) -> Self {
        let device =
            FileDevice::open(&folder.join(name), Some(2 << 30)).expect("the device can be created");
        let chunker = ChunkerParams::new(average, 1).expect("a power of two from 4096 to 65536");
        let mut peer = Self {
            endpoint: Endpoint::new(EndpointConfig {
                id_key: IdKey::new([1; 32]),
                sender: SenderConfig::new(chunker, Methods::ALL),
                receiver: ReceiverConfig::default(),
                containers_max: 1 << 20,
                session: number,
                pool: Pool::default(),
            }),
            store: Chunks::open(Arc::new(device), ChunkSettings::new(average, number))
                .expect("the store opens"),
            codec: Compressors::new(),
        };
        peer.endpoint.set_own_epoch(number);
        peer
    }

    /// Appends all ready frames to `out`. They are encoded for a link that is always busy, so that the compressor
    /// uses its strongest method.
    fn transmit(&mut self, out: &mut Vec<u8>) {
        while self
            .endpoint
            .transmit(Lane::Any, true, &mut self.codec, out)
            || self.answer_requests()
        {}
    }

    /// Answers the requests to the store. Returns true if there was one.
    fn answer_requests(&mut self) -> bool {
        let mut has_answered = false;
        while let Some((id, request)) = self.endpoint.request() {
            let answer = self
                .store
                .answer(&request, self.endpoint.id_key(), self.endpoint.pool());
            if let Some(answer) = answer {
                self.endpoint
                    .complete(id, answer, &mut self.codec)
                    .expect("the peer follows the protocol");
            }
            has_answered = true;
        }
        has_answered
    }

    /// Handles the frames in `bytes`.
    fn handle(&mut self, mut bytes: &[u8]) {
        while let Some(length) = frame_length(bytes).expect("the peer's frames are valid") {
            let (frame, rest) = bytes.split_at(length);
            let frame = decode(frame).expect("the peer's frames are valid");
            let handled = self.endpoint.handle(frame, None, &mut self.codec);
            assert_eq!(handled, Ok(()), "the frame is valid");
            self.answer_requests();
            bytes = rest;
        }
    }
}

/// Sends a body, and returns the encoded bytes of all frames in both directions.
fn send(from: &mut Peer, to: &mut Peer, body: &[u8], out: &mut Vec<u8>) -> usize {
    let stream = from
        .endpoint
        .open(b"", true)
        .expect("the limit of bodies is not reached");
    let (mut rest, mut wire, mut received, mut is_closed) = (body, 0, 0, false);
    loop {
        let written = from
            .endpoint
            .write(stream, &rest[..rest.len().min(WRITE_BYTES)]);
        from.answer_requests();
        rest = &rest[written.unwrap_or(0)..];
        if rest.is_empty() && !is_closed {
            from.endpoint.close(stream).expect("the stream is open");
            from.answer_requests();
            is_closed = true;
        }
        out.clear();
        from.transmit(out);
        wire += out.len();
        to.handle(out);
        let mut is_complete = false;
        while let Some(event) = to.endpoint.event() {
            let Event::Received(
                ReceiverEvent::Ready(stream) | ReceiverEvent::Opened { stream, .. },
            ) = event
            else {
                continue;
            };
            loop {
                match to.endpoint.take(stream) {
                    TakeResult::Bytes(bytes) => received += bytes.len(),
                    TakeResult::Complete => is_complete = true,
                    TakeResult::Wait | TakeResult::Unknown => break,
                    TakeResult::Failed(reason) => panic!("a stream failed with reason {reason}"),
                }
            }
        }
        out.clear();
        to.transmit(out);
        wire += out.len();
        from.handle(out);
        while from.endpoint.event().is_some() {}
        if is_complete {
            assert_eq!(received, body.len());
            return wire;
        }
    }
}

#[expect(clippy::print_stdout, reason = "an example's result")]
fn main() {
    let (mut json, mut average, mut paths) = (false, 8192, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => json = true,
            "--average" => {
                let value = arguments.next().and_then(|value| value.parse().ok());
                average = value.expect("the value is a number");
            }
            _ => paths.push(argument),
        }
    }
    if paths.is_empty() {
        eprintln!("usage: link_savings [--json] [--average BYTES] PATH…");
        std::process::exit(2);
    }
    let folder = tempfile::tempdir().expect("the folder can be created");
    let mut peers = ["sender", "receiver"]
        .map(|name| Peer::new(folder.path(), name, average, name.len() as u64));
    let [from, to] = &mut peers;
    let (ours, theirs) = (from.endpoint.hello(), to.endpoint.hello());
    from.endpoint
        .handle_hello(Role::Connector, &ours, &theirs)
        .expect("the endpoints are compatible");
    to.endpoint
        .handle_hello(Role::Listener, &theirs, &ours)
        .expect("the endpoints are compatible");

    for path in &paths {
        let mut files = Vec::new();
        collect_files(Path::new(path), &mut files);
        let before = from.endpoint.sender().counters();
        let (mut codec, mut packed, mut out) = (Compressors::new(), Vec::new(), Vec::new());
        let (mut raw, mut zstd_bytes, mut wire, mut seconds) = (0, 0, 0, 0.0);
        for file in &files {
            let body = fs::read(file).expect("the file can be read");
            raw += body.len();
            for piece in body.chunks(256 << 10) {
                packed.clear();
                let shorter = codec.compress(Method::Zstd, &[], piece, &mut packed);
                zstd_bytes += if shorter { packed.len() } else { piece.len() };
            }
            let start = cpu_seconds();
            wire += send(from, to, &body, &mut out);
            seconds += cpu_seconds() - start;
        }
        let now = from.endpoint.sender().counters();
        let (named, delta) = (now.referenced - before.referenced, now.delta - before.delta);
        let (literal, plain) = (now.literal - before.literal, now.plain - before.plain);
        let naks = now.naks - before.naks;
        let bodies = files.len();
        if json {
            println!(
                r#"{{"path":{path:?},"average":{average},"bodies":{bodies},"bytes":{raw},"wire":{wire},"zstd_1_by_256k":{zstd_bytes},"cpu_seconds":{seconds:.4},"named":{named},"delta":{delta},"literal":{literal},"plain":{plain},"naks":{naks}}}"#,
            );
            continue;
        }
        let share = |part: u64| part as f64 / raw as f64 * 100.0;
        println!(
            "{path}: {bodies} bodies {:.1} MB  link {:.2}x  zstd-1 {:.2}x  {:.0} MB/s  named {:.0} % delta {:.0} % literal {:.0} % plain {:.0} %, {naks} NAKs",
            raw as f64 / 1e6,
            raw as f64 / wire as f64,
            raw as f64 / zstd_bytes as f64,
            raw as f64 / 1e6 / seconds,
            share(named),
            share(delta),
            share(literal),
            share(plain),
        );
    }
    if !json {
        println!("receiver's store: {:?}", to.store.counters());
    }
}

/// Returns the CPU time of this thread in seconds. The example has no other thread.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Appends the file at a path, or all files in the folder at the path, sorted by name.
fn collect_files(path: &Path, files: &mut Vec<PathBuf>) {
    if path.is_file() {
        files.push(path.to_owned());
        return;
    }
    let entries = fs::read_dir(path).map(|entries| entries.flatten().map(|entry| entry.path()));
    let mut paths: Vec<PathBuf> = entries.map(Iterator::collect).unwrap_or_default();
    paths.sort();
    let inside = paths.iter().filter(|path| !path.is_symlink());
    inside.for_each(|path| collect_files(path, files));
}
