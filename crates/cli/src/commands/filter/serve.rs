//! `edgeward filter serve`: publishes a set of ids until a signal stops it.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde_json::json;

use edgeward_filter::guava::Funnel;
use edgeward_filter::{IdForm, IdHasher, Rate};
use edgeward_filter_client::system_clock;
use edgeward_idsync::{Ledger, Scan, ScanConfig, SourceError};
use edgeward_publish::{
    AllowedOrigins, Coverage, IdSource, OriginError, PublishConfig, PublishError, Publisher,
    RunningPublisher, ScanError, StateError, Token,
};

use super::build::check_share;
use super::changes::{ChangesArgs, PreparedPolls};
use super::database::DatabaseArgs;
use super::keygen;
use super::source::{FileSource, SourceArgs};
use crate::commands::flag_values::{address, duration};
use crate::descriptors;
use crate::diagnostic::Diagnostic;
use crate::output;
use crate::signals::Signals;

/// Publish an id filter by HTTP: scheduled snapshots, and deltas for added ids
#[derive(Args, Debug)]
#[command(
    after_long_help = EXAMPLES,
    override_usage = "edgeward filter serve [OPTIONS] --source FILE --set NAME --state DIR"
)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    source: SourceArgs,

    #[command(flatten)]
    database: DatabaseArgs,

    #[command(flatten)]
    changes: ChangesArgs,

    /// Name of the set, as in /sets/NAME
    #[arg(long, value_name = "NAME")]
    set: String,

    /// Folder of the journal and the snapshot
    #[arg(long, value_name = "DIR")]
    state: PathBuf,

    /// Address for clients; port 0 selects a free port
    #[arg(long, default_value = "127.0.0.1:8090", value_parser = address, value_name = "ADDR")]
    listen: SocketAddr,

    /// Address of /metrics and /status
    #[arg(long, value_parser = address, value_name = "ADDR", hide_short_help = true)]
    admin: Option<SocketAddr>,

    /// Secret key that signs manifests, from `edgeward filter keygen`
    #[arg(long, value_name = "FILE", required_unless_present = "unsigned")]
    key: Option<PathBuf>,

    /// Do not sign: clients must trust the connection
    #[arg(long, conflicts_with = "key", hide_short_help = true)]
    unsigned: bool,

    /// File of the token that writers need to post ids
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,

    /// False-positive rate: 0.01 or 1%
    ///
    /// The share of absent ids that may be reported as present.
    #[arg(long, value_name = "RATE", default_value = "1%")]
    fpr: Rate,

    /// Form of the ids: text, uuid, integer
    #[arg(long, value_name = "FORM", default_value = "text")]
    ids: IdForm,

    /// Time between the starts of two scans, such as 10min
    #[arg(long, value_parser = duration, default_value = "60min", value_name = "TIME")]
    every: Duration,

    /// Source of the guarantee that no id is missing: scans, posts or changes [default: changes if they
    /// are polled, else scans]
    #[arg(long, value_enum, value_name = "WHAT", hide_short_help = true)]
    covered_by: Option<CoveredBy>,

    /// Time within which a writer commits a posted id or posts it again
    #[arg(long, value_parser = duration, default_value = "5min", value_name = "TIME", hide_short_help = true)]
    commit_within: Duration,

    /// Reject a scan whose number of ids is below this share of the last scan's number; 0 also accepts a scan without
    /// ids
    #[arg(
        long,
        default_value_t = 0.5,
        value_name = "SHARE",
        hide_short_help = true
    )]
    least_share: f64,

    /// Time for which caches may store a manifest
    #[arg(long, value_parser = duration, default_value = "1s", value_name = "TIME", hide_short_help = true)]
    manifest_max_age: Duration,

    /// Seed of the hash of ids, the same for all builds of a set
    #[arg(long, value_name = "N", default_value_t = 0, hide_short_help = true)]
    hash_seed: u64,

    /// Maximum number of ids; each takes 8 bytes while building
    #[arg(long, value_name = "N", default_value_t = 1 << 30, hide_short_help = true)]
    ids_max: u64,

    /// Skip and count ids that do not have the form of --ids, instead of rejecting the scan
    #[arg(long, hide_short_help = true)]
    skip_malformed: bool,

    /// Also publish each snapshot in Guava's format, at /sets/NAME/guava: utf8, unencoded-chars,
    /// long
    #[arg(long, value_name = "FUNNEL", hide_short_help = true)]
    guava: Option<Funnel>,

    /// Origin whose web pages may read the set, such as `https://shop.example`; repeatable; * for all
    #[arg(long, value_name = "ORIGIN", hide_short_help = true)]
    allow_origin: Vec<String>,

    /// Maximum of open connections; a further one displaces the connection that has waited longest for its
    /// client
    #[arg(long, value_name = "N", default_value_t = 4096, hide_short_help = true)]
    connections_max: usize,

    /// Maximum of open connections per IPv4 address or IPv6 /64 network [default: half]
    #[arg(long, value_name = "N", hide_short_help = true)]
    connections_per_client: Option<usize>,

    /// Print the first line of output as JSON
    #[arg(long, hide_short_help = true)]
    json: bool,
}

