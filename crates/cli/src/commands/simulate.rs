//! `edgeward simulate`: runs traces through the server's cache policies.
//!
//! `command` and `args` have the options, `plan` reads a plan, `runs` executes the runs over a trace. The results are
//! printed (`table`) or written as JSON, CSV, Parquet (`rows`) or a page with plots (`page`). With `--curve`, the
//! result is a miss-ratio curve for each policy (`curve`). With `--nodes`, the runs are fleets (`fleet`).

mod args;
mod by_c;
mod command;
mod curve;
mod disk;
mod disk_table;
mod fleet;
mod job;
mod offline;
mod page;
mod parquet;
mod part;
mod pass;
mod plan;
mod rows;
mod runs;
mod schedule;
mod table;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use edgeward_sim::TraceFacts;
use serde::Serialize;

use self::args::SimulateArgs;
pub(crate) use self::command::SimulateCommand;
use self::pass::Pass;
use self::runs::{TraceResults, measure, simulate};
use crate::input::Inputs;
use crate::output;

/// Runs the simulations and prints the results.
pub(crate) fn run(command: &SimulateCommand) -> anyhow::Result<ExitCode> {
    let args = &command.args;
    if args.parquet.is_some() {
        parquet::check()?;
    }
    let (title, studies) = match &command.plan {
        Some(file) => {
            let traces = plan::load(file, &command.given)?;
            let study = |trace: plan::PlannedTrace| Study::new(Some(trace.name), trace.args);
            let studies: anyhow::Result<Vec<_>> = traces.into_iter().map(study).collect();
            (file.display().to_string(), studies?)
        }
        None => {
            offline::check(args)?;
            let study = Study::new(None, command.args.clone())?;
            if let Some(points) = args.curve {
                return draw_curves(args, &study.inputs, usize::from(points));
            }
            (study.name.clone(), vec![study])
        }
    };
    let results = run_all(studies)?;
    if let Some(path) = &args.report {
        write_page(path, &page::render(&title, &results), args.json)?;
    }
    if let Some(folder) = &args.plots {
        for result in &results {
            let prefix = match &results[..] {
                [_] => String::new(),
                _ => format!("{}-", result.name),
            };
            part::write_plots(folder, &prefix, &page::parts(&result.simulation))?;
        }
    }
    write_rows(&rows::rows(&results), args)?;
    match &results[..] {
        [result] if args.json && command.plan.is_none() => {
            output::print_json(&result.simulation)?;
        }
        results if args.json => output::print_json(&PlanResults { traces: results })?,
        results => table::print(results, command.plan.is_some())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A trace and the options of its runs.
struct Study {
    name: String,
    args: SimulateArgs,
    inputs: Inputs,
}

/// The results of a plan: the JSON document of `--plan` with `--json`.
#[derive(Serialize)]
struct PlanResults<'a> {
    traces: &'a [TraceResults],
}

impl Study {
    /// Checks the traces. Without a name, the study has the name of its files.
    fn new(name: Option<String>, args: SimulateArgs) -> anyhow::Result<Self> {
        let inputs = args.trace.inputs_with_ttls()?;
        Ok(Self {
            name: name.unwrap_or_else(|| inputs.label()),
            args,
            inputs,
        })
    }
}

/// Executes the studies one after the other. Each uses all threads.
fn run_all(studies: Vec<Study>) -> anyhow::Result<Vec<TraceResults>> {
    let inputs = || studies.iter().map(|study| &study.inputs);
    let bytes: Option<u64> = inputs().map(Inputs::bytes).sum();
    let requests_max: Option<u64> = inputs().map(Inputs::requests_max).sum();
    let mut facts: Vec<Option<TraceFacts>> = Vec::new();
    let mut pass = None;
    for study in &studies {
        if !study.args.needs_facts() {
            facts.push(None);
            continue;
        }
        let pass = pass.get_or_insert_with(|| Pass::new("measuring", requests_max, bytes));
        facts.push(Some(measure(&study.inputs, pass)?));
    }
    drop(pass);
    let requests = |facts: &Option<TraceFacts>| facts.as_ref().map(|facts| facts.requests);
    let requests: Option<u64> = facts.iter().map(requests).sum();
    let mut pass = Pass::new("simulating", requests.or(requests_max), bytes);
    let run = |(study, facts): (Study, Option<TraceFacts>)| {
        let simulation = simulate(&study.args, &study.inputs, facts.as_ref(), &mut pass)?;
        Ok(TraceResults {
            name: study.name,
            simulation,
        })
    };
    studies.into_iter().zip(facts).map(run).collect()
}

/// Computes miss-ratio curves and prints them.
fn draw_curves(args: &SimulateArgs, inputs: &Inputs, points: usize) -> anyhow::Result<ExitCode> {
    let curves = curve::compute(args, inputs, points)?;
    if let Some(path) = &args.report {
        write_page(path, &curves.page(&inputs.label()), args.json)?;
    }
    if let Some(folder) = &args.plots {
        part::write_plots(folder, "", &curves.parts())?;
    }
    write_rows(&curves.rows(&inputs.label()), args)?;
    if args.json {
        output::print_json(&curves)?;
    } else {
        curves.print()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the files of `--csv` and `--parquet`.
fn write_rows(rows: &rows::Rows, args: &SimulateArgs) -> anyhow::Result<()> {
    if let Some(path) = &args.csv {
        rows.write_csv(path)?;
    }
    if let Some(path) = &args.parquet {
        parquet::write(rows, path)?;
    }
    Ok(())
}

/// Writes the page to `path`. Also prints the path to stderr, unless stdout has the JSON document.
fn write_page(path: &Path, html: &str, json: bool) -> anyhow::Result<()> {
    std::fs::write(path, html).with_context(|| format!("cannot write {}", path.display()))?;
    if !json {
        eprintln!("report: {}", path.display());
    }
    Ok(())
}
