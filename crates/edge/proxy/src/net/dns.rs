//! The resolvers of origins' names: the system's, and a client of DNS servers for the time to live of answers and for
//! SRV records (RFC 2782), which `getaddrinfo` lacks.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::num::NonZeroU32;
use std::time::Duration;

use bytes::Bytes;
use domain::base::iana::Rcode;
use domain::base::{Message, Name, Rtype, ToName};
use domain::rdata::{A, Aaaa, Srv};
use domain::resolv::StubResolver;
use domain::resolv::stub::conf::{ResolvConf, ServerConf, Transport};

use crate::config::interfaces::{Resolve, Resolved, Target, UrlName};

/// The resolver of the system, `getaddrinfo`. It follows the system's configuration, for example `/etc/hosts`, and does
/// not report the time to live of an answer.
#[derive(Debug)]
pub(crate) struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: &UrlName<'_>) -> io::Result<Resolved> {
        match *name {
            UrlName::Host { host, port } => Ok((host, port).to_socket_addrs()?.collect()),
            UrlName::Service(_) => Err(io::Error::other(
                "the resolver of the system has no SRV records",
            )),
        }
    }
}

/// Queries DNS servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct DnsResolver {
    /// The DNS servers. If empty, those of `/etc/resolv.conf`, which is read for each resolution.
    pub(crate) servers: Vec<SocketAddr>,
    /// The largest number of SRV targets whose addresses are resolved.
    pub(crate) targets_max: usize,
}

impl Resolve for DnsResolver {
    fn resolve(&self, name: &UrlName<'_>) -> io::Result<Resolved> {
        let client = StubResolver::from_conf(self.config());
        // The tasks and sockets of the client end with its runtime.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            match *name {
                UrlName::Host { host, port } => {
                    let host = parse_name(host)?;
                    let HostAnswer { addresses, ttl } = addresses(&client, &host).await?;
                    let addresses = addresses.into_iter();
                    Ok(Resolved {
                        targets: addresses
                            .map(|ip| Target::from(SocketAddr::from((ip, port))))
                            .collect(),
                        ttl: Some(ttl),
                    })
                }
                UrlName::Service(name) => self.service(&client, &parse_name(name)?).await,
            }
        })
    }
}

impl DnsResolver {
    fn config(&self) -> ResolvConf {
        if self.servers.is_empty() {
            return ResolvConf::default();
        }
        let mut config = ResolvConf::new();
        let servers = self.servers.iter();
        config.servers = servers
            .map(|addr| ServerConf::new(*addr, Transport::UdpTcp))
            .collect();
        config.finalize();
        config
    }

    /// Returns the addresses of the targets of SRV records.
    async fn service(&self, client: &StubResolver, name: &DnsName) -> io::Result<Resolved> {
        let message = query(client, name, Rtype::SRV).await?;
        let (mut records, mut ttl) = answers(&message, |srv: Srv<_>| {
            let target = srv.target().to_name();
            (srv.priority(), srv.weight(), srv.port(), target)
        })?;
        // RFC 2782: the single target "." means that the service is not available.
        records.retain(|(_, _, _, target): &(_, _, _, DnsName)| !target.is_root());
        records.sort_unstable();
        records.dedup();
        records.truncate(self.targets_max);
        let first_priority = records.first().map(|(priority, ..)| *priority);
        let has_weights = records.iter().any(|(_, weight, ..)| *weight > 0);
        let mut known: HashMap<DnsName, Vec<IpAddr>> = HashMap::new();
        let mut targets = Vec::new();
        let mut last_error = None;
        for (priority, weight, port, target) in records {
            if !known.contains_key(&target) {
                match addresses(client, &target).await {
                    Ok(found) => {
                        ttl = ttl.min(found.ttl);
                        known.insert(target.clone(), found.addresses);
                    }
                    Err(error) => {
                        last_error = Some(error);
                        known.insert(target.clone(), Vec::new());
                    }
                }
            }
            for ip in &known[&target] {
                targets.push(Target {
                    addr: (*ip, port).into(),
                    is_backup: Some(priority) != first_priority,
                    weight: srv_weight(weight, has_weights),
                });
            }
        }
        match last_error {
            Some(error) if targets.is_empty() => Err(error),
            _ => Ok(Resolved {
                targets,
                ttl: Some(ttl),
            }),
        }
    }
}

type DnsName = Name<Bytes>;

