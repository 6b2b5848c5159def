//! Measures the speed of the chunker and the deduplication it achieves, compared with FastCDC, on the files of a
//! folder.
//!
//! `cargo run --release -p edgeward-dedup --example chunk_speed -- /usr/share/doc`

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use edgeward_dedup::chunker::{Chunker, ChunkerParams, Prefilter};

/// The maximum number of bytes that are read from the folders.
const BYTES_MAX: usize = 350 << 20;

/// The number of measurements of each chunker. The fastest one counts.
const ROUNDS: usize = 5;

fn main() {
    let mut files = Vec::new();
    let folders = std::env::args_os().skip(1).map(PathBuf::from);
    let read = folders.fold(0, |read, folder| {
        read + gather(&folder, BYTES_MAX - read, &mut files)
    });
    if files.is_empty() {
        eprintln!("usage: chunk_speed FOLDER…");
        std::process::exit(2);
    }
    eprintln!("{} files, {} MB", files.len(), read / 1_000_000);
    let whole = files.concat();
    for average in [4096, 8192, 16384, 65536] {
        // The seed 0 is arbitrary: another seed moves the cuts, but not their average distance.
        let params = ChunkerParams::new(average, 0).expect("the average is a power of two");
        // All prefilters find the same cuts, at different speeds.
        let ours = |prefilter: Prefilter| {
            move |body: &[u8]| lengths(Chunker::with_prefilter(params, prefilter), body)
        };
        report(
            average,
            Prefilter::best(),
            &whole,
            &files,
            ours(Prefilter::best()),
        );
        report(
            average,
            Prefilter::Scalar,
            &whole,
            &files,
            ours(Prefilter::Scalar),
        );
        report(average, "FastCDC", &whole, &files, |body| {
            let average = params.average();
            let chunks = fastcdc::v2020::FastCDC::new(body, average / 4, average, average * 8);
            chunks.map(|chunk| chunk.length).collect()
        });
    }
}

fn lengths(mut chunker: Chunker, body: &[u8]) -> Vec<usize> {
    let (mut lengths, mut rest) = (Vec::new(), body);
    while let Some(length) = chunker.next_cut(rest) {
        lengths.push(length);
        rest = &rest[length..];
    }
    lengths.extend((!rest.is_empty()).then_some(rest.len()));
    lengths
}

/// Prints the speed of `cut` over `whole`, the joined files, and the deduplication if each file is cut alone: the
/// bytes of all files divided by the bytes of their distinct chunks.
#[expect(clippy::print_stdout, reason = "an example's result")]
fn report(
    average: u32,
    name: impl std::fmt::Display,
    whole: &[u8],
    files: &[Vec<u8>],
    cut: impl Fn(&[u8]) -> Vec<usize>,
) {
    let seconds = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        std::hint::black_box(cut(std::hint::black_box(whole)));
        start.elapsed().as_secs_f64()
    });
    let seconds = seconds.fold(f64::INFINITY, f64::min);
    let (mut seen, mut new, mut all) = (HashSet::new(), 0, 0);
    for file in files {
        let mut rest = &file[..];
        for length in cut(file) {
            let (chunk, later) = rest.split_at(length);
            let first = seen.insert(edgeward_types::xxh3::xxh3_128(chunk));
            new += if first { length } else { 0 };
            all += length;
            rest = later;
        }
    }
    let speed = whole.len() as f64 / seconds / 1e9;
    let ratio = all as f64 / f64::from(u32::try_from(new).expect("the total is below 4 GB"));
    println!("{average:>6} {name:<8} {speed:6.2} GB/s  dedup {ratio:.4}");
}

/// Reads the files in `folder`, up to `bytes_max` bytes in total. Returns the number of bytes read.
fn gather(folder: &Path, bytes_max: usize, files: &mut Vec<Vec<u8>>) -> usize {
    let entries = fs::read_dir(folder).map(|entries| entries.flatten().map(|entry| entry.path()));
    let Ok(mut paths) = entries.map(Iterator::collect::<Vec<_>>) else {
        return 0;
    };
    paths.sort();
    paths.iter().fold(0, |read, path| {
        if path.is_symlink() || read >= bytes_max {
            read
        } else if path.is_dir() {
            read + gather(path, bytes_max - read, files)
        } else {
            let mut file = fs::read(path).unwrap_or_default();
            file.truncate(bytes_max - read);
            let length = file.len();
            files.push(file);
            read + length
        }
    })
}
