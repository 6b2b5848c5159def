//! `simulate --plan`: reads a plan, a TOML file with traces, policies, capacities, seeds and other settings.
//!
//! A key of a plan is an option of the command line, with `_` instead of `-`. Three lists have plural names:
//! `policies`, `capacities` and `seeds`. The parser of the option checks each value, so plans and command lines accept
//! the same values. An option on the command line replaces the key of the plan.

use std::error::Error as _;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Args as _, Command, FromArgMatches as _};
use edgeward_lab::plan_file::{Entry, Table, read_document};

use super::args::SimulateArgs;
use super::command::{FILES, GivenOption, options};
use super::offline;
use crate::diagnostic::{Diagnostic, Diagnostics, absolute};
use crate::input::TraceInputArgs;

/// A trace of a plan, with the options of its runs.
#[derive(Debug)]
pub(super) struct PlannedTrace {
    pub(super) name: String,
    pub(super) args: SimulateArgs,
}

/// Reads and checks the plan in `file`. Returns its traces in the order of the file.
pub(super) fn load(file: &Path, given: &[GivenOption]) -> anyhow::Result<Vec<PlannedTrace>> {
    let text = read(file)?;
    let traces = read_document(&text, |document| {
        PlanReader::new(file, given).read(&document)
    });
    let traces = traces.map_err(|problems| {
        let diagnostic = |problem: edgeward_lab::Problem| {
            let diagnostic = Diagnostic::new(problem.message)
                .in_file(file)
                .at_line(problem.line);
            match problem.hint {
                Some(hint) => diagnostic.hint(hint),
                None => diagnostic,
            }
        };
        Diagnostics(problems.into_iter().map(diagnostic).collect())
    })?;
    Ok(traces)
}

fn read(file: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|file| file.take(PLAN_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| Diagnostic::unreadable(file, "cannot read the plan", &error))?;
    let problem = |message: &str| Diagnostic::new(message).in_file(file);
    if bytes.len() as u64 > PLAN_BYTES_MAX {
        return Err(problem("the plan exceeds 1 MiB").into());
    }
    String::from_utf8(bytes).map_err(|_| problem("the plan is not valid UTF-8").into())
}

/// The reader of the tables of a plan.
struct PlanReader<'a> {
    /// All options of `simulate`.
    options: Command,
    /// The ids of the options that select requests of a trace: the keys of `[read]`.
    read_ids: Vec<String>,
    /// The options on the command line, which replace keys of the plan.
    given: &'a [GivenOption],
    /// The folder of the plan. The paths of traces are relative to it.
    folder: &'a Path,
}

/// A key of a plan as arguments of the command line.
#[derive(Clone)]
struct Setting {
    id: String,
    line: usize,
    words: Vec<OsString>,
}

impl<'a> PlanReader<'a> {
    fn new(file: &'a Path, given: &'a [GivenOption]) -> Self {
        let read_options = TraceInputArgs::augment_args(Command::new("read"));
        let ids = read_options
            .get_arguments()
            .map(|option| option.get_id().to_string());
        Self {
            options: options(),
            read_ids: ids.filter(|id| id != FILES).collect(),
            given,
            folder: file.parent().unwrap_or_else(|| Path::new("")),
        }
    }

    fn read(&self, document: &Table<'_>) -> Option<Vec<PlannedTrace>> {
        let mut settings = Vec::new();
        let mut is_valid = true;
        for (key, entry) in document.all() {
            if key != TRACES && key != READ {
                let is_run_option = |option: &&Arg| !self.is_read_option(option);
                let others = [TRACES, READ];
                is_valid &= self.add(&entry, key, is_run_option, &others, &mut settings);
            }
        }
        if let Some(entry) = document.entry(READ) {
            let table = entry.table()?;
            is_valid &= self.add_read_options(table.all(), &[], &mut settings);
        }
        let has = |id: &str| settings.iter().any(|setting: &Setting| setting.id == id);
        if !has("capacity") && !self.is_given("capacity") && is_valid {
            document.missing("capacities", "write capacities = [\"64MiB\", \"1%\"]");
            is_valid = false;
        }
        let traces = match document.entry(TRACES) {
            Some(entry) => self.traces(&entry.table()?),
            None => {
                let hint = "write [traces] and, below, a line such as web = \"access.log\"";
                document.missing(TRACES, hint);
                None
            }
        };
        if !is_valid {
            return None;
        }
        let planned = |trace: TraceEntry| {
            let settings = settings.iter().filter(|setting| !trace.has(&setting.id));
            let settings: Vec<&Setting> = settings.chain(&trace.settings).collect();
            let args = self.combine(&trace.files, &settings, document)?;
            Some(PlannedTrace {
                name: trace.name,
                args,
            })
        };
        traces?.into_iter().map(planned).collect()
    }

