//! The plan of the benchmark: databases, tables, rounds.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::ensure;

use crate::options::Options;

use super::database::Kind;

pub(crate) const HELP: &str = "\
Measures scans of ids from PostgreSQL and Cassandra.

usage: cargo xtask bench-ids [options]

  --databases LIST   postgres, cassandra [both]
  --ids LIST         numbers of rows, one table for each [620000,10000000]
  --body BYTES       further bytes in each row beside the id [0]
  --runs N           measured runs of each table [5]
  --warm N           warm-up runs [until 6 million rows were read]
  --load-only        only create the tables
  --folder FOLDER    the databases, kept for later runs [bench/scratch/ids]
  --edgeward NAME    a cargo profile or a path to a binary, with the feature
                     cassandra [release]
  --edgeward-args S  further arguments of `edgeward filter build`
  --out FOLDER       for runs.jsonl, to which rows are appended
                     [bench/scratch/ids-results]

example: cargo xtask bench-ids --ids 620000 --edgeward-args '--parallel 4'
";

/// The options of the command.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) databases: Vec<Kind>,
    pub(super) tables: Vec<Table>,
    pub(super) runs: u32,
    /// The number of warm-up runs, if the option was given.
    pub(super) warm: Option<u32>,
    pub(super) load_only: bool,
    pub(super) folder: PathBuf,
    pub(super) edgeward: PathBuf,
    pub(super) edgeward_args: Vec<String>,
    pub(super) out: PathBuf,
}

/// A table of UUIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// The number of rows, each with one id.
    pub(super) ids: u64,
    /// Further bytes in each row.
    pub(super) body_bytes: u64,
}

impl fmt::Display for Table {
    /// Writes the table's name in the database.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "resource_{}", self.ids)?;
        if self.body_bytes > 0 {
            write!(f, "_{}", self.body_bytes)?;
        }
        Ok(())
    }
}

impl Plan {
    pub(super) fn from_options(root: &Path, options: &Options) -> anyhow::Result<Self> {
        let ids = options.numbers("--ids", "620000,10000000")?;
        ensure!(
            ids.iter().all(|ids| *ids > 0),
            "a table needs at least one id"
        );
        let body_bytes = options.number("--body", 0)?;
        let table = |ids| Table { ids, body_bytes };
        Ok(Self {
            databases: options.choice("--databases", &Kind::ALL, Kind::name)?,
            tables: ids.into_iter().map(table).collect(),
            runs: options.number("--runs", 5)?,
            warm: options.number_given("--warm")?,
            load_only: options.is_set("--load-only"),
            folder: options.path("--folder", root, "bench/scratch/ids"),
            edgeward_args: options.space_separated("--edgeward-args"),
            out: options.path("--out", root, "bench/scratch/ids-results"),
            edgeward: options.edgeward(root, "release")?,
        })
    }

    /// Returns the number of warm-up runs for a table. The first scan of a new Cassandra node takes four times
    /// as long as later scans: its JVM compiles the read path during the first millions of rows.
    pub(super) fn warm(&self, table: Table) -> u32 {
        self.warm.unwrap_or_else(|| default_warm_up_runs(table.ids))
    }
}

fn default_warm_up_runs(ids: u64) -> u32 {
    u32::try_from(WARM_ROWS.div_ceil(ids.max(1))).unwrap_or(u32::MAX)
}

const WARM_ROWS: u64 = 6_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_table_has_its_rows_and_body_bytes() {
        let name = |ids, body_bytes| Table { ids, body_bytes }.to_string();
        assert_eq!(name(620_000, 0), "resource_620000");
        assert_eq!(name(5, 1024), "resource_5_1024");
    }

    #[test]
    fn a_small_table_has_more_warm_up_runs() {
        assert_eq!(default_warm_up_runs(620_000), 10);
        assert_eq!(default_warm_up_runs(10_000_000), 1);
    }

    #[test]
    fn an_error_names_the_invalid_option() {
        let message = |line: &str| {
            let words = line.split(' ').map(str::to_owned);
            let options = Options::parse(HELP, words);
            let options = options.map(|options| options.expect("the line does not ask for help"));
            let plan = options.and_then(|options| Plan::from_options(Path::new("/"), &options));
            format!("{:#}", plan.expect_err("the options are invalid"))
        };
        assert!(message("--ids many").contains("--ids many"));
        assert!(message("--ids 0").contains("at least one id"));
        assert!(message("--databases oracle").contains("oracle"));
        assert!(message("--runs").contains("--runs needs a value"));
        assert!(message("--fast 1").contains("no option is called --fast"));
    }
}
