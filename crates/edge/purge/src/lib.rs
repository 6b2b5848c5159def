//! Purges: the objects that a purge covers, the table of purges, and the bytes of their log.
//!
//! A purge does not search for objects. It gets the next sequence number and an entry in a [`PurgeTable`]. Each
//! object carries a [`Stamp`]: the newest sequence number when its request was sent to the origin. If a lookup finds
//! an object whose stamp is older than the newest purge, it gets a [`Verdict`] from the table. The cost of a purge
//! therefore does not depend on the number of objects, and a purge also covers objects that are being fetched.
//!
//! The nodes of a fleet share a numbered stream of purges. [`PurgeMessage`] is a message of the stream, [`Positions`]
//! relates the numbers of the stream to those of a node, and has the rule for objects that nodes send each other.
//!
//! This crate has no files, threads or clock. `store` keeps the log on disk, and `proxy` uses the verdicts.
#![forbid(unsafe_code)]

mod fleet;
pub mod log;
mod message;
mod methods;
mod positions;
mod request;
mod scope;
mod selector;
mod table;
mod tags;

pub use fleet::Delivery;
pub use message::{MESSAGE_BYTES_MAX, MessageError, PurgeMessage};
pub use methods::{METHODS, ParsePurgeMethodsError, PurgeMethods, is_purge_method};
pub use positions::Positions;
pub use request::{PurgeRequest, RequestError, SCOPES_MAX};
pub use scope::{GROUPS_MAX, Purge, Scope, ScopeError, Stamp, TEXT_BYTES_MAX, authority_of};
pub use selector::{SelectedPurge, Selection, SelectorError};
pub use table::{Check, Limits, PurgeTable, TableSize, Verdict};
pub use tags::{visit_head_tags, visit_tags};
