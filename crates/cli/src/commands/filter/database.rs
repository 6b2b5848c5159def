//! Reads ids from a database: the options, and a scan that has a checkpoint and shows its progress.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use edgeward_filter::IdForm;
use edgeward_idsync::{
    Checkpoint, CheckpointError, Identity, Ledger, Options, Retry, Scan, ScanConfig, ScanHandle,
    Source, SourceError,
};

use crate::diagnostic::Diagnostic;
use crate::output::{self, Progress};

/// Options of a database.
#[derive(Args, Clone, Debug)]
pub(super) struct DatabaseArgs {
    /// Query of a database; returns one column, the id
    #[arg(long, value_name = "SQL")]
    query: Option<String>,

    /// Ranges of a Cassandra table to read concurrently
    #[arg(
        long,
        value_name = "N",
        default_value = "8",
        requires = "query",
        hide_short_help = true
    )]
    parallel: NonZeroU32,

    /// Seconds to wait for an unavailable database during a scan
    #[arg(
        long = "patience",
        value_name = "SECONDS",
        default_value_t = 600,
        requires = "query",
        hide_short_help = true
    )]
    timeout_secs: u64,
}

impl DatabaseArgs {
    /// Opens the database at `address`. If `ordered` is true, a scan reads the ids in order and can continue from a
    /// checkpoint.
    pub(super) fn open(&self, address: &str, ordered: bool) -> anyhow::Result<Arc<dyn Source>> {
        let Some(query) = &self.query else {
            let message = "--source is a database, but --query is missing";
            let hint = "give for example --query 'SELECT id FROM resource'";
            return Err(Diagnostic::new(message).hint(hint).into());
        };
        let options = Options {
            ordered,
            parallel: self.parallel,
            ..Options::new(query)
        };
        edgeward_idsync::open(address, options).map_err(|error| source_error(error, None))
    }

    /// Returns an error if an option for databases is given. Call this if the source is a file.
    pub(super) fn reject_for_file(&self) -> anyhow::Result<()> {
        if self.query.is_some() {
            let hint = "give the address of a database: postgres://…, sqlite://…, cassandra://…";
            let message = "--query needs a database, and the source is a file";
            return Err(Diagnostic::new(message).hint(hint).into());
        }
        Ok(())
    }

    /// The configuration of a scan. Without `form`, the type of the id column selects the form of the ids.
    pub(super) fn config(&self, form: Option<IdForm>, skip_malformed: bool) -> ScanConfig {
        ScanConfig {
            form,
            skip_malformed,
            retry: Retry {
                give_up_after: Duration::from_secs(self.timeout_secs),
                ..Retry::default()
            },
            ..ScanConfig::default()
        }
    }

    /// Starts a scan, or continues from the checkpoint `resume`. `hash_name` names the hash function; the checkpoint
    /// stores hashes and is valid only with the same function. `now_ms` is the time in milliseconds since 1970.
    pub(super) fn begin(
        &self,
        source: Arc<dyn Source>,
        config: ScanConfig,
        resume: Option<&Path>,
        hash_name: &str,
        now_ms: u64,
    ) -> anyhow::Result<DatabaseReader> {
        let form_name = config.form.map_or("by type", IdForm::name);
        let identity = Identity::new(&[&source.label(), source.query(), form_name, hash_name]);
        // The ledger lists which parts of the table are read already.
        let (mut checkpoint_file, mut ledger, mut began_ms) = (None, Ledger::default(), now_ms);
        if let Some(path) = resume {
            let opened = Checkpoint::open(path, identity, now_ms);
            let (checkpoint, saved) = opened.map_err(|error| checkpoint_error(path, error))?;
            if saved.invalid_bytes > 0 {
                let bytes = output::count(saved.invalid_bytes);
                let path = path.display();
                eprintln!(
                    "warning: the last {bytes} bytes of {path} are incomplete; their ids are read again"
                );
            }
            checkpoint_file = Some((checkpoint, path.to_owned()));
            (ledger, began_ms) = (saved.ledger, saved.began_ms);
        }
        let scan =
            Scan::begin(source, ledger, config).map_err(|error| source_error(error, resume))?;
        if let Some((checkpoint, path)) = &mut checkpoint_file {
            let result = checkpoint.begin(scan.source_info().form, &scan.ledger());
            result.map_err(|error| checkpoint_error(path, error))?;
        }
        Ok(DatabaseReader {
            scan,
            checkpoint_file,
            began_ms,
        })
    }
}

