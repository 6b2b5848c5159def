//! An estimate in progress, and its result as a table or as JSON.

use std::io::Write as _;

use clap::ValueEnum;
use serde::{Serialize, Serializer};

use edgeward_chunk_store::estimate::{Estimator, Savings};
use edgeward_chunk_store::{ReuseCounters, STORE_MULTIPLES};
use edgeward_types::ByteSize;

use crate::commands::link::reasons::{Context, Forms, Share};
use crate::output::{self, Column, Progress, Table, count, percent};

use super::content_types::ContentTypes;

/// An estimate in progress.
pub(super) struct Estimate {
    pub(super) estimator: Estimator,
    pub(super) document: Document,
    /// The files that could not be read, and their errors.
    pub(super) problems: Vec<String>,
    pub(super) progress: Progress,
    pub(super) order: FileOrder,
    /// True if encrypted files, images, sound and video are not deduplicated.
    pub(super) probe: bool,
    pub(super) content_types: ContentTypes,
}

/// The order in which the files of a folder are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum FileOrder {
    /// By path
    Name,
    /// By the time of the last change, the oldest first
    Time,
}

/// The maximum number of concurrent bodies, equal to the default maximum of streams of a link.
pub(super) const BODIES_MAX: usize = 1024;

/// The result of an estimate.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    /// The mean size of chunks.
    pub(super) chunk_bytes: u64,
    /// The size of the store of each endpoint.
    pub(super) store_bytes: u64,
    pub(super) compression: bool,
    pub(super) delta: bool,
    /// The savings of bodies: one row for each file or folder argument, several for a capture (by port).
    pub(super) rows: Vec<Row>,
    /// The savings of the files by their content type: the detected type of encrypted files, images, sound and
    /// video, the extension of all others.
    pub(super) content_types: Vec<Row>,
    /// An estimate of the bytes in chunks that were evicted before they were sent again, for stores of several sizes.
    /// Each size includes the chunks of the smaller ones.
    pub(super) evicted_too_early: Vec<LargerStore>,
    /// The packet counts of captures.
    pub(super) captures: Vec<CaptureRow>,
    /// The results of access logs.
    pub(super) logs: Vec<LogRow>,
}

/// The savings of a group of bodies.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    name: String,
    /// The source of the bodies: `files`, `flows` of a capture, or `total`.
    kind: &'static str,
    bodies: u64,
    /// The total size of the bodies: the sum of the fields `referenced_bytes`, `delta_bytes`, `literal_bytes` and
    /// `plain_bytes`.
    bytes: u64,
    /// The total size of the frames that the link would send.
    link_bytes: u64,
    /// `1 - link_bytes / bytes`.
    #[serde(serialize_with = "finite")]
    saved_share: f64,
    /// For comparison, the size of the bodies after compression with zstd alone.
    compressed_bytes: u64,
    /// `1 - compressed_bytes / bytes`.
    #[serde(serialize_with = "finite")]
    compressed_saved_share: f64,
    /// The bytes in known chunks, which are sent as references.
    referenced_bytes: u64,
    /// The old name of `referenced_bytes`. The next version removes it.
    named_bytes: u64,
    /// The bytes in new chunks that are sent as deltas.
    delta_bytes: u64,
    /// The bytes in all other new chunks.
    literal_bytes: u64,
    /// The part of `literal_bytes` that looks encrypted or compressed.
    incompressible_bytes: u64,
    /// An estimate of the part of `delta_bytes` and `literal_bytes` in chunks that the store had evicted.
    evicted_bytes: u64,
    /// The bytes that the link neither looks up nor stores, `unkept` in the table: the first bytes of each body, and
    /// small or encrypted bodies.
    plain_bytes: u64,
    /// The part of `plain_bytes` in bodies that are not deduplicated as a whole.
    bypassed_bytes: u64,
    /// Why bytes are sent neither as references nor as deltas.
    reasons: Vec<Share>,
}

/// A store that would have kept chunks that were evicted too early.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LargerStore {
    store_bytes: u64,
    bytes: u64,
}

