//! The certificates that are kept, and the limits of orders.

use std::time::Duration;

use crate::name::Name;
use crate::rate::Rate;

/// The certificates that are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// One certificate for each name.
    pub names: Vec<NamePlan>,
    /// The names that are added when a client first asks for them. `None`: no name is added.
    pub on_demand: Option<OnDemandPlan>,
    /// The limits of orders.
    pub limits: Limits,
    /// Selects the times of renewals. It differs between machines, so that not all renew at the same moment.
    pub seed: u64,
}

/// One name with its issuers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePlan {
    /// The name.
    pub name: Name,
    /// The URLs of the issuers' directories, at least one. The next one is tried after repeated failures.
    pub issuers: Vec<Box<str>>,
}

/// Names that are added when a client first asks for them, within limits: anyone can ask for any name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDemandPlan {
    /// The URLs of the issuers' directories, at least one.
    pub issuers: Vec<Box<str>>,
    /// New names.
    pub new_names: Rate,
    /// The most queries of the operator's program in a minute.
    pub queries_per_minute: u32,
    /// The most names that are ordered for the first time at once.
    pub pending_max: usize,
    /// The most names that are kept.
    pub names_max: usize,
}

/// Limits of orders. The defaults stay below those of Let's Encrypt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// New orders of one account. Default 90 per hour: Let's Encrypt admits 300 per three hours.
    pub orders_per_issuer: Rate,
    /// Failed validations of one name. Default 3 per hour: Let's Encrypt admits 5.
    pub failures_per_name: Rate,
    /// Certificates of one name. Default 4 per week: Let's Encrypt admits 5.
    pub certificates_per_name: Rate,
    /// The most tasks under way. Default 4.
    pub tasks_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const HOUR: Duration = Duration::from_secs(3600);
        let rate = |count, window| Rate { count, window };
        Self {
            orders_per_issuer: rate(90, HOUR),
            failures_per_name: rate(3, HOUR),
            certificates_per_name: rate(4, 7 * 24 * HOUR),
            tasks_max: 4,
        }
    }
}