fn parse_name(text: &str) -> io::Result<DnsName> {
    let name = Name::vec_from_str(text);
    let name =
        name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
    Ok(name.to_name())
}

/// Returns the weight of an SRV target. RFC 2782: a weight of 0 beside others has a very small chance, and if all
/// weights are 0, the targets are equal.
fn srv_weight(weight: u16, has_weights: bool) -> NonZeroU32 {
    // Ten steps for each unit of weight leave room for the share of weight 0.
    let weight = if has_weights {
        u32::from(weight) * 10
    } else {
        1
    };
    NonZeroU32::new(weight).unwrap_or(NonZeroU32::MIN)
}

struct HostAnswer {
    addresses: Vec<IpAddr>,
    ttl: Duration,
}

/// Returns the IPv4 and IPv6 addresses of a host. One of the two queries may fail.
async fn addresses(client: &StubResolver, host: &DnsName) -> io::Result<HostAnswer> {
    let (v4, v6) = tokio::join!(
        query(client, host, Rtype::A),
        query(client, host, Rtype::AAAA)
    );
    let v4 = v4.and_then(|message| answers(&message, |a: A| IpAddr::V4(a.addr())));
    let v6 = v6.and_then(|message| answers(&message, |aaaa: Aaaa| IpAddr::V6(aaaa.addr())));
    match (v4, v6) {
        (Ok((mut addresses, ttl)), Ok((others, other_ttl))) => {
            // A missing type of address has no time to live.
            let ttl = match (addresses.is_empty(), others.is_empty()) {
                (true, false) => other_ttl,
                (false, true) => ttl,
                _ => ttl.min(other_ttl),
            };
            addresses.extend(others);
            Ok(HostAnswer { addresses, ttl })
        }
        (Ok((addresses, ttl)), Err(error)) | (Err(error), Ok((addresses, ttl))) => {
            match addresses.is_empty() {
                true => Err(error),
                false => Ok(HostAnswer { addresses, ttl }),
            }
        }
        (Err(error), Err(_)) => Err(error),
    }
}

async fn query(client: &StubResolver, name: &DnsName, kind: Rtype) -> io::Result<Message<Bytes>> {
    let message = client.query((name, kind)).await?.into_message();
    match message.header().rcode() {
        Rcode::NOERROR => Ok(message),
        code => {
            let text = format!("the DNS server answered {code} to the query of {kind} for {name}");
            Err(io::Error::other(text))
        }
    }
}

/// Returns the records of one type that belong to the name of the question or to its alias, and the smallest time to
/// live of the answer, aliases included.
fn answers<'a, D, T>(
    message: &'a Message<Bytes>,
    read: impl Fn(D) -> T,
) -> io::Result<(Vec<T>, Duration)>
where
    D: domain::base::rdata::ParseRecordData<'a, Bytes>,
{
    let invalid = |error: &dyn std::fmt::Display| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("invalid DNS message: {error}"),
        )
    };
    let owner = message.canonical_name();
    let owner = owner.ok_or_else(|| invalid(&"no question, or a loop of aliases"))?;
    let section = message.answer().map_err(|error| invalid(&error))?;
    let mut ttl = TTL_MAX;
    let mut found = Vec::new();
    for record in section {
        let record = record.map_err(|error| invalid(&error))?;
        ttl = ttl.min(record.ttl().into_duration());
        let is_own = record.owner() == owner;
        if let Some(record) = record.into_record::<D>().map_err(|error| invalid(&error))?
            && is_own
        {
            found.push(read(record.into_data()));
        }
    }
    Ok((found, ttl.max(TTL_MIN)))
}

/// The shortest time between two resolutions. Answers with the time to live 0 would otherwise cost a query for each
/// request.
const TTL_MIN: Duration = Duration::from_secs(1);
/// The longest time between two resolutions, so that a mistake in a zone does not last for weeks.
const TTL_MAX: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weight_zero_gets_a_small_share_and_equal_shares_without_others() {
        let weights = |weights: &[u16]| {
            let has_weights = weights.iter().any(|weight| *weight > 0);
            let weights = weights.iter();
            let weights = weights.map(|weight| srv_weight(*weight, has_weights).get());
            weights.collect::<Vec<_>>()
        };
        assert_eq!(weights(&[0, 0]), [1, 1]);
        assert_eq!(weights(&[0, 1, 3]), [1, 10, 30]);
        assert!(weights(&[u16::MAX])[0] <= edgeward_balance::WEIGHT_MAX);
    }
}