/// A scan in progress, with a checkpoint if one is configured.
pub(super) struct DatabaseReader {
    scan: Scan,
    checkpoint_file: Option<(Checkpoint, PathBuf)>,
    began_ms: u64,
}

impl DatabaseReader {
    /// The canonical form of the ids.
    pub(super) fn form(&self) -> IdForm {
        self.scan.source_info().form
    }

    /// The time at which the scan began, possibly in an earlier run of the command, in milliseconds since 1970.
    pub(super) fn began_ms(&self) -> u64 {
        self.began_ms
    }

    /// The progress of the scan.
    pub(super) fn progress(&self) -> edgeward_idsync::Progress {
        self.scan.progress()
    }

    /// Passes the hash of every id to `insert`: first the hashes in the checkpoint, then the hashes of the
    /// scanned ids. A hash has `N` words of 64 bits.
    pub(super) fn for_each<const N: usize>(
        &mut self,
        hash: impl Fn(&[u8]) -> anyhow::Result<[u64; N]>,
        mut insert: impl FnMut([u64; N]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let progress_thread = ProgressThread::new(self.scan.handle());
        if let Some((checkpoint, path)) = &mut self.checkpoint_file {
            let mut inserted = Ok(());
            let mut each = |words: &[u64]| {
                for id in words.as_chunks().0 {
                    if inserted.is_ok() {
                        inserted = insert(*id);
                    }
                }
            };
            let read = checkpoint.hashes(&mut each);
            read.map_err(|error| checkpoint_error(path, error))?;
            inserted?;
        }
        let mut hashes: Vec<u64> = Vec::new();
        loop {
            let path = self
                .checkpoint_file
                .as_ref()
                .map(|(_, path)| path.as_path());
            let batch = self.scan.next_batch();
            let Some(batch) = batch.map_err(|error| source_error(error, path))? else {
                break;
            };
            hashes.clear();
            for id in batch.ids() {
                let words = hash(id)?;
                hashes.extend_from_slice(&words);
                insert(words)?;
            }
            if let Some((checkpoint, path)) = &mut self.checkpoint_file {
                let result = checkpoint.append(&batch.progress, &hashes);
                result.map_err(|error| checkpoint_error(path, error))?;
            }
        }
        drop(progress_thread);
        Ok(())
    }

    /// Removes the checkpoint. Call this after the filter is written.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        match self.checkpoint_file {
            Some((checkpoint, path)) => checkpoint
                .remove()
                .with_context(|| format!("cannot remove {}", path.display())),
            None => Ok(()),
        }
    }
}

/// A thread that shows the progress of a scan, even while the scan waits for the database.
struct ProgressThread {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl ProgressThread {
    fn new(scan: ScanHandle) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let bar = Progress::new("reading ids", "rows", None);
            let mut interruptions = 0;
            while stopped.recv_timeout(PROGRESS_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let progress = scan.progress();
                // Rows of an earlier run are not counted, because they would distort the displayed rate.
                if let Some(rows) = progress.rows_estimated {
                    bar.set_total(rows.saturating_sub(progress.rows_before));
                }
                bar.set(progress.rows - progress.rows_before);
                if let Some(why) = progress.waiting
                    && progress.interruptions > interruptions
                {
                    interruptions = progress.interruptions;
                    bar.note(&format!("warning: {why}; retrying"));
                }
            }
        });
        Self {
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread has no result, and a panic was printed already.
            _ = thread.join();
        }
    }
}

pub(super) fn source_error(error: SourceError, resume: Option<&Path>) -> anyhow::Error {
    let hint = match (error.hint(), resume) {
        (Some(hint), _) => Some(hint.to_owned()),
        (None, Some(path)) if error.is_transient() => Some(format!(
            "the same command continues from the checkpoint {}",
            path.display()
        )),
        _ => None,
    };
    let diagnostic = Diagnostic::new(edgeward_types::with_causes(&error));
    match hint {
        Some(hint) => diagnostic.hint(hint).into(),
        None => diagnostic.into(),
    }
}

fn checkpoint_error(path: &Path, error: CheckpointError) -> anyhow::Error {
    let hint = match error {
        CheckpointError::OtherScan => {
            "give another file, or delete it to start again; a checkpoint is for one source, query, --ids and \
             --hash-seed"
        }
        CheckpointError::Foreign => "give a file that does not exist yet",
        _ => return anyhow::Error::new(error).context(path.display().to_string()),
    };
    let diagnostic = Diagnostic::new(error.to_string());
    diagnostic.in_file(path).hint(hint).into()
}

/// The time between two updates of the progress: short enough for a bar that moves smoothly.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
