//! `edgeward link estimate`: predicts the savings of a link.
//!
//! The command sends files through the link's own sender, in the order of the arguments, so that a newer
//! version is deduplicated against an older version. From a capture, it sends the data of the TCP connections.
//! An access log has no bodies, so the command only counts the bytes of responses to repeated URLs.

mod bodies;
mod capture;
mod content_types;
mod document;
mod log;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};

use edgeward_analysis::{FieldNames, detect_format};
use edgeward_capture::is_capture;
use edgeward_chunk_store::estimate::{EstimateSettings, Estimator};
use edgeward_chunk_store::{OpenError, ScratchDevice};
use edgeward_dedup::chunker::ChunkerParams;
use edgeward_dedup::codec::Methods;
use edgeward_types::ByteSize;

use crate::diagnostic::Diagnostic;
use crate::output::{self, Progress};

use super::endpoint::OnOff;

use content_types::ContentTypes;
use document::{BODIES_MAX, Document, Estimate, FileOrder, Row, larger_stores};

/// Predict the savings of a link
///
/// Files and folders: each file is a body. The link's own sender sends them in the order of the arguments, with
/// the compression that it uses when the network is slower than the CPU. To see the cost of an update, give the
/// older version first. For bodies that save less than half, the last lines state why, and what to do.
///
/// Images, sound, video and encrypted files are not cut into chunks, as by a link. Archives and compressed files are:
/// an identical copy is saved, an edited one is not.
///
/// Captures (pcap, pcapng): each direction of each TCP connection is a body. TLS and SSH are not deduplicated.
///
/// Access logs: counts the bytes that were sent for a URL whose response was sent before. Logs have no bodies,
/// so savings by data that several URLs have in common are not counted.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct EstimateArgs {
    /// Files, folders, captures, access logs
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Type of the paths
    #[arg(long = "as", value_name = "KIND", value_enum, default_value_t = PathKind::Auto)]
    kind: PathKind,

    /// Mean size of chunks, 4KiB to 64KiB
    #[arg(long, value_name = "SIZE", default_value = "8KiB")]
    chunk: ByteSize,

    /// Size of the store of each endpoint
    #[arg(long, value_name = "SIZE", default_value = "4GiB")]
    store_size: ByteSize,

    /// Folder of the temporary store [default: TMPDIR, or /tmp]
    #[arg(long, value_name = "DIR")]
    temp: Option<PathBuf>,

    /// Order of the files in a folder
    #[arg(long, value_name = "BY", value_enum, default_value_t = FileOrder::Name)]
    order: FileOrder,

    /// Do not chunk bodies that begin like TLS, SSH, images, sound or video, as a link does by default
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnOff::On)]
    probe: OnOff,

    /// Do not send new chunks as deltas against old ones
    #[arg(long)]
    no_delta: bool,

    /// Do not compress, and do not send deltas
    #[arg(long)]
    no_compression: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The type of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PathKind {
    /// Detected from the first bytes
    Auto,
    /// Files or folders of bodies
    Files,
    /// Captured packets
    Capture,
    /// An access log
    Log,
}

