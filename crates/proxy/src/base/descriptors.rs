//! Divides the process's limit of open files.
//!
//! Each connection to a client or to the origin takes a file descriptor. If clients took all of them, the edge could
//! neither connect to the origin nor answer its operator. [`divide`] therefore reserves the descriptors that the rest
//! of the process needs. If too few remain, `limits.tunnels_max`, `limits.connections_max` and the size of the origin
//! pool are lowered.

use std::num::NonZeroUsize;

use edgeward_semantics::upgrade::Upgrades;
use rustix::process::{Resource, getrlimit};

use crate::base::config::{EdgeConfig, OriginProtocol};

/// The error that the limit of open files is too low to serve one client per worker. Both fields count descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooFewDescriptors {
    pub(crate) limit: usize,
    pub(crate) needed: usize,
}

/// Returns the soft limit of open files of this process, or `None` if there is no limit.
pub(crate) fn limit() -> Option<usize> {
    let limit = getrlimit(Resource::Nofile).current?;
    Some(usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Lowers the bounds of connections in `config` until their descriptors fit into the limit, and logs each change.
pub(crate) fn fit(config: &mut EdgeConfig) -> Result<(), TooFewDescriptors> {
    let Some(limit) = limit() else { return Ok(()) };
    let wanted = Descriptors {
        workers: config.workers.get(),
        clients: config.limits.connections_max.get(),
        // `dial` opens streams of a link, which take no descriptors. HTTP/2 takes one connection per worker.
        origin_per_worker: match (&config.origin.dial, config.origin.protocol) {
            (Some(_), _) => 0,
            (None, OriginProtocol::Http2) => 1,
            (None, OriginProtocol::Http1) => config.origin.connections_per_worker_max.get(),
        },
        tunnels: tunnel_descriptors(config),
        others: other_descriptors(config),
    };
    let granted = divide(limit, wanted)?;
    if granted.tunnels < wanted.tunnels {
        tracing::warn!(
            open_files_max = limit,
            configured = wanted.tunnels,
            tunnels_max = granted.tunnels,
            "limits.tunnels_max is lowered to what the limit of open files leaves"
        );
        config.limits.tunnels_max = NonZeroUsize::new(granted.tunnels).expect("at least one");
    }
    if granted.clients < wanted.clients {
        tracing::warn!(
            open_files_max = limit,
            reserved = limit - granted.clients,
            configured = wanted.clients,
            connections_max = granted.clients,
            "limits.connections_max is lowered to what the limit of open files leaves"
        );
        config.limits.connections_max =
            NonZeroUsize::new(granted.clients).expect("at least one for each worker");
    }
    if granted.origin_per_worker < wanted.origin_per_worker {
        tracing::warn!(
            open_files_max = limit,
            configured = wanted.origin_per_worker,
            connections_per_worker_max = granted.origin_per_worker,
            "origin.connections_per_worker_max is lowered to what the limit of open files leaves"
        );
        config.origin.connections_per_worker_max =
            NonZeroUsize::new(granted.origin_per_worker).expect("at least one");
    }
    Ok(())
}

/// Returns the number of connections to the origin that tunnels may take. `connections_max` includes their connections
/// to clients.
fn tunnel_descriptors(config: &EdgeConfig) -> usize {
    let has_none = config.forwarding.upgrades == Upgrades::None
        || config.origin.protocol == OriginProtocol::Http2
        || config.origin.dial.is_some();
    match has_none {
        true => 0,
        false => config.limits.tunnels_max.get(),
    }
}

/// Returns the number of descriptors needed for everything except connections to clients and to the origin.
fn other_descriptors(config: &EdgeConfig) -> usize {
    let workers = config.workers.get();
    let listeners = config.listeners.len();
    // Per listener, each worker has the listening socket and one accepted connection that it is about to close.
    let listener_sockets = workers * listeners * 2;
    let devices = config
        .disk
        .as_ref()
        .map_or(0, |disk| disk.settings.devices.len());
    let link = if config.origin.dial.is_some() {
        PER_LINK
    } else {
        0
    };
    PROCESS
        + listener_sockets
        + workers * PER_WORKER
        + devices * PER_DEVICE
        + config.negative.len() * PER_FILTER
        + link
}

/// The configured workers and connections (a connection takes one descriptor), and all `others` descriptors.
#[derive(Clone, Copy, Debug)]
struct Descriptors {
    workers: usize,
    clients: usize,
    origin_per_worker: usize,
    tunnels: usize,
    others: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GrantedConnections {
    clients: usize,
    origin_per_worker: usize,
    tunnels: usize,
}

/// Divides the descriptors that remain after `others`. If they are too few, tunnels get at most an eighth: a tunnel
/// needs a client's connection too, and requests are more frequent. Clients get the configured number, or fewer: as
/// many as the origin pools leave, but at least half of the remaining descriptors. The origin pools get the rest.
fn divide(limit: usize, wanted: Descriptors) -> Result<GrantedConnections, TooFewDescriptors> {
    let Descriptors {
        workers,
        clients,
        origin_per_worker,
        tunnels,
        others,
    } = wanted;
    let origin = origin_per_worker * workers;
    let needed = others + workers * 2 + tunnels.min(1);
    if limit < needed {
        return Err(TooFewDescriptors { limit, needed });
    }
    let available = limit - others;
    if clients + origin + tunnels <= available {
        return Ok(GrantedConnections {
            clients,
            origin_per_worker,
            tunnels,
        });
    }
    let tunnels = tunnels.min((available / 8).max(1));
    let available = available - tunnels;
    let granted = clients.min(available.saturating_sub(origin).max(available / 2));
    // Each worker gets the same share of the connections, rounded up, so the total must be a multiple of workers.
    let granted = if granted < clients {
        (granted / workers * workers).max(workers)
    } else {
        granted
    };
    let origin_per_worker = origin_per_worker.min(((available - granted) / workers).max(1));
    Ok(GrantedConnections {
        clients: granted,
        origin_per_worker,
        tunnels,
    })
}

/// The descriptors of the process as a whole: 3 standard streams; 8 for the runtimes of signal handler and admin
/// server; 40 for the admin listener and its 32 connections; 13 for access log, arena, admission's file, and libraries.
const PROCESS: usize = 3 + 8 + 40 + 13;

/// The descriptors of a worker's runtime: epoll, an eventfd, a signal pipe, and a file of the DNS resolver.
const PER_WORKER: usize = 6;

/// The descriptors of a disk device: the device, and further ones while its file is resized or rebuilt.
const PER_DEVICE: usize = 3;

/// The descriptors of an id filter: a runtime, connections to the publisher, and the file that is being replaced.
const PER_FILTER: usize = 10;

/// The descriptors of a link: a runtime, connections to the gateway, an admin server and the files of the store.
const PER_LINK: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Descriptors = Descriptors {
        workers: 2,
        clients: 65_536,
        origin_per_worker: 512,
        tunnels: 0,
        others: 100,
    };

    fn at(limit: usize) -> GrantedConnections {
        divide(limit, WANTED).expect("the limit is high enough")
    }

    #[test]
    fn bounds_that_fit_are_not_lowered() {
        let all = GrantedConnections {
            clients: 65_536,
            origin_per_worker: 512,
            tunnels: 0,
        };
        assert_eq!(at(65_536 + 1024 + 100), all);
        assert!(at(65_536 + 1024 + 99).clients < 65_536);
    }

    #[test]
    fn clients_get_what_the_origin_and_others_leave() {
        let granted = at(20_000);
        assert_eq!(granted.origin_per_worker, 512);
        assert_eq!(granted.clients, 20_000 - 1024 - 100);
    }

    #[test]
    fn under_a_low_limit_clients_and_the_origin_get_equal_halves() {
        let granted = at(1024);
        assert_eq!(granted.clients, 462);
        assert_eq!(granted.origin_per_worker, 231);
    }

    #[test]
    fn granted_descriptors_exceed_the_limit_by_at_most_one_per_worker() {
        for workers in 1..9 {
            for clients in [1, 3, 100, 10_000] {
                for limit in 100 + 2 * workers..2000 {
                    let wanted = Descriptors {
                        workers,
                        clients,
                        ..WANTED
                    };
                    let granted = divide(limit, wanted).expect("the limit is high enough");
                    let shares = granted.clients.div_ceil(workers) * workers;
                    let fits = shares.max(workers) + granted.origin_per_worker * workers + 100;
                    assert!(granted.clients > 0 && granted.origin_per_worker > 0);
                    assert!(
                        fits <= limit + workers,
                        "{wanted:?} at {limit}: {granted:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn tunnels_get_their_number_if_all_fits_and_else_an_eighth() {
        let wanted = Descriptors {
            clients: 1000,
            origin_per_worker: 100,
            tunnels: 800,
            ..WANTED
        };
        for (limit, tunnels, clients) in [
            (2100, 800, 1000),
            (2099, 249, 1000),
            (1000, 112, 588),
            (105, 1, 2),
        ] {
            let granted = divide(limit, wanted).expect("the limit is high enough");
            assert_eq!(
                (granted.tunnels, granted.clients),
                (tunnels, clients),
                "{limit}"
            );
        }
        assert!(divide(104, wanted).is_err());
    }

    #[test]
    fn a_limit_without_room_for_one_client_is_refused() {
        let needed = 104;
        assert_eq!(
            divide(103, WANTED),
            Err(TooFewDescriptors { limit: 103, needed })
        );
        assert!(divide(104, WANTED).is_ok());
    }
}