    /// Reads `[traces]`. Each value is a file, a list of files that are read as one trace, or a table with `file` and
    /// options that select requests.
    fn traces(&self, table: &Table<'_>) -> Option<Vec<TraceEntry>> {
        let mut traces = Vec::new();
        let mut is_valid = true;
        for (name, entry) in table.all() {
            let mut settings = Vec::new();
            let files = if entry.is_table() {
                let table = entry.table()?;
                let options = table.all().filter(|(key, _)| *key != TRACE_FILE);
                is_valid &= self.add_read_options(options, &[TRACE_FILE], &mut settings);
                match table.entry(TRACE_FILE) {
                    Some(entry) => self.files(&entry),
                    None => {
                        table.missing(TRACE_FILE, "write file = \"access.log\"");
                        None
                    }
                }
            } else {
                self.files(&entry)
            };
            is_valid &= files.is_some();
            traces.push(TraceEntry {
                name: name.to_owned(),
                line: entry.line,
                files: files.unwrap_or_default(),
                settings,
            });
        }
        // The table is sorted by name, the results by the line in the plan.
        traces.sort_by_key(|trace| trace.line);
        if traces.is_empty() && is_valid {
            table.wrong(
                "the plan has no traces",
                "write a line such as web = \"access.log\"",
            );
            return None;
        }
        is_valid.then_some(traces)
    }

    /// Returns the paths of the files. Reports a missing file here, so that a plan does not fail after hours.
    fn files(&self, entry: &Entry<'_>) -> Option<Vec<PathBuf>> {
        let mut files = Vec::new();
        for item in entry.items() {
            let path = self.folder.join(item.text()?);
            if !path.exists() {
                let hint = format!("the full path is {}", absolute(&path));
                item.wrong("does not exist", hint);
                return None;
            }
            files.push(path);
        }
        if files.is_empty() {
            entry.wrong("is an empty list", "write the path of a file");
            return None;
        }
        Some(files)
    }

