//! Runs policies, each in a process of its own, and keeps their results.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::cells::Cell;
use super::policies::{Policy, Simulator};
use crate::options::Options;
use crate::referee::{Limits, Measured, PACKAGE, Referee, measure};

/// The result of one policy in one cell.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    /// The object hit ratio and the byte hit ratio. `None` if the process did not finish.
    pub(super) ratios: Option<(f64, f64)>,
    pub(super) cpu_seconds: f64,
    /// The peak resident set of the process.
    pub(super) rss_bytes: f64,
    /// `ok`, `time limit` or `failed`. A process that exceeds its limit of memory fails.
    pub(super) ending: String,
}

impl Outcome {
    fn new(measured: &Measured, policy: Policy) -> Self {
        let json = &measured.json;
        let (object, byte) = match policy.simulator {
            Simulator::Referee => (&json["object_hit_ratio"], &json["byte_hit_ratio"]),
            Simulator::Edgeward if policy.is_bound() => {
                let bound = &json["bounds"][0];
                (&bound["object_hit_ratio_max"], &bound["byte_hit_ratio_max"])
            }
            Simulator::Edgeward => {
                let run = &json["runs"][0];
                (&run["object_hit_ratio"], &run["byte_hit_ratio"])
            }
        };
        let ratios = object
            .as_f64()
            .zip(byte.as_f64())
            .filter(|_| measured.success);
        let ending = match ratios {
            Some(_) => "ok",
            None if measured.timed_out => "time limit",
            None => "failed",
        };
        Self {
            ratios,
            cpu_seconds: measured.cpu_seconds,
            rss_bytes: measured.rss_bytes,
            ending: ending.to_owned(),
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "object_hit_ratio": self.ratios.map(|ratios| ratios.0),
            "byte_hit_ratio": self.ratios.map(|ratios| ratios.1),
            "cpu_seconds": self.cpu_seconds,
            "rss_bytes": self.rss_bytes,
            "ending": self.ending,
        })
    }

    fn from_json(json: &Value) -> Option<Self> {
        let (object, byte) = (&json["object_hit_ratio"], &json["byte_hit_ratio"]);
        Some(Self {
            ratios: object.as_f64().zip(byte.as_f64()),
            cpu_seconds: json["cpu_seconds"].as_f64()?,
            rss_bytes: json["rss_bytes"].as_f64()?,
            ending: json["ending"].as_str()?.to_owned(),
        })
    }
}

/// Runs the policies that have no kept result of an earlier run.
pub(super) struct Runner {
    root: PathBuf,
    edgeward: PathBuf,
    /// The hash of the binary. Results of another binary are ignored.
    edgeward_hash: String,
    referee: Option<Referee>,
    limits: Limits,
    jobs: usize,
    /// True if no policy is run, and only kept results are returned (`--cached`).
    only_cached: bool,
    /// The file of the results, one JSON object per line.
    cache: PathBuf,
}

impl Runner {
    pub(super) fn new(
        root: &Path,
        options: &Options,
        edgeward: PathBuf,
        referee: Option<Referee>,
    ) -> anyhow::Result<Self> {
        let sum = Command::new("sha256sum").arg(&edgeward).output()?.stdout;
        let sum = String::from_utf8_lossy(&sum);
        Ok(Self {
            root: root.to_path_buf(),
            edgeward_hash: sum.chars().take(16).collect(),
            edgeward,
            referee,
            limits: Limits {
                cpu_seconds: options.count("--cpu", 600)?,
                ..Limits::default()
            },
            jobs: options.count("--jobs", 2)?,
            only_cached: options.is_set("--cached"),
            cache: root.join("bench/scratch/ohr/cache.jsonl"),
        })
    }

