//! An edge in front of a scripted origin, tested with HTTP clients on loopback.
//!
//! All modules are in one binary, because each further test binary costs seconds to link. Tests that measure the memory
//! of the process have binaries of their own: `pinned.rs`, `long_uploads.rs` and `h2_abuse`.

#[path = "../support/accept_key.rs"]
mod accept_key;
#[path = "../support/authority.rs"]
mod authority;
#[path = "../support/browser.rs"]
mod browser;
#[path = "../support/closed_windows.rs"]
mod closed_windows;
#[path = "../support/codecs.rs"]
mod codecs;
#[path = "../support/handshake.rs"]
mod handshake;
#[path = "../support/identity.rs"]
mod identity;
#[path = "../support/one_site.rs"]
mod one_site;
#[path = "../support/socket_origin.rs"]
mod socket_origin;
#[path = "../support/mod.rs"]
mod support;

mod access_log;
mod authorization;
mod buckets;
mod cache_status;
mod caching;
mod clock;
mod compression;
mod departures;
mod dictionaries;
mod differential;
mod disk;
mod disk_hits;
mod dns;
mod expectations;
mod explained_rules;
mod extensions;
mod fleet;
mod hostile_bytes;
mod inspect;
mod kept_on_error;
mod large_bodies;
mod least_rates;
mod log_destinations;
mod malformed;
mod miss_causes;
mod negative;
mod no_vary_search;
mod observation;
mod one_request;
mod operations;
mod origin_readings;
mod origins;
mod overload;
mod page;
mod page_browser;
mod placement;
mod plain_misses;
mod poisoning;
mod policy_change;
mod post;
mod protocol_details;
mod protocols;
mod proxy_header;
mod proxy_header_to_origin;
mod purge;
mod ranges;
mod read_ahead;
mod reload;
mod replaced_bodies;
mod response_splitting;
mod serving;
mod sharing;
mod sites;
mod slices;
mod slow_clients;
mod spellings;
mod stapling;
mod streams;
mod tracing;
mod trouble;
mod unix_sockets;
mod upgrades;
mod upgrades_of_h2_origins;
mod variants;
mod watching;
mod what_is_stored;
