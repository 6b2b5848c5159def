//! The plan of a benchmark, checked. `bench/README.md` describes the keys.

use std::path::PathBuf;
use std::time::Duration;

use super::measure::Expression;
use super::read::read;
use super::text::Values;
use crate::plan::{Problem, read_document};

/// A plan of a benchmark.
#[derive(Clone, Debug, PartialEq)]
pub struct Benchmark {
    /// The title of the summary.
    pub title: String,
    /// The description in the summary.
    pub about: Option<String>,
    /// The number of rounds. A round runs each load once with each of its servers.
    pub rounds: u32,
    /// The values of placeholders in commands and files.
    pub set: Values,
    /// Commands that run once, before any server starts.
    pub prepare: Vec<Vec<String>>,
    /// The servers in the order in which they start.
    pub servers: Vec<ServerPlan>,
    /// The loads in the order of a round.
    pub loads: Vec<LoadPlan>,
    /// The measures that the summary shows.
    pub show: Vec<Expression>,
    /// Limits for each run. A run that violates one is invalid.
    pub checks: Vec<Goal>,
    /// Limits for the medians over all rounds. A goal without limits only shows its figure.
    pub goals: Vec<Goal>,
}

/// A server process.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerPlan {
    /// The name in the summary.
    pub name: String,
    /// The program and its arguments.
    pub run: Vec<String>,
    /// Files with placeholders, which are copied to the folder of the server. Relative to the folder of the plan.
    pub files: Vec<PathBuf>,
    /// Commands that run in the folder of the server before it starts.
    pub prepare: Vec<Vec<String>>,
    /// The names of its ports, which are placeholders.
    pub ports: Vec<String>,
    /// The core to which the server is pinned.
    pub core: Option<u64>,
    /// True if loads are sent to the server. False for an origin and other servers that only take part.
    pub is_measured: bool,
    /// True if each run gets a new process with an empty folder.
    pub is_fresh: bool,
    /// True if a server that has ended during a load is started again. Otherwise its end is an error.
    pub restarts: bool,
    /// True if the folder of the server is in memory.
    pub in_memory: bool,
    /// The path of a URL that the server answers with a status of 2xx as soon as it is ready. Without it, the server is
    /// ready when it accepts connections on its first port.
    pub ready: Option<String>,
    /// Counters that are read before and after each load.
    pub counters: Vec<Counter>,
    /// The values of placeholders in the command and the files of this server, and in its loads.
    pub set: Values,
}

/// A counter on a page of a server. The measure is its increase during a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The name of the measure.
    pub name: String,
    /// The URL of the page.
    pub url: String,
    /// The position of the number on the page.
    pub value: CounterValue,
}

/// The position of a counter on its page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CounterValue {
    /// The sum of all values of a metric in the text format of Prometheus.
    Metric(String),
    /// A number of a JSON document, as a JSON pointer (RFC 6901).
    Json(String),
    /// A word of the page, counted from 1.
    Word(usize),
}

/// A load: a command that sends requests to a server.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadPlan {
    /// The name in the summary.
    pub name: String,
    /// The name of the load in the plan. Several loads have the same if the plan has `each`.
    pub kind: String,
    /// The program and its arguments.
    pub run: Vec<String>,
    /// Commands that run once for each server (for each run with a fresh server), before the first run.
    pub before: Vec<Vec<String>>,
    /// The names of the servers that get the load. [`ALONE`](Self::ALONE) if the load sends nothing to a server.
    pub servers: Vec<String>,
    /// The core to which the command is pinned.
    pub core: Option<u64>,
    /// The value of the placeholder `@seconds@` in a run that is not measured, before each measured run. `None` if
    /// there is no such run.
    pub warmup_seconds: Option<u64>,
    /// The maximum duration of a run. The lab kills a command that takes longer.
    pub time_max: Duration,
    /// The values of placeholders that only this load has.
    pub set: Values,
}

/// Limits of a measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// The goal in words.
    pub says: String,
    /// The measure.
    pub measure: Expression,
    /// The loads; empty for all.
    pub loads: Vec<String>,
    /// The servers; empty for all.
    pub of: Vec<String>,
    /// The servers whose measure is the divisor; empty for no division.
    pub to: Vec<String>,
    /// The load whose measure is the divisor. May have placeholders of `each`, which have the values of the load that
    /// is compared.
    pub to_load: Option<String>,
    /// The minimum.
    pub at_least: Option<f64>,
    /// The maximum.
    pub at_most: Option<f64>,
}

impl Benchmark {
    /// Returns true if the text is the plan of a benchmark, and not that of an experiment.
    pub fn is_plan(text: &str) -> bool {
        read_document(text, |document| Some(document.has_list("load"))) == Ok(true)
    }

    /// Parses a plan. `set` has values that replace those of `[set]`.
    ///
    /// # Errors
    ///
    /// Returns all problems, ordered by line.
    pub fn parse(text: &str, set: &[(String, String)]) -> Result<Self, Vec<Problem>> {
        read_document(text, |document| read(document, set))
    }

    /// Keeps the pairs of a load and a server whose load or server contains one of `words`. Returns false if no pair
    /// remains.
    pub fn keep_only(&mut self, words: &[String]) -> bool {
        let has = |name: &str| words.iter().any(|word| name.contains(word.as_str()));
        for load in &mut self.loads {
            if !has(&load.name) {
                load.servers.retain(|server| has(server));
            }
        }
        self.loads.retain(|load| !load.servers.is_empty());
        !self.loads.is_empty()
    }
}

impl LoadPlan {
    /// The name in the place of a server for a load that is measured without one, such as a command that reads files.
    pub const ALONE: &str = "alone";
}

impl Goal {
    /// Returns true if the goal applies to the load and the server.
    pub(super) fn is_about(&self, load: &LoadPlan, server: &String) -> bool {
        let mut loads = self.loads.iter();
        (self.loads.is_empty() || loads.any(|name| *name == load.kind || *name == load.name))
            && (self.of.is_empty() || self.of.contains(server))
    }
}
