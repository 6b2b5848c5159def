//! What is measured: databases, tables, how often.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, bail, ensure};

use crate::bench_hits::subjects::edgeward_binary;

use super::database::Kind;

pub(super) const HELP: &str = "\
Ids out of PostgreSQL and Cassandra on loopback, and static filters of them: seconds, CPU, memory.

usage: cargo xtask bench-ids [options]

  --databases LIST   postgres, cassandra [both]
  --ids LIST         rows of the tables [620000,10000000]
  --body BYTES       bytes beside the id in each row [0]
  --runs N           measured runs of each table [5]
  --warm N           runs before them that do not count [until 6 million rows were read]
  --load-only        make the tables and stop
  --folder FOLDER    the databases, kept for the next time [bench/scratch/ids]
  --edgeward NAME    a cargo profile or a path to a binary with the feature cassandra [release]
  --edgeward-args S  further arguments of `edgeward filter build`, separated by spaces
  --out FOLDER       where rows are appended to runs.jsonl [bench/scratch/ids-results]

example: cargo xtask bench-ids --databases cassandra --ids 620000 --edgeward-args '--parallel 4'
";

/// What was asked for.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) databases: Vec<Kind>,
    pub(super) tables: Vec<Table>,
    pub(super) runs: u32,
    /// Runs before those that count, if somebody said.
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
    pub(super) ids: u64,
    pub(super) body_bytes: u64,
}

impl fmt::Display for Table {
    /// Its name in the database.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "resource_{}", self.ids)?;
        if self.body_bytes > 0 {
            write!(f, "_{}", self.body_bytes)?;
        }
        Ok(())
    }
}

impl Plan {
    /// None: help is wanted.
    pub(super) fn parse(
        root: &Path,
        mut arguments: impl Iterator<Item = String>,
    ) -> anyhow::Result<Option<Self>> {
        let mut binary = "release".to_owned();
        let mut ids = vec![620_000, 10_000_000];
        let mut body_bytes = 0;
        let mut plan = Self {
            databases: vec![Kind::Postgres, Kind::Cassandra],
            tables: Vec::new(),
            runs: 5,
            warm: None,
            load_only: false,
            folder: root.join("bench/scratch/ids"),
            edgeward: PathBuf::new(),
            edgeward_args: Vec::new(),
            out: root.join("bench/scratch/ids-results"),
        };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--help" | "-h" => return Ok(None),
                "--load-only" => {
                    plan.load_only = true;
                    continue;
                }
                _ => {}
            }
            let value = arguments
                .next()
                .with_context(|| format!("{argument} needs a value"))?;
            let unclear = || format!("{argument} {value} is not understood");
            match argument.as_str() {
                "--databases" => plan.databases = list(&value)?,
                "--ids" => ids = list(&value).with_context(unclear)?,
                "--body" => body_bytes = value.parse().with_context(unclear)?,
                "--runs" => plan.runs = value.parse().with_context(unclear)?,
                "--warm" => plan.warm = Some(value.parse().with_context(unclear)?),
                "--folder" => plan.folder = root.join(value),
                "--edgeward" => binary = value,
                "--edgeward-args" => {
                    plan.edgeward_args = value.split_whitespace().map(str::to_owned).collect();
                }
                "--out" => plan.out = root.join(value),
                _ => bail!("no option is called {argument}\n  hint: --help lists them"),
            }
        }
        ensure!(
            ids.iter().all(|ids| *ids > 0),
            "a table has one id at least"
        );
        let table = |ids| Table { ids, body_bytes };
        plan.tables = ids.into_iter().map(table).collect();
        plan.edgeward = edgeward_binary(&binary, root)?;
        Ok(Some(plan))
    }

    /// Runs of a table before those that count. A Cassandra node that just began takes four times as long for its
    /// first scan as after some millions of rows, when its JVM has compiled what reads them.
    pub(super) fn warm(&self, table: Table) -> u32 {
        self.warm.unwrap_or_else(|| rounds_to_warm(table.ids))
    }
}

fn rounds_to_warm(ids: u64) -> u32 {
    u32::try_from(WARM_ROWS.div_ceil(ids.max(1))).unwrap_or(u32::MAX)
}

const WARM_ROWS: u64 = 6_000_000;

fn list<T: FromStr<Err: Into<anyhow::Error>>>(text: &str) -> anyhow::Result<Vec<T>> {
    let parsed = text.split(',').map(|word| word.parse().map_err(Into::into));
    parsed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tables_name_tells_what_is_in_it() {
        let name = |ids, body_bytes| Table { ids, body_bytes }.to_string();
        assert_eq!(name(620_000, 0), "resource_620000");
        assert_eq!(name(5, 1024), "resource_5_1024");
    }

    #[test]
    fn a_small_table_is_read_more_often_before_it_counts() {
        assert_eq!(rounds_to_warm(620_000), 10);
        assert_eq!(rounds_to_warm(10_000_000), 1);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let parse = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let error = Plan::parse(Path::new("/"), words.into_iter()).expect_err("wrong");
            format!("{error:#}")
        };
        assert!(parse("--ids many").contains("--ids many"));
        assert!(parse("--ids 0").contains("one id at least"));
        assert!(parse("--databases oracle").contains("oracle"));
        assert!(parse("--fast").contains("--fast needs a value"));
        assert!(parse("--fast 1").contains("no option is called --fast"));
    }
}
