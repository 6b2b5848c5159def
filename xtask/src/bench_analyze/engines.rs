//! Who counts, and how each is asked to.

use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::Plan;
use super::logs::LogSet;
use super::usage::{self, Usage};

/// One way to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// Counts alone, with so many threads.
    Counts(u32),
    /// The whole analysis.
    Full,
    DuckDb,
    Awk,
}

impl Engine {
    /// Those that are here.
    pub(super) fn all(plan: &Plan) -> Vec<Self> {
        let mut engines = vec![Self::Counts(1), Self::Counts(2), Self::Full];
        if plan.python.is_file() {
            engines.push(Self::DuckDb);
        }
        if plan.awk {
            engines.push(Self::Awk);
        }
        engines
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Counts(1) => "edgeward --counts, 1 thread",
            Self::Counts(_) => "edgeward --counts, 2 threads",
            Self::Full => "edgeward, all of it",
            Self::DuckDb => "DuckDB, 2 threads",
            Self::Awk => "awk | sort | uniq",
        }
    }

    /// Requests, URLs, URLs requested once, and what that took.
    pub(super) fn run(self, plan: &Plan, set: &LogSet) -> anyhow::Result<(String, Usage)> {
        let mut command = self.command(plan, set);
        let (out, usage) = usage::of(&mut command).with_context(|| self.name().to_owned())?;
        ensure!(usage.success, "{} failed", self.name());
        let text = String::from_utf8(out)?;
        if matches!(self, Self::DuckDb | Self::Awk) {
            return Ok((text.trim().to_owned(), usage));
        }
        let found: Value = serde_json::from_str(&text)?;
        let counts = ["requests", "urls", "once"].map(|key| found[key].to_string());
        Ok((counts.join(" "), usage))
    }

    fn command(self, plan: &Plan, set: &LogSet) -> Command {
        let mut command;
        match self {
            Self::Counts(_) | Self::Full => {
                command = Command::new(&plan.edgeward);
                command.args(["--quiet", "analyze", "--json", "--memory", &plan.memory]);
                command.arg("--temp").arg(&plan.out);
                if let Self::Counts(threads) = self {
                    command.args(["--counts", "--threads", &threads.to_string()]);
                }
                command.args(&set.files);
            }
            Self::DuckDb => {
                command = Command::new(&plan.python);
                command.args(["-c", DUCKDB, &plan.memory]).arg(&plan.out);
                command.args(&set.files);
            }
            Self::Awk => {
                let decoder = if set.compression == "gz" {
                    "gzip"
                } else {
                    "zstd"
                };
                let script = format!(
                    "{decoder} -dcq \"$@\" | awk '{{print $7}}' | LC_ALL=C sort -S 512M -T \"$0\" | \
                     uniq -c | awk '{{r += $1; u++; if ($1 == 1) o++}} END {{print r, u, o}}'"
                );
                command = Command::new("sh");
                command
                    .args(["-c", &script])
                    .arg(&plan.out)
                    .args(&set.files);
            }
        }
        command
    }
}

/// Lines as one column, split by SQL: its reader of CSV trips over quotes in user agents.
const DUCKDB: &str = "
import sys, duckdb
memory, temp, files = sys.argv[1], sys.argv[2], sys.argv[3:]
con = duckdb.connect(config={'memory_limit': memory, 'temp_directory': temp, 'threads': 2})
con.execute('SET preserve_insertion_order = false')
row = con.execute('''
  SELECT sum(n)::BIGINT, count(*), count(*) FILTER (n = 1)
  FROM (SELECT split_part(line, ' ', 7) AS url, count(*) AS n
        FROM read_csv($files, auto_detect = false, header = false, columns = {line: 'VARCHAR'},
                      delim = '\\x01', quote = '', escape = '')
        GROUP BY url)
''', {'files': files}).fetchone()
print(*row)
";
