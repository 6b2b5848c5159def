//! Tests the binary as users and scripts run it: help, errors, pipes, signals. Each module tests one command or one
//! property; `run` has the helpers.
#![forbid(unsafe_code)]

mod acme; // certificates that renew themselves
mod admin;
mod admin_transport; // the admin server by TLS and on a Unix socket
mod analyze;
mod benchmark;
mod beside; // nginx and Varnish beside the edge with their translated configurations
mod config;
mod demo;
mod demo_filter;
mod descriptors; // the limit of open files
mod errors;
mod faults; // caching faults that `advise` finds
mod fleet; // nodes that act as one cache
mod fleet_members; // nodes that announce themselves
mod fleet_purges; // edges that share their purges
mod help;
mod http3_upgrade; // connections of HTTP/3 while a new process replaces the edge
mod inspect; // `cache get` and `explain`
mod kill; // `serve --disk` is killed at random moments
mod lab;
mod large; // an object larger than the memory
mod link;
mod link_endpoints;
mod link_upgrade; // an edge whose origin is behind a link
mod load; // clients that count failed requests
mod many_sites; // the example with 50 hosts
mod memory; // the process stays within its configured memory
mod metrics;
mod migrate;
mod migrate_caddy; // Caddyfiles, and Caddy beside their translation
mod migrate_vcl;
mod monitoring; // the alerts, the dashboard, and a real Prometheus
mod negative; // negative rules
mod overload; // the limit of descriptors, panics, the watchdog
mod pipes; // a closed stdout is not an error
mod privileges; // root becomes another user
mod purge;
mod reload;
mod restart; // SIGTERM or SIGKILL, then a start with a warm cache
mod run;
mod serve;
mod service; // messages to systemd, its sockets, and logrotate
mod shadow; // the edge beside another cache
mod store; // `edgeward store`
mod upgrade; // a new process replaces a running edge
