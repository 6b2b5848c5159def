//! Every id of a source, as a hash: from a file line by line, or from a database.

use std::time::SystemTime;

use edgeward_filter::{IdForm, IdText};
use edgeward_types::Timestamp;

use super::build::{BuildArgs, too_many};
use super::database::Reader;
use super::source::{LineNumber, Source};

/// A source being read.
pub(super) struct Reading<'a> {
    args: &'a BuildArgs,
    input: Input,
    /// What it is called.
    pub(super) label: String,
    /// What its ids are.
    pub(super) form: IdForm,
    /// When it began to be read, in milliseconds since 1970: what was added later may be missing.
    pub(super) began_ms: u64,
    /// Ids read.
    pub(super) ids: u64,
    /// Of these, the ones that an earlier run had read.
    pub(super) ids_before: u64,
    /// What was left out because it is no id.
    pub(super) malformed: u64,
    /// How often a database was gone.
    pub(super) setbacks: u64,
}

enum Input {
    File(Source),
    Database(Box<Reader>),
}

impl<'a> Reading<'a> {
    /// Opens the source. `hashed` tells how ids are going to be hashed, for who goes on later.
    pub(super) fn begin(args: &'a BuildArgs, hashed: &str) -> anyhow::Result<Self> {
        let now_ms = Timestamp::from(SystemTime::now()).as_millis();
        let (input, label, form, began_ms) = if let Some(address) = args.source.database() {
            let resume = args.resume.as_deref();
            let source = args.database.open(address, resume.is_some())?;
            let label = source.label();
            let config = args.database.config(args.ids, args.skip_malformed);
            let reader = (args.database).begin(source, config, resume, hashed, now_ms)?;
            let (form, began_ms) = (reader.form(), reader.began_ms());
            (Input::Database(Box::new(reader)), label, form, began_ms)
        } else {
            args.database.refuse()?;
            let source = args.source.checked()?;
            let label = source.label();
            let form = args.ids.unwrap_or_default();
            (Input::File(source), label, form, now_ms)
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
            setbacks: 0,
        })
    }

    /// Gives the hash of every id to `insert`.
    pub(super) fn for_each<const N: usize>(
        &mut self,
        hash: impl Fn(&[u8]) -> anyhow::Result<[u64; N]>,
        mut insert: impl FnMut([u64; N]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let (args, form) = (self.args, self.form);
        let (ids, malformed) = (&mut self.ids, &mut self.malformed);
        let mut counted = |hash| {
            *ids += 1;
            if *ids > args.ids_max {
                return Err(too_many(args.ids_max));
            }
            insert(hash)
        };
        match &mut self.input {
            Input::Database(reader) => {
                reader.for_each(hash, counted)?;
                let progress = reader.progress();
                *malformed = progress.malformed;
                self.ids_before = progress.rows_before.min(*ids);
                self.setbacks = progress.setbacks;
                Ok(())
            }
            Input::File(source) => {
                let mut room = IdText::default();
                source.for_each(|line: LineNumber, spelling| {
                    match form.canonical(spelling, &mut room) {
                        Ok(canonical) => counted(hash(canonical)?),
                        Err(_) if args.skip_malformed => {
                            *malformed += 1;
                            Ok(())
                        }
                        Err(error) => {
                            let hint = "--ids says what the ids are, --skip-malformed leaves such lines out";
                            Err(source.complain(line, error.to_string()).hint(hint).into())
                        }
                    }
                })
            }
        }
    }

    /// To be called when the filter is written.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        match self.input {
            Input::Database(reader) => reader.finish(),
            Input::File(_) => Ok(()),
        }
    }
}
