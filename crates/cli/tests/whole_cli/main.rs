//! Tests the binary as users and scripts run it: help, errors, pipes, signals. Each module tests one command or one
//! property; `run` has the helpers.
#![forbid(unsafe_code)]

mod analyze;
mod config;
mod demo;
mod demo_filter;
mod descriptors;
mod errors;
mod help;
mod kill;
mod lab;
mod large;
mod link;
mod link_endpoints;
mod memory;
mod metrics;
mod negative;
mod pipes;
mod run;
mod serve;
mod store;
