//! The page of the admin server, and the JSON from which it is drawn.

mod causes; // errors by cause, with what to do
mod contents; // the objects of memory, by host, type and age
pub(super) mod files; // the page as it is embedded
mod minutes; // samples of the last minutes
mod snapshot; // the JSON
mod tables; // the counters of sites and origins
pub(super) mod tracker; // samples the counters each second, and serves viewers
