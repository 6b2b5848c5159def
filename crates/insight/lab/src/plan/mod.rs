//! The plan of an experiment, validated and with all defaults filled in.
//!
//! A plan is a TOML file with one trace, one load, an origin and the contenders. [`Plan::parse`] reports all problems
//! at once. `docs/how-to/lab.md` describes the keys.

mod contender;
mod nearest;
mod read;
mod table;
mod value;

use std::fmt;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use edgeward_trace::generate::Preset;

use crate::figure::{ComparisonKind, Figure};

pub(crate) use nearest::nearest;
pub use table::{Entry, Problem, Table, read_document};

/// A plan of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The question that the experiment answers; the heading of the report.
    pub title: String,
    /// Background for the reader of the report.
    pub about: Option<String>,
    /// The trace that is replayed.
    pub trace: TracePlan,
    /// The load: how the requests are sent.
    pub load: LoadPlan,
    /// The emulated round-trip time to the origin. The origin delays each response by this time.
    pub origin_round_trip: Duration,
    /// The contenders that the findings (sentences in the report) compare.
    pub comparison: Option<ComparisonPlan>,
    /// The contenders; at least one, with distinct names.
    pub contenders: Vec<Contender>,
    /// Published figures, shown beside the measured ones.
    pub sources: Vec<SourceFigure>,
}

/// The trace of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct TracePlan {
    /// The source of the trace.
    pub origin: TraceOrigin,
    /// The number of requests after which the trace is cut off.
    pub requests: u64,
    /// The maximum size of an object. Requests for larger objects are skipped.
    pub size_bytes_max: Option<u64>,
    /// The line of the plan at which the table begins, counted from 1.
    pub line: usize,
}

/// The source of a trace.
#[derive(Clone, Debug, PartialEq)]
pub enum TraceOrigin {
    /// A synthetic trace, generated from a seed.
    Generated(Generated),
    /// A file in any format that `edgeward trace info` reads.
    File(PathBuf),
}

/// A synthetic workload: a preset and the changes to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// The preset.
    pub preset: Preset,
    /// The seed of the random generator.
    pub seed: u64,
    /// The number of distinct objects; `None` uses the preset's.
    pub objects: Option<u64>,
    /// The share of the objects that are requested once; `None` uses the preset's.
    pub one_hit_share: Option<f64>,
    /// The share of the objects that first appear during the trace. Objects with one request do not count. `None` uses
    /// the preset's.
    pub churn: Option<f64>,
}

/// How requests are sent.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadPlan {
    /// Open connections to each contender.
    pub connections: NonZeroUsize,
    /// Requests per second; `None` means a closed loop.
    pub rate: Option<f64>,
    /// The part of the trace at its beginning that is sent but not measured.
    pub warmup: Amount,
    /// The emulated round-trip time to the clients.
    pub round_trip: Duration,
    /// The order of the contenders: one after the other, or at the same time.
    pub order: Order,
    /// The maximum duration of a contender's run. The lab ends a longer run early.
    pub time_max: Duration,
}

/// A part of the trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// A number of requests.
    Requests(u64),
    /// A share of the requests.
    Share(f64),
}

impl Amount {
    /// Returns the number of requests, for a trace of `requests`.
    pub fn of(self, requests: u64) -> u64 {
        match self {
            Self::Requests(n) => n.min(requests),
            Self::Share(share) => ((requests as f64 * share) as u64).min(requests),
        }
    }
}

/// The order in which contenders run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One after the other, so that they do not compete for the cores.
    InTurn,
    /// All at once, each with its own load and origin.
    Together,
}

/// The contenders that the findings compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparisonPlan {
    /// A contender, or a group, which is represented by its best contender.
    pub subject: String,
    /// The contenders or groups that the subject is compared with.
    pub with: Vec<String>,
}

