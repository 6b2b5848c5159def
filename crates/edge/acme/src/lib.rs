//! Certificates that renew themselves: decisions about when to order which certificate (RFC 8555, RFC 9773).
//!
//! A [`Scheduler`] has one certificate per [`Name`]. It decides which name is ordered next, from which issuer, and how
//! long to wait before. Its [`Ledger`] has the history on which these decisions depend: orders, failures, back-off and
//! renewal windows. The caller persists the ledger before it carries out a [`Task`], so a process that is killed and
//! started in a loop stays within the [`Limits`], too. An [`Attempt`] has the steps of one order.
//!
//! The crate has no clock and no I/O: each call gets a [`Reading`] of the clocks. If the wall clock jumps, all times of
//! the ledger move with it, so a jump neither postpones an order by days nor evades a limit.
#![forbid(unsafe_code)]

mod attempt;
mod backoff;
mod ledger;
mod name;
mod plan;
mod rate;
mod reading;
mod renewal;
mod scheduler;

pub use attempt::{Attempt, OrderStatus, Step};
pub use backoff::{Backoff, Failure};
pub use ledger::{
    CertificateRecord, IssuerRecord, LEDGER_VERSION, Ledger, LedgerError, NameRecord, PendingOrder,
};
pub use name::{Name, NameError};
pub use plan::{Limits, NamePlan, OnDemandPlan, Plan};
pub use rate::Rate;
pub use reading::Reading;
pub use renewal::{SuggestedWindow, Validity, renewal_at};
pub use scheduler::{Answer, Demand, DemandOutcome, NameStatus, Next, Scheduler, Task};
