//! The lowest layer: configuration, clock, counters, access log, tasks and budgets. All other layers import it.

pub(crate) mod access_log;
pub(crate) mod ahead; // how fast bodies are read ahead of their clients
pub(crate) mod background; // threads that run a function at intervals
pub(crate) mod buckets; // the buckets among the origins
pub(crate) mod budget;
pub(crate) mod clock;
pub mod config;
pub(crate) mod counter;
pub(crate) mod counters;
pub(crate) mod debug_faults; // faults for tests of debug builds
pub(crate) mod descriptors;
pub(crate) mod dial; // connections to the origin that other crates open
pub(crate) mod dns;
pub(crate) mod duration_histogram;
pub(crate) mod error_chain;
pub(crate) mod field_line; // writes header fields as lines
pub(crate) mod field_spans; // the positions of header fields in a head
pub(crate) mod health; // the level of overload, and the reports of the workers
pub(crate) mod key_map; // hash maps with a fast hash function
pub(crate) mod live; // the configuration that a reload changes
pub(crate) mod lock;
pub(crate) mod metric_labels;
pub(crate) mod observation;
pub(crate) mod origin_counters;
pub(crate) mod outcome; // the record of one request
pub(crate) mod pace; // the minimum rate of a client
pub(crate) mod panics;
pub(crate) mod partial_head; // when to parse a head that arrives in pieces
pub(crate) mod recent; // the hit ratios of the last minutes
pub(crate) mod request_settings; // the settings of a request, by site and rules
pub(crate) mod resolve; // the addresses of host names
pub(crate) mod site_counters;
pub(crate) mod site_urls; // keys of URLs without a request
pub(crate) mod spans; // spans of sampled requests
pub(crate) mod sparse_log; // rate-limited logging
pub(crate) mod staple; // OCSP responses in TLS handshakes
pub(crate) mod tasks;
pub(crate) mod tls;
pub(crate) mod tls_expiry; // when certificates expire