    /// Adds options that select requests to `settings`. Returns false if it reported a problem. `others` are the keys
    /// of the table that are not options; an error message may suggest them.
    fn add_read_options<'k>(
        &self,
        options: impl Iterator<Item = (&'k str, Entry<'k>)>,
        others: &[&str],
        settings: &mut Vec<Setting>,
    ) -> bool {
        let mut is_valid = true;
        for (key, entry) in options {
            let is_read_option = |option: &&Arg| self.is_read_option(option);
            is_valid &= self.add(&entry, key, is_read_option, others, settings);
        }
        is_valid
    }

    fn is_read_option(&self, option: &Arg) -> bool {
        self.read_ids.iter().any(|id| option.get_id() == id)
    }

    /// Adds the option of a key to `settings`, unless the command line has this option. Returns false if it reported a
    /// problem. `others` are the keys of the table that are not options; an error message may suggest them.
    fn add(
        &self,
        entry: &Entry<'_>,
        key: &str,
        is_allowed: impl Fn(&&Arg) -> bool,
        others: &[&str],
        settings: &mut Vec<Setting>,
    ) -> bool {
        let allowed = || {
            let named = self.options.get_arguments().filter(&is_allowed);
            named.filter_map(|option| Some((key_of(option)?, option)))
        };
        if let Some((_, hint)) = NOT_IN_PLANS.iter().find(|(name, _)| *name == key) {
            entry.wrong("is not part of a plan", *hint);
            return false;
        }
        let Some((_, option)) = allowed().find(|(known, _)| known == key) else {
            let elsewhere = self
                .options
                .get_arguments()
                .filter(|option| self.is_read_option(option));
            if elsewhere.filter_map(key_of).any(|known| known == key) {
                entry.wrong("selects requests of traces", "write the key below [read]");
                return false;
            }
            let known: Vec<String> = allowed().map(|(known, _)| known).collect();
            let known = known
                .iter()
                .map(String::as_str)
                .chain(others.iter().copied());
            let known = known.filter(|key| NOT_IN_PLANS.iter().all(|(name, _)| name != key));
            entry.unknown(&known.collect::<Vec<&str>>());
            return false;
        };
        let Some(words) = self.words(option, entry) else {
            return false;
        };
        let id = option.get_id().to_string();
        if !self.is_given(&id) {
            settings.push(Setting {
                id,
                line: entry.line,
                words,
            });
        }
        true
    }

    /// Returns an option and the values of an entry as arguments of the command line.
    fn words(&self, option: &Arg, entry: &Entry<'_>) -> Option<Vec<OsString>> {
        let flag = option.get_long()?;
        if !option.get_action().takes_values() {
            let word = OsString::from(format!("--{flag}"));
            return entry
                .boolean()
                .map(|on| if on { vec![word] } else { vec![] });
        }
        let items = entry.items();
        let takes_list = matches!(option.get_action(), ArgAction::Append);
        if items.is_empty() {
            entry.wrong("is an empty list", "write at least one value");
            return None;
        }
        if items.len() > 1 && !takes_list {
            entry.wrong("is a list", "write one value");
            return None;
        }
        let word = |item: &Entry<'_>| {
            let word = OsString::from(format!("--{flag}={}", item.word()?));
            self.check_value(&word, flag, item)?;
            Some(word)
        };
        // All items are checked, so that all problems are reported.
        let words: Vec<Option<OsString>> = items.iter().map(word).collect();
        words.into_iter().collect()
    }

    /// Reports a value that the parser of its option rejects.
    fn check_value(&self, word: &OsStr, flag: &str, item: &Entry<'_>) -> Option<()> {
        let required = ["simulate", "-", "--capacity=1"].map(OsStr::new);
        let parsed = self
            .options
            .clone()
            .try_get_matches_from(required.into_iter().chain([word]));
        let Err(error) = parsed else {
            return Some(());
        };
        match error.kind() {
            ErrorKind::ValueValidation => {
                let reason = error.source().map_or_else(String::new, ToString::to_string);
                let by_help = format!("write a value of --{flag} in `edgeward simulate --help`");
                let (reason, hint) = reason.split_once("; ").unwrap_or((&reason, &by_help));
                item.wrong(&format!("is invalid: {reason}"), hint);
                None
            }
            ErrorKind::InvalidValue => {
                let hint = match error.get(ContextKind::ValidValue) {
                    Some(ContextValue::Strings(values)) => format!("use {}", values.join(", ")),
                    _ => String::new(),
                };
                item.wrong("is invalid", hint);
                None
            }
            // `combine` checks combinations of options when all options are known.
            _ => Some(()),
        }
    }

    /// Parses all options of a trace together. Reports options that exclude or need each other.
    fn combine(
        &self,
        files: &[PathBuf],
        settings: &[&Setting],
        document: &Table<'_>,
    ) -> Option<SimulateArgs> {
        let words = settings.iter().flat_map(|setting| &setting.words);
        let given = self.given.iter().flat_map(|option| &option.words);
        let arguments = [OsStr::new("simulate")].into_iter();
        let arguments = arguments.chain(words.chain(given).map(OsString::as_os_str));
        let arguments = arguments.chain([OsStr::new("--")]);
        let arguments = arguments.chain(files.iter().map(|file| file.as_os_str()));
        let matches = self.options.clone().try_get_matches_from(arguments);
        let args = matches.and_then(|matches| SimulateArgs::from_arg_matches(&matches));
        let args = match args {
            Ok(args) => args,
            Err(error) => {
                let line = self.line_of(&error, settings).unwrap_or(document.line);
                let (message, hint) = explain(&error);
                document.wrong_at(line, message, hint);
                return None;
            }
        };
        if let Err(diagnostic) = offline::check(&args) {
            let policies = settings.iter().find(|setting| setting.id == "policy");
            let line = policies.map_or(document.line, |setting| setting.line);
            document.wrong_at(line, diagnostic.to_string(), "run it in a plan of its own");
            return None;
        }
        Some(args)
    }

    /// Returns the line of the key whose option the error is about.
    fn line_of(&self, error: &clap::Error, settings: &[&Setting]) -> Option<usize> {
        let ContextValue::String(option) = error.get(ContextKind::InvalidArg)? else {
            return None;
        };
        let flag = option.split_whitespace().next()?.strip_prefix("--")?;
        let mut options = self.options.get_arguments();
        let option = options.find(|option| option.get_long() == Some(flag))?;
        let setting = settings
            .iter()
            .find(|setting| option.get_id() == &setting.id);
        setting.map(|setting| setting.line)
    }

    fn is_given(&self, id: &str) -> bool {
        self.given.iter().any(|option| option.id == id)
    }
}