/// Runs the estimate. Prints the result even if some files could not be read.
pub(crate) fn run(args: &EstimateArgs) -> anyhow::Result<ExitCode> {
    let mut estimate = Estimate {
        estimator: args.estimator()?,
        document: Document {
            chunk_bytes: args.chunk.0,
            store_bytes: args.store_size.0,
            compression: !args.no_compression,
            delta: !args.no_delta && !args.no_compression,
            rows: Vec::new(),
            content_types: Vec::new(),
            evicted_too_early: Vec::new(),
            captures: Vec::new(),
            logs: Vec::new(),
        },
        problems: Vec::new(),
        progress: Progress::new("reading", "bytes", None),
        order: args.order,
        probe: args.probe == OnOff::On,
        content_types: ContentTypes::default(),
    };
    for path in &args.paths {
        match args.kind_of(path)? {
            PathKind::Log => estimate.log(path, args.temp_folder(), args.store_size)?,
            PathKind::Capture => estimate.capture(path)?,
            PathKind::Auto | PathKind::Files => estimate.files(path)?,
        }
    }
    let Estimate {
        mut document,
        problems,
        estimator,
        content_types,
        ..
    } = estimate;
    let sums = content_types.into_sums().into_iter();
    let rows = sums.map(|(name, saved)| Row::of(name, "content_type", &saved));
    document.content_types = rows.collect();
    let store = estimator.store();
    document.evicted_too_early = larger_stores(&store.counters().reuse, store.capacity_bytes());
    if args.json {
        output::print_json(&document)?;
    } else {
        document.print()?;
    }
    let Some(first) = problems.first() else {
        return Ok(ExitCode::SUCCESS);
    };
    Err(Diagnostic::new(format!(
        "{} files could not be read and are not counted, the first: {first}",
        problems.len()
    ))
    .into())
}

impl EstimateArgs {
    fn estimator(&self) -> anyhow::Result<Estimator> {
        let average = u32::try_from(self.chunk.0).unwrap_or(u32::MAX);
        let chunker = ChunkerParams::new(average, 0)
            .map_err(|error| Diagnostic::new(format!("--chunk {}: {error}", self.chunk)))?;
        let folder = self.temp_folder();
        let device = ScratchDevice::new(&folder, self.store_size.0).map_err(|error| {
            Diagnostic::new(format!("cannot create a temporary file: {error}"))
                .in_file(&folder)
                .hint("give another folder with --temp")
        })?;
        let settings = EstimateSettings {
            chunker,
            methods: if self.no_compression {
                Methods::NONE
            } else {
                Methods::ALL
            },
            delta: !self.no_delta && !self.no_compression,
            bodies_max: BODIES_MAX,
        };
        Estimator::new(Arc::new(device), settings).map_err(|error| match error {
            OpenError::TooSmall { .. } => {
                Diagnostic::new(format!("--store-size {} is too small", self.store_size))
                    .hint("give 4MiB or more")
                    .into()
            }
            error => anyhow::Error::new(error),
        })
    }

    fn temp_folder(&self) -> PathBuf {
        self.temp.clone().unwrap_or_else(std::env::temp_dir)
    }

    fn kind_of(&self, path: &Path) -> anyhow::Result<PathKind> {
        if self.kind != PathKind::Auto || path.is_dir() {
            return Ok(match self.kind {
                PathKind::Auto => PathKind::Files,
                kind => kind,
            });
        }
        let beginning =
            beginning(path).map_err(|error| Diagnostic::unreadable(path, "cannot read", &error))?;
        if is_capture(&beginning) {
            return Ok(PathKind::Capture);
        }
        let is_log = detect_format(&beginning, &FieldNames::default()).is_ok();
        Ok(if is_log {
            PathKind::Log
        } else {
            PathKind::Files
        })
    }
}

/// Reads the first bytes of a file, enough to detect its type.
fn beginning(path: &Path) -> io::Result<Vec<u8>> {
    let mut beginning = Vec::new();
    let file = File::open(path)?;
    file.take(BEGINNING_BYTES).read_to_end(&mut beginning)?;
    Ok(beginning)
}

/// The number of bytes from which the type of a file is detected.
const BEGINNING_BYTES: u64 = 16 << 10;

const EXAMPLES: &str = "\
Examples:
  edgeward link estimate releases/5.2.6 releases/5.2.7
  edgeward link estimate --order time /srv/releases --store-size 20GiB
  edgeward link estimate backup-monday.tar backup-tuesday.tar --chunk 64KiB
  tcpdump -i eth0 -s 0 -w office.pcap tcp; edgeward link estimate office.pcap
  edgeward link estimate /var/log/nginx/access.log
  edgeward link estimate old/ new/ --json | jq '.rows[1].saved_share'";
