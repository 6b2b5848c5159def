//! What an experiment is, checked and with every default filled in.
//!
//! A plan is a TOML file: one trace, one load, an origin, and the contenders that take turns
//! between them. [`Plan::parse`] finds all that is wrong with it in one go; what it lets
//! through can be carried out, as far as the machine allows. `docs/how-to/lab.md` lists the keys.

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

use crate::figure::{Figure, Form};

pub use table::Problem;

/// An experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What it asks, as the report's heading.
    pub title: String,
    /// What a reader has to know besides.
    pub about: Option<String>,
    /// What is asked for.
    pub trace: TracePlan,
    /// How it is asked for.
    pub load: LoadPlan,
    /// How far away the origin is: each of its answers begins so much later.
    pub origin_round_trip: Duration,
    /// Who is compared with whom in the findings.
    pub compare: Option<Compare>,
    /// Who takes part, at least one, each under a name of its own.
    pub contenders: Vec<Contender>,
    /// What others measured, to stand beside what is measured here.
    pub sources: Vec<SourceFigure>,
}

/// The trace.
#[derive(Clone, Debug, PartialEq)]
pub struct TracePlan {
    /// Where it comes from.
    pub origin: TraceOrigin,
    /// Ends after so many requests.
    pub requests: u64,
    /// Leaves out requests for larger objects.
    pub size_bytes_max: Option<u64>,
    /// The line of the plan that begins it.
    pub line: usize,
}

/// Where a trace comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum TraceOrigin {
    /// Made up from a seed.
    Generated(Generated),
    /// Read from a file of any format that `edgeward trace info` knows.
    File(PathBuf),
}

/// Made-up traffic: a preset, and what is changed about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// The kind of traffic.
    pub preset: Preset,
    /// Where all draws come from.
    pub seed: u64,
    /// Distinct objects.
    pub objects: Option<u64>,
    /// The share of the objects asked for once.
    pub one_hit_share: Option<f64>,
    /// The share of the others born during the trace.
    pub churn: Option<f64>,
}

/// How requests are sent.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadPlan {
    /// Connections kept open to each contender.
    pub connections: NonZeroUsize,
    /// Requests a second; nothing is a closed loop.
    pub rate: Option<f64>,
    /// What is sent before anything counts.
    pub warmup: Amount,
    /// How far away the clients are.
    pub round_trip: Duration,
    /// Whether contenders run one after the other or at the same time.
    pub order: Order,
    /// The longest a contender's turn may take; what is not answered by then is left out.
    pub time_max: Duration,
}

/// A part of the trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// So many requests.
    Requests(u64),
    /// Such a share of them.
    Share(f64),
}

impl Amount {
    /// In requests, of so many.
    pub fn of(self, requests: u64) -> u64 {
        match self {
            Self::Requests(n) => n.min(requests),
            Self::Share(share) => ((requests as f64 * share) as u64).min(requests),
        }
    }
}

/// In which order contenders run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One after the other: nobody takes another's cores.
    InTurn,
    /// All at once, each with a load and an origin of its own.
    Together,
}

/// Who is compared with whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// The contender, or the group whose best stands for it.
    pub subject: String,
    /// The others, likewise.
    pub with: Vec<String>,
}

/// One who takes part.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// What the report calls it.
    pub name: String,
    /// Contenders of one group are settings of one thing; the best stands for it.
    pub group: Option<String>,
    /// The program and what is particular about it.
    pub server: Server,
    /// Memory for what is cached.
    pub memory: Option<Size>,
    /// Disk for what is cached.
    pub disk: Option<Size>,
    /// Threads or processes that serve.
    pub workers: NonZeroUsize,
    /// The line of the plan that begins it.
    pub line: usize,
}

/// The program that a contender is.
#[derive(Clone, Debug, PartialEq)]
pub enum Server {
    /// This very program.
    Edgeward {
        /// Keys of its configuration.
        settings: Vec<Setting>,
        /// Other settings from some request on.
        switch: Option<Switch>,
    },
    /// nginx.
    Nginx {
        /// Stores an object at this request for it.
        min_uses: NonZeroU64,
    },
    /// Varnish.
    Varnish,
    /// Apache Traffic Server.
    TrafficServer,
}

impl Server {
    /// The name the plan uses.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Edgeward { .. } => "edgeward",
            Self::Nginx { .. } => "nginx",
            Self::Varnish => "varnish",
            Self::TrafficServer => "trafficserver",
        }
    }

    /// All names the plan knows.
    pub const WORDS: [&str; 4] = ["edgeward", "nginx", "varnish", "trafficserver"];
}

/// A change of settings during the run: the server is restarted with the new ones and keeps its
/// disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Switch {
    /// After how many requests.
    pub at: Amount,
    /// What changes.
    pub settings: Vec<Setting>,
}

/// One key of an edge's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// As in `hot`.
    pub table: String,
    /// As in `policy`.
    pub key: String,
    /// As one would type it.
    pub value: SettingValue,
    /// Where in the plan.
    pub line: usize,
}

impl Setting {
    /// As in `hot.policy`.
    pub fn path(&self) -> String {
        format!("{}.{}", self.table, self.key)
    }
}

/// What a key is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingValue {
    /// In quotes.
    Text(String),
    /// A whole number.
    Number(i64),
    /// `true` or `false`.
    Switch(bool),
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => number.fmt(f),
            Self::Switch(on) => on.fmt(f),
        }
    }
}

/// How much a contender may hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// So many bytes.
    Bytes(u64),
    /// Such a share of all objects of the trace together, so that a plan fits any trace.
    Share(f64),
}

impl Size {
    /// In bytes, for objects of so many bytes together; never below what all servers accept.
    pub fn of(self, footprint_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(share) => ((footprint_bytes as f64 * share) as u64).max(SIZE_BYTES_MIN),
        }
    }
}

/// What somebody else measured.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceFigure {
    /// What was measured.
    pub figure: Figure,
    /// How the two are set against each other.
    pub form: Form,
    /// The contender or group that stands for their before.
    pub before: String,
    /// The contender or group that stands for their after.
    pub after: String,
    /// Their figure, in words.
    pub says: String,
    /// Who says so.
    pub from: String,
}

/// What a contender may be given: the least that all servers take, the most that a machine may have.
const SIZES: std::ops::RangeInclusive<u64> = SIZE_BYTES_MIN..=1 << 44;

const SIZE_BYTES_MIN: u64 = 1 << 20;

/// What a contender may be given on disk: the least that an edge takes, and some.
const DISK_SIZES: std::ops::RangeInclusive<u64> = DISK_BYTES_MIN..=1 << 44;

pub(crate) const DISK_BYTES_MIN: u64 = 32 << 20;

#[cfg(test)]
mod tests;