/// The source of the guarantee that no id is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CoveredBy {
    /// A scan returns all ids that were committed before it began
    Scans,
    /// Writers post each id and wait for the response before they commit it
    Posts,
    /// A poll returns all ids that were committed before it began
    Changes,
}

/// Publishes the set until a signal stops the process.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    descriptors::raise_limit();
    let config = config(args)?;
    let hasher = config.hasher;
    let (source, changes) = source(args)?;
    // The signals are handled before the first line is printed, because the reader of this line may send a signal
    // immediately.
    let mut signals = Signals::of_server()?;
    let public = config
        .signer
        .as_ref()
        .map(|signer| signer.public().to_string());
    let publisher = Publisher::start(config, source).map_err(with_hint)?;
    let polling = changes.map(|changes| changes.start(&publisher, hasher));
    let polling = polling.transpose()?;
    announce(args, &publisher, public.as_deref())?;
    let name = signals.next();
    tracing::info!(signal = name, "stopping");
    drop(polling);
    publisher.shutdown();
    Ok(ExitCode::SUCCESS)
}

/// Returns the source that is scanned, and the polls for changes between two scans.
fn source(args: &ServeArgs) -> anyhow::Result<(Box<dyn IdSource>, Option<PreparedPolls>)> {
    if let Some(address) = args.source.database() {
        // The ids are read in any order (`false`), because a publisher does not resume scans from a checkpoint.
        let source = args.database.open(address, false)?;
        let config = args.database.config(Some(args.ids), args.skip_malformed);
        let polled_source = Arc::clone(&source);
        let changes = (args.changes).prepare(polled_source, args.ids)?;
        return Ok((Box::new(RescannedDatabase { source, config }), changes));
    }
    args.changes.reject_for_file()?;
    args.database.reject_for_file()?;
    let source = args.source.to_file_source()?;
    if source.is_stdin() {
        return Err(Diagnostic::new(
            "stdin can be read only once, but a publisher scans its source repeatedly",
        )
        .hint("write the ids to a file; it is read again for each scan")
        .into());
    }
    Ok((Box::new(RescannedFile(source)), None))
}

fn config(args: &ServeArgs) -> anyhow::Result<PublishConfig> {
    check_share(args.least_share)?;
    let mut config = PublishConfig::new(&args.set, args.listen, &args.state, system_clock());
    config.admin = args.admin;
    config.signer = args.key.as_deref().map(keygen::read).transpose()?;
    config.token = args.token.as_deref().map(token).transpose()?;
    config.rate = args.fpr;
    config.hasher = IdHasher {
        form: args.ids,
        seed: args.hash_seed,
    };
    config.ids_max = args.ids_max;
    config.commit_within = args.commit_within;
    config.skip_malformed = args.skip_malformed;
    config.interval = args.every;
    let polled = args.changes.are_polled();
    config.coverage = match (args.covered_by, polled) {
        (Some(CoveredBy::Scans), _) | (None, false) => Coverage::Scans,
        (Some(CoveredBy::Posts), _) => Coverage::Posts,
        (Some(CoveredBy::Changes), true) | (None, true) => Coverage::Feed,
        (Some(CoveredBy::Changes), false) => {
            let hint = "give --changes-query, and --source with the address of a database";
            let message = "--covered-by changes needs polls of changes";
            return Err(Diagnostic::new(message).hint(hint).into());
        }
    };
    if polled {
        config.feed_wait = FEED_WAIT;
        if config.token.is_none() {
            // Polls return only committed ids, and without a token no writer can post uncommitted ids.
            config.commit_within = Duration::ZERO;
        }
    }
    if config.coverage == Coverage::Posts && config.token.is_none() {
        return Err(
            Diagnostic::new("--covered-by posts needs a token for writers")
                .hint("give --token FILE; the token has at least 16 characters")
                .into(),
        );
    }
    config.least_share = args.least_share;
    config.manifest_max_age = args.manifest_max_age;
    config.guava = args.guava;
    config.allowed_origins = allowed_origins(&args.allow_origin)?;
    config.limits.connections_max = args.connections_max.max(1);
    config.limits.per_client_max = args.connections_per_client;
    // The publisher's defaults have the same ratio: at most 1024 of 4096 connections have sent no complete request.
    config.limits.unserved_max = (config.limits.connections_max / 4).max(1);
    Ok(config)
}

