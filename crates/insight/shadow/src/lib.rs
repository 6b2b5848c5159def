//! Compares the answers of two caches to the same requests: the incumbent, which serves the clients, and the edge under
//! test, its shadow.
//!
//! A [`Comparison`] takes an [`Exchange`] for each request: the request, the answer of the edge, and the answer of the
//! incumbent, as its log states it or as it answered itself. It groups the differences by [`Cause`], with a count and
//! one example each, and counts the hits of both caches over time. [`Comparison::report`] returns the result.
//!
//! A difference is only reported if it cannot follow from different starts of the two caches. An edge that has just
//! started has no responses, so a miss is not a difference by itself. `lifetime` has the rules for freshness
//! lifetimes, and `bodies` those for bodies.
//!
//! All times are durations since the start, and every table has a limit. The crate does no I/O: `replay::shadow` sends
//! the requests.
#![forbid(unsafe_code)]

mod answer;
mod bodies;
mod budget;
mod comparison;
mod difference;
mod heads;
mod history;
mod latencies;
mod lifetime;
mod logged;
mod recent;
mod report;
mod request;

pub use answer::{Answer, Exchange, Head, Verdict};
pub use budget::Budget;
pub use comparison::{Comparison, Limits, Settings};
pub use difference::{Cause, Difference};
pub use logged::logged;
pub use report::{
    BudgetReport, ErrorKind, ErrorReport, Group, HitReport, IntervalReport, Latency,
    PositionReport, ShadowReport, Side, VerdictPair,
};
pub use request::{LineMark, MARK, Method, Request, Skip, is_sampled};
