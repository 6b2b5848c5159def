//! Reads all ids of a source, a file or a database, and passes on their hashes.

use std::time::SystemTime;

use edgeward_filter::{IdForm, IdText};
use edgeward_types::Timestamp;

use super::build_args::BuildArgs;
use super::database::DatabaseReader;
use super::source::{FileSource, LineNumber};
use crate::diagnostic::Diagnostic;

/// A source that is being read.
pub(super) struct SourceReader<'a> {
    args: &'a BuildArgs,
    input: IdInput,
    /// The name of the source in messages.
    pub(super) label: String,
    /// The form of the ids: text, UUIDs or integers.
    pub(super) form: IdForm,
    /// The time at which reading began, in milliseconds since 1970. If an earlier run is resumed, this is the time of
    /// that run. Ids added later may be missing.
    pub(super) began_ms: u64,
    /// The number of ids read.
    pub(super) ids: u64,
    /// The number of rows that the resumed earlier run had read, at most `ids`. 0 if no run is resumed.
    pub(super) ids_before: u64,
    /// The number of lines or rows that were skipped because they are not ids.
    pub(super) malformed: u64,
    /// The number of times that the connection to the database was lost.
    pub(super) interruptions: u64,
}

enum IdInput {
    File(FileSource),
    Database(Box<DatabaseReader>),
}

impl<'a> SourceReader<'a> {
    /// Opens the source. `hash_name` names the hash function; a checkpoint is valid only for the same function.
    pub(super) fn begin(args: &'a BuildArgs, hash_name: &str) -> anyhow::Result<Self> {
        let now_ms = Timestamp::from(SystemTime::now()).as_millis();
        let (input, label, form, began_ms) = if let Some(address) = args.source.database() {
            let resume = args.resume.as_deref();
            let source = args.database.open(address, resume.is_some())?;
            let label = source.label();
            let config = args.database.config(args.ids, args.skip_malformed);
            let reader = (args.database).begin(source, config, resume, hash_name, now_ms)?;
            let (form, began_ms) = (reader.form(), reader.began_ms());
            (IdInput::Database(Box::new(reader)), label, form, began_ms)
        } else {
            args.database.reject_for_file()?;
            let source = args.source.to_file_source()?;
            let label = source.label();
            let form = args.ids.unwrap_or_default();
            (IdInput::File(source), label, form, now_ms)
        };
        Ok(Self {
            args,
            input,
            label,
            form,
            began_ms,
            ids: 0,
            ids_before: 0,
            malformed: 0,
            interruptions: 0,
        })
    }

    /// Passes the hash of every id to `insert`. `hash` computes it from the canonical text, as `N` words of 64 bits.
    pub(super) fn for_each<const N: usize>(
        &mut self,
        hash: impl Fn(&[u8]) -> anyhow::Result<[u64; N]>,
        mut insert: impl FnMut([u64; N]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let (args, form) = (self.args, self.form);
        let (ids, malformed) = (&mut self.ids, &mut self.malformed);
        let mut count_and_insert = |hash| {
            *ids += 1;
            if *ids > args.ids_max {
                return Err(too_many(args.ids_max));
            }
            insert(hash)
        };
        match &mut self.input {
            IdInput::Database(reader) => {
                reader.for_each(hash, count_and_insert)?;
                let progress = reader.progress();
                *malformed = progress.malformed;
                self.ids_before = progress.rows_before.min(*ids);
                self.interruptions = progress.interruptions;
                Ok(())
            }
            IdInput::File(source) => {
                let mut buffer = IdText::default();
                source.for_each(|line: LineNumber, spelling| {
                    match form.canonical(spelling, &mut buffer) {
                        Ok(canonical) => count_and_insert(hash(canonical)?),
                        Err(_) if args.skip_malformed => {
                            *malformed += 1;
                            Ok(())
                        }
                        Err(error) => {
                            let hint =
                                "--ids sets the form of the ids, --skip-malformed skips such lines";
                            Err(source.error_at(line, error.to_string()).hint(hint).into())
                        }
                    }
                })
            }
        }
    }

    /// Removes the checkpoint. Call this after the filter is written.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        match self.input {
            IdInput::Database(reader) => reader.finish(),
            IdInput::File(_) => Ok(()),
        }
    }
}

/// The error about a source with more ids than `--ids-max` allows.
pub(super) fn too_many(ids_max: u64) -> anyhow::Error {
    Diagnostic::new(format!("the source has more than {ids_max} ids"))
        .hint("give a higher --ids-max; each id takes 8 bytes while building (16 for Guava)")
        .into()
}