/// The packet counts of a capture.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CaptureRow {
    pub(super) name: String,
    pub(super) packets: u64,
    /// The number of packets of other protocols than TCP.
    pub(super) not_tcp: u64,
    pub(super) connections: u64,
    /// The number of bytes that TCP retransmitted.
    pub(super) repeated_bytes: u64,
    /// The number of bytes that are not in the estimate: the capture lacks them, or has them too far out of order.
    pub(super) lost_bytes: u64,
}

/// The result of an access log.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LogRow {
    pub(super) name: String,
    pub(super) requests: u64,
    /// The number of different URLs.
    pub(super) urls: u64,
    pub(super) bytes: u64,
    /// The bytes of responses for URLs that were sent before.
    pub(super) repeated_bytes: u64,
}

impl Row {
    /// The row of a group of bodies with these savings.
    pub(super) fn of(name: String, kind: &'static str, saved: &Savings) -> Self {
        let mut row = Self {
            name,
            kind,
            bodies: saved.bodies,
            bytes: saved.bytes,
            link_bytes: saved.wire,
            saved_share: saved_share(saved.wire, saved.bytes),
            compressed_bytes: saved.compressed,
            compressed_saved_share: saved_share(saved.compressed, saved.bytes),
            referenced_bytes: saved.named,
            named_bytes: saved.named,
            delta_bytes: saved.delta,
            literal_bytes: saved.literal,
            incompressible_bytes: saved.incompressible,
            evicted_bytes: saved.evicted,
            plain_bytes: saved.plain,
            bypassed_bytes: saved.bypassed,
            reasons: Vec::new(),
        };
        row.reasons = row.forms().reasons();
        row
    }

    fn explanation(&self, context: &Context) -> Option<String> {
        self.forms().explanation(&self.name, context)
    }

    fn forms(&self) -> Forms {
        Forms {
            bytes: self.bytes,
            wire: self.link_bytes,
            referenced: self.referenced_bytes,
            delta: self.delta_bytes,
            literal: self.literal_bytes,
            incompressible: self.incompressible_bytes,
            evicted: self.evicted_bytes,
            plain: self.plain_bytes,
            bypassed: self.bypassed_bytes,
        }
    }

    fn cells(&self) -> [String; 10] {
        let share = |bytes: u64| percent(bytes as f64 / self.bytes as f64);
        [
            self.name.clone(),
            count(self.bodies),
            ByteSize(self.bytes).to_string(),
            ByteSize(self.link_bytes).to_string(),
            percent(self.saved_share),
            percent(self.compressed_saved_share),
            share(self.referenced_bytes),
            share(self.delta_bytes),
            share(self.literal_bytes),
            share(self.plain_bytes),
        ]
    }
}

impl Document {
    /// Prints the result as tables.
    pub(super) fn print(&self) -> anyhow::Result<()> {
        let mut out = output::stdout();
        if !self.rows.is_empty() {
            write!(out, "{}", self.bodies())?;
            writeln!(
                out,
                "\nsaved: share of the bytes; zstd: saved by compression alone; referenced: found in the store; \
                 delta: similar to stored data; new: neither; unkept: not stored (first bytes of bodies, small \
                 or encrypted bodies)"
            )?;
            if self.content_types.len() > 1 {
                write!(out, "\n{}", self.content_types())?;
            }
            let types = self.content_types.iter();
            let bypassed = types.map(|row| (row.name.as_str(), row.bypassed_bytes));
            let context = Context::new(sufficient_store(&self.evicted_too_early), bypassed);
            let explained = if self.rows.len() > 1 {
                &[&self.rows[..], &[self.total()]].concat()
            } else {
                &self.rows
            };
            for text in explained.iter().filter_map(|row| row.explanation(&context)) {
                write!(out, "\n{text}")?;
            }
        }
        for capture in &self.captures {
            writeln!(
                out,
                "{}: {} packets, {} of them not TCP; {} connections; {} retransmitted by TCP, {} missing \
                 or too far out of order",
                capture.name,
                count(capture.packets),
                count(capture.not_tcp),
                count(capture.connections),
                ByteSize(capture.repeated_bytes),
                ByteSize(capture.lost_bytes),
            )?;
        }
        if !self.logs.is_empty() {
            if !self.rows.is_empty() {
                writeln!(out)?;
            }
            write!(out, "{}", self.requests())?;
            writeln!(
                out,
                "\nrepeated: bytes of further responses to the same URLs, which a link would save; it also saves by \
                 compression, and by data that several URLs share"
            )?;
        }
        out.flush()?;
        Ok(())
    }