fn allowed_origins(texts: &[String]) -> anyhow::Result<AllowedOrigins> {
    if texts.iter().any(|text| text == "*") {
        return Ok(AllowedOrigins::Any);
    }
    let origins = texts.iter().map(|text| text.parse());
    match origins.collect::<Result<Vec<_>, OriginError>>() {
        Ok(origins) if origins.is_empty() => Ok(AllowedOrigins::None),
        Ok(origins) => Ok(AllowedOrigins::List(origins)),
        Err(error) => {
            let hint = "give scheme and host, such as https://shop.example, or * for all pages";
            Err(Diagnostic::new(format!("--allow-origin: {error}"))
                .hint(hint)
                .into())
        }
    }
}

fn token(path: &Path) -> anyhow::Result<Token> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Token::new(&text).map_err(|error| {
        Diagnostic::new(error.to_string())
            .in_file(path)
            .hint("`openssl rand -hex 16` prints a token")
            .into()
    })
}

/// A file of ids as the source of the publisher. Each scan reads the file from the beginning.
struct RescannedFile(FileSource);

impl IdSource for RescannedFile {
    fn scan(
        &mut self,
        each: &mut dyn FnMut(&[u8]) -> Result<(), ScanError>,
    ) -> Result<(), ScanError> {
        let scanned = self.0.for_each(|_, id| Ok(each(id)?));
        scanned.map_err(|error| match error.downcast::<ScanError>() {
            Ok(error) => error,
            Err(error) => ScanError::Source(error.into()),
        })
    }
}

/// A database as the source of the publisher. Each scan runs the query again.
struct RescannedDatabase {
    source: Arc<dyn edgeward_idsync::Source>,
    config: ScanConfig,
}

impl IdSource for RescannedDatabase {
    fn scan(
        &mut self,
        each: &mut dyn FnMut(&[u8]) -> Result<(), ScanError>,
    ) -> Result<(), ScanError> {
        let failed = |error: SourceError| ScanError::Source(error.into());
        let (source, config) = (Arc::clone(&self.source), self.config.clone());
        let mut scan = Scan::begin(source, Ledger::default(), config).map_err(failed)?;
        while let Some(batch) = scan.next_batch().map_err(failed)? {
            for id in batch.ids() {
                each(id)?;
            }
        }
        Ok(())
    }
}

fn with_hint(error: PublishError) -> anyhow::Error {
    let hint = match &error {
        PublishError::State(StateError::InUse { .. }) => {
            "stop the other publisher, or give another --state"
        }
        PublishError::State(StateError::OtherPublisher { .. }) => {
            "give the same --set, --ids and --hash-seed as before, or another --state"
        }
        PublishError::Listen { .. } => {
            "`ss -ltnp` shows the program that uses the port; port 0 selects a free one"
        }
        _ => return error.into(),
    };
    Diagnostic::from_error(&error).hint(hint).into()
}

/// Prints one line with the address, for people and for the program that started the publisher.
fn announce(
    args: &ServeArgs,
    publisher: &RunningPublisher,
    public: Option<&str>,
) -> anyhow::Result<()> {
    let url = format!("http://{}/sets/{}", publisher.addr(), args.set);
    let admin = publisher.admin_addr().map(|addr| format!("http://{addr}"));
    let written = if args.json {
        output::print_json_line(&json!({
            "listening": url,
            "admin": admin,
            "public_key": public,
            "pid": std::process::id(),
        }))
    } else {
        let mut out = output::stdout();
        let admin_text = admin.map_or_else(String::new, |url| format!(", admin on {url}"));
        let key = public.map_or_else(|| "unsigned".to_owned(), |key| format!("public key {key}"));
        writeln!(out, "publishing {url}, {key}{admin_text}")
            .and_then(|()| out.flush())
            .map_err(Into::into)
    };
    match written {
        // A closed stdout is not an error: the publisher does not need it.
        Err(error) if output::is_stdout_closed(&error) => Ok(()),
        other => other,
    }
}

/// The longest time that the first scan waits for the first poll. If the first poll is later, the publisher
/// scans again after it.
const FEED_WAIT: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Examples:
  edgeward filter keygen -o publisher.key
  edgeward filter serve --set resource --source ids.txt --ids uuid \\
    --key publisher.key --state /var/lib/edgeward/resource --every 10min
  With writers that post each id before they commit it:
    edgeward filter serve … --token token.txt --covered-by posts
    curl -H \"Authorization: Bearer $(cat token.txt)\" --data-binary $ID \\
      http://127.0.0.1:8090/sets/resource/ids

  From a database; new ids are published within a second or two:
    edgeward filter serve --set resource --ids uuid --key publisher.key \\
      --state /var/lib/edgeward/resource --source postgres://me@db/shop \\
      --query 'SELECT id FROM resource' --changes-query 'SELECT id, created_at
        FROM resource WHERE created_at > $1 ORDER BY created_at'

The source is read again for each scan. docs/reference/filter-protocol.md describes the protocol and the
guarantees for clients.";
