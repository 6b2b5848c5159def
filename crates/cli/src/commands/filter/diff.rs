//! `edgeward filter diff`: compares two filters and their answers for a list of ids.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use edgeward_filter::Filter;

use super::inspect::FilterReport;
use super::open_filter;
use super::source::SourceArgs;
use crate::output::{self, Column, Table};

/// Compare two filters, and their answers for a list of ids
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct DiffArgs {
    /// The first filter
    #[arg(value_name = "FILTER")]
    old: PathBuf,

    /// The second filter
    #[arg(value_name = "OTHER")]
    new: PathBuf,

    /// Ids to query: a file with one id per line, a .csv file, or - for stdin
    #[arg(long, short, value_name = "FILE")]
    source: Option<PathBuf>,

    /// CSV column with the ids; the list, even stdin, is then read as CSV
    #[arg(long, value_name = "NAME", requires = "source")]
    column: Option<String>,

    /// Maximum number of example ids for each kind of difference
    #[arg(long, value_name = "N", default_value_t = 10)]
    examples: usize,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Compares the filters and prints the differences. Exit codes: 0 without a difference, 1 with a difference. With a
/// list of ids, only the answers for the list determine the exit code.
pub(crate) fn run(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let filters = [
        open_filter::open_edgeward(&args.old)?,
        open_filter::open_edgeward(&args.new)?,
    ];
    let answers = match &args.source {
        Some(path) => {
            let source = SourceArgs::new(path.clone(), args.column.clone());
            Some(compare(&filters, &source, args.examples)?)
        }
        None => None,
    };
    let difference = Difference {
        equal: filters[0].bytes() == filters[1].bytes(),
        filters: [&filters[0], &filters[1]].map(|filter| FilterReport::of(filter, PROBES)),
        answers,
    };
    if args.json {
        output::print_json(&difference)?;
    } else {
        difference.print()?;
    }
    let is_different = difference
        .answers
        .as_ref()
        .map_or(!difference.equal, |answers| answers.differ());
    Ok(ExitCode::from(u8::from(is_different)))
}

fn compare(
    [old, new]: &[Filter<Vec<u8>>; 2],
    source: &SourceArgs,
    examples: usize,
) -> anyhow::Result<AnswerCounts> {
    let mut answers = AnswerCounts::default();
    source.to_file_source()?.for_each(|_, id| {
        answers.asked += 1;
        // The list may have any spelling of an id, such as a UUID in upper case.
        let kind = match (old.contains_spelling(id), new.contains_spelling(id)) {
            (true, false) => &mut answers.only_first,
            (false, true) => &mut answers.only_second,
            (true, true) => &mut answers.both,
            (false, false) => &mut answers.neither,
        };
        kind.ids += 1;
        if kind.examples.len() < examples {
            kind.examples.push(String::from_utf8_lossy(id).into_owned());
        }
        Ok(())
    })?;
    // Examples are printed only for ids that the filters answer differently.
    answers.both.examples.clear();
    answers.neither.examples.clear();
    Ok(answers)
}

/// The comparison of two filters.
#[derive(Debug, Serialize)]
struct Difference {
    /// True if the two files have the same bytes.
    equal: bool,
    filters: [FilterReport; 2],
    /// `None` without a list of ids.
    answers: Option<AnswerCounts>,
}

/// The answers of both filters for a list of ids.
#[derive(Debug, Default, Serialize)]
struct AnswerCounts {
    /// The number of queried ids.
    asked: u64,
    /// The ids for which both filters answer maybe.
    both: AnswerGroup,
    /// The ids for which only the first filter answers maybe.
    only_first: AnswerGroup,
    only_second: AnswerGroup,
    /// The ids for which both filters answer absent.
    neither: AnswerGroup,
}

/// The ids with the same pair of answers.
#[derive(Debug, Default, Serialize)]
struct AnswerGroup {
    ids: u64,
    examples: Vec<String>,
}

impl AnswerCounts {
    fn differ(&self) -> bool {
        self.only_first.ids + self.only_second.ids > 0
    }
}

impl Difference {
    fn print(&self) -> anyhow::Result<()> {
        let mut table = Table::new([
            Column::words(""),
            Column::words("first"),
            Column::words("second"),
        ]);
        let [old, new] = &self.filters;
        for ((name, first), (_, second)) in old.rows().into_iter().zip(new.rows()) {
            table.row([name.to_owned(), first, second]);
        }
        let mut out = output::stdout();
        write!(out, "{table}")?;
        let content = if self.equal { "equal" } else { "different" };
        writeln!(out, "\nthe two files are {content}")?;
        if let Some(answers) = &self.answers {
            writeln!(out, "of {} queried ids", output::count(answers.asked))?;
            for (kind, name) in [
                (&answers.both, "maybe in both"),
                (&answers.neither, "absent from both"),
                (&answers.only_first, "maybe in the first only"),
                (&answers.only_second, "maybe in the second only"),
            ] {
                writeln!(out, "  {} {name}", output::count(kind.ids))?;
                for example in &kind.examples {
                    writeln!(out, "    {example}")?;
                }
            }
        }
        out.flush()?;
        Ok(())
    }
}

/// The number of random ids that measure the false-positive rate of each filter.
const PROBES: u64 = 1_000_000;

const EXAMPLES: &str = "\
Examples:
  edgeward filter diff yesterday.ids today.ids
  edgeward filter diff yesterday.ids today.ids --source ids.txt --json

A filter cannot list its ids: changes are visible only in the answers for a list.
Exit code 1: the answers for the list differ. Without a list: the files differ.";
