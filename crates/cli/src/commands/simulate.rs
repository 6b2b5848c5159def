//! `edgeward simulate`: runs a trace through the server's cache policies.
//!
//! `args` has the options, `runs` the runs over a trace. The results are printed (`table`) or written as JSON, CSV
//! (`csv`) or a page with plots (`page`). With `--curve`, the result is a miss-ratio curve for each policy (`curve`).

mod args;
mod csv;
mod curve;
mod disk;
mod job;
mod offline;
mod page;
mod runs;
mod schedule;
mod table;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;

pub(crate) use self::args::SimulateArgs;
use self::runs::{Simulation, measure, simulate};
use crate::input::Inputs;
use crate::output;

/// Runs the simulation and prints the results.
pub(crate) fn run(args: SimulateArgs) -> anyhow::Result<ExitCode> {
    offline::check(&args)?;
    let inputs = args.trace.inputs()?;
    if let Some(points) = args.curve {
        return draw_curves(&args, &inputs, usize::from(points));
    }
    let facts = if args.needs_facts() {
        Some(measure(&inputs)?)
    } else {
        None
    };
    let simulation = simulate(&args, &inputs, facts.as_ref())?;
    if let Some(path) = &args.report {
        write_page(path, &page::render(&simulation, &inputs.label()), args.json)?;
    }
    if let Some(path) = &args.csv {
        csv::rows(&simulation, &inputs.label()).write(path)?;
    }
    if args.json {
        output::print_json(&simulation)?;
    } else {
        table::print(&simulation)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Computes miss-ratio curves and prints them.
fn draw_curves(args: &SimulateArgs, inputs: &Inputs, points: usize) -> anyhow::Result<ExitCode> {
    let curves = curve::compute(args, inputs, points)?;
    if let Some(path) = &args.report {
        write_page(path, &curves.page(&inputs.label()), args.json)?;
    }
    if let Some(path) = &args.csv {
        curves.csv(&inputs.label()).write(path)?;
    }
    if args.json {
        output::print_json(&curves)?;
    } else {
        curves.print()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the page to `path`. Also prints the path to stderr, unless stdout has the JSON document.
fn write_page(path: &Path, html: &str, json: bool) -> anyhow::Result<()> {
    std::fs::write(path, html).with_context(|| format!("cannot write {}", path.display()))?;
    if !json {
        eprintln!("report: {}", path.display());
    }
    Ok(())
}
