//! `edgeward filter query`: queries a filter for ids.

use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use edgeward_filter::IdForm;
use edgeward_filter::guava::Funnel;

use super::open_filter::{self, GuavaFormat};
use crate::output;

/// Query a filter: may these ids exist?
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct QueryArgs {
    /// The filter file
    #[arg(value_name = "FILTER")]
    filter: PathBuf,

    /// Ids to query; without an ID, each line of stdin is an id
    #[arg(value_name = "ID")]
    ids: Vec<String>,

    /// The file is a Guava filter with this funnel: utf8, unencoded-chars, long
    #[arg(long, value_name = "FUNNEL")]
    guava: Option<Funnel>,

    /// Form of the ids in a Guava filter: text, uuid, integer
    #[arg(long, value_name = "FORM", default_value = "text", requires = "guava")]
    form: IdForm,

    /// Print one line of JSON for each id
    #[arg(long)]
    json: bool,
}

/// Prints the answer for each id. Exit codes: 0 at least one id may exist, 1 all ids are absent.
pub(crate) fn run(args: &QueryArgs) -> anyhow::Result<ExitCode> {
    let guava = args.guava.map(|funnel| GuavaFormat {
        form: args.form,
        funnel,
    });
    let filter = open_filter::open(&args.filter, guava)?;
    let mut out = output::stdout();
    let mut may_any_exist = false;
    let mut print_answer = |id: &[u8]| -> anyhow::Result<()> {
        let maybe = filter.contains(id)?;
        may_any_exist |= maybe;
        let answer = if maybe { "maybe" } else { "absent" };
        if args.json {
            let id = String::from_utf8_lossy(id);
            let line = serde_json::to_string(&AnswerLine { id: &id, answer })?;
            writeln!(out, "{line}")?;
        } else {
            write!(out, "{answer}\t")?;
            out.write_all(id)?;
            writeln!(out)?;
        }
        Ok(())
    };
    for id in &args.ids {
        print_answer(id.as_bytes())?;
    }
    if args.ids.is_empty() {
        let mut stdin = std::io::stdin().lock();
        let mut line = Vec::new();
        while stdin.read_until(b'\n', &mut line)? > 0 {
            let id = line.strip_suffix(b"\n").unwrap_or(&line);
            let id = id.strip_suffix(b"\r").unwrap_or(id);
            if !id.is_empty() {
                print_answer(id)?;
            }
            line.clear();
        }
    }
    out.flush()?;
    Ok(ExitCode::from(u8::from(!may_any_exist)))
}

#[derive(Serialize)]
struct AnswerLine<'a> {
    id: &'a str,
    answer: &'a str,
}

const EXAMPLES: &str = "\
Examples:
  edgeward filter query resource.ids 550e8400-e29b-41d4-a716-446655440000
  cut -d, -f1 wanted.csv | edgeward filter query resource.ids | grep ^maybe

`absent` is certain. `maybe` is wrong for some absent ids; `edgeward filter
inspect` measures their share. Exit code 1: all ids are absent.";
