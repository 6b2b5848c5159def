//! The tuner against reimplementations that share no line with it.

mod model;
mod oracle;
mod tuner;