    fn content_types(&self) -> Table {
        let figures = ["bodies", "bytes", "sent", "saved"];
        let columns = std::iter::once(Column::words("content type"));
        let mut table = Table::new(columns.chain(figures.map(Column::figures)));
        for row in &self.content_types {
            let cells = row.cells();
            table.row(cells.into_iter().take(1 + figures.len()));
        }
        table
    }

    fn bodies(&self) -> Table {
        let figures = [
            "bodies",
            "bytes",
            "sent",
            "saved",
            "zstd",
            "referenced",
            "delta",
            "new",
            "unkept",
        ];
        let columns = std::iter::once(Column::words("source"));
        let mut table = Table::new(columns.chain(figures.map(Column::figures)));
        for row in &self.rows {
            table.row(row.cells());
        }
        if self.rows.len() > 1 {
            table.row(self.total().cells());
        }
        table
    }

    fn total(&self) -> Row {
        let sum = |figure: fn(&Row) -> u64| self.rows.iter().map(figure).sum();
        let all = Savings {
            bodies: sum(|row| row.bodies),
            bytes: sum(|row| row.bytes),
            wire: sum(|row| row.link_bytes),
            compressed: sum(|row| row.compressed_bytes),
            named: sum(|row| row.referenced_bytes),
            delta: sum(|row| row.delta_bytes),
            literal: sum(|row| row.literal_bytes),
            incompressible: sum(|row| row.incompressible_bytes),
            evicted: sum(|row| row.evicted_bytes),
            plain: sum(|row| row.plain_bytes),
            bypassed: sum(|row| row.bypassed_bytes),
        };
        Row::of("total".to_owned(), "total", &all)
    }

    fn requests(&self) -> Table {
        let figures = ["requests", "URLs", "bytes", "repeated", "share"];
        let columns = std::iter::once(Column::words("log"));
        let mut table = Table::new(columns.chain(figures.map(Column::figures)));
        for row in &self.logs {
            table.row([
                row.name.clone(),
                count(row.requests),
                count(row.urls),
                ByteSize(row.bytes).to_string(),
                ByteSize(row.repeated_bytes).to_string(),
                percent(row.repeated_bytes as f64 / row.bytes as f64),
            ]);
        }
        table
    }
}

/// Returns the sizes of larger stores, with the bytes that they would have kept.
pub(super) fn larger_stores(reuse: &ReuseCounters, store_bytes: u64) -> Vec<LargerStore> {
    let mut bytes = 0;
    let returned = STORE_MULTIPLES.iter().zip(reuse.returned_bytes);
    let stores = returned.map(|(multiple, returned)| {
        bytes += returned;
        LargerStore {
            store_bytes: u64::from(*multiple) * store_bytes,
            bytes,
        }
    });
    stores.collect()
}

/// Returns the smallest size of a store that would have kept at least nine tenths of the evicted chunks.
fn sufficient_store(stores: &[LargerStore]) -> Option<u64> {
    let all = stores.last()?.bytes;
    let smallest = stores.iter().find(|store| store.bytes * 10 >= all * 9)?;
    Some(smallest.store_bytes).filter(|_| all > 0)
}

/// The share of `bytes` that was saved because only `sent` bytes were sent. NaN if `bytes` is 0.
fn saved_share(sent: u64, bytes: u64) -> f64 {
    1.0 - sent as f64 / bytes as f64
}

/// Serializes a number. NaN and infinities become null, because JSON does not have them.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn finite<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    value.is_finite().then_some(*value).serialize(serializer)
}
