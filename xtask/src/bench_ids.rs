//! Measures how long a real database takes to return all ids, and its CPU time.
//!
//! PostgreSQL from Debian and Cassandra from Maven Central run on loopback with tables of random UUIDs. The tables
//! are kept for the next run. `edgeward filter build` reads each table several times and builds a static filter. The
//! measured values are duration, CPU time and memory of edgeward and of the database. A run is invalid if its filter
//! does not have the same number of ids as the table, or if the connection to the database was lost during the run.

mod cassandra;
mod database;
mod plan;
mod postgres;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::bench_analyze::usage;
use crate::bench_shared::facts;
use crate::options::Options;
use crate::say;

use database::{Database, MemorySampler};
pub(crate) use plan::HELP;
use plan::{Plan, Table};

/// Runs the benchmark. Returns true if all runs are valid.
pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<bool> {
    let plan = Plan::from_options(root, options)?;
    fs::create_dir_all(&plan.folder).with_context(|| plan.folder.display().to_string())?;
    fs::create_dir_all(&plan.out).with_context(|| plan.out.display().to_string())?;
    let machine = facts::common(root, &plan.edgeward);
    let mut raw = File::options()
        .create(true)
        .append(true)
        .open(plan.out.join("runs.jsonl"))?;
    let mut runs = Vec::new();
    for kind in &plan.databases {
        let database = kind.start(root, &plan)?;
        for &table in &plan.tables {
            database.ensure_loaded(root, table)?;
        }
        if plan.load_only {
            continue;
        }
        for &table in &plan.tables {
            for round in 0..plan.warm(table) + plan.runs {
                let run = measure(&plan, &database, table, round, &machine)?;
                eprintln!("{}", row(&run));
                writeln!(raw, "{run}")?;
                runs.push(run);
            }
        }
    }
    if !plan.load_only {
        let text = summary(&runs);
        say(&text);
        let file = plan.out.join("machine.json");
        fs::write(file, format!("{machine:#}\n"))?;
        say(format!("raw results: {}\n", plan.out.display()));
    }
    Ok(runs.iter().all(|run| run["spoiled"].is_null()))
}

/// Builds a filter from a table once and measures it.
fn measure(
    plan: &Plan,
    database: &Database,
    table: Table,
    round: u32,
    machine: &Value,
) -> anyhow::Result<Value> {
    let file = plan.folder.join("measured.ids");
    let query = format!("SELECT id FROM {table}");
    let memory = MemorySampler::sample(database.pid());
    let cpu_before = database.cpu_seconds()?;
    // `stolen` is the number of CPU ticks that the host took from this virtual machine.
    let (stolen_before, ticks_before) = facts::stolen();
    let (out, used) = usage::measure(
        Command::new(&plan.edgeward)
            .args(["filter", "build", "--source", &database.address()])
            .args(["--query", &query, "--fpr", "1%", "--json", "--output"])
            .arg(&file)
            .args(&plan.edgeward_args),
    )?;
    ensure!(used.success, "`edgeward filter build` failed");
    let server_cpu = database.cpu_seconds()? - cpu_before;
    let server_rss = memory.end();
    let (stolen, ticks) = facts::stolen();
    let built: Value = serde_json::from_slice(&out).context("the output of --json")?;
    let number = |key: &str| built[key].as_f64().unwrap_or(f64::NAN);
    let rounded = |number: f64| (number * 1000.0).round() / 1000.0;
    Ok(json!({
        "database": database.version(),
        "ids": table.ids,
        "body_bytes": table.body_bytes,
        "arguments": plan.edgeward_args.join(" "),
        "round": round,
        "warming": round < plan.warm(table),
        "wall_seconds": rounded(used.wall.as_secs_f64()),
        "read_seconds": rounded(number("read_seconds")),
        "build_seconds": rounded(number("build_seconds")),
        "ids_per_second": (table.ids as f64 / (number("read_seconds") + number("build_seconds"))).round(),
        "cpu_seconds": used.cpu.as_secs_f64(),
        "rss_bytes": used.rss_bytes,
        "server_cpu_seconds": rounded(server_cpu),
        "server_rss_bytes": server_rss,
        "filter_bytes": built["bytes"],
        "stolen_share": rounded((stolen - stolen_before) as f64 / (ticks - ticks_before).max(1) as f64),
        "load_average": facts::load_average(),
        "commit": machine["commit"],
        "spoiled": invalid_reason(&built, table.ids),
    }))
}

