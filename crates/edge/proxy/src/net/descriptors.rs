//! Divides the process's limit of open files.
//!
//! Each connection to a client or to the origin takes a file descriptor. If clients took all of them, the edge could
//! neither connect to the origin nor answer its operator. [`divide`] therefore reserves the descriptors that the rest
//! of the process needs. If too few remain, `limits.tunnels_max`, `limits.connections_max` and the size of the origin
//! pool are lowered.

use std::num::NonZeroUsize;

use edgeward_semantics::upgrade::Upgrades;
use rustix::process::{Resource, getrlimit};

use crate::config::{EdgeConfig, LimitsConfig, OriginConfig, OriginProtocol};

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

/// Lowers the bounds of connections in `config` until their descriptors fit into the limit, and logs the changes in one
/// line: a warning if a bound is configured, and information if all are defaults, which few machines can meet.
pub(crate) fn fit(config: &mut EdgeConfig) -> Result<(), TooFewDescriptors> {
    let Some(limit) = limit() else { return Ok(()) };
    let lowered = fit_into(config, limit)?;
    if lowered.is_empty() {
        return Ok(());
    }
    let text = lowered.iter().map(Lowered::to_string).collect::<Vec<_>>();
    let text = text.join(", ");
    match lowered.iter().all(|lowered| lowered.is_default) {
        true => tracing::info!(
            open_files_max = limit,
            lowered = text,
            "defaults are lowered to what the limit of open files leaves"
        ),
        false => tracing::warn!(
            open_files_max = limit,
            lowered = text,
            "limits are lowered to what the limit of open files leaves"
        ),
    }
    Ok(())
}

/// Returns an error if [`fit`] would.
pub(crate) fn check(config: &EdgeConfig) -> Result<(), TooFewDescriptors> {
    let Some(limit) = limit() else { return Ok(()) };
    fit_into(&mut config.clone(), limit).map(drop)
}

/// A bound that was lowered.
#[derive(Debug, PartialEq, Eq)]
struct Lowered {
    key: String,
    from: usize,
    to: usize,
    is_default: bool,
}

impl std::fmt::Display for Lowered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} from {} to {}", self.key, self.from, self.to)
    }
}

/// Lowers the bounds of `config` until they fit into a limit of open files. Returns those that were lowered.
fn fit_into(config: &mut EdgeConfig, limit: usize) -> Result<Vec<Lowered>, TooFewDescriptors> {
    let wanted = Descriptors {
        workers: config.workers.get(),
        clients: config.limits.connections_max.get(),
        origins: config.origins.len(),
        origins_per_worker: config.origins.iter().map(connections_per_worker).sum(),
        tunnel_origins: tunnel_origins(config),
        tunnels: tunnel_origins(config) * config.limits.tunnels_max.get(),
        others: other_descriptors(config),
    };
    let granted = divide(limit, wanted)?;
    let mut lowered = Vec::new();
    let mut lower_to = |key: &str, bound: &mut NonZeroUsize, max: usize, default: NonZeroUsize| {
        lowered.push(Lowered {
            key: key.to_owned(),
            from: bound.get(),
            to: max,
            is_default: *bound == default,
        });
        *bound = NonZeroUsize::new(max).expect("at least one for each worker or origin");
    };
    let (limits, defaults) = (&mut config.limits, LimitsConfig::default());
    if granted.tunnels < wanted.tunnels {
        let tunnels_max = granted.tunnels / wanted.tunnel_origins;
        let default = defaults.tunnels_max;
        lower_to(
            "limits.tunnels_max",
            &mut limits.tunnels_max,
            tunnels_max,
            default,
        );
    }
    if granted.clients < wanted.clients {
        let (bound, default) = (&mut limits.connections_max, defaults.connections_max);
        lower_to("limits.connections_max", bound, granted.clients, default);
    }
    if granted.origins_per_worker < wanted.origins_per_worker {
        let wanted: Vec<usize> = config.origins.iter().map(connections_per_worker).collect();
        let shares = lower(&wanted, granted.origins_per_worker);
        for (origin, max) in config.origins.iter_mut().zip(shares) {
            if max < connections_per_worker(origin) {
                let key = format!("connections_per_worker_max of the origin `{}`", origin.name);
                let default = OriginConfig::new(origin.url().clone());
                let default = default.connections_per_worker_max;
                lower_to(&key, &mut origin.connections_per_worker_max, max, default);
            }
        }
    }
    Ok(lowered)
}

/// Returns the descriptors of a worker's connections to an origin.
fn connections_per_worker(origin: &OriginConfig) -> usize {
    // `dial` opens streams of a link, which take no descriptors. HTTP/2 takes one connection per worker, and those to
    // further servers are in `other_descriptors`.
    match (&origin.dial, origin.protocol) {
        (Some(_), _) => 0,
        (None, OriginProtocol::Http2) => 1,
        (None, OriginProtocol::Http1) => origin.connections_per_worker_max.get(),
    }
}