/// A contender: one server with its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// The name in the report.
    pub name: String,
    /// The name of the contender's group. The contenders of a group are variants of one server, and the
    /// contender with the highest hit ratio represents the group in comparisons.
    pub group: Option<String>,
    /// The program and its specific settings.
    pub server: Server,
    /// The capacity of the cache in memory; `None` if the plan does not give it.
    pub memory: Option<Size>,
    /// The capacity of the cache on disk; `None` if the plan does not give it.
    pub disk: Option<Size>,
    /// Worker threads or processes.
    pub workers: NonZeroUsize,
    /// The line of the plan at which the table begins, counted from 1.
    pub line: usize,
}

/// The server program of a contender.
#[derive(Clone, Debug, PartialEq)]
pub enum Server {
    /// The `edgeward` binary.
    Edgeward {
        /// Keys of its configuration.
        settings: Vec<Setting>,
        /// A change of settings during the run.
        settings_switch: Option<SettingsSwitch>,
    },
    /// nginx.
    Nginx {
        /// The number of requests for an object after which nginx stores it.
        min_uses: NonZeroU64,
    },
    /// Varnish.
    Varnish,
    /// Apache Traffic Server.
    TrafficServer,
}

impl Server {
    /// Returns the name of the server in a plan.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Edgeward { .. } => "edgeward",
            Self::Nginx { .. } => "nginx",
            Self::Varnish => "varnish",
            Self::TrafficServer => "trafficserver",
        }
    }

    /// All names of servers in a plan.
    pub const WORDS: [&str; 4] = ["edgeward", "nginx", "varnish", "trafficserver"];
}

/// A switch from a contender's settings to other settings during the run. The server is restarted with the new settings
/// and keeps its disk cache.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingsSwitch {
    /// The part of the trace before the change.
    pub at: Amount,
    /// The settings that change, with their new values.
    pub settings: Vec<Setting>,
}

/// One key of an edge's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The table, for example `hot`.
    pub table: String,
    /// The key, for example `policy`.
    pub key: String,
    /// The value.
    pub value: SettingValue,
    /// The line of the plan that has the key, counted from 1.
    pub line: usize,
}

impl Setting {
    /// Returns the full key, for example `hot.policy`.
    pub fn path(&self) -> String {
        format!("{}.{}", self.table, self.key)
    }
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingValue {
    /// A string.
    Text(String),
    /// An integer.
    Number(i64),
    /// `true` or `false`.
    Boolean(bool),
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => number.fmt(f),
            Self::Boolean(on) => on.fmt(f),
        }
    }
}

/// The capacity of a contender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// A number of bytes.
    Bytes(u64),
    /// A share of the total size of all objects of the trace, so that a plan fits any trace.
    Share(f64),
}

impl Size {
    /// Returns the capacity in bytes. `footprint_bytes` is the total size of all objects. A share gives at least
    /// 1 MiB, which all servers accept as a capacity in memory.
    pub fn of(self, footprint_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(share) => ((footprint_bytes as f64 * share) as u64).max(SIZE_BYTES_MIN),
        }
    }
}

/// A published comparison of two values, from the source in `citation`. The page shows it beside the measured result.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceFigure {
    /// The figure that was measured.
    pub figure: Figure,
    /// How the source compares its two values, for example as a difference in percent.
    pub comparison: ComparisonKind,
    /// The contender or group that corresponds to the first of the two values.
    pub before: String,
    /// The contender or group that corresponds to the second of the two values.
    pub after: String,
    /// The published result in words.
    pub published: String,
    /// The citation.
    pub citation: String,
}

/// The bounds of a capacity in bytes: the minimum that all servers accept, and 16 TiB.
const SIZES: std::ops::RangeInclusive<u64> = SIZE_BYTES_MIN..=1 << 44;

const SIZE_BYTES_MIN: u64 = 1 << 20;

/// The bounds of a disk capacity in bytes. The minimum is above 16 MiB, the minimum of an edge.
const DISK_SIZES: std::ops::RangeInclusive<u64> = DISK_BYTES_MIN..=1 << 44;

pub(crate) const DISK_BYTES_MIN: u64 = 32 << 20;

#[cfg(test)]
mod tests;
