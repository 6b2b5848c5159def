//! The records of requests for operators: counters, the access log, spans.

pub(crate) mod access_log;
pub(crate) mod causes;
pub(crate) mod counter;
pub(crate) mod counters;
pub(crate) mod duration_histogram;
pub(crate) mod history; // a day of history for the admin page
pub(crate) mod labels; // closed sets of values
pub(crate) mod log; // errors with their causes, and rate-limited logging
pub(crate) mod metric_labels;
pub(crate) mod observation; // the record of one request
pub(crate) mod origin_counters;
pub(crate) mod outcome;
pub(crate) mod recent; // the hit ratios of the last minutes
pub(crate) mod site_counters;
pub(crate) mod spans; // spans of sampled requests
pub(crate) mod watch; // samples of requests for a watcher
