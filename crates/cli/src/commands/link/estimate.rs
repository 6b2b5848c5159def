//! `edgeward link estimate`: what a link would save, before there is one.
//!
//! Files go through the link's own sender in the order in which they are named, so an older version named first is known when the
//! newer one comes. Of a capture, what TCP connections said is sent. An access log has no bodies; of it is told how many bytes it sent again.

mod bodies;
mod capture;
mod document;
mod log;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};

use edgeward_analysis::{Names, recognise};
use edgeward_capture::is_capture;
use edgeward_chunk_store::estimate::{EstimateSettings, Estimator};
use edgeward_chunk_store::{OpenError, ScratchDevice};
use edgeward_dedup::chunker::ChunkerParams;
use edgeward_dedup::codec::Methods;
use edgeward_types::ByteSize;

use crate::complaint::Complaint;
use crate::output::{self, Progress};

use document::Document;

/// Say what a link would save
///
/// Files and folders: each file is a body, sent in the order of the arguments by the link's own sender, with
/// the compression it uses on a line slower than the processor. Name an older version first to see what an
/// update costs.
///
/// Captures (pcap, pcapng): each direction of each TCP connection is a body. TLS and SSH would be passed by.
///
/// Access logs: how many bytes were sent again for a URL that was sent before. They hold no bodies, so what
/// lies in common between different URLs is not seen.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct EstimateArgs {
    /// Files, folders, captures, access logs
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// What the paths are
    #[arg(long = "as", value_name = "KIND", value_enum, default_value_t = Kind::Auto)]
    kind: Kind,

    /// Bytes of a chunk on average: 4KiB to 64KiB
    #[arg(long, value_name = "SIZE", default_value = "8KiB")]
    chunk: ByteSize,

    /// Size of the store at both ends
    #[arg(long, value_name = "SIZE", default_value = "4GiB")]
    store_size: ByteSize,

    /// Where it lies meanwhile [default: TMPDIR, or /tmp]
    #[arg(long, value_name = "DIR")]
    temp: Option<PathBuf>,

    /// Do not compress new chunks against old ones
    #[arg(long)]
    no_delta: bool,

    /// Do not compress at all
    #[arg(long)]
    no_compression: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What a path is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Told from the file's beginning
    Auto,
    /// Bodies
    Files,
    /// Packets
    Capture,
    /// A log of requests
    Log,
}

/// Carries it out. What was counted is shown even if some of it could not be read.
pub(crate) fn run(args: &EstimateArgs) -> anyhow::Result<ExitCode> {
    let mut estimate = Estimate {
        estimator: args.estimator()?,
        document: Document::new(args),
        problems: Vec::new(),
        progress: Progress::new("reading", "bytes", None),
    };
    for path in &args.paths {
        match args.kind_of(path)? {
            Kind::Log => estimate.log(path, args)?,
            Kind::Capture => estimate.capture(path)?,
            Kind::Auto | Kind::Files => estimate.files(path)?,
        }
    }
    let Estimate {
        document, problems, ..
    } = estimate;
    if args.json {
        output::print_json(&document)?;
    } else {
        document.print()?;
    }
    let Some(first) = problems.first() else {
        return Ok(ExitCode::SUCCESS);
    };
    Err(Complaint::new(format!(
        "{} of the files could not be read and are left out, the first: {first}",
        problems.len()
    ))
    .into())
}

/// An estimate that goes on.
struct Estimate {
    estimator: Estimator,
    document: Document,
    /// What could not be read.
    problems: Vec<String>,
    progress: Progress,
}

impl EstimateArgs {
    fn estimator(&self) -> anyhow::Result<Estimator> {
        let average = u32::try_from(self.chunk.0).unwrap_or(u32::MAX);
        let chunker = ChunkerParams::new(average, 0)
            .map_err(|error| Complaint::new(format!("--chunk {}: {error}", self.chunk)))?;
        let folder = self.temp_folder();
        let device = ScratchDevice::new(&folder, self.store_size.0).map_err(|error| {
            Complaint::new(format!("no temporary file can be made: {error}"))
                .in_file(&folder)
                .hint("name another folder with --temp")
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
            OpenError::TooSmall { .. } => Complaint::new(format!(
                "--store-size {} is less than a store can have",
                self.store_size
            ))
            .hint("give 4MiB or more")
            .into(),
            error => anyhow::Error::new(error),
        })
    }

    fn temp_folder(&self) -> PathBuf {
        self.temp.clone().unwrap_or_else(std::env::temp_dir)
    }

    fn kind_of(&self, path: &Path) -> anyhow::Result<Kind> {
        if self.kind != Kind::Auto || path.is_dir() {
            return Ok(match self.kind {
                Kind::Auto => Kind::Files,
                kind => kind,
            });
        }
        let beginning =
            beginning(path).map_err(|error| Complaint::unreadable(path, "cannot read", &error))?;
        if is_capture(&beginning) {
            return Ok(Kind::Capture);
        }
        let is_log = recognise(&beginning, &Names::default()).is_ok();
        Ok(if is_log { Kind::Log } else { Kind::Files })
    }
}

/// Enough to tell what a file is.
fn beginning(path: &Path) -> io::Result<Vec<u8>> {
    let mut beginning = Vec::new();
    let file = File::open(path)?;
    file.take(BEGINNING_BYTES).read_to_end(&mut beginning)?;
    Ok(beginning)
}

/// As many streams as a link has.
const BODIES_MAX: usize = 1024;

const BEGINNING_BYTES: u64 = 16 << 10;

const EXAMPLES: &str = "\
Examples:
  edgeward link estimate releases/5.2.6 releases/5.2.7
  edgeward link estimate backup-monday.tar backup-tuesday.tar --chunk 64KiB
  tcpdump -i eth0 -s 0 -w office.pcap tcp; edgeward link estimate office.pcap
  edgeward link estimate /var/log/nginx/access.log
  edgeward link estimate old/ new/ --json | jq '.rows[1].saved_share'";