/// Lowers numbers in proportion, so that their sum is at most `total`. A number above 0 remains at least 1, which
/// `total` must allow.
fn lower(numbers: &[usize], total: usize) -> Vec<usize> {
    let at_least = numbers.iter().filter(|number| **number > 0).count();
    let above: usize = numbers.iter().sum::<usize>() - at_least;
    let lowered = |&number: &usize| match number {
        0 | 1 => number,
        _ => {
            1 + ((number - 1) * (total - at_least))
                .checked_div(above)
                .unwrap_or(0)
        }
    };
    numbers.iter().map(lowered).collect()
}

/// Returns the number of origins to which tunnels take connections. `connections_max` includes the connections of
/// tunnels to clients.
fn tunnel_origins(config: &EdgeConfig) -> usize {
    if config.forwarding.upgrades == Upgrades::None {
        return 0;
    }
    let origins = config.origins.iter();
    let takes =
        |origin: &&OriginConfig| origin.protocol == OriginProtocol::Http1 && origin.dial.is_none();
    origins.filter(takes).count()
}

/// Returns the number of descriptors needed for everything except connections to clients and to the origin.
fn other_descriptors(config: &EdgeConfig) -> usize {
    let workers = config.workers.get();
    let listeners = config.listeners.len();
    // Per listener, each worker has the listening socket, a copy for reloads and upgrades, and one accepted connection
    // that it is about to close. For HTTP/3, each worker has a socket of UDP, a copy, a socket pair, and one end of a
    // pair of a process before this one; its connections have none.
    let quic_listeners = config.listeners.iter().filter(|listener| listener.http3);
    let listener_sockets = workers * (listeners * 3 + quic_listeners.count() * 5);
    let devices = config
        .disk
        .as_ref()
        .map_or(0, |disk| disk.settings.devices.len());
    let links = config.origins.iter().filter(|origin| origin.dial.is_some());
    let servers = config.origins.iter().map(|origin| {
        // A check takes a connection to each server. With HTTP/2, each worker has one connection to each further
        // server.
        let per_server = usize::from(origin.checks.path.is_some())
            + match origin.protocol {
                OriginProtocol::Http1 => 0,
                OriginProtocol::Http2 => workers,
            };
        per_server * (origin.servers_max.get() - 1)
    });
    PROCESS
        + servers.sum::<usize>()
        + listener_sockets
        + workers * PER_WORKER
        + devices * PER_DEVICE
        + config.negative.len() * PER_FILTER
        + links.count() * PER_LINK
        + config.fleet_purges.as_ref().map_or(0, |_| FLEET_STREAM)
        + config.fleet_directory.as_ref().map_or(0, |_| FLEET_STREAM)
}