/// An entry of `[traces]`.
struct TraceEntry {
    name: String,
    line: usize,
    files: Vec<PathBuf>,
    settings: Vec<Setting>,
}

impl TraceEntry {
    fn has(&self, id: &str) -> bool {
        self.settings.iter().any(|setting| setting.id == id)
    }
}

/// Returns the key of an option, or `None` for a positional argument.
fn key_of(option: &Arg) -> Option<String> {
    let flag = option.get_long()?;
    let plural = PLURALS.iter().find(|(name, _)| *name == flag);
    Some(plural.map_or_else(|| flag.replace('-', "_"), |(_, key)| (*key).to_owned()))
}

/// Returns a message and a hint for options that exclude or need each other.
fn explain(error: &clap::Error) -> (String, String) {
    let keys = |kind: ContextKind| match error.get(kind) {
        Some(ContextValue::String(option)) => key_in(option),
        Some(ContextValue::Strings(options)) => {
            let keys: Vec<String> = options.iter().map(|option| key_in(option)).collect();
            keys.join(" and ")
        }
        _ => String::new(),
    };
    let (first, second) = (keys(ContextKind::InvalidArg), keys(ContextKind::PriorArg));
    match error.kind() {
        ErrorKind::ArgumentConflict => (
            format!("{first} cannot be combined with {second}"),
            format!("remove {first} or {second}"),
        ),
        ErrorKind::MissingRequiredArgument => (
            format!("another key needs {first}"),
            format!("add {first}, or remove the keys that need it"),
        ),
        _ => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            let line = line.strip_prefix("error: ").unwrap_or(line);
            (line.to_owned(), String::new())
        }
    }
}

/// Returns the key of an option in a message of the command line, such as `--disk <LIST>`.
fn key_in(option: &str) -> String {
    let flag = option.split_whitespace().next().unwrap_or(option);
    flag.trim_start_matches('-').replace('-', "_")
}

const TRACES: &str = "traces";
const READ: &str = "read";
const TRACE_FILE: &str = "file";

/// Options with the plural keys that they have in a plan, because a plan usually lists several values.
const PLURALS: [(&str, &str); 3] = [
    ("policy", "policies"),
    ("capacity", "capacities"),
    ("seed", "seeds"),
];

/// Options that are not keys of a plan, with the hint for a plan that has the key.
const NOT_IN_PLANS: [(&str, &str); 8] = [
    ("json", "write --json on the command line"),
    ("report", "write --report FILE on the command line"),
    ("plots", "write --plots FOLDER on the command line"),
    ("csv", "write --csv FILE on the command line"),
    ("parquet", "write --parquet FILE on the command line"),
    ("threads", "write --threads N on the command line"),
    ("curve", "list the sizes in capacities"),
    ("sample", "list the sizes in capacities"),
];

/// The maximum size of a plan in bytes. It bounds the memory if `--plan` names another, large file by mistake.
const PLAN_BYTES_MAX: u64 = 1 << 20;
