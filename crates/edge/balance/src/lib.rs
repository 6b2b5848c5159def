//! The choice of a server of an origin.
//!
//! A [`Group`] has the servers of one origin. [`Group::choose`] returns the server for a request: the balancing method
//! decides between the usable servers. A server that fails repeatedly is ejected for a time that grows with each
//! ejection, and gets few requests after it has recovered. A [`RetryBudget`] limits the requests that are sent again
//! to another server.
//!
//! The crate has no clock, no random numbers and no I/O: times and random numbers are arguments.
#![forbid(unsafe_code)]

mod budget;
mod group;
mod health;
mod method;
mod server;

pub use budget::{BudgetSettings, RetryBudget};
pub use group::{AllDown, Group, GroupSettings, Member, Selection, ServerView, WEIGHT_MAX};
pub use health::{HealthSettings, HealthState, Verdict};
pub use method::Method;
pub use server::{Query, ServerId};