/// The configured workers and connections (a connection takes one descriptor), and all `others` descriptors.
#[derive(Clone, Copy, Debug)]
struct Descriptors {
    workers: usize,
    clients: usize,
    /// The number of origins. A worker needs at least one connection to each.
    origins: usize,
    /// The connections of a worker to all origins.
    origins_per_worker: usize,
    /// The origins that have tunnels. Each needs at least one.
    tunnel_origins: usize,
    /// The tunnels of all workers to all origins.
    tunnels: usize,
    others: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GrantedConnections {
    clients: usize,
    origins_per_worker: usize,
    tunnels: usize,
}

/// Divides the descriptors that remain after `others`. If they are too few, tunnels get at most an eighth: a tunnel
/// needs a client's connection too, and requests are more frequent. Clients get the configured number, or fewer: as
/// many as the origin pools leave, but at least half of the remaining descriptors. The origin pools get the rest.
fn divide(limit: usize, wanted: Descriptors) -> Result<GrantedConnections, TooFewDescriptors> {
    let Descriptors {
        workers,
        clients,
        origins,
        origins_per_worker,
        tunnel_origins,
        tunnels,
        others,
    } = wanted;
    let origin = origins_per_worker * workers;
    let needed = others + workers * (1 + origins) + tunnel_origins;
    if limit < needed {
        return Err(TooFewDescriptors { limit, needed });
    }
    let available = limit - others;
    if clients + origin + tunnels <= available {
        return Ok(GrantedConnections {
            clients,
            origins_per_worker,
            tunnels,
        });
    }
    let tunnels = tunnels.min((available / 8).max(tunnel_origins));
    let available = available - tunnels;
    let granted = clients.min(available.saturating_sub(origin).max(available / 2));
    // Each worker gets the same share of the connections, rounded up, so the total must be a multiple of workers.
    let granted = if granted < clients {
        (granted / workers * workers).max(workers)
    } else {
        granted
    };
    let origins_per_worker = origins_per_worker.min(((available - granted) / workers).max(origins));
    Ok(GrantedConnections {
        clients: granted,
        origins_per_worker,
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

/// The descriptors of the client of a fleet's stream, and of the client of its heartbeats: a runtime, the connection
/// and one that replaces it, two look-ups of names, and files of certificates.
const FLEET_STREAM: usize = 12;

/// The descriptors of a link: a runtime, connections to the gateway, an admin server and the files of the store.
const PER_LINK: usize = 96;

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use edgeward_types::ByteSize;

    use super::*;
    use crate::config::{FleetConfig, FleetKey, FleetMember, LOOPBACK_ANY_PORT, NodeGroup};

    const WANTED: Descriptors = Descriptors {
        workers: 2,
        clients: 65_536,
        origins: 1,
        origins_per_worker: 512,
        tunnel_origins: 0,
        tunnels: 0,
        others: 100,
    };

    /// A bound that the operator did not set is lowered without a warning. Method: a limit that is too low for all
    /// bounds, with defaults and with one bound that is set.
    #[test]
    fn a_lowered_bound_counts_as_a_default_unless_it_was_set() {
        let origin = "http://127.0.0.1:1".parse().expect("a URL");
        let listen = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let mut config = EdgeConfig::new(listen, origin, ByteSize::mib(1));
        config.workers = NonZeroUsize::MIN;
        let mut changed = config.clone();
        let lowered = fit_into(&mut changed, 1024).expect("enough for one client");
        let keys: Vec<_> = lowered.iter().map(|lowered| &*lowered.key).collect();
        assert_eq!(
            keys,
            [
                "limits.tunnels_max",
                "limits.connections_max",
                "connections_per_worker_max of the origin `default`"
            ]
        );
        assert!(lowered.iter().all(|lowered| lowered.is_default));
        assert_eq!(changed.limits.connections_max.get(), lowered[1].to);
        assert!(fit_into(&mut changed, 1024).expect("it fits").is_empty());
        config.limits.connections_max = NonZeroUsize::new(60_000).expect("not zero");
        let lowered = fit_into(&mut config, 1024).expect("enough for one client");
        let set: Vec<_> = lowered.iter().map(|lowered| !lowered.is_default).collect();
        assert_eq!(set, [false, true, false]);
        let all = fit_into(&mut config, usize::MAX).expect("it fits");
        assert!(all.is_empty());
    }

    /// A node has one connection to another, and a few addresses of the other node at most.
    #[test]
    fn a_member_of_a_fleet_takes_four_descriptors_of_each_worker() {
        let descriptors = |others: usize| {
            let origin = "http://127.0.0.1:1".parse().expect("a URL");
            let mut config = EdgeConfig::new(LOOPBACK_ANY_PORT, origin, ByteSize::mib(1));
            config.workers = NonZeroUsize::new(8).expect("8 is not zero");
            let member = |name: usize| FleetMember {
                name: name.to_string(),
                url: "http://127.0.0.1:7001".parse().expect("a URL"),
                group: NodeGroup::Edge,
                weight: NonZeroU32::MIN,
                is_draining: false,
            };
            config.set_fleet(FleetConfig {
                name: "0".to_owned(),
                members: (0..=others).map(member).collect(),
                listen: LOOPBACK_ANY_PORT,
                tls: None,
                key: FleetKey::new(&[7; 32]).expect("a key"),
                wait: Duration::from_millis(50),
                fallback_percent: 0,
                fallbacks_per_second: 1,
                replicate: 0.01,
            });
            let of_workers = config.origins.iter().map(connections_per_worker);
            of_workers.sum::<usize>() * config.workers.get() + other_descriptors(&config)
        };
        assert_eq!(descriptors(10) - descriptors(0), 10 * 4 * 8);
    }

    fn at(limit: usize) -> GrantedConnections {
        divide(limit, WANTED).expect("the limit is high enough")
    }

    #[test]
    fn bounds_that_fit_are_not_lowered() {
        let all = GrantedConnections {
            clients: 65_536,
            origins_per_worker: 512,
            tunnels: 0,
        };
        assert_eq!(at(65_536 + 1024 + 100), all);
        assert!(at(65_536 + 1024 + 99).clients < 65_536);
    }

    #[test]
    fn clients_get_what_the_origin_and_others_leave() {
        let granted = at(20_000);
        assert_eq!(granted.origins_per_worker, 512);
        assert_eq!(granted.clients, 20_000 - 1024 - 100);
    }

    #[test]
    fn under_a_low_limit_clients_and_the_origin_get_equal_halves() {
        let granted = at(1024);
        assert_eq!(granted.clients, 462);
        assert_eq!(granted.origins_per_worker, 231);
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
                    let fits = shares.max(workers) + granted.origins_per_worker * workers + 100;
                    assert!(granted.clients > 0 && granted.origins_per_worker > 0);
                    assert!(
                        fits <= limit + workers,
                        "{wanted:?} at {limit}: {granted:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn lowered_numbers_fit_into_the_total_and_none_becomes_zero() {
        assert_eq!(lower(&[512], 231), [231]);
        assert_eq!(lower(&[512, 512, 1, 0], 231), [115, 115, 1, 0]);
        assert_eq!(lower(&[512, 2, 1], 3), [1, 1, 1]);
        assert_eq!(lower(&[1, 1], 2), [1, 1]);
        for total in 3..700 {
            let lowered = lower(&[400, 200, 100], total);
            assert!(lowered.iter().sum::<usize>() <= total && !lowered.contains(&0));
        }
    }

    #[test]
    fn tunnels_get_their_number_if_all_fits_and_else_an_eighth() {
        let wanted = Descriptors {
            clients: 1000,
            origins_per_worker: 100,
            tunnel_origins: 1,
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
