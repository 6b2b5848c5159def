//! The laboratory: experiments with caches, written down as plans and carried out the same way each time.
//!
//! A [`Plan`] names one trace, one load, an origin, and contenders: edges of our own with different
//! settings, nginx, Varnish, Apache Traffic Server. [`run()`] gives each a turn of its own, or all of them one
//! at once: a fresh server as a child process, a fresh synthetic origin, the trace through it with
//! every byte checked, and a look each second at what the server uses. The [`Outcome`] holds it
//! all; [`page()`] makes a report of it, with what others measured beside what was measured here.
//!
//! ```text
//! plan ─▶ recipe ─▶ process ◀── look ─▶ sample ─▶ outcome ─▶ finding, page
//!           │          ▲                  ▲
//!         (texts)    replay ─────────── origin
//! ```
//!
//! `plan`, `recipe`, `sample`, `outcome`, `figure`, `finding` and `page` decide and are plain
//! values; `process`, `look`, `turn` and `run` do.
#![forbid(unsafe_code)]

mod figure;
mod finding;
mod janitor;
mod look;
mod machine;
mod outcome;
mod page;
mod plan;
mod process;
mod recipe;
mod run;
mod sample;
mod scratch;
mod settings;
mod source;
mod turn;

pub use edgeward_replay::load::Stop;
pub use figure::{Compared, Figure, Form};
pub use finding::findings;
pub use outcome::{ContenderOutcome, End, LoadFacts, Machine, Outcome, Totals, TraceFacts};
pub use page::page;
pub use plan::{
    Amount, Compare, Contender, Generated, LoadPlan, Order, Plan, Problem, Server, Setting,
    SettingValue, Size, SourceFigure, Switch, TraceOrigin, TracePlan,
};
pub use run::{Bench, LabError, Watcher, run};
pub use sample::Sample;
pub use source::TraceError;
