//! The programs whose speed of counting requests the benchmark `bench-analyze` compares, and their commands.

use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::Plan;
use super::logs::LogSet;
use super::usage::{self, Usage};

/// An engine that counts requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// `edgeward analyze --counts` with this number of threads.
    Counts(u32),
    /// `edgeward analyze` with the whole analysis.
    Full,
    DuckDb,
    DataFusion,
    /// The embedded form of ClickHouse.
    ChDb,
    Awk,
}

impl Engine {
    /// Returns the engines to measure: those of edgeward, those whose package the plan's Python has, and awk if the
    /// plan includes it.
    pub(super) fn all(plan: &Plan) -> Vec<Self> {
        let mut engines = vec![Self::Counts(1), Self::Counts(2), Self::Full];
        for engine in [Self::DuckDb, Self::DataFusion, Self::ChDb] {
            if engine.is_installed(plan) {
                engines.push(engine);
            }
        }
        if plan.awk {
            engines.push(Self::Awk);
        }
        engines
    }

    /// Returns true if the plan's Python has the engine's package.
    fn is_installed(self, plan: &Plan) -> bool {
        let package = match self {
            Self::DuckDb => "duckdb",
            Self::DataFusion => "datafusion, pyarrow",
            _ => "chdb",
        };
        let import = Command::new(&plan.python)
            .args(["-c", &format!("import {package}")])
            .stderr(Stdio::null())
            .status();
        import.is_ok_and(|status| status.success())
    }

    /// Returns true for engines that may run out of memory. edgeward and awk must succeed.
    pub(super) const fn may_fail(self) -> bool {
        matches!(self, Self::DuckDb | Self::DataFusion | Self::ChDb)
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Counts(1) => "edgeward --counts, 1 thread",
            Self::Counts(_) => "edgeward --counts, 2 threads",
            Self::Full => "edgeward, whole analysis",
            Self::DuckDb => "DuckDB, 2 threads",
            Self::DataFusion => "DataFusion, 2 threads",
            Self::ChDb => "chDB, 2 threads",
            Self::Awk => "awk | sort | uniq",
        }
    }

    /// Returns the numbers of requests, URLs and URLs requested once, and the resource use.
    pub(super) fn run(self, plan: &Plan, set: &LogSet) -> anyhow::Result<(String, Usage)> {
        let mut command = self.command(plan, set);
        let (out, usage) = usage::measure(&mut command).with_context(|| self.name().to_owned())?;
        ensure!(usage.success, "{} failed", self.name());
        let text = String::from_utf8(out)?;
        if !matches!(self, Self::Counts(_) | Self::Full) {
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
            Self::DuckDb | Self::DataFusion | Self::ChDb => {
                let script = match self {
                    Self::DuckDb => DUCKDB,
                    Self::DataFusion => DATAFUSION,
                    _ => CHDB,
                };
                command = Command::new(&plan.python);
                command.args(["-c", script, &plan.memory]).arg(&plan.out);
                command.args(&set.files);
            }
            Self::Awk => {
                let decoder = if set.compression == "gz" {
                    "gzip"
                } else {
                    "zstd"
                };
                // `sh -c` passes the first argument after the script, the output folder, as `$0`.
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

/// Reads a line as columns that are separated by spaces and may be quoted. This is the fastest way in DuckDB.
/// The result is wrong if a user agent has an escaped quote; generated logs have no such user agent.
const DUCKDB: &str = "
import sys, duckdb
memory, temp, files = sys.argv[1], sys.argv[2], sys.argv[3:]
con = duckdb.connect(config={'memory_limit': memory, 'temp_directory': temp, 'threads': 2})
con.execute('SET preserve_insertion_order = false')
row = con.execute('''
  SELECT sum(n)::BIGINT, count(*), count(*) FILTER (n = 1)
  FROM (SELECT split_part(c5, ' ', 2) AS url, count(*) AS n
        FROM read_csv($files, auto_detect = false, header = false, delim = ' ', quote = '\"', escape = '\"',
                      columns = {c0: 'VARCHAR', c1: 'VARCHAR', c2: 'VARCHAR', c3: 'VARCHAR', c4: 'VARCHAR',
                                 c5: 'VARCHAR', c6: 'VARCHAR', c7: 'VARCHAR', c8: 'VARCHAR', c9: 'VARCHAR'})
        GROUP BY url)
''', {'files': files}).fetchone()
print(*row)
";

/// Reads whole lines and splits them in SQL. The script converts the value of `--memory`, such as `700MB`, to bytes.
const DATAFUSION: &str = "
import os, sys, pyarrow
from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext
memory, temp, files = sys.argv[1], sys.argv[2], sys.argv[3:]
bytes = int(memory.removesuffix('MB')) * 1000000
runtime = RuntimeEnvBuilder().with_disk_manager_specified(temp).with_fair_spill_pool(bytes)
context = SessionContext(SessionConfig().with_target_partitions(2), runtime)
ending = os.path.splitext(files[0])[1]
context.register_csv('log', os.path.dirname(files[0]) + '/', has_header=False, delimiter='\\x01',
                     schema=pyarrow.schema([('line', pyarrow.string())]), file_extension=ending,
                     file_compression_type={'.zst': 'zstd', '.gz': 'gzip'}[ending])
table = context.sql('''
  SELECT sum(n), count(*), count(*) FILTER (WHERE n = 1)
  FROM (SELECT split_part(line, ' ', 7) AS url, count(*) AS n FROM log GROUP BY 1)
''').to_arrow_table()
print(*table.to_pylist()[0].values())
";

const CHDB: &str = "
import os, sys, chdb
memory, temp, files = sys.argv[1], sys.argv[2], sys.argv[3:]
bytes = int(memory.removesuffix('MB')) * 1000000
ending = os.path.splitext(files[0])[1]
print(str(chdb.query(f'''
  SELECT sum(n), count(), countIf(n = 1)
  FROM (SELECT splitByChar(' ', line)[7] AS url, count() AS n
        FROM file('{os.path.dirname(files[0])}/*{ending}', 'LineAsString', 'line String') GROUP BY url)
  SETTINGS max_threads = 2, max_memory_usage = {bytes}, max_bytes_before_external_group_by = {bytes // 3}
''', 'TSV')).strip().replace('\\t', ' '))
";