/// Returns the reason why a run is invalid, or `None` for a valid run.
fn invalid_reason(built: &Value, ids: u64) -> Option<String> {
    // `setbacks` is the number of times that the connection was lost.
    let (found, setbacks) = (&built["ids"], &built["setbacks"]);
    if *found != json!(ids) {
        return Some(format!("the filter has {found} ids, the table {ids}"));
    }
    (*setbacks != json!(0))
        .then(|| format!("the connection to the database was lost {setbacks} times"))
}

fn row(run: &Value) -> String {
    let number = |key: &str| run[key].as_f64().unwrap_or(f64::NAN);
    let mib = |key: &str| number(key) / f64::from(1 << 20);
    let note = if run["warming"] == true {
        "  warm-up"
    } else {
        ""
    };
    format!(
        "{:<18} {:>10} ids  read {:>7.2} s  build {:>6.2} s  CPU {:>6.2} s, database {:>6.2} s  \
         RSS {:>5.0} MiB, database {:>5.0} MiB{note}{}",
        run["database"].as_str().unwrap_or_default(),
        run["ids"],
        number("read_seconds"),
        number("build_seconds"),
        number("cpu_seconds"),
        number("server_cpu_seconds"),
        mib("rss_bytes"),
        mib("server_rss_bytes"),
        run["spoiled"]
            .as_str()
            .map_or_else(String::new, |why| format!("  ! {why}")),
    )
}

/// Returns the medians of the valid runs as a Markdown table, with a row for each database table.
fn summary(runs: &[Value]) -> String {
    let mut text = String::from(
        "\n| | ids | read (fastest) | build | ids/s, read and build | CPU | CPU of the database | RSS | RSS of the database | runs |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    let counted = |run: &&Value| run["warming"] == false && run["spoiled"].is_null();
    let table_of = |run: &Value| {
        (
            run["database"].clone(),
            run["ids"].clone(),
            run["body_bytes"].clone(),
        )
    };
    let mut seen = Vec::new();
    for run in runs.iter().filter(counted) {
        if seen.contains(&table_of(run)) {
            continue;
        }
        seen.push(table_of(run));
        let sorted = |key: &str| {
            let same = runs
                .iter()
                .filter(counted)
                .filter(|r| table_of(r) == table_of(run));
            let mut numbers: Vec<f64> = same.filter_map(|run| run[key].as_f64()).collect();
            numbers.sort_unstable_by(f64::total_cmp);
            numbers
        };
        let median = |key: &str| {
            let numbers = sorted(key);
            numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
        };
        let mib = |key: &str| median(key) / f64::from(1 << 20);
        let reads = sorted("read_seconds");
        let body = run["body_bytes"].as_u64().filter(|bytes| *bytes > 0);
        let body = body.map_or_else(String::new, |bytes| {
            format!(", rows with {bytes} further bytes")
        });
        text += &format!(
            "| {}{body} | {} | {:.2} s ({:.2} s) | {:.2} s | {:.0} | {:.2} s | {:.2} s | {:.0} MiB | {:.0} MiB | {} |\n",
            run["database"].as_str().unwrap_or_default(),
            run["ids"],
            median("read_seconds"),
            reads[0],
            median("build_seconds"),
            median("ids_per_second"),
            median("cpu_seconds"),
            median("server_cpu_seconds"),
            mib("rss_bytes"),
            mib("server_rss_bytes"),
            reads.len(),
        );
    }
    text + "\n"
}

/// Returns a folder below `parent`, creating it if it is missing.
fn folder(parent: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let path = parent.join(name);
    fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_whose_filter_lacks_ids_is_invalid() {
        let built = |ids: u64, setbacks: u64| json!({"ids": ids, "setbacks": setbacks});
        assert_eq!(invalid_reason(&built(7, 0), 7), None);
        assert!(invalid_reason(&built(6, 0), 7).is_some());
        assert!(invalid_reason(&built(7, 1), 7).is_some());
        assert!(invalid_reason(&json!({}), 7).is_some());
    }

    #[test]
    fn a_summary_has_the_median_of_the_valid_runs() {
        let run = |read: f64, warming: bool| {
            json!({"database": "D", "ids": 5, "body_bytes": 0, "warming": warming,
                "spoiled": null, "read_seconds": read})
        };
        let text = summary(&[
            run(9.0, true),
            run(3.0, false),
            run(1.0, false),
            run(2.0, false),
        ]);
        assert!(text.contains("| D | 5 | 2.00 s (1.00 s) |"), "{text}");
        assert_eq!(
            text.lines().filter(|line| line.contains("| D |")).count(),
            1
        );
    }
}