    /// Returns the outcomes of all policies for each cell, in the order of the arguments. `None` means that the policy
    /// has no result and was not run.
    pub(super) fn outcomes(
        &self,
        cells: &[Cell],
        policies: &[Policy],
    ) -> anyhow::Result<Vec<Vec<Option<Outcome>>>> {
        let known = self.read_cache();
        let outcome = |cell: &Cell, policy: &Policy| known.get(&self.key(cell, *policy)).cloned();
        let mut outcomes: Vec<Vec<Option<Outcome>>> = cells
            .iter()
            .map(|cell| {
                policies
                    .iter()
                    .map(|policy| outcome(cell, policy))
                    .collect()
            })
            .collect();
        if self.only_cached {
            return Ok(outcomes);
        }
        // Each policy runs in all cells before the next policy. The slow ones are last, so most results are early.
        let mut missing = Vec::new();
        for (p, policy) in policies.iter().enumerate() {
            for (c, cell) in cells.iter().enumerate() {
                if outcomes[c][p].is_none() {
                    missing.extend(self.words(cell, *policy).map(|words| (c, p, words)));
                }
            }
        }
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::new());
        thread::scope(|scope| {
            let work = || -> anyhow::Result<()> {
                while let Some((c, p, words)) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (cell, policy) = (&cells[*c], policies[*p]);
                    let outcome = Outcome::new(&measure(&self.root, words, self.limits)?, policy);
                    let mut done = done.lock().expect("no thread panics with the lock");
                    self.append(&self.key(cell, policy), &outcome)?;
                    done.push((*c, *p, outcome));
                    eprint!("\r{} of {} runs", done.len(), missing.len());
                }
                Ok(())
            };
            let threads: Vec<_> = (0..self.jobs).map(|_| scope.spawn(work)).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().expect("no worker panics"))
        })?;
        eprintln!();
        for (c, p, outcome) in done.into_inner().expect("no thread panics with the lock") {
            outcomes[c][p] = Some(outcome);
        }
        Ok(outcomes)
    }

    /// Returns the command of a run, or `None` if it needs the referee and there is no referee.
    fn words(&self, cell: &Cell, policy: Policy) -> Option<Vec<OsString>> {
        if policy.simulator == Simulator::Referee {
            let referee = self.referee.as_ref()?;
            return Some(referee.command(policy.name, cell.capacity_bytes, &cell.trace.path));
        }
        let capacity = cell.capacity_bytes.to_string();
        let what = if policy.is_bound() {
            ["--bounds", "--policy", "lru"]
        } else {
            ["--no-series", "--policy", policy.name]
        };
        let mut words: Vec<OsString> = vec![self.edgeward.clone().into()];
        let options = ["simulate", "--quiet", "--json", "--capacity", &capacity];
        words.extend(options.map(OsString::from));
        words.extend(what.map(OsString::from));
        words.push(cell.trace.path.clone().into());
        Some(words)
    }

    /// Returns the text that identifies a run. Traces with equal names and footprints are considered equal.
    fn key(&self, cell: &Cell, policy: Policy) -> String {
        let program = match policy.simulator {
            Simulator::Edgeward => &self.edgeward_hash,
            Simulator::Referee => PACKAGE,
        };
        format!(
            "{} {} {} {program} {}",
            cell.trace.name, cell.trace.footprint_bytes, cell.capacity_bytes, policy.name
        )
    }

    fn read_cache(&self) -> HashMap<String, Outcome> {
        let text = fs::read_to_string(&self.cache).unwrap_or_default();
        let lines = text.lines().filter_map(|line| {
            let json: Value = serde_json::from_str(line).ok()?;
            Some((json["key"].as_str()?.to_owned(), Outcome::from_json(&json)?))
        });
        lines.collect()
    }

    fn append(&self, key: &str, outcome: &Outcome) -> anyhow::Result<()> {
        let mut json = outcome.json();
        json["key"] = json!(key);
        let file = File::options().create(true).append(true).open(&self.cache);
        let mut file = file.with_context(|| self.cache.display().to_string())?;
        Ok(writeln!(file, "{json}")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_read_back_from_its_json() {
        for ratios in [Some((0.5, 0.25)), None] {
            let outcome = Outcome {
                ratios,
                cpu_seconds: 1.5,
                rss_bytes: 4096.0,
                ending: "ok".to_owned(),
            };
            assert_eq!(Outcome::from_json(&outcome.json()), Some(outcome));
        }
    }
}
