//! Compares the tuner with independent reimplementations.

mod model;
mod oracle;
mod tuner;
