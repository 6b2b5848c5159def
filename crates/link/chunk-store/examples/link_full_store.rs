//! Writes a full chunk store to a sparse file, to measure how long an endpoint with a large store takes to start.
//!
//! ```sh
//! cargo run --release --package edgeward-chunk-store --example link_full_store -- FILE GIB [--save | --open]
//! ```
//!
//! Each container has a trailer with as many random chunk hashes as a container of chunks of 8 KiB has, and no bytes of
//! chunks. The file takes 4 KiB of disk space for each MiB of the store. With `--save`, the saved index is written to
//! `FILE.index`, as at a shutdown. `edgeward gateway --store FILE --store-size …` then opens the store. `--open` opens
//! an existing file like an endpoint, which listens as soon as the store is open. It also prints when the index is
//! complete.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use edgeward_chunk_store::format::{Layout, Superblock, Trailer, VERSION_RAW};
use edgeward_chunk_store::{ChunkSettings, Chunks};
use edgeward_dedup::id::ChunkId;
use edgeward_dedup::store::Entry;
use edgeward_store::disk::{Device as _, FileDevice};
use edgeward_types::SplitMix64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, gib, rest @ ..] = &arguments[..] else {
        return Err("give FILE and GIB".into());
    };
    let bytes = gib.parse::<u64>()? << 30;
    let path = PathBuf::from(path);
    let mut index = path.clone().into_os_string();
    index.push(".index");
    let settings = ChunkSettings {
        checkpoint: Some(index.into()),
        ..ChunkSettings::new(8 << 10, EPOCH)
    };
    if rest == ["--open"] {
        return open(&FileDevice::open(&path, Some(bytes))?.into(), settings);
    }
    // A file of this length needs no allocation, so it stays sparse.
    std::fs::File::create(&path)?.set_len(bytes)?;
    let device = FileDevice::open(&path, Some(bytes))?;
    let superblock = Superblock {
        version: VERSION_RAW,
        epoch: EPOCH,
        layout: Layout::DEFAULT,
    };
    device.write_at(&superblock.encode(), 0)?;
    let containers = Layout::DEFAULT.containers(bytes);
    let start = Instant::now();
    let mut trailer = Vec::new();
    // The oldest container is missing, because a container that was lost in a crash would be overwritten next.
    for number in 0..containers - 1 {
        let mut random = SplitMix64(u64::from(number));
        let entries = (0..CHUNKS).map(|_| Entry {
            id: ChunkId(
                [random.draw().to_le_bytes(), random.draw().to_le_bytes()].concat()[..]
                    .try_into()
                    .expect("two words have sixteen bytes"),
            ),
            length: 1_048_576 / CHUNKS,
        });
        let listed = Trailer {
            number,
            entries: entries.collect(),
            blocks: Vec::new(),
        };
        trailer.clear();
        listed.encode(Layout::DEFAULT, EPOCH, &mut trailer);
        let at = Layout::DEFAULT.offset(number) + Layout::DEFAULT.container_bytes() as u64;
        device.write_at(&trailer[..4096], at)?;
    }
    device.sync()?;
    let mut out = io::stdout();
    writeln!(out, "{containers} containers in {:.1?}", start.elapsed())?;
    if rest == ["--save"] {
        let start = Instant::now();
        let store = Chunks::open(Arc::new(device), settings)?;
        writeln!(
            out,
            "recovered from all trailers in {:.1?}",
            start.elapsed()
        )?;
        let start = Instant::now();
        store.save_checkpoint()?;
        writeln!(
            out,
            "saved {} bytes in {:.1?}",
            store.counters().index_bytes,
            start.elapsed()
        )?;
    }
    Ok(())
}

/// Opens a store, and waits until its index is complete.
fn open(
    device: &Arc<FileDevice>,
    settings: ChunkSettings,
) -> Result<(), Box<dyn std::error::Error>> {
    let start = Instant::now();
    let (sender, recovered) = std::sync::mpsc::channel();
    let store = Chunks::open_in_background(Arc::clone(device) as _, settings, move |report| {
        _ = sender.send(report);
    })?;
    let open = start.elapsed();
    let report = recovered.recv()?;
    writeln!(
        io::stdout(),
        "open after {open:.1?}; complete after {:.1?}: {report:?}; {} chunks",
        start.elapsed(),
        store.counters().indexed,
    )?;
    Ok(())
}

const EPOCH: u64 = 7;

/// The number of chunks in a container of 1 MiB: chunks of 8 KiB on average have 9.2 KB in the mean.
const CHUNKS: u32 = 113;
